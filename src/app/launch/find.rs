//! Finds the requested launcher, or the one that fits the MPI that the programs were built against.
//!
//! A launcher of another MPI is never substituted; the error names it.

use super::family::{Launcher, parse_version};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_run::launcher::{Family, Flavor, slurm_numbers};
use std::collections::BTreeSet;
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Inputs of the choice, read once by the caller.
#[derive(Clone, Copy, Debug)]
pub struct LauncherContext {
    /// Inside a Slurm allocation.
    pub in_slurm: bool,
    /// The MPI of the launched programs, if it is known and unique.
    pub flavor: Option<Flavor>,
}

impl LauncherContext {
    /// Reads them for this process.
    pub fn here() -> Self {
        Self { in_slurm: std::env::var_os("SLURM_JOB_ID").is_some(), flavor: only_flavor() }
    }
}

/// The output of `PROGRAM --version`; `None` if the program does not exist.
pub fn probe(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    Some(text)
}

/// The launcher for `choice`: `auto`, a name on the search path, or a path.
pub fn find(choice: &str, context: LauncherContext, probe: &dyn Fn(&str) -> Option<String>) -> Result<Launcher> {
    if choice != "auto" {
        return requested(choice, context, probe);
    }
    if context.in_slurm {
        return match probe("srun").and_then(|text| parse_version("srun", &text)) {
            Some(launcher) if launcher.family == Family::Slurm => Ok(launcher),
            _ => Err(Error::environment(
                "this is a Slurm allocation (SLURM_JOB_ID is set), but there is no srun on PATH; \
                 install slurm-client, or name another launcher with --launcher",
            )),
        };
    }
    fitting(context.flavor, probe)
}

fn requested(choice: &str, context: LauncherContext, probe: &dyn Fn(&str) -> Option<String>) -> Result<Launcher> {
    let Some(text) = probe(choice) else {
        let place = if choice.contains('/') { "" } else { " on PATH" };
        let package = match choice {
            "srun" => "slurm-client",
            _ => package(context.flavor),
        };
        return Err(Error::environment(format!(
            "--launcher {choice}: there is no such program{place}; install {package}, or name another launcher"
        )));
    };
    let Some(launcher) = parse_version(choice, &text) else {
        let first = text.lines().next().unwrap_or_default();
        return Err(Error::usage(format!(
            "--launcher {choice}: its --version says \"{first}\"; known are mpirun of Open MPI, mpiexec of MPICH and of Intel MPI, and srun"
        )));
    };
    if let Some(flavor) = context.flavor.filter(|flavor| !launcher.family.starts(*flavor)) {
        return Err(Error::usage(format!(
            "--launcher {choice} belongs to {} {}, but commgauge-suite was built against {}: every rank would be alone; \
             name a launcher of {}, or build with the other MPI's compiler in MPICC",
            launcher.family.name(),
            launcher.version,
            flavor.name(),
            flavor.name(),
        )));
    }
    Ok(launcher)
}

/// The beginning of the output of a launcher that prints no version, which explains why.
fn output_excerpt(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| line.chars().any(char::is_alphanumeric));
    let line: String = line.unwrap_or("nothing").chars().take(100).collect();
    // Open MPI 5 does not start without a home directory.
    let fix = if text.contains("home directory") { ", so set HOME" } else { "" };
    format!(": it says `{line}`{fix}")
}

/// The first launcher on the search path that fits; both MPIs use the same names, so each one is probed.
fn fitting(flavor: Option<Flavor>, probe: &dyn Fn(&str) -> Option<String>) -> Result<Launcher> {
    let names: &[&str] = match flavor {
        Some(Flavor::OpenMpi) => &["mpirun", "mpiexec", "mpirun.openmpi"],
        Some(Flavor::Mpich) => &["mpiexec", "mpirun", "mpiexec.mpich", "mpiexec.hydra"],
        None => &["mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.mpich", "mpiexec.hydra"],
    };
    let mut others = Vec::new();
    for name in names {
        let Some(text) = probe(name) else { continue };
        match parse_version(name, &text) {
            Some(launcher) if flavor.is_none_or(|flavor| launcher.family.starts(flavor)) => return Ok(launcher),
            Some(launcher) => others.push(format!("{name} is of {} {}", launcher.family.name(), launcher.version)),
            None => others.push(format!("{name} is not a launcher that commgauge knows{}", output_excerpt(&text))),
        }
    }
    let built = flavor.map_or("an MPI", Flavor::name);
    let seen = if others.is_empty() { String::new() } else { format!(" ({})", others.join("; ")) };
    Err(Error::environment(format!(
        "no launcher of {built} on PATH: looked for {}{seen}; install {}, or name one with --launcher",
        names.join(", "),
        package(flavor),
    )))
}

