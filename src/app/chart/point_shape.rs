//! How the points of a plot are drawn: by series, and by whether they can be trusted.

use super::position::{Position, xy};
use super::write::{Canvas, Path};

/// The shapes of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointShape {
    /// Filled, in the shape of the series.
    Filled,
    /// A cross.
    Crossed,
}

impl PointShape {
    /// Draws points of a series at these places.
    pub(super) fn draw(self, canvas: &mut Canvas, color: usize, positions: &[Position]) {
        let mut path = Path::default();
        for center in positions.iter().copied() {
            let Position { x, y } = center;
            match (self, color) {
                (PointShape::Crossed, _) => {
                    path.line(xy(x - 3.5, y - 3.5), xy(x + 3.5, y + 3.5));
                    path.line(xy(x - 3.5, y + 3.5), xy(x + 3.5, y - 3.5));
                }
                (PointShape::Filled, 1) => path.rectangle(x - 2.9, y - 2.9, 5.8, 5.8),
                (PointShape::Filled, 2) => polygon(&mut path, center, &[xy(0.0, -4.0), xy(3.8, 3.0), xy(-3.8, 3.0)]),
                (PointShape::Filled, 3) => {
                    polygon(&mut path, center, &[xy(0.0, -4.2), xy(4.2, 0.0), xy(0.0, 4.2), xy(-4.2, 0.0)])
                }
                (PointShape::Filled, 4) => polygon(&mut path, center, &[xy(0.0, 4.0), xy(3.8, -3.0), xy(-3.8, -3.0)]),
                (PointShape::Filled, _) => path.circle(x, y, 3.2),
            }
        }
        let class = match (self, color) {
            (PointShape::Crossed, _) => format!("cg-cross cg-s{color}"),
            (PointShape::Filled, 5) => format!("cg-hollow cg-s{color}"),
            (PointShape::Filled, _) => format!("cg-f{color}"),
        };
        canvas.path(&class, &path);
    }
}

/// A polygon whose corners are seen from its centre.
fn polygon(path: &mut Path, center: Position, corners: &[Position]) {
    path.polygon(corners.iter().map(|corner| xy(center.x + corner.x, center.y + corner.y)));
}
