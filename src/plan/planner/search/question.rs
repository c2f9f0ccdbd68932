//! Input of the planner: a model, GPUs, a batch, and the parts of the layout that are fixed.

use crate::planner::compute::{Compute, Product};
use crate::planner::memory::{MemoryFit, MemoryNeed};
use crate::planner::price::{Pricing, StepPrice};
use crate::planner::rates::Rates;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::step::{
    DataChoices, DataStyle, Dispatcher, Framework, Needs, PipelineChoices, Recompute, ScheduleKind, parse_order,
};
use commgauge_model::config::{Model, Table, Training};
use commgauge_model::layout::{Axis, Degrees, Layout};
use commgauge_model::workload::step::{Stages, TrainingStep};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// A question to the planner.
#[derive(Clone)]
pub struct Question<'a> {
    pub model: &'a Model,
    /// The training; the planner chooses its micro-batch, recomputation, ZeRO stage and virtual stages.
    pub bases: Bases,
    /// Samples of a step over all replicas.
    pub global_batch: u64,
    pub gpus: u32,
    /// GPUs of a node, neighbours in world rank.
    pub ranks_per_node: u32,
    pub gpu_memory: Bytes,
    /// Computing speed of one GPU.
    pub compute: &'a Compute,
    /// Times of calls.
    pub rates: &'a dyn Rates,
    /// The fixed parts of the layout.
    pub only: Only,
    /// Number of results to return.
    pub wanted: usize,
    pub results: Results,
}

/// What counts as a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Results {
    /// Every layout.
    Layouts,
    /// Every layout that takes at most these seconds.
    LayoutsWithin(f64),
    /// The fastest layout of each family: those that divide the model alike, and differ in chunks, order of the axes, micro-batch,
    /// recomputation, or what ZeRO shards besides parameters.
    Families,
}

