//! A collector with 4,096 ranks of its own host, which processes play over real connections: all connect at one time, one of
//! them hangs, and every one of them is asked and told to end.

use crate::{common, played};

use commgauge::watchdog::collector::Config;
use commgauge::watchdog::wire::{Frame, PeerKind};
use common::wait_until;
use played::{Collector, DEADLINE, PROGRAM, Peer, detail, greet, state};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ranks of one host, each with a connection of its own.
const RANKS: u32 = 4_096;
/// Processes that play them.
const PLAYERS: u32 = 8;
const RANKS_PER_PLAYER: u32 = RANKS / PLAYERS;
const HUNG: u32 = 2_222;
/// Where the ranks stay; they have come less far before.
const LAST_STEP: u64 = 1_000_000;
/// As of the ranks of a launch.
const HEARTBEAT: Duration = Duration::from_millis(400);
/// Port, first rank.
const PLAYED: &str = "COMMGAUGE_TEST_PLAYED";

/// A process that plays some of the ranks.
struct Player {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Player {
    /// Starts this program again, to play the ranks from this one on.
    fn start(port: u16, first: u32) -> Player {
        let own = std::env::current_exe().expect("a path");
        let mut player = Command::new(own);
        player.args(["--exact", "crowd::plays_a_part_of_four_thousand_ranks", "--ignored", "--nocapture"]);
        let player = player.env(PLAYED, format!("{port} {first}")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = player.spawn().expect("it starts");
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().expect("piped")));
        Player { child, input, output }
    }

    /// Waits until it says that all of its ranks have come so far.
    fn wait_for(&mut self, word: &str) {
        let mut line = String::new();
        while line.trim() != word {
            line.clear();
            assert!(self.output.read_line(&mut line).expect("it prints") > 0, "a player ended before it said {word}");
        }
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[test]
fn four_thousand_ranks_of_one_host_connect_at_one_time_and_all_are_made_to_end() {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < u64::from(RANKS) + 100) {
        common::skipped("watchdog of 4,096 ranks on a host", "this system allows too few open files");
        return;
    }
    let _alone = common::alone();
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        node_of_rank: vec![0; RANKS as usize],
        local_ranks: (0..RANKS).collect(),
        ..Collector::config(1, folder.path().join("run.jsonl"))
    };
    // As a login shell leaves it on most systems.
    let mut program = Command::new("sh");
    program.args(["-c", "ulimit -Sn 1024; exec \"$0\"", PROGRAM]);
    let mut collector = Collector::of_config(config, program);
    collector.begin();
    let begun = Instant::now();
    let first = |player| player * RANKS_PER_PLAYER;
    let mut players: Vec<Player> =
        (0..PLAYERS).map(|player| Player::start(collector.answer.port, first(player))).collect();
    players.iter_mut().for_each(|player| player.wait_for("connected"));
    drop(collector.child.stdin.take());
    let connected = begun.elapsed().as_secs_f64();
    // They make progress until one of them stays behind.
    let hung = Instant::now();
    players.iter_mut().for_each(|player| drop(player.input.take()));
    players.iter_mut().for_each(|player| player.wait_for("asked"));
    let asked = hung.elapsed().as_secs_f64();
    let report = folder.path().join("run.hang.txt");
    wait_until(60, "a report", || report.exists());
    players.iter_mut().for_each(|player| player.wait_for("ended"));
    let (ended, peak) = (hung.elapsed().as_secs_f64(), collector.peak_bytes());
    let said = format!(
        "hosts_crowd: {RANKS} ranks connected in {connected:.2} s, all asked {asked:.2} s and ended {ended:.2} s after the deadline, \
         peak {} MB\n",
        peak / 1_000_000
    );
    let _ = std::io::stderr().write_all(said.as_bytes());
    let text = std::fs::read_to_string(&report).unwrap();
    let begins = format!("no progress within 60.0 s: rank {HUNG} on node-0 never entered all_reduce");
    assert!(text.starts_with(&begins), "{}", &text[..300]);
    assert_eq!(text.matches("its thread runs, 99 % busy").count(), RANKS as usize + 1, "all have answered");
    assert!(peak < 100_000_000, "{peak} bytes");
    drop(players);
    assert!(collector.child.wait().unwrap().success());
}

