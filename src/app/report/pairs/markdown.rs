//! The pairs as Markdown: the median of each locality, and every pair where there are few.

use super::{Measure, PairLocality, PairsView};
use crate::report::markdown::escaped;

/// Maximum number of pairs in the table; the CSV has all.
const MAX_PAIRS: usize = 120;

/// The tables, after an empty line.
pub(in crate::report) fn text(view: &PairsView) -> String {
    let mut out = format!("\n{}.\n\n", view.sentence());
    out += "| locality | pairs | measure | median | least | greatest |\n| --- | ---: | --- | ---: | ---: | ---: |\n";
    for locality in PairLocality::ALL {
        for measure in Measure::ALL {
            let Some(middle) = view.middles[locality as usize][measure as usize] else { continue };
            let [median, least, greatest] =
                [middle.median, middle.minimum, middle.maximum].map(|value| measure.shown(value));
            let (pairs, name) = (middle.pairs, measure.name());
            out += &format!("| {locality} | {pairs} | {name} | {median} | {least} | {greatest} |\n");
        }
    }
    if view.pairs.len() > MAX_PAIRS {
        return out + &format!("\n{} pairs are too many for a page; `--format csv` has them all.\n", view.pairs.len());
    }
    out += "\n| ranks | hosts | latency (% of median) | bandwidth one way (%) | bandwidth both ways (%) |\n| --- | --- | ---: | ---: | ---: |\n";
    for pair in &view.pairs {
        let (a, b) = (&view.ranks[pair.a], &view.ranks[pair.b]);
        let values = Measure::ALL.map(|measure| {
            let shown = |value: super::PairValue| format!("{} ({:.0})", measure.shown(value.value), value.percent);
            pair.values[measure as usize].map_or_else(|| "n/a".to_owned(), shown)
        });
        let hosts = if a.node == b.node { escaped(&a.host) } else { escaped(&format!("{}, {}", a.host, b.host)) };
        out += &format!("| {}, {} | {hosts} | {} |\n", a.rank, b.rank, values.join(" | "));
    }
    out
}
