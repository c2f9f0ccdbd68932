//! Predictions from a fit: the time of one call, its interval, and its basis.
//!
//! Every prediction states its basis: outside the measured range it is marked, far outside it is refused.

use super::contention::{Contention, SlowdownFactor};
use super::curve::{Curve, Envelope, MAX_EXTRAPOLATION, Point, Range};
use super::document::{CurveFit, Fit, Ground, LoneCall};
use super::fit::UNTRUSTED;
use super::place::USUAL;
use super::{Labels, document, sharing};
use crate::cost::document::{FamilyFit, Margin};
use crate::cost::place::PlaceQuery;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::stats::Span;
use commgauge_base::units::{Bytes, Seconds};
use schemars::JsonSchema;
use serde::Serialize;

impl<'a> Predictor<'a> {
    /// A predictor for a fit. Curves that an edited file has made unusable (fewer than two points, no line) are skipped.
    pub fn new(fit: &'a Fit) -> Predictor<'a> {
        let families = fit.families.iter().map(|family| {
            let usable = family.curves.iter().filter_map(|curve| Some((curve.ranks, curve_of(curve)?)));
            let (ranks, curves) = usable.unzip();
            Family { fit: family, ranks, curves, margins: &fit.held_out.margins }
        });
        Predictor { families: families.collect(), contention: &fit.contention, labels: Labels::new() }
    }

    /// As above, restricted to curves with these labels.
    #[must_use]
    pub fn choosing(self, labels: Labels) -> Predictor<'a> {
        Predictor { labels, ..self }
    }

    /// Predicts the time of one call. For an unmeasured place, the nearest place on as many hosts is scaled by the fitted contention.
    pub fn predict(&self, query: &Query) -> Prediction {
        let answer = match self.chosen(query) {
            Ok(Chosen::Measured(family)) => match family.predict(query) {
                Err(reason) if query.locality.is_some() => self.scaled_of_all(query).ok_or(reason),
                answer => answer,
            },
            Ok(Chosen::Elsewhere(families)) => self.scaled(&families, query),
            Err(reason) => Err(reason),
        };
        answer.unwrap_or_else(Prediction::refused)
    }

    /// Predicts from one family, given by its index in [`Fit::families`], for callers that choose the place themselves.
    pub fn predict_by(&self, family: usize, ranks: u32, bytes_total: Bytes) -> Prediction {
        let answer = match self.families.get(family) {
            Some(_) if ranks < 2 || bytes_total.0 == 0 => Err(NOT_A_CALL.to_owned()),
            Some(family) => {
                let collective = family.fit.key.collective;
                let query = Query { collective, ranks, bytes_total, element_type: None, locality: None, cadence: None };
                family.predict(&query)
            }
            None => Err(format!("the fit has {} families, but no number {family}", self.families.len())),
        };
        answer.unwrap_or_else(Prediction::refused)
    }

    /// Slowdown factor of a family (by its index in [`Fit::families`]) with another number of concurrent groups on a host than
    /// it was measured with. `None` where the records do not determine it.
    pub fn slower(
        &self,
        family: usize,
        ranks: u32,
        bytes_total: Bytes,
        groups_per_node: u32,
    ) -> Option<SlowdownFactor> {
        self.families
            .get(family)?
            .slower(self.contention, ranks, bytes_total, groups_per_node)
            .map(|(slower, _)| slower)
    }
}

fn curve_of(fit: &CurveFit) -> Option<Curve> {
    let on_curve = fit.points.iter().filter_map(|fit| Some(Point::new(fit.bytes_total.0 as f64, fit.curve_seconds?.0)));
    let sound = |pair: &[Point]| {
        let [low, high] = pair else { return false };
        low.bytes < high.bytes && low.seconds <= high.seconds && low.seconds > 0.0
    };
    let points: Vec<Point> = on_curve.collect();
    points.windows(2).all(sound).then(|| Curve::new(&points, Envelope::from_lines(fit.envelope.clone())?))?
}

