//! The matrix on a terminal: numbers where they fit, shades where they do not, hosts instead of ranks where those do not fit
//! either.

use super::view::{Measure, Pair, PairsView};
use crate::report::color::Paint;
use crate::report::text::{visible, wrap};

/// More ranks than this are shown by their hosts.
const MAX_RANKS: usize = 64;
/// A cell with a number, and narrower ones with a shade.
const CELL_WIDTHS: [usize; 3] = [4, 2, 1];
/// Longest part of a host's name that is shown next to a row.
const MAX_HOST_CHARS: usize = 16;

/// Shade and background by lower bound of the share of the median, in per cent; less is worse.
const BANDS: [(f64, char, u8, &str); 6] = [
    (110.0, '+', 25, "above 110"),
    (90.0, '·', 22, "90 to 110"),
    (70.0, '░', 58, "70 to 90"),
    (50.0, '▒', 94, "50 to 70"),
    (30.0, '▓', 130, "30 to 50"),
    (0.0, '█', 124, "below 30"),
];
const NOTHING: char = '?';
const ITSELF: char = '\\';

/// One row or column: a rank, or a host with the ranks of it.
struct Member {
    label: String,
    host: String,
    ranks: Vec<usize>,
}

/// The matrix of one measure.
pub(super) struct HeatMap {
    /// Heading and rows.
    pub text: String,
    /// Whether cells are shades instead of numbers.
    pub shaded: bool,
}

/// The matrix, with a heading, in at most `width` columns; or a sentence on why there is none.
pub(super) fn heat_map(view: &PairsView, measure: Measure, width: usize, paint: Paint) -> HeatMap {
    let heading = wrap(&heading(view, measure), width, 0);
    let heading: String = heading.lines().map(|line| paint.bold(line) + "\n").collect();
    let ranks = if view.ranks.len() <= MAX_RANKS { lay_out(members(view, MemberKind::Rank), width) } else { None };
    let by_host = ranks.is_none();
    let Some(layout) =
        ranks.or_else(|| lay_out(members(view, MemberKind::Host), width).filter(|layout| layout.members.len() > 1))
    else {
        let text = format!("{heading}too many ranks for {width} columns; --format csv has every pair\n");
        return HeatMap { text, shaded: false };
    };
    let mut out = heading;
    if by_host {
        let ranks = view.ranks.len();
        let text =
            format!("{ranks} ranks do not fit, so rows and columns are hosts; a cell is the worst pair of the two");
        out += &(wrap(&text, width, 0) + "\n");
    }
    out += &layout.column_headings();
    let cells = cells(view, measure, &layout.members);
    for (row, member) in layout.members.iter().enumerate() {
        let previous = row.checked_sub(1).map(|above| &layout.members[above].host);
        out += &layout.row_heading(member, previous);
        for (column, percent) in cells[row].iter().enumerate() {
            let alone = layout.members[row].ranks.len() == 1;
            out += &cell(
                *percent,
                measure,
                if row == column && alone { ITSELF } else { NOTHING },
                layout.cell_width,
                paint,
            );
        }
        out.push('\n');
    }
    HeatMap { text: out, shaded: layout.cell_width < CELL_WIDTHS[0] }
}

fn heading(view: &PairsView, measure: Measure) -> String {
    let bytes = if measure == Measure::Latency { view.latency_bytes } else { view.bandwidth_bytes };
    let sense = if measure == Measure::Latency { "more is slower" } else { "less is slower" };
    format!("{}, {bytes}, in % of the median of the same locality ({sense})", measure.name())
}

/// What the shades mean.
pub(super) fn legend() -> String {
    let bands: Vec<String> = BANDS.iter().rev().map(|(_, shade, _, range)| format!("{shade} {range}")).collect();
    format!(" Shades, in % of the median's speed (for a latency, of its inverse): {}.", bands.join(", "))
}

/// What a row stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberKind {
    Rank,
    /// All ranks of a host.
    Host,
}

fn members(view: &PairsView, kind: MemberKind) -> Vec<Member> {
    let mut members: Vec<Member> = Vec::new();
    let mut nodes: Vec<u32> = Vec::new();
    for (index, rank) in view.ranks.iter().enumerate() {
        let known = match kind {
            MemberKind::Rank => None,
            MemberKind::Host => nodes.iter().position(|node| *node == rank.node),
        };
        match known {
            Some(known) => members[known].ranks.push(index),
            None => {
                nodes.push(rank.node);
                let label = match kind {
                    MemberKind::Rank => rank.rank.to_string(),
                    MemberKind::Host => (nodes.len() - 1).to_string(),
                };
                members.push(Member { label, host: visible(&rank.host), ranks: vec![index] });
            }
        }
    }
    members
}

