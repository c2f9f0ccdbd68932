//! The hash of all files of a suite.

use sha2::{Digest, Sha256};

/// The length comes first, so that no two lists of files can give the same bytes.
pub(super) fn add_to_hash(hash: &mut Sha256, text: &str) {
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}
