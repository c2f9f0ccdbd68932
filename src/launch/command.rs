//! The launch command as data: from the ranks that are wanted to the words that start them.
//!
//! The transport is never chosen here: what a launcher takes unasked is what is measured.

use super::family::{Family, Launcher};
use super::quote::{quote, quote_program};
use crate::error::{Error, Result};
use rustix::process::Signal;

/// What is to be launched, and where.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Number of ranks.
    pub ranks: u32,
    /// Hosts as the user named them, such as `a:2,b:2`.
    pub hosts: Option<String>,
    /// A file of hosts, in the launcher's own form.
    pub host_file: Option<String>,
    /// Cores that the ranks share: of this host, or of the Slurm allocation. Not looked at where hosts are named.
    pub cores: u32,
    /// How srun brings the ranks together, the word of its `--mpi`; where none, Slurm's own setting holds.
    pub srun_mpi: Option<String>,
    /// Whether the user is root.
    pub root: bool,
    /// Whether ranks have threads of a library beside their own, such as NCCL's, which move data too and need processors of their own.
    pub has_threads: bool,
    /// Words for the launcher, placed after ours.
    pub launcher_arguments: Vec<String>,
    /// The program that every rank runs.
    pub program: String,
    /// Its words.
    pub program_arguments: Vec<String>,
}

/// A command that can be shown before it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchCommand {
    /// Changes to the environment.
    pub environment: Vec<(String, String)>,
    /// The launcher.
    pub program: String,
    /// All its words.
    pub arguments: Vec<String>,
    /// The signal that the launcher hands on to its ranks, to ask them to stop; where none, the one that arrived does.
    pub stop_signal: Option<i32>,
}

impl LaunchCommand {
    /// One line to paste into a shell.
    pub fn for_shell(&self) -> String {
        let mut words = Vec::new();
        if !self.environment.is_empty() {
            words.push("env".to_owned());
            words.extend(self.environment.iter().map(|(name, value)| quote(&format!("{name}={value}"))));
        }
        words.push(quote_program(&self.program));
        words.extend(self.arguments.iter().map(|word| quote(word)));
        words.join(" ")
    }

    /// The words, with the environment in front as `env` takes it; for the record.
    pub fn words(&self) -> Vec<String> {
        let changes = self.environment.iter().map(|(name, value)| format!("{name}={value}"));
        let env = (!self.environment.is_empty()).then(|| "env".to_owned());
        let rest = std::iter::once(self.program.clone()).chain(self.arguments.iter().cloned());
        env.into_iter().chain(changes).chain(rest).collect()
    }
}

/// How ranks and cores go together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// A core for each rank: each is bound to its own, unless its threads need several.
    Enough,
    /// More ranks than cores: they take turns, unbound.
    Shared,
    /// The hosts come from the user, their cores are not known here: the launcher's own binding holds.
    Unknown,
}

/// Builds the command for the launcher at hand.
pub fn build(launcher: &Launcher, request: &Request) -> Result<LaunchCommand> {
    if request.hosts.is_some() && request.host_file.is_some() {
        return Err(Error::usage("--hosts and --hostfile both say where the ranks go; give one of them"));
    }
    let (mut environment, mut arguments) = (Vec::new(), Vec::new());
    let room = room(request)?;
    match launcher.family {
        Family::OpenMpi4 | Family::OpenMpi5 => open_mpi(launcher.family, request, room, &mut arguments),
        Family::Mpich => mpich(request, room, &mut arguments, &mut environment),
        Family::IntelMpi => intel_mpi(request, room, &mut arguments)?,
        Family::Slurm => slurm(request, room, &mut arguments, &mut environment)?,
    }
    arguments.extend(request.launcher_arguments.iter().cloned());
    arguments.push(request.program.clone());
    arguments.extend(request.program_arguments.iter().cloned());
    let stop_signal = stop_signal(launcher.family);
    Ok(LaunchCommand { environment, program: launcher.program.clone(), arguments, stop_signal })
}

