//! Pairs of ranks as heat maps in per cent of the median of their locality, so that a healthy machine is calm: by rank or, where
//! there are many, by host. One measure is open, the worst, often on the first screen; the others are folded.

use super::page::HtmlRun;
use crate::chart::{Cell, HeatMap};
use crate::report::document::{Block, Figure};
use crate::report::pairs::{self, Measure, MemberKind, Pair, PairLocality, PairsView};
use commgauge_base::stats::{median, sorted};
use commgauge_base::units::{Bytes, counted};
use commgauge_judge::verdict::{Metric, Verdict};
use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome};
use commgauge_model::workload::Style;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of rows of a picture; beyond it neighbours are merged.
const MAX_ROWS: usize = 64;

/// Up to this many ranks each row is a rank.
const MAX_RANKS: usize = 32;

/// The section; `map` is the picture of the worst measure unless the first screen has it.
pub(super) fn blocks(run: &HtmlRun, verdict: Option<&Verdict>, map: Vec<Block>) -> Vec<Block> {
    let Some(view) = &run.view.pairs else { return Vec::new() };
    let references = References::of(run, view, verdict);
    let mut blocks = vec![Block::text(view.sentence())];
    blocks.extend(pairs::localities(view, |locality, measure| references.cell(view, locality, measure)));
    let pictures = Pictures::of(run, view, references);
    let worst = worst_measure(view);
    blocks.extend(map);
    for measure in Measure::ALL.into_iter().filter(|measure| *measure != worst) {
        blocks.push(Block::folded(heading(view, measure), pictures.of_measure(measure)));
    }
    blocks.extend(pairs::tables(view));
    blocks
}

/// Which pair is slow, the picture of the worst measure, and how it is read.
pub(super) fn worst(run: &HtmlRun, verdict: Option<&Verdict>) -> Vec<Block> {
    let Some(view) = &run.view.pairs else { return Vec::new() };
    let pictures = Pictures::of(run, view, References::of(run, view, verdict));
    let picture = pictures.of_measure(worst_measure(view));
    let slow = view.findings().into_iter().find(|text| text.starts_with("ranks "));
    let slow = slow.unwrap_or_else(|| "No pair of ranks is called slow.".to_owned());
    let answer = vec![Block::Strong(slow), Block::heading(heading(view, worst_measure(view)))];
    [answer, picture, vec![Block::text(how_to_read(view))]].concat()
}

/// What all heat maps of a run are drawn from.
struct Pictures<'a> {
    view: &'a PairsView,
    rows: Vec<Member>,
    spoilt: HashMap<[u32; 2], Cell>,
    references: References,
}

