//! The expectations of a machine file that apply to a case, and whether its replicates meet the limit.

use super::document::{AgainstLimit, Metric, Subject};
use crate::verdict::Decision;
use commgauge_base::collective::Collective;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::{fewest_for_bound, median, median_bounds, sorted, values_to_decide};
use commgauge_base::units::{Bytes, counted};
use commgauge_base::variant::LABELS;
use commgauge_model::config::machine::{
    ExpectCopyTable, ExpectProductTable, ExpectTable, ExpectedCall, ExpectedGroup, ExpectedWork, Origin,
    OwnWorkExpectation,
};
use commgauge_model::config::{Each, Expectation, HostMemory, Limit, Machine};
use commgauge_model::record::line::CaseFacts;
use commgauge_model::record::work_lines::{CopyShape, ProductShape};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How the calls of a row were submitted, from the labels of variants: settings other than plain calls one after another. nccl-tests has
/// its own names for calls in a group and in a graph.
pub(super) fn variant(facts: &CaseFacts) -> BTreeMap<String, String> {
    let ours = |name: &str| match name {
        "agg_iters" => Some("aggregate"),
        "graph" => Some("submit"),
        _ => LABELS.into_iter().find(|label| *label == name),
    };
    facts.labels.iter().filter_map(|(name, value)| Some((ours(name)?.to_owned(), value.clone()))).collect()
}

/// In words.
pub(super) fn variant_words(variant: &BTreeMap<String, String>) -> String {
    variant.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

/// The expectations of a machine, indexed so that those for a case are found without a linear search. Expectations of copies and products
/// are numbered after those of calls.
pub(super) struct Expected<'a> {
    all: &'a [Expectation],
    own_work: &'a [OwnWorkExpectation],
    /// Expectations of a single size.
    of_size: HashMap<(Place, Bytes), Vec<usize>>,
    /// Expectations of a range of sizes.
    of_range: HashMap<Place, Vec<usize>>,
}

/// Lookup key of expectations.
type Place = (Collective, ExpectedGroup, Cadence);

impl<'a> Expected<'a> {
    /// The expectations of the machine. Figures from one process with a thread per device do not apply to ranks that are processes, as in
    /// commgauge, and logs of other tools do not show which kind their ranks were: nothing is compared with these.
    pub fn new(machine: Option<&'a Machine>) -> Expected<'a> {
        let all = machine.map_or(&[][..], |machine| &machine.expectations);
        let own_work = machine.map_or(&[][..], |machine| &machine.own_work);
        let mut expected = Expected { all, own_work, of_size: HashMap::new(), of_range: HashMap::new() };
        for (index, one) in all.iter().enumerate().filter(|(_, one)| !one.table.one_process) {
            let place = (one.table.collective, one.group, one.table.cadence);
            if one.bytes.0 == one.bytes.1 {
                expected.of_size.entry((place, one.bytes.0)).or_default().push(index);
            } else {
                expected.of_range.entry(place).or_default().push(index);
            }
        }
        expected
    }

    /// The indices of the expectations about a row whose calls had these algorithms.
    pub fn about(&self, subject: Subject, algorithms: Algorithms) -> Vec<usize> {
        let work = |is_about: &dyn Fn(&ExpectedWork) -> bool| {
            let all = self.own_work.iter().enumerate().filter(|(_, expected)| is_about(&expected.work));
            all.map(|(index, _)| self.all.len() + index).collect()
        };
        match subject {
            Subject::Call(facts) => self.about_call(facts, algorithms),
            Subject::Copy(copy) => work(&|expected| is_about_copy(expected, copy)),
            Subject::Product(product) => work(&|expected| is_about_product(expected, product)),
        }
    }

    /// Those about calls of this kind: the same call, group, place, cadence and size.
    fn about_call(&self, facts: &CaseFacts, algorithms: Algorithms) -> Vec<usize> {
        let call = expected_call(facts);
        let place = (call.collective, call.group, call.cadence);
        let candidates = (self.of_size.get(&(place, facts.bytes_total)).into_iter().flatten())
            .chain(self.of_range.get(&place).into_iter().flatten());
        let mut about: Vec<usize> = candidates.copied().filter(|index| self.all[*index].is_about(&call)).collect();
        if !about.is_empty() {
            let variant = variant(facts);
            let mut of_any_algorithm = variant.clone();
            of_any_algorithm.remove("algorithm");
            about.retain(|index| {
                let expected = &self.all[*index];
                match &expected.table.algorithm {
                    Some(name) => expected.table.variant == of_any_algorithm && algorithms.were(name, facts),
                    None => expected.table.variant == variant,
                }
            });
        }
        about.sort_unstable();
        about
    }

    /// The first expectation of plain calls like this, whatever their algorithm.
    pub fn of_any_algorithm(&self, call: &ExpectedCall) -> Option<&'a Expectation> {
        let is_about =
            |one: &&Expectation| one.table.variant.is_empty() && !one.table.one_process && one.is_about(call);
        self.all.iter().find(is_about)
    }