impl Family<'_> {
    /// The factor from the call's own coefficient, else from that of all calls, and whether it is its own.
    fn slower(&self, all: &[Contention], ranks: u32, bytes: Bytes, groups: u32) -> Option<(SlowdownFactor, bool)> {
        let key = &self.fit.key;
        let suits = |one: &&Contention| one.cadence == key.cadence && one.across_nodes == (key.place.nodes_spanned > 1);
        let of = |collective| all.iter().filter(suits).find(|one| one.collective == collective);
        let nearest = (0..self.ranks.len()).min_by_key(|index| self.ranks[*index].abs_diff(ranks))?;
        let share = self.curves[nearest].bandwidth_share(bytes.0 as f64);
        let measured = key.place.concurrent_groups_per_node;
        let by = |contention: &Contention| contention.slower(measured, groups, share);
        of(Some(key.collective))
            .and_then(by)
            .map(|slower| (slower, true))
            .or_else(|| Some((of(None).and_then(by)?, false)))
    }

    fn predict(&self, query: &Query) -> Result<Prediction, String> {
        match (self.ranks.iter().position(|ranks| *ranks == query.ranks), self.lone(query.ranks, query.bytes_total)) {
            (Some(index), _) => self.measured(index, query),
            (None, Some(call)) => Ok(Prediction {
                seconds: Some(call.seconds),
                low: call.low,
                high: call.high,
                status: Status::Measured,
                reason: None,
                untrusted: false,
            }),
            (None, None) => self.transferred(query),
        }
    }

    /// The measured call itself, if no curve could be fitted.
    fn lone(&self, ranks: u32, bytes_total: Bytes) -> Option<&LoneCall> {
        self.fit.lone.iter().find(|call| call.ranks == ranks && call.bytes_total == bytes_total)
    }

    fn measured(&self, index: usize, query: &Query) -> Result<Prediction, String> {
        let (curve, bytes) = (&self.curves[index], query.bytes_total.0 as f64);
        let range = checked_range(curve, query)?;
        let status = if range == Range::Inside { Status::Interpolated } else { Status::Extrapolated };
        Ok(answer(curve.seconds(bytes), self.size_margin(index, bytes), status, self.is_untrusted(query.ranks)))
    }

    fn transferred(&self, query: &Query) -> Result<Prediction, String> {
        let measured = self.ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let (a, b) = sharing::neighbours(&self.ranks, query.ranks).ok_or_else(|| match self.ranks.len() {
            0 if !self.fit.lone.is_empty() => {
                let one = |call: &LoneCall| format!("{} on {} ranks", call.bytes_total, call.ranks);
                let all: Vec<String> = self.fit.lone.iter().map(one).collect();
                format!("only single sizes were measured: {}", all.join(", "))
            }
            0 => "the fit has no usable curve for it".to_owned(),
            1 => format!("only groups of {measured} ranks were measured; other group sizes need two measured ones"),
            _ => format!(
                "groups of {} ranks are more than {} times outside the measured ones: {measured}",
                query.ranks,
                sharing::MAX_EXTRAPOLATION
            ),
        })?;
        let ranges = [checked_range(&self.curves[a], query)?, checked_range(&self.curves[b], query)?];
        let inside = ranges == [Range::Inside; 2] && self.ranks[a] < query.ranks && query.ranks < self.ranks[b];
        let neighbours = [self.ranks[a], self.ranks[b]];
        let bytes = query.bytes_total.0 as f64;
        let found = sharing::with_difficulty(self.fit.scaling, neighbours, query.ranks, bytes, |which, bytes| {
            self.curves[[a, b][which]].seconds(bytes)
        });
        let (untrusted, reason) = match self.links(a, b, query.ranks) {
            Links::Other(reason) => return Err(reason),
            Links::Slower(reason) => (true, Some(reason)),
            Links::Alike => (false, None),
        };
        // Left-out group sizes were inner ones, at inner sizes: add the rest of the uncertainty.
        let of_sizes = [a, b].into_iter().zip(ranges).filter(|(_, range)| *range != Range::Inside);
        let of_sizes = of_sizes.map(|(index, _)| self.size_margin(index, bytes)).collect::<Option<Vec<f64>>>();
        let outside = if inside { 0.0 } else { found.forms };
        let known = self.left_out_anything(a) && self.left_out_anything(b);
        let margin = of_sizes.filter(|_| known).map(|of_sizes| {
            let own =
                found.difficulty * document::factor(self.margins, Ground::GroupSizes, self.curves[b].last_bytes());
            own + outside + of_sizes.into_iter().fold(0.0, f64::max)
        });
        let wrong_inside = self.fit.held_out_group_sizes.is_some_and(|errors| errors.mean > UNTRUSTED);
        let untrusted =
            untrusted || wrong_inside || self.is_untrusted(self.ranks[a]) || self.is_untrusted(self.ranks[b]);
        let status = if inside { Status::Transferred } else { Status::Extrapolated };
        Ok(Prediction { reason, ..answer(found.seconds, margin, status, untrusted) })
    }

    fn curve_fit(&self, ranks: u32) -> Option<&CurveFit> {
        self.fit.curves.iter().find(|curve| curve.ranks == ranks)
    }

    /// Whether the error of a curve is known: with few sizes nothing was left out.
    fn left_out_anything(&self, index: usize) -> bool {
        self.curve_fit(self.ranks[index]).is_some_and(|fit| fit.held_out_sizes.is_some())
    }

    /// Half the width, in log time, of the interval of a size on a curve.
    fn size_margin(&self, index: usize, bytes: f64) -> Option<f64> {
        let curve = &self.curves[index];
        let ground = match curve.range(bytes) {
            Range::Below => Ground::BelowRange,
            Range::Inside => Ground::inside(bytes),
            Range::Above | Range::TooFar => Ground::AboveRange,
        };
        let factor = document::factor(self.margins, ground, curve.last_bytes());
        let margin = factor * curve.difficulty(bytes);
        self.left_out_anything(index).then(|| margin.min(document::most(ground)))
    }

    fn is_untrusted(&self, ranks: u32) -> bool {
        self.curve_fit(ranks).is_some_and(|curve| curve.untrusted)
    }
}

