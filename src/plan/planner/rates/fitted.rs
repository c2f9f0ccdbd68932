//! Times from a fit, for any place: as measured, or extrapolated from the nearest place and marked.

use super::{Hidden, Published, RatedCall, Rates, stand_in};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::writing::ascending;
use commgauge_cost::cost::sharing::Scaling;
use commgauge_cost::cost::{
    BothWays, Coefficient, Fit, Labels, LoneCall, Place, PlaceQuery, Prediction, Predictor, Status, sharing,
};
use commgauge_model::layout::Locality;
use std::collections::HashMap;

/// A fit that answers for any place.
#[derive(Debug)]
pub struct Fitted<'a> {
    fit: &'a Fit,
    name: String,
    predictor: Predictor<'a>,
    candidates: HashMap<(Kind, Cadence), Vec<Candidate>>,
    elements: HashMap<Collective, Vec<ElementType>>,
    unknown: Option<PlaceQuery>,
    hidden: Hidden,
}

/// The curves behind an answer.
struct Chosen<'c> {
    kind: Kind,
    candidates: &'c [Candidate],
    source: Source,
    /// Whether the answer needs no extrapolation.
    exact: bool,
}

/// How an answer is derived from the curves.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Source {
    /// From one family, for this many ranks.
    One { index: usize, ranks: u32 },
    /// From two numbers of hosts with equally many ranks on each.
    Between { indices: [usize; 2], ranks: [u32; 2] },
}

impl<'a> Fitted<'a> {
    /// Rates of a fit; `name` is its file. `unknown` is the user's placement for groups whose records lack it; without it such curves give
    /// no answer.
    pub fn new(fit: &'a Fit, name: &str, unknown: Option<PlaceQuery>) -> Fitted<'a> {
        let mut candidates: HashMap<(Kind, Cadence), Vec<Candidate>> = HashMap::new();
        let mut elements: HashMap<Collective, Vec<ElementType>> = HashMap::new();
        for (family, of) in fit.families.iter().enumerate() {
            let kind = Kind { collective: of.key.collective, element_type: of.key.element_type };
            let mut ranks: Vec<u32> = of.curves.iter().map(|curve| curve.ranks).collect();
            ranks.sort_unstable();
            let (lone, labels) = (of.lone.clone(), of.key.labels.clone());
            let candidate = Candidate { family, place: of.key.place, ranks, lone, labels };
            candidates.entry((kind, of.key.cadence)).or_default().push(candidate);
            let known = elements.entry(kind.collective).or_default();
            known.extend(kind.element_type.filter(|element| !known.contains(element)));
        }
        candidates.values_mut().for_each(usual_only);
        let (predictor, hidden) = (Predictor::new(fit), Hidden::of(fit));
        Fitted { fit, name: name.to_owned(), predictor, candidates, elements, unknown, hidden }
    }

    /// The curves for a call; `None` if none is near enough.
    fn chosen(&self, call: &RatedCall) -> Option<Chosen<'_>> {
        let place = Place::of(&call.locality);
        for collective in [Some(call.collective), stand_in(call.collective)].into_iter().flatten() {
            let Some(measured) = self.elements.get(&collective) else { continue };
            let own = collective.reduces().then_some(call.element_type);
            let other = own.and_then(|element| similar_type(element, measured)).filter(|other| Some(*other) != own);
            for element_type in [Some(own), other.map(Some)].into_iter().flatten() {
                let kind = Kind { collective, element_type };
                let Some(candidates) = self.of_kind(kind, call.cadence) else { continue };
                if let Some((source, same_place)) = self.source(candidates, call, place) {
                    let exact = same_place && collective == call.collective && element_type == own;
                    return Some(Chosen { kind, candidates, source, exact });
                }
            }
        }
        None
    }

    fn of_kind(&self, kind: Kind, cadence: Option<Cadence>) -> Option<&[Candidate]> {
        let of = |cadence| self.candidates.get(&(kind, cadence)).map(Vec::as_slice);
        match cadence {
            Some(cadence) => of(cadence),
            None => of(Cadence::Streaming).or_else(|| of(Cadence::Isolated)),
        }
    }

