//! Places in the plane of two axes, or in the picture.

/// A place by its two coordinates: values of the axes, or units of the picture, in which y grows downwards.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Along the horizontal axis.
    pub x: f64,
    /// Along the vertical one.
    pub y: f64,
}

/// The place of these coordinates; in short, as the code of pictures is full of them.
pub fn xy(x: f64, y: f64) -> Position {
    Position { x, y }
}