fn checked_range(curve: &Curve, query: &Query) -> Result<Range, String> {
    match curve.range(query.bytes_total.0 as f64) {
        Range::TooFar => {
            Err(format!("{} is more than {MAX_EXTRAPOLATION} times the largest measured size", query.bytes_total))
        }
        range => Ok(range),
    }
}

/// A prediction; `margin` is half the width of its interval in log time.
fn answer(seconds: f64, margin: Option<f64>, status: Status, untrusted: bool) -> Prediction {
    let by = |sign: f64| margin.map(|margin| Seconds(seconds * (sign * margin).exp()));
    Prediction { seconds: Some(Seconds(seconds)), low: by(-1.0), high: by(1.0), status, reason: None, untrusted }
}

// Selects the curves for a query: those of the requested place, or of the nearest one on as many hosts, scaled by the fitted
// contention.

/// The families that match a query.
enum Chosen<'p, 'a> {
    /// Measured in the requested place, or in the only one.
    Measured(&'p Family<'a>),
    /// Measured in other places.
    Elsewhere(Vec<&'p Family<'a>>),
}

impl<'a> Predictor<'a> {
    /// The one family that matches a query, those of other places, or why none matches.
    fn chosen(&self, query: &Query) -> Result<Chosen<'_, 'a>, String> {
        let mut left = self.of_call(query)?;
        if let Some(requested) = &query.locality {
            let there: Vec<&Family> =
                left.iter().copied().filter(|family| family.fit.key.place.matches_query(requested)).collect();
            if there.is_empty() {
                return Ok(Chosen::Elsewhere(left));
            }
            left = there;
        }
        prefer_usual(&mut left, query);
        match left.as_slice() {
            [one] => Ok(Chosen::Measured(one)),
            several => Err(ambiguous(several)),
        }
    }

