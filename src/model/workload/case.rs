//! One call at one size with one placement and one cadence: the unit of measurement, and the steps that use it.

use super::when::{Overlap, When};
use super::{Op, Style};
use commgauge_base::collective::Placement;
use commgauge_base::geometry::Splits;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::variant::Variant;

/// Most cases in one run; more are a slip in a suite and would run for days.
pub const MOST_CASES: usize = 10_000;

/// What is measured as one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The call. Its style, moment and reason are those of the first use.
    pub op: Op,
    /// Index of the groups in the plan.
    pub groups: usize,
    /// Distinguishes these groups from others of the same axis in the plan; empty for the first.
    pub groups_label: String,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// What is timed.
    pub cadence: Cadence,
    /// How it is submitted.
    pub variant: Variant,
    /// The steps of the plan that perform the call. Empty for sweeps.
    pub uses: Vec<Use>,
    /// Index in the plan of the same case on all groups at once, if this case runs on one group alone.
    pub solo_of: Option<usize>,
}

/// A step that performs a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    /// Index of the step in the plan.
    pub step: usize,
    /// The style that issues the call.
    pub style: Style,
    /// Position and number in the step.
    pub when: When,
    /// Calls in a step on the rank that the axis loads most.
    pub count_per_step: u64,
    /// Bytes that that rank sends in a step.
    pub wire_bytes_per_step: Bytes,
    /// Whether anything useful is done meanwhile.
    pub overlap: Overlap,
    /// Formula of the bytes.
    pub why: String,
}

impl Case {
    /// The name, built from the parts so that it is always consistent; unique within a run.
    ///
    /// `tp/all_reduce/sum/bfloat16/67108864/in-place/streaming`
    pub fn name(&self) -> String {
        let op = &self.op;
        let mut parts = vec![op.axis.name().to_owned()];
        if !self.groups_label.is_empty() {
            parts.push(self.groups_label.clone());
        }
        parts.push(op.collective.name().to_owned());
        parts.extend(op.reduce_op.map(|reduce| reduce.name().to_owned()));
        if op.collective.has_root() {
            parts.push(format!("root{}", op.root));
        }
        if op.collective.has_splits() {
            parts.push(match &op.splits {
                Splits::Equal => "equal".to_owned(),
                Splits::Given(weights) => {
                    format!("given-{}", weights.iter().map(u64::to_string).collect::<Vec<_>>().join("-"))
                }
                Splits::Skewed { exponent } => format!("skewed-{exponent}"),
                Splits::Routed(routed) => routed.name(),
            });
        }
        parts.push(op.element.name().to_owned());
        parts.push(op.bytes_total.0.to_string());
        parts.push(self.placement.name().to_owned());
        parts.push(self.cadence.name().to_owned());
        parts.extend(self.variant.name_parts());
        parts.join("/")
    }
}
