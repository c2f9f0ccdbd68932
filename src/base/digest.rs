//! SHA-256 as records show it. The caller decides what is hashed.

use sha2::{Digest, Sha256};

/// SHA-256 of some bytes, in lowercase hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    hexadecimal(Sha256::new_with_prefix(bytes))
}

/// The digest in lowercase hexadecimal.
pub fn hexadecimal(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_standard_has_the_published_digest() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256("abc"), expected);
        let mut hash = Sha256::new();
        hash.update("a");
        hash.update("bc");
        assert_eq!(hexadecimal(hash), expected);
    }
}