    /// All families of the call, whatever the place.
    fn of_call(&self, query: &Query) -> Result<Vec<&Family<'a>>, String> {
        let collective = query.collective;
        if query.ranks < 2 || query.bytes_total.0 == 0 {
            return Err(NOT_A_CALL.to_owned());
        }
        let mut left: Vec<&Family> =
            self.families.iter().filter(|family| family.fit.key.collective == collective).collect();
        if left.is_empty() {
            return Err(format!("{collective} was not measured"));
        }
        if let Some(element) = query.element_type.filter(|_| collective.reduces()) {
            narrow(&mut left, |family| family.fit.key.element_type == Some(element), || format!("with {element}"))?;
        }
        for (name, text) in &self.labels {
            narrow(
                &mut left,
                |family| family.fit.key.labels.get(name) == Some(text),
                || format!("with {name} {text}"),
            )?;
        }
        if let Some(cadence) = query.cadence {
            narrow(&mut left, |family| family.fit.key.cadence == cadence, || format!("as {cadence}"))?;
        }
        Ok(left)
    }

    /// The scaled prediction from all other places of the call, where its own has none.
    fn scaled_of_all(&self, query: &Query) -> Option<Prediction> {
        self.scaled(&self.of_call(query).ok()?, query).ok()
    }

    /// The prediction of the nearest place on as many hosts, scaled by the contention.
    fn scaled(&self, families: &[&Family<'a>], query: &Query) -> Result<Prediction, String> {
        let not_here = || format!("not measured in that locality; measured: {}", list_of_families(families));
        let Some(requested) = &query.locality else { return Err(not_here()) };
        let Some(groups) = requested.concurrent_groups_per_node else { return Err(not_here()) };
        let mut near: Vec<&Family> = families
            .iter()
            .copied()
            .filter(|family| family.fit.key.place.nodes_spanned == requested.nodes_spanned)
            .collect();
        prefer_usual(&mut near, query);
        if let [first, rest @ ..] = near.as_slice()
            && rest.iter().any(|family| !differs_in_place_only(first, family))
        {
            return Err(ambiguous(&near));
        }
        let distance = |family: &&Family| {
            let place = family.fit.key.place;
            let away = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).ln().abs();
            (
                requested.stride.map_or(0.0, |stride| away(stride, place.stride)),
                away(groups, place.concurrent_groups_per_node),
            )
        };
        near.sort_by(|a, b| {
            let (a, b) = (distance(a), distance(b));
            a.1.total_cmp(&b.1).then(a.0.total_cmp(&b.0))
        });
        let answer = near.iter().find_map(|family| family.scaled(self.contention, query, groups));
        answer.ok_or_else(|| {
            format!("{}; the records do not show its slowdown with {groups} concurrent groups on a host", not_here())
        })
    }
}

impl Family<'_> {
    fn scaled(&self, all: &[Contention], query: &Query, groups: u32) -> Option<Prediction> {
        let answer = self.predict(query).ok()?;
        let (slower, own) = self.slower(all, query.ranks, query.bytes_total, groups)?;
        let between = own && slower.inside && answer.status != Status::Extrapolated;
        let of = if own { String::new() } else { "other calls' ".to_owned() };
        Some(Prediction {
            status: if between { Status::Transferred } else { Status::Extrapolated },
            reason: Some(format!(
                "from locality {}, times {:.2} ({:.2}..{:.2}) by {of}contention{}",
                self.fit.key.place,
                slower.middle,
                slower.low,
                slower.high,
                answer.reason.as_ref().map_or_else(String::new, |reason| format!("; {reason}"))
            )),
            ..answer.times([slower.low, slower.middle, slower.high])
        })
    }
}

fn differs_in_place_only(a: &Family, b: &Family) -> bool {
    let (a, b) = (&a.fit.key, &b.fit.key);
    (a.element_type, a.cadence, &a.labels) == (b.element_type, b.cadence, &b.labels)
}

/// Prefers the usual cadence and labels. After the place, which may have been measured in one cadence only.
fn prefer_usual(left: &mut Vec<&Family>, query: &Query) {
    prefer(left, |family| query.cadence.is_some() || family.fit.key.cadence == Cadence::Streaming);
    for (name, usual) in USUAL {
        prefer(left, |family| family.fit.key.labels.get(name).is_some_and(|text| text == usual));
    }
}

/// Keeps the families that meet a condition, if any do.
fn prefer(left: &mut Vec<&Family>, keep: impl Fn(&Family) -> bool) {
    if left.len() > 1 && left.iter().any(|family| keep(family)) {
        left.retain(|family| keep(family));
    }
}

