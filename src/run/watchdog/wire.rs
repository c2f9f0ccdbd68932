//! The watchdog's wire protocol over TCP: a greeting, then short frames, each with a hash under the secret of the run. What they mean is up to
//! the collector and the thread of a rank.
//!
//! A frame is its kind (1 byte), the length of the rest (2 bytes), the rest; numbers are little-endian. An unknown peer costs at most one
//! longest frame of memory, and bad data ends the connection.

use commgauge_base::progress::Shown;
use commgauge_base::writing::eprintln;
use hmac::{Hmac, KeyInit, Mac};
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
pub const VERSION: u16 = 8;

pub const HELLO_BYTES: usize = 4 + 2 + HASH_BYTES + 1 + 4 + 4 + 8;

const HASH_BYTES: usize = 32;

pub const MAX_FRAME_BYTES: usize = 3 + MAX_TEXT_BYTES + 16;

pub const MAX_TEXT_BYTES: usize = 1024;

const MAGIC: [u8; 4] = *b"CGWD";

/// Offset of the answer to the challenge in a greeting.
const HASH_AT: usize = 4 + 2;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerKind {
    /// A rank, to the collector of its host.
    Rank(u32),
    /// A host's collector, to the first collector.
    Host(u32),
}

/// The first bytes on every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub peer_kind: PeerKind,
    pub pid: u32,
    /// Start time of the process in clock ticks, so that a reused process id is not mistaken for it.
    pub process_start: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Up: state of a rank; its heartbeat.
    State(RankState),
    /// Up: a rank's connection closed without a farewell.
    Closed(u32),
    /// Up: a rank ends normally, with its exit code and, if that is not 0, the reason.
    Left(u32, i32, String),
    /// Up: description of an activity, as JSON.
    Activity(u64, String),
    /// Up: the answer to a query: whether the measuring thread sleeps, and a description of its activity.
    Detail(u32, bool, String),
    /// Up: the device of a rank.
    Device(u32, String),
    /// Up: the functions of a rank's stack, innermost first, or why they are unknown.
    Stack(u32, String),
    /// Up: the collector of the host with this number does not answer; the ranks agree on this.
    Unwatched(u32),
    /// Up: rank 0 requests permission to record the run as complete.
    Conclude,
    /// Up: rank 0 has stopped writing to the record, and has unlocked it.
    RecordGivenUp,
    /// Up: the record has moved to this path.
    RecordMoved(String),
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
        let (kind, index) = match self.peer_kind {
            PeerKind::Rank(rank) => (0u8, rank),
            PeerKind::Host(host) => (1, host),
        };
        let mut bytes = Vec::with_capacity(HELLO_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; HASH_BYTES]);
        bytes.push(kind);
        bytes.extend(index.to_le_bytes());
        bytes.extend(self.pid.to_le_bytes());
        bytes.extend(self.process_start.to_le_bytes());
        let answer = keyed_hash(token, &[challenge, &bytes[..HASH_AT], &bytes[HASH_AT + HASH_BYTES..]]);
        bytes[HASH_AT..HASH_AT + HASH_BYTES].copy_from_slice(&answer);
        bytes
    }

    /// Decodes a greeting; `None` while bytes are missing. Other data is rejected at its first wrong byte.
    pub fn decode(bytes: &[u8], token: &Token, challenge: &Challenge) -> std::result::Result<Option<Hello>, Malformed> {
        let seen = bytes.len().min(MAGIC.len());
        if bytes[..seen] != MAGIC[..seen] {
            return Err(Malformed);
        }
        let Some(whole) = bytes.get(..HELLO_BYTES) else { return Ok(None) };
        let mut rest = Reader(&whole[MAGIC.len()..]);
        let version = u16::from_le_bytes(rest.take()?);
        let answer: [u8; HASH_BYTES] = rest.take()?;
        if version != VERSION || !is_keyed_hash(token, &[challenge, &whole[..HASH_AT], rest.0], &answer) {
            return Err(Malformed);
        }
        let [kind] = rest.take()?;
        let index = rest.u32()?;
        let peer_kind = match kind {
            0 => PeerKind::Rank(index),
            1 => PeerKind::Host(index),
            _ => return Err(Malformed),
        };
        Ok(Some(Hello { peer_kind, pid: rest.u32()?, process_start: rest.u64()? }))
    }
}

