//! A host's collector: a small process next to the ranks, so that it can report and end a launch even if ranks are stopped or dead.
//!
//! It is started by the lowest rank of the host from the same program, receives the state of every rank over TCP, and
//! ends with them. The one on the host of rank 0 receives the states of all hosts, decides, and writes the report. The
//! entry point is [`main`]; the loop is in `serve`.

mod deaths;
mod process;
mod report;
mod serve;
mod stacks;

pub use process::{RankStatus, RankTable, Trigger, process_start};
pub use report::{BlockedRanks, RankView, hang_line, whole_text};
pub use serve::Config;

use super::deadline::{deadline_of_host, setup_deadline};
use super::reporter::Reporter;
use super::reporting_thread::EndLaunch;
use super::wire::{
    CHALLENGE_BYTES, Connection, Frame, Hello, PeerKind, TOKEN_BYTES, Token, greet as greet_of_wire, print_message,
    random, session_of_peer,
};
use super::{COLLECTOR_VARIABLE, LAUNCH_MARK, Watch, reporting_thread};
use crate::world::{World, agree, from_first, gather_all};
use commgauge_base::error::{Error, Result};
use commgauge_base::progress::{Fault, Progress};
use commgauge_base::writing::distinct;
use serde::{Deserialize, Serialize};
use serve::Serving;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// Timeout for connecting to one address of the first collector.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Connections to a collector that drops them, ...
const TRIES: u32 = 20;

/// ... and the pause before the next.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Listen backlog in addition to the expected connections.
const MIN_BACKLOG: i32 = 128;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FirstAnswer {
    /// Port for the ranks of its host, on the loopback address.
    pub port: u16,
    /// Port for other collectors; 0 if there are none.
    pub hosts_port: u16,
    /// Addresses and names of the host, in the order in which to try them.
    pub addresses: Vec<String>,
}

impl FirstAnswer {
    /// The addresses with their port, for a message.
    pub fn shown_addresses(&self) -> String {
        let shown: Vec<String> =
            self.addresses.iter().map(|address| format!("{address} port {}", self.hosts_port)).collect();
        shown.join(", ")
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecondAnswer {
    /// The error, if it was not reached.
    pub problem: Option<String>,
}

/// Entry point of a collector: exchanges its configuration on standard input and output, then serves. Returns the exit
/// code, which no process reads.
pub fn main() -> i32 {
    match begin() {
        Ok(mut serving) => {
            serving.run();
            0
        }
        Err(cause) => {
            print_message(&format!("the watchdog cannot start: {cause}"));
            6
        }
    }
}

fn begin() -> std::result::Result<Serving, Box<dyn std::error::Error>> {
    ignore_signals()?;
    run_anywhere();
    let mut input = std::io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line)?;
    let config: Config = serde_json::from_str(&line)?;
    let token = config.token;
    raise_file_limit();
    let for_ranks = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    rustix::net::listen(&for_ranks, backlog(config.local_ranks.len()))?;
    let mut answer = FirstAnswer { port: for_ranks.local_addr()?.port(), ..FirstAnswer::default() };
    let for_hosts = if config.node == 0 && config.nodes > 1 { Some(listen_to_hosts(config.nodes)?) } else { None };
    if let Some(listener) = &for_hosts {
        answer.hosts_port = listener.local_addr()?.port();
        answer.addresses = of_this_host();
    }
    send_line(&mut std::io::stdout(), &answer)?;
    line.clear();
    input.read_line(&mut line)?;
    let first: FirstAnswer = serde_json::from_str(&line)?;
    let upstream = if config.node == 0 { Ok(None) } else { reach(&first, &config, &token).map(Some) };
    send_line(&mut std::io::stdout(), &SecondAnswer { problem: upstream.as_ref().err().cloned() })?;
    let listeners = [Some(for_ranks), for_hosts].into_iter().flatten().collect();
    Ok(Serving::new(config, token, listeners, upstream?)?)
}

/// Backlog for this many peers that connect at the same time: others would retry after a second, again all at the same time, and mostly in
/// vain. The system caps it at its own maximum (net.core.somaxconn, 4096 by default).
fn backlog(peers: usize) -> i32 {
    i32::try_from(peers).unwrap_or(i32::MAX).saturating_add(MIN_BACKLOG)
}

/// Listens on all addresses, of both families if the system has both.
fn listen_to_hosts(hosts: u32) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
    rustix::net::listen(&listener, backlog(hosts as usize))?;
    Ok(listener)
}

