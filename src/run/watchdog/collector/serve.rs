//! The collector's loop: receives from its ranks (and, on the first collector, from all hosts), notices missed
//! deadlines, queries, reports, ends the run.

use super::super::reporting_thread::LoneReports;
use super::super::wire::{
    Challenge, Connection, Frame, Hello, PeerKind, RankState, Token, random, session_of_collector,
};
use super::process::{self, Entry, Leftovers, NO_ANSWER_AFTER, Process, RankStatus, RankTable, Stacks, Trigger};
use commgauge_model::record::launch_lines::HangLine;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// Interval of checking deadlines.
pub(super) const TICK: Duration = Duration::from_millis(200);

/// Interval of reporting a host's ranks to the first collector.
const STATES_INTERVAL: Duration = Duration::from_millis(500);

/// With many connections each round checks all of them, so rounds are spaced out.
const MANY_CONNECTIONS: usize = 64;

const ROUND_PAUSE: Duration = Duration::from_millis(10);

/// Connections without a greeting: their number in addition to the expected ones, and the time limit of each.
const MAX_UNGREETED_PEERS: usize = 64;

const GREETING_TIMEOUT: Duration = Duration::from_secs(3);

const MAX_ACTIVITIES: usize = 64;

pub(super) struct Peer {
    pub(super) connection: Connection,
    pub(super) peer_kind: Option<PeerKind>,
    /// The challenge that its greeting must answer.
    challenge: Challenge,
    since: Instant,
    /// Time of the last message.
    pub(super) heard: Instant,
}

/// Who may connect, and where.
pub(super) struct Admission {
    token: Token,
    listeners: Vec<TcpListener>,
    /// Set until the rank that started this process has seen all ranks connected, or is dead.
    pub(super) accepts_ranks: bool,
}

/// Start time of this collector, and when it last received or sent something.
pub(super) struct Times {
    pub(super) begun: Instant,
    /// Time of the last message from the first collector; on the other hosts.
    pub(super) first_heard: Instant,
    beats_sent: Instant,
    states_sent: Instant,
}

/// The state of a collector while it serves its ranks and peers.
pub struct Serving {
    pub(super) config: Config,
    pub(super) admission: Admission,
    pub(super) upstream: Option<Connection>,
    pub(super) times: Times,
    /// Whether this host decides alone because the first collector is out of reach.
    pub(super) is_cut_off: bool,
    /// Whether the launcher may have ended some of the ranks that died first.
    pub(super) launcher_may_have_ended_some: bool,
    pub(super) peers: Vec<Peer>,
    pub(super) table: RankTable,
    pub(super) activities: BTreeMap<u64, String>,
    pub(super) stage: Stage,
    /// Error of the first rank that ended with one.
    pub(super) error: Option<(u32, i32, String)>,
    /// What earlier launches had left.
    pub(super) before: Before,
    pub(super) leftovers: Leftovers,
    pub(super) printing: Option<JoinHandle<()>>,
    pub(super) stacks: Stacks,
}

impl Serving {
    pub(super) fn new(
        config: Config,
        token: Token,
        listeners: Vec<TcpListener>,
        upstream: Option<Connection>,
    ) -> std::io::Result<Serving> {
        listeners.iter().try_for_each(|listener| listener.set_nonblocking(true))?;
        let now = Instant::now();
        let all = 0..config.node_of_rank.len() as u32;
        let table = match config.node {
            0 => RankTable::new(all, now),
            _ => RankTable::new(config.local_ranks.iter().copied(), now),
        };
        let table = if crate::launcher::asks_first() { table.with_death_window(DEATH_WINDOW) } else { table };
        let before = Before::of(&config.record);
        Ok(Serving {
            config,
            before,
            admission: Admission { token, listeners, accepts_ranks: true },
            upstream,
            times: Times { begun: now, first_heard: now, beats_sent: now, states_sent: now },
            is_cut_off: false,
            launcher_may_have_ended_some: false,
            peers: Vec::new(),
            table,
            activities: BTreeMap::new(),
            stage: Stage::Watching,
            error: None,
            leftovers: Leftovers::default(),
            printing: None,
            stacks: Stacks::default(),
        })
    }

    pub(super) fn is_first(&self) -> bool {
        self.config.node == 0
    }

