//! The numbers of a layer with experts, and how its calls are made from them.

use crate::config::Mixture;
use crate::config::step::{Recompute, Routing, ScheduleKind};
use crate::layout::Axis;
use crate::workload::step::{TrainingStep, routed};
use crate::workload::style::deep_ep::NodeCall;
use crate::workload::when::{LayerKind, Overlap, Pass};
use crate::workload::{Op, Style};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::{Geometry, Routed, Splits};
use commgauge_base::units::Bytes;

/// Larger counts of bytes, over all ranks of a group together, are refused.
const MOST_BYTES: u128 = 1 << 62;

/// One layer with experts, as a rank of a stage sees it.
pub(super) struct ExpertLayer<'a> {
    pub step: &'a TrainingStep<'a>,
    pub stage: u32,
    pub mixture: &'a Mixture,
    /// N: tokens of a micro-batch on this rank.
    pub tokens: u64,
    /// h: elements of a token.
    pub hidden: u64,
    /// Ranks that experts are divided among: e.
    pub ep: u64,
    /// Ranks that each expert is divided among.
    pub etp: u64,
}

/// A factor of a number of elements: its symbol in formulas, and its value.
#[derive(Clone, Copy)]
pub(super) struct Factor(pub &'static str, pub u64);

/// Which way tokens go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    ToExperts,
    Back,
}

/// One call before its size: the common properties of the list of calls.
pub(super) struct Call {
    pub pass: Pass,
    pub axis: Axis,
    pub collective: Collective,
    pub element: ElementType,
    /// Purpose and source.
    pub what: &'static str,
}