    /// The candidates from which the place is derived, and whether it is the same place.
    fn source(&self, candidates: &[Candidate], call: &RatedCall, place: Place) -> Option<(Source, bool)> {
        let user_stated = |other: &Place| {
            other.nodes_spanned == 0 && self.unknown.as_ref().is_some_and(|stated| place.matches_query(stated))
        };
        let one = |index: usize| Source::One { index, ranks: ranks_for(&candidates[index], call) };
        let answers =
            |index: &usize| candidates[*index].answers(ranks_for(&candidates[*index], call), call.bytes_total);
        let same = |index: &usize| {
            let other = candidates[*index].place;
            (other == place && place.nodes_spanned > 0) || user_stated(&other)
        };
        if let Some(index) = (0..candidates.len()).filter(same).find(answers) {
            return Some((one(index), true));
        }
        let is_message = is_message(call.collective);
        let comparable = |other: &Candidate| match other.place.nodes_spanned {
            0 => false,
            nodes if is_message => (nodes > 1) == (place.nodes_spanned > 1),
            nodes => nodes == place.nodes_spanned,
        };
        let on_as_many =
            (0..candidates.len()).filter(|index| place.nodes_spanned > 0 && comparable(&candidates[*index]));
        if let Some(index) = nearest_groups(on_as_many.filter(answers), candidates, place) {
            return Some((one(index), false));
        }
        between(candidates, call, place).map(|source| (source, false))
    }

    fn read(&self, chosen: &Chosen, call: &RatedCall) -> Prediction {
        let one = |index: usize, ranks: u32, bytes: Bytes| {
            let candidate = &chosen.candidates[index];
            let answer = self.predictor.predict_by(candidate.family, ranks, bytes);
            let sharing = self.sharing(candidate, ranks, bytes, call);
            answer.times([sharing.low, sharing.middle, sharing.high])
        };
        match chosen.source {
            Source::One { index, ranks } => one(index, ranks, call.bytes_total),
            Source::Between { indices, ranks } => {
                let at = |which: usize, bytes: f64| one(indices[which], ranks[which], whole(bytes));
                carried(ranks, call.ranks, call.bytes_total.0 as f64, at)
            }
        }
    }

    /// The slowdown by the call's number of groups on a host: as fitted, else the maximum possible.
    fn sharing(&self, candidate: &Candidate, ranks: u32, bytes: Bytes, call: &RatedCall) -> Sharing {
        let (measured, requested) =
            (candidate.place.concurrent_groups_per_node, call.locality.concurrent_groups_per_node);
        if candidate.place.nodes_spanned == 0 || measured == requested {
            return Sharing::SAME;
        }
        match self.predictor.slower(candidate.family, ranks, bytes, requested) {
            Some(slower) => Sharing { low: slower.low, middle: slower.middle, high: slower.high },
            None => Sharing::unknown(measured, requested),
        }
    }

    fn refusal(&self, call: &RatedCall) -> String {
        let place = Place::of(&call.locality);
        let of_call = |family: &&commgauge_cost::cost::FamilyFit| {
            [Some(call.collective), stand_in(call.collective)].contains(&Some(family.key.collective))
        };
        // Curves that differ only in their type read alike.
        let there: Vec<String> = ascending(self.fit.families.iter().filter(of_call).map(describe));
        if there.is_empty() {
            return format!("{} was not measured", call.collective);
        }
        let unknown = self.fit.families.iter().filter(of_call).any(|family| family.key.place.nodes_spanned == 0);
        let hint = match (&self.unknown, unknown) {
            (None, true) => "; for groups of unknown locality, give their place with --unknown-locality",
            _ => "",
        };
        let shown = if there.len() > 6 { 6 } else { there.len() };
        let more = if there.len() > shown { format!(" and {} more", there.len() - shown) } else { String::new() };
        format!(
            "{} of {} ranks at {place} was not measured, nor near enough; measured: {}{more}{hint}",
            call.collective,
            call.ranks,
            there[..shown].join("; ")
        )
    }
}

