//! A size and the time of its call.

/// A point of a curve of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub bytes: f64,
    /// Seconds of a call.
    pub seconds: f64,
}

impl Point {
    /// A call of this many bytes that takes this many seconds.
    pub fn new(bytes: f64, seconds: f64) -> Point {
        Point { bytes, seconds }
    }

    /// Seconds of a size on the straight line through this point and another.
    pub fn line_through(self, other: Point, bytes: f64) -> f64 {
        self.seconds + (other.seconds - self.seconds) * (bytes - self.bytes) / (other.bytes - self.bytes)
    }
}
