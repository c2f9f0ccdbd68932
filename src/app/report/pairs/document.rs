//! The pairs: what was measured, the median of each locality, averages of hosts and ranks, and the pairs or their matrix.

use super::view::{LocalityStatistics, Measure, MemberKind, Pair, PairLocality, PairsView, SlowPair, Standing};
use crate::report::document::{Block, Terminal};
use crate::report::template::blocks;
use crate::report::text::{Line, Paint, object, visible, wrap};
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;

/// Maximum number of hosts or ranks in the table of averages on a terminal.
const MAX_STANDINGS: usize = 32;

/// Maximum number of pairs in a table; the CSV has all.
const MAX_PAIRS: usize = 200;

const EXPLAINED: &str = "Latency: one way, half the round trip. Bandwidth: of one direction, with directions alternating (one way) or both in \
                         flight (both ways). A pair's time is the median of its slower rank's; GB = 10^9 B.";

/// For a terminal, with the matrix of each measure; each section after an empty line.
pub(in crate::report) fn text(view: &PairsView, terminal: Terminal) -> String {
    let standings = if view.hosts.is_empty() { &view.standings } else { &view.hosts };
    let mut above = vec![Block::text(view.sentence())];
    above.extend(localities(view, |_, _| None));
    above.extend(worst_standings(view, standings));
    let mut out = format!("\n{}", terminal.draw(&above));
    let mut shaded = terminal.paint() == Paint::Colors;
    for measure in Measure::ALL {
        let map = heat_map(view, measure, terminal.width(), terminal.paint());
        out += &format!("\n{}", map.text);
        shaded |= map.shaded;
    }
    let shades = if shaded { legend() } else { String::new() };
    out + &format!("\n{}", terminal.draw(&[Block::text(format!("{EXPLAINED} ?: not measured.{shades}"))]))
}

/// For pages.
pub(in crate::report) fn document(view: &PairsView) -> Vec<Block> {
    let mut blocks = vec![Block::text(format!("{}.", view.sentence()))];
    blocks.extend(localities(view, |_, _| None));
    blocks.extend(tables(view));
    blocks.push(Block::text(EXPLAINED));
    blocks
}

/// A part of the template.
fn part(part: &str, facts: minijinja::Value) -> Vec<Block> {
    blocks("pairs.txt", include_str!("../templates/pairs.txt"), context! { part, ..facts })
}

/// The median of each locality and measure, with what the median pair reaches where that is known.
pub(in crate::report) fn localities(
    view: &PairsView,
    reaches: impl Fn(PairLocality, Measure) -> Option<String>,
) -> Vec<Block> {
    let reaches = PairLocality::ALL.map(|locality| Measure::ALL.map(|measure| reaches(locality, measure)));
    let localities = PairLocality::ALL.map(|locality| json_locality(view, locality));
    let messages = (view.latency_bytes, view.bandwidth_bytes);
    part("localities", context! { localities => Serde(localities), messages => Serde(messages), reaches })
}

/// Every host and every rank, and the pairs, the worst first.
pub(in crate::report) fn tables(view: &PairsView) -> Vec<Block> {
    let standings = view.hosts.iter().chain(&view.standings).map(json_standing).collect::<Vec<_>>();
    let mut order: Vec<(f64, usize)> = (view.pairs.iter().zip(0..))
        .map(|(pair, index)| (worst(pair.values.map(|value| value.map(|value| value.percent))), index))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let pair = |(worst, index): &(f64, usize)| {
        let (known, slow) = (worst.is_finite().then_some(*worst), view.slow.iter().any(|slow| slow.pair == *index));
        context! { worst => known, slow, ..Serde(json_pair(view, &view.pairs[*index])) }
    };
    let pairs = order.iter().take(MAX_PAIRS).map(pair).collect::<Vec<_>>();
    part("all", context! { what => "host or rank", standings => Serde(standings), pairs, all => order.len() })
}

/// The lowest speed of the measures, in per cent of the median; infinite without any.
fn worst(percents: [Option<f64>; 3]) -> f64 {
    let speeds = percents.into_iter().zip(Measure::ALL).filter_map(|(percent, measure)| Some(measure.speed(percent?)));
    speeds.fold(f64::INFINITY, f64::min)
}

