//! A collector as the programs start it, and ranks and hosts that tests play over real connections. They report how long
//! they have made no progress, so that the clock of a busy machine does not count.

use commgauge::progress::{Doing, Shown};
use commgauge::watchdog::COLLECTOR_VARIABLE;
use commgauge::watchdog::collector::{Config, FirstAnswer};
use commgauge::watchdog::wire;
use commgauge::watchdog::wire::{Direction, Session};
use commgauge::watchdog::wire::{Frame, Hello, PeerKind, RankState, Token};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_commgauge-sweep");
pub(crate) const RANKS_PER_HOST: u32 = 8;
pub(crate) const TOKEN: Token = [9; 32];
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// As that of the hosts.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Collector {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
    pub(crate) answer: FirstAnswer,
}

impl Collector {
    pub(crate) fn start(hosts: u32, record: std::path::PathBuf) -> Collector {
        Collector::of_config(Collector::config(hosts, record), Command::new(PROGRAM))
    }

    pub(crate) fn config(hosts: u32, record: std::path::PathBuf) -> Config {
        Config {
            token: TOKEN,
            node: 0,
            nodes: hosts,
            node_of_rank: (0..hosts * RANKS_PER_HOST).map(|rank| rank / RANKS_PER_HOST).collect(),
            hosts: (0..hosts).map(|host| format!("node-{host}")).collect(),
            first_host: "node-0".into(),
            // The hosts of these tests say something only when it matters.
            host_deadline_milliseconds: 600_000,
            local_ranks: (0..RANKS_PER_HOST).collect(),
            record,
            backend: "mpi".into(),
        }
    }

    pub(crate) fn of_config(config: Config, mut program: Command) -> Collector {
        let mut child = program
            .env(COLLECTOR_VARIABLE, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        writeln!(child.stdin.as_mut().expect("piped"), "{}", serde_json::to_string(&config).unwrap()).unwrap();
        let mut output = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        Collector { child, output, answer: serde_json::from_str(&line).unwrap() }
    }

    pub(crate) fn begin(&mut self) {
        let first = serde_json::to_string(&self.answer).unwrap();
        writeln!(self.child.stdin.as_mut().expect("piped"), "{first}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(line.contains("null"), "{line}");
    }

    pub(crate) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        peak.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() * 1024
    }
}

/// A connection that was greeted.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    sealer: Direction,
    opener: Direction,
    heard: Vec<u8>,
}

impl Peer {
    pub(crate) fn greet(mut stream: TcpStream, peer_kind: PeerKind) -> Peer {
        let hello = Hello { peer_kind, pid: 0, process_start: 0 };
        let Session { sealer, opener } = wire::greet(&mut stream, &hello, &TOKEN).expect("it answers");
        Peer { stream, sealer, opener, heard: Vec::new() }
    }

    pub(crate) fn send(&mut self, frames: impl IntoIterator<Item = Frame>) {
        let mut bytes = Vec::new();
        frames.into_iter().for_each(|frame| self.sealer.seal(&frame, &mut bytes));
        self.stream.write_all(&bytes).expect("it listens");
    }

    /// Receives what has arrived; 0 bytes where the other end has closed.
    pub(crate) fn receive(&mut self) -> std::io::Result<usize> {
        let mut some = [0; 256];
        let count = self.stream.read(&mut some)?;
        self.heard.extend(&some[..count]);
        Ok(count)
    }

    /// The next frame of what was received.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        let (frame, taken) = self.opener.open(&self.heard).expect("its frames are sealed")?;
        self.heard.drain(..taken);
        Some(frame)
    }
}

pub(crate) fn connect(port: u16) -> TcpStream {
    TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), PATIENCE).expect("it listens")
}

pub(crate) fn greet(port: u16, peer_kind: PeerKind) -> Peer {
    Peer::greet(connect(port), peer_kind)
}

pub(crate) fn state(rank: u32, step: u64, stuck: Duration, deadline: Duration) -> Frame {
    let shown = Shown { activity: 1, step, calls: step / 2 + 1, doing: Doing::CALL.0, peer: None, group: 0 };
    Frame::State(RankState {
        rank,
        shown,
        stuck_milliseconds: stuck.as_millis() as u32,
        deadline_milliseconds: deadline.as_millis() as u32,
        ..RankState::default()
    })
}

/// The reply of a rank to a query of what it does.
pub(crate) fn detail(rank: u32, does: &str) -> Frame {
    Frame::Detail(rank, false, does.into())
}

/// Reads until the collector sends this.
pub(crate) fn read_until(peer: &mut Peer, wanted: &Frame) {
    peer.stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    loop {
        while let Some(frame) = peer.next_frame() {
            if frame == *wanted {
                return;
            }
        }
        assert!(peer.receive().expect("an order") > 0, "the collector closed before it said {wanted:?}");
    }
}