impl Chosen<'_> {
    /// Why not exactly one curve answers: several in the same place differ in a label, such as an algorithm.
    fn ambiguous(&self) -> Option<String> {
        let indices = match self.source {
            Source::One { index, .. } => [index, index],
            Source::Between { indices, .. } => indices,
        };
        let same = |index: usize| {
            let place = self.candidates[index].place;
            self.candidates.iter().filter(move |candidate| candidate.place == place)
        };
        let index = indices.into_iter().find(|index| same(*index).nth(1).is_some())?;
        let labels: Vec<String> = same(index).map(|candidate| format!("{:?}", candidate.labels)).collect();
        Some(format!(
            "{} at {} was measured in several ways ({}); fit the records of one of them",
            self.kind.collective,
            self.candidates[index].place,
            labels.join("; ")
        ))
    }
}

fn describe(family: &commgauge_cost::cost::FamilyFit) -> String {
    let lone = family.lone.iter().map(|call| format!("{} (at {})", call.ranks, call.bytes_total));
    let ranks: Vec<String> = family.curves.iter().map(|curve| curve.ranks.to_string()).chain(lone).collect();
    format!("{} of {} ranks at {}", family.key.collective, ranks.join(", "), family.key.place)
}

/// The group size for a query to a family: that of the call, or for messages the nearest measured one.
fn ranks_for(candidate: &Candidate, call: &RatedCall) -> u32 {
    if !is_message(call.collective) {
        return call.ranks;
    }
    let lone = candidate.lone.iter().filter(|lone| lone.bytes_total == call.bytes_total).map(|lone| lone.ranks);
    let measured = candidate.ranks.iter().copied().chain(lone);
    measured.min_by_key(|ranks| ranks.abs_diff(call.ranks)).unwrap_or(call.ranks)
}

/// Two numbers of hosts with as many ranks on each as in the call, next to its own.
fn between(candidates: &[Candidate], call: &RatedCall, place: Place) -> Option<Source> {
    let nodes = place.nodes_spanned;
    if nodes < 2 || !call.ranks.is_multiple_of(nodes) {
        return None;
    }
    let per_node = call.ranks / nodes;
    // At most one for each number of hosts; there are few.
    let best_on = |hosts: u32| {
        let fits = |index: &usize| {
            let candidate = &candidates[*index];
            candidate.place.nodes_spanned == hosts && candidate.ranks.contains(&(hosts * per_node))
        };
        nearest_groups((0..candidates.len()).filter(fits), candidates, place)
    };
    let mut below: Vec<(u32, usize)> = Vec::new();
    for candidate in candidates.iter().filter(|candidate| candidate.place.nodes_spanned > 1) {
        let hosts = candidate.place.nodes_spanned;
        if below.iter().all(|(known, _)| *known != hosts * per_node)
            && let Some(index) = best_on(hosts)
        {
            below.push((hosts * per_node, index));
        }
    }
    below.sort_unstable();
    let sizes: Vec<u32> = below.iter().map(|(ranks, _)| *ranks).collect();
    let (a, b) = sharing::neighbours(&sizes, call.ranks)?;
    Some(Source::Between { indices: [below[a].1, below[b].1], ranks: [sizes[a], sizes[b]] })
}

/// The answer for `ranks` from those for two other group sizes, by the steps of a ring. If the levels of a tree give
/// another result, the difference widens the interval.
fn carried(measured: [u32; 2], ranks: u32, bytes: f64, at: impl Fn(usize, f64) -> Prediction) -> Prediction {
    let by = |scaling: Scaling, end: fn(&Prediction) -> Option<Seconds>| {
        let nothing = std::cell::Cell::new(false);
        let seconds = sharing::seconds(scaling, measured, ranks, bytes, |which, bytes| {
            end(&at(which, bytes)).map_or_else(
                || {
                    nothing.set(true);
                    f64::NAN
                },
                |seconds| seconds.0,
            )
        });
        (!nothing.get() && seconds.is_finite()).then_some(seconds)
    };
    let ends = [at(0, bytes), at(1, bytes)];
    let (Some(ring), Some(tree)) =
        (by(Scaling::Ring, |answer| answer.seconds), by(Scaling::Tree, |answer| answer.seconds))
    else {
        let reason = ends.iter().find_map(|answer| answer.reason.clone());
        return Prediction::refused(reason.unwrap_or_else(|| "too far from what was measured".to_owned()));
    };
    let forms = (ring / tree).max(tree / ring);
    let inside = measured[0] < ranks && ranks < measured[1];
    Prediction {
        seconds: Some(Seconds(ring)),
        low: by(Scaling::Ring, |answer| answer.low).map(|low| Seconds(low.min(ring) / forms)),
        high: by(Scaling::Ring, |answer| answer.high).map(|high| Seconds(high.max(ring) * forms)),
        status: if inside { Status::Transferred } else { Status::Extrapolated },
        reason: None,
        untrusted: ends.iter().any(|answer| answer.untrusted),
    }
}