/// Keeps the families that meet a condition; if none does, the error lists the existing ones.
fn narrow(left: &mut Vec<&Family>, keep: impl Fn(&Family) -> bool, what: impl Fn() -> String) -> Result<(), String> {
    if !left.iter().any(|family| keep(family)) {
        return Err(format!("not measured {}; measured: {}", what(), list_of_families(left)));
    }
    left.retain(|family| keep(family));
    Ok(())
}

/// The error of a query that matches several curves: what it should specify.
fn ambiguous(families: &[&Family]) -> String {
    let values = |value: &dyn Fn(&Family) -> String| {
        let all: std::collections::BTreeSet<String> = families.iter().map(|family| value(family)).collect();
        all.into_iter().collect::<Vec<_>>()
    };
    let element = |family: &Family| family.fit.key.element_type.map_or_else(|| "any".to_owned(), |one| one.to_string());
    let types = values(&element);
    let places = values(&|family| family.fit.key.place.to_string());
    let others = values(&|family| format!("{} {:?}", family.fit.key.cadence, family.fit.key.labels));
    match (types.len(), places.len(), others.len()) {
        (_, 1, 1) => format!("several curves match; specify the dtype: {}", types.join(" or ")),
        (1, _, 1) => format!("several curves match; specify the locality: {}", places.join(" or ")),
        _ => format!("several curves match; specify: {}", list_of_families(families)),
    }
}

fn list_of_families(families: &[&Family]) -> String {
    let one = |family: &&Family| {
        let key = &family.fit.key;
        let element = key.element_type.map_or_else(|| "any type".to_owned(), |element| element.to_string());
        let labels: String = key.labels.iter().map(|(name, text)| format!(", {name} {text}")).collect();
        format!("{element}, locality {}, {}{labels}", key.place, key.cadence)
    };
    const MAX: usize = 6;
    let more = families.len().saturating_sub(MAX);
    let shown = families.iter().take(MAX).map(one).collect::<Vec<_>>().join("; ");
    if more > 0 { format!("{shown}; and {more} more") } else { shown }
}

// A query to a fit, and its answer: a time, its interval and its basis.

/// A call whose time is requested.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Query {
    /// The call.
    pub collective: Collective,
    /// Ranks of the group.
    pub ranks: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Type of the elements; optional if only one was measured, or if the call only moves bytes.
    pub element_type: Option<ElementType>,
    /// Locality of the group; optional if only one place was measured.
    pub locality: Option<PlaceQuery>,
    /// Cadence; defaults to streaming if both were measured.
    pub cadence: Option<Cadence>,
}

/// Basis of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Status {
    /// This very call was measured, at too few sizes for a curve.
    Measured,
    /// The group size was measured, with sizes on both sides.
    Interpolated,
    /// Outside the measured sizes or group sizes.
    Extrapolated,
    /// Between measured group sizes.
    Transferred,
    /// Not answered.
    Refused,
}

commgauge_base::error::names!(Status);

/// A predicted time and its basis.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Prediction {
    /// Time of the call; null where refused.
    pub seconds: Option<Seconds>,
    /// Lower end of the interval that holds 95 of 100 such calls, by the held-out errors of this kind; null if none could be left out.
    pub low: Option<Seconds>,
    /// Upper end of that interval; null with `low`.
    pub high: Option<Seconds>,
    /// Basis of the prediction.
    pub status: Status,
    /// Why it was refused or is untrusted, or which place it was scaled from.
    pub reason: Option<String>,
    /// True if the held-out error of its curve exceeds 10 %, or larger groups use slower links.
    pub untrusted: bool,
}

impl Prediction {
    /// The time of a call that was measured, or that follows from others.
    pub fn of(seconds: Span, status: Status) -> Prediction {
        let (low, high) = seconds.interval.map(|interval| (Seconds(interval.low), Seconds(interval.high))).unzip();
        Prediction { seconds: Some(Seconds(seconds.middle)), low, high, status, reason: None, untrusted: false }
    }

