//! The picture of a layout: nodes as boxes with their ranks, and under each rank the number of its group on each axis.
//!
//! For many nodes, the middle is omitted with a note.

use super::Overview;
use std::fmt::Write;
use std::ops::Range;

/// Minimum number of boxes before any are omitted, on several lines if necessary.
const MAX_BOXES: usize = 4;
/// Columns between boxes.
const GAP: usize = 2;
/// Group of a rank that is in no group of the axis.
const NONE: u32 = u32::MAX;

/// The picture, at most `width` columns wide unless a box of one rank is wider.
pub(super) fn picture(overview: &Overview, width: usize) -> String {
    let rows = rows(overview);
    let canvas = Canvas::new(overview, &rows, width);
    let mut text = String::new();
    let boxes = canvas.boxes();
    if boxes.len() <= MAX_BOXES.max(canvas.boxes_per_line) {
        canvas.draw(&boxes, &mut text);
    } else {
        let first = if canvas.boxes_per_line == 1 { 2 } else { canvas.boxes_per_line };
        canvas.draw(&boxes[..first], &mut text);
        let (hidden, last) = boxes[first..].split_at(boxes.len() - first - 1);
        let (from, to) = (hidden[0].start, last[0].start - 1);
        let (first_node, last_node) = (from / overview.ranks_per_node, to / overview.ranks_per_node);
        let nodes = match (first_node, last_node) {
            (first, last) if first == last => format!("of node {first}"),
            (first, last) => format!("on nodes {first} to {last}"),
        };
        let hidden = format!("... ranks {from} to {to} {nodes} are not drawn ...");
        let indent = (canvas.label + 1).min(width.saturating_sub(hidden.len()));
        text += &format!("{:indent$}{hidden}\n", "");
        canvas.draw(last, &mut text);
    }
    text
}

/// A line of the picture: axes with the same groups, and the group of each rank.
struct Row {
    name: String,
    group_of_rank: Vec<u32>,
}

/// The axes whose groups have more than one rank; axes with the same groups share a row.
fn rows(overview: &Overview) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for view in overview.axes.iter().filter(|view| view.group_size > 1) {
        let mut group_of_rank = vec![NONE; overview.host_of_rank.len()];
        for (index, group) in overview.layout.groups(view.axis).groups.iter().enumerate() {
            for rank in group {
                group_of_rank[*rank as usize] = index as u32;
            }
        }
        match rows.iter_mut().find(|row| row.group_of_rank == group_of_rank) {
            Some(row) => row.name += &format!(", {}", view.axis),
            None => rows.push(Row { name: view.axis.name().to_owned(), group_of_rank }),
        }
    }
    rows
}

/// Dimensions of the picture.
struct Canvas<'a> {
    overview: &'a Overview,
    rows: &'a [Row],
    /// Columns of the row labels.
    label: usize,
    /// Columns of one rank, including a leading space.
    cell: usize,
    ranks_per_box: u32,
    /// Columns of all boxes of a line.
    box_columns: usize,
    boxes_per_line: usize,
}

impl Canvas<'_> {
    fn new<'a>(overview: &'a Overview, rows: &'a [Row], width: usize) -> Canvas<'a> {
        let label = rows.iter().map(|row| row.name.len()).chain(["rank".len()]).max().unwrap_or(0);
        let cell = 1 + (overview.world() - 1).to_string().len();
        let ranks_per_node = overview.ranks_per_node.min(overview.world());
        let box_columns = width.saturating_sub(label + 1);
        let most = (box_columns.saturating_sub(3) / cell).max(1) as u32;
        let ranks_per_box = match most {
            most if most >= ranks_per_node => ranks_per_node,
            // Nodes are split at a multiple of 8, for readability.
            0..8 => most,
            _ => most / 8 * 8,
        };
        let mut canvas = Canvas { overview, rows, label, cell, ranks_per_box, box_columns, boxes_per_line: 1 };
        let widest = canvas.boxes().iter().map(|ranks| canvas.inner(ranks) + 2).max().unwrap_or(0);
        canvas.boxes_per_line = ((box_columns + GAP) / (widest + GAP)).max(1);
        canvas
    }

    /// The ranks of each box: a node, or a part of a node that is too wide.
    fn boxes(&self) -> Vec<Range<u32>> {
        let (world, per_node) = (self.overview.world(), self.overview.ranks_per_node);
        let nodes = (0..self.overview.nodes())
            .map(|node| node * per_node..(node * per_node).saturating_add(per_node).min(world));
        let per_box = self.ranks_per_box;
        nodes
            .flat_map(|node| {
                let end = node.end;
                node.step_by(per_box as usize).map(move |start| start..(start + per_box).min(end))
            })
            .collect()
    }

    fn title(&self, ranks: &Range<u32>) -> String {
        let node = ranks.start / self.overview.ranks_per_node;
        if self.ranks_per_box < self.overview.ranks_per_node.min(self.overview.world()) {
            let full = format!(" node {node}, ranks {} to {} ", ranks.start, ranks.end - 1);
            if full.len() + 3 <= self.box_columns {
                return full;
            }
        }
        format!(" node {node} ")
    }

    /// Columns inside a box.
    fn inner(&self, ranks: &Range<u32>) -> usize {
        (ranks.len() * self.cell + 1).max(self.title(ranks).len() + 1)
    }

    fn draw(&self, boxes: &[Range<u32>], text: &mut String) {
        for line in boxes.chunks(self.boxes_per_line) {
            let ceiling = |ranks: &Range<u32>| {
                let title = self.title(ranks);
                format!("\u{250c}{title}{}\u{2510}", "\u{2500}".repeat(self.inner(ranks) - title.len()))
            };
            let rule = |left: char, right: char, ranks: &Range<u32>| {
                format!("{left}{}{right}", "\u{2500}".repeat(self.inner(ranks)))
            };
            self.line("", line, &ceiling, text);
            self.line("rank", line, &|ranks| self.cells(ranks, |rank| rank), text);
            if !self.rows.is_empty() {
                self.line("", line, &|ranks| rule('\u{251c}', '\u{2524}', ranks), text);
            }
            for row in self.rows {
                self.line(&row.name, line, &|ranks| self.cells(ranks, |rank| row.group_of_rank[rank as usize]), text);
            }
            self.line("", line, &|ranks| rule('\u{2514}', '\u{2518}', ranks), text);
        }
    }

    fn line(&self, name: &str, boxes: &[Range<u32>], part: &dyn Fn(&Range<u32>) -> String, text: &mut String) {
        let parts: Vec<_> = boxes.iter().map(part).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name:>label$} {}", parts.join(&" ".repeat(GAP)), label = self.label);
    }

    fn cells(&self, ranks: &Range<u32>, number: impl Fn(u32) -> u32) -> String {
        let cell = |rank| match number(rank) {
            NONE => format!("{:>cell$}", "-", cell = self.cell),
            number => format!("{number:>cell$}", cell = self.cell),
        };
        let cells: String = ranks.clone().map(cell).collect();
        format!("\u{2502}{cells:inner$}\u{2502}", inner = self.inner(ranks))
    }
}
