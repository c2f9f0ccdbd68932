//! Walks through the events of a stage and writes the actions of each, layer by layer.

use super::timetable::{TimetableEvent, Transfer};
use super::{Action, Movement, ReplayProgram, Slot};
use crate::config::LayerParts;
use crate::config::step::Recompute;
use crate::layout::Axis;
use crate::workload::Op;
use crate::workload::op::{End, Exposure, Moment, Overlap, Pass, When};
use crate::workload::schedule::{Pass as SchedulePass, PassDirection};
use crate::workload::step::TrainingStep;
use commgauge_base::writing::grouped;
use std::collections::HashMap;

/// Inputs of the expansion of a stage.
pub(super) struct Expansion<'a> {
    pub step: &'a TrainingStep<'a>,
    pub stage: u32,
    pub events: &'a [TimetableEvent],
    /// The stage's own ops, followed by those that it receives.
    pub ops: &'a [Op],
    pub own_ops: usize,
    /// The messages by source, as indices into `ops`.
    pub received: &'a HashMap<MessageSource, usize>,
    pub forward_nanoseconds: u64,
    emit: Emitter,
    /// Calls in the pass for inputs that gradients of weights hide if these are not computed separately.
    with_weight_gradients: Exposure,
    layer_calls: HashMap<(Pass, LayerParts), LayerCalls>,
    /// Started with the layers of the first forward passes and the last backward passes.
    first_forward: InStep,
    last_backward: InStep,
    /// Receives posted ahead, by event.
    posted: HashMap<usize, Option<u32>>,
    /// By op, messages still to send.
    to_send: Vec<u64>,
}