impl<'a> ExpertLayer<'a> {
    /// `None` where the model has no experts.
    pub(super) fn of(step: &'a TrainingStep<'a>, stage: u32) -> Option<ExpertLayer<'a>> {
        let mixture = step.model.mixture.as_ref()?;
        let degrees = &step.layout.degrees;
        let t_seq = if step.training.tensor.sequence_parallel { u64::from(degrees.tp) } else { 1 };
        Some(ExpertLayer {
            step,
            stage,
            mixture,
            tokens: step.tokens_per_micro_batch() / t_seq,
            hidden: step.model.hidden,
            ep: u64::from(degrees.ep),
            etp: u64::from(degrees.etp),
        })
    }

    /// The axis of all ranks that have a part of any expert: etp x ep, by its simplest name, so that equal groups are one.
    pub(super) fn axis_of_all(&self) -> Axis {
        match (self.etp, self.ep) {
            (1, _) => Axis::Ep,
            (_, 1) => Axis::Etp,
            _ => Axis::EtpEp,
        }
    }

    /// Passes with the forward calls: once more if everything is recomputed.
    pub(super) fn forward_passes(&self) -> Vec<Pass> {
        match self.step.training.tensor.recompute {
            Recompute::Full => vec![Pass::Forward, Pass::Recompute],
            Recompute::None | Recompute::Selective => vec![Pass::Forward],
        }
    }

    /// A call with a buffer of this many bytes, given as factors, such as `N` = 4096 and `h` = 7168. The
    /// bytes of an element are added.
    pub(super) fn op(&self, call: Call, factors: &[Factor]) -> Result<Op> {
        let Call { pass, axis, collective, element, what } = call;
        let (bytes, formula) = self.bytes(element, factors)?;
        Ok(Op {
            when: self.step.in_layers(self.stage, pass, LayerKind::Experts, 1),
            why: format!("{formula}: {what}"),
            ..Op::new(Style::Expert, axis, collective, element, bytes)
        })
    }

    /// An all_to_all_v of this many elements for each copy of a token.
    pub(super) fn exchange(&self, call: Call, elements_per_copy: Factor, way: Way) -> Result<Op> {
        let k = self.mixture.experts_per_token;
        let op = self.op(call, &[Factor("N", self.tokens), Factor("K", k), elements_per_copy])?;
        let splits = self.splits(elements_per_copy.1, way);
        let e = self.ep;
        let mut op = Op { splits, overlap: self.overlap(), ..op };
        let busiest = op.wire_bytes(e as u32, 1).unwrap_or(0);
        op.why += &match op.splits {
            Splits::Equal => format!("; (e-1)/e of it leaves the rank, e = {e}"),
            _ => format!(
                "; routing {}, so that the busiest of {e} ranks sends to others or receives from others {busiest} B, against \
                 {} B in balance",
                self.step.training.expert.routing,
                op.bytes_total.0 as u128 * u128::from(e - 1) / u128::from(e)
            ),
        };
        if !op.overlap.is_exposed() {
            op.why += "; hidden in the steady state of the pipeline, where a chunk going forward and one going backward are \
                       paired (arXiv 2412.19437 section 3.2.1)";
        }
        Ok(op)
    }

    /// A call of tokens that go by way of nodes. Without ranks of experts there is none.
    pub(super) fn node_op(&self, pass: Pass, call: NodeCall, what: &str) -> Op {
        let NodeCall { axis, collective, element, bytes, why } = call;
        let overlap = if collective == Collective::AllToAllV { self.overlap() } else { Overlap::Exposed };
        Op {
            when: self.step.in_layers(self.stage, pass, LayerKind::Experts, 1),
            overlap,
            why: format!("{why}: {what}"),
            ..Op::new(Style::Expert, axis, collective, element, bytes)
        }
    }

    /// Copies of tokens that the busiest rank of a group of ep has for its experts.
    pub(super) fn received_copies(&self) -> u64 {
        let copies = self.tokens * self.mixture.experts_per_token;
        let geometry = Geometry::new(
            Collective::AllToAllV,
            ElementType::Uint8,
            Bytes(copies),
            self.ep as u32,
            &self.splits(1, Way::ToExperts),
        );
        match (self.splits(1, Way::ToExperts), geometry) {
            (Splits::Routed(_), Ok(geometry)) => {
                (0..self.ep as u32).map(|rank| geometry.receive_elements(rank, 0)).max().unwrap_or(copies)
            }
            _ => copies,
        }
    }

    fn splits(&self, elements_per_token: u64, way: Way) -> Splits {
        let choices = &self.step.training.expert;
        let drops = choices.capacity_factor.is_some_and(|factor| factor < 1.0);
        if choices.routing == Routing::Uniform && !drops {
            return Splits::Equal;
        }
        Splits::Routed(Routed {
            back: way == Way::Back,
            ..routed(self.step.training, self.mixture, elements_per_token)
        })
    }

    /// Only a schedule that pairs micro-batches hides the exchange.
    fn overlap(&self) -> Overlap {
        let pairs = matches!(self.step.training.pipeline.schedule, ScheduleKind::DualPipe | ScheduleKind::DualPipeV);
        if pairs && self.step.stages.count() > 1 { Overlap::SteadyState } else { Overlap::Exposed }
    }

    fn bytes(&self, element: ElementType, factors: &[Factor]) -> Result<(u64, String)> {
        let size = element.size();
        let product = factors.iter().try_fold(u128::from(size), |product, factor| {
            product.checked_mul(u128::from(factor.1)).filter(|bytes| *bytes < MOST_BYTES)
        });
        let together = product.and_then(|bytes| bytes.checked_mul(u128::from(self.ep) * u128::from(self.etp)));
        let Some(bytes) = product.filter(|_| together.is_some_and(|together| together < MOST_BYTES)) else {
            return Err(self.step.training.sequence_place.wrong(format!(
                "micro_batch x sequence x experts for each token ({}) x hidden ({}) is more than any buffer can hold",
                self.mixture.experts_per_token, self.hidden
            )));
        };
        let names: Vec<_> = factors.iter().map(|factor| factor.0).collect();
        let numbers: Vec<_> = factors.iter().map(|factor| factor.1.to_string()).collect();
        let formula = format!("{}*E = {}*{size} B = {bytes} B", names.join("*"), numbers.join("*"));
        Ok((bytes as u64, formula))
    }
}