/// A connection for each of many ranks or hosts needs more file descriptors than the usual soft limit; if the system refuses, the first
/// failing connection is reported.
fn raise_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Schedulers send stop signals to every process, but this one ends with its ranks: it must be able to report how they
/// ended.
fn ignore_signals() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1] {
        signal_hook::flag::register(signal, std::sync::Arc::default())?;
    }
    Ok(())
}

/// Removes the CPU binding inherited from the rank that started this process. If the system refuses, the binding
/// remains.
fn run_anywhere() {
    use rustix::thread::{CpuSet, sched_setaffinity};
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| all.set(processor));
    let _ = sched_setaffinity(None, &all);
}

/// Sends a value on one line, as a collector and the rank that starts it talk to each other.
fn send_line(to: &mut impl Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    to.write_all(&text)?;
    to.flush()
}

/// Connects to the first collector; a collector with the same secret answers.
fn reach(first: &FirstAnswer, config: &Config, token: &Token) -> std::result::Result<Connection, String> {
    let mut problem = "it has no address".to_owned();
    for address in &first.addresses {
        let targets = match (address.as_str(), first.hosts_port).to_socket_addrs() {
            Ok(targets) => targets,
            Err(cause) => {
                problem = format!("{address}: {cause}");
                continue;
            }
        };
        for target in targets {
            let greeted =
                || TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).and_then(|to| greet(to, config, token));
            match unless_dropped(greeted) {
                Ok(connection) => return Ok(connection),
                Err(cause) => problem = format!("{target}: {cause}"),
            }
        }
    }
    Err(problem)
}