/// The source of a stage's messages.
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
    /// Finished layers of these events.
    units_done: usize,
    in_flight: Vec<u32>,
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
            with_weight_gradients: match events.iter().any(|event| event.pass == SchedulePass::InputGradient) {
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
        for slot in std::mem::take(&mut self.last_backward.in_flight) {
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

    /// Recomputing of a layer.
    fn again(&self) -> Computed {
        let nanoseconds = match self.step.training.tensor.recompute {
            Recompute::Full => self.forward_nanoseconds,
            Recompute::None | Recompute::Selective => 0,
        };
        Computed { pass: Pass::Recompute, nanoseconds }
    }

    /// The layers of an event in their order, each with its passes, and the calls spread over them.
    fn layers(&mut self, index: usize, passes: &[Computed]) {
        let event = self.events[index];
        let mut layers = self.step.stages.layers_of_chunk(self.stage, event.chunk).to_vec();
        if event.pass != SchedulePass::Forward {
            layers.reverse();
        }
        let step = self.step;
        let in_chunk = step.stages.layers_of_chunk(self.stage, event.chunk);
        let mut calls: Vec<Vec<(LayerCalls, Computed)>> = Vec::with_capacity(layers.len());
        for layer in &layers {
            let here = passes.iter().filter(|computed| step.layers_in_pass(computed.pass, in_chunk).contains(layer));
            calls.push(here.map(|computed| (self.calls_of(computed.pass, *layer), *computed)).collect());
        }
        let of_unit = |unit: usize| calls.get(unit).into_iter().flatten();
        let ahead = |unit: usize| of_unit(unit).flat_map(|(calls, _)| calls.ahead.iter().copied());
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
            for (calls, computed) in of_unit(unit) {
                self.layer(calls, *computed);
            }
            for slot in std::mem::take(&mut behind) {
                self.emit.wait(slot);
            }
            for op in of_unit(unit).flat_map(|(calls, _)| &calls.behind) {
                behind.push(self.emit.start(*op, Movement::Together));
            }
            self.after_layer(index, &mut whole, unit);
        }
        self.emit.hide(behind);
        self.emit.hide(whole.in_flight);
        for op in whole.exposed {
            self.emit.exposed(op);
        }
    }

    fn calls_of(&mut self, pass: Pass, layer: u32) -> LayerCalls {
        let parts = self.step.model.parts_of(layer);
        let (ops, with_weight_gradients) = (&self.ops[..self.own_ops], self.with_weight_gradients);
        let known = self.layer_calls.entry((pass, parts));
        known.or_insert_with(|| LayerCalls::of(ops, pass, parts, with_weight_gradients)).clone()
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
            let needed_now = [std::mem::take(&mut in_step.in_flight), first].concat();
            let next = in_step.needed(in_step.units_done + 1);
            in_step.in_flight = next.into_iter().map(|op| self.emit.start(op, Movement::Together)).collect();
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
                in_step.in_flight.push(self.emit.start(op, Movement::Together));
            }
        }
        let ready: Vec<usize> = whole.behind.iter_mut().flat_map(|spread| spread.ready_after(unit)).collect();
        for op in ready {
            whole.in_flight.push(self.emit.start(op, Movement::Together));
        }
    }

    /// The calls once per micro-batch that has passed all chunks of the stage, if this event is its last.
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
        let [has_input, has_output] = self.step.stages.ends_of_chunk(self.stage, event.chunk);
        let here = match end {
            End::Input => has_input,
            End::BeforeOutput | End::Output => has_output,
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
                Overlap::WeightGradient => self.with_weight_gradients,
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

    /// Sends the message of an event, counted as in the list: messages that fill the pipeline are the first forward ones, messages that
    /// drain it the last backward ones.
    fn send(&mut self, event: &TimetableEvent) {
        let Some(to) = event.sends else { return };
        let direction = event.pass.direction();
        let exposed_first = direction == PassDirection::Forward;
        let mut messages = messages_of(&self.ops[..self.own_ops], direction);
        messages.sort_by_key(|op| self.ops[*op].overlap.is_exposed() != exposed_first);
        let next = messages.iter().copied().find(|op| self.to_send[*op] > 0);
        // An excess message is still sent, and detected when the program is compared with the list.
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
        InStep { events, spreads, units_done: 0, in_flight: Vec::new() }
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
    in_flight: Vec<u32>,
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

// Writes the actions of a program: tracks free slots, and what to wait for after the next stretch of computing.

/// A program being written.
#[derive(Debug, Default)]
pub(super) struct Emitter {
    pub slots: Vec<Slot>,
    pub actions: Vec<Action>,
    /// Slots that are not in flight.
    free: HashMap<Slot, Vec<u32>>,
    /// Calls in flight, hidden by the next stretch of computing.
    hidden: Vec<u32>,
    /// Sent messages.
    sent: Vec<u32>,
}

impl Emitter {
    /// Starts a call in a free slot and returns the slot.
    pub(super) fn start(&mut self, op: usize, movement: Movement) -> u32 {
        let slot = Slot { op: op as u32, movement };
        let index = self.free.get_mut(&slot).and_then(Vec::pop).unwrap_or_else(|| {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        });
        self.actions.push(Action::Start { slot: index });
        index
    }

    pub(super) fn wait(&mut self, slot: u32) {
        self.actions.push(Action::Wait { slot });
        self.free.entry(self.slots[slot as usize]).or_default().push(slot);
    }

    /// An exposed call, waited for at once.
    pub(super) fn exposed(&mut self, op: usize) {
        let slot = self.start(op, Movement::Together);
        self.wait(slot);
    }

    /// A call that the next stretch of computing hides.
    pub(super) fn hidden(&mut self, op: usize) {
        let slot = self.start(op, Movement::Together);
        self.hidden.push(slot);
    }

    /// Leaves calls in flight to be hidden by the next stretch of computing.
    pub(super) fn hide(&mut self, slots: impl IntoIterator<Item = u32>) {
        self.hidden.extend(slots);
    }

    /// Sends a message; it is waited for when all passes are done.
    pub(super) fn send(&mut self, op: usize, to: u32, stream: u32) {
        let slot = self.start(op, Movement::Send { to, stream });
        self.sent.push(slot);
    }

    /// Computes, then waits for the calls hidden by that.
    pub(super) fn compute(&mut self, pass: Pass, nanoseconds: u64) {
        if nanoseconds > 0 {
            self.actions.push(Action::Compute { pass, nanoseconds });
        }
        self.wait_for_hidden();
    }

    /// Waits for calls that nothing hides any longer.
    pub(super) fn wait_for_hidden(&mut self) {
        for slot in std::mem::take(&mut self.hidden) {
            self.wait(slot);
        }
    }

    /// Waits until all messages have left.
    pub(super) fn wait_for_sent(&mut self) {
        for slot in std::mem::take(&mut self.sent) {
            self.wait(slot);
        }
    }
}

// The calls of one layer in one pass, in order, and how each is hidden.

/// The calls of a layer in a pass: indices of ops.
#[derive(Clone, Debug, Default)]
pub(super) struct LayerCalls {
    /// Fetched during the previous layer.
    pub ahead: Vec<usize>,
    /// Within the layer, with stretches of computing between them, which may hide the call before.
    pub within: Vec<CallWithin>,
    /// Started after the layer, waited for after the next one.
    pub behind: Vec<usize>,
}

/// A call between two stretches of a layer's computing.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallWithin {
    /// Index of its op.
    pub op: usize,
    pub exposure: Exposure,
}

/// A call within a layer, and the part of the layer's computing before it: `numerator` of `denominator`.
#[derive(Clone, Copy)]
struct Placed {
    numerator: u64,
    denominator: u64,
    call: CallWithin,
}

impl LayerCalls {
    /// The calls of `pass` in a layer of these parts. `with_weight_gradients`: whether gradients of weights hide a call of the pass for inputs,
    /// which they cannot where they are computed separately.
    pub(super) fn of(ops: &[Op], pass: Pass, layer: LayerParts, with_weight_gradients: Exposure) -> LayerCalls {
        let mut calls = LayerCalls::default();
        // Calls of one op are evenly spread over the layer: call i of n at (2i + 1) / 2n of it, ops in list order.
        let mut within: Vec<Placed> = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let When::Layer { pass: when, kind, calls_per_layer, .. } = op.when else { continue };
            if when != pass || !kind.has(layer) {
                continue;
            }
            let repeated = std::iter::repeat_n(index, calls_per_layer as usize);
            match op.overlap {
                Overlap::Exposed => within.extend(evenly(index, calls_per_layer, Exposure::Exposed)),
                Overlap::WeightGradient => within.extend(evenly(index, calls_per_layer, with_weight_gradients)),
                Overlap::InputGradient | Overlap::Attention | Overlap::Pieces => {
                    within.extend(evenly(index, calls_per_layer, Exposure::Hidden));
                }
                Overlap::Prefetch | Overlap::FirstForward => calls.ahead.extend(repeated),
                Overlap::Backward | Overlap::LastBackward | Overlap::SteadyState | Overlap::NextLayers => {
                    calls.behind.extend(repeated);
                }
            }
        }
        let across = |one: &Placed, other: &Placed| u128::from(one.numerator) * u128::from(other.denominator);
        within.sort_by(|one, other| across(one, other).cmp(&across(other, one)));
        calls.within = within.into_iter().map(|placed| placed.call).collect();
        calls
    }
}

