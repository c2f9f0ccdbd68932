//! Seconds for which a rank waits for communication, by the axis that it waits for.

use commgauge_model::layout::Axis;
use commgauge_model::workload::{Op, Style};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Seconds of a step in which a rank does nothing but wait for communication, axis by axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Exposed {
    /// Tensor and sequence parallelism, vocabulary and loss.
    pub tp: f64,
    /// Context parallelism.
    pub cp: f64,
    /// Expert parallelism, with tensor parallelism inside experts.
    pub ep: f64,
    /// Data parallelism: gradients and parameters, of dense layers and of experts.
    pub dp: f64,
    /// Messages between stages.
    pub pp: f64,
    /// Gradients of an embedding that the first and the last stage share.
    pub embedding: f64,
    /// Norms, flags and counts that everybody waits for.
    pub control: f64,
}

impl Exposed {
    /// The names, in the order of [`Exposed::values`].
    pub const NAMES: [&'static str; 7] = ["tp", "cp", "ep", "dp", "pp", "embedding", "control"];

    /// All parts, in the order of their names.
    pub fn values(&self) -> [f64; 7] {
        [self.tp, self.cp, self.ep, self.dp, self.pp, self.embedding, self.control]
    }

    /// All parts together.
    pub fn total(&self) -> f64 {
        self.values().iter().sum()
    }

    /// The part that an op's waiting counts to.
    pub(super) fn of_op(&mut self, op: &Op) -> &mut f64 {
        match (op.style, op.axis) {
            (Style::Control, _) => &mut self.control,
            (_, Axis::Cp | Axis::CpInner | Axis::CpOuter | Axis::Dcp) => &mut self.cp,
            (_, Axis::Ep | Axis::EtpEp | Axis::Etp | Axis::EpInner | Axis::EpOuter) => &mut self.ep,
            (_, Axis::Dp | Axis::DpCp | Axis::Edp | Axis::DpShard | Axis::DpReplicate) => &mut self.dp,
            (_, Axis::DpShardInner | Axis::DpShardOuter) => &mut self.dp,
            (_, Axis::Pp | Axis::Pair | Axis::PrefillDecode) => &mut self.pp,
            (_, Axis::Embedding) => &mut self.embedding,
            (Style::Expert, Axis::TpCp | Axis::TpCpDp) => &mut self.ep,
            (_, Axis::Tp | Axis::TpCp | Axis::TpCpDp | Axis::Mp | Axis::ExpertMp) => &mut self.tp,
            (_, Axis::World | Axis::Node | Axis::Nodes) => &mut self.tp,
        }
    }

    /// The sum of two.
    pub(super) fn plus(self, other: Exposed) -> Exposed {
        self.each(other, |a, b| a + b)
    }

    /// Multiplied by a factor.
    pub(super) fn times(self, factor: f64) -> Exposed {
        self.each(self, |a, _| a * factor)
    }

    /// The larger of both on each axis.
    pub(super) fn larger(self, other: Exposed) -> Exposed {
        self.each(other, f64::max)
    }

    fn each(self, other: Exposed, of: impl Fn(f64, f64) -> f64) -> Exposed {
        Exposed {
            tp: of(self.tp, other.tp),
            cp: of(self.cp, other.cp),
            ep: of(self.ep, other.ep),
            dp: of(self.dp, other.dp),
            pp: of(self.pp, other.pp),
            embedding: of(self.embedding, other.embedding),
            control: of(self.control, other.control),
        }
    }
}
