//! Places in the plane of two axes, or in the picture; and intervals along one of them.

/// A place by its two coordinates: values of the axes, or units of the picture, in which y grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical one.
    pub y: f64,
}

/// The ends of an interval along an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ends {
    /// The lower one.
    pub low: f64,
    /// The upper one.
    pub high: f64,
}

impl Position {
    /// A place of these coordinates.
    pub fn new(x: f64, y: f64) -> Position {
        Position { x, y }
    }
}

/// The same in short, for pictures, whose code is full of them.
pub(super) fn xy(x: f64, y: f64) -> Position {
    Position { x, y }
}