fn whole(bytes: f64) -> Bytes {
    Bytes((bytes.round() as u64).max(1))
}

impl Rates for Fitted<'_> {
    fn price(&self, call: &RatedCall) -> Prediction {
        let Some(chosen) = self.chosen(call) else { return Prediction::refused(self.refusal(call)) };
        if let Some(reason) = chosen.ambiguous() {
            return Prediction::refused(reason);
        }
        let answer = self.read(&chosen, call);
        match answer.status {
            Status::Refused => answer,
            // A longer way than between group sizes.
            _ if !chosen.exact => Prediction { status: Status::Extrapolated, ..answer },
            _ => answer,
        }
    }

    fn both_ways(&self, locality: &Locality) -> Option<Coefficient> {
        let same = |both: &&BothWays| locality.nodes_spanned > 0 && both.between_hosts == (locality.nodes_spanned > 1);
        self.fit.both_ways.iter().find(same).map(|both| both.slowdown)
    }

    fn ground(&self, call: &RatedCall) -> String {
        let Some(chosen) = self.chosen(call) else { return self.refusal(call) };
        let element = chosen.kind.element_type.map_or_else(String::new, |element| format!(" of {element}"));
        let place = |index: usize| chosen.candidates[index].place;
        let describe_sharing = |index: usize, ranks: u32| {
            let sharing = self.sharing(&chosen.candidates[index], ranks, call.bytes_total, call);
            match sharing == Sharing::SAME {
                true => String::new(),
                false => format!(
                    ", {} instead of {} concurrent groups on a host: {:.2} to {:.2} times as long",
                    call.locality.concurrent_groups_per_node,
                    place(index).concurrent_groups_per_node,
                    sharing.low,
                    sharing.high
                ),
            }
        };
        let measured = match chosen.source {
            Source::One { index, ranks } => {
                format!("on {ranks} ranks at {}{}", place(index), describe_sharing(index, ranks))
            }
            Source::Between { indices: [a, b], ranks } => format!(
                "on {} ranks at {} and {} at {}{}",
                ranks[0],
                place(a),
                ranks[1],
                place(b),
                describe_sharing(a, ranks[0])
            ),
        };
        format!("{}{element} {measured}", chosen.kind.collective)
    }

    fn hidden(&self) -> Option<&Hidden> {
        Some(&self.hidden)
    }

    fn calibrated(&self) -> bool {
        true
    }

    fn synthetic(&self) -> bool {
        self.fit.synthetic
    }

    fn name(&self) -> String {
        let synthetic = if self.fit.synthetic { " (SYNTHETIC)" } else { "" };
        format!("{}{synthetic}", self.name)
    }
}

// Which measured curve is used for a call: the same call in the same place, or the nearest to it, and the possible
// error of the difference.
//
// * Another number of concurrent groups: the fitted contention. Without it, the groups share the links: going from g to g' groups, a fair
//   share makes a call at most g'/g times as long, and at best leaves it unchanged; the estimate is the square root.
// * Other hosts: the line in the steps of the algorithm that extrapolates a curve to other group sizes
//   ([`commgauge_cost::cost::sharing`]), through two numbers of hosts with equally many ranks on each.
// * A message to a neighbour takes equally long for any number of neighbours: only whether it leaves the host counts.
//
// Everything but the same call in the same place is marked as extrapolated.

/// The kind of call of a curve, without its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub collective: Collective,
    /// Only where the call reduces.
    pub element_type: Option<ElementType>,
}

/// A family of curves of one kind.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    /// Its index in the fit.
    pub family: usize,
    pub place: Place,
    /// Group sizes that were measured, ascending.
    pub ranks: Vec<u32>,
    /// Ranks and sizes that were measured without a curve.
    pub lone: Vec<LoneCall>,
    /// Labels that distinguish it from other families of the same kind and place.
    pub labels: Labels,
}

