//! The calls of a job: what was read, the calls, the differences, who was late; as text and as a document.

use super::document::{Column, optional, table, wrapped};
use commgauge_base::collective::Collective;
use commgauge_base::units::Seconds;
use commgauge_base::writing::ranges;
use commgauge_cost::cost::{Fit, PlaceQuery, Prediction, Predictor, Query};
use commgauge_model::layout::{Axis, Layout};
use commgauge_readers::trace::{CallKind, Compared, CountedCall, Difference, GroupPlace, LateRank, OneSide, Trace};
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
    let of = document.job_ranks.map_or_else(String::new, |ranks| format!(" of {ranks}"));
    let steps = if document.steps == 1 { "1 step".to_owned() } else { format!("{} steps", document.steps) };
    let sources = document.sources.join(", ");
    let mut out = wrapped(&format!("{sources}: ranks {}{of}, {steps}", document.ranks), width);
    for note in &document.notes {
        out += &wrapped(&format!("note: {note}"), width);
    }
    out += &format!("\n{}", calls(document, width));
    for reason in reasons(document) {
        out += &wrapped(&format!("not predicted: {reason}"), width);
    }
    if let Some(comparison) = &document.comparison {
        out +=
            &format!("\ncompared with the list of the step, per rank and step\n\n{}", differences(comparison, width));
        out += &wrapped(&outcome(comparison), width);
    }
    if !document.late_ranks.is_empty() {
        out += "\nranks that came last while others waited\n\n";
        document.late_ranks.iter().for_each(|late| out += &wrapped(&late_text(late), width));
    }
    out
}

fn calls(document: &TraceDocument, width: u16) -> String {
    let is_predicted = document.calls.iter().any(|call| call.predicted_seconds.is_some());
    let mut columns = vec![
        Column::left("groups of", 0),
        Column::left("call", 0),
        Column::left("type", 3),
        Column::right("bytes", 0),
        Column::right("group ranks", 4),
        Column::right("groups", 5),
        Column::right("/step", 0),
        Column::right("median", 1),
        Column::right("95 %", 2),
    ];
    if is_predicted {
        columns.extend([Column::right("fit", 1), Column::right("times the fit", 0)]);
    }
    let lines = &document.calls;
    let row = |(at, call): (usize, &TracedCallLine)| {
        let around = [at.checked_sub(1), at.checked_add(1)].into_iter().flatten().filter_map(|at| lines.get(at));
        let mut row = call_row(call, is_predicted);
        // Equal sizes of other calls of its kind are told apart by their bytes.
        let key = |line: &TracedCallLine| {
            let CountedCall { place, kind, element, bytes_total, .. } = &line.call;
            (place.clone(), *kind, *element, bytes_total.to_string())
        };
        if around.map(key).any(|other| other == key(call)) {
            row[BYTES] = format!("{} B", call.call.bytes_total.0);
        }
        row
    };
    let rows: Vec<Vec<String>> = lines.iter().enumerate().map(row).collect();
    table(&columns, &rows, width)
}

/// The column of sizes.
const BYTES: usize = 3;

fn call_row(line: &TracedCallLine, is_predicted: bool) -> Vec<String> {
    let call = &line.call;
    let mut row = vec![
        call.place.name().to_owned(),
        call.kind.to_string(),
        optional(call.element),
        call.bytes_total.to_string(),
        optional(call.group_size),
        call.groups.to_string(),
        count(call.calls_per_step),
        optional(call.seconds_median),
        optional(call.seconds_p95),
    ];
    if is_predicted {
        let ratio = |(seconds, predicted): (Seconds, Seconds)| format!("{:.2}", seconds.0 / predicted.0);
        row.push(optional(line.predicted_seconds));
        row.push(optional(call.seconds_median.zip(line.predicted_seconds).map(ratio)));
    }
    row
}

/// Why a fit does not say some times, each reason once.
fn reasons(document: &TraceDocument) -> Vec<&str> {
    let mut reasons: Vec<&str> = Vec::new();
    for reason in document.calls.iter().filter_map(|call| call.not_predicted_because.as_deref()) {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    reasons
}

fn differences(comparison: &[Compared], width: u16) -> String {
    let columns = [
        Column::left("groups of", 0),
        Column::left("call", 0),
        Column::left("", 0),
        Column::right("listed", 0),
        Column::right("bytes", 0),
        Column::left("type", 3),
        Column::right("traced", 0),
        Column::right("bytes", 0),
        Column::left("type", 3),
    ];
    let side = |side: &Option<OneSide>| match side {
        Some(side) => [count(side.calls_per_step), side.bytes_total.to_string(), optional(side.element)],
        None => ["-".to_owned(), "-".to_owned(), "-".to_owned()],
    };
    let row = |line: &Compared| {
        let mut row = vec![line.place.name().to_owned(), line.kind.to_string(), line.difference.name().to_owned()];
        row.extend(side(&line.expected));
        row.extend(side(&line.traced));
        row
    };
    table(&columns, &comparison.iter().map(row).collect::<Vec<_>>(), width)
}

fn outcome(comparison: &[Compared]) -> String {
    let mut counts: Vec<(&str, usize)> = Vec::new();
    for line in comparison {
        match counts.iter_mut().find(|(name, _)| *name == line.difference.name()) {
            Some((_, count)) => *count += 1,
            None => counts.push((line.difference.name(), 1)),
        }
    }
    let counts: Vec<String> = counts.into_iter().map(|(name, count)| format!("{count} {name}")).collect();
    format!("{} calls: {}", comparison.len(), counts.join(", "))
}

fn late_text(late: &LateRank) -> String {
    format!(
        "rank {} came last in {} of {} calls of its {} group ({}); the first to come waited {} (median)",
        late.rank,
        late.late,
        late.calls,
        late.place.name(),
        ranges(&late.group),
        late.waited_seconds_median
    )
}

/// A number of calls, without decimals where it is whole.
fn count(calls: f64) -> String {
    if calls.fract() == 0.0 { format!("{calls:.0}") } else { format!("{calls:.1}") }
}