/// All of them take SIGTERM as the order to kill within a second or at once, and srun takes SIGINT as a question; this one they
/// hand on to the ranks, who then have the time to end in order.
pub(super) fn stop_signal(family: Family) -> Option<i32> {
    match family {
        Family::OpenMpi4 | Family::OpenMpi5 | Family::Mpich | Family::IntelMpi | Family::Slurm => {
            Some(Signal::USR1.as_raw())
        }
    }
}

fn room(request: &Request) -> Result<Room> {
    if let Some(hosts) = &request.hosts {
        let slots = parse_hosts(hosts)?.iter().map(|host| u64::from(host.1)).sum::<u64>();
        return Ok(if u64::from(request.ranks) > slots { Room::Shared } else { Room::Unknown });
    }
    Ok(match () {
        () if request.host_file.is_some() => Room::Unknown,
        () if request.ranks > request.cores => Room::Shared,
        () => Room::Enough,
    })
}

/// The hosts of `--hosts HOST[:RANKS],...`, each with its slots; a host without a number has one, as Open MPI and MPICH count.
///
/// # Errors
/// A usage error that names the part that is none.
pub fn parse_hosts(text: &str) -> Result<Vec<(&str, u32)>> {
    text.split(',')
        .map(|part| {
            let (name, slots) = part.split_once(':').unwrap_or((part, "1"));
            match slots.parse() {
                Ok(slots) if slots > 0 && !name.is_empty() => Ok((name, slots)),
                _ => Err(Error::usage(format!("--hosts {text}: \"{part}\" is not HOST or HOST:RANKS"))),
            }
        })
        .collect()
}

/// Whether the user's own words for the launcher settle a matter, so that ours would contradict them.
fn settled(request: &Request, flags: &[&str]) -> bool {
    request.launcher_arguments.iter().any(|word| {
        let word = word.trim_start_matches('-');
        flags.iter().any(|flag| word == *flag || word.strip_prefix(flag).is_some_and(|rest| rest.starts_with('=')))
    })
}

fn open_mpi(family: Family, request: &Request, room: Room, arguments: &mut Vec<String>) {
    if request.root && !settled(request, &["allow-run-as-root"]) {
        push(arguments, &["--allow-run-as-root"]);
    }
    push(arguments, &["-n", &request.ranks.to_string()]);
    if let Some(hosts) = &request.hosts {
        push(arguments, &["--host", hosts]);
    }
    if let Some(file) = &request.host_file {
        push(arguments, &["--hostfile", file]);
    }
    if room == Room::Shared {
        match family {
            Family::OpenMpi5 if !settled(request, &["map-by"]) => push(arguments, &["--map-by", ":OVERSUBSCRIBE"]),
            Family::OpenMpi4 if !settled(request, &["oversubscribe"]) => push(arguments, &["--oversubscribe"]),
            _ => {}
        }
        // Open MPI yields by itself only where it knows of the shortage, and it does not see a container's quota.
        push(arguments, &["--mca", "mpi_yield_when_idle", "1"]);
    }
    bind(request, room, "--bind-to", arguments);
}

/// How MPICH is made to give processors away while its ranks wait, which it does not by itself: the device ch3 knows the first, ch4 from
/// MPICH 4.3 on the others (its `mpivars` lists those of a version). Unknown ones are passed over. The device ch4:ucx of older versions
/// is made to by the launched programs (`mpi_call/yielding.c`).
const MPICH_YIELDS: [(&str, &str); 3] = [
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "true"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "1"),
];

