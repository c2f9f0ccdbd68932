//! Predicts from a host file on which host each rank will run, as far as possible before the launch.
//!
//! The launcher reads the file itself and decides; this is only for what is shown before the launch.

use super::allocation::expand;
use super::family::Launcher;
use super::find;
use commgauge_base::error::{Error, Result};
use commgauge_run::launcher::Family;
use std::collections::{BTreeMap, VecDeque};
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A host file as it was read once, with the name under which errors show it.
#[derive(Clone, Debug)]
pub struct HostFile {
    pub name: String,
    pub text: String,
}

/// A host of a file.
struct Host {
    name: String,
    /// Its number of slots, where the file gives it.
    slots: Option<u32>,
    form: Form,
}

/// How a line names a host and its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The host alone, which all launchers read.
    Plain,
    /// `host slots=4`.
    OpenMpi,
    /// `host:4`.
    Mpich,
    /// A range of hosts, brackets, or more after the slots: no launcher reads it.
    Other,
}

impl HostFile {
    /// The host of every rank, from a file in the form of Open MPI (`host slots=4`), of MPICH (`host:4`), or with a host or a range of them
    /// (`node[1-4]`) on each line. Hosts are filled one after the other. Where no host has a number of slots, all take equally many ranks.
    ///
    /// # Errors
    /// A usage error that names the line that cannot be parsed, or reports that there is no host.
    pub fn hosts_of_ranks(&self, ranks: u32) -> Result<Vec<String>> {
        let hosts = self.hosts()?;
        let has_slots = hosts.iter().any(|host| host.slots.is_some());
        let each = if has_slots { 1 } else { ranks.div_ceil(hosts.len() as u32).max(1) };
        let slots = hosts.iter().flat_map(|host| std::iter::repeat_n(&host.name, host.slots.unwrap_or(each) as usize));
        // Ranks beyond the last slot wrap around to the first host.
        Ok(slots.cycle().take(ranks as usize).cloned().collect())
    }

    /// The slots of all hosts together; none where the file gives none.
    ///
    /// # Errors
    /// As [`HostFile::hosts_of_ranks`].
    pub fn slots(&self) -> Result<Option<u32>> {
        let hosts = self.hosts()?;
        let sum = |sum: u32, host: &Host| sum.saturating_add(host.slots.unwrap_or(1));
        Ok(hosts.iter().any(|host| host.slots.is_some()).then(|| hosts.iter().fold(0, sum)))
    }

    /// The hosts as a list such as `a:8,b:8`, where a launcher does not read the form of the file.
    ///
    /// # Errors
    /// As [`HostFile::hosts_of_ranks`].
    pub fn list_for(&self, family: Family) -> Result<Option<String>> {
        let own = match family {
            Family::OpenMpi4 | Family::OpenMpi5 => Form::OpenMpi,
            Family::Mpich | Family::IntelMpi => Form::Mpich,
            Family::Slurm => return Ok(None),
        };
        let hosts = self.hosts()?;
        if hosts.iter().all(|host| host.form == Form::Plain || host.form == own) {
            return Ok(None);
        }
        let listed = |host: &Host| match host.slots {
            Some(slots) if host.name.contains(':') => format!("[{}]:{slots}", host.name),
            Some(slots) => format!("{}:{slots}", host.name),
            None => host.name.clone(),
        };
        Ok(Some(hosts.iter().map(listed).collect::<Vec<_>>().join(",")))
    }

    fn hosts(&self) -> Result<Vec<Host>> {
        let HostFile { name, text } = self;
        let mut hosts: Vec<Host> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default();
            for host in hosts_of_line(words).map_err(|found| refusal(name, index + 1, &found))? {
                match hosts.iter_mut().find(|known| known.name == host.name) {
                    // Each repetition of a host adds one slot, or the number given.
                    Some(known) => known.slots = Some(known.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1))),
                    None => hosts.push(host),
                }
            }
        }
        if hosts.is_empty() {
            return Err(Error::usage(format!(
                "--hostfile {name}: it names no host; write one on each line, such as `a slots=8`"
            )));
        }
        Ok(hosts)
    }
}

/// Words of Open MPI's host files that give the slots.
const SLOTS: [&str; 3] = ["slots", "cpu", "count"];

/// Bytes of the longest name of a host (RFC 1035 section 2.3.4).
const LONGEST_NAME: usize = 255;

