//! The watchdog's wire protocol over TCP: a greeting, then short frames, each with a hash under the secret of the run. What they mean is up to
//! the collector and the thread of a rank.
//!
//! A frame is the length of the rest (2 bytes, little-endian) and the rest, as `postcard` writes it. An unknown peer costs at most one longest frame of
//! memory, and bad data ends the connection.

use commgauge_base::progress::Shown;
use commgauge_base::writing::eprintln;
use hmac::{Hmac, KeyInit, Mac};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize, Serializer};
use sha2::Sha256;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Set in the environment of a collector process, to the marker of the launch if there is one.
pub const COLLECTOR_VARIABLE: &str = "COMMGAUGE_COLLECTOR";

/// Marks every process of a launch in its environment, except for the collectors.
pub const LAUNCH_MARK: &str = "COMMGAUGE_LAUNCH";

/// Phrase printed by a rank that lost its collector; a reader of its output recognises it.
pub const LOST_COLLECTOR: &str = ": the watchdog of this host ";

/// Phrase printed by a rank that ends the launch because no other process will.
pub const OWN_DEADLINE: &str = " ends the launch by its own deadline";

pub const TOKEN_BYTES: usize = 32;
/// The secret that keeps out unknown peers and other runs.
pub type Token = [u8; TOKEN_BYTES];

/// Prints to standard error, which may be closed already.
pub(super) fn print_message(text: &str) {
    eprintln!("commgauge: {text}");
}

/// Version of the protocol; both ends belong to one launch, and mostly run one binary.
pub const VERSION: u16 = 9;

const HASH_BYTES: usize = 32;

pub const MAX_FRAME_BYTES: usize = LENGTH_BYTES + MAX_TEXT_BYTES + 64;

const LENGTH_BYTES: usize = 2;

pub const MAX_TEXT_BYTES: usize = 1024;

const MAGIC: [u8; 4] = *b"CGWD";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerKind {
    /// A rank, to the collector of its host.
    Rank(u32),
    /// A host's collector, to the first collector.
    Host(u32),
}

/// The first bytes on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub peer_kind: PeerKind,
    pub pid: u32,
    /// Start time of the process in clock ticks, so that a reused process id is not mistaken for it.
    pub process_start: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankState {
    pub rank: u32,
    /// Snapshot of its progress cell.
    pub shown: Shown,
    /// How long the snapshot has not changed.
    pub stuck_milliseconds: u32,
    pub deadline_milliseconds: u32,
    /// Time since its last heartbeat, according to its host's collector.
    pub silent_milliseconds: u32,
    /// It received a stop signal.
    pub signalled: bool,
    /// Its process is stopped according to the operating system.
    pub stopped: bool,
}

