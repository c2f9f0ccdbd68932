//! A collector with 16,384 ranks on 2,048 hosts, over real connections: its memory stays small, and it names the one
//! that hangs. One process simulates the other hosts, and reports how long their ranks have made no progress, so that
//! the clock of a busy machine does not count. Foreign connections to its port have no effect.

use crate::{common, played};

use commgauge::watchdog::collector::{Config, FirstAnswer};
use commgauge::watchdog::wire;
use commgauge::watchdog::wire::{Frame, Hello, PeerKind};
use common::{signal, wait_until};
use played::{Collector, DEADLINE, PROGRAM, Peer, RANKS_PER_HOST, TOKEN, connect, detail, greet, read_until, state};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

const HOSTS: u32 = 2_048;
const HUNG: u32 = 9_999;

/// The ranks of the first host have a connection each.
fn streams_of_ranks(answer: &FirstAnswer) -> Vec<(Peer, Vec<u32>)> {
    (0..RANKS_PER_HOST).map(|rank| (greet(answer.port, PeerKind::Rank(rank)), vec![rank])).collect()
}

/// Those of the others one for each host; none is greeted yet.
fn connections_of_all(answer: &FirstAnswer) -> Vec<(TcpStream, PeerKind, Vec<u32>)> {
    let ranks = (0..RANKS_PER_HOST).map(|rank| (connect(answer.port), PeerKind::Rank(rank), vec![rank]));
    let others = (1..HOSTS).map(|host| {
        let ranks = (host * RANKS_PER_HOST..(host + 1) * RANKS_PER_HOST).collect();
        (connect(answer.hosts_port), PeerKind::Host(host), ranks)
    });
    ranks.chain(others).collect()
}

/// Sends a message of every rank over its connection, in one piece.
fn send<const N: usize>(streams: &mut [(Peer, Vec<u32>)], frames: impl Fn(u32) -> [Frame; N]) {
    for (peer, ranks) in streams {
        peer.send(ranks.iter().flat_map(|rank| frames(*rank)));
    }
}

/// Sends every rank's state: `steps` for the one that hangs, one more for the others once they are blocked.
fn send_states(streams: &mut [(Peer, Vec<u32>)], steps: u64, stuck: Duration) {
    let waits = |rank| u64::from(!stuck.is_zero() && rank != HUNG);
    send(streams, |rank| [state(rank, steps + waits(rank), stuck, DEADLINE)]);
}

#[test]
fn sixteen_thousand_ranks_fit_into_200_megabytes_and_the_hung_one_is_named() {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|most| most < u64::from(2 * HOSTS)) {
        common::skipped("watchdog of 2,048 hosts", "this system allows too few open files");
        return;
    }
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let _alone = common::alone();
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start(HOSTS, folder.path().join("run.jsonl"));
    collector.begin();
    // All hosts connect at one time, at which no connection is accepted: the backlog must be large enough.
    signal(collector.child.id(), "STOP");
    let connections = connections_of_all(&collector.answer);
    signal(collector.child.id(), "CONT");
    let mut streams: Vec<(Peer, Vec<u32>)> =
        connections.into_iter().map(|(stream, kind, ranks)| (Peer::greet(stream, kind), ranks)).collect();
    drop(collector.child.stdin.take());
    let activity = r#"{"name":"case 1 of 1, replicate 0","collective":"all_reduce"}"#;
    streams[0].0.send([Frame::Activity(1, activity.into())]);
    for steps in [200, 202, 204, 206, 208] {
        send_states(&mut streams, steps, Duration::ZERO);
    }
    send_states(&mut streams, 210, Duration::from_secs(1));
    send_states(&mut streams, 210, DEADLINE + Duration::from_secs(1));
    let since = Instant::now();
    read_until(&mut streams[0].0, &Frame::Query);
    send(&mut streams, |rank| [detail(rank, "its thread runs, 99 % busy")]);
    let report = folder.path().join("run.hang.txt");
    wait_until(60, "a report", || report.exists());
    let (late, peak) = (since.elapsed().as_secs_f64(), collector.peak_bytes());
    let said = format!("hosts_watchdog: report {late:.2} s after the deadline, peak {} MB\n", peak / 1_000_000);
    let _ = std::io::stderr().write_all(said.as_bytes());
    assert!(peak < 200_000_000, "{peak} bytes");
    let text = std::fs::read_to_string(&report).unwrap();
    let begins = text.starts_with("no progress within 60.0 s: rank 9999 on node-1249 never entered all_reduce");
    assert!(begins && text.contains("its thread runs, 99 % busy"), "{}", &text[..300]);
    assert!(text.lines().count() > 16_384);
    // All are told to end, and then the collector exits.
    read_until(&mut streams[2_000].0, &Frame::Abort(5));
    drop(streams);
    assert!(collector.child.wait().unwrap().success());
}

