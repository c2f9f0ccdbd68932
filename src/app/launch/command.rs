//! The launch command as data: from the requested ranks to the arguments that start them.
//!
//! The transport is never chosen here: the launcher's default is what is measured.

use super::allocation::expand;
use super::family::Launcher;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::{quote, quote_program};
use commgauge_model::record::header::{Variable, to_show};
use commgauge_run::launcher::Family;
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// What to launch, and where.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Number of ranks.
    pub ranks: u32,
    /// Hosts as the user named them, such as `a:2,b:2`.
    pub hosts: Option<String>,
    /// A file of hosts, in the launcher's format.
    pub host_file: Option<String>,
    /// Ranks of every host, where the launcher would place them otherwise by itself; ignored if hosts are named.
    pub ranks_per_host: Option<u32>,
    /// Cores that the ranks share: those of this host, or of the Slurm allocation. Ignored if hosts are named.
    pub cores: u32,
    /// The value of srun's `--mpi`; Slurm's own setting applies where there is none.
    pub srun_mpi: Option<String>,
    /// Whether the user is root.
    pub root: bool,
    /// Whether ranks have library threads, such as NCCL's proxy threads, that need their own processors.
    pub has_threads: bool,
    /// Variables of this environment that all ranks are to have, for launchers that do not pass them on by themselves.
    pub passed_variables: Vec<String>,
    /// Further arguments for the launcher, placed after ours.
    pub launcher_arguments: Vec<String>,
    /// The program that every rank runs.
    pub program: String,
    pub program_arguments: Vec<String>,
}

/// A command that can be shown before it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchCommand {
    /// Changes to the environment.
    pub environment: Vec<Variable>,
    pub program: String,
    pub arguments: Vec<String>,
    /// The signal that the launcher forwards to its ranks to ask them to stop; where none, the received signal is sent.
    pub stop_signal: Option<i32>,
}

impl LaunchCommand {
    /// One line to paste into a shell, but for values of secret variables, which it does not show.
    pub fn for_shell(&self) -> String {
        let program = if self.environment.is_empty() { 0 } else { 1 + self.environment.len() };
        let quoted = |(index, word): (usize, &String)| if index == program { quote_program(word) } else { quote(word) };
        to_show(&self.words()).iter().enumerate().map(quoted).collect::<Vec<_>>().join(" ")
    }

    /// Whether [`Self::for_shell`] leaves values out.
    pub fn has_secrets(&self) -> bool {
        let words = self.words();
        to_show(&words) != words
    }

    /// The command as one that can be started.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.envs(self.environment.iter().map(|variable| (&variable.name, &variable.value)));
        command
    }

    fn push(&mut self, words: &[&str]) {
        self.arguments.extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// The command line, with the environment in front in the form of `env`; for the record.
    pub fn words(&self) -> Vec<String> {
        let changes = self.environment.iter().map(Variable::assignment);
        let env = (!self.environment.is_empty()).then(|| "env".to_owned());
        let rest = std::iter::once(self.program.clone()).chain(self.arguments.iter().cloned());
        env.into_iter().chain(changes).chain(rest).collect()
    }
}

/// Cores available to the ranks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CoreSupply {
    /// At least a core for each rank: each is bound to its own, unless its threads need several.
    Enough,
    /// The same under a launcher that cannot bind: it is not asked to, and the launch check notes that ranks are not bound.
    EnoughUnbound,
    /// More ranks than cores: the ranks are not bound.
    Oversubscribed,
    /// The user named the hosts, whose cores are not known here: the launcher's default binding applies.
    Unknown,
}

pub fn build(launcher: &Launcher, request: &Request) -> Result<LaunchCommand> {
    if request.hosts.is_some() && request.host_file.is_some() {
        return Err(Error::usage("--hosts and --hostfile both say where the ranks go; give one of them"));
    }
    let core_supply = core_supply(launcher, request)?;
    let (environment, program, arguments) = (Vec::new(), launcher.program.clone(), Vec::new());
    let mut command = LaunchCommand { environment, program, arguments, stop_signal: STOP_SIGNAL };
    match launcher.family {
        family @ (Family::OpenMpi4 | Family::OpenMpi5) => open_mpi(family, request, core_supply, &mut command),
        family @ (Family::Mpich | Family::IntelMpi) => hydra(family, request, core_supply, &mut command)?,
        Family::Slurm => slurm(request, core_supply, &mut command)?,
    }
    let program = std::iter::once(&request.program).chain(&request.program_arguments);
    command.arguments.extend(request.launcher_arguments.iter().chain(program).cloned());
    Ok(command)
}