/// All of them, or the worst where there are too many.
fn worst_standings(view: &PairsView, standings: &[Standing]) -> Vec<Block> {
    let mut shown: Vec<&Standing> = standings.iter().collect();
    if shown.len() > MAX_STANDINGS {
        shown.sort_by(|one, other| worst(one.percent).total_cmp(&worst(other.percent)));
        shown.truncate(MAX_STANDINGS);
    }
    let what = if view.hosts.is_empty() { "rank" } else { "host" };
    let shown: Vec<_> = shown.into_iter().map(json_standing).collect();
    part("worst", context! { what, standings => Serde(shown), all => standings.len() })
}

/// Every pair, by the keys of the JSON document.
pub(crate) fn lines(view: &PairsView) -> Result<Vec<Line>> {
    view.pairs.iter().map(|pair| object(&json_pair(view, pair))).collect()
}

// The pairs as a part of the report's JSON document: base units in the names, `null` where there is no number.

/// The part.
#[derive(JsonSchema, Serialize)]
pub(in crate::report) struct JsonPairs<'a> {
    ranks: usize,
    hosts: usize,
    rounds: usize,
    pairs_at_once: u32,
    pairs_planned: u64,
    latency_bytes: Bytes,
    bandwidth_bytes: Bytes,
    values_compared: usize,
    localities: Vec<JsonLocality>,
    pairs: Vec<JsonPair<'a>>,
    slow: Vec<JsonSlow>,
    host_standings: Vec<JsonStanding<'a>>,
    rank_standings: Vec<JsonStanding<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct JsonLocality {
    locality: &'static str,
    latency_seconds: Option<LocalityStatistics>,
    bandwidth_bytes_per_second: Option<LocalityStatistics>,
    bidirectional_bandwidth_bytes_per_second: Option<LocalityStatistics>,
}

#[derive(JsonSchema, Serialize)]
struct JsonPair<'a> {
    rank_a: u32,
    rank_b: u32,
    host_a: &'a str,
    host_b: &'a str,
    locality: &'static str,
    latency_seconds: Option<f64>,
    latency_percent_of_locality_median: Option<f64>,
    bandwidth_bytes_per_second: Option<f64>,
    bandwidth_percent_of_locality_median: Option<f64>,
    bidirectional_bandwidth_bytes_per_second: Option<f64>,
    bidirectional_bandwidth_percent_of_locality_median: Option<f64>,
    samples: u64,
    replicates: u32,
}

#[derive(JsonSchema, Serialize)]
struct JsonSlow {
    rank_a: u32,
    rank_b: u32,
    measure: &'static str,
    percent_of_locality_median: Option<f64>,
    deviations: f64,
    deviations_allowed: f64,
}

#[derive(JsonSchema, Serialize)]
struct JsonStanding<'a> {
    name: &'a str,
    pairs: usize,
    latency_percent_mean: Option<f64>,
    bandwidth_percent_mean: Option<f64>,
    bidirectional_bandwidth_percent_mean: Option<f64>,
}

impl JsonPairs<'_> {
    /// The part for a view.
    pub(in crate::report) fn of(view: &PairsView) -> JsonPairs<'_> {
        JsonPairs {
            ranks: view.ranks.len(),
            hosts: view.host_count(),
            rounds: view.rounds,
            pairs_at_once: view.pairs_at_once,
            pairs_planned: view.pairs_planned,
            latency_bytes: view.latency_bytes,
            bandwidth_bytes: view.bandwidth_bytes,
            values_compared: view.compared,
            localities: PairLocality::ALL.iter().map(|locality| json_locality(view, *locality)).collect(),
            pairs: view.pairs.iter().map(|pair| json_pair(view, pair)).collect(),
            slow: view.slow.iter().map(|slow| json_slow(view, slow)).collect(),
            host_standings: view.hosts.iter().map(json_standing).collect(),
            rank_standings: view.standings.iter().map(json_standing).collect(),
        }
    }
}

fn json_locality(view: &PairsView, locality: PairLocality) -> JsonLocality {
    let [latency, one_way, both_ways] = view.middles[locality as usize];
    JsonLocality {
        locality: locality.name(),
        latency_seconds: latency,
        bandwidth_bytes_per_second: one_way,
        bidirectional_bandwidth_bytes_per_second: both_ways,
    }
}

