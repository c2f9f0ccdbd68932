//! The frame of a chart: title, legend, axes with grid.

use super::axis::Scale;
use super::position::xy;
use super::write::{Anchor, Canvas, Path, cut, text_width};
use super::{Axis, PointShape};

/// Height of a line of small type.
pub(super) const LINE: f64 = 15.0;

/// How an entry of the legend is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Key {
    Points(usize, PointShape),
    Curve(String),
    Area(String),
}

/// One entry of a legend.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub key: Key,
    pub name: String,
}

/// Draws the title over the whole width and returns its height.
pub(super) fn title(canvas: &mut Canvas, text: &str, width: f64) -> f64 {
    if text.is_empty() {
        return 2.0;
    }
    // Of bold letters, which are wider where a system has none of the fonts asked for.
    let most = (width / 8.4) as usize;
    canvas.text(0.0, 13.0, "cg-title", Anchor::Start, &cut(text, most));
    22.0
}

/// Draws the legend below `top`, in as many lines as it needs, and returns its height.
pub(super) fn legend(canvas: &mut Canvas, entries: &[Entry], top: f64, width: f64) -> f64 {
    let (mut x, mut y) = (0.0, top);
    for Entry { key, name } in entries {
        let name = cut(name, ((width - 30.0) / 6.9) as usize);
        let needed = 26.0 + text_width(&name) + 8.0;
        if x > 0.0 && x + needed - 8.0 > width {
            (x, y) = (0.0, y + LINE);
        }
        let middle = y + 6.0;
        match key {
            Key::Points(color, shape) => shape.draw(canvas, *color, &[xy(x + 9.0, middle)]),
            Key::Curve(class) => canvas.path(class, &Path::polyline([xy(x, middle), xy(x + 18.0, middle)])),
            Key::Area(class) => canvas.rectangle(class, x + 2.0, middle - 5.0, 14.0, 10.0),
        }
        canvas.text(x + 23.0, y + 10.0, "", Anchor::Start, &name);
        x += needed;
    }
    if entries.is_empty() { 0.0 } else { y + LINE + 3.0 - top }
}

/// The plot area inside the axes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

/// Grid, ticks and title of the vertical axis. The title is above the axis and not rotated.
pub(super) fn vertical(canvas: &mut Canvas, axis: &Axis, scale: &Scale, room: Room) {
    let mut grid = Path::default();
    for (value, text) in &scale.ticks {
        let y = scale.place(*value);
        grid.line(xy(room.left, y), xy(room.right, y));
        canvas.text(room.left - 6.0, y + 3.8, "", Anchor::End, text);
    }
    canvas.path("cg-grid", &grid);
    canvas.text(0.0, room.top - 7.0, "", Anchor::Start, &titled(axis, scale));
}

/// Ticks and title of the horizontal axis.
pub(super) fn horizontal(canvas: &mut Canvas, axis: &Axis, scale: &Scale, room: Room) {
    let mut ticks = Path::default();
    ticks.line(xy(room.left, room.bottom), xy(room.right, room.bottom));
    let mut free_from = f64::NEG_INFINITY;
    for (value, text) in &scale.ticks {
        let x = scale.place(*value);
        ticks.line(xy(x, room.bottom), xy(x, room.bottom + 4.0));
        let half = text_width(text) / 2.0;
        let middle = x.min(room.right + 8.0 - half).max(half.min(x));
        if middle - half >= free_from {
            canvas.text(middle, room.bottom + 16.0, "", Anchor::Middle, text);
            free_from = middle + half + 4.0;
        }
    }
    canvas.path("cg-axis", &ticks);
    let title = titled(axis, scale);
    if !title.is_empty() {
        canvas.text((room.left + room.right) / 2.0, room.bottom + 31.0, "", Anchor::Middle, &title);
    }
}

/// Height of the part below the plot area.
pub(super) fn foot(axis: &Axis) -> f64 {
    if axis.title.is_empty() { 22.0 } else { 37.0 }
}

/// Width of the labels of the vertical ticks.
pub(super) fn gutter(scale: &Scale) -> f64 {
    scale.ticks.iter().map(|(_, text)| text_width(text)).fold(14.0, f64::max) + 8.0
}

fn titled(axis: &Axis, scale: &Scale) -> String {
    match scale.unit_shown {
        Some(unit) if !unit.is_empty() && !axis.title.is_empty() => format!("{}, {unit}", axis.title),
        Some(unit) if axis.title.is_empty() => unit.to_owned(),
        _ => axis.title.clone(),
    }
}
