//! Pairs of ranks as heat maps in per cent of the median of their locality, so that a healthy machine is calm: by rank or, where
//! there are many, by host. One measure is open, the worst; the others are folded. What else pairs are compared with is in
//! `pair_reference`.

use super::input::HtmlRun;
use super::pair_reference::References;
use crate::chart::{Cell, HeatMap};
use crate::report::document::{Block, Column, Figure};
use crate::report::pairs::{self, Measure, PairLocality, PairsView};
use commgauge_analysis::verdict::Verdict;
use commgauge_base::units::counted;
use commgauge_model::record::line::{CaseLine, Outcome};
use commgauge_model::workload::Style;
use std::collections::HashMap;

/// Maximum number of rows of a picture; beyond it neighbours are merged.
const MAX_ROWS: usize = 64;
/// Up to this many ranks each row is a rank.
const MAX_RANKS: usize = 32;

/// The section.
pub(super) fn blocks(run: &HtmlRun, verdict: Option<&Verdict>) -> Vec<Block> {
    let Some(view) = &run.view.pairs else {
        return vec![Block::absent(
            "Not available: no pairs of ranks were measured. `commgauge-pairs`, under the launcher, measures every two of them.",
        )];
    };
    let references = References::of(run, view, verdict);
    let mut blocks = vec![Block::text(view.sentence()), Block::text(how_to_read(view))];
    let cells = pairs::measured(view).map(|(locality, measure)| references.cell(view, locality, measure));
    let column = Column::left("the median pair reaches", Column::PAGES_ONLY);
    blocks.push(Block::Table(pairs::localities(view).with_column(column, cells)));
    let rows = members(view);
    let spoilt = spoilt_pairs(run);
    let worst = worst_measure(view);
    for measure in std::iter::once(worst).chain(Measure::ALL.into_iter().filter(|measure| *measure != worst)) {
        let (map, block) = heat_map(view, measure, &rows, &spoilt, &references).gathered(MAX_ROWS);
        let mut picture = Vec::new();
        if block > 1 {
            let text = format!("One row stands for {block} neighbouring hosts, and a cell for the worst of theirs.");
            picture.push(Block::text(text));
        }
        let name = map.title.clone();
        picture.push(Block::Charts(vec![Figure::wide(&name, map.draw())]));
        match measure == worst {
            true => blocks.extend([vec![Block::heading(heading(view, measure))], picture].concat()),
            false => blocks.push(Block::folded(heading(view, measure), picture)),
        }
    }
    blocks.push(Block::Table(pairs::standings(view)));
    blocks.push(Block::Table(pairs::pairs(view)));
    blocks
}

fn how_to_read(view: &PairsView) -> String {
    let several =
        if view.host_count() > 1 { " Same host and different hosts are each compared with their own." } else { "" };
    let by_host = match members(view).len() < view.ranks.len() {
        true => " Rows and columns are hosts; a cell is the worst pair of ranks of the two.",
        false => "",
    };
    format!(
        "100 % is the median of all pairs of the same locality. Less is worse, also for latency; grey is as the others, and the \
         colours mean the same in every report.{several}{by_host} A slow row is a rank or host that is slow with everybody, a single \
         slow cell a path."
    )
}

/// The measure of the slowest pair; without one the rate of one direction, else what there is.
fn worst_measure(view: &PairsView) -> Measure {
    let first = view.slow.first().map(|slow| slow.measure);
    let has = |measure: &Measure| view.middles.iter().any(|locality| locality[*measure as usize].is_some());
    first.unwrap_or_else(|| [Measure::OneWay, Measure::BothWays].into_iter().find(has).unwrap_or(Measure::Latency))
}

fn heading(view: &PairsView, measure: Measure) -> String {
    let bytes = if measure == Measure::Latency { view.latency_bytes } else { view.bandwidth_bytes };
    format!("{}, {bytes}", measure.name())
}

/// One row of a picture.
struct Member {
    label: String,
    node: u32,
    ranks: Vec<usize>,
}