fn mpich(request: &Request, room: Room, arguments: &mut Vec<String>, environment: &mut Vec<(String, String)>) {
    if room == Room::Shared {
        environment.extend(MPICH_YIELDS.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
    push(arguments, &["-n", &request.ranks.to_string()]);
    if let Some(hosts) = &request.hosts {
        push(arguments, &["-hosts", hosts]);
    }
    if let Some(file) = &request.host_file {
        push(arguments, &["-f", file]);
    }
    bind(request, room, "-bind-to", arguments);
}

/// Words of Hydra, but for hosts: there is one number of ranks for all of them. Its ranks give processors away unasked.
fn intel_mpi(request: &Request, room: Room, arguments: &mut Vec<String>) -> Result<()> {
    push(arguments, &["-n", &request.ranks.to_string()]);
    if let Some(text) = &request.hosts {
        let (names, slots) = equal_hosts(text, "mpiexec of Intel MPI", "a --hostfile of lines HOST:RANKS")?;
        push(arguments, &["-hosts", &names.join(","), "-ppn", &slots.to_string()]);
    }
    if let Some(file) = &request.host_file {
        push(arguments, &["-machinefile", file]);
    }
    bind(request, room, "-bind-to", arguments);
    Ok(())
}

/// Names of hosts, and the slots that each of them has.
fn equal_hosts<'a>(text: &'a str, launcher: &str, instead: &str) -> Result<(Vec<&'a str>, u32)> {
    let hosts = parse_hosts(text)?;
    let slots = hosts.first().map_or(1, |host| host.1);
    if hosts.iter().any(|host| host.1 != slots) {
        return Err(Error::usage(format!(
            "--hosts {text}: {launcher} takes the same number of ranks for every host; give {instead} instead"
        )));
    }
    Ok((hosts.iter().map(|host| host.0).collect(), slots))
}

fn bind(request: &Request, room: Room, flag: &str, arguments: &mut Vec<String>) {
    if settled(request, &["bind-to"]) {
        return;
    }
    match room {
        // Threads inherit the binding of their process; NCCL then puts its own near the GPU, on what it may use.
        Room::Enough | Room::Unknown if request.has_threads => push(arguments, &[flag, "none"]),
        Room::Enough => push(arguments, &[flag, "core"]),
        Room::Shared => push(arguments, &[flag, "none"]),
        Room::Unknown => {}
    }
}

/// Without `--kill-on-bad-exit` the other ranks would wait for a dead one until the allocation's time is over.
fn slurm(
    request: &Request,
    room: Room,
    arguments: &mut Vec<String>,
    environment: &mut Vec<(String, String)>,
) -> Result<()> {
    push(arguments, &[&format!("--ntasks={}", request.ranks), "--kill-on-bad-exit=1"]);
    if let Some(mpi) = request.srun_mpi.as_deref().filter(|_| !settled(request, &["mpi"])) {
        push(arguments, &[&format!("--mpi={mpi}")]);
    }
    if let Some(text) = &request.hosts {
        let (names, slots) = equal_hosts(text, "srun", "a --hostfile with one line per rank")?;
        push(arguments, &[&format!("--nodelist={}", names.join(","))]);
        if room == Room::Unknown && text.contains(':') {
            push(arguments, &[&format!("--ntasks-per-node={slots}")]);
        }
    }
    if let Some(file) = &request.host_file {
        // The way that srun's manual gives for a file of hosts, one line per rank.
        environment.push(("SLURM_HOSTFILE".into(), file.clone()));
        push(arguments, &["--distribution=arbitrary"]);
    }
    let bound = settled(request, &["cpu-bind"]);
    match room {
        Room::Enough | Room::Unknown if !bound && request.has_threads => push(arguments, &["--cpu-bind=none"]),
        Room::Enough if !bound => push(arguments, &["--cpu-bind=cores"]),
        Room::Shared => {
            push(arguments, &["--overcommit"]);
            if !bound {
                push(arguments, &["--cpu-bind=none"]);
            }
        }
        _ => {}
    }
    Ok(())
}

fn push(arguments: &mut Vec<String>, words: &[&str]) {
    arguments.extend(words.iter().map(|word| (*word).to_owned()));
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