struct Layout {
    members: Vec<Member>,
    cell_width: usize,
    label_width: usize,
    host_width: usize,
}

/// The widest cells that fit, with as much of the host names as the remaining width allows.
fn lay_out(members: Vec<Member>, width: usize) -> Option<Layout> {
    let label_width = members.iter().map(|member| member.label.len()).max()?;
    let longest = members.iter().map(|member| member.host.chars().count()).max()?.min(MAX_HOST_CHARS);
    for cell_width in CELL_WIDTHS {
        let Some(left) = width.checked_sub(members.len() * cell_width + label_width + 1) else { continue };
        // With shades the host names may be cut; with numbers narrower cells are preferred.
        if left > longest || cell_width == 1 {
            let host_width = longest.min(left.saturating_sub(1));
            return Some(Layout { members, cell_width, label_width, host_width });
        }
    }
    None
}

impl Layout {
    /// Numbers above the columns: as they are where they fit, else digit below digit.
    fn column_headings(&self) -> String {
        let indent = " ".repeat(self.indent());
        let width = self.cell_width;
        if width > self.label_width {
            let labels: String = self.members.iter().map(|member| format!("{:>width$}", member.label)).collect();
            return format!("{indent}{labels}\n");
        }
        let line = |digit: usize| {
            let at = |member: &Member| format!("{:>1$}", member.label, self.label_width).chars().nth(digit);
            let cells: String = self.members.iter().map(|m| format!("{:>width$}", at(m).unwrap_or(' '))).collect();
            format!("{indent}{}\n", cells.trim_end())
        };
        (0..self.label_width).map(line).collect()
    }

    fn indent(&self) -> usize {
        self.label_width + 1 + if self.host_width > 0 { self.host_width + 1 } else { 0 }
    }

    /// Number and host of a row; the host only where it begins.
    fn row_heading(&self, member: &Member, previous: Option<&String>) -> String {
        let host: String = if previous == Some(&member.host) { String::new() } else { member.host.clone() };
        let shown: String = host.chars().take(self.host_width).collect();
        let text = match self.host_width {
            0 => format!("{:>1$}", member.label, self.label_width),
            width => format!("{shown:<width$} {:>1$}", member.label, self.label_width),
        };
        text + " "
    }
}

/// The worst share of the pairs between each two members; `None` where there is no value.
fn cells(view: &PairsView, measure: Measure, members: &[Member]) -> Vec<Vec<Option<f64>>> {
    let mut member_of = vec![0; view.ranks.len()];
    for (index, member) in members.iter().enumerate() {
        member.ranks.iter().for_each(|rank| member_of[*rank] = index);
    }
    let mut cells = vec![vec![None; members.len()]; members.len()];
    for pair in &view.pairs {
        let Some(percent) = percent(pair, measure) else { continue };
        let (a, b) = (member_of[pair.a], member_of[pair.b]);
        let worse = |old: Option<f64>| match old {
            Some(old) if measure.goodness(old) <= measure.goodness(percent) => Some(old),
            _ => Some(percent),
        };
        (cells[a][b], cells[b][a]) = (worse(cells[a][b]), worse(cells[b][a]));
    }
    cells
}

fn percent(pair: &Pair, measure: Measure) -> Option<f64> {
    Some(pair.values[measure as usize]?.percent)
}

fn cell(percent: Option<f64>, measure: Measure, nothing: char, width: usize, paint: Paint) -> String {
    let Some(percent) = percent else {
        return format!("{nothing:>width$}");
    };
    let goodness = measure.goodness(percent);
    // A value that rounds to 90 has the colour of 90.
    let band = BANDS.iter().find(|(from, ..)| goodness.round() >= *from).unwrap_or(&BANDS[BANDS.len() - 1]);
    let (_, shade, background, _) = *band;
    let text = if width == CELL_WIDTHS[0] {
        if percent < 9999.5 { format!("{percent:>width$.0}") } else { ">10k".to_owned() }
    } else {
        shade.to_string().repeat(width)
    };
    paint.background(background, &text)
}
