//! The first element of a buffer that is not what it ought to be.

use commgauge_base::sample::WrongCall;

/// The first wrong element of a checked buffer, and how many were wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// World rank that owns the buffer.
    pub rank: u32,
    /// Index of the first wrong element in the receive buffer.
    pub element: u64,
    /// The expected value, as a number of the element type (hexadecimal bits if data is only moved).
    pub expected: String,
    /// The value found.
    pub got: String,
    /// Wrong elements in this buffer.
    pub count: u64,
    /// Which of the calls that were compared it was; none where only one was made.
    pub call: Option<WrongCall>,
}
