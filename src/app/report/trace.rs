//! The calls of a job: what was read, the calls, the differences, who was late; as text and as a document.

use super::document::{Fields, optional};
use super::template::prose;
use commgauge_base::collective::Collective;
use commgauge_base::units::Seconds;
use commgauge_base::writing::{grouped, ranges};
use commgauge_cost::cost::{Fit, PlaceQuery, Prediction, Predictor, Query};
use commgauge_model::layout::{Axis, Layout};
use commgauge_readers::trace::{CallKind, Compared, CountedCall, Difference, GroupPlace, LateRank, OneSide, Trace};
use minijinja::context;
use minijinja::value::Serde;
use schemars::JsonSchema;
use serde::Serialize;

/// Name of the format.
pub const FORMAT: &str = "commgauge-trace";

/// Incremented when a field is removed or changes its meaning.
pub const VERSION: u32 = 1;

/// What a job called.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TraceDocument {
    /// Always `commgauge-trace`.
    pub format: &'static str,
    /// Version of the format.
    pub version: u32,
    /// What left the files.
    pub sources: Vec<&'static str>,
    /// Ranks whose calls are known, as ranges such as `0-3,8`.
    pub ranks: String,
    /// Ranks of the job, where a file says it.
    pub job_ranks: Option<u32>,
    /// Steps by which counts are divided.
    pub steps: u64,
    /// The calls.
    pub calls: Vec<TracedCallLine>,
    /// Each call compared with the list of a step, where one was given.
    pub comparison: Option<Vec<Compared>>,
    /// Ranks that came last into most calls of their group, those that were waited for longest first.
    pub late_ranks: Vec<LateRank>,
    /// What was skipped, and why.
    pub notes: Vec<String>,
}

/// A call of a step.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TracedCallLine {
    /// As counted.
    #[serde(flatten)]
    pub call: CountedCall,
    /// What the fit predicts, where one was given and covers it.
    pub predicted_seconds: Option<Seconds>,
    /// Why the fit does not say it.
    pub not_predicted_because: Option<String>,
}

impl TraceDocument {
    /// The document of a trace, compared and predicted where a list and a fit were given.
    pub fn new(
        trace: &Trace,
        steps: u64,
        calls: Vec<CountedCall>,
        comparison: Option<Vec<Compared>>,
        late_ranks: Vec<LateRank>,
        fit: Option<FitOnNodes>,
    ) -> TraceDocument {
        let predictor = fit.map(|fit| (Predictor::new(fit.fit), fit));
        TraceDocument {
            format: FORMAT,
            version: VERSION,
            sources: trace.formats.iter().map(|format| format.name()).collect(),
            ranks: ranges(&trace.ranks.iter().copied().collect::<Vec<u32>>()),
            job_ranks: trace.world,
            steps,
            calls: calls
                .into_iter()
                .map(|call| {
                    let predicted = predictor.as_ref().and_then(|(of, fit)| Some(of.predict(&fit.query(&call)?)));
                    call_line(call, predicted)
                })
                .collect(),
            comparison,
            late_ranks,
            notes: trace.notes.clone(),
        }
    }

    /// Whether a comparison was made and found a difference.
    pub fn differs(&self) -> bool {
        let same = [Difference::Same, Difference::NotTraced, Difference::OtherStage];
        self.comparison.iter().flatten().any(|line| !same.contains(&line.difference))
    }
}

fn call_line(call: CountedCall, prediction: Option<Prediction>) -> TracedCallLine {
    TracedCallLine {
        call,
        predicted_seconds: prediction.as_ref().and_then(|prediction| prediction.seconds),
        not_predicted_because: prediction.and_then(|of| of.reason.filter(|_| of.seconds.is_none())),
    }
}

/// A fit, and what says on which nodes the groups of the job are.
pub struct FitOnNodes<'a> {
    /// The fit.
    pub fit: &'a Fit,
    /// The layout, if one was given.
    pub layout: Option<&'a Layout>,
    /// Ranks on each node, if known.
    pub ranks_per_node: Option<u32>,
}