    /// An expectation of a call by its index.
    pub fn of_call(&self, index: usize) -> Option<&'a Expectation> {
        self.all.get(index)
    }

    /// The requirement of an expectation.
    pub fn required(&self, index: usize) -> Required<'a> {
        match self.all.get(index) {
            Some(expected) => Required::of_call(expected),
            None => Required::of_own_work(&self.own_work[index - self.all.len()]),
        }
    }
}

/// A planned call as described in machine files.
pub(super) fn expected_call(facts: &CaseFacts) -> ExpectedCall {
    let CaseFacts { collective, cadence, placement, element_type, bytes_total: bytes, .. } = *facts;
    let group = facts.locality.group(facts.group_size);
    ExpectedCall { collective, group, cadence, placement, element_type, bytes }
}

/// Whether an expectation is about this copy.
fn is_about_copy(expected: &ExpectedWork, copy: &CopyShape) -> bool {
    let ExpectedWork::Copy(ExpectCopyTable { kind, bytes, host_memory, peer_distance, each, .. }) = expected else {
        return false;
    };
    *kind == copy.kind
        && (bytes.0..=bytes.1).contains(&copy.bytes)
        && (*host_memory == copy.host_memory
            || host_memory.is_none() && !copy.host_memory.is_some_and(HostMemory::is_far))
        && (peer_distance.is_none() || *peer_distance == copy.peer_distance)
        && each.is_none_or(|each| (each == Each::Alone) == copy.alone)
}

/// Whether an expectation is about this product.
fn is_about_product(expected: &ExpectedWork, product: &ProductShape) -> bool {
    let ExpectedWork::Product(ExpectProductTable { m, n, k, element_type, .. }) = expected else { return false };
    [*m, *n, *k] == [product.m, product.n, product.k]
        && element_type.is_none_or(|element| element.0 == product.element_type)
}

/// The requirement, and its source.
pub(super) struct Required<'a> {
    metric: Metric,
    limit: f64,
    place: &'a str,
    source: &'a str,
    date: &'a str,
    algorithm: Option<&'a str>,
    version: Option<&'a str>,
}