fn package(flavor: Option<Flavor>) -> &'static str {
    match flavor {
        Some(Flavor::Mpich) => "the package mpich",
        _ => "the package openmpi-bin (Debian, Ubuntu) or openmpi (Fedora)",
    }
}

// Locates the launched programs and determines their MPI: next to commgauge as cargo builds them, or, in packages, in
// one folder for each MPI, of which the one that fits the launcher is used.
//
// The layout of a package is defined by `scripts/package`.

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
    let packages: Vec<_> = Flavor::ALL.iter().filter_map(|each| packaged(own, *each)).collect();
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
        "reinstall the package, or name a launcher of another MPI with --launcher"
    };
    Err(Error::environment(format!("no {name} next to commgauge: looked for {}; {advice}", program.shown())))
}

// The MPIs for which launched programs are installed, each in a folder of its own.

/// The MPI of the launched programs, if it is unambiguous; `None` for a package with several.
pub(super) fn only_flavor() -> Option<Flavor> {
    only_flavor_from(own().ok().as_deref())
}

pub(super) fn own() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|cause| Error::environment(format!("the path of commgauge itself is unknown: {cause}")))
}

/// The folder of the programs for one MPI: next to commgauge itself, or `PREFIX/lib/commgauge` of a package.
pub(super) fn packaged(own: &Path, flavor: Flavor) -> Option<PathBuf> {
    let prefix = own.ancestors().nth(2).unwrap_or(own);
    let folders = [own.with_file_name(""), prefix.join("lib/commgauge")].map(|parent| parent.join(flavor.folder()));
    folders.into_iter().find(|folder| folder.is_dir())
}

pub(super) fn only_flavor_from(own: Option<&Path>) -> Option<Flavor> {
    let has = |flavor: &Flavor| own.is_some_and(|own| packaged(own, *flavor).is_some());
    match Flavor::ALL.into_iter().filter(has).collect::<Vec<_>>()[..] {
        [] => Flavor::of_this_build(),
        [only] => Some(only),
        _ => None,
    }
}

// Facts of this host that affect the launch flags: available cores and user.

/// Cores that ranks started here may use.
///
/// Launchers count physical cores, the operating system counts hardware threads, and a container may have a CPU quota;
/// the smallest of the three is what ranks can use at the same time.
pub fn cores() -> u32 {
    let allowed = std::thread::available_parallelism().map_or(1, NonZero::get) as u32;
    physical_cores().map_or(allowed, |physical| physical.min(allowed)).max(1)
}

/// Cores of the Slurm allocation, over all its hosts.
pub fn slurm_cores() -> Option<u32> {
    count_slurm_cores(&std::env::var("SLURM_JOB_CPUS_PER_NODE").ok()?)
}

/// Whether the user is root; Open MPI then needs an extra flag.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Name of this host, as the host gives it.
pub fn name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Processes that the OOM killer of this host has killed since boot, including those in containers with a limit; none
/// where the system does not count them (before Linux 4.13).
pub fn out_of_memory_kills() -> Option<u64> {
    count_out_of_memory_kills(&fs::read_to_string("/proc/vmstat").ok()?)
}

fn count_out_of_memory_kills(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}

/// Distinct (package, core) pairs of the processors that are online.
fn physical_cores() -> Option<u32> {
    let mut pairs = BTreeSet::new();
    for entry in fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        let topology = entry.path().join("topology");
        let number = |name: &str| fs::read_to_string(topology.join(name)).ok()?.trim().parse::<i64>().ok();
        if let (Some(package), Some(core)) = (number("physical_package_id"), number("core_id")) {
            pairs.insert((package, core));
        }
    }
    (!pairs.is_empty()).then_some(pairs.len() as u32)
}

/// The sum of Slurm's numbers of cores.
fn count_slurm_cores(text: &str) -> Option<u32> {
    slurm_numbers(text)?.into_iter().try_fold(0u32, u32::checked_add)
}

#[cfg(test)]
mod tests {
    use super::{only_flavor_from, *};

    const OPEN_MPI: &str = "mpirun (Open MPI) 4.1.4\n";

    const MPICH: &str = "HYDRA build details:\n    Version:      4.0.2\n";

    const SLURM: &str = "slurm 23.11.4\n";

    const NO_HOME: &str =
        "\n[vm:1] Error: Unable to get the user home directory\n----\nIt looks like opal_init failed\n";

