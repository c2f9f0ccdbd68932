//! Time against bytes for one collective and group size: interpolated inside the measured sizes, a straight line outside.
//!
//! Other group sizes are in [`super::transfer`].

mod clean;
mod envelope;
mod interpolate;
mod outside;
mod point;

pub use clean::{Cleaned, OUTLIER, combined};
pub use envelope::{Envelope, Line};
pub use interpolate::{Interpolant, Shape};
pub(super) use outside::Outside;
pub use point::Point;

/// Factor beyond the largest measured size up to which a curve answers.
pub const MAX_EXTRAPOLATION: f64 = 64.0;

/// Position of a size relative to the measured ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// Between the smallest and the largest.
    Inside,
    /// Below the smallest.
    Below,
    /// Above the largest by at most [`MAX_EXTRAPOLATION`].
    Above,
    /// Above the largest by more than that.
    TooFar,
}

/// Time against bytes.
#[derive(Clone, Debug)]
pub struct Curve {
    inside: Interpolant,
    envelope: Envelope,
    outside: Outside,
}

impl Curve {
    /// The curve through cleaned points (ascending, at least two); the envelope says what is latency and what bandwidth.
    pub fn new(points: &[Point], envelope: Envelope) -> Option<Curve> {
        Some(Curve { inside: Interpolant::new(points), envelope, outside: Outside::of(points)? })
    }

    /// The curve of measured points, and which of them are outliers.
    pub fn of(points: &[Point]) -> Option<(Curve, Cleaned)> {
        let cleaned = Cleaned::of(points);
        let curve = Curve::new(&cleaned.points, Envelope::of(&cleaned.points)?)?;
        Some((curve, cleaned))
    }

    /// Position of a size.
    pub fn range(&self, bytes: f64) -> Range {
        let Outside { first, last, .. } = self.outside;
        match bytes {
            bytes if bytes < first.bytes => Range::Below,
            bytes if bytes <= last.bytes => Range::Inside,
            bytes if bytes <= last.bytes * MAX_EXTRAPOLATION => Range::Above,
            _ => Range::TooFar,
        }
    }

    /// Seconds for a call of `bytes`, at any size.
    pub fn seconds(&self, bytes: f64) -> f64 {
        match self.range(bytes) {
            Range::Inside => self.inside.seconds(bytes),
            Range::Below => self.outside.below(bytes),
            Range::Above | Range::TooFar => self.outside.above(bytes),
        }
    }

    /// How hard a size is to predict, in log time, by what the measured sizes say.
    pub fn difficulty(&self, bytes: f64) -> f64 {
        match self.range(bytes) {
            Range::Inside => self.inside.difficulty(bytes),
            Range::Below => self.outside.difficulty_below(bytes),
            Range::Above | Range::TooFar => self.outside.difficulty_above(bytes),
        }
    }

    /// The largest measured size.
    pub fn last_bytes(&self) -> f64 {
        self.outside.last.bytes
    }

    /// Seconds for a further byte of the largest calls.
    pub fn tail_slope(&self) -> f64 {
        self.outside.slope_above()
    }

    /// Share of the time of the largest measured call that would double with its size.
    pub fn tail_share(&self) -> f64 {
        self.outside.slope_above() * self.outside.last.bytes / self.outside.last.seconds
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