/// The hosts of a line with their slots; none for an empty line. A line that cannot be parsed is returned as the error.
fn hosts_of_line(line: &str) -> std::result::Result<Vec<Host>, String> {
    let refused = || line.trim().to_owned();
    // Open MPI takes `slots = 8` as `slots=8`.
    let line = line.split('=').map(str::trim).collect::<Vec<_>>().join("=");
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else { return Ok(Vec::new()) };
    let number = |text: &str| text.parse::<u32>().ok().filter(|slots| *slots > 0).ok_or_else(refused);
    let (host, colon) = parted(first);
    let mut slots = colon.map(|text| number(text.split(':').next().unwrap_or_default())).transpose()?;
    let mut form = match colon {
        None => Form::Plain,
        // MPICH reads no adapter after the slots, and no brackets.
        Some(text) if text.contains(':') || first.starts_with('[') => Form::Other,
        Some(_) => Form::Mpich,
    };
    for (word, text) in words.filter_map(|word| word.split_once('=')) {
        if SLOTS.contains(&word) {
            slots = Some(number(text)?);
            form = if form == Form::Plain { Form::OpenMpi } else { Form::Other };
        }
    }
    let is_name = |name: &String| name.len() <= LONGEST_NAME && !name.contains(['=', ',']);
    let names = expand(host).filter(|names| names.iter().all(is_name)).ok_or_else(refused)?;
    let form = if names.len() > 1 { Form::Other } else { form };
    Ok(names.into_iter().map(|name| Host { name, slots, form }).collect())
}

/// A host and what follows it after a colon, as in MPICH's form, such as `[fe80::1]:8` and `a:8:mlx5_0`; other addresses of IPv6 have no slots.
fn parted(word: &str) -> (&str, Option<&str>) {
    let in_brackets =
        word.strip_prefix('[').and_then(|rest| rest.split_once(']')).filter(|(host, _)| host.contains(':'));
    match in_brackets {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None if word.contains("::") || word.matches(':').count() > 2 => (word, None),
        None => word.split_once(':').map_or((word, None), |(host, rest)| (host, Some(rest))),
    }
}

fn refusal(name: &str, line: usize, found: &str) -> Error {
    // The beginning identifies the line; other files may have lines of megabytes.
    let found: String = found.chars().take(60).collect();
    Error::usage(format!(
        "--hostfile {name}, line {line}: found `{found}`; a line is HOST, HOST slots=RANKS (Open MPI) or HOST:RANKS (MPICH), and HOST may be node[1-4]"
    ))
}

// Waits, with a time limit, until the names of a launch's hosts resolve and the launcher's remote shell can reach
// them.
//
// Otherwise the launcher, which tries only once and does not name the host, would fail on hosts that start late (pods,
// cloud machines).

/// Hosts that are probed at the same time.
const CONCURRENT_PROBES: usize = 64;

/// Hosts that are probed for an answer of their network.
const MAX_SILENT_PROBES: usize = 512;

/// A port that is mostly open; if it is closed, its refusal is an answer as well.
const SSH_PORT: u16 = 22;

/// Pause between two probes of the same host.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Timeout of one probe by the remote shell.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of hosts that a message names.
const MAX_NAMED: usize = 20;

