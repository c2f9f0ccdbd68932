//! Starts the watchdog: one collector for each host, to which its ranks connect, and a connection from every collector
//! to the first.

use super::authentication::greet;
use super::collector::{Config, FirstAnswer, SecondAnswer};
use super::deadline::{SETUP_DEADLINE, deadline_of_host};
use super::reporter::Reporter;
use super::reporting_thread::{self, EndLaunch};
use super::wire::{Hello, PeerKind, TOKEN_BYTES, Token};
use super::{Activity, COLLECTOR_VARIABLE, LAUNCH_MARK, Watch};
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_base::progress::{Fault, Progress};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// How long sending may block before the collector is given up.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Inputs of starting the watchdog.
pub struct Setup<'a> {
    /// The host of every rank.
    pub hosts: &'a [String],
    /// The record of the run.
    pub record: PathBuf,
    /// The backend, by name.
    pub backend: &'static str,
    /// One deadline for everything, instead of those computed from the cases.
    pub timeout: Option<Duration>,
    /// Number of the received stop signal, or 0.
    pub signal: Arc<AtomicUsize>,
    /// A rank that misbehaves, for tests.
    pub fault: Option<Fault>,
    /// Ends the whole launch.
    pub end_launch: EndLaunch,
}

/// Starts the watchdog. Collective.
///
/// # Errors
/// If a collector cannot be started or reached; the same on every rank.
pub fn start(world: &dyn World, setup: Setup) -> Result<Watch> {
    let token = shared_token(world)?;
    let nodes = Nodes::of(setup.hosts);
    let me = world.process();
    let node = nodes.node_of_rank[me as usize];
    let mut mine = agree(world, Collector::first_of_host(&nodes, me, || config(&setup, &nodes, me, &token)))?;

    let answer = mine.as_ref().map(|collector| &collector.answer);
    let answers = world.gather(&serde_json::to_vec(&answer).map_err(unserialisable)?)?;
    let mut shared = serde_json::to_vec(&CollectorAddresses::of(&answers, &nodes)?).map_err(unserialisable)?;
    world.broadcast(&mut shared)?;
    let addresses: CollectorAddresses = serde_json::from_slice(&shared).map_err(unserialisable)?;

    let connected =
        mine.as_mut().map_or(Ok(()), |collector| collector.connect_to_first(&addresses.first, &setup.hosts[0]));
    agree(world, connected)?;
    let port = addresses.ports.get(node as usize).copied().unwrap_or_default();
    let reporter = connect(&setup, me, port, &token);
    let watch = Watch::of(agree(world, reporter)?, setup.timeout, nodes.node_of_rank);
    watch.begin(|| Activity::named("before the first case", SETUP_DEADLINE));
    Ok(watch)
}

/// Hosts of the ranks.
struct Nodes {
    node_of_rank: Vec<u32>,
    /// The lowest rank of each host.
    first_ranks: Vec<u32>,
}

impl Nodes {
    fn of(hosts: &[String]) -> Nodes {
        let mut known = std::collections::HashMap::new();
        let mut first_ranks = Vec::new();
        let node_of_rank = (0..).zip(hosts).map(|(rank, host)| {
            *known.entry(host).or_insert_with(|| {
                first_ranks.push(rank);
                first_ranks.len() as u32 - 1
            })
        });
        Nodes { node_of_rank: node_of_rank.collect(), first_ranks }
    }
}

/// Addresses of the collectors.
#[derive(serde::Serialize, serde::Deserialize)]
struct CollectorAddresses {
    /// Port of each host's collector.
    ports: Vec<u16>,
    /// Address at which other collectors reach the first.
    first: FirstAnswer,
}

impl CollectorAddresses {
    fn of(answers: &[Vec<u8>], nodes: &Nodes) -> Result<CollectorAddresses> {
        let mut addresses = CollectorAddresses { ports: Vec::new(), first: FirstAnswer::default() };
        // Only rank 0 has the answers.
        let first_ranks = if answers.is_empty() { &[][..] } else { &nodes.first_ranks };
        for rank in first_ranks {
            let answer: Option<FirstAnswer> =
                serde_json::from_slice(&answers[*rank as usize]).map_err(unserialisable)?;
            let answer = answer.unwrap_or_default();
            addresses.ports.push(answer.port);
            if *rank == 0 {
                addresses.first = answer;
            }
        }
        Ok(addresses)
    }
}

fn unserialisable(cause: serde_json::Error) -> Error {
    Error::environment(format!("cannot tell where the watchdog is: {cause}"))
}

/// A random secret, the same on every rank.
fn shared_token(world: &dyn World) -> Result<Token> {
    let mut token = vec![0; TOKEN_BYTES];
    let read = match world.process() {
        0 => std::fs::File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut token))
            .map_err(|cause| Error::environment(format!("cannot read random bytes for the watchdog: {cause}"))),
        _ => Ok(()),
    };
    agree(world, read)?;
    world.broadcast(&mut token)?;
    token.try_into().map_err(|_| Error::environment("the watchdog's word was cut on its way"))
}