impl Question<'_> {
    /// Calls `with` with the step of a layout, without the individual messages between stages.
    ///
    /// # Errors
    /// If the layout does not fit the question; errors of `with`.
    pub fn with_step<T>(&self, planned: &Planned, with: impl FnOnce(&TrainingStep) -> Result<T>) -> Result<T> {
        let choices = Choices {
            zero_stage: planned.zero_stage,
            schedule: planned.schedule,
            virtual_stages: planned.virtual_stages,
            micro_batch: planned.micro_batch,
            recompute: planned.recompute,
            sequence_parallel: self.sequence_parallel(&planned.degrees),
            exchange: planned.exchange.unwrap_or_else(|| self.bases.own_exchange()),
        };
        let mut training = self.training(choices);
        training.pipeline = self.pipeline(choices.cut(planned.degrees.pp));
        let order = parse_order(&planned.order).map_err(Error::usage)?;
        let order: Vec<Axis> = order.into_iter().filter_map(Axis::named).collect();
        let layout = Layout::new(planned.degrees, &order)?;
        with(&TrainingStep::without_messages(self.model, &training, layout, training.places.table())?)
    }

    /// The matrix products of a layout: those of a forward pass of a micro-batch through every layer and the end of the model.
    ///
    /// # Errors
    /// If a layout does not fit the question.
    pub fn products(&self, planned: &Planned) -> Result<Vec<Product>> {
        self.with_step(planned, |step| Ok(self.compute.products(step)))
    }

    pub(in crate::planner) fn pricing(&self) -> Pricing<'_> {
        Pricing { compute: self.compute, rates: self.rates, ranks_per_node: self.ranks_per_node }
    }

    /// What a GPU needs for parts of these bytes.
    pub(super) fn need(&self, parts: u64) -> MemoryNeed {
        MemoryNeed::of(Bytes(parts), self.bases.first.framework)
    }

    /// Whether a GPU has that much.
    pub(super) fn fit(&self, parts: u64) -> MemoryFit {
        self.need(parts).fit(self.gpu_memory)
    }

    /// Sequence parallelism wherever it divides evenly, unless the training disables it: it never needs more memory, and experts require
    /// it.
    pub(super) fn sequence_parallel(&self, degrees: &Degrees) -> bool {
        if !self.bases.first.tensor.sequence_parallel {
            return false;
        }
        let (tp, cp) = (u64::from(degrees.tp), u64::from(degrees.cp));
        let s = self.bases.first.sequence;
        tp > 1 && s.is_multiple_of(cp) && (s / cp).is_multiple_of(tp)
    }

    /// The exchanges to choose among for a division, by their places among all; ranks with all experts exchange nothing.
    pub(super) fn exchanges_of(&self, degrees: &Degrees, choices: Choices) -> impl Iterator<Item = u8> {
        let (pp, has_some) = (degrees.pp, degrees.ep > 1);
        let micro_batches = self.global_batch / u64::from(degrees.dp) / choices.micro_batch;
        let is_legal = move |exchange: &Exchange, place: u8| {
            let asked = accepts(&self.only.dispatcher, &exchange.dispatcher)
                && accepts(&self.only.overlap_exchange, &exchange.overlaps);
            if has_some { asked && (place == 0 || exchange.goes_with(choices, pp, micro_batches)) } else { place == 0 }
        };
        let all = self.bases.exchanges.iter().zip(0..);
        all.filter(move |(exchange, place)| is_legal(exchange, *place)).map(|(_, place)| place)
    }

    /// The pipelines into which the layers can be cut over this many stages.
    pub(super) fn cuts(&self, pp: u32) -> Vec<PipelineCut> {
        const USUAL: [ScheduleKind; 2] = [ScheduleKind::OneForwardOneBackward, ScheduleKind::Interleaved];
        let cut = |schedule, virtual_stages| PipelineCut { pp, schedule, virtual_stages };
        let cuts: Vec<PipelineCut> = match (pp, self.only.schedule.as_slice()) {
            // One stage is not a pipeline.
            (1, _) => vec![cut(ScheduleKind::OneForwardOneBackward, 1)],
            (_, given) => {
                let schedules = if given.is_empty() { USUAL.as_slice() } else { given };
                let of = |schedule: ScheduleKind| -> Vec<PipelineCut> {
                    if schedule.goes_round() {
                        return self.interleaved(pp).into_iter().map(|chunks| cut(schedule, chunks)).collect();
                    }
                    vec![cut(schedule, 1)]
                };
                schedules.iter().copied().flat_map(of).collect()
            }
        };
        cuts.into_iter().filter(|cut| accepts(&self.only.virtual_stages, &cut.virtual_stages)).collect()
    }

    /// Chunks on each rank of an interleaved pipeline: all that divide the layers evenly, and of the others the fewest for each size of the
    /// largest chunk, since more chunks of the same size only send more messages.
    fn interleaved(&self, pp: u32) -> Vec<u32> {
        let layers = self.model.layers;
        let largest = |v: u32| layers.div_ceil(pp * v);
        let is_even = |v: u32| {
            let choices = self.pipeline(PipelineCut { pp, schedule: ScheduleKind::Interleaved, virtual_stages: v });
            choices.stage_layers == self.bases.first.pipeline.stage_layers
        };
        // With two chunks more than layers the ends are alone.
        (2..=(layers + 2) / pp).filter(|v| is_even(*v) || largest(*v) < largest(*v - 1)).collect()
    }

    /// The pipeline of a cut, with its layers as even as possible.
    pub(super) fn pipeline(&self, cut: PipelineCut) -> PipelineChoices {
        let PipelineCut { pp, schedule, virtual_stages } = cut;
        let base = self.bases.first.pipeline.clone();
        let even = PipelineChoices { schedule, virtual_stages, ..base };
        match Stages::uneven(self.model.layers, pp, &even) {
            None => even,
            uneven => PipelineChoices { stage_layers: uneven, ..even },
        }
    }

    /// The plainest choices of degrees: one sample, nothing sharded, nothing recomputed, no pipeline.
    pub(super) fn first_choices(&self, degrees: &Degrees) -> Choices {
        Choices {
            zero_stage: 0,
            schedule: ScheduleKind::OneForwardOneBackward,
            virtual_stages: 1,
            micro_batch: 1,
            recompute: Recompute::None,
            sequence_parallel: self.sequence_parallel(degrees),
            exchange: self.bases.own_exchange(),
        }
    }

    pub(super) fn training(&self, choices: Choices) -> Training {
        let mut training = self.bases.stage(choices.zero_stage).unwrap_or(&self.bases.first).clone();
        training.micro_batch = choices.micro_batch;
        training.tensor.recompute = choices.recompute;
        training.tensor.sequence_parallel = choices.sequence_parallel;
        choices.exchange.set(&mut training);
        let Choices { schedule, virtual_stages, .. } = choices;
        training.pipeline = PipelineChoices { schedule, virtual_stages, ..training.pipeline };
        training
    }
}