impl FitOnNodes<'_> {
    /// A message between two ranks is not asked for: its time on one side is mostly waiting for the other. Nor is a call without a
    /// type, as the fit has one for each.
    fn query(&self, call: &CountedCall) -> Option<Query> {
        let CallKind::Collective(collective) = call.kind else { return None };
        if call.element.is_none() && collective != Collective::Barrier {
            return None;
        }
        let (ranks, bytes_total) = (call.group_size?, call.bytes_total);
        let locality = self.locality(&call.place);
        Some(Query { collective, ranks, bytes_total, element_type: call.element, locality, cadence: None })
    }

    fn locality(&self, place: &GroupPlace) -> Option<PlaceQuery> {
        let axis = match place {
            GroupPlace::Axis(axis) => *axis,
            GroupPlace::Shape(shape) if shape == Axis::World.name() => Axis::World,
            GroupPlace::Shape(_) => return None,
        };
        Some(self.layout?.locality(axis, self.ranks_per_node?).into())
    }
}

/// The complete text for a terminal of this width.
pub fn text(document: &TraceDocument, width: u16) -> String {
    let compared = document.comparison.as_deref().unwrap_or_default();
    let (tables, outcome) =
        (context! { calls => calls(document, width), comparison => differences(compared, width) }, outcome(compared));
    prose("trace.txt", include_str!("templates/trace.txt"), context! { width, tables, outcome, ..Serde(document) })
}

fn calls(document: &TraceDocument, width: u16) -> String {
    let is_predicted = document.calls.iter().any(|call| call.predicted_seconds.is_some());
    let lines = &document.calls;
    // Sizes that print alike in neighbouring lines are told apart by their exact bytes.
    let bytes = |at: usize| {
        let around = [at.checked_sub(1), at.checked_add(1)].into_iter().flatten().filter_map(|at| lines.get(at));
        let key = |line: &TracedCallLine| {
            let CountedCall { place, kind, element, bytes_total, .. } = &line.call;
            (place.clone(), *kind, *element, bytes_total.to_string())
        };
        let own = &lines[at];
        match around.map(key).any(|other| other == key(own)) {
            true => format!("{} B", own.call.bytes_total.0),
            false => own.call.bytes_total.to_string(),
        }
    };
    let ratio = |(seconds, predicted): (Seconds, Seconds)| format!("{:.2}", seconds.0 / predicted.0);
    Fields::of(lines.iter().enumerate())
        .left("groups of", 0, |(_, line)| line.call.place.name().to_owned())
        .left("call", 0, |(_, line)| line.call.kind)
        .left("type", 3, |(_, line)| optional(line.call.element))
        .right("bytes", 0, |(at, _)| bytes(*at))
        .right("group ranks", 4, |(_, line)| optional(line.call.group_size))
        .right("groups", 5, |(_, line)| line.call.groups)
        .right("/step", 0, |(_, line)| count(line.call.calls_per_step))
        .right("median", 1, |(_, line)| optional(line.call.seconds_median))
        .right("95 %", 2, |(_, line)| optional(line.call.seconds_p95))
        .when(is_predicted, |fields| {
            fields.right("fit", 1, |(_, line)| optional(line.predicted_seconds)).right(
                "times the fit",
                0,
                |(_, line)| optional(line.call.seconds_median.zip(line.predicted_seconds).map(ratio)),
            )
        })
        .text(width)
}

fn differences(comparison: &[Compared], width: u16) -> String {
    let of = |side: &Option<OneSide>, cell: fn(&OneSide) -> String| optional(side.as_ref().map(cell));
    let calls = |side: &OneSide| count(side.calls_per_step);
    let bytes = |side: &OneSide| side.bytes_total.to_string();
    let element = |side: &OneSide| optional(side.element);
    Fields::of(comparison)
        .left("groups of", 0, |line| line.place.name().to_owned())
        .left("call", 0, |line| line.kind)
        .left("", 0, |line| line.difference.name())
        .right("listed", 0, |line| of(&line.expected, calls))
        .right("bytes", 0, |line| of(&line.expected, bytes))
        .left("type", 3, |line| of(&line.expected, element))
        .right("traced", 0, |line| of(&line.traced, calls))
        .right("bytes", 0, |line| of(&line.traced, bytes))
        .left("type", 3, |line| of(&line.traced, element))
        .text(width)
}

/// How many calls differ in which way.
fn outcome(comparison: &[Compared]) -> String {
    let lines = grouped(comparison.iter().map(|line| (line.difference.name(), line)));
    lines.iter().map(|(name, lines)| format!("{} {name}", lines.len())).collect::<Vec<_>>().join(", ")
}

/// A number of calls, without decimals where it is whole.
fn count(calls: f64) -> String {
    if calls.fract() == 0.0 { format!("{calls:.0}") } else { format!("{calls:.1}") }
}
