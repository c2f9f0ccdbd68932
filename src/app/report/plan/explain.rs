//! Two layouts side by side: their differences, and the cost of each part.

use super::table::{gigabytes, untrusted};
use crate::report::document::{Block, Column, Mark, Table, Terminal};
use commgauge_analysis::planner::explain::Comparison;
use commgauge_base::units::Seconds;

/// The comparison in so many columns.
pub fn text(comparison: &Comparison, width: u16) -> String {
    let c = comparison;
    const COLUMNS: [Column; 5] = [
        Column::left("", 0),
        Column::right("A", 0),
        Column::right("B", 0),
        Column::right("B - A", 0),
        Column::right("of A's step", 1),
    ];
    let mut rows: Vec<Vec<String>> = c
        .choices
        .iter()
        .map(|(name, a, b)| vec![name.clone(), a.clone(), b.clone(), String::new(), String::new()])
        .collect();
    let seconds = |name: &str, a: f64, b: f64| {
        let difference = b - a;
        let share = 100.0 * difference / c.first.step_seconds;
        let signed = if difference > 0.0 { "+" } else { "" };
        vec![
            name.to_owned(),
            Seconds(a).to_string(),
            Seconds(b).to_string(),
            format!("{signed}{}", Seconds(difference)),
            format!("{share:+.1} %"),
        ]
    };
    let memory = (c.second.memory_bytes as f64 - c.first.memory_bytes as f64) / 1e9;
    rows.push(vec![
        "memory, GB".to_owned(),
        gigabytes(c.first.memory_bytes),
        gigabytes(c.second.memory_bytes),
        format!("{memory:+.1}"),
        String::new(),
    ]);
    rows.extend(c.parts.iter().map(|part| seconds(&part.part, part.first_seconds, part.second_seconds)));
    rows.push(seconds("step", c.first.step_seconds, c.second.step_seconds));
    let layouts = || [("A", &c.first), ("B", &c.second)].into_iter();
    let too_large =
        layouts().filter(|(_, layout)| !layout.fits).map(|(name, _)| format!("{name} does NOT fit into memory."));
    let untrusted = layouts().filter_map(|(name, layout)| untrusted(name, layout));
    let sentences = too_large.chain(untrusted).chain([answer(c)]);
    let blocks = [Block::Table(Table::new("", &COLUMNS, rows)), Block::apart(Mark::Flush, sentences)];
    Terminal::plain(width).draw(&blocks)
}

/// Which is faster, and how sure that is.
fn answer(c: &Comparison) -> String {
    let faster = if c.first.step_seconds <= c.second.step_seconds { "A" } else { "B" };
    let why = c.parts.first().map_or_else(String::new, |part| format!(", most of all by {}", part.part));
    match c.probability_first_is_faster {
        _ if c.first.step_seconds == c.second.step_seconds => "Both take just as long.".to_owned(),
        Some(share) if (0.05..0.95).contains(&share) => {
            format!("A tie: A is faster in {:.0} of 100 draws.", 100.0 * share)
        }
        Some(share) => {
            let percent = 100.0 * share.max(1.0 - share);
            format!("{faster} is faster{why}, in {percent:.0} of 100 draws.")
        }
        None => format!("{faster} is faster{why}."),
    }
}