    /// A time that no measurement confirms.
    pub fn untrusted(seconds: Seconds) -> Prediction {
        let without_interval = Span { middle: seconds.0, interval: None };
        Prediction { untrusted: true, ..Prediction::of(without_interval, Status::Extrapolated) }
    }

    /// The same call slowed down by these factors: of the low end, of the middle and of the high end.
    pub fn times(self, [low, middle, high]: [f64; 3]) -> Prediction {
        let times = |seconds: Option<Seconds>, factor: f64| seconds.map(|seconds| Seconds(seconds.0 * factor));
        Prediction {
            seconds: times(self.seconds, middle),
            low: times(self.low, low),
            high: times(self.high, high),
            ..self
        }
    }

    pub fn refused(reason: String) -> Prediction {
        let status = Status::Refused;
        Prediction { seconds: None, low: None, high: None, status, reason: Some(reason), untrusted: false }
    }
}

// Whether group sizes between two measured ones follow from them, or use other links.
//
// Within a switch a larger group reaches the bandwidth of a smaller one, or more: on machines with NVSwitch groups of two have 0.59 to 0.96
// of the bus bandwidth of groups of eight (`tests/data/nccl`). If bandwidth falls as groups grow, the larger ones cross a slower link, such
// as the one between the sockets of a PCIe machine, and the measurements do not show from which size on.

/// Fall of bus bandwidth from which on a larger group must be on slower links.
const FALLS: f64 = 1.25;

/// Fall of bus bandwidth from which a time between the two would be a guess.
const TOO_FAR: f64 = 2.0;

/// Below this share of bandwidth in the largest calls latency dominates, and bandwidth is unknown.
const BANDWIDTH_DECIDES: f64 = 0.5;

/// What two measured group sizes show about unmeasured ones.
#[derive(Clone, Debug, PartialEq)]
enum Links {
    /// No evidence against a common scale.
    Alike,
    /// The larger group has less bandwidth.
    Slower(String),
    /// So much less that nothing between them can be predicted.
    Other(String),
}

impl Family<'_> {
    /// The links of two of its group sizes, by index.
    fn links(&self, smaller: usize, larger: usize, ranks: u32) -> Links {
        let Some(fall) = self.fall(smaller, larger).filter(|fall| *fall > FALLS) else { return Links::Alike };
        let (a, b) = (self.ranks[smaller], self.ranks[larger]);
        let between = a < ranks && ranks < b;
        let reason = format!(
            "bus bandwidth falls to 1/{fall:.1} from {a} to {b} ranks, so larger groups use slower links, from an unknown size on: measure groups of {ranks}"
        );
        if fall > TOO_FAR && between { Links::Other(reason) } else { Links::Slower(reason) }
    }

    /// Bus bandwidth of the largest calls of the smaller group over that of the larger one; `None` if latency dominates.
    fn fall(&self, smaller: usize, larger: usize) -> Option<f64> {
        let seconds_per_bus_byte = |index: usize| {
            let curve = &self.curves[index];
            let factor = self.fit.key.collective.bus_factor(self.ranks[index]).filter(|factor| *factor > 0.0)?;
            let (slope, share) = curve.tail();
            (share >= BANDWIDTH_DECIDES).then(|| slope / factor)
        };
        Some(seconds_per_bus_byte(larger)? / seconds_per_bus_byte(smaller)?)
    }
}

// The curves of a fit, ready to answer many queries.

const NOT_A_CALL: &str = "a call needs at least 2 ranks and 1 byte";

/// A fit, ready to answer many queries.
#[derive(Clone, Debug)]
pub struct Predictor<'a> {
    families: Vec<Family<'a>>,
    contention: &'a [Contention],
    labels: Labels,
}

#[derive(Clone, Debug)]
struct Family<'a> {
    fit: &'a FamilyFit,
    ranks: Vec<u32>,
    curves: Vec<Curve>,
    margins: &'a [Margin],
}

#[cfg(test)]
mod tests {
    // Predictions from a fit, and their basis.
    use super::*;
    use crate::cost::{CurveKey, FamilyKey, FitOptions, Labels, Measurements, Place, fit};
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_base::sample::Cadence;
    use commgauge_model::layout::Locality;