fn json_pair<'a>(view: &'a PairsView, pair: &Pair) -> JsonPair<'a> {
    let (a, b) = (&view.ranks[pair.a], &view.ranks[pair.b]);
    let values = pair.values.map(|value| value.map(|value| value.value));
    let percents = pair.values.map(|value| value.map(|value| value.percent));
    JsonPair {
        rank_a: a.rank,
        rank_b: b.rank,
        host_a: &a.host,
        host_b: &b.host,
        locality: pair.locality.name(),
        latency_seconds: values[0],
        latency_percent_of_locality_median: percents[0],
        bandwidth_bytes_per_second: values[1],
        bandwidth_percent_of_locality_median: percents[1],
        bidirectional_bandwidth_bytes_per_second: values[2],
        bidirectional_bandwidth_percent_of_locality_median: percents[2],
        samples: pair.values.iter().flatten().map(|value| value.samples).sum(),
        replicates: pair.values.iter().flatten().map(|value| value.replicates).min().unwrap_or(0),
    }
}

fn json_slow(view: &PairsView, slow: &SlowPair) -> JsonSlow {
    let pair = &view.pairs[slow.pair];
    JsonSlow {
        rank_a: view.ranks[pair.a].rank,
        rank_b: view.ranks[pair.b].rank,
        measure: measure_name(slow.measure),
        percent_of_locality_median: pair.values[slow.measure as usize].map(|value| value.percent),
        deviations: slow.deviations,
        deviations_allowed: slow.allowed,
    }
}

/// As the fields of a pair call it.
fn measure_name(measure: Measure) -> &'static str {
    match measure {
        Measure::Latency => "latency",
        Measure::OneWay => "bandwidth",
        Measure::BothWays => "bidirectional_bandwidth",
    }
}

fn json_standing(standing: &Standing) -> JsonStanding<'_> {
    let [latency, one_way, both_ways] = standing.percent;
    JsonStanding {
        name: &standing.name,
        pairs: standing.pairs,
        latency_percent_mean: latency,
        bandwidth_percent_mean: one_way,
        bidirectional_bandwidth_percent_mean: both_ways,
    }
}

// The matrix on a terminal: numbers where they fit, shades where they do not, hosts instead of ranks where those do not fit
// either.

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

/// The matrix, with a heading, in at most `width` columns; or a sentence on why it is missing.
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
            out += &cell(*percent, if row == column && alone { ITSELF } else { NOTHING }, layout.cell_width, paint);
        }
        out.push('\n');
    }
    HeatMap { text: out, shaded: layout.cell_width < CELL_WIDTHS[0] }
}

fn heading(view: &PairsView, measure: Measure) -> String {
    let bytes = view.message(measure);
    format!("{}, {bytes}, speed in % of the median of the same locality (less is slower)", measure.name())
}

/// What the shades mean.
pub(super) fn legend() -> String {
    let bands: Vec<String> = BANDS.iter().rev().map(|(_, shade, _, range)| format!("{shade} {range}")).collect();
    format!(" Shades, in % of the median's speed: {}.", bands.join(", "))
}

fn members(view: &PairsView, kind: MemberKind) -> Vec<Member> {
    let member = |(number, ranks): (usize, Vec<usize>)| {
        let first = &view.ranks[ranks[0]];
        let label = match kind {
            MemberKind::Rank => first.rank.to_string(),
            MemberKind::Host => number.to_string(),
        };
        Member { label, host: visible(&first.host), ranks }
    };
    view.members(kind).into_iter().enumerate().map(member).collect()
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
    let member_of = view.member_of(members.iter().map(|member| &member.ranks));
    let mut cells = vec![vec![None; members.len()]; members.len()];
    for pair in &view.pairs {
        let Some(percent) = percent(pair, measure) else { continue };
        let (a, b) = (member_of[pair.a], member_of[pair.b]);
        let worse = |old: Option<f64>| match old {
            Some(old) => Some(f64::min(old, percent)),
            None => Some(percent),
        };
        (cells[a][b], cells[b][a]) = (worse(cells[a][b]), worse(cells[b][a]));
    }
    cells
}

fn percent(pair: &Pair, measure: Measure) -> Option<f64> {
    Some(measure.speed(pair.values[measure as usize]?.percent))
}

fn cell(percent: Option<f64>, nothing: char, width: usize, paint: Paint) -> String {
    let Some(percent) = percent else {
        return format!("{nothing:>width$}");
    };
    // A value that rounds to 90 has the colour of 90.
    let band = BANDS.iter().find(|(from, ..)| percent.round() >= *from).unwrap_or(&BANDS[BANDS.len() - 1]);
    let (_, shade, background, _) = *band;
    let text = if width == CELL_WIDTHS[0] {
        if percent < 9999.5 { format!("{percent:>width$.0}") } else { ">10k".to_owned() }
    } else {
        shade.to_string().repeat(width)
    };
    paint.background(background, &text)
}