/// On SIGTERM launchers kill the ranks at once or within a second, and srun treats SIGINT as a question; all forward this
/// signal to the ranks, which then have time to shut down cleanly.
pub(super) const STOP_SIGNAL: Option<i32> = Some(Signal::USR1.as_raw());

fn core_supply(launcher: &Launcher, request: &Request) -> Result<CoreSupply> {
    if let Some(hosts) = &request.hosts {
        let slots = parse_hosts(hosts)?.iter().map(|host| u64::from(host.1)).sum::<u64>();
        return Ok(if u64::from(request.ranks) > slots { CoreSupply::Oversubscribed } else { CoreSupply::Unknown });
    }
    Ok(match () {
        () if request.host_file.is_some() => CoreSupply::Unknown,
        () if request.ranks > request.cores => CoreSupply::Oversubscribed,
        () if !launcher.can_bind => CoreSupply::EnoughUnbound,
        () => CoreSupply::Enough,
    })
}

/// Writes out the ranges of `--hosts`: `node[1-2]:8` is `node1:8,node2:8`.
///
/// # Errors
/// As [`parse_hosts`].
pub fn expanded_hosts(text: &str) -> Result<String> {
    let hosts = expand(text).map_or_else(|| text.to_owned(), |hosts| hosts.join(","));
    parse_hosts(&hosts).map(|_| hosts.clone())
}

/// Parses `--hosts HOST[:RANKS],...` to hosts with slots; a host without a number has one, as in Open MPI and MPICH.
///
/// # Errors
/// A usage error that names the invalid part.
pub fn parse_hosts(text: &str) -> Result<Vec<(&str, u32)>> {
    text.split(',')
        .map(|part| {
            let (name, slots) = part.split_once(':').unwrap_or((part, "1"));
            match slots.parse() {
                Ok(slots) if slots > 0 && !name.is_empty() && !name.contains(['[', ']']) => Ok((name, slots)),
                _ => Err(Error::usage(format!(
                    "--hosts {text}: \"{part}\" is not HOST or HOST:RANKS, and HOST may be node[1-4]; launchers take IPv6 in no list, so give its name"
                ))),
            }
        })
        .collect()
}

/// Whether the user's own launcher arguments contain a flag, so that ours would contradict them.
fn is_set_by_user(request: &Request, flag: &str) -> bool {
    request.launcher_arguments.iter().any(|word| is_of_variable(word.trim_start_matches('-'), flag))
}

/// Ranks of every host, where no hosts are named.
fn of_each_host(request: &Request) -> Option<u32> {
    request.ranks_per_host.filter(|_| request.hosts.is_none() && request.host_file.is_none())
}

fn open_mpi(family: Family, request: &Request, core_supply: CoreSupply, command: &mut LaunchCommand) {
    if request.root && !is_set_by_user(request, "allow-run-as-root") {
        command.push(&["--allow-run-as-root"]);
    }
    command.push(&["-n", &request.ranks.to_string()]);
    if let Some(hosts) = &request.hosts {
        command.push(&["--host", hosts]);
    }
    if let Some(file) = &request.host_file {
        command.push(&["--hostfile", file]);
    }
    let per_host = of_each_host(request).filter(|_| !is_set_by_user(request, "map-by"));
    if let Some(ranks) = per_host {
        // Slurm's slots count processors, or one of each host: neither is the number of GPUs.
        command.push(&["--map-by", &format!("ppr:{ranks}:node:OVERSUBSCRIBE")]);
    }
    if core_supply == CoreSupply::Oversubscribed {
        match family {
            _ if per_host.is_some() => {}
            Family::OpenMpi5 if !is_set_by_user(request, "map-by") => command.push(&["--map-by", ":OVERSUBSCRIBE"]),
            Family::OpenMpi4 if !is_set_by_user(request, "oversubscribe") => command.push(&["--oversubscribe"]),
            _ => {}
        }
        // Open MPI yields by itself only if it detects oversubscription, and it does not see a container's CPU quota.
        command.push(&["--mca", "mpi_yield_when_idle", "1"]);
    }
    if let Some(how) = binding(request, core_supply, "bind-to") {
        command.push(&["--bind-to", how]);
    }
    // Started by ssh, ranks have the environment that their host gives them. Hydra and srun pass on all of ours by themselves.
    let given: Vec<&String> = request.launcher_arguments.iter().skip_while(|word| *word != "-x").collect();
    for name in request.passed_variables.iter().filter(|name| !given.iter().any(|word| is_of_variable(word, name))) {
        command.push(&["-x", name]);
    }
}

