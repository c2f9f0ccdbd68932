//! Charts: plain data becomes SVG text. Knows nothing of records, fits or verdicts, and nothing of files.
//!
//! A chart is a struct of plain data ([`Plot`], [`Bars`], [`Histogram`], [`HeatMap`]) with one method, `draw()`, which
//! gives an [`Svg`]. [`Svg::inline`] goes into an HTML page that has [`STYLE`] in its style sheet; [`Svg::standalone`]
//! is a file of its own. Colours come from CSS variables that follow `prefers-color-scheme`, so that both are right in
//! light, in dark and on paper; there is no `style` attribute, no script and no reference to anything outside. The same
//! data gives the same bytes. Every text is escaped. Numbers that cannot be drawn (not finite, or not positive on a
//! logarithmic axis) are left out.

mod axis;
mod bars;
mod frame;
mod heat_map;
mod histogram;
mod plot;
mod point_shape;
mod position;
mod style;
mod summary;
#[cfg(test)]
mod tests;
mod write;

pub use axis::{Axis, Spacing, Unit};
pub use bars::{Bar, Bars};
pub use heat_map::{Cell, HeatMap};
pub use histogram::{Histogram, HistogramRow, Mark};
pub use plot::{Change, Line, LineKind, Plot, Point, Series, Shade};
pub use point_shape::PointShape;
pub use position::{Position, xy};
pub use style::STYLE;
pub use write::Svg;