impl<'a> Required<'a> {
    fn of_call(expected: &'a Expectation) -> Required<'a> {
        let (metric, limit) = match expected.limit {
            Limit::BusBandwidthFloor(rate) => (Metric::BusBandwidthBytesPerSecond, rate.0),
            Limit::LatencyCeiling(time) => (Metric::LatencySeconds, time.0),
        };
        let Expectation { place, table: ExpectTable { source, date, algorithm, version, .. }, .. } = expected;
        Required { metric, limit, place, source, date, algorithm: algorithm.as_deref(), version: version.as_deref() }
    }

    fn of_own_work(expected: &'a OwnWorkExpectation) -> Required<'a> {
        let metric = match expected.work {
            ExpectedWork::Copy(_) => Metric::CopyBytesPerSecond,
            ExpectedWork::Product(_) => Metric::FlopsPerSecond,
        };
        let (place, limit) = (&expected.place, expected.floor_per_second());
        let Origin { source, date, version } = expected.origin();
        Required { metric, limit, place, source, date, algorithm: None, version }
    }

    fn against(&self, values: &[f64], bounds: Option<(f64, f64)>) -> AgainstLimit {
        AgainstLimit {
            metric: self.metric,
            limit: self.limit,
            median: median(values),
            lower_bound: bounds.map(|bounds| bounds.0),
            upper_bound: bounds.map(|bounds| bounds.1),
            place: self.place.to_owned(),
            source: self.source.to_owned(),
            date: self.date.to_owned(),
            algorithm: self.algorithm.map(str::to_owned),
            version: self.version.map(str::to_owned),
        }
    }
}

/// The result of checking a row against one expectation.
pub(super) struct LimitCheck {
    pub decision: Decision,
    /// True if each replicate separately meets the limit.
    pub all_meet_the_limit: bool,
    /// True if their median meets it.
    pub median_meets_the_limit: bool,
    /// Replicates beyond it.
    pub beyond: usize,
    pub reason: String,
    pub replicates_more: Option<u32>,
    pub against: AgainstLimit,
}

/// A row all of whose replicates miss their limit by more than this factor fails, however few they are.
pub(super) const PLAINLY_BEYOND: f64 = 1.5;

/// Compares the replicates' times of one transfer with a limit: a pass only if the lower confidence bound of the median clears it, a fail
/// if the upper bound is beyond it on the bad side. The bounds are order statistics, each with confidence `level`. Too few replicates for
/// bounds fail if each of them is beyond the limit by more than [`PLAINLY_BEYOND`]; a pass always needs bounds.
pub(super) fn check_limit(required: &Required, subject: Subject, seconds: &[f64], level: f64) -> LimitCheck {
    let limit = required.limit;
    let more_is_better = required.metric != Metric::LatencySeconds;
    let values = match subject.rate().filter(|rate| rate.metric == required.metric) {
        Some(rate) => sorted(seconds.iter().map(|time| rate.amount / time)),
        None if more_is_better => Vec::new(),
        None => sorted(seconds.iter().copied()),
    };
    let good = |value: &f64| if more_is_better { *value >= limit } else { *value <= limit };
    let is_plainly_beyond = |value: &f64| match more_is_better {
        true => *value * PLAINLY_BEYOND < limit,
        false => *value > limit * PLAINLY_BEYOND,
    };
    let bounds = median_bounds(&values, level);
    let (count, agreeing) = (values.len(), values.iter().filter(|value| good(value)).count());
    let decision = match bounds {
        Some((low, high)) if good(&low) && good(&high) => Decision::Pass,
        Some((low, high)) if !good(&low) && !good(&high) => Decision::Fail,
        _ if count > 0 && values.iter().all(is_plainly_beyond) => Decision::Fail,
        _ => Decision::Inconclusive,
    };
    let majority = agreeing.max(count - agreeing);
    let needed = values_to_decide(count, majority, level);
    let (reason, replicates_more) = match decision {
        Decision::Pass => (String::new(), None),
        Decision::Fail if bounds.is_none() => {
            let all =
                if count == 1 { "the only replicate is".to_owned() } else { format!("all {count} replicates are") };
            (format!("{all} beyond the threshold by more than a factor of {PLAINLY_BEYOND}"), None)
        }
        Decision::Fail => (format!("{} of {count} replicates are beyond the threshold", count - agreeing), None),
        _ => undecided(count, agreeing, needed, level),
    };
    let against = required.against(&values, bounds);
    LimitCheck {
        decision,
        all_meet_the_limit: count > 0 && agreeing == count,
        median_meets_the_limit: against.median.is_some_and(|median| good(&median)),
        beyond: count - agreeing,
        reason,
        replicates_more,
        against,
    }
}

fn undecided(count: usize, agreeing: usize, needed: Option<usize>, level: f64) -> (String, Option<u32>) {
    let more = needed.map(|needed| needed.saturating_sub(count) as u32);
    let fewest = fewest_for_bound(level);
    let advice = match more {
        Some(more) => format!("about {more} more replicates would decide if they fall as these did"),
        None => "no reasonable number of replicates will decide: the median is at the threshold".to_owned(),
    };
    let reason = match count {
        0 => "no measurement is comparable with the threshold".to_owned(),
        _ if count < fewest => {
            format!("no bound from {}, at least {fewest} are needed; {advice}", counted(count, "replicate"))
        }
        _ => format!("{agreeing} of {count} replicates meet the threshold; {advice}"),
    };
    (reason, more)
}

// Whether a call is known to have used the algorithm of an expected value.
//
// NCCL and RCCL choose the algorithm themselves, by version, size and nodes, and figures of two algorithms for one call differ by 20 %
// (ring and NVLSTree on four nodes). So an algorithm counts only if the record has it: as the choice that the library logged, or as the
// only one that `--algorithm` or `NCCL_ALGO` left it, for all calls or call by call (`allreduce:tree,ring;broadcast:ring`; NCCL user guide,
// "Environment Variables"). For other libraries it is unknown.

/// A record's facts about the algorithm of a call.
#[derive(Clone, Copy)]
pub(super) struct Algorithms<'a> {
    /// Variables of the run, if any.
    pub environment: Option<&'a BTreeMap<String, String>>,
    /// The library's choices in the replicates.
    pub chosen: &'a BTreeSet<String>,
}

impl Algorithms<'_> {
    /// Whether all replicates of a call used the algorithm (its first word, ignoring case).
    pub fn were(&self, algorithm: &str, facts: &CaseFacts) -> bool {
        let wanted = first_word(algorithm);
        if !self.chosen.is_empty() {
            return self.chosen.iter().all(|chosen| is_same(&first_word(chosen), &wanted));
        }
        let list = match facts.labels.get("algorithm") {
            Some(forced) => Some(forced.as_str()),
            None => {
                self.environment.and_then(|all| all.get("NCCL_ALGO")).and_then(|all| list_for(all, facts.collective))
            }
        };
        let mut names = list.into_iter().flat_map(|list| list.split(',')).map(first_word).peekable();
        let excludes = list.is_some_and(|list| list.starts_with('^'));
        !excludes && names.peek().is_some() && names.all(|name| is_same(&name, &wanted))
    }
}

