//! The keyed hash of the watchdog's messages: HMAC-SHA-256 (RFC 2104).

use super::token::Token;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a challenge.
pub const CHALLENGE_BYTES: usize = 16;
/// What a greeting answers.
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
