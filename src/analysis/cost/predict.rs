//! Predictions from a fit: the time of one call, its interval, and its basis.
//!
//! Every prediction states its basis: outside the measured range it is marked, far outside it is refused.

use super::Labels;
use super::contention::{Contention, SlowdownFactor};
use super::curve::{Curve, Envelope, MAX_EXTRAPOLATION, Point, Range};
use super::document::{CurveFit, Fit, LoneCall};
use super::fit::UNTRUSTED;
use super::margin::{self, Ground};
use super::transfer;
use choose::Chosen;
use commgauge_base::units::{Bytes, Seconds};
pub use families::Predictor;
use families::{Family, NOT_A_CALL};
pub use prediction::{Prediction, Query, Status};
use topology::Links;

mod choose;
mod families;
mod prediction;
mod topology;

impl<'a> Predictor<'a> {
    /// A predictor of a fit. Curves that an edited file has made unusable (fewer than two points, no line) are left out.
    pub fn new(fit: &'a Fit) -> Predictor<'a> {
        let families = fit.families.iter().map(|family| {
            let usable = family.curves.iter().filter_map(|curve| Some((curve.ranks, curve_of(curve)?)));
            let (ranks, curves) = usable.unzip();
            Family { fit: family, ranks, curves, margins: &fit.held_out.margins }
        });
        Predictor { families: families.collect(), contention: &fit.contention, labels: Labels::new() }
    }

    /// The same, restricted to curves with these labels.
    #[must_use]
    pub fn choosing(self, labels: Labels) -> Predictor<'a> {
        Predictor { labels, ..self }
    }

    /// Predicts the time of one call. For a place that was not measured, the nearest place on as many hosts is scaled by the
    /// fitted contention.
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
            None => Err(format!("the fit has {} families; there is no number {family}", self.families.len())),
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

    /// The very call, measured, where no curve could be fitted.
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
        let (a, b) = transfer::neighbours(&self.ranks, query.ranks).ok_or_else(|| match self.ranks.len() {
            0 if !self.fit.lone.is_empty() => {
                let one = |call: &LoneCall| format!("{} on {} ranks", call.bytes_total, call.ranks);
                let all: Vec<String> = self.fit.lone.iter().map(one).collect();
                format!("only single sizes were measured: {}", all.join(", "))
            }
            0 => "the fit holds no usable curve of it".to_owned(),
            1 => format!("only groups of {measured} ranks were measured; other sizes need two that were"),
            _ => format!(
                "groups of {} ranks are more than {} times outside those that were measured: {measured}",
                query.ranks,
                transfer::MAX_EXTRAPOLATION
            ),
        })?;
        let ranges = [checked_range(&self.curves[a], query)?, checked_range(&self.curves[b], query)?];
        let inside = ranges == [Range::Inside; 2] && self.ranks[a] < query.ranks && query.ranks < self.ranks[b];
        let neighbours = [self.ranks[a], self.ranks[b]];
        let bytes = query.bytes_total.0 as f64;
        let found = transfer::with_difficulty(self.fit.scaling, neighbours, query.ranks, bytes, |which, bytes| {
            self.curves[[a, b][which]].seconds(bytes)
        });
        let (untrusted, reason) = match self.links(a, b, query.ranks) {
            Links::Other(reason) => return Err(reason),
            Links::Slower(reason) => (true, Some(reason)),
            Links::Alike => (false, None),
        };
        // What was left out were group sizes inside, at sizes inside: the rest adds what is not known of it.
        let of_sizes = [a, b].into_iter().zip(ranges).filter(|(_, range)| *range != Range::Inside);
        let of_sizes = of_sizes.map(|(index, _)| self.size_margin(index, bytes)).collect::<Option<Vec<f64>>>();
        let outside = if inside { 0.0 } else { found.forms };
        let known = self.left_out_anything(a) && self.left_out_anything(b);
        let margin = of_sizes.filter(|_| known).map(|of_sizes| {
            let own = found.difficulty * margin::factor(self.margins, Ground::GroupSizes, self.curves[b].last_bytes());
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

    /// Whether the error of a curve is known: of one with few sizes nothing was left out.
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
        let factor = margin::factor(self.margins, ground, curve.last_bytes());
        let margin = factor * curve.difficulty(bytes);
        self.left_out_anything(index).then(|| margin.min(margin::most(ground)))
    }

    fn is_untrusted(&self, ranks: u32) -> bool {
        self.curve_fit(ranks).is_some_and(|curve| curve.untrusted)
    }
}

fn checked_range(curve: &Curve, query: &Query) -> Result<Range, String> {
    match curve.range(query.bytes_total.0 as f64) {
        Range::TooFar => Err(format!(
            "{} is more than {MAX_EXTRAPOLATION} times the largest size that was measured",
            query.bytes_total
        )),
        range => Ok(range),
    }
}

/// A prediction, `margin` being half the width of its interval in log time.
fn answer(seconds: f64, margin: Option<f64>, status: Status, untrusted: bool) -> Prediction {
    let by = |sign: f64| margin.map(|margin| Seconds(seconds * (sign * margin).exp()));
    Prediction { seconds: Some(Seconds(seconds)), low: by(-1.0), high: by(1.0), status, reason: None, untrusted }
}

#[cfg(test)]
mod tests;