// Divisions of a step other than its degrees.

/// Division of a step, apart from the degrees. The key of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Choices {
    pub zero_stage: u8,
    pub schedule: ScheduleKind,
    pub virtual_stages: u32,
    pub micro_batch: u64,
    pub recompute: Recompute,
    pub sequence_parallel: bool,
    pub exchange: Exchange,
}

impl Choices {
    /// The division of the layers over this many stages.
    pub fn cut(self, pp: u32) -> PipelineCut {
        PipelineCut { pp, schedule: self.schedule, virtual_stages: self.virtual_stages }
    }
}

/// How tokens reach their experts and come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Exchange {
    pub dispatcher: Dispatcher,
    /// Whether exchanges overlap with the computing of another micro-batch.
    #[serde(rename = "overlap_exchange")]
    pub overlaps: bool,
}

impl Exchange {
    fn of(training: &Training) -> Exchange {
        Exchange { dispatcher: training.expert.dispatcher, overlaps: training.expert.overlap_exchange }
    }

    pub(super) fn set(self, training: &mut Training) {
        (training.expert.dispatcher, training.expert.overlap_exchange) = (self.dispatcher, self.overlaps);
    }

    /// Whether Megatron-LM accepts it with these choices (training/arguments.py, `overlap_moe_expert_parallel_comm`), and there is another
    /// micro-batch to overlap with.
    fn goes_with(self, choices: Choices, pp: u32, micro_batches: u64) -> bool {
        !self.overlaps
            || micro_batches > 1
                && self.dispatcher != Dispatcher::AllGather
                && choices.recompute != Recompute::Full
                && (pp == 1 || choices.virtual_stages > 1)
    }
}

/// Number of parts into which the layers are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PipelineCut {
    pub pp: u32,
    pub schedule: ScheduleKind,
    /// Chunks on each rank.
    pub virtual_stages: u32,
}

// The training of a question, before the planner's choices.

/// Keys of `[training]` that the planner chooses, or that have flags of their own.
pub const CHOSEN_KEYS: [&str; 8] = [
    "sequence",
    "micro_batch",
    "micro_batches",
    "global_batch",
    "recompute",
    "schedule",
    "virtual_stages",
    "framework",
];

/// ZeRO stages, of which 0 shards nothing.
pub(super) const ZERO_STAGES: [u8; 4] = [0, 1, 2, 3];

/// One training per ZeRO stage: a framework's defaults may depend on it, a framework may lack it, and keys may have no effect in it.
#[derive(Clone, Debug)]
pub struct Bases {
    /// The training of the lowest stage, for the common properties.
    pub first: Training,
    /// Data parallelism without any choice, for what does not depend on it.
    pub(super) plain_data: DataChoices,
    by_stage: [Option<Training>; 4],
    /// The stages in which a key has no effect, and what it needs.
    left_out: Vec<(u8, String)>,
    /// The ways to exchange tokens among which the planner chooses; first that of the training.
    pub(super) exchanges: Vec<Exchange>,
    /// The first training with the groups of every exchange.
    pub(super) groups: Training,
}

