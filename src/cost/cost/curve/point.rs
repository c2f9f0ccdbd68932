//! A size and what a call of it takes.

/// A point of a curve of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// The size argument.
    pub bytes: f64,
    /// Seconds of a call.
    pub seconds: f64,
}

impl Point {
    /// A call of so many bytes that takes so many seconds.
    pub fn new(bytes: f64, seconds: f64) -> Point {
        Point { bytes, seconds }
    }

    /// Seconds of a size on the straight line through this point and another.
    pub fn line_through(self, other: Point, bytes: f64) -> f64 {
        self.seconds + (other.seconds - self.seconds) * (bytes - self.bytes) / (other.bytes - self.bytes)
    }
}