    pub(super) fn host_of(&self, rank: u32) -> &str {
        let node = self.config.node_of_rank.get(rank as usize).copied().unwrap_or(0);
        self.config.hosts.get(node as usize).map_or("?", String::as_str)
    }

    /// Waits until there is input, or a tick has passed.
    pub(super) fn wait(&self) {
        let stdin = std::io::stdin();
        let mut waiting: Vec<PollFd> =
            self.admission.listeners.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        let flags = |connection: &Connection| {
            if connection.has_outgoing() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
        };
        let connections = self.peers.iter().map(|peer| &peer.connection).chain(&self.upstream);
        waiting.extend(connections.map(|connection| PollFd::new(&connection.stream, flags(connection))));
        if self.admission.accepts_ranks {
            waiting.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let tick = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
        // An interruption by a signal counts as an event.
        let _ = poll(&mut waiting, Some(&tick));
        if waiting.len() > MANY_CONNECTIONS {
            std::thread::sleep(ROUND_PAUSE);
        }
    }

    pub(super) fn accept(&mut self, now: Instant) {
        // All hosts may connect at the same time.
        let most = MAX_UNGREETED_PEERS + self.config.nodes as usize + self.config.local_ranks.len();
        for listener in &self.admission.listeners {
            // Few at a time: those that are closed already go, and peers greet, before the next.
            for (stream, _) in std::iter::from_fn(|| listener.accept().ok()).take(MAX_UNGREETED_PEERS / 2) {
                let is_stranger = |at: &usize| self.peers[*at].peer_kind.is_none();
                let strangers: Vec<usize> = (0..self.peers.len()).filter(is_stranger).collect();
                if strangers.len() >= most {
                    // A legitimate peer greets at once; the peer that has been silent the longest is dropped. A greeting may not be read yet.
                    let mut is_silent = |at: &&usize| {
                        let connection = &mut self.peers[**at].connection;
                        connection.receive().is_err() || connection.incoming.is_empty()
                    };
                    let oldest = strangers.iter().find(&mut is_silent).unwrap_or(&strangers[0]);
                    self.peers.remove(*oldest);
                }
                if let (Ok(mut connection), Ok(challenge)) = (Connection::of(stream), random()) {
                    connection.queue_bytes(&challenge);
                    self.peers.push(Peer { connection, peer_kind: None, challenge, since: now, heard: now });
                }
            }
        }
        if self.admission.accepts_ranks && !input_is_open() {
            self.admission.accepts_ranks = false;
        }
    }

    pub(super) fn receive_from_peers(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.peers.len() {
            let before = self.peers[at].connection.incoming.len();
            let open = self.peers[at].connection.receive().is_ok();
            if self.peers[at].connection.incoming.len() > before {
                self.peers[at].heard = now;
            }
            let valid = self.handle_input(at, now);
            let stranger = self.peers[at].peer_kind.is_none();
            let too_long = stranger && now - self.peers[at].since > GREETING_TIMEOUT;
            if open && valid && !too_long {
                at += 1;
                continue;
            }
            self.lose_peer(at, now);
        }
    }

    fn lose_peer(&mut self, at: usize, now: Instant) {
        match self.peers.swap_remove(at).peer_kind {
            Some(PeerKind::Rank(rank)) => self.lose_rank(rank, now),
            Some(PeerKind::Host(host)) => self.lose_host(host, "is gone"),
            // An unknown peer, or one that never said who it is.
            None => {}
        }
    }

    /// Handles received data; false if it is malformed.
    fn handle_input(&mut self, at: usize, now: Instant) -> bool {
        if self.peers[at].peer_kind.is_none() {
            let Peer { connection, challenge, .. } = &mut self.peers[at];
            match Hello::decode(&connection.incoming, &self.admission.token, challenge) {
                Ok(Some((hello, taken))) => {
                    let session = session_of_collector(&self.admission.token, challenge, &connection.incoming[..taken]);
                    connection.take(taken);
                    connection.begin(session);
                    if !self.accept_peer(at, hello, now) {
                        return false;
                    }
                }
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
        loop {
            match self.peers[at].connection.next_frame() {
                Ok(Some(frame)) if self.may_send(at, &frame) => self.take(at, frame, now),
                Ok(Some(_)) => return false,
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    /// Whether a peer may send this: a rank only reports about itself, a host about its own ranks.
    fn may_send(&self, at: usize, frame: &Frame) -> bool {
        let about = match frame {
            Frame::State(state) => state.rank,
            Frame::Closed(rank) | Frame::Left(rank, ..) | Frame::Detail(rank, ..) | Frame::Device(rank, _) => *rank,
            Frame::Stack(rank, _) => *rank,
            Frame::Conclude | Frame::RecordGivenUp | Frame::RecordMoved(_) => 0,
            Frame::Unwatched(_) => return matches!(self.peers[at].peer_kind, Some(PeerKind::Rank(_))),
            _ => return true,
        };
        match self.peers[at].peer_kind {
            Some(PeerKind::Rank(rank)) => rank == about,
            Some(PeerKind::Host(host)) => self.config.node_of_rank.get(about as usize) == Some(&host),
            None => false,
        }
    }

    fn accept_peer(&mut self, at: usize, hello: Hello, now: Instant) -> bool {
        let known = self.peers.iter().any(|peer| peer.peer_kind == Some(hello.peer_kind));
        match hello.peer_kind {
            PeerKind::Rank(rank)
                if !known
                    && self.config.local_ranks.binary_search(&rank).is_ok()
                    && !process::belongs_to_another_launch(hello.pid) =>
            {
                if let Some(entry) = self.table.get_mut(rank) {
                    entry.process = Process { pid: hello.pid, start: hello.process_start };
                    (entry.status, entry.last_heartbeat) = (RankStatus::Live, now);
                    entry.state.deadline_milliseconds = u32::MAX;
                }
            }
            PeerKind::Host(host) if !known && self.is_first() && host > 0 && host < self.config.nodes => {
                // This confirms to a host that it was accepted; no answer is expected.
                self.peers[at].connection.queue(&Frame::Query);
            }
            _ => return false,
        }
        self.peers[at].peer_kind = Some(hello.peer_kind);
        self.tell_latecomer(at);
        true
    }

    /// A rank that connects after all were queried, or told to end, gets the same message.
    fn tell_latecomer(&mut self, at: usize) {
        let missed = match &self.stage {
            Stage::Querying { .. } => Frame::Query,
            Stage::Ending { outcome, .. } => Frame::Abort(outcome.code),
            _ => return,
        };
        self.peers[at].connection.queue(&missed);
    }

    fn take(&mut self, at: usize, frame: Frame, now: Instant) {
        match frame {
            Frame::State(state) => self.table.record_heartbeat(state, now),
            Frame::Closed(rank) => self.table.close(rank, now),
            Frame::Activity(number, text) => {
                self.activities.insert(number, text);
                while self.activities.len() > MAX_ACTIVITIES {
                    self.activities.pop_first();
                }
            }
            Frame::Detail(rank, sleeps, text) => {
                if let Some(entry) = self.table.get_mut(rank) {
                    (entry.detail, entry.sleeps) = (Some(text.clone().into_boxed_str()), sleeps);
                }
                self.send_up(&Frame::Detail(rank, sleeps, text));
            }
            Frame::Device(rank, text) => {
                if let Some(entry) = self.table.get_mut(rank) {
                    entry.device = Some(text.clone().into_boxed_str());
                }
                self.send_up(&Frame::Device(rank, text));
            }
            Frame::Left(rank, code, why) => {
                self.table.leave(rank, code);
                if code != 0 && self.error.is_none() {
                    self.error = Some((rank, code, why.clone()));
                }
                self.send_up(&Frame::Left(rank, code, why));
            }
            Frame::Conclude if matches!(self.stage, Stage::Watching) => {
                self.peers[at].connection.queue(&Frame::Concluded);
            }
            Frame::RecordGivenUp if self.peers[at].peer_kind == Some(PeerKind::Rank(0)) => {
                if let Stage::TakingRecord { is_given_up, .. } = &mut self.stage {
                    *is_given_up = true;
                }
            }
            Frame::RecordMoved(path) if self.peers[at].peer_kind == Some(PeerKind::Rank(0)) => {
                self.config.record = path.into();
            }
            Frame::Conclude | Frame::RecordGivenUp | Frame::RecordMoved(_) => {}
            Frame::Stack(rank, text) => drop(self.stacks.found.insert(rank, text)),
            Frame::Unwatched(host) => self.lose_collector_of(host),
            Frame::Query | Frame::Abort(_) | Frame::Concluded | Frame::GiveUpRecord(_) | Frame::Beat => {}
            Frame::ShowStack(_) => {}
        }
    }

    pub(super) fn receive_from_first(&mut self) {
        let Some(upstream) = &mut self.upstream else { return };
        let before = upstream.incoming.len();
        let open = upstream.receive().is_ok();
        if upstream.incoming.len() > before {
            self.times.first_heard = Instant::now();
        }
        loop {
            let Some(upstream) = &mut self.upstream else { return };
            match upstream.next_frame() {
                Ok(Some(Frame::Query)) => self.send_to_all(&Frame::Query),
                Ok(Some(Frame::Abort(code))) => self.end_all(Outcome { line: None, code }),
                Ok(Some(Frame::ShowStack(rank))) => self.look_at_stacks(&[rank]),
                Ok(Some(_)) => {}
                Ok(None) if open => return,
                // From here on this host decides for its own ranks.
                Ok(None) | Err(_) => self.upstream = None,
            }
        }
    }

    pub(super) fn send_up(&mut self, frame: &Frame) {
        if let Some(upstream) = &mut self.upstream {
            upstream.queue(frame);
        }
    }

    pub(super) fn send_to_all(&mut self, frame: &Frame) {
        for peer in self.peers.iter_mut().filter(|peer| peer.peer_kind.is_some()) {
            peer.connection.queue(frame);
        }
    }

    pub(super) fn send_to_rank_0(&mut self, frame: &Frame) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.peer_kind == Some(PeerKind::Rank(0))) {
            peer.connection.queue(frame);
        }
    }

    /// Tells all peers that this collector is alive.
    pub(super) fn send_beats(&mut self, now: Instant) {
        if now - self.times.beats_sent >= BEAT_INTERVAL {
            self.times.beats_sent = now;
            self.send_to_all(&Frame::Beat);
            self.send_up(&Frame::Beat);
        }
    }

    /// Sends the states of a host's ranks to the first collector.
    pub(super) fn report_states(&mut self, now: Instant) {
        if self.upstream.is_some() && now - self.times.states_sent >= STATES_INTERVAL {
            self.times.states_sent = now;
            self.send_states(now, None);
        }
    }

    /// Periodically notes what the ranks would leave.
    pub(super) fn note_leftovers(&mut self, now: Instant) {
        if matches!(self.stage, Stage::Watching) && !self.leftovers.rests(now) {
            let processes = self.local_processes();
            let have_begun = processes.len() == self.config.local_ranks.len()
                && self.local().all(|entry| entry.state.shown.activity > 1);
            self.leftovers.note_at(now, have_begun, &processes);
        }
    }

    pub(super) fn local_processes(&self) -> Vec<Process> {
        self.local().map(|entry| entry.process).collect()
    }

    pub(super) fn local(&self) -> impl Iterator<Item = &Entry> {
        self.table.entries.iter().filter(|entry| entry.process.is_here())
    }

    pub(super) fn send_states(&mut self, now: Instant, only: Option<u32>) {
        let Some(upstream) = &mut self.upstream else { return };
        for entry in &self.table.entries {
            let wanted = only.map_or(entry.status == RankStatus::Live, |rank| rank == entry.rank);
            if wanted {
                let silent = now.saturating_duration_since(entry.last_heartbeat);
                let stopped = silent > NO_ANSWER_AFTER / 2 && entry.process.is_stopped() == Some(true);
                let silent_milliseconds = u32::try_from(silent.as_millis()).unwrap_or(u32::MAX);
                upstream.queue(&Frame::State(RankState { silent_milliseconds, stopped, ..entry.state }));
            }
        }
    }

    pub(super) fn flush(&mut self, now: Instant) {
        let mut gone = Vec::new();
        for (at, peer) in self.peers.iter_mut().enumerate() {
            if peer.connection.flush().is_err() {
                gone.push(at);
            }
        }
        // From the back, so that the other indices stay valid.
        for at in gone.into_iter().rev() {
            // It may have sent data before it closed.
            let _ = self.peers[at].connection.receive();
            self.handle_input(at, now);
            self.lose_peer(at, now);
        }
        if self.upstream.as_mut().is_some_and(|upstream| upstream.flush().is_err()) {
            self.upstream = None;
        }
    }

    /// Whether this launch wrote to its record: the end line is not ours to write if the launch only read the record and refused to
    /// resume it.
    pub(super) fn has_begun_its_record(&self) -> bool {
        self.before.was_written_since(&self.config.record)
    }
}

/// Whether standard input is still open: no data is sent on it, so readable means closed.
fn input_is_open() -> bool {
    let stdin = std::io::stdin();
    let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut waiting, Some(&at_once)), Ok(0))
}

// The loop of a collector, from its first rank to its last.

/// How long other hosts may take to close their connections after the command to end their ranks.
const HOSTS_TIMEOUT: Duration = Duration::from_millis(1_500);

impl Serving {
    /// Runs until the ranks are gone.
    pub fn run(&mut self) {
        let mut last = Instant::now();
        while !self.is_over(last) {
            self.wait();
            let now = Instant::now();
            if now - last > TICK * 10 {
                self.table.reset_heartbeats(now);
                self.times.first_heard = now;
                self.peers.iter_mut().for_each(|peer| peer.heard = now);
            }
            last = now;
            self.accept(now);
            self.receive_from_peers(now);
            self.receive_from_first();
            self.pass_stacks_on();
            self.advance(now);
            self.report_states(now);
            self.send_beats(now);
            self.note_leftovers(now);
            self.flush(now);
        }
        self.report_without_query();
        self.finish();
    }

    /// Whether no peer is left to wait for. Once the run is ended, the peers are the ranks of this host: another host may be unreachable.
    fn is_over(&self, now: Instant) -> bool {
        let has_ranks = || self.peers.iter().any(|peer| matches!(peer.peer_kind, Some(PeerKind::Rank(_))));
        match self.stage {
            Stage::Ending { since, .. } if now - since > HOSTS_TIMEOUT => !has_ranks(),
            _ => !self.admission.accepts_ranks && self.peers.is_empty(),
        }
    }
}

// The configuration of a collector.

/// Configuration of a collector on its standard input; the command line would be readable by every user of the host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The secret of this run.
    pub token: Token,
    /// Index of this host.
    pub node: u32,
    /// Number of hosts.
    pub nodes: u32,
    /// The host of every rank, by index; on the first collector only.
    pub node_of_rank: Vec<u32>,
    /// Names of all hosts on the first collector, of its own host elsewhere.
    pub hosts: Vec<String>,
    /// Name of the host of rank 0.
    pub first_host: String,
    /// How long another host may stay silent, in milliseconds.
    pub host_deadline_milliseconds: u64,
    pub local_ranks: Vec<u32>,
    pub record: PathBuf,
    pub backend: String,
}

// The stages of a collector, from the first suspicion to the end of a launch.

/// After a death: time to distinguish it from the ranks that the launcher ends because of it.
pub(super) const DEATH_SETTLING_TIME: Duration = Duration::from_millis(100);

/// How long after the first death further deaths count as independent if the launcher asks ranks before it kills them. Open MPI 4 takes 60
/// ms and more to end the others.
pub(super) const DEATH_WINDOW: Duration = Duration::from_millis(30);

/// Interval of telling ranks and other hosts that this collector is alive.
pub(super) const BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// A host or collector that stays silent for this long is unreachable.
pub(super) const UNREACHABLE_AFTER: Duration = Duration::from_millis(2_500);

pub(super) enum Stage {
    Watching,
    /// A rank has died; others may follow.
    Settling(Instant),
    Querying {
        since: Instant,
        trigger: Trigger,
        ras: Option<RasQuery>,
    },
    /// The reason is known and reported. The stacks of the blocking ranks are read before the ranks are ended.
    Stacks {
        since: Instant,
        outcome: Outcome,
        wanted: Vec<u32>,
        /// Content of the report file so far.
        report: String,
    },
    /// Rank 0 is asked for the record, so that its end is written before any launcher notices that
    /// the run is over: some take this process along.
    TakingRecord {
        since: Instant,
        outcome: Outcome,
        is_given_up: bool,
    },
    Ending {
        since: Instant,
        outcome: Outcome,
    },
}

#[derive(Clone)]
pub(super) struct Outcome {
    /// The reason; on the collector that decides.
    pub(super) line: Option<Box<HangLine>>,
    /// The exit code of every rank.
    pub(super) code: i32,
}

/// A pending query to NCCL's service.
pub(super) struct RasQuery {
    pub(super) waiting: Receiver<String>,
    pub(super) answer: Option<String>,
}

/// The state before this launch.
pub(super) struct Before {
    /// Length and time of the record.
    record: Option<(u64, SystemTime)>,
    /// Reports of hosts that decided alone.
    pub(super) lone_reports: LoneReports,
}

impl Before {
    pub(super) fn of(record: &Path) -> Before {
        Before { record: stamp(record), lone_reports: LoneReports::before(record) }
    }