impl Candidate {
    /// Whether the family has the group size, two others to extrapolate from, or this very call.
    pub(super) fn answers(&self, ranks: u32, bytes_total: Bytes) -> bool {
        let is_it = |call: &LoneCall| call.ranks == ranks && call.bytes_total == bytes_total;
        self.ranks.contains(&ranks) || sharing::neighbours(&self.ranks, ranks).is_some() || self.lone.iter().any(is_it)
    }
}

/// Defaults of labels that a call does not specify, as in nccl-tests.
const USUAL: [(&str, &str); 2] = [("placement", "out-of-place"), ("reduce_op", "sum")];

/// Drops families that differ from another one in the same place only by being unusual: in place, or not a sum.
pub(super) fn usual_only(candidates: &mut Vec<Candidate>) {
    for (name, usual) in USUAL {
        let is_usual = |candidate: &Candidate| candidate.labels.get(name).is_some_and(|text| text == usual);
        let usual_places: Vec<Place> =
            candidates.iter().filter(|candidate| is_usual(candidate)).map(|candidate| candidate.place).collect();
        candidates.retain(|candidate| is_usual(candidate) || !usual_places.contains(&candidate.place));
    }
}

/// Slowdown of a call relative to the measured one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sharing {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

impl Sharing {
    /// As many groups as measured.
    pub const SAME: Sharing = Sharing { low: 1.0, middle: 1.0, high: 1.0 };

    /// From `measured` concurrent groups on a host to `requested`, if no contention was fitted.
    pub fn unknown(measured: u32, requested: u32) -> Sharing {
        let ratio = f64::from(requested.max(1)) / f64::from(measured.max(1));
        Sharing { low: ratio.min(1.0), middle: ratio.sqrt(), high: ratio.max(1.0) }
    }
}

/// Whether a call is one message to a neighbour, which takes equally long for any size of the group.
pub(super) fn is_message(collective: Collective) -> bool {
    matches!(collective, Collective::SendRecv | Collective::SendRecvChain)
}

/// The types usable instead of an unmeasured one: first those of equal width, then any.
pub(super) fn similar_type(wanted: ElementType, measured: &[ElementType]) -> Option<ElementType> {
    let same_width = measured.iter().find(|element| element.size() == wanted.size());
    same_width.or_else(|| measured.iter().min_by_key(|element| element.size().abs_diff(wanted.size()))).copied()
}

/// Of candidates on the same number of hosts, the one with the nearest number of concurrent groups, then the nearest stride.
pub(super) fn nearest_groups(
    candidates: impl Iterator<Item = usize>,
    all: &[Candidate],
    requested: Place,
) -> Option<usize> {
    let apart = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).ln().abs();
    candidates.min_by(|a, b| {
        let distance = |index: usize| {
            let place = all[index].place;
            let groups = apart(place.concurrent_groups_per_node, requested.concurrent_groups_per_node);
            (groups, apart(place.stride, requested.stride))
        };
        let (a, b) = (distance(*a), distance(*b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    })
}

// A fit, with the published rates of a machine file for calls that it refuses, marked as such.

/// A fit first, then the links.
#[derive(Debug)]
pub struct Both<'a> {
    fitted: Fitted<'a>,
    published: Published<'a>,
}

impl<'a> Both<'a> {
    /// Rates of a fit and a machine file, if a user names both.
    pub fn new(fitted: Fitted<'a>, published: Published<'a>) -> Both<'a> {
        Both { fitted, published }
    }
}

impl Rates for Both<'_> {
    fn price(&self, call: &RatedCall) -> Prediction {
        let answer = self.fitted.price(call);
        if answer.status == Status::Refused { self.published.price(call) } else { answer }
    }

    fn both_ways(&self, locality: &Locality) -> Option<Coefficient> {
        self.fitted.both_ways(locality)
    }

    fn ground(&self, call: &RatedCall) -> String {
        match self.fitted.price(call).reason {
            Some(reason) => format!("{} (the fit: {reason})", self.published.ground(call)),
            None => self.fitted.ground(call),
        }
    }

    fn hidden(&self) -> Option<&Hidden> {
        self.fitted.hidden()
    }

    fn synthetic(&self) -> bool {
        self.fitted.synthetic()
    }

    fn name(&self) -> String {
        format!("{}, and for calls that it lacks {}", self.fitted.name(), self.published.name())
    }
}