impl Frame {
    /// Appends the bytes.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend([self.kind(), 0, 0]);
        match self {
            Frame::State(state) => encode_state(state, bytes),
            Frame::Closed(number) | Frame::ShowStack(number) | Frame::Unwatched(number) => {
                bytes.extend(number.to_le_bytes());
            }
            Frame::Left(rank, code, text) => {
                bytes.extend(rank.to_le_bytes());
                bytes.extend(code.to_le_bytes());
                bytes.extend(cut(text).as_bytes());
            }
            Frame::Activity(number, text) => {
                bytes.extend(number.to_le_bytes());
                bytes.extend(cut(text).as_bytes());
            }
            Frame::Device(rank, text) | Frame::Stack(rank, text) => {
                bytes.extend(rank.to_le_bytes());
                bytes.extend(cut(text).as_bytes());
            }
            Frame::Detail(rank, sleeps, text) => {
                bytes.extend(rank.to_le_bytes());
                bytes.push(u8::from(*sleeps));
                bytes.extend(cut(text).as_bytes());
            }
            Frame::RecordMoved(text) => bytes.extend(cut(text).as_bytes()),
            Frame::Abort(code) | Frame::GiveUpRecord(code) => bytes.extend(code.to_le_bytes()),
            Frame::Conclude | Frame::Query | Frame::Concluded | Frame::RecordGivenUp | Frame::Beat => {}
        }
        let length = (bytes.len() - start - 3) as u16;
        bytes[start + 1..start + 3].copy_from_slice(&length.to_le_bytes());
    }

    fn kind(&self) -> u8 {
        match self {
            Frame::State(_) => 1,
            Frame::Closed(_) => 2,
            Frame::Left(..) => 3,
            Frame::Activity(..) => 4,
            Frame::Detail(..) => 5,
            Frame::Conclude => 6,
            Frame::Device(..) => 7,
            Frame::RecordGivenUp => 8,
            Frame::RecordMoved(_) => 9,
            Frame::Stack(..) => 10,
            Frame::Unwatched(_) => 11,
            Frame::Query => 16,
            Frame::Abort(_) => 17,
            Frame::Concluded => 18,
            Frame::GiveUpRecord(_) => 19,
            Frame::Beat => 20,
            Frame::ShowStack(_) => 21,
        }
    }

    /// Decodes the first frame and its length in bytes; `None` while bytes are missing.
    pub fn decode(bytes: &[u8]) -> std::result::Result<Option<(Frame, usize)>, Malformed> {
        let [kind, low, high, ..] = bytes else { return Ok(None) };
        let end = 3 + usize::from(u16::from_le_bytes([*low, *high]));
        if end > MAX_FRAME_BYTES {
            return Err(Malformed);
        }
        let Some(payload) = bytes.get(3..end) else { return Ok(None) };
        let mut rest = Reader(payload);
        let frame = match kind {
            1 => Frame::State(decode_state(&mut rest)?),
            2 => Frame::Closed(rest.u32()?),
            3 => Frame::Left(rest.u32()?, i32::from_le_bytes(rest.take()?), rest.text()),
            4 => Frame::Activity(rest.u64()?, rest.text()),
            5 => Frame::Detail(rest.u32()?, rest.take()? != [0], rest.text()),
            6 => Frame::Conclude,
            7 => Frame::Device(rest.u32()?, rest.text()),
            8 => Frame::RecordGivenUp,
            9 => Frame::RecordMoved(rest.text()),
            10 => Frame::Stack(rest.u32()?, rest.text()),
            11 => Frame::Unwatched(rest.u32()?),
            16 => Frame::Query,
            17 => Frame::Abort(i32::from_le_bytes(rest.take()?)),
            18 => Frame::Concluded,
            19 => Frame::GiveUpRecord(i32::from_le_bytes(rest.take()?)),
            20 => Frame::Beat,
            21 => Frame::ShowStack(rest.u32()?),
            _ => return Err(Malformed),
        };
        if rest.0.is_empty() { Ok(Some((frame, end))) } else { Err(Malformed) }
    }
}

fn encode_state(state: &RankState, bytes: &mut Vec<u8>) {
    let shown = &state.shown;
    bytes.extend(state.rank.to_le_bytes());
    for number in [shown.activity, shown.step, shown.calls] {
        bytes.extend(number.to_le_bytes());
    }
    let (stuck, deadline) = (state.stuck_milliseconds, state.deadline_milliseconds);
    for number in [shown.doing, shown.peer.unwrap_or(NONE), shown.group, stuck, deadline, state.silent_milliseconds] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.push(u8::from(state.signalled) | u8::from(state.stopped) << 1);
}

