//! The watchdog's wire protocol over TCP: a greeting, then short frames. Only encoding and decoding, without I/O; who may send
//! them is in `authentication`.
//!
//! A frame is its kind (1 byte), the length of the rest (2 bytes), the rest; numbers are little-endian. Whatever an
//! unknown peer sends costs at most the longest frame of memory and ends the connection.

use super::keyed_hash::{Challenge, is_keyed_hash, keyed_hash};
pub use super::token::{TOKEN_BYTES, Token};
use commgauge_base::progress::Shown;

/// Version of the protocol; both ends are of one launch, and mostly of one binary.
pub const VERSION: u16 = 8;
/// Bytes of a greeting.
pub const HELLO_BYTES: usize = 4 + 2 + HASH_BYTES + 1 + 4 + 4 + 8;
const HASH_BYTES: usize = 32;
/// Maximum length of a frame.
pub const MAX_FRAME_BYTES: usize = 3 + MAX_TEXT_BYTES + 16;
/// Longer texts are cut.
pub const MAX_TEXT_BYTES: usize = 1024;
const MAGIC: [u8; 4] = *b"CGWD";
/// Where the answer to the challenge stands in a greeting.
const HASH_AT: usize = 4 + 2;
const NONE: u32 = u32::MAX;

/// Kind of peer.
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
    /// The sending peer.
    pub peer_kind: PeerKind,
    /// Its process id.
    pub pid: u32,
    /// Start time of the process in clock ticks, so that a reused process id is not mistaken for it.
    pub process_start: u64,
}

/// Progress and state of a rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankState {
    /// World rank.
    pub rank: u32,
    /// Snapshot of its progress cell.
    pub shown: Shown,
    /// How long the snapshot has not changed.
    pub stuck_milliseconds: u32,
    /// Deadline of the current operation.
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
    /// Up: the functions that a rank is in, innermost first, or why they are not known.
    Stack(u32, String),
    /// Up: the collector of the host with this number does not answer, as the ranks agree.
    Unwatched(u32),
    /// Up: rank 0 requests permission to record the run as complete.
    Conclude,
    /// Up: rank 0 writes no more to the record, and has unlocked it.
    RecordGivenUp,
    /// Up: rank 0 writes the record under this path from now on.
    RecordMoved(String),
    /// Down: the sender is at work.
    Beat,
    /// Down: rank 0 is to give up the record, since the run is being ended with this exit code.
    GiveUpRecord(i32),
    /// Down: all ranks are to describe their activity.
    Query,
    /// Down: a host is to look at the stack of this rank of its own.
    ShowStack(u32),
    /// Down: all ranks are to end with this exit code.
    Abort(i32),
    /// Down: permission granted; from now on no lateness leads to an abort.
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

    /// Decodes a greeting; `None` while bytes are missing. What does not begin as one is rejected at its first wrong byte.
    pub fn decode(bytes: &[u8], token: &Token, challenge: &Challenge) -> Result<Option<Hello>, Malformed> {
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
    pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, Malformed> {
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

fn decode_state(rest: &mut Reader) -> Result<RankState, Malformed> {
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

/// The longest beginning of a text that fits into a frame.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    fn u32(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(std::mem::take(&mut self.0)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let Ok(Some((Frame::Detail(1, false, text), _))) = Frame::decode(&bytes) else { panic!("does not read") };
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
}