    const ONE_NODE: Place = Place { nodes_spanned: 1, concurrent_groups_per_node: 1, stride: 1 };
    const TWO_NODES: Place = Place { nodes_spanned: 2, concurrent_groups_per_node: 8, stride: 8 };

    fn ring(ranks: u32, bytes: f64) -> f64 {
        let n = f64::from(ranks);
        4e-6 + 2.0 * (n - 1.0) * (1.5e-6 + bytes / n / 100e9)
    }

    /// Ring times of all_reduce on these group sizes and sizes 1 KiB, 4 KiB ...
    fn measurements(ranks: &[u32], sizes: u32, place: Place, element: ElementType) -> Measurements {
        let family = FamilyKey {
            collective: Collective::AllReduce,
            element_type: Some(element),
            cadence: Cadence::Streaming,
            place,
            labels: Labels::new(),
        };
        let measured = |ranks: u32| {
            (0..sizes).map(|step| 1024 << (2 * step)).map(|bytes| (bytes, vec![ring(ranks, bytes as f64)])).collect()
        };
        Measurements {
            curves: ranks
                .iter()
                .map(|ranks| (CurveKey { family: family.clone(), ranks: *ranks }, measured(*ranks)))
                .collect(),
            ..Measurements::default()
        }
    }

    fn query(ranks: u32, bytes: u64) -> Query {
        Query {
            collective: Collective::AllReduce,
            ranks,
            bytes_total: Bytes(bytes),
            element_type: None,
            locality: None,
            cadence: None,
        }
    }

    fn plain(ranks: &[u32], sizes: u32) -> Fit {
        let measurements = measurements(ranks, sizes, ONE_NODE, ElementType::Bfloat16);
        fit(&measurements, FitOptions { resamples: 0, ..FitOptions::default() }).expect("a fit")
    }

    #[test]
    fn what_was_not_measured_is_refused_with_the_reason() {
        let fit = plain(&[2, 8], 9);
        let predictor = Predictor::new(&fit);
        for (query, reason) in [
            (Query { collective: Collective::Broadcast, ..query(8, 4096) }, "broadcast was not measured"),
            (query(1, 4096), "at least 2 ranks"),
            (query(8, 0), "1 byte"),
            (query(32, 4096), "more than 2 times outside the measured ones: 2, 8"),
            (query(8, 1 << 40), "more than 64 times the largest measured size"),
            (
                Query { element_type: Some(ElementType::Int8), ..query(8, 4096) },
                "not measured with int8; measured: bfloat16",
            ),
            (Query { locality: Some("2n".parse().unwrap()), ..query(8, 4096) }, "locality 1n/1g/s1"),
            (Query { cadence: Some(Cadence::Isolated), ..query(8, 4096) }, "not measured as isolated"),
        ] {
            let answer = predictor.predict(&query);
            assert_eq!(answer.status, Status::Refused, "{query:?}");
            assert!(answer.seconds.is_none() && answer.low.is_none());
            assert!(answer.reason.as_ref().unwrap().contains(reason), "{:?}", answer.reason);
        }
    }

    #[test]
    fn a_single_group_size_predicts_no_other() {
        let fit = plain(&[8], 9);
        let answer = Predictor::new(&fit).predict(&query(4, 4096));
        assert_eq!(answer.status, Status::Refused);
        assert!(answer.reason.unwrap().contains("only groups of 8 ranks were measured"));
    }

    #[test]
    fn every_answer_states_its_basis() {
        let fit = plain(&[2, 8], 9);
        let predictor = Predictor::new(&fit);
        for (ranks, bytes, status, off) in [
            (8, 10_000, Status::Interpolated, 0.01),
            (2, 64 << 20, Status::Interpolated, 0.01),
            (8, 512, Status::Extrapolated, 0.01),
            (8, 1 << 30, Status::Extrapolated, 0.01),
            (4, 1 << 20, Status::Transferred, 0.01),
            (16, 1 << 20, Status::Extrapolated, 0.01),
            (4, 128 << 20, Status::Extrapolated, 0.01),
        ] {
            let answer = predictor.predict(&query(ranks, bytes));
            let truth = ring(ranks, bytes as f64);
            assert_eq!(answer.status, status, "{ranks}, {bytes}");
            let seconds = answer.seconds.unwrap().0;
            assert!((seconds / truth - 1.0).abs() < off, "{ranks}, {bytes}: {seconds} for {truth}");
            let (low, high) = (answer.low.unwrap().0, answer.high.unwrap().0);
            assert!(low <= seconds && seconds <= high);
        }
    }

