//! The parallelisms that a rule of thumb ranks, each with the axes that it communicates on, and by what they are ranked.

use crate::layout::Axis;

/// A kind of parallelism, over all axes on which it communicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Tensor.
    Tensor,
    /// Context.
    Context,
    /// Expert.
    Expert,
    /// Data, sharded or not, of dense layers and of experts.
    Data,
    /// Pipeline.
    Pipeline,
}

impl Family {
    /// All, in the order in which they are listed.
    pub const ALL: [Family; 5] = [Family::Tensor, Family::Context, Family::Expert, Family::Data, Family::Pipeline];
    /// The rule of thumb that is checked: TP > DP > PP.
    pub const RULE: [Family; 3] = [Family::Tensor, Family::Data, Family::Pipeline];

    /// The family of an axis. Axes shared by several families (all ranks, a whole replica), and the ends of the
    /// pipeline, which tie an embedding, have none.
    pub fn of(axis: Axis) -> Option<Family> {
        match axis {
            Axis::Tp | Axis::Etp => Some(Family::Tensor),
            Axis::Cp | Axis::CpInner | Axis::CpOuter | Axis::Dcp => Some(Family::Context),
            Axis::Ep | Axis::EtpEp | Axis::EpInner | Axis::EpOuter => Some(Family::Expert),
            Axis::Dp | Axis::DpCp | Axis::Edp => Some(Family::Data),
            Axis::DpShard | Axis::DpReplicate | Axis::DpShardInner | Axis::DpShardOuter => Some(Family::Data),
            Axis::Pp => Some(Family::Pipeline),
            Axis::World | Axis::Mp | Axis::ExpertMp | Axis::TpCp | Axis::TpCpDp | Axis::Embedding => None,
            Axis::Pair | Axis::Node | Axis::Nodes | Axis::PrefillDecode => None,
        }
    }

    /// In the notation of the rule.
    pub fn name(self) -> &'static str {
        match self {
            Family::Tensor => "TP",
            Family::Context => "CP",
            Family::Expert => "EP",
            Family::Data => "DP",
            Family::Pipeline => "PP",
        }
    }
}

/// Measures by which parallelisms are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Size arguments of all calls.
    PayloadBytes,
    /// Bytes that a rank sends.
    WireBytes,
    /// Time of all calls.
    Time,
    /// Time of the calls that nothing hides.
    ExposedTime,
}

impl Measure {
    /// All, in the order in which they are listed.
    pub const ALL: [Measure; 4] = [Measure::PayloadBytes, Measure::WireBytes, Measure::Time, Measure::ExposedTime];

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Measure::PayloadBytes => "payload bytes",
            Measure::WireBytes => "wire bytes",
            Measure::Time => "time",
            Measure::ExposedTime => "exposed time",
        }
    }
}