impl Bases {
    /// The training of a model in every stage; the third is ZeRO-3 or HSDP if the training says so, and FSDP otherwise.
    ///
    /// # Errors
    /// If a key has no effect in any stage, with what it needs.
    pub fn of(model: &Model, training: &Training) -> Result<Bases> {
        let sharded = match training.data.style {
            style @ (DataStyle::Zero3 | DataStyle::Hsdp) => style,
            _ if training.data.shards.replicas > 1 => DataStyle::Hsdp,
            _ => DataStyle::Fsdp,
        };
        let data = |style| DataChoices { style, ..training.data.clone() };
        let in_stage = |style| Some(Training { data: data(style), ..training.clone() });
        Bases::with_effect(model, [DataStyle::Ddp, DataStyle::Zero1, DataStyle::Zero2, sharded].map(in_stage))
    }

    /// The stages of a model in which every key has an effect.
    fn with_effect(model: &Model, mut by_stage: [Option<Training>; 4]) -> Result<Bases> {
        let has = |needs: Needs| needs != Needs::Experts || model.mixture.is_some();
        let mut left_out = Vec::new();
        let mut refused = None;
        for (base, stage) in by_stage.iter_mut().zip(ZERO_STAGES) {
            if let Some(Err(error)) = base.as_ref().map(|training| training.check_conditions(has)) {
                let reason = error.to_string();
                // That another key is missing says more than that this is another stage.
                if refused.is_none() || !reason.contains("found data_style") {
                    refused = Some(error);
                }
                left_out.push((stage, reason));
                *base = None;
            }
        }
        let Some(first) = by_stage.iter().flatten().next().cloned() else {
            return Err(refused.unwrap_or_else(|| Error::usage("the framework has none of the ZeRO stages")));
        };
        let plain = [("", "sequence", "1".to_owned()), ("", "micro_batches", "1".to_owned())];
        let plain_data = Training::read(Table::of_flags(plain))?.data;
        let (exchanges, groups) = (vec![Exchange::of(&first)], first.clone());
        Ok(Bases { first, plain_data, by_stage, left_out, exchanges, groups })
    }

    /// Leaves the planner the usual ways to exchange tokens that the framework has besides its own, apart from the keys that are given.
    /// `all_gather` and `hybrid_ep` have to be named: the one is rarely faster, the other takes as long as `deepep`.
    pub fn choose_exchange(&mut self, is_given: impl Fn(&str) -> bool) {
        let own = self.own_exchange();
        let offers = |key: &str, value: &str| {
            !is_given(key) && self.first.framework.is_none_or(|framework| framework.offers(key, value))
        };
        let usual = [Dispatcher::AllToAll, Dispatcher::DeepEp].into_iter();
        let dispatchers = usual.filter(|other| offers("dispatcher", other.name()));
        for dispatcher in std::iter::once(own.dispatcher).chain(dispatchers) {
            for overlaps in [own.overlaps, offers("overlap_exchange", "true")] {
                let exchange = Exchange { dispatcher, overlaps };
                if !self.exchanges.contains(&exchange) {
                    self.exchanges.push(exchange);
                }
            }
        }
        let by_node = self.exchanges.iter().find(|exchange| exchange.dispatcher.goes_by_node());
        by_node.into_iter().for_each(|exchange| exchange.set(&mut self.groups));
    }

    pub(super) fn own_exchange(&self) -> Exchange {
        self.exchanges[0]
    }

    /// Why a stage cannot be chosen.
    pub fn reason(&self, stage: u8) -> Option<&str> {
        self.left_out.iter().find(|(left_out, _)| *left_out == stage).map(|(_, reason)| reason.as_str())
    }

    /// The stages that are left out because a key has no effect in them, in words.
    pub fn left_out(&self) -> Option<String> {
        let (_, reason) = self.left_out.first()?;
        let stages: Vec<String> = self.left_out.iter().map(|(stage, _)| stage.to_string()).collect();
        Some(format!("Without ZeRO {}: {reason}.", stages.join(", ")))
    }

