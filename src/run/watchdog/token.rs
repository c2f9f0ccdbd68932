//! The secret of a run.

/// Bytes of the secret that only processes of this run know.
pub const TOKEN_BYTES: usize = 32;
/// The secret that keeps out unknown peers and other runs.
pub type Token = [u8; TOKEN_BYTES];
