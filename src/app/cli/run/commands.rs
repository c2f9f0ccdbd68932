//! The launch commands of `commgauge run`: of a new run, and of a resumed run as recorded.

use super::super::places;
use super::arguments::RunArguments;
use super::resumed_launch::ResumedLaunch;
use super::{allocation, work};
use crate::cli::backend_name::Backend;
use crate::cli::table_or_json::print_on;
use crate::launch::{self, LaunchCommand, Launcher, LauncherContext, Request};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_model::record::secrets::{HIDDEN_FROM_VIEW, without_secrets};
use std::io::Write;
use std::path::Path;

/// The displayed command and the started one, which differ in one flag of the launched program: the started one passes
/// the displayed one on for the record.
pub(super) struct Commands {
    pub shown: LaunchCommand,
    pub started: LaunchCommand,
}

impl Commands {
    /// Prints the command for `--dry-run`, to be copied.
    pub(super) fn print(&self, out: &mut dyn Write) -> Result<()> {
        print_on(out, &format!("{}\n", self.shown.for_shell()))?;
        if self.shown.has_secrets() {
            eprintln!(
                "commgauge: the command has {HIDDEN_FROM_VIEW} in place of secret values; put them in before you run it"
            );
        }
        Ok(())
    }
}

/// The launched program.
pub(super) struct Launched<'a> {
    /// Name of the program.
    program: &'a str,
    /// Its arguments.
    words: Vec<String>,
    /// The resumed run, if it is one.
    resumed: Option<&'a ResumedLaunch>,
}

impl<'a> Launched<'a> {
    /// The program of a new run.
    pub(super) fn new(arguments: &RunArguments, record: &Path) -> Result<Launched<'a>> {
        let mut words = work::words(arguments)?;
        words.extend(["--record".into(), places::text(record)?]);
        words.extend(["--backend", arguments.backend.name(), "--quiet"].map(str::to_owned));
        words.extend(launch_only_arguments(arguments));
        if let Some(machine) = &arguments.machine {
            words.extend(["--machine".into(), places::text(machine)?]);
        }
        Ok(Launched { program: work::program(arguments), words, resumed: None })
    }

    /// The program of a resumed run.
    pub(super) fn resumed(resumed: &'a ResumedLaunch, arguments: &RunArguments, record: &Path) -> Result<Launched<'a>> {
        let mut words = resumed.words.clone();
        words.extend(["--resume".into(), places::text(record)?, "--quiet".into()]);
        if arguments.allow_changed {
            words.push("--allow-changed".into());
        }
        words.extend(launch_only_arguments(arguments));
        Ok(Launched { program: &resumed.program, words, resumed: Some(resumed) })
    }

    /// Its launch commands.
    pub(super) fn commands(&self, arguments: &RunArguments) -> Result<Commands> {
        // The user's launcher arguments take precedence over those of the record.
        let has_launcher_arguments = arguments.launcher != "auto"
            || arguments.hosts.is_some()
            || arguments.host_file.is_some()
            || !arguments.launcher_arguments.is_empty();
        let before = self.resumed.and_then(|resumed| resumed.launcher.as_ref()).filter(|_| !has_launcher_arguments);
        let choice = before.map_or(arguments.launcher.as_str(), |part| part.program.as_str());
        let launcher = launch::find(choice, LauncherContext::here(), &launch::probe)?;
        let program = places::text(&launch::program(self.program, launcher.family)?)?;
        let build = |words: Vec<String>| match before {
            Some(part) => Ok(part.command(launcher.family, program.clone(), words)),
            None => launch::build(&launcher, &request(arguments, &launcher, program.clone(), words)?),
        };
        let with = |own: &[String]| [self.words.as_slice(), own, arguments.extra.as_slice()].concat();
        let shown = build(with(&[]))?;
        // Everybody on a host can read the command lines of its processes.
        let json = serde_json::to_string(&without_secrets(&shown.words()))
            .map_err(|cause| Error::environment(format!("cannot write the launch command as JSON: {cause}")))?;
        Ok(Commands { started: build(with(&["--launch-command".to_owned(), json]))?, shown })
    }
}

/// Arguments that apply to one launch only. They include the number of ranks, so that a launcher that starts
/// unconnected copies is detected, and a single rank is possible.
fn launch_only_arguments(arguments: &RunArguments) -> Vec<String> {
    let limit = arguments.time_limit.iter().flat_map(|limit| ["--time-limit".to_owned(), format!("{}s", limit.0)]);
    let timeout = arguments.timeout.iter().flat_map(|each| ["--timeout".to_owned(), each.as_secs_f64().to_string()]);
    ["--expect-ranks".to_owned(), arguments.ranks.to_string()].into_iter().chain(limit).chain(timeout).collect()
}

/// Cores of the Slurm allocation, or of this host.
pub(super) fn cores(in_slurm: bool) -> u32 {
    let allocated = if in_slurm { launch::host::slurm_cores() } else { None };
    allocated.unwrap_or_else(launch::host::cores)
}

/// Variables by which NCCL and its libraries are set here, and which ranks on other hosts are to have too: those of NCCL, those that name
/// files, and where hosts are named the path on which NCCL was found.
fn passed_variables(arguments: &RunArguments, names: impl Iterator<Item = String>) -> Vec<String> {
    if arguments.backend != Backend::Nccl {
        return Vec::new();
    }
    let is_elsewhere = arguments.hosts.is_some() || arguments.host_file.is_some();
    let is_passed = |name: &String| {
        let names_file = ["COMMGAUGE_NCCL_LIBRARY", "COMMGAUGE_CUBLAS_LIBRARY"].contains(&name.as_str());
        name.starts_with("NCCL_") || names_file || (is_elsewhere && name == "LD_LIBRARY_PATH")
    };
    let mut passed: Vec<String> = names.filter(is_passed).collect();
    passed.sort_unstable();
    passed
}

fn request(arguments: &RunArguments, launcher: &Launcher, program: String, words: Vec<String>) -> Result<Request> {
    // Open MPI's and MPICH's own launchers use the allocation as well.
    let in_slurm = launcher.family == launch::Family::Slurm || LauncherContext::here().in_slurm;
    Ok(Request {
        ranks: arguments.ranks,
        hosts: arguments.hosts.clone(),
        host_file: arguments.host_file.as_deref().map(places::text).transpose()?,
        ranks_per_host: allocation::ranks_per_host(arguments)?,
        cores: cores(in_slurm),
        srun_mpi: allocation::srun_mpi_plugin(arguments, launcher)?,
        root: launch::host::is_root(),
        has_threads: arguments.backend == Backend::Nccl,
        passed_variables: passed_variables(
            arguments,
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()),
        ),
        launcher_arguments: arguments.launcher_arguments.clone(),
        program,
        program_arguments: words,
    })
}