fn config(setup: &Setup, nodes: &Nodes, me: u32, token: &Token) -> Config {
    let node = nodes.node_of_rank[me as usize];
    Config {
        token: *token,
        node,
        nodes: nodes.first_ranks.len() as u32,
        // The first collector needs every rank's host, the others only their own.
        node_of_rank: if node == 0 { nodes.node_of_rank.clone() } else { Vec::new() },
        hosts: match node {
            0 => nodes.first_ranks.iter().map(|rank| setup.hosts[*rank as usize].clone()).collect(),
            _ => vec![setup.hosts[me as usize].clone()],
        },
        first_host: setup.hosts[0].clone(),
        host_deadline_milliseconds: deadline_of_host(setup.timeout).as_millis() as u64,
        local_ranks: (0..).zip(&nodes.node_of_rank).filter(|(_, on)| **on == node).map(|(rank, _)| rank).collect(),
        record: setup.record.clone(),
        backend: setup.backend.to_owned(),
    }
}

/// A collector that this process started.
struct Collector {
    _child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    answer: FirstAnswer,
}

impl Collector {
    /// Starts the collector of a host if this is its lowest rank.
    fn first_of_host(nodes: &Nodes, me: u32, config: impl FnOnce() -> Config) -> Result<Option<Collector>> {
        if !nodes.first_ranks.contains(&me) { Ok(None) } else { Collector::start(&config()).map(Some) }
    }

    fn start(config: &Config) -> Result<Collector> {
        let failed = |cause: &dyn std::fmt::Display| {
            let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
            Error::environment(format!("cannot start the watchdog on host {host}: {cause}; --no-watchdog does without"))
        };
        let program = std::env::current_exe().map_err(|cause| failed(&cause))?;
        // In its own process group: launchers kill the groups of their ranks, and the collector must outlive them for a
        // moment.
        let mut child = Command::new(program)
            .env(COLLECTOR_VARIABLE, std::env::var_os(LAUNCH_MARK).unwrap_or_else(|| "1".into()))
            .env_remove(LAUNCH_MARK)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|cause| failed(&cause))?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(&"it has no input"));
        };
        let mut text = serde_json::to_string(config).map_err(unserialisable)?;
        text.push('\n');
        input.write_all(text.as_bytes()).map_err(|cause| failed(&cause))?;
        let mut output = BufReader::new(output);
        let line = read_line(&mut output).map_err(|cause| failed(&cause))?;
        let answer = serde_json::from_str(&line).map_err(|_| failed(&format!("it says `{}`", line.trim())))?;
        Ok(Collector { _child: child, input, output, answer })
    }

    /// Sends the address of the first collector, and waits until it was reached.
    fn connect_to_first(&mut self, first: &FirstAnswer, first_host: &str) -> Result<()> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let failed = |cause: &dyn std::fmt::Display| {
            Error::environment(format!(
                "the watchdog of host {host} does not reach that of host {first_host} (tried {}): {cause}; --no-watchdog does \
                 without",
                first.shown_addresses()
            ))
        };
        let mut text = serde_json::to_string(first).map_err(unserialisable)?;
        text.push('\n');
        self.input.write_all(text.as_bytes()).map_err(|cause| failed(&cause))?;
        let line = read_line(&mut self.output).map_err(|cause| failed(&cause))?;
        match serde_json::from_str(&line) {
            Ok(SecondAnswer { problem: None }) => Ok(()),
            Ok(SecondAnswer { problem: Some(problem) }) => Err(failed(&problem)),
            Err(_) => Err(failed(&"it is gone")),
        }
    }
}

fn read_line(from: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    from.take(1 << 20).read_line(&mut line)?;
    Ok(line)
}

fn connect(setup: &Setup, rank: u32, port: u16, token: &Token) -> Result<Arc<Reporter>> {
    let begin = || -> std::io::Result<Arc<Reporter>> {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        connection.set_nodelay(true)?;
        connection.set_write_timeout(Some(SEND_TIMEOUT))?;
        let pid = std::process::id();
        let process_start = super::collector::process_start(pid).unwrap_or(0);
        let hello = Hello { peer_kind: PeerKind::Rank(rank), pid, process_start };
        let session = greet(&mut connection, &hello, token)?;
        let progress = Progress::with_fault(setup.fault.filter(|fault| fault.rank == rank));
        progress.set_deadline(SETUP_DEADLINE);
        let host = &setup.hosts[rank as usize];
        reporting_thread::start(rank, host, progress, connection, session, Arc::clone(&setup.signal), setup.end_launch)
    };
    begin().map_err(|cause| {
        let host = &setup.hosts[rank as usize];
        Error::environment(format!(
            "cannot connect to the watchdog of host {host} on 127.0.0.1, port {port}: {cause}; do all ranks that call their \
             host {host} share it? --no-watchdog does without"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_host_has_one_collector_on_its_lowest_rank_however_the_ranks_lie() {
        let hosts = ["b", "a", "b", "c", "a"].map(str::to_owned);
        let nodes = Nodes::of(&hosts);
        assert_eq!(
            (nodes.node_of_rank.as_slice(), nodes.first_ranks.as_slice()),
            (&[0, 1, 0, 2, 1][..], &[0, 1, 3][..])
        );
        let answer = |port| serde_json::to_vec(&Some(FirstAnswer { port, ..FirstAnswer::default() })).unwrap();
        let none = || b"null".to_vec();
        let addresses = CollectorAddresses::of(&[answer(7), answer(8), none(), answer(9), none()], &nodes).unwrap();
        assert_eq!((addresses.ports, addresses.first.port), (vec![7, 8, 9], 7));
        assert!(CollectorAddresses::of(&[], &nodes).unwrap().ports.is_empty(), "from rank 0");
    }
}
