//! Time against bytes for one collective and group size: interpolated inside the measured sizes, an envelope of lines outside.
//!
//! Other group sizes are in [`super::transfer`].

mod clean;
mod envelope;
mod interpolate;
mod point;

pub use clean::{Cleaned, OUTLIER, combined};
pub use envelope::{Envelope, Line};
pub use interpolate::{Interpolant, Shape};
pub use point::Point;

/// Factor beyond the largest measured size up to which a curve answers.
pub const MAX_EXTRAPOLATION: f64 = 64.0;

/// Position of a size relative to the measured ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Between the smallest and the largest.
    Inside,
    /// Below the smallest, or above the largest by at most [`MAX_EXTRAPOLATION`].
    Beyond,
    /// Above the largest by more than that.
    TooFar,
}

/// Time against bytes.
#[derive(Clone, Debug)]
pub struct Curve {
    inside: Interpolant,
    envelope: Envelope,
    first: Point,
    last: Point,
}

impl Curve {
    /// The curve through cleaned points (ascending, at least two), with this envelope outside.
    pub fn new(points: &[Point], envelope: Envelope) -> Option<Curve> {
        let (first, last) = (*points.first()?, *points.last()?);
        (points.len() >= 2).then(|| Curve { inside: Interpolant::new(points), envelope, first, last })
    }

    /// The curve of measured points, and which of them are outliers.
    pub fn of(points: &[Point]) -> Option<(Curve, Cleaned)> {
        let cleaned = Cleaned::of(points);
        let curve = Curve::new(&cleaned.points, Envelope::of(&cleaned.points)?)?;
        Some((curve, cleaned))
    }

    /// Position of a size.
    pub fn range(&self, bytes: f64) -> Range {
        match bytes {
            bytes if bytes >= self.first.bytes && bytes <= self.last.bytes => Range::Inside,
            bytes if bytes <= self.last.bytes * MAX_EXTRAPOLATION => Range::Beyond,
            _ => Range::TooFar,
        }
    }

    /// Seconds for a call of `bytes`, at any size. Outside the measured sizes the envelope, scaled to pass through the
    /// outermost measured point.
    pub fn seconds(&self, bytes: f64) -> f64 {
        let scaled = |end: Point| end.seconds * self.envelope.seconds(bytes) / self.envelope.seconds(end.bytes);
        if bytes < self.first.bytes {
            scaled(self.first)
        } else if bytes > self.last.bytes {
            scaled(self.last)
        } else {
            self.inside.seconds(bytes)
        }
    }

    /// Share of bandwidth in the time of a size; the rest is latency.
    pub fn bandwidth_share(&self, bytes: f64) -> f64 {
        self.envelope.bandwidth_share(bytes)
    }

    /// The lines.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}