/// Tries again where a collector dropped the connection: one that strangers flood drops peers that have not greeted yet.
fn unless_dropped<T>(connect: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    for _ in 1..TRIES {
        match connect() {
            Err(cause) if matches!(cause.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            answered => return answered,
        }
    }
    connect()
}

fn greet(stream: TcpStream, config: &Config, token: &Token) -> std::io::Result<Connection> {
    let pid = std::process::id();
    let hello = Hello { peer_kind: PeerKind::Host(config.node), pid, process_start: process_start(pid).unwrap_or(0) };
    let mut connection = Connection::of(stream)?;
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let mut greeted = false;
    while Instant::now() < deadline {
        connection.receive()?;
        if let (false, Some(challenge)) = (greeted, connection.incoming().first_chunk::<CHALLENGE_BYTES>().copied()) {
            connection.take(CHALLENGE_BYTES);
            let bytes = hello.encode(token, &challenge);
            connection.queue_bytes(&bytes);
            connection.begin(session_of_peer(token, &challenge, &bytes));
            connection.flush()?;
            greeted = true;
        }
        // The first collector sends this to every accepted peer; no answer is expected yet.
        if greeted && matches!(connection.next_frame(), Ok(Some(Frame::Query))) {
            return Ok(connection);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err(std::io::Error::other("the listener there does not belong to this run"))
}

// Queries NCCL's RAS service (since NCCL 2.24) for its diagnosis: once, with a short timeout.
//
// It listens on localhost:28028 unless `NCCL_RAS_ADDR` is set, and answers a line of text with text (NCCL user guide,
// Troubleshooting, RAS).

const DEFAULT_ADDRESS: &str = "localhost:28028";

/// Longer answers are cut.
const MAX_BYTES: u64 = 64 << 10;

/// The answer, or the reason for its absence.
fn query(address: Option<&str>, timeout: Duration) -> std::result::Result<String, String> {
    let address = address.unwrap_or(DEFAULT_ADDRESS);
    let deadline = Instant::now() + timeout;
    let unreachable =
        |cause: &dyn std::fmt::Display| format!("NCCL's RAS service at {address} was not reached: {cause}");
    let mut problem = unreachable(&"the name has no address");
    for target in address.to_socket_addrs().map_err(|cause| unreachable(&cause))? {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&target, left) {
            Ok(stream) => return converse(stream, deadline).map_err(|cause| unreachable(&cause)),
            Err(cause) => problem = unreachable(&cause),
        }
    }
    Err(problem)
}

/// Returns whatever arrived before the timeout.
fn converse(mut stream: TcpStream, deadline: Instant) -> std::io::Result<String> {
    stream.write_all(b"verbose status\n")?;
    let mut answer = Vec::new();
    let mut bytes = [0; 4096];
    while (answer.len() as u64) < MAX_BYTES {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => break,
            Ok(count) => answer.extend(&bytes[..count]),
        }
    }
    if answer.is_empty() {
        return Err(std::io::Error::other("it did not answer in time"));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

// Addresses at which other hosts may reach this one, as listed by the kernel, and its name.

/// The addresses, those of IPv4 first, followed by the name. Loopback addresses are those of every host, and link-local ones are useless
/// without the name of the interface.
fn of_this_host() -> Vec<String> {
    let of_others = |ip: &IpAddr| !ip.is_loopback() && !matches!(ip, IpAddr::V6(six) if six.is_unicast_link_local());
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut addresses = distinct(interfaces.iter().map(if_addrs::Interface::ip).filter(of_others));
    addresses.sort_by_key(IpAddr::is_ipv6);
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    addresses.iter().map(IpAddr::to_string).chain([name]).collect()
}

// Starts the watchdog: one collector for each host, to which its ranks connect, and a connection from every collector
// to the first.

/// How long sending may block before the collector counts as lost.
const SEND_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Setup<'a> {
    pub hosts: &'a [String],
    pub record: PathBuf,
    pub backend: &'static str,
    /// The user's deadline for everything, instead of those computed from the cases.
    pub timeout: Option<Duration>,
    /// Number of the received stop signal, or 0.
    pub signal: Arc<AtomicUsize>,
    /// A rank that misbehaves, for tests.
    pub fault: Option<Fault>,
    /// Ends the whole launch.
    pub end_launch: EndLaunch,
}

/// # Errors
/// If a collector cannot be started or reached; the same on every rank.
pub fn start(world: &dyn World, setup: Setup) -> Result<Watch> {
    let token = shared_token(world)?;
    let nodes = Nodes::of(setup.hosts);
    let me = world.process();
    let node = nodes.node_of_rank[me as usize];
    let mut mine = agree(world, Collector::first_of_host(&nodes, me, || config(&setup, &nodes, me, &token)))?;

    let answers = gather_all(world, &mine.as_ref().map(|collector| &collector.answer))?;
    let addresses: CollectorAddresses = from_first(world, &CollectorAddresses::of(answers, &nodes))?;
    let connected =
        mine.as_mut().map_or(Ok(()), |collector| collector.connect_to_first(&addresses.first, &setup.hosts[0]));
    agree(world, connected)?;
    let port = addresses.ports.get(node as usize).copied().unwrap_or_default();
    let reporter = connect(&setup, me, port, &token);
    let watch = Watch::of(agree(world, reporter)?, setup.timeout, nodes.node_of_rank);
    watch.begin_setup("before the first case");
    Ok(watch)
}

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

#[derive(serde::Serialize, serde::Deserialize)]
struct CollectorAddresses {
    ports: Vec<u16>,
    /// Address of the first collector for other collectors.
    first: FirstAnswer,
}

impl CollectorAddresses {
    /// From the answer of each rank; on process 0.
    fn of(answers: Vec<Option<FirstAnswer>>, nodes: &Nodes) -> CollectorAddresses {
        let answer = |rank: &u32| answers.get(*rank as usize).cloned().flatten().unwrap_or_default();
        let of_hosts: Vec<FirstAnswer> = nodes.first_ranks.iter().map(answer).collect();
        CollectorAddresses {
            ports: of_hosts.iter().map(|answer| answer.port).collect(),
            first: of_hosts.into_iter().next().unwrap_or_default(),
        }
    }
}

/// A random secret, the same on every rank.
fn shared_token(world: &dyn World) -> Result<Token> {
    let unreadable = |cause| Error::environment(format!("cannot read random bytes for the watchdog: {cause}"));
    let mine = if world.process() == 0 { random().map_err(unreadable) } else { Ok([0; TOKEN_BYTES]) };
    let mut token = agree(world, mine)?.to_vec();
    world.broadcast(&mut token)?;
    token.try_into().map_err(|_| Error::environment("the watchdog's secret arrived incomplete"))
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
            Error::environment(format!("cannot start the watchdog on host {host}: {cause}; --no-watchdog disables it"))
        };
        let program = std::env::current_exe().map_err(|cause| failed(&cause))?;
        // In its own process group: launchers kill the groups of their ranks, and the collector must outlive them briefly.
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
        send_line(&mut input, config).map_err(|cause| failed(&cause))?;
        let mut output = BufReader::new(output);
        let line = read_line(&mut output).map_err(|cause| failed(&cause))?;
        let answer = serde_json::from_str(&line).map_err(|_| failed(&format!("it says `{}`", line.trim())))?;
        Ok(Collector { _child: child, input, output, answer })
    }

    /// Sends the address of the first collector, and waits for the connection.
    fn connect_to_first(&mut self, first: &FirstAnswer, first_host: &str) -> Result<()> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let failed = |cause: &dyn std::fmt::Display| {
            Error::environment(format!(
                "the watchdog of host {host} does not reach that of host {first_host} (tried {}): {cause}; --no-watchdog disables it",
                first.shown_addresses()
            ))
        };
        send_line(&mut self.input, first).map_err(|cause| failed(&cause))?;
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
        let process_start = process_start(pid).unwrap_or(0);
        let hello = Hello { peer_kind: PeerKind::Rank(rank), pid, process_start };
        let session = greet_of_wire(&mut connection, &hello, token)?;
        let progress = Progress::with_fault(setup.fault.filter(|fault| fault.rank == rank));
        progress.set_deadline(setup_deadline(setup.hosts.len() as u32));
        let host = &setup.hosts[rank as usize];
        reporting_thread::start(rank, host, progress, connection, session, Arc::clone(&setup.signal), setup.end_launch)
    };
    unless_dropped(begin).map_err(|cause| {
        let host = &setup.hosts[rank as usize];
        Error::environment(format!(
            "cannot connect to the watchdog of host {host} on 127.0.0.1, port {port}: {cause}; do all ranks that name their host {host} share it? --no-watchdog disables the watchdog"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    fn serve(answer: Option<&'static str>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            assert_eq!(line, "verbose status\n");
            match answer {
                Some(text) => stream.write_all(text.as_bytes()).unwrap(),
                None => std::thread::sleep(Duration::from_secs(5)),
            }
        });
        address
    }

    #[test]
    fn the_answer_of_the_service_is_quoted_and_a_missing_one_reported() {
        let timeout = Duration::from_millis(300);
        let counts = "Communicators... 1 group, MISMATCH: rank 2 AllReduce 99\n";
        assert_eq!(query(Some(&serve(Some(counts))), timeout), Ok(counts.to_owned()));
        let silent = query(Some(&serve(None)), timeout).unwrap_err();
        assert!(silent.contains("did not answer in time"), "{silent}");
        let error = query(Some("127.0.0.1:1"), timeout).unwrap_err();
        assert!(error.contains("127.0.0.1:1 was not reached"), "{error}");
    }

    #[test]
    fn addresses_that_others_can_reach_come_once_and_the_name_last() {
        let found = of_this_host();
        let (name, addresses) = found.split_last().unwrap();
        assert!(!name.is_empty());
        let parsed: Vec<IpAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        assert!(parsed.iter().all(|address| !address.is_loopback()), "{parsed:?}");
        assert_eq!(distinct(&parsed).len(), parsed.len(), "{parsed:?}");
        assert!(parsed.is_sorted_by_key(IpAddr::is_ipv6), "{parsed:?}");
    }

    #[test]
    fn every_host_has_one_collector_on_its_lowest_rank_however_the_ranks_lie() {
        let hosts = ["b", "a", "b", "c", "a"].map(str::to_owned);
        let nodes = Nodes::of(&hosts);
        assert_eq!(
            (nodes.node_of_rank.as_slice(), nodes.first_ranks.as_slice()),
            (&[0, 1, 0, 2, 1][..], &[0, 1, 3][..])
        );
        let answer = |port| Some(FirstAnswer { port, ..FirstAnswer::default() });
        let addresses = CollectorAddresses::of(vec![answer(7), answer(8), None, answer(9), None], &nodes);
        assert_eq!((addresses.ports, addresses.first.port), (vec![7, 8, 9], 7));
    }
}
