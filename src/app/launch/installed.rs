//! Locates the launched programs and determines their MPI: next to commgauge as cargo builds them, or, in packages, in
//! one folder for each MPI, of which the one that fits the launcher is used.
//!
//! The layout of a package is defined by `scripts/package`.

use super::family::{Family, Flavor};
use super::find::{LauncherContext, find, probe};
use super::packaged::{only_flavor, own, packaged};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use std::path::{Path, PathBuf};

/// Path of the launched program of this name that fits the launcher.
///
/// # Errors
/// If it is not installed, or if srun is to start it and its MPI cannot be determined.
pub fn program(name: &str, family: Family) -> Result<PathBuf> {
    program_from(&own()?, name, family, &flavor)
}

/// The MPI of the launched programs: in a package, the one that matches the first launcher on PATH, else the one of
/// this build.
pub fn flavor() -> Option<Flavor> {
    only_flavor().or_else(|| {
        let launcher = find("auto", LauncherContext { in_slurm: false, flavor: None }, &probe).ok()?;
        launcher.family.flavor()
    })
}

/// The folder of the launched programs of that MPI.
pub fn folder() -> Option<PathBuf> {
    let own = own().ok()?;
    flavor().and_then(|flavor| packaged(&own, flavor)).or_else(|| own.parent().map(Path::to_owned))
}

fn program_from(own: &Path, name: &str, family: Family, of_path: &dyn Fn() -> Option<Flavor>) -> Result<PathBuf> {
    let packages: Vec<_> = [Flavor::OpenMpi, Flavor::Mpich].iter().filter_map(|each| packaged(own, *each)).collect();
    let program = if packages.is_empty() {
        own.with_file_name(name)
    } else {
        // srun starts programs of any MPI; an installed MPI comes with its own launcher.
        let flavor = family.flavor().or_else(of_path).ok_or_else(|| {
            Error::environment(
                "srun starts ranks of every MPI, and neither mpirun nor mpiexec on PATH tells which one is here; \
                 put the one of the MPI that is meant there, for example with `module load`",
            )
        })?;
        packaged(own, flavor).unwrap_or_else(|| own.with_file_name(flavor.folder())).join(name)
    };
    if program.is_file() {
        return Ok(program);
    }
    let advice = if packages.is_empty() {
        "build both with `cargo build --release` on a machine with MPI"
    } else {
        "install the package anew, or name a launcher of another MPI with --launcher"
    };
    Err(Error::environment(format!("no {name} beside commgauge: looked for {}; {advice}", program.shown())))
}

#[cfg(test)]
mod tests {
    use super::super::packaged::only_flavor_from;
    use super::*;

    fn folder_with(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        folder
    }

    const BOTH: [&str; 4] = [
        "bin/commgauge",
        "bin/commgauge-suite",
        "lib/commgauge/open-mpi/commgauge-suite",
        "lib/commgauge/mpich/commgauge-suite",
    ];

    #[test]
    fn the_programs_of_a_package_are_those_that_fit_the_launcher() {
        use Family::{Mpich, OpenMpi4, OpenMpi5, Slurm};
        let (open, mpich) = (Some(Flavor::OpenMpi), Some(Flavor::Mpich));
        let beside = ["bin/commgauge", "bin/open-mpi/commgauge-suite", "bin/mpich/commgauge-suite"];
        let plain = ["bin/commgauge", "bin/commgauge-suite"];
        for (files, family, of_path, expected) in [
            (&BOTH[..], OpenMpi4, None, "open-mpi/commgauge-suite"),
            (&BOTH[..], OpenMpi5, mpich, "open-mpi/commgauge-suite"),
            (&BOTH[..], Mpich, open, "mpich/commgauge-suite"),
            (&BOTH[..], Slurm, mpich, "mpich/commgauge-suite"),
            (&BOTH[..], Slurm, open, "open-mpi/commgauge-suite"),
            (&beside[..], OpenMpi5, None, "bin/open-mpi/commgauge-suite"),
            (&beside[..], Mpich, None, "bin/mpich/commgauge-suite"),
            (&plain[..], Mpich, None, "bin/commgauge-suite"),
        ] {
            let folder = folder_with(files);
            let own = folder.path().join("bin/commgauge");
            let found = program_from(&own, "commgauge-suite", family, &|| of_path).expect("found");
            assert!(found.to_string_lossy().ends_with(expected), "{family:?}: {}", found.display());
        }
    }

    #[test]
    fn missing_or_ambiguous_programs_are_named_with_the_fix() {
        let one = ["bin/commgauge", "lib/commgauge/open-mpi/commgauge-suite"];
        for (files, name, family, words) in [
            (&BOTH[..], "commgauge-suite", Family::Slurm, ["srun starts", "put the one"]),
            (&BOTH[..], "commgauge-step", Family::Mpich, ["mpich/commgauge-step", "anew"]),
            (&one[..], "commgauge-suite", Family::Mpich, ["mpich/commgauge-suite", "--launcher"]),
            (&["bin/commgauge"][..], "commgauge-suite", Family::Mpich, ["bin/commgauge-suite", "cargo build"]),
        ] {
            let folder = folder_with(files);
            let own = folder.path().join("bin/commgauge");
            let error = program_from(&own, name, family, &|| None).expect_err(name);
            assert_eq!(error.exit_code(), 6);
            for word in words {
                assert!(error.to_string().contains(word), "{error} lacks {word}");
            }
        }
    }

    #[test]
    fn a_package_for_several_mpis_takes_any_launcher_and_one_for_a_single_mpi_only_its_own() {
        let (both, one) = (folder_with(&BOTH), folder_with(&["bin/commgauge", "lib/commgauge/mpich/commgauge-suite"]));
        assert_eq!(only_flavor_from(Some(&both.path().join("bin/commgauge"))), None);
        assert_eq!(only_flavor_from(Some(&one.path().join("bin/commgauge"))), Some(Flavor::Mpich));
        assert_eq!(only_flavor_from(None), Flavor::of_this_build());
    }
}