    /// The result of `read` for each data-parallel style of the framework. The third stage is `sharded` if named, else the framework's FSDP
    /// or ZeRO-3.
    ///
    /// # Errors
    /// If the framework has none of the stages; errors of `read`.
    pub fn of_framework(
        framework: Framework,
        model: &Model,
        sharded: Option<DataStyle>,
        read: impl Fn(DataStyle) -> Result<Training>,
    ) -> Result<Bases> {
        let offers = |style: &DataStyle| framework.offers("data_style", style.name());
        let sharded = sharded.or_else(|| [DataStyle::Fsdp, DataStyle::Zero3].into_iter().find(offers));
        let styles = [Some(DataStyle::Ddp), Some(DataStyle::Zero1), Some(DataStyle::Zero2), sharded];
        let mut by_stage = [const { None }; 4];
        for (base, style) in by_stage.iter_mut().zip(styles) {
            *base = style.filter(offers).map(&read).transpose()?;
        }
        Bases::with_effect(model, by_stage)
    }

    /// The training of a stage, if it can be chosen.
    pub fn stage(&self, stage: u8) -> Option<&Training> {
        self.by_stage.get(usize::from(stage))?.as_ref()
    }

    /// The stages that can be chosen if this many ranks share the parameters, ascending: with one rank sharding changes nothing, and only
    /// the lowest counts.
    pub(super) fn stages(&self, ranks: u64) -> impl Iterator<Item = u8> {
        let chosen = ZERO_STAGES.into_iter().filter(|stage| self.stage(*stage).is_some());
        chosen.take(if ranks > 1 { ZERO_STAGES.len() } else { 1 })
    }
}

// A planned layout, and the price of its step.

/// A complete layout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Planned {
    #[serde(flatten)]
    pub degrees: Degrees,
    /// Order of the passes.
    pub schedule: ScheduleKind,
    /// Layers of each chunk of the model, if they are divided unevenly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_layers: Option<Vec<u32>>,
    /// Chunks on each rank.
    pub virtual_stages: u32,
    /// 0 to 3; 3 is FSDP.
    pub zero_stage: u8,
    /// Samples of a micro-batch.
    pub micro_batch: u64,
    /// Micro-batches of a replica in a step.
    pub micro_batches: u64,
    /// What is recomputed.
    pub recompute: Recompute,
    /// How tokens reach their experts, where ranks have different ones.
    #[serde(flatten)]
    pub exchange: Option<Exchange>,
    /// Axes, the fastest varying first, such as `tp-cp-ep-dp-pp`.
    pub order: String,
    /// Orders of the axes that take equally long, including this one.
    pub orders_alike: u64,
    /// Need of the fullest GPU.
    #[serde(flatten)]
    pub memory: MemoryNeed,
    /// Whether a GPU has it.
    #[serde(rename = "memory_fit")]
    pub fit: MemoryFit,
    /// Layouts with other chunks or micro-batches that cannot be told apart from it, in the syntax of `--only`, the fastest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
}

impl Planned {
    /// Whether a GPU may have the memory.
    pub(super) fn may_run(&self) -> bool {
        self.fit != MemoryFit::DoesNotFit
    }

    /// The layout in the syntax of `--only`.
    pub fn name(&self) -> String {
        let Degrees { tp, cp, ep, pp, dp, etp } = self.degrees;
        let usual_schedule =
            if self.virtual_stages > 1 { ScheduleKind::Interleaved } else { ScheduleKind::OneForwardOneBackward };
        let usual_etp = if ep == 1 { tp } else { 1 };
        let schedule =
            if self.schedule == usual_schedule { String::new() } else { format!("schedule={},", self.schedule) };
        let within_experts = if etp == usual_etp { String::new() } else { format!("etp={etp},") };
        let exchange = self.exchange.map_or_else(String::new, |Exchange { dispatcher, overlaps }| {
            format!("dispatcher={dispatcher},overlap_exchange={overlaps},")
        });
        format!(
            "tp={tp},cp={cp},ep={ep},{within_experts}pp={pp},{schedule}virtual_stages={},dp={dp},zero_stage={},micro_batch={},\
             recompute={},{exchange}order={}",
            self.virtual_stages, self.zero_stage, self.micro_batch, self.recompute, self.order
        )
    }

    /// How plain it is, the plainest first: fits surely, layers divided evenly, no context parallelism, few chunks, large micro-batches.
    pub(super) fn plainness(&self) -> impl Ord + use<> {
        (self.fit, self.stage_layers.is_some(), self.degrees.cp, self.virtual_stages, Reverse(self.micro_batch))
    }