/// Messages after the greeting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// Up: state of a rank; its heartbeat.
    State(RankState),
    /// Up: a rank's connection closed without a farewell.
    Closed(u32),
    /// Up: a rank ends normally, with its exit code and, if that is not 0, the reason.
    Left(u32, i32, #[serde(serialize_with = "cut")] String),
    /// Up: description of an activity, as JSON.
    Activity(u64, #[serde(serialize_with = "cut")] String),
    /// Up: the answer to a query: whether the measuring thread sleeps, and a description of its activity.
    Detail(u32, bool, #[serde(serialize_with = "cut")] String),
    /// Up: the device of a rank.
    Device(u32, #[serde(serialize_with = "cut")] String),
    /// Up: the functions of a rank's stack, innermost first, or why they are unknown.
    Stack(u32, #[serde(serialize_with = "cut")] String),
    /// Up: the collector of the host with this number does not answer; the ranks agree on this.
    Unwatched(u32),
    /// Up: rank 0 requests permission to record the run as complete.
    Conclude,
    /// Up: rank 0 has stopped writing to the record, and has unlocked it.
    RecordGivenUp,
    /// Up: the record has moved to this path.
    RecordMoved(#[serde(serialize_with = "cut")] String),
    /// Down: the sender is alive.
    Beat,
    /// Down: rank 0 must release the record, since the run is being ended with this exit code.
    GiveUpRecord(i32),
    /// Down: all ranks must describe their activity.
    Query,
    /// Down: a host must read the stack of one of its ranks.
    ShowStack(u32),
    /// Down: all ranks must end with this exit code.
    Abort(i32),
    /// Down: permission granted; from now on missed deadlines do not abort the run.
    Concluded,
}

/// Malformed greeting or frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl Hello {
    /// The bytes, with the answer to a challenge.
    pub fn encode(&self, token: &Token, challenge: &Challenge) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        encode(&(VERSION, self), &mut bytes);
        let answer = keyed_hash(token, &[challenge, &bytes]);
        bytes.extend(answer);
        bytes
    }

    /// Reads a greeting from the start of `bytes`, and how many it takes; `None` while more may come.
    ///
    /// # Errors
    /// Not a greeting, another version, or another answer to the challenge.
    pub fn decode(
        bytes: &[u8],
        token: &Token,
        challenge: &Challenge,
    ) -> std::result::Result<Option<(Hello, usize)>, Malformed> {
        let seen = bytes.len().min(MAGIC.len());
        if bytes[..seen] != MAGIC[..seen] {
            return Err(Malformed);
        }
        let Some(((version, hello), taken)) = decode::<(u16, Hello)>(&bytes[seen..])? else { return Ok(None) };
        let (greeting, rest) = bytes.split_at(seen + taken);
        let Some(answer) = rest.get(..HASH_BYTES) else { return Ok(None) };
        if version != VERSION || !is_keyed_hash(token, &[challenge, greeting], answer) {
            return Err(Malformed);
        }
        Ok(Some((hello, greeting.len() + HASH_BYTES)))
    }
}

/// Appends a message after its length.
pub fn encode(message: &impl Serialize, bytes: &mut Vec<u8>) {
    let body = postcard::to_allocvec(message).expect("messages hold numbers and texts");
    bytes.extend((body.len() as u16).to_le_bytes());
    bytes.extend(body);
}

/// Reads a message from the start of `bytes`, and how many it takes; `None` while more may come.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> std::result::Result<Option<(T, usize)>, Malformed> {
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
    let length = usize::from(u16::from_le_bytes(*length));
    if LENGTH_BYTES + length > MAX_FRAME_BYTES {
        return Err(Malformed);
    }
    let Some(body) = rest.get(..length) else { return Ok(None) };
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(Some((message, LENGTH_BYTES + length))),
        _ => Err(Malformed),
    }
}

/// Long texts end at a character, so that no frame is too long.
fn cut<S: Serializer>(text: &str, to: S) -> std::result::Result<S::Ok, S::Error> {
    to.serialize_str(&text[..text.floor_char_boundary(MAX_TEXT_BYTES)])
}

// The keyed hash of the watchdog's messages: HMAC-SHA-256 (RFC 2104).

pub const CHALLENGE_BYTES: usize = 16;

/// The challenge that a greeting answers.
pub type Challenge = [u8; CHALLENGE_BYTES];

/// The hash of some bytes under the secret of a run.
pub(super) fn keyed_hash(token: &Token, parts: &[&[u8]]) -> [u8; 32] {
    hash(token, parts).finalize().into_bytes().into()
}

/// Whether a hash is that of the bytes, compared in constant time.
pub(super) fn is_keyed_hash(token: &Token, parts: &[&[u8]], found: &[u8]) -> bool {
    hash(token, parts).verify_truncated_left(found).is_ok()
}

fn hash(key: &[u8; 32], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC fills a key up to the block of its hash with zeros; a whole block needs no check of its length.
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let mut hash = <Hmac<Sha256> as KeyInit>::new(&block.into());
    parts.iter().for_each(|part| hash.update(part));
    hash
}

// Keeps foreign messages out of a run's watchdog: every message carries a keyed hash, and the key is never sent.
//
// The accepting end of a connection first sends a random challenge. The greeting answers it with a hash under the run's secret
// (HMAC-SHA-256, RFC 2104). Both ends derive a key for each direction from secret, challenge and greeting; every frame is followed by the
// hash of its number and its bytes, so that none can be forged, repeated, dropped or reordered. Nothing is encrypted: the content is not
// secret.

/// Bytes of the hash behind each frame.
pub const TAG_BYTES: usize = 16;

/// How long the other end may take to send its challenge.
const CHALLENGE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
pub struct Sealer {
    key: [u8; 32],
    frames: u64,
}

#[derive(Clone, Debug)]
pub struct Opener {
    key: [u8; 32],
    frames: u64,
}

/// Both directions of a connection, as seen from one end.
#[derive(Clone, Debug)]
pub struct Session {
    /// For sent data.
    pub sealer: Sealer,
    /// For received data.
    pub opener: Opener,
}

/// The session of the sender of this greeting.
pub fn session_of_peer(token: &Token, challenge: &Challenge, hello: &[u8]) -> Session {
    let key = |direction: &[u8]| keyed_hash(token, &[direction, challenge, hello]);
    Session { sealer: Sealer { key: key(b"up"), frames: 0 }, opener: Opener { key: key(b"down"), frames: 0 } }
}

/// The session of the collector that accepted this greeting.
pub fn session_of_collector(token: &Token, challenge: &Challenge, hello: &[u8]) -> Session {
    let peer = session_of_peer(token, challenge, hello);
    Session { sealer: Sealer { key: peer.opener.key, frames: 0 }, opener: Opener { key: peer.sealer.key, frames: 0 } }
}

impl Sealer {
    /// Appends a frame and its hash.
    pub fn seal(&mut self, frame: &Frame, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        encode(frame, bytes);
        let tag = keyed_hash(&self.key, &[&self.frames.to_le_bytes(), &bytes[start..]]);
        bytes.extend(&tag[..TAG_BYTES]);
        self.frames += 1;
    }
}

impl Opener {
    /// The first frame and how many bytes it takes with its hash; `None` while bytes are missing.
    ///
    /// # Errors
    /// If the data is not a frame, or not the next one of the other end.
    pub fn open(&mut self, bytes: &[u8]) -> std::result::Result<Option<(Frame, usize)>, Malformed> {
        let Some((frame, end)) = decode(bytes)? else { return Ok(None) };
        let Some(tag) = bytes.get(end..end + TAG_BYTES) else { return Ok(None) };
        if !is_keyed_hash(&self.key, &[&self.frames.to_le_bytes(), &bytes[..end]], tag) {
            return Err(Malformed);
        }
        self.frames += 1;
        Ok(Some((frame, end + TAG_BYTES)))
    }
}

/// Answers the challenge of a collector on a blocking connection.
///
/// # Errors
/// If no challenge arrives, or the connection fails.
pub fn greet(stream: &mut TcpStream, hello: &Hello, token: &Token) -> Result<Session> {
    let mut challenge = [0; CHALLENGE_BYTES];
    let before = stream.read_timeout()?;
    stream.set_read_timeout(Some(CHALLENGE_TIMEOUT))?;
    stream.read_exact(&mut challenge)?;
    stream.set_read_timeout(before)?;
    let bytes = hello.encode(token, &challenge);
    stream.write_all(&bytes)?;
    Ok(session_of_peer(token, &challenge, &bytes))
}

/// Random bytes of the system, for a challenge or a token.
///
/// # Errors
/// If the system has none.
pub(super) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes))?;
    if bytes == [0; N] { Err(Error::other("no random bytes")) } else { Ok(bytes) }
}

