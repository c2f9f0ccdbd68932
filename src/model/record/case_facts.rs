//! A case of a plan, as a record describes it.

use crate::layout::{Axis, Locality};
use crate::workload::Style;
use crate::workload::when::When;
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::geometry::Splits;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A case, as planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseFacts {
    /// Name built from the parts below.
    pub name: String,
    /// Who asks for it.
    pub style: Style,
    /// Axis whose groups carry it out, all at once.
    pub axis: Axis,
    /// Ranks in each group.
    pub group_size: u32,
    /// Groups at work at the same time.
    pub groups: u32,
    /// How a group lies on the hosts; all zeros where that is not known.
    pub locality: Locality,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// How elements are combined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reduce_op: Option<ReduceOp>,
    /// Special rank of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<u32>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Bytes that bandwidth is computed from; differs from `bytes_total` for uneven all_to_all_v only.
    pub bytes_accounted: Bytes,
    /// What one rank contributes (the busiest, where they differ).
    pub bytes_per_rank: Bytes,
    /// How the vector forms divide their elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub splits: Option<Splits>,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// What is timed.
    pub cadence: Cadence,
    /// One-way messages in one call: latency is the time of a call divided by it.
    pub transfers_per_call: u32,
    /// busbw / algbw; absent for the barrier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_factor: Option<f64>,
    /// Highest bus bandwidth that the machine file allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_bytes_per_second: Option<Rate>,
    /// The steps that perform it; none for sweeps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<StepUse>,
    /// Index of the same case on all groups at once, where one group is at work alone here and the others stand aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub solo_of: Option<u32>,
    /// What sets it apart from the same call otherwise: the variant in which it was handed over (`buffers`, `submit`, `aggregate`,
    /// `max_ctas`), what flags forced (`algorithm`, `protocol`, `min_ctas`), and of imported records what another tool said, by the
    /// name of its column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl CaseFacts {
    /// Calls per step: all uses in the first step that performs the call. `None` for sweeps.
    pub fn count_per_step(&self) -> Option<u64> {
        let first = self.uses.first()?.step;
        Some(self.uses.iter().filter(|used| used.step == first).map(|used| used.count_per_step).sum())
    }
}

/// A step that performs the call of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepUse {
    /// Index in the plan's `steps`.
    pub step: u32,
    /// Who asks for it there.
    pub style: Style,
    /// Where in the step it stands.
    pub when: When,
    /// Calls in a step, on the rank that the axis loads most.
    pub count_per_step: u64,
    /// What that rank sends in a step.
    pub wire_bytes_per_step: Bytes,
    /// Whether all wait for it.
    pub exposed: bool,
    /// What hides it, where something does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlaps_with: Option<String>,
    /// Where the bytes come from.
    pub why: String,
}