fn members(view: &PairsView) -> Vec<Member> {
    let by_host = view.ranks.len() > MAX_RANKS && view.host_count() > 1;
    let mut members: Vec<Member> = Vec::new();
    let mut known: HashMap<u32, usize> = HashMap::new();
    let several = view.host_count() > 1;
    for (index, rank) in view.ranks.iter().enumerate() {
        if let Some(member) = known.get(&rank.node).filter(|_| by_host) {
            members[*member].ranks.push(index);
            continue;
        }
        known.insert(rank.node, members.len());
        let label = match (by_host, several) {
            (true, _) => rank.host.clone(),
            (false, true) => format!("{} · {}", rank.host, rank.rank),
            (false, false) => format!("rank {}", rank.rank),
        };
        members.push(Member { label, node: rank.node, ranks: vec![index] });
    }
    members
}

fn heat_map(
    view: &PairsView,
    measure: Measure,
    members: &[Member],
    spoilt: &HashMap<[u32; 2], Cell>,
    references: &References,
) -> HeatMap {
    let mut member_of = vec![0; view.ranks.len()];
    for (index, member) in members.iter().enumerate() {
        member.ranks.iter().for_each(|rank| member_of[*rank] = index);
    }
    // Where only pairs between hosts were planned, cells within a host are not missing.
    let within = view.pairs.iter().any(|pair| pair.locality == PairLocality::SameHost);
    let ranks = view.ranks.len() as u64;
    // Where only some pairs of ranks were planned, the others are not missing.
    let all_meet = members.len() < view.ranks.len() || view.pairs_planned >= ranks * ranks.saturating_sub(1) / 2;
    let blank = if all_meet { Cell::NotMeasured } else { Cell::Nothing };
    let mut cells = vec![vec![blank; members.len()]; members.len()];
    for (index, member) in members.iter().enumerate() {
        if member.ranks.len() == 1 || !within {
            cells[index][index] = Cell::Nothing;
        }
    }
    let mut hovers = vec![vec![String::new(); members.len()]; members.len()];
    let few = members.len() <= MAX_RANKS;
    for pair in &view.pairs {
        let (a, b) = (member_of[pair.a], member_of[pair.b]);
        let value = pair.values[measure as usize];
        let spoilt = spoilt.get(&[view.ranks[pair.a].rank, view.ranks[pair.b].rank]).copied();
        let percent = value.map(|value| measure.goodness(value.percent)).filter(|percent| percent.is_finite());
        let Some(cell) = percent.map(Cell::Percent).or(spoilt) else { continue };
        if cells[a][b].worse(cell) == cells[a][b] {
            continue;
        }
        let shown = value.map_or_else(String::new, |value| format!(": {}", measure.shown(value.value)));
        let share = references.share(view, pair, measure).filter(|_| few);
        let share = share.map_or_else(String::new, |share| format!(", {share}"));
        let hover = format!("{}, {}{shown}{share}", members[a].label, members[b].label);
        (cells[a][b], cells[b][a]) = (cell, cell);
        (hovers[a][b], hovers[b][a]) = (hover.clone(), hover);
    }
    let begins = (1..members.len())
        .filter(|index| members[*index].node != members[index - 1].node && members.len() == view.ranks.len());
    let begins = begins.collect();
    let reference = "the median".to_owned();
    let title = format!("{}, % of {reference}", measure.name());
    let slow = view.slow.iter().filter(|slow| slow.measure == measure).count();
    let description =
        format!("{}; {}. The worst pairs are in the table below.", view.sentence(), counted(slow, "slow pair"));
    let labels = members.iter().map(|member| member.label.clone()).collect();
    HeatMap { title, description, reference, labels, cells, hovers, begins }
}

/// Pairs of rounds that failed or received wrong data.
fn spoilt_pairs(run: &HtmlRun) -> HashMap<[u32; 2], Cell> {
    let mut spoilt = HashMap::new();
    let of_pairs = |line: &&CaseLine| {
        run.record.plan.cases.get(line.case as usize).is_some_and(|facts| facts.style == Style::Pairs)
    };
    for line in run.record.cases.iter().filter(of_pairs) {
        let cell = match &line.outcome {
            outcome if outcome.is_wrong() => Cell::Wrong,
            Outcome::Failed { .. } => Cell::Failed,
            _ => continue,
        };
        for (a, b) in line.pairs.iter().flat_map(|pairs| pairs.rank_a.iter().zip(&pairs.rank_b)) {
            let old = spoilt.entry([*a.min(b), *a.max(b)]).or_insert(cell);
            *old = old.worse(cell);
        }
    }
    spoilt
}
