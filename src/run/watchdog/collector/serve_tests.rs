//! What a collector tells ranks that connect late.

use super::super::super::authentication::greet;
use super::super::super::wire::TOKEN_BYTES;
use super::super::table::Trigger;
use super::*;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;

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

/// Connects as rank 1, and returns what it is told first.
fn first_word_to_a_latecomer(serving: &mut Serving, port: u16) -> Frame {
    let rank = std::thread::spawn(move || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        let hello = Hello { peer_kind: PeerKind::Rank(1), pid: 0, process_start: 0 };
        let mut opener = greet(&mut stream, &hello, &TOKEN).expect("it answers").opener;
        let (mut heard, mut some) = (Vec::new(), [0; 64]);
        loop {
            if let Some((frame, _)) = opener.open(&heard).expect("it is sealed") {
                return frame;
            }
            let count = stream.read(&mut some).expect("a word");
            assert!(count > 0, "it says nothing");
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
    rank.join().expect("it is told something")
}

#[test]
fn a_rank_that_connects_after_the_others_were_asked_or_told_to_end_is_told_the_same() {
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
