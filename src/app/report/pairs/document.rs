//! The pairs: what was measured, the median of each locality, averages of hosts and ranks, and the pairs or their matrix.

use super::heat_map::{heat_map, legend};
use super::view::{LocalityStatistics, Measure, PairLocality, PairsView, Standing};
use crate::report::color::Paint;
use crate::report::document::{Block, Column, Row, Table, Terminal, Tone};
use commgauge_base::units::three_digits;

/// Maximum number of hosts or ranks in the table of averages on a terminal.
const MAX_STANDINGS: usize = 32;
/// Maximum number of pairs in a table; the CSV has all.
const MAX_PAIRS: usize = 200;
const EXPLAINED: &str = "Latency: one way, half the round trip. Bandwidth: one direction, there and back in turn (one way), or \
                         while both are under way (both ways). A pair's time is the median of its slower rank's; GB = 10^9 B.";

/// For a terminal, with the matrix of each measure; each section after an empty line.
pub(in crate::report) fn text(view: &PairsView, terminal: Terminal) -> String {
    let standings = if view.hosts.is_empty() { &view.standings } else { &view.hosts };
    let above = [Block::text(view.sentence()), medians(view), Block::Table(worst_standings(view, standings))];
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
    vec![
        Block::text(format!("{}.", view.sentence())),
        medians(view),
        Block::Table(standings(view)),
        Block::Table(pairs(view)),
        Block::text(EXPLAINED),
    ]
}

fn medians(view: &PairsView) -> Block {
    let table = localities(view);
    if table.rows.is_empty() { Block::text("nothing was measured") } else { Block::Table(table) }
}

/// The localities and measures with a value.
pub(in crate::report) fn measured(view: &PairsView) -> impl Iterator<Item = (PairLocality, Measure)> {
    let all = PairLocality::ALL.into_iter().flat_map(|locality| Measure::ALL.map(|measure| (locality, measure)));
    all.filter(|(locality, measure)| view.middles[*locality as usize][*measure as usize].is_some())
}

/// A row for each locality and measure with a value.
pub(in crate::report) fn localities(view: &PairsView) -> Table {
    const COLUMNS: [Column; 7] = [
        Column::left("locality", 0),
        Column::right("pairs", 2),
        Column::left("measure", 0),
        Column::right("message", 3),
        Column::right("median", 0),
        Column::right("fastest", 1),
        Column::right("slowest", 1),
    ];
    let row = |(locality, measure): (PairLocality, Measure)| {
        let LocalityStatistics { pairs, minimum, median, maximum } = view.middles[locality as usize][measure as usize]?;
        let (bytes, fastest, slowest) = match measure {
            Measure::Latency => (view.latency_bytes, minimum, maximum),
            Measure::OneWay | Measure::BothWays => (view.bandwidth_bytes, maximum, minimum),
        };
        let mut cells =
            vec![locality.to_string(), pairs.to_string(), measure.short_name().to_owned(), bytes.to_string()];
        cells.extend([median, fastest, slowest].map(|value| measure.shown(value)));
        Some(cells)
    };
    Table::new("median of each locality", &COLUMNS, measured(view).filter_map(row))
}

/// Every host and every rank.
pub(in crate::report) fn standings(view: &PairsView) -> Table {
    standing_table("host or rank", view.hosts.iter().chain(&view.standings))
        .whole_in("`commgauge report --format json` has them all")
        .folded()
}

/// All of them, or the worst where there are too many.
fn worst_standings(view: &PairsView, standings: &[Standing]) -> Table {
    let worst = |standing: &Standing| {
        let shares = Measure::ALL.iter().zip(standing.percent);
        shares.filter_map(|(measure, percent)| Some(measure.goodness(percent?))).fold(f64::INFINITY, f64::min)
    };
    let mut shown: Vec<&Standing> = standings.iter().collect();
    if shown.len() > MAX_STANDINGS {
        shown.sort_by(|one, other| worst(one).total_cmp(&worst(other)));
        shown.truncate(MAX_STANDINGS);
    }
    let left_out = shown.len() < standings.len();
    let note = format!("(the worst {} of {})", shown.len(), standings.len());
    let table = standing_table(if view.hosts.is_empty() { "rank" } else { "host" }, shown);
    if left_out { table.noted(note) } else { table }
}

fn standing_table<'a>(what: &'static str, standings: impl IntoIterator<Item = &'a Standing>) -> Table {
    let columns = [
        Column::left(what, 0),
        Column::right("pairs", 1),
        Column::right("latency", 0),
        Column::right("one way", 0),
        Column::right("both ways", 0),
    ];
    let percent = |percent: Option<f64>| percent.map_or_else(|| "n/a".to_owned(), three_digits);
    let row = |standing: &Standing| {
        let begin = [standing.name.clone(), standing.pairs.to_string()];
        begin.into_iter().chain(standing.percent.map(percent)).collect::<Vec<String>>()
    };
    let title = format!("each {what} with everybody, mean % of the median");
    Table::new(title, &columns, standings.into_iter().map(row))
}

/// The pairs, the worst first.
pub(in crate::report) fn pairs(view: &PairsView) -> Table {
    const COLUMNS: [Column; 7] = [
        Column::left("ranks", 0),
        Column::left("hosts", 0),
        Column::left("locality", 0),
        Column::right("latency (% of median)", 0),
        Column::right("one way (%)", 0),
        Column::right("both ways (%)", 0),
        Column::right("worst, % of the median's speed", 0),
    ];
    let worst = |index: usize| {
        let values = view.pairs[index].values.iter().zip(Measure::ALL);
        let shares = values.filter_map(|(value, measure)| Some(measure.goodness((*value)?.percent)));
        shares.fold(f64::INFINITY, f64::min)
    };
    let mut order: Vec<(f64, usize)> = (0..view.pairs.len()).map(|index| (worst(index), index)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let rows = order.iter().take(MAX_PAIRS).map(|(worst, index)| pair_row(view, *index, *worst));
    let table = Table::new("pairs of ranks, the worst first", &COLUMNS, rows).folded();
    match order.len() {
        all if all > MAX_PAIRS => {
            table.noted(format!("{MAX_PAIRS} of {all} pairs; `commgauge report --format csv` has every pair"))
        }
        _ => table,
    }
}

fn pair_row(view: &PairsView, index: usize, worst: f64) -> Row {
    let pair = &view.pairs[index];
    let (a, b) = (&view.ranks[pair.a], &view.ranks[pair.b]);
    let hosts = if a.node == b.node { a.host.clone() } else { format!("{}, {}", a.host, b.host) };
    let mut cells = vec![format!("{}, {}", a.rank, b.rank), hosts, pair.locality.to_string()];
    cells.extend(pair.values.iter().zip(Measure::ALL).map(|(value, measure)| {
        let shown = |value: super::PairValue| format!("{} ({:.0})", measure.shown(value.value), value.percent);
        value.map_or_else(|| "n/a".to_owned(), shown)
    }));
    cells.push(if worst.is_finite() { three_digits(worst) } else { "n/a".to_owned() });
    let is_slow = view.slow.iter().any(|slow| slow.pair == index);
    Row::toned(if is_slow { Tone::Bad } else { Tone::Plain }, cells)
}
