//! The pairs as text: what was measured, the median of each locality, averages of hosts, and the matrix of each measure.

use super::heat_map::{heat_map, legend};
use super::{Measure, PairLocality, PairsView, Standing};
use crate::report::color::Paint;
use crate::report::plain_table::{Column, table};
use crate::report::text::{visible, wrap};
use commgauge_base::units::three_digits;

/// Maximum number of hosts or ranks in the table of averages.
const MAX_STANDINGS: usize = 32;

/// The sections of the table report, each after an empty line.
pub(crate) fn text(view: &PairsView, width: usize, paint: Paint) -> String {
    let columns = u16::try_from(width).unwrap_or(u16::MAX);
    let mut out = format!("\n{}\n", wrap(&view.sentence(), width, 0));
    out += &format!("\n{}\n{}", paint.bold("median of each locality"), middles(view, columns));
    let (what, standings) = if view.hosts.is_empty() { ("rank", &view.standings) } else { ("host", &view.hosts) };
    out += &format!("\n{}\n", paint.bold(&format!("each {what} with everybody, mean % of the median")));
    out += &standing_table(what, standings, columns);
    let mut shaded = paint.on;
    for measure in Measure::ALL {
        let map = heat_map(view, measure, width, paint);
        out += &format!("\n{}", map.text);
        shaded |= map.shaded;
    }
    let mut notes = "Latency: one way, half the round trip. Bandwidth: one direction, there and back in turn (one way), or while \
                     both are under way (both ways). A pair's time is the median of its slower rank's; GB = 10^9 B. ?: not \
                     measured."
        .to_owned();
    if shaded {
        notes += &legend();
    }
    out + &format!("\n{}\n", wrap(&notes, width, 0))
}

fn middles(view: &PairsView, width: u16) -> String {
    let columns = [
        Column::left("locality", 0),
        Column::right("pairs", 2),
        Column::left("measure", 0),
        Column::right("message", 3),
        Column::right("median", 0),
        Column::right("fastest", 1),
        Column::right("slowest", 1),
    ];
    let mut rows = Vec::new();
    for locality in PairLocality::ALL {
        for measure in Measure::ALL {
            let Some(middle) = view.middles[locality as usize][measure as usize] else { continue };
            let is_latency = measure == Measure::Latency;
            let [fastest, slowest] = match is_latency {
                true => [middle.minimum, middle.maximum],
                false => [middle.maximum, middle.minimum],
            };
            let bytes = if is_latency { view.latency_bytes } else { view.bandwidth_bytes };
            rows.push(vec![
                locality.to_string(),
                middle.pairs.to_string(),
                measure.short_name().to_owned(),
                bytes.to_string(),
                measure.shown(middle.median),
                measure.shown(fastest),
                measure.shown(slowest),
            ]);
        }
    }
    if rows.is_empty() { "nothing was measured\n".to_owned() } else { table(&columns, &rows, width) }
}

/// All of them, or the worst where there are too many.
fn standing_table(what: &'static str, standings: &[Standing], width: u16) -> String {
    let worst = |standing: &Standing| {
        let shares = Measure::ALL.iter().zip(standing.percent);
        shares.filter_map(|(measure, percent)| Some(measure.goodness(percent?))).fold(f64::INFINITY, f64::min)
    };
    let mut shown: Vec<&Standing> = standings.iter().collect();
    if shown.len() > MAX_STANDINGS {
        shown.sort_by(|one, other| worst(one).total_cmp(&worst(other)));
        shown.truncate(MAX_STANDINGS);
    }
    let columns = [
        Column::left(what, 0),
        Column::right("pairs", 1),
        Column::right("latency", 0),
        Column::right("one way", 0),
        Column::right("both ways", 0),
    ];
    let percent = |percent: Option<f64>| percent.map_or_else(|| "n/a".to_owned(), three_digits);
    let row = |standing: &&Standing| {
        let [latency, one_way, both_ways] = standing.percent.map(percent);
        vec![visible(&standing.name), standing.pairs.to_string(), latency, one_way, both_ways]
    };
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    let mut out = table(&columns, &rows, width);
    if shown.len() < standings.len() {
        out += &format!("(the worst {} of {})\n", shown.len(), standings.len());
    }
    out
}