/// The command prefix that runs a command on a host; the host name and `true` are appended. None where the launcher
/// uses no remote shell or is not known.
pub fn remote_shell(
    launcher: &Launcher,
    words: &[String],
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<Vec<String>> {
    let after = |names: &[&str]| {
        let at = words.iter().position(|word| names.contains(&word.trim_start_matches('-')))?;
        words.get(at + 1).cloned()
    };
    let set = |name: &str| environment(name).filter(|text| !text.trim().is_empty());
    let chosen = match launcher.family {
        Family::Slurm => return None,
        Family::OpenMpi4 => after(&["plm_rsh_agent"]).or_else(|| set("OMPI_MCA_plm_rsh_agent")),
        // Tried with Open MPI 5.0.7: it takes the older name as a flag, and not as a variable.
        Family::OpenMpi5 => after(&["plm_ssh_agent", "plm_rsh_agent"]).or_else(|| set("PRTE_MCA_plm_ssh_agent")),
        Family::Mpich | Family::IntelMpi => {
            let starter = after(&["launcher", "bootstrap", "rmk"])
                .or_else(|| set("HYDRA_LAUNCHER"))
                .or_else(|| set("I_MPI_HYDRA_BOOTSTRAP"));
            if starter.is_some_and(|starter| !["ssh", "rsh"].contains(&starter.as_str())) {
                return None;
            }
            after(&["launcher-exec", "bootstrap-exec"])
                .or_else(|| set("HYDRA_LAUNCHER_EXEC"))
                .or_else(|| set("I_MPI_HYDRA_BOOTSTRAP_EXEC"))
        }
    };
    // Open MPI takes a list of programs, and uses the first that exists.
    let chosen = chosen.unwrap_or_else(|| "ssh".to_owned());
    let mut shell: Vec<String> =
        chosen.split(':').next().unwrap_or_default().split_whitespace().map(str::to_owned).collect();
    let program = shell.first()?.rsplit('/').next().unwrap_or_default().to_owned();
    if program == "ssh" {
        shell.extend(["-o", "BatchMode=yes", "-o", "ConnectTimeout=3"].map(str::to_owned));
    }
    Some(shell)
}

/// Returns the waiting time when all hosts are ready.
///
/// # Errors
/// After `limit`, and one probe of each host, an environment error with the names of the unreachable hosts and the reasons.
pub fn wait_for_hosts(hosts: &[String], shell: Option<&[String]>, limit: Duration) -> Result<Duration> {
    let begun = Instant::now();
    let missing: BTreeMap<String, Option<String>> = hosts.iter().map(|host| (host.clone(), None)).collect();
    let queue: VecDeque<String> = missing.keys().cloned().collect();
    let (missing, queue, shell) = (Mutex::new(missing), Mutex::new(queue), shell.map(<[String]>::to_vec));
    let probes = Arc::new(Probes { missing, queue, shell, is_over: AtomicBool::new(false) });
    for _ in 0..hosts.len().min(CONCURRENT_PROBES) {
        let probes = Arc::clone(&probes);
        // Not joined: name resolution may block for longer than the time limit.
        std::thread::spawn(move || probes.run());
    }
    loop {
        std::thread::sleep(Duration::from_millis(20));
        let missing = probes.missing();
        if missing.is_empty() {
            return Ok(begun.elapsed());
        }
        // Where the limit is shorter than a probe may take, each host gets one all the same: its reason says more than that time is over.
        let are_checked = missing.values().all(Option::is_some) || begun.elapsed() >= PROBE_TIMEOUT;
        if begun.elapsed() >= limit && are_checked {
            probes.is_over.store(true, Ordering::Relaxed);
            let reason = |why: &Option<String>| why.clone().unwrap_or_else(|| "it was not checked in time".to_owned());
            let named: Vec<String> =
                missing.iter().take(MAX_NAMED).map(|(host, why)| format!("{host} ({})", reason(why))).collect();
            let more = missing.len().saturating_sub(MAX_NAMED);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            return Err(Error::environment(format!(
                "after {:.0} s {} of {} hosts are not ready: {}{more}; see whether they are up, or wait longer with \
                 --wait-for-hosts",
                limit.as_secs_f64(),
                missing.len(),
                hosts.len(),
                named.join(", ")
            )));
        }
    }
}

/// The hosts whose address does not answer within the time: neither a connection nor its refusal comes back.
pub fn silent_hosts(hosts: &[String], timeout: Duration) -> Vec<String> {
    let probe = |host: &String| {
        let Ok(addresses) = (host.as_str(), SSH_PORT).to_socket_addrs() else { return false };
        let silent = |cause: std::io::Error| {
            matches!(cause.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable)
        };
        let mut answers = addresses.map(|address| TcpStream::connect_timeout(&address, timeout));
        answers.all(|answer| answer.is_err_and(silent))
    };
    let probed = std::thread::scope(|scope| {
        let threads: Vec<_> =
            hosts.iter().take(MAX_SILENT_PROBES).map(|host| scope.spawn(move || probe(host))).collect();
        // A probe does not panic; if it did, its host would not be blamed.
        threads.into_iter().map(|thread| thread.join().unwrap_or(false)).collect::<Vec<bool>>()
    });
    hosts.iter().zip(probed).filter(|(_, silent)| *silent).map(|(host, _)| host.clone()).collect()
}

/// State shared by the probing threads.
struct Probes {
    /// Hosts that are not ready, and why, once that is known.
    missing: Mutex<BTreeMap<String, Option<String>>>,
    queue: Mutex<VecDeque<String>>,
    /// Runs a command on a host.
    shell: Option<Vec<String>>,
    is_over: AtomicBool,
}

impl Probes {
    fn missing(&self) -> BTreeMap<String, Option<String>> {
        self.missing.lock().map(|missing| missing.clone()).unwrap_or_default()
    }

    fn run(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            let next = self.queue.lock().ok().and_then(|mut queue| queue.pop_front());
            let Some(host) = next else { return };
            let answer = check_host(&host, self.shell.as_deref(), &self.is_over);
            let Ok(mut missing) = self.missing.lock() else { return };
            match answer {
                Ok(()) => drop(missing.remove(&host)),
                Err(why) => {
                    missing.insert(host.clone(), Some(why));
                    drop(missing);
                    if let Ok(mut queue) = self.queue.lock() {
                        queue.push_back(host);
                    }
                    std::thread::sleep(RETRY_INTERVAL);
                }
            }
        }
    }
}