    #[test]
    fn the_matching_place_and_type_answer_a_query() {
        let mut all = measurements(&[8], 9, ONE_NODE, ElementType::Bfloat16);
        for measured in all.curves.values_mut() {
            measured.values_mut().flatten().for_each(|seconds| *seconds *= 3.0);
        }
        all.curves.extend(measurements(&[8], 9, TWO_NODES, ElementType::Bfloat16).curves);
        let fit = fit(&all, FitOptions { resamples: 0, ..FitOptions::default() }).unwrap();
        let predictor = Predictor::new(&fit);
        let query_at = |locality: &str| Query { locality: Some(locality.parse().unwrap()), ..query(8, 1 << 20) };
        assert!(predictor.predict(&query(8, 1 << 20)).reason.unwrap().contains("several curves match"));
        let near = predictor.predict(&query_at("1n")).seconds.unwrap().0;
        let far = predictor.predict(&query_at("2n/8g")).seconds.unwrap().0;
        assert!((near / far - 3.0).abs() < 1e-9, "{near}, {far}");
    }

    #[test]
    fn few_sizes_give_fewer_results_with_a_warning() {
        let one = measurements(&[8], 1, ONE_NODE, ElementType::Bfloat16);
        let lone = fit(&one, FitOptions::default()).unwrap();
        assert!(lone.warnings[0].contains("1 size measured, a curve needs two"), "{:?}", lone.warnings);
        let answer = Predictor::new(&lone).predict(&query(8, 1024));
        assert_eq!((answer.seconds.unwrap().0, answer.status), (ring(8, 1024.0), Status::Measured));
        let other = Predictor::new(&lone).predict(&query(8, 2048));
        assert!(other.reason.unwrap().contains("only single sizes were measured: 1 KiB on 8 ranks"));
        let two = plain(&[8], 2);
        assert!(two.warnings[0].contains("2 sizes, too few to estimate the error"), "{:?}", two.warnings);
        let answer = Predictor::new(&two).predict(&query(8, 2048));
        assert!(answer.seconds.is_some() && answer.low.is_none() && answer.high.is_none());
    }

    #[test]
    fn equal_times_have_no_bandwidth_and_are_predicted_flat() {
        let mut flat = measurements(&[8], 9, Place::of(&Locality::UNKNOWN), ElementType::Int8);
        flat.curves.values_mut().flat_map(|measured| measured.values_mut()).for_each(|times| *times = vec![2e-5]);
        let fit = fit(&flat, FitOptions::default()).unwrap();
        assert!(fit.warnings[0].contains("bandwidth is unknown"), "{:?}", fit.warnings);
        assert_eq!(fit.families[0].curves[0].bytes_per_second, None);
        let answer = Predictor::new(&fit).predict(&query(8, 1 << 28));
        assert!((answer.seconds.unwrap().0 - 2e-5).abs() < 1e-12);
    }

    #[test]
    fn a_curve_that_does_not_predict_its_own_sizes_is_marked() {
        let mut jumpy = measurements(&[8], 9, ONE_NODE, ElementType::Bfloat16);
        for measured in jumpy.curves.values_mut() {
            for (index, times) in measured.values_mut().enumerate() {
                *times = vec![1e-5 * 4f64.powi(index as i32 / 2 * 2)];
            }
        }
        let fit = fit(&jumpy, FitOptions { resamples: 0, ..FitOptions::default() }).unwrap();
        assert!(fit.families[0].curves[0].untrusted && fit.warnings[0].contains("do not plan with it"));
        assert!(Predictor::new(&fit).predict(&query(8, 5000)).untrusted);
    }
}