impl<'a> Pictures<'a> {
    fn of(run: &HtmlRun, view: &'a PairsView, references: References) -> Pictures<'a> {
        Pictures { view, rows: members(view), spoilt: spoilt_pairs(run), references }
    }

    fn of_measure(&self, measure: Measure) -> Vec<Block> {
        let (map, block) = self.heat_map(measure).gathered(MAX_ROWS);
        let merged = format!("One row shows {block} neighbouring hosts, and a cell the worst of their pairs.");
        let merged = (block > 1).then(|| Block::text(merged));
        let name = map.title.clone();
        merged.into_iter().chain([Block::Charts(vec![Figure::wide(&name, map.draw())])]).collect()
    }

    fn heat_map(&self, measure: Measure) -> HeatMap {
        let Pictures { view, rows: members, spoilt, references } = self;
        let member_of = view.member_of(members.iter().map(|member| &member.ranks));
        // Where only pairs between hosts were planned, cells within a host are not missing.
        let within = view.pairs.iter().any(|pair| pair.locality == PairLocality::SameHost);
        let ranks = view.ranks.len() as u64;
        // Where only some pairs of ranks were planned, the others are not missing.
        let all_ranks_meet = view.pairs_planned >= ranks * ranks.saturating_sub(1) / 2;
        let all_meet = !view.screened && (members.len() < view.ranks.len() || all_ranks_meet);
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
            let percent = value.map(|value| measure.speed(value.percent)).filter(|percent| percent.is_finite());
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
    format!("{}, {}", measure.name(), view.message(measure))
}

/// One row of a picture.
struct Member {
    label: String,
    node: u32,
    ranks: Vec<usize>,
}

fn members(view: &PairsView) -> Vec<Member> {
    let several = view.host_count() > 1;
    let kind = if view.ranks.len() > MAX_RANKS && several { MemberKind::Host } else { MemberKind::Rank };
    let member = |ranks: Vec<usize>| {
        let first = &view.ranks[ranks[0]];
        let label = match (kind, several) {
            (MemberKind::Host, _) => first.host.clone(),
            (MemberKind::Rank, true) => format!("{} · {}", first.host, first.rank),
            (MemberKind::Rank, false) => format!("rank {}", first.rank),
        };
        Member { label, node: first.node, ranks }
    };
    view.members(kind).into_iter().map(member).collect()
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

// References of pairs of ranks besides the median of their locality: the expectation of the machine file, else the bound of its links. All
// pairs of a measure and locality have the same kind. A machine that is slow everywhere is calm in a picture that is relative to its own
// median; these shares show it.

/// What a pair can be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
enum Kind {
    /// The limit that the machine file sets.
    #[strum(serialize = "what is expected")]
    Expected,
    /// What the links of the machine file allow.
    #[strum(serialize = "the bound of the links")]
    Bound,
}

/// Which measure and which two ranks, the lower first.
type Key = (usize, u32, u32);

/// The references of a run's pairs.
pub(super) struct References {
    kinds: [[Option<Kind>; 3]; 2],
    expected: HashMap<Key, f64>,
    bounds: HashMap<Key, f64>,
}

impl References {
    /// The references from the limits of the verdict and the bounds of the plan.
    pub fn of(run: &HtmlRun, view: &PairsView, verdict: Option<&Verdict>) -> References {
        let rows = verdict.into_iter().flat_map(|verdict| &verdict.rows);
        let limits: BTreeMap<&str, (Metric, f64)> = rows
            .filter_map(|row| Some((row.name.as_str(), row.against_limit.as_ref()?)))
            .map(|(name, limit)| (name, (limit.metric, limit.limit)))
            .collect();
        let mut references = References { kinds: [[None; 3]; 2], expected: HashMap::new(), bounds: HashMap::new() };
        let node_of: HashMap<u32, u32> = view.ranks.iter().map(|rank| (rank.rank, rank.node)).collect();
        for line in &run.record.cases {
            let facts = run.record.plan.cases.get(line.case as usize).filter(|facts| facts.style == Style::Pairs);
            let (Some(facts), Some(pairs)) = (facts, &line.pairs) else { continue };
            let measure = Measure::of(facts, view.latency_bytes);
            let limit = limits
                .get(facts.name.as_str())
                .and_then(|(metric, limit)| on_measure(measure, facts.bytes_total, *metric, *limit));
            let bound = facts.bound_bytes_per_second.filter(|_| measure != Measure::Latency).map(|bound| bound.0);
            for (a, b) in pairs.rank_a.iter().zip(&pairs.rank_b).map(|(a, b)| (*a.min(b), *a.max(b))) {
                // The bound of a round in which some pairs cross the network does not apply to those that do not.
                if (node_of.get(&a) == node_of.get(&b)) != stays_inside(facts) {
                    continue;
                }
                let key = (measure as usize, a, b);
                references.expected.extend(limit.map(|limit| (key, limit)));
                references.bounds.extend(bound.map(|bound| (key, bound)));
            }
        }
        for locality in PairLocality::ALL {
            for measure in Measure::ALL {
                references.kinds[locality as usize][measure as usize] = references.kind(view, locality, measure);
            }
        }
        references
    }

    /// The first kind that every pair has.
    fn kind(&self, view: &PairsView, locality: PairLocality, measure: Measure) -> Option<Kind> {
        let with_value =
            || view.pairs.iter().filter(|pair| pair.locality == locality && pair.values[measure as usize].is_some());
        let all_in = |known: &HashMap<Key, f64>| {
            with_value().next().is_some() && with_value().all(|pair| known.contains_key(&key(view, pair, measure)))
        };
        match () {
            () if all_in(&self.expected) => Some(Kind::Expected),
            () if all_in(&self.bounds) => Some(Kind::Bound),
            () => None,
        }
    }

    fn reference(&self, view: &PairsView, pair: &Pair, measure: Measure) -> Option<f64> {
        let known = match self.kinds[pair.locality as usize][measure as usize]? {
            Kind::Expected => &self.expected,
            Kind::Bound => &self.bounds,
        };
        known.get(&key(view, pair, measure)).copied()
    }

    /// The value of a pair in per cent of its reference, less is worse, with what that is: `85 % of what is expected`.
    pub fn share(&self, view: &PairsView, pair: &Pair, measure: Measure) -> Option<String> {
        let kind = self.kinds[pair.locality as usize][measure as usize]?;
        Some(format!("{:.0} % of {}", self.percent(view, pair, measure)?, kind.name()))
    }

    fn percent(&self, view: &PairsView, pair: &Pair, measure: Measure) -> Option<f64> {
        let value = pair.values[measure as usize]?.value;
        let reference = self.reference(view, pair, measure)?;
        Some(measure.speed(100.0 * value / reference)).filter(|percent| percent.is_finite())
    }

    /// For a table: the median of the pairs' shares and what they are shares of, with its number where that is the same for all.
    pub fn cell(&self, view: &PairsView, locality: PairLocality, measure: Measure) -> Option<String> {
        let pairs = || view.pairs.iter().filter(|pair| pair.locality == locality);
        let shares = sorted(pairs().filter_map(|pair| self.percent(view, pair, measure)));
        let kind = self.kinds[locality as usize][measure as usize];
        let (kind, share) = kind.zip(median(&shares))?;
        let mut values = pairs().filter_map(|pair| self.reference(view, pair, measure));
        let first = values.next().filter(|first| values.all(|value| value == *first));
        let number = first.map_or_else(String::new, |value| format!(", {}", measure.shown(value)));
        Some(format!("{share:.0} % of {}{number}", kind.name()))
    }
}

commgauge_base::error::names!(Kind);

fn key(view: &PairsView, pair: &Pair, measure: Measure) -> Key {
    let (a, b) = (view.ranks[pair.a].rank, view.ranks[pair.b].rank);
    (measure as usize, a.min(b), a.max(b))
}

fn stays_inside(facts: &CaseFacts) -> bool {
    facts.locality.is_known() && facts.locality.nodes_spanned <= 1
}

/// A limit of a call as one of what is shown of pairs: seconds of a message, or bytes per second.
fn on_measure(measure: Measure, bytes: Bytes, metric: Metric, limit: f64) -> Option<f64> {
    let other = || (limit > 0.0 && bytes.0 > 0).then(|| bytes.0 as f64 / limit);
    match (measure, metric) {
        (Measure::Latency, Metric::LatencySeconds) => Some(limit),
        (Measure::Latency, Metric::BusBandwidthBytesPerSecond) => other(),
        (_, Metric::BusBandwidthBytesPerSecond) => Some(limit),
        (_, Metric::LatencySeconds) => other(),
        (_, Metric::CopyBytesPerSecond | Metric::FlopsPerSecond) => None,
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::report::View;
    use crate::report::pairs::tests::{healthy, record};
    use commgauge_base::units::Rate;

    /// Eight ranks on two hosts; the rounds with these indices among the cases carry a bound.
    fn with_bounds(carries: impl Fn(&CaseFacts) -> bool, locality_of_hosts: u32) -> (PairsView, References) {
        let mut record = record(8, 4, healthy);
        for facts in &mut record.plan.cases {
            facts.locality.nodes_spanned = locality_of_hosts;
            facts.bound_bytes_per_second = carries(facts).then_some(Rate(2e9));
        }
        let view = View::new(&record);
        let pairs = view.pairs.clone().unwrap();
        let run = HtmlRun { name: String::new(), record: &record, view, differences: Vec::new() };
        let references = References::of(&run, &pairs, None);
        (pairs, references)
    }

    #[test]
    fn without_a_bound_or_an_expectation_pairs_have_no_share_but_that_of_the_median() {
        let (view, references) = with_bounds(|_| false, 2);
        for measure in Measure::ALL {
            assert!(view.pairs.iter().all(|pair| references.share(&view, pair, measure).is_none()), "{measure:?}");
            assert_eq!(references.cell(&view, PairLocality::DifferentHosts, measure), None);
        }
    }

    #[test]
    fn a_bound_applies_to_the_pairs_on_its_links_and_never_to_latency() {
        let (view, references) = with_bounds(|_| true, 2);
        let across = view.pairs.iter().find(|pair| pair.locality == PairLocality::DifferentHosts).unwrap();
        let within = view.pairs.iter().find(|pair| pair.locality == PairLocality::SameHost).unwrap();
        let value = across.values[Measure::OneWay as usize].unwrap().value;
        let share = format!("{:.0} % of the bound of the links", 100.0 * value / 2e9);
        assert_eq!(references.share(&view, across, Measure::OneWay), Some(share.clone()));
        assert_eq!(references.share(&view, across, Measure::Latency), None);
        assert_eq!(references.share(&view, within, Measure::OneWay), None, "that link is not between hosts");
        let cell = references.cell(&view, PairLocality::DifferentHosts, Measure::OneWay).unwrap();
        assert!(cell.ends_with(" % of the bound of the links, 2.00 GB/s"), "{cell}");
    }

    #[test]
    fn where_one_round_has_no_bound_no_pair_has_a_share() {
        let (view, references) = with_bounds(|facts| !facts.name.starts_with("pair/round-0/"), 2);
        let mixed = PairLocality::ALL.map(|locality| references.cell(&view, locality, Measure::BothWays));
        assert_eq!(mixed, [None, None]);
    }

    #[test]
    fn limits_of_either_metric_become_those_of_a_measure() {
        let (bytes, time, rate) = (Bytes(1000), Metric::LatencySeconds, Metric::BusBandwidthBytesPerSecond);
        for (measure, metric, limit, shown) in [
            (Measure::Latency, time, 1e-6, Some(1e-6)),
            (Measure::Latency, rate, 1e9, Some(1e-6)),
            (Measure::OneWay, rate, 1e9, Some(1e9)),
            (Measure::BothWays, time, 1e-6, Some(1e9)),
            (Measure::OneWay, time, 0.0, None),
        ] {
            let found = on_measure(measure, bytes, metric, limit);
            assert!(
                found.zip(shown).map_or(found == shown, |(a, b)| (a / b - 1.0).abs() < 1e-9),
                "{measure:?} {found:?}"
            );
        }
    }
}
