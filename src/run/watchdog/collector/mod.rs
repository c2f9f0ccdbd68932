//! A host's collector: a small process next to the ranks, so that it can report and end a launch whichever rank is
//! stopped or dead.
//!
//! It is started by the lowest rank of the host from the same program, receives the state of every rank over TCP, and
//! ends with them. The one on the host of rank 0 receives the states of all hosts, decides, and writes the report. The
//! entry point is [`main`]; the loop is in `serve`.

mod addresses;
mod before;
mod config;
mod connection;
mod deaths;
mod leftovers;
mod process;
mod ras;
mod report;
mod run;
mod serve;
mod stack;
mod stack_answers;
mod stacks;
mod stage;
mod stages;
mod table;

pub use config::Config;
pub use process::process_start;
pub use report::{BlockedRanks, RankView, hang_line, whole_text};
pub use table::{RankStatus, RankTable, Trigger};

use super::authentication::session_of_peer;
use super::keyed_hash::CHALLENGE_BYTES;
use super::message::print_message;
use super::wire::{Frame, Hello, PeerKind, Token};
use connection::Connection;
use serde::{Deserialize, Serialize};
use serve::Serving;
use std::io::{BufRead, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// Timeout for connecting to one address of the first collector.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Listen backlog besides the expected connections.
const MIN_BACKLOG: i32 = 128;

/// Ports and addresses of a collector.
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

/// Result of connecting to the first collector.
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

fn begin() -> Result<Serving, Box<dyn std::error::Error>> {
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
        answer.addresses = addresses::of_this_host();
    }
    reply(&answer)?;
    line.clear();
    input.read_line(&mut line)?;
    let first: FirstAnswer = serde_json::from_str(&line)?;
    let upstream = if config.node == 0 { Ok(None) } else { reach(&first, &config, &token).map(Some) };
    reply(&SecondAnswer { problem: upstream.as_ref().err().cloned() })?;
    let listeners = [Some(for_ranks), for_hosts].into_iter().flatten().collect();
    Ok(Serving::new(config, token, listeners, upstream?)?)
}

/// Room for this many peers that connect at the same time: those beyond it would retry after a second, all at the same time
/// again, and most of them in vain. The system caps it at its own maximum (net.core.somaxconn, 4096 by default).
fn backlog(peers: usize) -> i32 {
    i32::try_from(peers).unwrap_or(i32::MAX).saturating_add(MIN_BACKLOG)
}

/// Listens on all addresses, of both families if the system has both.
fn listen_to_hosts(hosts: u32) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
    rustix::net::listen(&listener, backlog(hosts as usize))?;
    Ok(listener)
}

/// A connection for each of many ranks or hosts needs more file descriptors than the usual soft limit; where the system refuses,
/// the first failing connection is reported.
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

fn reply(answer: &impl Serialize) -> Result<(), Box<dyn std::error::Error>> {
    let mut text = serde_json::to_vec(answer)?;
    text.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&text)?;
    Ok(out.flush()?)
}

/// Connects to the first collector; one with our secret answers.
fn reach(first: &FirstAnswer, config: &Config, token: &Token) -> Result<Connection, String> {
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
            match TcpStream::connect_timeout(&target, CONNECT_TIMEOUT).and_then(|stream| greet(stream, config, token)) {
                Ok(connection) => return Ok(connection),
                Err(cause) => problem = format!("{target}: {cause}"),
            }
        }
    }
    Err(problem)
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