/// Checks that a host is ready; the error is the reason why not.
fn check_host(name: &str, shell: Option<&[String]>, is_over: &AtomicBool) -> std::result::Result<(), String> {
    let addresses = (name, SSH_PORT).to_socket_addrs().map_err(|_| "its name is not known".to_owned())?;
    let Some((program, words)) = shell.and_then(<[String]>::split_first) else { return Ok(()) };
    let is_loopback = addresses.into_iter().all(|address| address.ip().is_loopback());
    if name == find::name() || (is_loopback && name.starts_with("localhost")) {
        return Ok(());
    }
    let child = Command::new(program)
        .args(words)
        .args([name, "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut child = child.map_err(|cause| format!("{program} cannot be started: {cause}"))?;
    let begun = Instant::now();
    while begun.elapsed() < PROBE_TIMEOUT && !is_over.load(Ordering::Relaxed) {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(None) => std::thread::sleep(Duration::from_millis(20)),
            _ => break,
        }
    }
    // It may have ended already.
    let _ = child.kill();
    let _ = child.wait();
    Err(format!("{program} does not reach it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> HostFile {
        HostFile { name: "hosts".to_owned(), text: text.to_owned() }
    }

    fn hosts(text: &str, ranks: u32) -> String {
        file(text).hosts_of_ranks(ranks).expect("hosts").join(" ")
    }

    #[test]
    fn every_launchers_form_is_read() {
        assert_eq!(hosts("a slots=2 max_slots=4\n# spare\nb slots=2 # new\n\n", 4), "a a b b");
        assert_eq!(hosts("a:1\nb:3\n", 4), "a b b b");
        assert_eq!(hosts("a\na\nb\nb\n", 4), "a a b b", "a line for each rank");
        assert_eq!(hosts("a\nb\n", 6), "a a a b b b", "nothing is said: equally many");
        assert_eq!(hosts("fe80::1 slots=1\nfe80::2 slots=1\n", 2), "fe80::1 fe80::2");
        assert_eq!(hosts("a slots = 2\nb cpu=1\n", 3), "a a b");
        assert_eq!(hosts("[fe80::1]:2\na:1:mlx5_0\n", 3), "fe80::1 fe80::1 a");
        assert_eq!(hosts("node[1-2]:2\n", 4), "node1 node1 node2 node2");
    }

    #[test]
    fn a_form_that_a_launcher_does_not_read_becomes_a_list_and_its_own_stays_a_file() {
        for (text, open_mpi, mpich) in [
            ("a\nb\n", None, None),
            ("a slots=8\nb slots=8\n", None, Some("a:8,b:8")),
            ("a:8\nb:4\n", Some("a:8,b:4"), None),
            ("a:8:mlx5_0\n", Some("a:8"), Some("a:8")),
            ("n[08-09] slots = 4\n", Some("n08:4,n09:4"), Some("n08:4,n09:4")),
        ] {
            for (family, expected) in [(Family::OpenMpi5, open_mpi), (Family::Mpich, mpich), (Family::Slurm, None)] {
                let found = file(text).list_for(family).expect("hosts");
                assert_eq!(found.as_deref(), expected, "{text} {family:?}");
            }
        }
    }

    #[test]
    fn slots_are_added_up_where_the_file_gives_any() {
        for (text, expected) in [
            ("a slots=8\nb slots=8\n", Some(16)),
            ("a:8\nb\n", Some(9)),
            ("a\na\nb\n", Some(3)),
            ("a\nb\n", None),
            ("a slots=4294967295\nb slots=2\n", Some(u32::MAX)),
        ] {
            assert_eq!(file(text).slots().expect("hosts"), expected, "{text}");
        }
    }

    #[test]
    fn ranks_without_room_start_with_the_first_host_again() {
        assert_eq!(hosts("a slots=1\nb slots=1\n", 3), "a b a");
        assert_eq!(hosts("a slots=8\n", 2), "a a");
    }

    #[test]
    fn lines_without_host_or_number_are_refused() {
        for (text, words) in [
            ("", "it names no host"),
            ("# all down\n", "it names no host"),
            ("a slots=2\nb slots=x\n", "line 2: found `b slots=x`"),
            ("a slots=0\n", "line 1"),
            ("a:many\n", "line 1: found `a:many`"),
            ("slots=4\n", "line 1"),
        ] {
            let error = file(text).hosts_of_ranks(4).expect_err(text);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_number_beyond_all_ranks_costs_no_memory() {
        assert_eq!(hosts("a slots=4294967295\nb slots=4294967295\n", 2), "a a");
    }

    fn launcher(family: Family) -> Launcher {
        Launcher { program: "mpirun".into(), family, version: "4".into(), can_bind: true }
    }

    fn shell(family: Family, line: &str, set: &[(&str, &str)]) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let environment = |name: &str| set.iter().find(|entry| entry.0 == name).map(|entry| entry.1.to_owned());
        remote_shell(&launcher(family), &words, &environment).map(|shell| shell.join(" "))
    }

    #[test]
    fn the_remote_shell_is_the_launchers_own() {
        use Family::{Mpich, OpenMpi4, OpenMpi5, Slurm};
        let ssh = Some("ssh -o BatchMode=yes -o ConnectTimeout=3");
        for (family, line, set, expected) in [
            (Slurm, "", &[][..], None),
            (OpenMpi4, "", &[], ssh),
            (OpenMpi4, "", &[("OMPI_MCA_plm_rsh_agent", "/opt/agent -x : rsh")], Some("/opt/agent -x")),
            (OpenMpi5, "", &[("OMPI_MCA_plm_rsh_agent", "/opt/agent")], ssh),
            (OpenMpi5, "", &[("PRTE_MCA_plm_ssh_agent", "/opt/agent")], Some("/opt/agent")),
            (OpenMpi4, "--mca plm_rsh_agent /my/one", &[("OMPI_MCA_plm_rsh_agent", "other")], Some("/my/one")),
            (Mpich, "", &[], ssh),
            (Mpich, "-launcher fork", &[], None),
            (Mpich, "", &[("HYDRA_LAUNCHER", "slurm")], None),
            (Mpich, "-launcher-exec /my/one", &[], Some("/my/one")),
        ] {
            assert_eq!(shell(family, line, set).as_deref(), expected, "{family:?} {line}");
        }
    }

    #[test]
    fn a_host_that_refuses_a_connection_is_not_silent() {
        let hosts = ["localhost", "127.0.0.1", "no-such-host.invalid"].map(str::to_owned);
        assert_eq!(silent_hosts(&hosts, Duration::from_secs(5)), Vec::<String>::new());
    }

    #[test]
    fn hosts_that_never_come_are_named_with_the_reason_and_the_wait_has_an_end() {
        let hosts = ["localhost", "127.0.0.1", "no-such-host.invalid"].map(str::to_owned);
        let refuses = ["false".to_owned()];
        let error = wait_for_hosts(&hosts, Some(&refuses), Duration::from_millis(700)).expect_err("they never come");
        assert_eq!(error.exit_code(), 6);
        let text = error.to_string();
        assert!(
            text.contains("2 of 3 hosts are not ready: 127.0.0.1 (false does not reach it), no-such-host"),
            "{text}"
        );
        assert!(text.contains("(its name is not known)") && !text.contains("localhost ("), "{text}");
        wait_for_hosts(&hosts[..2], Some(&["true".to_owned()]), Duration::from_secs(20)).expect("both are there");
        wait_for_hosts(&hosts[..2], None, Duration::from_secs(20)).expect("names are enough");
    }
}