/// The calls of an op, spread over a layer.
fn evenly(op: usize, calls: u64, exposure: Exposure) -> impl Iterator<Item = Placed> {
    let call = CallWithin { op, exposure };
    (0..calls).map(move |number| Placed { numerator: 2 * number + 1, denominator: 2 * calls, call })
}

// Calls of a step or a micro-batch, spread over the layers that they overlap with.

/// An op of a list, by its index, called several times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeated {
    pub op: usize,
    pub count: u64,
}

impl Repeated {
    /// The op, once for each call.
    pub fn each(self) -> impl Iterator<Item = usize> {
        std::iter::repeat_n(self.op, self.count as usize)
    }
}

/// Calls on one axis, in order, over this many layers ("units").
#[derive(Clone, Debug)]
pub(super) struct Spread {
    calls: Vec<usize>,
    units: usize,
    started: usize,
}

impl Spread {
    /// The calls of some ops, axis by axis.
    pub(super) fn by_axis(ops: &[Op], calls: &[Repeated], units: usize) -> Vec<Spread> {
        let axes = grouped(calls.iter().flat_map(|calls| calls.each()).map(|op| (ops[op].axis, op)));
        axes.into_iter().map(|(_, calls)| Spread { calls, units: units.max(1), started: 0 }).collect()
    }

    /// The calls whose data the layers up to this one produce, and that were not returned yet.
    pub(super) fn ready_after(&mut self, unit: usize) -> Vec<usize> {
        self.up_to(self.calls.len() * (unit + 1).min(self.units) / self.units)
    }

    /// The calls whose data the layers up to this one need, and that were not returned yet.
    pub(super) fn needed_before(&mut self, unit: usize) -> Vec<usize> {
        self.up_to((self.calls.len() * (unit + 1).min(self.units)).div_ceil(self.units))
    }

    fn up_to(&mut self, end: usize) -> Vec<usize> {
        let given = self.calls[self.started.min(end)..end].to_vec();
        self.started = self.started.max(end);
        given
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::workload::Style;
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;

    #[test]
    fn calls_come_as_their_layers_are_done_and_before_their_layers_begin() {
        let op = |axis| Op::new(Style::Data, axis, Collective::AllReduce, ElementType::Float32, 64);
        let ops = [op(Axis::Dp), op(Axis::Dp), op(Axis::Edp)];
        let spread = || Spread::by_axis(&ops, &[(0, 3), (1, 1), (2, 1)].map(|(op, count)| Repeated { op, count }), 8);
        let mut dense = spread().remove(0);
        let ready: Vec<_> = (0..8).map(|unit| dense.ready_after(unit)).collect();
        assert_eq!(ready, [vec![], vec![0], vec![], vec![0], vec![], vec![0], vec![], vec![1]]);
        let mut dense = spread().remove(0);
        let needed: Vec<_> = (0..8).map(|unit| dense.needed_before(unit)).collect();
        assert_eq!(needed, [vec![0], vec![], vec![0], vec![], vec![0], vec![], vec![1], vec![]]);
        assert_eq!(spread()[1].ready_after(7), [2]);
        // More calls than layers.
        let mut one = Spread::by_axis(&ops, &[Repeated { op: 0, count: 5 }], 0).remove(0);
        assert_eq!(one.ready_after(0).len(), 5);
    }
}