/// Whether a word names a flag or a variable, perhaps with its value.
fn is_of_variable(word: &str, name: &str) -> bool {
    word == name || word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
}

/// Makes MPICH yield processors while its ranks wait, which it does not do by default: the first variable is for the
/// device ch3, the others for ch4 since MPICH 4.3 (listed by `mpivars` of that version). MPICH ignores unknown ones.
/// With ch4:ucx of older versions the launched programs yield themselves (`mpi_call/yielding.c`).
const MPICH_YIELDS: [(&str, &str); 3] = [
    ("MPIR_CVAR_POLLS_BEFORE_YIELD", "1"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE", "true"),
    ("MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT", "1"),
];

/// Arguments of Hydra. Intel MPI's takes one number of ranks for all hosts, and its ranks yield processors by default.
fn hydra(family: Family, request: &Request, core_supply: CoreSupply, command: &mut LaunchCommand) -> Result<()> {
    let is_intel = family == Family::IntelMpi;
    if core_supply == CoreSupply::Oversubscribed && !is_intel {
        command.environment.extend(MPICH_YIELDS.map(|(name, value)| Variable::new(name, value)));
    }
    command.push(&["-n", &request.ranks.to_string()]);
    match &request.hosts {
        Some(hosts) if is_intel => {
            let (names, slots) = equal_hosts(hosts, "mpiexec of Intel MPI", "a --hostfile of lines HOST:RANKS")?;
            command.push(&["-hosts", &names.join(","), "-ppn", &slots.to_string()]);
        }
        Some(hosts) => command.push(&["-hosts", hosts]),
        None => {}
    }
    if let Some(file) = &request.host_file {
        command.push(&[if is_intel { "-machinefile" } else { "-f" }, file]);
    }
    if let Some(ranks) = of_each_host(request).filter(|_| !is_set_by_user(request, "ppn")) {
        command.push(&["-ppn", &ranks.to_string()]);
    }
    if let Some(how) = binding(request, core_supply, "bind-to") {
        command.push(&["-bind-to", how]);
    }
    Ok(())
}

/// Host names, and the number of slots that all of them have.
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

/// How ranks are bound, to a `core` or `none`, where the launcher's default is not what is needed.
fn binding(request: &Request, core_supply: CoreSupply, flag: &str) -> Option<&'static str> {
    let how = match core_supply {
        // Threads inherit the binding of their process; without binding NCCL places its own near the GPU.
        CoreSupply::Enough | CoreSupply::Unknown if request.has_threads => "none",
        CoreSupply::Enough => "core",
        CoreSupply::Oversubscribed => "none",
        CoreSupply::EnoughUnbound | CoreSupply::Unknown => return None,
    };
    Some(how).filter(|_| !is_set_by_user(request, flag))
}

/// How long srun lets the other ranks run once a first one has ended: longer than the watchdog takes to find out who
/// did, to write the end of the record and to end them.
const SRUN_WAIT: &str = "--wait=30";

fn slurm(request: &Request, core_supply: CoreSupply, command: &mut LaunchCommand) -> Result<()> {
    // srun that kills at once takes the watchdog along, too. Without a watchdog, the other ranks would wait for a failed
    // one until the allocation ends.
    let is_watched = !request.program_arguments.iter().any(|word| word == "--no-watchdog");
    let kills = if is_watched { ["--kill-on-bad-exit=0", SRUN_WAIT].as_slice() } else { &["--kill-on-bad-exit=1"] };
    command.push(&[&format!("--ntasks={}", request.ranks)]);
    command.push(kills);
    if let Some(mpi) = request.srun_mpi.as_deref().filter(|_| !is_set_by_user(request, "mpi")) {
        command.push(&[&format!("--mpi={mpi}")]);
    }
    if let Some(text) = &request.hosts {
        let (names, slots) = equal_hosts(text, "srun", "a --hostfile with one line per rank")?;
        command.push(&[&format!("--nodelist={}", names.join(","))]);
        if core_supply == CoreSupply::Unknown && text.contains(':') {
            command.push(&[&format!("--ntasks-per-node={slots}")]);
        }
    }
    if let Some(ranks) = of_each_host(request).filter(|_| !is_set_by_user(request, "ntasks-per-node")) {
        command.push(&[&format!("--ntasks-per-node={ranks}")]);
    }
    if let Some(file) = &request.host_file {
        // The way that srun's manual gives for a file of hosts, one line per rank.
        command.environment.push(Variable::new("SLURM_HOSTFILE", file));
        command.push(&["--distribution=arbitrary"]);
    }
    if core_supply == CoreSupply::Oversubscribed {
        command.push(&["--overcommit"]);
    }
    if let Some(how) = binding(request, core_supply, "cpu-bind") {
        command.push(&[&format!("--cpu-bind={}", how.replace("core", "cores"))]);
    }
    Ok(())
}