/// Limit of the send buffer. Downwards only short commands are sent; upwards, the states of a host's ranks.
const MAX_OUTGOING_BYTES: usize = 1 << 18;
const MAX_INCOMING_BYTES: usize = 1 << 14;

/// A connection that never blocks and never uses more memory than a few frames, whatever the peer does.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// Set once the greeting was sent, or accepted.
    session: Option<Session>,
}

impl Connection {
    pub(super) fn of(stream: TcpStream) -> Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, incoming: Vec::new(), outgoing: Vec::new(), session: None })
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) fn has_outgoing(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Receives available data, at most as much as fits into the buffer.
    ///
    /// # Errors
    /// If the other end is gone and no received data is left.
    pub(super) fn receive(&mut self) -> Result<()> {
        let mut bytes = [0; 4096];
        while self.incoming.len() + bytes.len() <= MAX_INCOMING_BYTES {
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.incoming.extend(&bytes[..count]),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }

    /// Received data that was not consumed yet.
    pub(super) fn incoming(&self) -> &[u8] {
        &self.incoming
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.incoming.drain(..bytes);
    }

    /// The next complete frame.
    pub(super) fn next_frame(&mut self) -> std::result::Result<Option<Frame>, Malformed> {
        let Some(session) = &mut self.session else { return Err(Malformed) };
        let Some((frame, taken)) = session.opener.open(&self.incoming)? else { return Ok(None) };
        self.take(taken);
        Ok(Some(frame))
    }

    /// Seals and opens all further frames with this session.
    pub(super) fn begin(&mut self, session: Session) {
        self.session = Some(session);
    }

    /// Queues a frame. False if there was no greeting yet, or the other end stopped receiving and the buffer is full.
    pub(super) fn queue(&mut self, frame: &Frame) -> bool {
        let Some(session) = &mut self.session else { return false };
        if self.outgoing.len() + MAX_FRAME_BYTES + TAG_BYTES > MAX_OUTGOING_BYTES {
            return false;
        }
        session.sealer.seal(frame, &mut self.outgoing);
        true
    }

    pub(super) fn queue_bytes(&mut self, bytes: &[u8]) {
        self.outgoing.extend(bytes);
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => return Err(Error::from(ErrorKind::WriteZero)),
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(cause) if cause.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => return Err(cause),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerKind, *};
    use proptest::prelude::*;

    const CHALLENGE: Challenge = [9; 16];

    fn frames() -> Vec<Frame> {
        let shown = Shown { activity: 9, step: 7, calls: u64::MAX, doing: 3, peer: Some(0), group: 5 };
        let state = RankState { rank: 16_383, shown, stuck_milliseconds: 1, signalled: true, ..RankState::default() };
        vec![
            Frame::State(state),
            Frame::State(RankState { stopped: true, ..RankState::default() }),
            Frame::Closed(2),
            Frame::Left(3, -1, "why".into()),
            Frame::Activity(4, "{}".into()),
            Frame::Detail(5, true, String::new()),
            Frame::Conclude,
            Frame::Device(7, "0".into()),
            Frame::Query,
            Frame::Abort(5),
            Frame::Concluded,
            Frame::RecordGivenUp,
            Frame::RecordMoved("a/b".into()),
            Frame::GiveUpRecord(6),
            Frame::Beat,
            Frame::Stack(9, "main".into()),
            Frame::Unwatched(2),
            Frame::ShowStack(9),
        ]
    }

    #[test]
    fn frames_read_back_whole_and_not_before() {
        for frame in frames() {
            let mut bytes = Vec::new();
            encode(&frame, &mut bytes);
            for end in 0..bytes.len() {
                assert_eq!(decode::<Frame>(&bytes[..end]), Ok(None), "{frame:?} cut to {end}");
            }
            bytes.push(77);
            assert_eq!(decode(&bytes), Ok(Some((frame, bytes.len() - 1))));
        }
    }

    #[test]
    fn a_text_is_cut_at_a_character_so_that_no_frame_is_too_long() {
        let mut bytes = Vec::new();
        encode(&Frame::Detail(1, false, "é".repeat(3000)), &mut bytes);
        assert!(bytes.len() <= MAX_FRAME_BYTES);
        let Ok(Some((Frame::Detail(1, false, text), _))) = decode(&bytes) else { panic!("cannot be parsed") };
        assert!(text.chars().all(|c| c == 'é') && text.len() == MAX_TEXT_BYTES);
    }

    #[test]
    fn only_peers_with_the_secret_of_this_run_are_accepted() {
        let (token, mut other) = ([7; TOKEN_BYTES], [7; TOKEN_BYTES]);
        other[31] = 8;
        for peer_kind in [PeerKind::Rank(3), PeerKind::Host(0)] {
            let hello = Hello { peer_kind, pid: 12, process_start: 34 };
            let bytes = hello.encode(&token, &CHALLENGE);
            assert_eq!(Hello::decode(&bytes, &token, &CHALLENGE), Ok(Some((hello, bytes.len()))));
            for end in 0..bytes.len() {
                assert_eq!(Hello::decode(&bytes[..end], &token, &CHALLENGE), Ok(None), "cut to {end}");
            }
            assert_eq!(Hello::decode(&bytes, &other, &CHALLENGE), Err(Malformed));
        }
        for stranger in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01", b"CGWX", b"SSH"] {
            assert_eq!(Hello::decode(stranger, &token, &CHALLENGE), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((frame, taken))) = decode::<Frame>(&bytes) {
                prop_assert!(taken <= bytes.len());
                let mut again = Vec::new();
                encode(&frame, &mut again);
                prop_assert!(again.len() <= MAX_FRAME_BYTES);
            }
            let _ = Hello::decode(&bytes, &[0; TOKEN_BYTES], &CHALLENGE);
        }
    }

    const TOKEN: Token = [7; 32];

    fn sessions(theirs: &Token) -> (Session, Session) {
        let challenge = [3; CHALLENGE_BYTES];
        let hello = Hello { peer_kind: PeerKind::Rank(1), pid: 2, process_start: 3 }.encode(theirs, &challenge);
        (session_of_peer(theirs, &challenge, &hello), session_of_collector(&TOKEN, &challenge, &hello))
    }

    #[test]
    fn frames_of_the_other_end_open_in_order_and_in_both_directions() {
        let (peer, collector) = sessions(&TOKEN);
        let Session { sealer: mut up, opener: mut from_collector } = peer;
        let Session { sealer: mut down, opener: mut from_peer } = collector;
        let mut bytes = Vec::new();
        up.seal(&Frame::Closed(4), &mut bytes);
        up.seal(&Frame::Conclude, &mut bytes);
        let first = from_peer.open(&bytes).unwrap().unwrap();
        assert_eq!(first.0, Frame::Closed(4));
        assert_eq!(from_peer.open(&bytes[first.1..]).unwrap().unwrap().0, Frame::Conclude);
        let mut bytes = Vec::new();
        down.seal(&Frame::Abort(5), &mut bytes);
        for end in 0..bytes.len() {
            assert_eq!(from_collector.open(&bytes[..end]), Ok(None), "cut to {end}");
        }
        assert_eq!(from_collector.open(&bytes).unwrap().unwrap().0, Frame::Abort(5));
    }

    #[test]
    fn no_frame_is_accepted_that_was_forged_changed_repeated_left_out_or_sent_back() {
        let mut sealed = Vec::new();
        let (peer, Session { opener: from_peer, .. }) = sessions(&TOKEN);
        let Session { sealer: mut up, opener: mut from_collector } = peer;
        up.seal(&Frame::Abort(5), &mut sealed);
        let first = sealed.len();
        up.seal(&Frame::Abort(5), &mut sealed);
        for at in (0..first).filter(|at| *at > 1) {
            let mut changed = sealed[..first].to_vec();
            changed[at] ^= 1;
            assert!(!matches!(from_peer.clone().open(&changed), Ok(Some(_))), "byte {at}");
        }
        assert_eq!(from_peer.clone().open(&sealed[first..]), Err(Malformed), "the first was dropped");
        let mut opened = from_peer.clone();
        opened.open(&sealed).unwrap().unwrap();
        assert_eq!(opened.open(&sealed[..first]), Err(Malformed), "repeated");
        assert_eq!(from_collector.open(&sealed), Err(Malformed), "sent back to its sender");
        let mut stranger = sessions(&[8; 32]).0.sealer;
        let mut forged = Vec::new();
        stranger.seal(&Frame::Abort(5), &mut forged);
        assert_eq!(from_peer.clone().open(&forged), Err(Malformed), "under another secret");
        let mut bare = Vec::new();
        encode(&Frame::Abort(5), &mut bare);
        bare.extend([0; TAG_BYTES]);
        assert_eq!(from_peer.clone().open(&bare), Err(Malformed));
    }

    #[test]
    fn the_secret_is_in_nothing_that_travels_and_a_greeting_answers_one_challenge_only() {
        let hello = Hello { peer_kind: PeerKind::Host(1), pid: 2, process_start: 3 };
        let (challenge, other): (Challenge, Challenge) = (random().unwrap(), random().unwrap());
        let bytes = hello.encode(&TOKEN, &challenge);
        assert!(!bytes.windows(8).any(|window| window == &TOKEN[..8]));
        assert_eq!(Hello::decode(&bytes, &TOKEN, &challenge), Ok(Some((hello, bytes.len()))));
        assert_eq!(Hello::decode(&bytes, &TOKEN, &other), Err(Malformed), "recorded elsewhere");
    }
}