    fn check(choice: &str, in_slurm: bool, flavor: Option<Flavor>, machine: &[(&str, &str)]) -> Result<String> {
        let probe = |name: &str| machine.iter().find(|entry| entry.0 == name).map(|entry| entry.1.to_owned());
        find(choice, LauncherContext { in_slurm, flavor }, &probe).map(|launcher| launcher.program)
    }

    #[test]
    fn a_launcher_that_is_missing_or_of_another_mpi_is_refused_by_name() {
        let (open, mpich) = (Some(Flavor::OpenMpi), Some(Flavor::Mpich));
        for (choice, in_slurm, flavor, machine, exit_code, words) in [
            ("auto", false, open, &[][..], 6, &["mpirun, mpiexec", "openmpi-bin"][..]),
            ("auto", false, mpich, &[("mpirun", OPEN_MPI)], 6, &["no launcher of MPICH", "4.1.4", "package mpich"]),
            ("auto", true, open, &[("mpirun", OPEN_MPI)], 6, &["SLURM_JOB_ID", "srun"]),
            (
                "auto",
                false,
                open,
                &[("mpirun", NO_HOME)],
                6,
                &["`[vm:1] Error: Unable to get the user home", "set HOME"],
            ),
            ("srun", false, open, &[], 6, &["slurm-client"]),
            ("/opt/x/mpirun", false, open, &[], 6, &["/opt/x/mpirun: there is no such program;"]),
            ("mpirun", false, mpich, &[("mpirun", OPEN_MPI)], 2, &["every rank would be alone", "MPICC"]),
            ("bash", false, open, &[("bash", "GNU bash, version 5.2")], 2, &["GNU bash", "known are"]),
        ] {
            let error = check(choice, in_slurm, flavor, machine).expect_err(choice);
            assert_eq!(error.exit_code(), exit_code, "{error}");
            for word in words {
                assert!(error.to_string().contains(word), "{error} lacks {word}");
            }
        }
    }

    #[test]
    fn auto_takes_srun_in_an_allocation_else_the_one_that_fits_the_build() {
        let both = [("mpirun", OPEN_MPI), ("mpiexec", OPEN_MPI), ("mpiexec.mpich", MPICH), ("srun", SLURM)];
        for (in_slurm, flavor, expected) in [
            (true, Some(Flavor::OpenMpi), "srun"),
            (false, Some(Flavor::OpenMpi), "mpirun"),
            (false, Some(Flavor::Mpich), "mpiexec.mpich"),
            (false, None, "mpirun"),
        ] {
            assert_eq!(check("auto", in_slurm, flavor, &both).expect("found"), expected);
        }
        assert_eq!(check("srun", false, Some(Flavor::Mpich), &both).expect("found"), "srun");
    }

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
        let installed = ["bin/commgauge", "bin/open-mpi/commgauge-suite", "bin/mpich/commgauge-suite"];
        let plain = ["bin/commgauge", "bin/commgauge-suite"];
        for (files, family, of_path, expected) in [
            (&BOTH[..], OpenMpi4, None, "open-mpi/commgauge-suite"),
            (&BOTH[..], OpenMpi5, mpich, "open-mpi/commgauge-suite"),
            (&BOTH[..], Mpich, open, "mpich/commgauge-suite"),
            (&BOTH[..], Slurm, mpich, "mpich/commgauge-suite"),
            (&BOTH[..], Slurm, open, "open-mpi/commgauge-suite"),
            (&installed[..], OpenMpi5, None, "bin/open-mpi/commgauge-suite"),
            (&installed[..], Mpich, None, "bin/mpich/commgauge-suite"),
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
            (&BOTH[..], "commgauge-step", Family::Mpich, ["mpich/commgauge-step", "reinstall"]),
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

    #[test]
    fn slurms_short_form_of_cores_is_read() {
        for (text, expected) in [
            ("", None),
            ("x", None),
            ("4(x", None),
            ("4294967295(x2)", None),
            ("8", Some(8)),
            ("72(x2),36", Some(180)),
            ("4,4", Some(8)),
        ] {
            assert_eq!(count_slurm_cores(text), expected, "{text}");
        }
    }

    #[test]
    fn out_of_memory_kills_are_read_from_the_systems_counters() {
        for (text, expected) in
            [("", None), ("oom_kill x", None), ("oom_killer 3\n", None), ("pgfault 7\noom_kill 3\nswap 1\n", Some(3))]
        {
            assert_eq!(count_out_of_memory_kills(text), expected, "{text}");
        }
    }

    #[test]
    fn there_is_at_least_one_core_and_never_more_than_the_system_allows() {
        let allowed = std::thread::available_parallelism().expect("known").get() as u32;
        assert!((1..=allowed).contains(&cores()));
    }
}