/// The ranks of a player.
struct Played {
    peers: Vec<Peer>,
    first: u32,
    steps: u64,
    asked: usize,
    ended: usize,
}

impl Played {
    fn rank(&self, at: usize) -> u32 {
        self.first + at as u32
    }

    /// What a rank says of itself: once it hangs it is beyond its deadline in the same call as all, which one has not entered.
    fn state(&self, rank: u32, hangs: bool) -> Frame {
        match hangs {
            true => state(rank, LAST_STEP + u64::from(rank != HUNG), DEADLINE + Duration::from_secs(1), DEADLINE),
            false => state(rank, self.steps, Duration::ZERO, DEADLINE),
        }
    }

    fn beat(&mut self, hang: bool) {
        self.steps += 2;
        for at in 0..self.peers.len() {
            let state = self.state(self.rank(at), hang);
            self.peers[at].send([state]);
        }
    }

    /// Answers what the collector says, until this moment.
    fn answer(&mut self, until: Instant) {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let mut waiting: Vec<PollFd> =
                self.peers.iter().map(|peer| PollFd::new(&peer.stream, PollFlags::IN)).collect();
            let timeout = Timespec { tv_sec: 0, tv_nsec: left.subsec_nanos().into() };
            let _ = poll(&mut waiting, Some(&timeout));
            let ready: Vec<bool> = waiting.iter().map(|fd| !fd.revents().is_empty()).collect();
            for at in (0..ready.len()).filter(|at| ready[*at]) {
                let rank = self.rank(at);
                assert!(
                    self.peers[at].receive().expect("the collector lives") > 0,
                    "it closed before rank {rank} was told to end"
                );
                while let Some(frame) = self.peers[at].next_frame() {
                    match frame {
                        Frame::Query => {
                            self.asked += 1;
                            let state = self.state(rank, true);
                            self.peers[at].send([state, detail(rank, "its thread runs, 99 % busy")]);
                        }
                        Frame::Abort(5) => self.ended += 1,
                        _ => {}
                    }
                }
            }
            if self.ended == self.peers.len() {
                return;
            }
        }
    }
}

#[test]
#[ignore = "is started by the test of 4,096 ranks"]
fn plays_a_part_of_four_thousand_ranks() {
    let Some(played) = std::env::var(PLAYED).ok() else { return };
    let (port, first) = played.split_once(' ').expect("a port and a rank");
    let (port, first): (u16, u32) = (port.parse().expect("a port"), first.parse().expect("a rank"));
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let ranks = first..first + RANKS_PER_PLAYER;
    let mut peers: Vec<Peer> = ranks.map(|rank| greet(port, PeerKind::Rank(rank))).collect();
    if first == 0 {
        let activity = r#"{"name":"case 1 of 1, replicate 0","collective":"all_reduce"}"#;
        peers[0].send([Frame::Activity(1, activity.into())]);
    }
    let mut played = Played { peers, first, steps: 200, asked: 0, ended: 0 };
    let says = |word: &str| std::io::stdout().write_all(format!("{word}\n").as_bytes()).expect("its reader lives");
    says("connected");
    // It hangs once its parent closes its input, or is gone.
    let hang = Arc::new(AtomicBool::new(false));
    let is_closed = Arc::clone(&hang);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        is_closed.store(true, Ordering::Relaxed);
    });
    let limit = Instant::now() + Duration::from_secs(120);
    let mut was_asked = false;
    while played.ended < played.peers.len() {
        assert!(Instant::now() < limit, "{} were asked and {} told to end", played.asked, played.ended);
        played.beat(hang.load(Ordering::Relaxed));
        played.answer(Instant::now() + HEARTBEAT);
        if !was_asked && played.asked == played.peers.len() {
            was_asked = true;
            says("asked");
        }
    }
    says("ended");
}
