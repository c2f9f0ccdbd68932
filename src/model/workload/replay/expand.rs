//! Walks through the events of a stage and writes the actions of each, layer by layer.

use super::emit::Emitter;
use super::layer_calls::LayerCalls;
use super::spread::{Repeated, Spread};
use super::timetable::{TimetableEvent, Transfer};
use super::{Movement, ReplayProgram};
use crate::config::LayerParts;
use crate::config::step::Recompute;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::schedule::{Pass as SchedulePass, PassDirection};
use crate::workload::step::TrainingStep;
use crate::workload::when::{End, Exposure, Moment, Overlap, Pass, When};
use std::collections::HashMap;

/// Inputs of the expansion of a stage.
pub(super) struct Expansion<'a> {
    pub step: &'a TrainingStep<'a>,
    pub stage: u32,
    pub events: &'a [TimetableEvent],
    /// The stage's own ops, and behind them those that it receives.
    pub ops: &'a [Op],
    pub own_ops: usize,
    /// By where they come from, the messages as indices into `ops`.
    pub received: &'a HashMap<MessageSource, usize>,
    pub forward_nanoseconds: u64,
    emit: Emitter,
    /// Of calls in the pass for inputs that gradients of weights hide where these are not computed separately.
    beside_weights: Exposure,
    layer_calls: HashMap<(Pass, LayerParts), LayerCalls>,
    /// Started with the layers of the first forward passes and the last backward passes.
    first_forward: InStep,
    last_backward: InStep,
    /// Posted ahead, by event.
    posted: HashMap<usize, Option<u32>>,
    /// By op, messages that are still to be sent.
    to_send: Vec<u64>,
}

/// Where the messages of a stage come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MessageSource {
    /// The stage that sends them.
    pub stage: u32,
    pub direction: PassDirection,
}

/// The computing of a layer in one pass.
#[derive(Clone, Copy)]
struct Computed {
    pass: Pass,
    nanoseconds: u64,
}

/// Calls spread over the layers of a few events of the step.
#[derive(Default)]
struct InStep {
    events: Vec<usize>,
    spreads: Vec<Spread>,
    /// Layers of these events that are done.
    units_done: usize,
    under_way: Vec<u32>,
}