    /// A restriction to this layout.
    pub(super) fn only(&self) -> Only {
        let Degrees { tp, cp, ep, pp, dp, etp } = self.degrees;
        let order = parse_order(&self.order).unwrap_or_default();
        Only {
            tp: vec![tp],
            cp: vec![cp],
            ep: vec![ep],
            etp: vec![etp],
            schedule: vec![self.schedule],
            pp: vec![pp],
            virtual_stages: vec![self.virtual_stages],
            dp: vec![dp],
            zero_stage: vec![self.zero_stage],
            micro_batch: vec![self.micro_batch],
            recompute: vec![self.recompute],
            dispatcher: self.exchange.map(|exchange| exchange.dispatcher).into_iter().collect(),
            overlap_exchange: self.exchange.map(|exchange| exchange.overlaps).into_iter().collect(),
            order: vec![order.into_iter().filter_map(Axis::named).collect()],
        }
    }
}

/// A layout and the price of its step.
#[derive(Clone, Debug, PartialEq)]
pub struct Priced {
    pub layout: Planned,
    pub price: StepPrice,
}

// The given parts of a layout, each as its accepted values.

/// The accepted values of each choice of a layout; an empty list leaves it free.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Tensor parallel.
    pub tp: Vec<u32>,
    /// Context parallel.
    pub cp: Vec<u32>,
    /// Expert parallel.
    pub ep: Vec<u32>,
    /// Tensor parallel within experts; by default tp if ep does not divide experts, and 1 otherwise.
    pub etp: Vec<u32>,
    /// Order of the passes; by default 1F1B and interleaved.
    pub schedule: Vec<ScheduleKind>,
    /// Pipeline parallel.
    pub pp: Vec<u32>,
    /// Chunks on each rank.
    pub virtual_stages: Vec<u32>,
    /// Data parallel.
    pub dp: Vec<u32>,
    /// 0 to 3.
    pub zero_stage: Vec<u8>,
    /// Samples of a micro-batch.
    pub micro_batch: Vec<u64>,
    /// What is recomputed.
    pub recompute: Vec<Recompute>,
    /// How tokens reach their experts.
    pub dispatcher: Vec<Dispatcher>,
    /// Whether exchanges overlap with computing.
    pub overlap_exchange: Vec<bool>,
    /// The axes, the fastest varying first.
    pub order: Vec<Vec<Axis>>,
}

/// The smallest dp whose ranks the experts divide.
pub(super) fn least_dp(degrees: &Degrees) -> Option<u32> {
    let carved = u64::from(degrees.ep) * u64::from(degrees.etp);
    let stage = u64::from(degrees.tp) * u64::from(degrees.cp);
    (1..=carved).find(|dp| (stage * dp).is_multiple_of(carved)).and_then(|dp| u32::try_from(dp).ok())
}

/// Whether a choice is free, or among those accepted.
pub(super) fn accepts<T: PartialEq>(only: &[T], value: &T) -> bool {
    only.is_empty() || only.contains(value)
}

impl Only {
    /// Whether anything is given.
    pub fn is_anything(&self) -> bool {
        *self != Only::default()
    }

    /// Whether degrees are accepted.
    pub(super) fn allows(&self, degrees: &Degrees) -> bool {
        accepts(&self.tp, &degrees.tp)
            && accepts(&self.cp, &degrees.cp)
            && accepts(&self.ep, &degrees.ep)
            && accepts(&self.etp, &degrees.etp)
            && accepts(&self.pp, &degrees.pp)
            && accepts(&self.dp, &degrees.dp)
    }

    /// Whether an order of the axes above degree 1 matches a given one; axes of degree 1 may be anywhere in it.
    pub(super) fn order_is(&self, order: &[Axis]) -> bool {
        let matches = |only: &Vec<Axis>| only.iter().filter(|axis| order.contains(axis)).eq(order.iter());
        self.order.is_empty() || self.order.iter().any(matches)
    }
}
