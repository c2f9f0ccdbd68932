//! Provenance of every run, and late ranks.

use super::input::{HtmlInput, HtmlRun};
use crate::chart::{Axis, Bar, Bars, Unit};
use crate::report::Row;
use crate::report::document::{Block, Column, Fact, Figure, Table, share};
use commgauge_base::sample::Cadence;
use commgauge_base::units::three_digits;
use commgauge_model::record::line::Outcome;
use std::collections::BTreeMap;

/// Ranks in the picture of late arrivals.
const MAX_RANKS: usize = 12;

/// Provenance of every run.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let several = input.runs.len() + input.base.len() > 1;
    let mut blocks = Vec::new();
    let roles = input.runs.iter().map(|run| (run, "record")).chain(input.base.iter().map(|run| (run, "base")));
    for (run, role) in roles {
        if several {
            blocks.push(Block::heading(format!("{role} {}", run.name)));
        }
        if !run.differences.is_empty() {
            blocks.push(Block::text("Unlike the first record, and shown beside it because that was allowed:"));
            let differences = run.differences.iter().map(|difference| {
                let (kind, fact) = (difference.kind.name(), &difference.fact);
                format!("{kind} ({fact}): {} there, {} here", difference.base, difference.new)
            });
            blocks.push(Block::list(differences));
        }
        let facts = run.view.provenance.iter().map(|(label, text)| Fact::new(*label, text));
        let clocks = run.view.clocks.iter().map(|clock| {
            let description = format!(
                "{:?}, resolution {} ns, the ranks agree to {} ns, drift up to {} ppm",
                clock.method,
                clock.resolution_nanoseconds,
                clock.residual_nanoseconds,
                three_digits(clock.worst_drift_ppm)
            );
            Fact::new(format!("clock at {:?}", clock.moment).to_lowercase(), description.to_lowercase())
        });
        let mut all: Vec<Fact> = facts.chain(clocks).collect();
        all.push(Fact::new("program's SHA-256", &run.view.header.program_sha256));
        all.push(Fact::new("suite's SHA-256", &run.view.header.suite.sha256));
        blocks.push(Block::Facts(all));
    }
    blocks
}

/// Late ranks.
pub(super) fn late(run: &HtmlRun) -> Vec<Block> {
    let (counts, samples) = last_arrivals(run);
    if samples == 0 {
        return vec![Block::absent(
            "Not available: no isolated case has arrival times, so no straggler can be found. Suites with the cadence \
             `isolated` measure them.",
        )];
    }
    let mut ranks: Vec<(u32, u64)> = counts.into_iter().collect();
    ranks.sort_by_key(|(rank, count)| (std::cmp::Reverse(*count), *rank));
    let part = |count: u64| count as f64 / samples as f64;
    let bar = |(rank, count): &(u32, u64)| Bar {
        label: format!("rank {rank} ({})", host(run, *rank)),
        parts: vec![100.0 * part(*count)],
        interval: None,
        note: share(part(*count)),
    };
    let title = "How often a rank arrived last";
    let mut bars = Bars::new(title, Axis::linear("", Unit::Percent));
    bars.description = format!("Share of {samples} isolated samples in which each rank arrived last.");
    bars.bars = ranks.iter().take(MAX_RANKS).map(bar).collect();
    let world = run.view.header.world_size;
    let mut blocks = vec![
        Block::text(format!(
            "Of {samples} isolated samples; by chance each of {world} ranks would be last in {} %. A rank is named as late only where \
             it was last in a clear majority, by more than the clocks' disagreement.",
            three_digits(100.0 / f64::from(world.max(1)))
        )),
        Block::Charts(vec![Figure::new(title, bars.draw())]),
    ];
    const COLUMNS: [Column; 5] = [
        Column::left("case", 0),
        Column::right("late rank", 0),
        Column::left("host", 0),
        Column::right("last in", 0),
        Column::right("behind the first", 0),
    ];
    let row = |row: &Row| {
        let late = row.late.as_ref()?;
        let (rank, share, spread) = (late.rank.to_string(), share(late.share), late.spread.to_string());
        Some(vec![row.facts.name.clone(), rank, late.host.clone(), share, spread])
    };
    let table = Table::new("Late ranks by case", &COLUMNS, run.view.rows.iter().filter_map(row));
    blocks.push(match table.rows.is_empty() {
        true => Block::text("No rank is named as late in any case."),
        false => Block::Table(table.whole_in("`commgauge report --format json` has every row")),
    });
    blocks
}

fn last_arrivals(run: &HtmlRun) -> (BTreeMap<u32, u64>, u64) {
    let (mut counts, mut samples) = (BTreeMap::new(), 0);
    for line in &run.record.cases {
        let isolated = run.record.plan.cases.get(line.case as usize).is_some_and(|c| c.cadence == Cadence::Isolated);
        if !isolated || !matches!(line.outcome, Outcome::Measured { .. }) {
            continue;
        }
        for rank in line.samples.valid().filter_map(|index| line.samples.last_rank.get(index)) {
            *counts.entry(*rank).or_default() += 1;
            samples += 1;
        }
    }
    (counts, samples)
}

fn host(run: &HtmlRun, rank: u32) -> String {
    let holds = |first: u32, ranks: u32| rank >= first && u64::from(rank) < u64::from(first) + u64::from(ranks);
    let facts = run.view.header.ranks.iter().find(|entry| holds(entry.rank, entry.ranks));
    facts.map_or_else(|| "host unknown".to_owned(), |entry| entry.host.clone())
}