// Repeats the launch of a record: with the same launcher and launcher arguments, and new arguments for the program.

impl LaunchCommand {
    /// The part of a recorded launch command before the launched program of this name; `None` where it has no such program.
    pub fn before_program(words: &[String], launched: &str) -> Option<LaunchCommand> {
        let mut rest = words;
        let mut environment = Vec::new();
        if let Some(after) = rest.strip_prefix(&["env".to_owned()]) {
            rest = after;
            while let Some((name, value)) = rest.first().and_then(|word| word.split_once('=')) {
                environment.push(Variable::new(name, value));
                rest = &rest[1..];
            }
        }
        let (program, rest) = rest.split_first()?;
        let is_launched = |word: &String| Path::new(word).file_name().is_some_and(|name| name == launched);
        let arguments = rest[..rest.iter().position(is_launched)?].to_vec();
        Some(LaunchCommand { environment, program: program.clone(), arguments, stop_signal: STOP_SIGNAL })
    }

    /// The command that starts a program in the same way.
    pub fn with_program(mut self, launched: String, words: Vec<String>) -> LaunchCommand {
        self.arguments.push(launched);
        self.arguments.extend(words);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // The expected commands, launcher by launcher.

    fn launcher(family: Family) -> Launcher {
        let program = match family {
            Family::OpenMpi4 | Family::OpenMpi5 => "mpirun",
            Family::Mpich | Family::IntelMpi => "mpiexec",
            Family::Slurm => "srun",
        };
        Launcher { program: program.into(), family, version: "1".into(), can_bind: true }
    }

    fn request(ranks: u32, root: bool) -> Request {
        Request {
            ranks,
            cores: 4,
            root,
            program: "suite".into(),
            program_arguments: vec!["a b".into()],
            ..Request::default()
        }
    }

    /// By default MPICH waits without ever yielding a processor.
    const MPICH_8: &str = "env MPIR_CVAR_POLLS_BEFORE_YIELD=1 MPIR_CVAR_CH4_PROGRESS_THROTTLE=true \
    MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT=1 mpiexec -n 8 -bind-to none suite 'a b'";

    fn line(family: Family, request: &Request) -> String {
        build(&launcher(family), request).expect("a command").for_shell()
    }

    #[test]
    fn variables_of_nccl_reach_ranks_that_are_started_by_ssh_and_none_is_given_twice() {
        use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
        let passed = || vec!["NCCL_ALGO".to_owned(), "NCCL_IB_HCA".to_owned()];
        let own: Vec<String> = words("-x NCCL_ALGO=Ring");
        for (family, own, expected) in [
            (OpenMpi4, vec![], "mpirun -n 4 --bind-to none -x NCCL_ALGO -x NCCL_IB_HCA suite 'a b'"),
            (OpenMpi5, own.clone(), "mpirun -n 4 --bind-to none -x NCCL_IB_HCA -x NCCL_ALGO=Ring suite 'a b'"),
            // They pass on all variables by themselves.
            (Mpich, vec![], "mpiexec -n 4 -bind-to none suite 'a b'"),
            (IntelMpi, vec![], "mpiexec -n 4 -bind-to none suite 'a b'"),
            (Slurm, vec![], "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=none suite 'a b'"),
        ] {
            let request =
                Request { has_threads: true, passed_variables: passed(), launcher_arguments: own, ..request(4, false) };
            assert_eq!(line(family, &request), expected, "{family:?}");
        }
    }

    #[test]
    fn every_launcher_gets_the_number_of_ranks_that_have_a_gpu_on_each_host() {
        use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
        let on_gpus = |ranks| Request { has_threads: true, ranks_per_host: Some(2), ..request(ranks, false) };
        for (family, ranks, expected) in [
            (OpenMpi4, 4, "mpirun -n 4 --map-by ppr:2:node:OVERSUBSCRIBE --bind-to none suite 'a b'"),
            (
                OpenMpi5,
                8,
                "mpirun -n 8 --map-by ppr:2:node:OVERSUBSCRIBE --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'",
            ),
            (Mpich, 4, "mpiexec -n 4 -ppn 2 -bind-to none suite 'a b'"),
            (IntelMpi, 4, "mpiexec -n 4 -ppn 2 -bind-to none suite 'a b'"),
            (
                Slurm,
                4,
                "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --ntasks-per-node=2 --cpu-bind=none suite 'a b'",
            ),
            (
                Slurm,
                8,
                "srun --ntasks=8 --kill-on-bad-exit=0 --wait=30 --ntasks-per-node=2 --overcommit --cpu-bind=none suite 'a b'",
            ),
        ] {
            assert_eq!(line(family, &on_gpus(ranks)), expected, "{family:?}");
        }
        let named = Request { hosts: Some("a:3,b:1".into()), ..on_gpus(4) };
        assert_eq!(line(OpenMpi4, &named), "mpirun -n 4 --host a:3,b:1 --bind-to none suite 'a b'");
        let own = Request { launcher_arguments: words("--map-by node"), ..on_gpus(4) };
        assert_eq!(line(OpenMpi4, &own), "mpirun -n 4 --bind-to none --map-by node suite 'a b'");
    }

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn ranks_whose_library_has_threads_are_not_bound_to_single_cores() {
        use Family::{Mpich, OpenMpi4, OpenMpi5, Slurm};
        for (family, hosts, expected) in [
            (OpenMpi4, None, "mpirun -n 4 --bind-to none suite 'a b'"),
            (OpenMpi5, Some("a:2,b:2"), "mpirun -n 4 --host a:2,b:2 --bind-to none suite 'a b'"),
            (Mpich, None, "mpiexec -n 4 -bind-to none suite 'a b'"),
            (Slurm, None, "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=none suite 'a b'"),
        ] {
            let request = Request { has_threads: true, hosts: hosts.map(str::to_owned), ..request(4, false) };
            assert_eq!(line(family, &request), expected);
        }
        let own = ["--bind-to".to_owned(), "numa".to_owned()].to_vec();
        let request = Request { has_threads: true, launcher_arguments: own, ..request(4, false) };
        assert_eq!(line(OpenMpi4, &request), "mpirun -n 4 --bind-to numa suite 'a b'");
    }

    #[test]
    fn every_launcher_gets_its_flags_for_root_and_oversubscription() {
        use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
        let four = "mpirun -n 4 --bind-to core suite 'a b'";
        let four_as_root = "mpirun --allow-run-as-root -n 4 --bind-to core suite 'a b'";
        for (family, ranks, root, expected) in [
            (OpenMpi4, 4, false, four),
            (OpenMpi4, 4, true, four_as_root),
            (OpenMpi4, 8, false, "mpirun -n 8 --oversubscribe --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'"),
            (
                OpenMpi4,
                8,
                true,
                "mpirun --allow-run-as-root -n 8 --oversubscribe --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'",
            ),
            (OpenMpi5, 4, false, four),
            (OpenMpi5, 4, true, four_as_root),
            (
                OpenMpi5,
                8,
                false,
                "mpirun -n 8 --map-by :OVERSUBSCRIBE --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'",
            ),
            (
                OpenMpi5,
                8,
                true,
                "mpirun --allow-run-as-root -n 8 --map-by :OVERSUBSCRIBE --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'",
            ),
            (Mpich, 4, false, "mpiexec -n 4 -bind-to core suite 'a b'"),
            (Mpich, 4, true, "mpiexec -n 4 -bind-to core suite 'a b'"),
            (Mpich, 8, false, MPICH_8),
            (Mpich, 8, true, MPICH_8),
            (IntelMpi, 4, true, "mpiexec -n 4 -bind-to core suite 'a b'"),
            (IntelMpi, 8, false, "mpiexec -n 8 -bind-to none suite 'a b'"),
            (Slurm, 4, false, "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=cores suite 'a b'"),
            (Slurm, 4, true, "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=cores suite 'a b'"),
            (
                Slurm,
                8,
                false,
                "srun --ntasks=8 --kill-on-bad-exit=0 --wait=30 --overcommit --cpu-bind=none suite 'a b'",
            ),
            (Slurm, 8, true, "srun --ntasks=8 --kill-on-bad-exit=0 --wait=30 --overcommit --cpu-bind=none suite 'a b'"),
        ] {
            assert_eq!(line(family, &request(ranks, root)), expected);
        }
    }

    #[test]
    fn a_launcher_that_cannot_bind_ranks_is_not_asked_to() {
        let unable = Launcher { can_bind: false, ..launcher(Family::Mpich) };
        let command = |request: &Request| build(&unable, request).expect("a command").for_shell();
        assert_eq!(command(&request(4, false)), "mpiexec -n 4 suite 'a b'");
        let requested = Request { launcher_arguments: vec!["-bind-to".into(), "core".into()], ..request(4, false) };
        assert_eq!(command(&requested), "mpiexec -n 4 -bind-to core suite 'a b'");
    }

    #[test]
    fn srun_gets_its_mpi_plugin_and_every_launcher_a_stop_signal_that_it_forwards() {
        let pmix = Request { srun_mpi: Some("pmix".into()), ..request(4, false) };
        let expected = "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --mpi=pmix --cpu-bind=cores suite 'a b'";
        assert_eq!(line(Family::Slurm, &pmix), expected);
        let own = Request { launcher_arguments: vec!["--mpi=none".into()], ..pmix };
        let expected = "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --cpu-bind=cores --mpi=none suite 'a b'";
        assert_eq!(line(Family::Slurm, &own), expected);
        for family in [Family::Slurm, Family::OpenMpi4, Family::OpenMpi5, Family::Mpich] {
            assert_eq!(build(&launcher(family), &own).expect("a command").stop_signal, Some(10));
        }
    }

    #[test]
    fn hosts_that_the_user_names_keep_the_launchers_own_binding() {
        let named = Request { hosts: Some("a:2,b:2".into()), ..request(4, false) };
        let listed = Request { host_file: Some("my hosts".into()), ..request(4, false) };
        for (family, hosts, file) in [
            (
                Family::OpenMpi4,
                "mpirun -n 4 --host a:2,b:2 suite 'a b'",
                "mpirun -n 4 --hostfile 'my hosts' suite 'a b'",
            ),
            (
                Family::OpenMpi5,
                "mpirun -n 4 --host a:2,b:2 suite 'a b'",
                "mpirun -n 4 --hostfile 'my hosts' suite 'a b'",
            ),
            (Family::Mpich, "mpiexec -n 4 -hosts a:2,b:2 suite 'a b'", "mpiexec -n 4 -f 'my hosts' suite 'a b'"),
            (
                Family::IntelMpi,
                "mpiexec -n 4 -hosts a,b -ppn 2 suite 'a b'",
                "mpiexec -n 4 -machinefile 'my hosts' suite 'a b'",
            ),
            (
                Family::Slurm,
                "srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --nodelist=a,b --ntasks-per-node=2 suite 'a b'",
                "env 'SLURM_HOSTFILE=my hosts' srun --ntasks=4 --kill-on-bad-exit=0 --wait=30 --distribution=arbitrary suite 'a b'",
            ),
        ] {
            assert_eq!(line(family, &named), hosts);
            assert_eq!(line(family, &listed), file);
        }
    }

    #[test]
    fn more_ranks_than_the_named_slots_are_oversubscribed() {
        let crowded = Request { hosts: Some("a,b".into()), ..request(4, false) };
        assert_eq!(
            line(Family::OpenMpi4, &crowded),
            "mpirun -n 4 --host a,b --oversubscribe --mca mpi_yield_when_idle 1 --bind-to none suite 'a b'"
        );
    }

    #[test]
    fn hosts_that_cannot_be_meant_are_refused() {
        for (hosts, words) in [
            ("", "is not HOST"),
            ("a:0", "\"a:0\" is not HOST"),
            ("a:x", "\"a:x\""),
            (":2", "\":2\""),
            ("a:1,b:3", "same number of ranks for every host"),
        ] {
            let request = Request { hosts: Some(hosts.into()), ..request(4, false) };
            for family in [Family::Slurm, Family::IntelMpi] {
                let error = build(&launcher(family), &request).expect_err(hosts);
                assert_eq!(error.exit_code(), 2);
                assert!(error.to_string().contains(words), "{error}");
            }
        }
        let twice = Request { hosts: Some("a".into()), host_file: Some("f".into()), ..request(1, false) };
        assert_eq!(build(&launcher(Family::Mpich), &twice).expect_err("both").exit_code(), 2);
    }

    #[test]
    fn the_users_launcher_arguments_come_last_and_replace_ours() {
        let own = ["--bind-to", "none", "--mca", "btl", "self,tcp"].map(str::to_owned).to_vec();
        let request = Request { launcher_arguments: own, ..request(4, false) };
        assert_eq!(line(Family::OpenMpi4, &request), "mpirun -n 4 --bind-to none --mca btl self,tcp suite 'a b'");
    }

    #[test]
    fn values_of_secret_variables_are_not_shown_however_a_launcher_takes_them() {
        use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
        for (family, own, expected) in [
            (OpenMpi4, "-x HF_TOKEN=abc", "-x 'HF_TOKEN=(hidden)' suite"),
            (OpenMpi5, "-x A_KEY=abc -x NCCL_DEBUG=INFO", "-x 'A_KEY=(hidden)' -x NCCL_DEBUG=INFO suite"),
            (Mpich, "-env DB_PASSWORD abc", "-env DB_PASSWORD '(hidden)' suite"),
            (Mpich, "--env DB_PASSWORD=abc", "--env 'DB_PASSWORD=(hidden)' suite"),
            (IntelMpi, "-genv A_SECRET abc", "-genv A_SECRET '(hidden)' suite"),
            (Slurm, "--export=ALL,MY_CREDENTIAL=abc", "'--export=ALL,MY_CREDENTIAL=(hidden)' "),
        ] {
            let own: Vec<String> = own.split(' ').map(str::to_owned).collect();
            let command =
                build(&launcher(family), &Request { launcher_arguments: own, ..request(4, false) }).expect("a command");
            let shown = command.for_shell();
            assert!(shown.contains(expected) && !shown.contains("abc") && command.has_secrets(), "{shown}");
            assert!(command.words().join(" ").contains("abc"), "it is started with the value");
        }
        assert!(!build(&launcher(OpenMpi4), &request(4, false)).expect("a command").has_secrets());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_shown_command_runs_as_built(words in prop::collection::vec("[^\0]{0,10}", 0..5), value in "[^\0]{0,8}") {
            let command = LaunchCommand {
                environment: vec![Variable::new("COMMGAUGE_TEST", value.clone())],
                program: "sh".into(),
                arguments: ["-c".into(), r#"printf '%s\0' "$COMMGAUGE_TEST" "$@""#.into(), "sh".into()]
                    .into_iter().chain(words.clone()).collect(),
                stop_signal: None,
            };
            let output = std::process::Command::new("sh").args(["-c", &command.for_shell()]).output().expect("a shell");
            let text = String::from_utf8(output.stdout).expect("UTF-8");
            let seen: Vec<&str> = text.split_terminator('\0').collect();
            let expected: Vec<&str> = std::iter::once(value.as_str()).chain(words.iter().map(String::as_str)).collect();
            prop_assert_eq!(seen, expected);
            prop_assert!(command.words().contains(&"env".to_owned()));
        }
    }

    #[test]
    fn launcher_arguments_are_reused_and_program_arguments_replaced() {
        let old = words("env SLURM_HOSTFILE=/h A=b=c srun --ntasks=4 --mpi=pmix /old/commgauge-sweep all_reduce -b 8");
        let part = LaunchCommand::before_program(&old, "commgauge-sweep").unwrap();
        let relaunched = part.with_program("/new/commgauge-sweep".into(), words("all_reduce --resume r"));
        let expected =
            "env SLURM_HOSTFILE=/h A=b=c srun --ntasks=4 --mpi=pmix /new/commgauge-sweep all_reduce --resume r";
        assert_eq!(relaunched.words().join(" "), expected);
    }

    #[test]
    fn a_command_without_the_program_has_no_such_part() {
        for old in ["", "env", "env A=b", "mpirun", "mpirun -n 4 ./other", "commgauge-sweep"] {
            assert_eq!(LaunchCommand::before_program(&words(old), "commgauge-sweep"), None, "{old}");
        }
        assert_eq!(LaunchCommand::before_program(&[], "commgauge-sweep"), None);
    }
}
