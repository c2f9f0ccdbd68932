//! One op at one size with one placement and one cadence: the unit that is measured.

use super::Op;
use crate::collective::Placement;
use crate::sample::Cadence;

/// What is measured as one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// The call.
    pub op: Op,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// What is timed.
    pub cadence: Cadence,
}

impl Case {
    /// The name, built from the parts so that it cannot lie; unique within a run.
    ///
    /// `tp/all_reduce/sum/bfloat16/67108864/in-place/streaming`
    pub fn name(&self) -> String {
        let op = &self.op;
        let mut parts = vec![op.axis.name().to_owned()];
        if op.style != super::Style::Sweep {
            parts.push(op.style.name().to_owned());
        }
        parts.push(op.collective.name().to_owned());
        parts.extend(op.reduce_op.map(|reduce| reduce.name().to_owned()));
        if op.collective.has_root() {
            parts.push(format!("root{}", op.root));
        }
        if op.collective.has_splits() {
            parts.push(match &op.splits {
                crate::geometry::Splits::Equal => "equal".to_owned(),
                crate::geometry::Splits::Given(weights) => {
                    format!("given-{}", weights.iter().map(u64::to_string).collect::<Vec<_>>().join("-"))
                }
                crate::geometry::Splits::Skewed { exponent } => format!("skewed-{exponent}"),
            });
        }
        parts.push(op.element.name().to_owned());
        parts.push(op.bytes_total.0.to_string());
        parts.push(self.placement.name().to_owned());
        parts.push(self.cadence.name().to_owned());
        parts.join("/")
    }
}
