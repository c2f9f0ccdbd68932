//! The costs of a step's parallelisms in the report's JSON document: base units in the names, `null` where there is no number.

use super::costs::{self, Costs, FamilyCost};
use crate::report::step::parts;
use crate::report::view::View;
use commgauge_model::workload::StepFacts;
use schemars::JsonSchema;
use serde::Serialize;

/// What each parallelism costs in a step, and whether TP > DP > PP holds.
#[derive(JsonSchema, Serialize)]
pub(in crate::report) struct JsonCosts {
    step: StepFacts,
    /// Whether the ranks of the run hold the layout; else the costs are predicted from the measured calls.
    measured: bool,
    parallelisms: Vec<JsonFamily>,
    /// `>` is sure (95 %), `=` a tie, `?` not known.
    order: String,
    /// The fate of TP > DP > PP, as a sentence.
    rule: String,
}

#[derive(JsonSchema, Serialize)]
struct JsonFamily {
    parallelism: &'static str,
    /// Why it has no cost.
    reason: Option<String>,
    seconds_per_step: Option<f64>,
    seconds_per_step_interval_low: Option<f64>,
    seconds_per_step_interval_high: Option<f64>,
    exposed_seconds_per_step: Option<f64>,
    exposed_seconds_per_step_interval_low: Option<f64>,
    exposed_seconds_per_step_interval_high: Option<f64>,
}

impl JsonCosts {
    /// Of a record that ranks a step.
    pub(in crate::report) fn of(view: &View) -> Option<JsonCosts> {
        view.ranking.as_ref()?;
        let Costs { step, measured, families, order, rule, .. } = costs::of(view, "commgauge").ok()?;
        Some(JsonCosts { step, measured, parallelisms: families.into_iter().map(json_family).collect(), order, rule })
    }
}

fn json_family(cost: FamilyCost) -> JsonFamily {
    let (time, exposed) = cost.seconds.as_ref().map_or((None, None), |(time, exposed)| (Some(*time), Some(*exposed)));
    let (time, exposed) = (parts(time), parts(exposed));
    JsonFamily {
        parallelism: cost.family.name(),
        seconds_per_step: time[0],
        seconds_per_step_interval_low: time[1],
        seconds_per_step_interval_high: time[2],
        exposed_seconds_per_step: exposed[0],
        exposed_seconds_per_step_interval_low: exposed[1],
        exposed_seconds_per_step_interval_high: exposed[2],
        reason: cost.seconds.err(),
    }
}