fn decode_state(rest: &mut Reader) -> std::result::Result<RankState, Malformed> {
    let rank = rest.u32()?;
    let [activity, step, calls] = [rest.u64()?, rest.u64()?, rest.u64()?];
    let [doing, peer, group] = [rest.u32()?, rest.u32()?, rest.u32()?];
    let [stuck_milliseconds, deadline_milliseconds, silent_milliseconds] = [rest.u32()?, rest.u32()?, rest.u32()?];
    let [flags] = rest.take()?;
    Ok(RankState {
        rank,
        shown: Shown { activity, step, calls, doing, peer: Some(peer).filter(|peer| *peer != NONE), group },
        stuck_milliseconds,
        deadline_milliseconds,
        silent_milliseconds,
        signalled: flags & 1 != 0,
        stopped: flags & 2 != 0,
    })
}

/// The longest prefix of a text that fits into a frame.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> std::result::Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> std::result::Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> std::result::Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(std::mem::take(&mut self.0)).into_owned()
    }
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
        frame.encode(bytes);
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
        let Some((frame, end)) = Frame::decode(bytes)? else { return Ok(None) };
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

/// An unpredictable challenge.
///
/// # Errors
/// If the system has no random bytes.
pub(super) fn challenge() -> Result<Challenge> {
    let mut challenge = [0; CHALLENGE_BYTES];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut challenge))?;
    if challenge == [0; CHALLENGE_BYTES] {
        return Err(Error::other("no random bytes"));
    }
    Ok(challenge)
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
            frame.encode(&mut bytes);
            for end in 0..bytes.len() {
                assert_eq!(Frame::decode(&bytes[..end]), Ok(None), "{frame:?} cut to {end}");
            }
            bytes.push(77);
            assert_eq!(Frame::decode(&bytes), Ok(Some((frame, bytes.len() - 1))));
        }
    }

    #[test]
    fn a_text_is_cut_at_a_character_so_that_no_frame_is_too_long() {
        let mut bytes = Vec::new();
        Frame::Detail(1, false, "é".repeat(3000)).encode(&mut bytes);
        assert!(bytes.len() <= MAX_FRAME_BYTES);
        let Ok(Some((Frame::Detail(1, false, text), _))) = Frame::decode(&bytes) else { panic!("cannot be parsed") };
        assert!(text.chars().all(|c| c == 'é') && text.len() == MAX_TEXT_BYTES);
    }

    #[test]
    fn only_peers_with_the_secret_of_this_run_are_accepted() {
        let (token, mut other) = ([7; TOKEN_BYTES], [7; TOKEN_BYTES]);
        other[31] = 8;
        for peer_kind in [PeerKind::Rank(3), PeerKind::Host(0)] {
            let hello = Hello { peer_kind, pid: 12, process_start: 34 };
            let bytes = hello.encode(&token, &CHALLENGE);
            assert_eq!(bytes.len(), HELLO_BYTES);
            assert_eq!(Hello::decode(&bytes, &token, &CHALLENGE), Ok(Some(hello)));
            assert_eq!(Hello::decode(&bytes[..HELLO_BYTES - 1], &token, &CHALLENGE), Ok(None));
            assert_eq!(Hello::decode(&bytes, &other, &CHALLENGE), Err(Malformed));
        }
        for stranger in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01", b"CGWX", b"SSH"] {
            assert_eq!(Hello::decode(stranger, &token, &CHALLENGE), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some((frame, taken))) = Frame::decode(&bytes) {
                prop_assert!(taken <= bytes.len());
                let mut again = Vec::new();
                frame.encode(&mut again);
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
        Frame::Abort(5).encode(&mut bare);
        bare.extend([0; TAG_BYTES]);
        assert_eq!(from_peer.clone().open(&bare), Err(Malformed));
    }

    #[test]
    fn the_secret_is_in_nothing_that_travels_and_a_greeting_answers_one_challenge_only() {
        let hello = Hello { peer_kind: PeerKind::Host(1), pid: 2, process_start: 3 };
        let (challenge, other) = (challenge().unwrap(), challenge().unwrap());
        let bytes = hello.encode(&TOKEN, &challenge);
        assert!(!bytes.windows(8).any(|window| window == &TOKEN[..8]));
        assert_eq!(Hello::decode(&bytes, &TOKEN, &challenge), Ok(Some(hello)));
        assert_eq!(Hello::decode(&bytes, &TOKEN, &other), Err(Malformed), "recorded elsewhere");
    }
}