    /// Whether this launch wrote to its record.
    pub(super) fn was_written_since(&self, record: &Path) -> bool {
        stamp(record) != self.record
    }
}

fn stamp(path: &Path) -> Option<(u64, SystemTime)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.len(), file.modified().ok()?))
}

#[cfg(test)]
mod tests {
    // Messages to ranks that connect late.
    use super::super::process::Trigger;
    use super::super::unless_dropped;
    use super::*;
    use crate::watchdog::wire::TOKEN_BYTES;
    use crate::watchdog::wire::greet;
    use std::io::Read;
    use std::net::{Ipv4Addr, TcpStream};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const TOKEN: Token = [3; TOKEN_BYTES];

    fn serving(folder: &Path, listener: TcpListener) -> Serving {
        let config = Config {
            token: TOKEN,
            node: 0,
            nodes: 1,
            node_of_rank: vec![0; 2],
            hosts: vec!["a".into()],
            first_host: "a".into(),
            host_deadline_milliseconds: 60_000,
            local_ranks: vec![0, 1],
            record: folder.join("run.jsonl"),
            backend: "mpi".into(),
        };
        Serving::new(config, TOKEN, vec![listener], None).expect("it listens")
    }

    /// Connects as rank 1, and returns the first message to it.
    fn first_word_to_a_latecomer(serving: &mut Serving, port: u16) -> Frame {
        let rank = std::thread::spawn(move || {
            let hello = Hello { peer_kind: PeerKind::Rank(1), pid: 0, process_start: 0 };
            let greeted = || {
                let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
                stream.set_read_timeout(Some(Duration::from_secs(60)))?;
                Ok((greet(&mut stream, &hello, &TOKEN)?.opener, stream))
            };
            let (mut opener, mut stream) = unless_dropped(greeted).expect("it answers");
            let (mut heard, mut some) = (Vec::new(), [0; 64]);
            loop {
                if let Some((frame, _)) = opener.open(&heard).expect("the frame is sealed") {
                    return frame;
                }
                let count = stream.read(&mut some).expect("a word");
                assert!(count > 0, "the first message is empty");
                heard.extend(&some[..count]);
            }
        });
        while !rank.is_finished() {
            serving.wait();
            let now = Instant::now();
            serving.accept(now);
            serving.receive_from_peers(now);
            serving.flush(now);
        }
        rank.join().expect("the first message exists")
    }

