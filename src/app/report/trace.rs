//! The calls of a job: what was read, the calls, the differences, who was late; as text and as a document.

use super::template::prose;
use commgauge_base::collective::Collective;
use commgauge_base::units::Seconds;
use commgauge_base::writing::ranges;
use commgauge_cost::cost::{Fit, PlaceQuery, Prediction, Predictor, Query};
use commgauge_model::layout::{Axis, Layout};
use commgauge_readers::trace::{CallKind, Compared, CountedCall, Difference, GroupPlace, LateRank, Trace};
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
    prose("trace.txt", include_str!("templates/trace.txt"), context! { width, ..Serde(document) })
}