impl<'a> Expansion<'a> {
    pub(super) fn new(
        step: &'a TrainingStep<'a>,
        stage: u32,
        events: &'a [TimetableEvent],
        ops: &'a [Op],
        own_ops: usize,
        received: &'a HashMap<MessageSource, usize>,
        forward_nanoseconds: u64,
    ) -> Expansion<'a> {
        let mut expansion = Expansion {
            step,
            stage,
            events,
            ops,
            own_ops,
            received,
            forward_nanoseconds,
            emit: Emitter::default(),
            beside_weights: match events.iter().any(|event| event.pass == SchedulePass::InputGradient) {
                true => Exposure::Exposed,
                false => Exposure::Hidden,
            },
            layer_calls: HashMap::new(),
            first_forward: InStep::default(),
            last_backward: InStep::default(),
            posted: HashMap::new(),
            to_send: ops.iter().map(|op| op.when.count_per_step(step.micro_batches).unwrap_or(0)).collect(),
        };
        expansion.first_forward = expansion.in_step(Moment::FirstForward);
        expansion.last_backward = expansion.in_step(Moment::LastBackward);
        expansion
    }

    /// Writes the whole step.
    pub(super) fn write(mut self, program: &mut ReplayProgram) {
        for op in self.of_step(Moment::FirstForward, Exposure::Exposed) {
            self.emit.exposed(op);
        }
        for event in 0..self.events.len() {
            self.event(event);
        }
        self.emit.wait_for_hidden();
        for slot in std::mem::take(&mut self.last_backward.under_way) {
            self.emit.wait(slot);
        }
        self.emit.wait_for_sent();
        for (moment, exposure) in [
            (Moment::LastBackward, Exposure::Exposed),
            (Moment::AfterBackward, Exposure::Exposed),
            (Moment::AfterBackward, Exposure::Hidden),
            (Moment::Optimizer, Exposure::Exposed),
            (Moment::Optimizer, Exposure::Hidden),
        ] {
            for op in self.of_step(moment, exposure) {
                self.emit.exposed(op);
            }
        }
        program.slots = self.emit.slots;
        program.actions = self.emit.actions;
    }

    fn event(&mut self, index: usize) {
        let event = self.events[index];
        self.receive(index);
        match event.pass {
            SchedulePass::Forward => {
                self.at_end(&event, Pass::Forward, End::Input);
                self.at_end(&event, Pass::Forward, End::BeforeOutput);
                self.layers(index, &[Computed { pass: Pass::Forward, nanoseconds: self.forward_nanoseconds }]);
                self.at_end(&event, Pass::Forward, End::Output);
            }
            SchedulePass::Backward => {
                self.at_end(&event, Pass::Recompute, End::Input);
                self.at_end(&event, Pass::Recompute, End::Output);
                self.at_end(&event, Pass::Backward, End::Output);
                self.at_end(&event, Pass::WeightGradient, End::Output);
                let forward = self.forward_nanoseconds;
                let passes = [
                    self.again(),
                    Computed { pass: Pass::Backward, nanoseconds: forward },
                    Computed { pass: Pass::WeightGradient, nanoseconds: forward },
                ];
                self.layers(index, &passes);
                self.at_end(&event, Pass::Backward, End::Input);
                self.at_end(&event, Pass::WeightGradient, End::Input);
            }
            SchedulePass::InputGradient => {
                self.at_end(&event, Pass::Recompute, End::Input);
                self.at_end(&event, Pass::Recompute, End::Output);
                self.at_end(&event, Pass::Backward, End::Output);
                let backward = Computed { pass: Pass::Backward, nanoseconds: self.forward_nanoseconds };
                self.layers(index, &[self.again(), backward]);
                self.at_end(&event, Pass::Backward, End::Input);
            }
            SchedulePass::WeightGradient => {
                self.at_end(&event, Pass::WeightGradient, End::Output);
                let weights = Computed { pass: Pass::WeightGradient, nanoseconds: self.forward_nanoseconds };
                self.layers(index, &[weights]);
                self.at_end(&event, Pass::WeightGradient, End::Input);
            }
        }
        self.send(&event);
    }

    /// Computing a layer again.
    fn again(&self) -> Computed {
        let nanoseconds = match self.step.training.tensor.recompute {
            Recompute::Full => self.forward_nanoseconds,
            Recompute::None | Recompute::Selective => 0,
        };
        Computed { pass: Pass::Recompute, nanoseconds }
    }

    /// The layers of an event in their order, each with its passes, and what is spread over them.
    fn layers(&mut self, index: usize, passes: &[Computed]) {
        let event = self.events[index];
        let mut layers = self.step.stages.layers_of_chunk(self.stage, event.chunk).to_vec();
        if event.pass != SchedulePass::Forward {
            layers.reverse();
        }
        let calls: Vec<Vec<LayerCalls>> = layers
            .iter()
            .map(|layer| passes.iter().map(|computed| self.calls_of(computed.pass, *layer)).collect())
            .collect();
        let ahead = |unit: usize| calls.get(unit).into_iter().flatten().flat_map(|calls| calls.ahead.iter().copied());
        let units = layers.len().max(1);
        let mut whole = self.whole(index, units);
        let (mut fetched, mut behind): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        fetched.extend(ahead(0).map(|op| self.emit.start(op, Movement::Together)));
        for unit in 0..units {
            self.before_layer(index, &mut whole, unit);
            for slot in std::mem::take(&mut fetched) {
                self.emit.wait(slot);
            }
            fetched.extend(ahead(unit + 1).map(|op| self.emit.start(op, Movement::Together)));
            for (calls, computed) in calls.get(unit).into_iter().flatten().zip(passes) {
                self.layer(calls, *computed);
            }
            for slot in std::mem::take(&mut behind) {
                self.emit.wait(slot);
            }
            for op in calls.get(unit).into_iter().flatten().flat_map(|calls| &calls.behind) {
                behind.push(self.emit.start(*op, Movement::Together));
            }
            self.after_layer(index, &mut whole, unit);
        }
        self.emit.hide(behind);
        self.emit.hide(whole.under_way);
        for op in whole.exposed {
            self.emit.exposed(op);
        }
    }

    fn calls_of(&mut self, pass: Pass, layer: u32) -> LayerCalls {
        let parts = self.step.model.parts_of(layer);
        let (ops, beside_weights) = (&self.ops[..self.own_ops], self.beside_weights);
        let known = self.layer_calls.entry((pass, parts));
        known.or_insert_with(|| LayerCalls::of(ops, pass, parts, beside_weights)).clone()
    }

    /// One layer in one pass: its computing in equal stretches around its calls.
    fn layer(&mut self, calls: &LayerCalls, computed: Computed) {
        let Computed { pass, nanoseconds } = computed;
        let stretch = nanoseconds / (calls.within.len() as u64 + 1);
        for call in &calls.within {
            self.emit.compute(pass, stretch);
            match call.exposure {
                Exposure::Exposed => self.emit.exposed(call.op),
                Exposure::Hidden => self.emit.hidden(call.op),
            }
        }
        self.emit.compute(pass, nanoseconds - stretch * calls.within.len() as u64);
    }

    fn before_layer(&mut self, index: usize, whole: &mut Whole, unit: usize) {
        let in_step = &mut self.first_forward;
        if in_step.events.contains(&index) {
            // The calls that this layer needs were started with the layer before; the first must wait for its own.
            let needed = if in_step.units_done == 0 { in_step.needed(0) } else { Vec::new() };
            let first: Vec<u32> = needed.into_iter().map(|op| self.emit.start(op, Movement::Together)).collect();
            let needed_now = [std::mem::take(&mut in_step.under_way), first].concat();
            let next = in_step.needed(in_step.units_done + 1);
            in_step.under_way = next.into_iter().map(|op| self.emit.start(op, Movement::Together)).collect();
            in_step.units_done += 1;
            needed_now.into_iter().for_each(|slot| self.emit.wait(slot));
        }
        let needed: Vec<usize> = whole.ahead.iter_mut().flat_map(|spread| spread.needed_before(unit)).collect();
        needed.into_iter().for_each(|op| self.emit.hidden(op));
    }

    fn after_layer(&mut self, index: usize, whole: &mut Whole, unit: usize) {
        let in_step = &mut self.last_backward;
        if in_step.events.contains(&index) {
            let unit = in_step.units_done;
            in_step.units_done += 1;
            let ready: Vec<usize> = in_step.spreads.iter_mut().flat_map(|spread| spread.ready_after(unit)).collect();
            for op in ready {
                in_step.under_way.push(self.emit.start(op, Movement::Together));
            }
        }
        let ready: Vec<usize> = whole.behind.iter_mut().flat_map(|spread| spread.ready_after(unit)).collect();
        for op in ready {
            whole.under_way.push(self.emit.start(op, Movement::Together));
        }
    }

    /// The calls once for a micro-batch that passed all chunks of the stage, if this event is its last.
    fn whole(&self, index: usize, units: usize) -> Whole {
        let event = self.events[index];
        let direction = event.pass.direction();
        let passes =
            |other: &TimetableEvent| other.micro_batch == event.micro_batch && other.pass.direction() == direction;
        if self.events[index + 1..].iter().any(passes) {
            return Whole::default();
        }
        let mut whole = Whole::default();
        let (mut ahead, mut behind) = (Vec::new(), Vec::new());
        for (index, op) in self.ops[..self.own_ops].iter().enumerate() {
            let When::MicroBatch { pass, end: End::Whole, calls, .. } = op.when else { continue };
            match op.overlap {
                _ if pass.direction() != direction => {}
                Overlap::Exposed => whole.exposed.extend(std::iter::repeat_n(index, calls as usize)),
                _ => match direction {
                    PassDirection::Forward => ahead.push(Repeated { op: index, count: calls }),
                    PassDirection::Backward => behind.push(Repeated { op: index, count: calls }),
                },
            }
        }
        whole.ahead = Spread::by_axis(self.ops, &ahead, units);
        whole.behind = Spread::by_axis(self.ops, &behind, units);
        whole
    }

    /// The calls before the first or after the last layer of the model.
    fn at_end(&mut self, event: &TimetableEvent, pass: Pass, end: End) {
        let layers = self.step.stages.layers_of_chunk(self.stage, event.chunk);
        let here = match end {
            End::Input => layers.contains(&0),
            End::BeforeOutput | End::Output => layers.contains(&(self.step.model.layers - 1)),
            End::Whole => false,
        };
        if !here {
            return;
        }
        let ops = self.ops;
        for (index, op) in ops[..self.own_ops].iter().enumerate() {
            let When::MicroBatch { pass: when, end: at, calls, .. } = op.when else { continue };
            if when != pass || at != end {
                continue;
            }
            let exposure = match op.overlap {
                Overlap::WeightGradient => self.beside_weights,
                overlap => overlap.exposure(),
            };
            for _ in 0..calls {
                match exposure {
                    Exposure::Exposed => self.emit.exposed(index),
                    Exposure::Hidden => self.emit.hidden(index),
                }
            }
        }
    }

    /// Waits for the message of an event, and posts the one of the next event before that is needed.
    fn receive(&mut self, index: usize) {
        for event in [index, index + 1] {
            if !self.posted.contains_key(&event) {
                let slot = self.post(event);
                self.posted.insert(event, slot);
            }
        }
        if let Some(slot) = self.posted.insert(index, None).flatten() {
            self.emit.wait(slot);
        }
    }

    fn post(&mut self, index: usize) -> Option<u32> {
        let event = self.events.get(index)?;
        let from = event.receives?;
        let direction = event.pass.direction();
        let op = *self.received.get(&MessageSource { stage: from.stage, direction })?;
        Some(self.emit.start(op, Movement::Receive { from: from.stage, stream: stream(from, direction) }))
    }

    /// Sends the message of an event, counted as in the list: those that fill the pipeline are the first of the
    /// forward ones, those that drain it the last of the others.
    fn send(&mut self, event: &TimetableEvent) {
        let Some(to) = event.sends else { return };
        let direction = event.pass.direction();
        let exposed_first = direction == PassDirection::Forward;
        let mut messages = messages_of(&self.ops[..self.own_ops], direction);
        messages.sort_by_key(|op| self.ops[*op].overlap.is_exposed() != exposed_first);
        let next = messages.iter().copied().find(|op| self.to_send[*op] > 0);
        // An excess message is sent all the same, and detected when the program is compared with the list.
        let Some(op) = next.or_else(|| messages.last().copied()) else { return };
        self.to_send[op] = self.to_send[op].saturating_sub(1);
        self.emit.send(op, to.stage, stream(to, direction));
    }

    /// The ops of a moment, each repeated by its count.
    fn of_step(&self, moment: Moment, exposure: Exposure) -> Vec<usize> {
        let mut found = Vec::new();
        for calls in self.calls_of_step(moment, exposure) {
            found.extend(calls.each());
        }
        found
    }

    fn calls_of_step(&self, moment: Moment, exposure: Exposure) -> Vec<Repeated> {
        let of = |(index, op): (usize, &Op)| match op.when {
            When::Step { moment: when, calls } if when == moment && op.overlap.exposure() == exposure => {
                Some(Repeated { op: index, count: calls })
            }
            _ => None,
        };
        self.ops[..self.own_ops].iter().enumerate().filter_map(of).collect()
    }

    fn in_step(&self, moment: Moment) -> InStep {
        let wanted = |event: &TimetableEvent| match moment {
            Moment::FirstForward => event.pass == SchedulePass::Forward,
            _ => event.makes_weight_gradients(),
        };
        let chunks = self.step.stages.chunks();
        let of_chunk = |chunk: u32| {
            let mut events = self.events.iter().enumerate();
            let here = |(_, event): &(usize, &TimetableEvent)| event.chunk == chunk && wanted(event);
            let found = if moment == Moment::FirstForward { events.find(here) } else { events.rfind(here) };
            found.map(|(index, _)| index)
        };
        let mut events: Vec<usize> = (0..chunks).filter_map(of_chunk).collect();
        events.sort_unstable();
        let layers =
            |event: &usize| self.step.stages.layers_of_chunk(self.stage, self.events[*event].chunk).len().max(1);
        let units = events.iter().map(layers).sum();
        let spreads = Spread::by_axis(self.ops, &self.calls_of_step(moment, Exposure::Hidden), units);
        InStep { events, spreads, units_done: 0, under_way: Vec::new() }
    }
}

impl InStep {
    fn needed(&mut self, unit: usize) -> Vec<usize> {
        self.spreads.iter_mut().flat_map(|spread| spread.needed_before(unit)).collect()
    }
}

/// Calls of a micro-batch that passed all chunks of the stage.
#[derive(Default)]
struct Whole {
    ahead: Vec<Spread>,
    behind: Vec<Spread>,
    exposed: Vec<usize>,
    under_way: Vec<u32>,
}

/// The messages to other stages in one direction.
pub(super) fn messages_of(ops: &[Op], direction: PassDirection) -> Vec<usize> {
    let here = |op: &Op| match op.when {
        When::Boundary { pass, .. } => pass.direction() == direction && op.axis == Axis::Pp,
        _ => false,
    };
    ops.iter().enumerate().filter(|(_, op)| here(op)).map(|(index, _)| index).collect()
}

/// A number for the messages from one stage to a chunk of another.
fn stream(end: Transfer, direction: PassDirection) -> u32 {
    2 * end.receiving_chunk + u32::from(direction == PassDirection::Forward)
}
