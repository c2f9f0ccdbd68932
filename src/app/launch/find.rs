//! Finds the requested launcher, or the one that fits the MPI that the programs were built against.
//!
//! A launcher of another MPI is never substituted; the error names it.

use super::family::{Family, Flavor, Launcher, parse_version};
use super::packaged::only_flavor;
use commgauge_base::error::{Error, Result};
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
            "--launcher {choice} is of {} {}, but commgauge-suite was built against {}: every rank would be alone; \
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
