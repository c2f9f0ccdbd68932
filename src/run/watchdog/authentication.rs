//! Keeps foreign messages out of a run's watchdog: every message carries a keyed hash, and the key never travels.
//!
//! Whoever accepts a connection sends a random challenge first. The greeting answers it with a hash under the run's secret
//! (HMAC-SHA-256, RFC 2104). Both ends derive a key for each direction from secret, challenge and greeting; every frame is
//! followed by the hash of its number and its bytes, so that none can be forged, repeated, left out or moved. Nothing is
//! encrypted: there is nothing secret in it.

use super::keyed_hash::{CHALLENGE_BYTES, Challenge, is_keyed_hash, keyed_hash};
use super::wire::{Frame, Hello, Malformed, Token};
use std::io::{Error, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Bytes of the hash behind each frame.
pub const TAG_BYTES: usize = 16;
/// How long the other end may take to send its challenge.
const CHALLENGE_TIMEOUT: Duration = Duration::from_secs(10);

/// Seals what this end of a connection sends.
#[derive(Clone, Debug)]
pub struct Sealer {
    key: [u8; 32],
    frames: u64,
}

/// Opens what this end of a connection receives.
#[derive(Clone, Debug)]
pub struct Opener {
    key: [u8; 32],
    frames: u64,
}

/// Both directions of a connection, seen from one end.
#[derive(Clone, Debug)]
pub struct Session {
    /// For what this end sends.
    pub sealer: Sealer,
    /// For what this end receives.
    pub opener: Opener,
}

/// The session of whoever sent this greeting.
pub fn session_of_peer(token: &Token, challenge: &Challenge, hello: &[u8]) -> Session {
    let key = |direction: &[u8]| keyed_hash(token, &[direction, challenge, hello]);
    Session { sealer: Sealer { key: key(b"up"), frames: 0 }, opener: Opener { key: key(b"down"), frames: 0 } }
}

/// The session of whoever accepted this greeting.
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
    /// A frame that is none, or not the next one of the other end.
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

/// Answers the challenge of a collector on a connection that blocks.
///
/// # Errors
/// Where no challenge arrives, or the connection fails.
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

/// A challenge that nobody can foresee.
///
/// # Errors
/// Where the system has no random bytes.
pub(super) fn challenge() -> Result<Challenge> {
    let mut challenge = [0; CHALLENGE_BYTES];
    std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut challenge))?;
    if challenge == [0; CHALLENGE_BYTES] {
        return Err(Error::other("no random bytes"));
    }
    Ok(challenge)
}

#[cfg(test)]
mod tests {
    use super::super::wire::PeerKind;
    use super::*;

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
        for at in (0..first).filter(|at| !matches!(at, 1 | 2)) {
            let mut changed = sealed[..first].to_vec();
            changed[at] ^= 1;
            assert!(!matches!(from_peer.clone().open(&changed), Ok(Some(_))), "byte {at}");
        }
        assert_eq!(from_peer.clone().open(&sealed[first..]), Err(Malformed), "the first was left out");
        let mut opened = from_peer.clone();
        opened.open(&sealed).unwrap().unwrap();
        assert_eq!(opened.open(&sealed[..first]), Err(Malformed), "repeated");
        assert_eq!(from_collector.open(&sealed), Err(Malformed), "sent back to where it came from");
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