#[test]
fn ranks_that_were_silent_too_long_but_continue_are_not_ended() {
    const SHORT: Duration = Duration::from_millis(300);
    let _alone = common::alone();
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start(1, folder.path().join("run.jsonl"));
    collector.begin();
    let mut ranks = streams_of_ranks(&collector.answer);
    drop(collector.child.stdin.take());
    let says = |ranks: &mut [_], steps: u64, stuck: Duration, deadline: Duration, does: &str| {
        send(ranks, |rank| [state(rank, steps, stuck, deadline), detail(rank, does)]);
    };
    says(&mut ranks, 200, Duration::ZERO, SHORT, "no one has asked");
    // Silent for longer than the limit, so that they are queried; then they make progress again.
    read_until(&mut ranks[0].0, &Frame::Query);
    says(&mut ranks, 202, Duration::ZERO, DEADLINE, "it was away");
    let mut said = String::new();
    let mut errors = BufReader::new(collector.child.stderr.take().expect("piped"));
    errors.read_line(&mut said).unwrap();
    let wanted = "commgauge: some ranks missed heartbeats for 0.30 s but recovered\n";
    assert_eq!(said, wanted);
    let report = folder.path().join("run.hang.txt");
    assert!(!report.exists());
    // The watchdog continues as well, and a reply to the earlier query does not count for the next.
    says(&mut ranks, 202, 2 * DEADLINE, DEADLINE, "too early");
    read_until(&mut ranks[0].0, &Frame::Query);
    says(&mut ranks, 202, 2 * DEADLINE, DEADLINE, "it is idle");
    read_until(&mut ranks[0].0, &Frame::Abort(5));
    let text = std::fs::read_to_string(&report).unwrap();
    assert!(text.contains("it is idle") && !text.contains("it was away"), "{text}");
    drop(ranks);
    assert!(collector.child.wait().unwrap().success());
}

#[test]
fn a_host_whose_watchdog_alone_is_silent_ends_no_run_that_makes_progress() {
    let folder = tempfile::tempdir().unwrap();
    let limit = Duration::from_secs(3);
    let config = Collector::config(2, folder.path().join("run.jsonl"));
    let config = Config { host_deadline_milliseconds: limit.as_millis() as u64, ..config };
    let mut collector = Collector::of_config(config, Command::new(PROGRAM));
    collector.begin();
    let mut ranks = streams_of_ranks(&collector.answer);
    let mut other = greet(collector.answer.hosts_port, PeerKind::Host(1));
    drop(collector.child.stdin.take());
    other.send((RANKS_PER_HOST..2 * RANKS_PER_HOST).map(|rank| state(rank, 200, Duration::ZERO, limit)));
    // Longer than the host and each of its ranks may be silent.
    let begun = Instant::now();
    while begun.elapsed() < 3 * limit {
        let steps = 200 + begun.elapsed().as_millis() as u64;
        send(&mut ranks, |rank| [state(rank, steps, Duration::ZERO, limit)]);
        std::thread::sleep(Duration::from_millis(200));
    }
    let report = folder.path().join("run.hang.txt");
    assert!(!report.exists());
    // Then they wait for it.
    send(&mut ranks, |rank| [state(rank, 1 << 20, 2 * limit, limit), detail(rank, "it waits")]);
    read_until(&mut ranks[0].0, &Frame::Query);
    send(&mut ranks, |rank| [state(rank, 1 << 20, 2 * limit, limit), detail(rank, "it waits")]);
    read_until(&mut ranks[0].0, &Frame::Abort(5));
    let text = std::fs::read_to_string(&report).unwrap();
    assert!(text.contains("node-1 cannot be reached (the host or its link)"), "{text}");
    drop((ranks, other));
    assert!(collector.child.wait().unwrap().success());
}

#[test]
fn foreign_connections_are_closed_and_a_rank_still_connects() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Collector::start(1, folder.path().join("run.jsonl"));
    collector.begin();
    let port = collector.answer.port;
    let before = collector.peak_bytes();
    let mut strangers: Vec<TcpStream> = Vec::new();
    for round in 0..300u32 {
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
        let word = [&b"GET / HTTP/1.1\r\n\r\n"[..], b"CGWD", b"", &[0xff; 4096]][round as usize % 4];
        let _ = stranger.write_all(word);
        strangers.push(stranger);
    }
    let hello = Hello { peer_kind: PeerKind::Rank(0), pid: 0, process_start: 0 };
    let closes = |mut stream: TcpStream, what: &str| {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{what}: {rest:?}");
    };
    let mut wrong = connect(port);
    wire::greet(&mut wrong, &hello, &[8; 32]).expect("a challenge");
    closes(wrong, "a wrong secret opens nothing");
    // What another connection said to its challenge is no answer to this one.
    let mut repeated = connect(port);
    let mut challenge = [0; 16];
    repeated.read_exact(&mut challenge).expect("a challenge");
    repeated.write_all(&hello.encode(&TOKEN, &[1; 16])).unwrap();
    closes(repeated, "a greeting that was heard elsewhere");
    let mut rank = greet(port, PeerKind::Rank(3));
    // A rank speaks of itself alone: the connection ends, and rank 5 has not left.
    let mut liar = greet(port, PeerKind::Rank(4));
    liar.send([Frame::Left(5, 0, String::new())]);
    closes(liar.stream, "a rank that speaks of another");
    drop(collector.child.stdin.take());
    // A frame that is not sealed ends the connection of whoever sends it, as if it had died.
    let mut bare = Vec::new();
    wire::encode(&Frame::Left(3, 0, String::new()), &mut bare);
    rank.stream.write_all(&bare).unwrap();
    rank.stream.write_all(&[0; 64]).unwrap();
    rank.stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut rest = Vec::new();
    let _ = rank.stream.read_to_end(&mut rest);
    drop(strangers);
    let after = collector.peak_bytes();
    assert!(collector.child.wait().unwrap().success());
    assert!(after - before < 8_000_000, "{before} -> {after}");
}
