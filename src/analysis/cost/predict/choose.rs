//! Selects the curves for a query: those of the requested place, or of the nearest one on as many hosts, scaled by the fitted
//! contention.

use super::super::labels::USUAL;
use super::families::{Family, NOT_A_CALL, Predictor};
use super::prediction::{Prediction, Query, Status};
use commgauge_base::sample::Cadence;
use commgauge_base::units::Seconds;

/// The families that match a query.
pub(super) enum Chosen<'p, 'a> {
    /// Measured in the requested place, or in the only one.
    Measured(&'p Family<'a>),
    /// Measured in other places than the requested one.
    Elsewhere(Vec<&'p Family<'a>>),
}

impl<'a> Predictor<'a> {
    /// The one family that matches a query, those of other places, or why there is none.
    pub(super) fn chosen(&self, query: &Query) -> Result<Chosen<'_, 'a>, String> {
        let mut left = self.of_call(query)?;
        if let Some(requested) = &query.locality {
            let there: Vec<&Family> =
                left.iter().copied().filter(|family| family.fit.key.place.matches_query(requested)).collect();
            if there.is_empty() {
                return Ok(Chosen::Elsewhere(left));
            }
            left = there;
        }
        // After the place, which may have been measured in one cadence only.
        let usual_cadence = |family: &Family| query.cadence.is_some() || family.fit.key.cadence == Cadence::Streaming;
        prefer(&mut left, usual_cadence);
        for (name, usual) in USUAL {
            prefer(&mut left, |family| family.fit.key.labels.get(name).is_some_and(|text| text == usual));
        }
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
            narrow(&mut left, |family| family.fit.key.element_type == Some(element), || format!("of {element}"))?;
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
    pub(super) fn scaled_of_all(&self, query: &Query) -> Option<Prediction> {
        self.scaled(&self.of_call(query).ok()?, query).ok()
    }

    /// The prediction of the nearest place on as many hosts, scaled by the contention.
    pub(super) fn scaled(&self, families: &[&Family<'a>], query: &Query) -> Result<Prediction, String> {
        let not_here = || format!("not measured in that locality; there is {}", list_of_families(families));
        let Some(requested) = &query.locality else { return Err(not_here()) };
        let Some(groups) = requested.concurrent_groups_per_node() else { return Err(not_here()) };
        let mut near: Vec<&Family> = families
            .iter()
            .copied()
            .filter(|family| family.fit.key.place.nodes_spanned == requested.nodes_spanned())
            .collect();
        prefer(&mut near, |family| query.cadence.is_some() || family.fit.key.cadence == Cadence::Streaming);
        for (name, usual) in USUAL {
            prefer(&mut near, |family| family.fit.key.labels.get(name).is_some_and(|text| text == usual));
        }
        if let [first, rest @ ..] = near.as_slice()
            && rest.iter().any(|family| !differs_in_place_only(first, family))
        {
            return Err(ambiguous(&near));
        }
        let distance = |family: &&Family| {
            let place = family.fit.key.place;
            let away = |a: u32, b: u32| (f64::from(a.max(1)) / f64::from(b.max(1))).ln().abs();
            (
                requested.stride().map_or(0.0, |stride| away(stride, place.stride)),
                away(groups, place.concurrent_groups_per_node),
            )
        };
        near.sort_by(|a, b| {
            let (a, b) = (distance(a), distance(b));
            a.1.total_cmp(&b.1).then(a.0.total_cmp(&b.0))
        });
        let answer = near.iter().find_map(|family| family.scaled(self.contention, query, groups));
        answer.ok_or_else(|| {
            format!(
                "{}; the records do not show how much slower it is with {groups} groups at once on a host",
                not_here()
            )
        })
    }
}

impl Family<'_> {
    fn scaled(&self, all: &[super::Contention], query: &Query, groups: u32) -> Option<Prediction> {
        let answer = self.predict(query).ok()?;
        let (slower, own) = self.slower(all, query.ranks, query.bytes_total, groups)?;
        let times = |seconds: Option<Seconds>, factor: f64| seconds.map(|seconds| Seconds(seconds.0 * factor));
        let between = own && slower.inside && answer.status != Status::Extrapolated;
        let of = if own { String::new() } else { "other calls' ".to_owned() };
        Some(Prediction {
            seconds: times(answer.seconds, slower.middle),
            low: times(answer.low, slower.low),
            high: times(answer.high, slower.high),
            status: if between { Status::Transferred } else { Status::Extrapolated },
            reason: Some(format!(
                "from locality {}, times {:.2} ({:.2}..{:.2}) by {of}contention{}",
                self.fit.key.place,
                slower.middle,
                slower.low,
                slower.high,
                answer.reason.map_or_else(String::new, |reason| format!("; {reason}"))
            )),
            untrusted: answer.untrusted,
        })
    }
}

fn differs_in_place_only(a: &Family, b: &Family) -> bool {
    let (a, b) = (&a.fit.key, &b.fit.key);
    (a.element_type, a.cadence, &a.labels) == (b.element_type, b.cadence, &b.labels)
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
        return Err(format!("not measured {}; there is {}", what(), list_of_families(left)));
    }
    left.retain(|family| keep(family));
    Ok(())
}

/// The error of a query that matches several curves: what it should have specified.
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
        (_, 1, 1) => format!("several curves answer to this; say which dtype: {}", types.join(" or ")),
        (1, _, 1) => format!("several curves answer to this; say which locality: {}", places.join(" or ")),
        _ => format!("several curves answer to this; say which: {}", list_of_families(families)),
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