    /// Connections that are closed at once, or held, while ranks connect.
    #[test]
    fn a_rank_is_admitted_however_many_strangers_come_and_go() {
        let folder = tempfile::tempdir().expect("a folder");
        for holds in [false, true] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let port = listener.local_addr().expect("bound").port();
            let mut serving = serving(folder.path(), listener);
            serving.stage = Stage::Querying {
                since: Instant::now(),
                trigger: Trigger::Deadline(Duration::from_secs(2)),
                ras: None,
            };
            let is_over = Arc::new(AtomicBool::new(false));
            let strangers = std::thread::spawn({
                let is_over = Arc::clone(&is_over);
                move || {
                    let mut held = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        let stranger = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
                        if holds && held.len() < 500 {
                            held.push(stranger);
                        }
                    }
                }
            });
            assert_eq!(first_word_to_a_latecomer(&mut serving, port), Frame::Query, "{holds}");
            is_over.store(true, Ordering::Relaxed);
            strangers.join().expect("they end");
        }
    }

    #[test]
    fn a_rank_that_connects_after_the_others_were_asked_or_made_to_end_gets_the_same_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let now = Instant::now();
        let trigger = Trigger::Deadline(Duration::from_secs(2));
        let outcome = Outcome { line: None, code: 5 };
        for (stage, expected) in [
            (Stage::Querying { since: now, trigger, ras: None }, Frame::Query),
            (Stage::Ending { since: now, outcome }, Frame::Abort(5)),
        ] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
            let port = listener.local_addr().expect("bound").port();
            let mut serving = serving(folder.path(), listener);
            serving.stage = stage;
            assert_eq!(first_word_to_a_latecomer(&mut serving, port), expected);
        }
    }
}