/// The list that applies to a collective: the one after its name, or the one without a name.
fn list_for(value: &str, collective: Collective) -> Option<&str> {
    use Collective::{AllGather, AllReduce, Broadcast, Reduce, ReduceScatter};
    let has_choice = matches!(collective, AllReduce | AllGather | ReduceScatter | Broadcast | Reduce);
    let function = has_choice.then(|| collective.name().replace('_', ""))?;
    let parts = || value.split(';').map(str::trim).filter(|part| !part.is_empty());
    let own = parts().find_map(|part| part.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case(&function)));
    own.map(|(_, list)| list).or_else(|| parts().find(|part| !part.contains(':')))
}

/// `CollNet` means either of its two kinds.
fn is_same(named: &str, wanted: &str) -> bool {
    named == wanted || (named.starts_with("collnet") && wanted == "collnet")
}

/// `NVLSTree`, `nvls-tree` and `NVLS_TREE` are one.
fn first_word(text: &str) -> String {
    let is_of_word = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let word = text.trim().chars().take_while(is_of_word).filter(char::is_ascii_alphanumeric);
    word.collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {

    use super::super::testing::lines;
    use super::*;
    use commgauge_model::config::CopyKind;
    use commgauge_model::record::Line;
    use std::path::Path;

    fn facts(collective: Collective, label: Option<&str>) -> CaseFacts {
        let plan = lines("a", &[vec![1.0]]).into_iter().find_map(|line| match line {
            Line::Plan(plan) => Some(plan),
            _ => None,
        });
        let facts = plan.expect("a plan").cases.remove(0);
        let labels = label.map(|name| ("algorithm".to_owned(), name.to_owned())).into_iter().collect();
        CaseFacts { collective, labels, ..facts }
    }

    #[test]
    fn a_copy_with_far_memory_is_judged_only_by_a_table_that_names_it() {
        let links = "name = 'm'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n\
            [between_nodes]\nlatency = '14us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n";
        let copy = |host_memory| CopyShape {
            kind: CopyKind::HostToDevice,
            host_memory: Some(host_memory),
            peer_distance: None,
            bytes: Bytes(1 << 20),
            alone: true,
        };
        for (key, judged) in [
            ("", &[HostMemory::Pinned, HostMemory::Pageable][..]),
            ("host_memory = 'pinned'\n", &[HostMemory::Pinned]),
            ("host_memory = 'pageable_far'\n", &[HostMemory::PageableFar]),
        ] {
            let table = "[[expect_copy]]\nkind = 'host-to-device'\nbytes = '1MiB'\nvalue = '50GB/s'\nsource = 's'\ndate = '2026'\n";
            let machine = Machine::parse(&format!("{links}{table}{key}"), Path::new("m.toml")).expect("it reads");
            let is_judged = |memory: &HostMemory| is_about_copy(&machine.own_work[0].work, &copy(*memory));
            let all = [HostMemory::Pinned, HostMemory::Pageable, HostMemory::PinnedFar, HostMemory::PageableFar];
            assert_eq!(all.into_iter().filter(is_judged).collect::<Vec<_>>(), judged, "{key}");
        }
    }

    #[test]
    fn a_call_has_an_algorithm_only_where_the_record_says_so() {
        use Collective::{AllReduce, Broadcast};
        for (collective, variable, label, chosen, algorithm, had) in [
            (AllReduce, None, None, &[][..], "Ring", false),
            (AllReduce, Some("Ring"), None, &[], "ring", true),
            (AllReduce, Some("Ring"), None, &[], "NVLS", false),
            (AllReduce, Some("tree,ring"), None, &[], "Ring", false),
            (AllReduce, Some("^nvls"), None, &[], "Ring", false),
            (AllReduce, Some("allreduce:tree;broadcast:ring"), None, &[], "Ring", false),
            (Broadcast, Some("allreduce:tree;broadcast:ring"), None, &[], "Ring", true),
            (AllReduce, Some("collnetdirect"), None, &[], "CollNet (SHARP)", true),
            (AllReduce, Some(""), None, &[], "Ring", false),
            (AllReduce, None, Some("NVLSTree"), &[], "NVLSTree", true),
            (AllReduce, None, Some("NVLSTree"), &[], "NVLS", false),
            (AllReduce, None, None, &["nvls-tree"], "NVLSTree", true),
            (AllReduce, None, None, &["ring"], "NVLSTree", false),
            (AllReduce, None, None, &["ring", "nvls-tree"], "Ring", false),
            (AllReduce, Some("Ring"), None, &["symmetric"], "Ring", false),
        ] {
            let environment = variable.map(|value| BTreeMap::from([("NCCL_ALGO".to_owned(), value.to_owned())]));
            let chosen = chosen.iter().map(|name| (*name).to_owned()).collect();
            let known = Algorithms { environment: environment.as_ref(), chosen: &chosen };
            assert_eq!(
                known.were(algorithm, &facts(collective, label)),
                had,
                "{collective}, {variable:?}, {label:?}, {chosen:?}: {algorithm}"
            );
        }
    }
}
