//! Conditions of each schedule on stages, virtual stages and micro-batches. The names are in `config`.

pub use crate::config::step::ScheduleKind;

use commgauge_base::units::Seconds;

/// Above this many events a schedule is rejected: they would take gigabytes.
const MOST_EVENTS: u128 = 1 << 26;

impl ScheduleKind {
    /// Whether a rank has two chunks in a V: one on the way down, the other on the way back.
    pub fn is_v_shaped(self) -> bool {
        matches!(self, ScheduleKind::ZbV | ScheduleKind::VHalf | ScheduleKind::VMin | ScheduleKind::DualPipeV)
    }

    /// Whether micro-batches come to a rank's chunks in rounds, so that the last rank sends to the first.
    pub fn goes_round(self) -> bool {
        matches!(self, ScheduleKind::Interleaved | ScheduleKind::InterleavedZb)
    }

    /// Copies of its layers' parameters on a rank, relative to the other kinds.
    #[inline]
    pub fn parameter_copies(self) -> u32 {
        if self == ScheduleKind::DualPipe { 2 } else { 1 }
    }

    /// The index of a rank's local chunk among the model's chunks, counted from the embedding.
    ///
    /// Interleaved: chunk x p + rank. V: rank going down, 2p - 1 - rank coming back. DualPipe: rank for the direction
    /// that starts at rank 0, p - 1 - rank for the other; both directions cover all chunks of the model.
    #[inline]
    pub fn model_chunk(self, stages: u32, rank: u32, chunk: u32) -> u32 {
        match self {
            ScheduleKind::DualPipe if chunk == 1 => stages - 1 - rank,
            kind if kind.is_v_shaped() && chunk == 1 => 2 * stages - 1 - rank,
            _ => chunk * stages + rank,
        }
    }

    /// The chunks per rank, or the violated rule.
    ///
    /// # Errors
    /// If a rule is violated, with the nearest accepted values.
    pub fn check_rules(self, stages: u32, virtual_stages: u32, micro_batches: u32) -> Result<u32, String> {
        let name = self.name();
        for (what, count) in
            [("pipeline stages", stages), ("virtual stages", virtual_stages), ("micro-batches", micro_batches)]
        {
            if count == 0 {
                return Err(format!("{name}: 0 {what}, must be at least 1"));
            }
        }
        let chunks = self.chunks_of(virtual_stages)?;
        match self {
            kind if kind.goes_round() => check_whole_groups(kind, stages, micro_batches)?,
            ScheduleKind::DualPipe => check_two_directions(stages, micro_batches)?,
            ScheduleKind::DualPipeV if u64::from(micro_batches) < 2 * u64::from(stages) => {
                return Err(format!(
                    "dualpipe-v: {micro_batches} micro-batches, must be at least 2 x pipeline stages = {}",
                    2 * u64::from(stages)
                ));
            }
            _ => {}
        }
        Ok(chunks)
    }

    /// The chunks per rank, or the violated rule: one of the schedule's own, or that its events fit into memory.
    pub(super) fn check(self, stages: u32, virtual_stages: u32, micro_batches: u32) -> Result<u32, String> {
        let (name, chunks) = (self.name(), self.check_rules(stages, virtual_stages, micro_batches)?);
        let events = 3 * u128::from(stages) * u128::from(chunks) * u128::from(micro_batches);
        if events > MOST_EVENTS {
            let most = match MOST_EVENTS / (3 * u128::from(stages) * u128::from(chunks)) {
                0 => "fewer stages or chunks".to_string(),
                most => format!("at most {most} micro-batches"),
            };
            return Err(format!(
                "{name}: {micro_batches} micro-batches over {stages} stages of {chunks} chunks make {events} passes, more \
                 than {MOST_EVENTS}; {most} are accepted"
            ));
        }
        Ok(chunks)
    }

    /// Chunks on a rank, or the violated rule.
    pub fn chunks_of(self, virtual_stages: u32) -> Result<u32, String> {
        let name = self.name();
        match (self, virtual_stages) {
            (ScheduleKind::Interleaved, 1) => {
                Err("interleaved: 1 virtual stage, must be at least 2; without virtual stages it is 1f1b".to_string())
            }
            (ScheduleKind::InterleavedZb, 1) => {
                Err("interleaved-zb: 1 virtual stage, must be at least 2; without virtual stages it is zb-h1"
                    .to_string())
            }
            (kind, v) if kind.goes_round() => Ok(v),
            (kind, 1 | 2) if kind.is_v_shaped() => Ok(2),
            (kind, v) if kind.is_v_shaped() => {
                Err(format!("{name}: {v} virtual stages, must be 2, the two arms of its V (or 1, not set)"))
            }
            (ScheduleKind::DualPipe, 1) => Ok(2),
            (_, 1) => Ok(1),
            (_, v) => Err(format!("{name}: {v} virtual stages, must be 1; interleaved and interleaved-zb allow more")),
        }
    }
}

fn check_whole_groups(kind: ScheduleKind, stages: u32, micro_batches: u32) -> Result<(), String> {
    if micro_batches.is_multiple_of(stages) {
        return Ok(());
    }
    Err(format!(
        "{kind}: {micro_batches} micro-batches, must be a multiple of the {stages} pipeline stages; {}",
        nearest(u64::from(micro_batches), u64::from(stages), u64::from(stages))
    ))
}

fn check_two_directions(stages: u32, micro_batches: u32) -> Result<(), String> {
    if !stages.is_multiple_of(2) {
        return Err(format!("dualpipe: {stages} pipeline stages, must be even; {}", nearest(u64::from(stages), 2, 2)));
    }
    let fewest = 2 * u64::from(stages);
    if u64::from(micro_batches) < fewest || !micro_batches.is_multiple_of(2) {
        return Err(format!(
            "dualpipe: {micro_batches} micro-batches, must be even and at least 2 x pipeline stages = {fewest}; {}",
            nearest(u64::from(micro_batches), 2, fewest)
        ));
    }
    Ok(())
}

/// The multiples of `step` next to `count`, none below `fewest`.
fn nearest(count: u64, step: u64, fewest: u64) -> String {
    let below = count / step * step;
    if below < fewest { format!("nearest: {fewest}") } else { format!("nearest: {below} or {}", below + step) }
}

// DualPipe and DualPipeV: micro-batches that enter from both ends, over two copies of the model or over the two arms of a V.

/// DualPipe (arXiv 2412.19437 figure 5): half of the micro-batches enter at rank 0 (chunk 0), half at the last rank
/// (chunk 1). Rank i and rank p - 1 - i do the same with the directions exchanged.
pub(super) fn two_directions(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let half = micro_batches / 2;
    (0..stages)
        .map(|rank| {
            let mirrored = stages - 1 - rank;
            let mut list = arms(stages / 2, rank.min(mirrored), half);
            for event in &mut list {
                // Arm 0 is the direction that enters at this rank's end.
                event.chunk = if rank < stages / 2 { event.chunk } else { 1 - event.chunk };
                event.micro_batch += half * event.chunk;
            }
            list
        })
        .collect()
}

/// DualPipeV: the half of DualPipe in which a micro-batch that leaves arm 0 at the last rank returns through arm 1.
pub(super) fn v_shape(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    (0..stages).map(|rank| arms(stages, rank, micro_batches)).collect()
}

/// The eight steps of one rank (repository deepseek-ai/DualPipe, dualpipe/dualpipe.py, `step`): `half` ranks from the
/// outer end to the middle, this one `depth` from the outer end, `micro_batches` through each arm. A forward and a
/// whole backward that DualPipe overlaps are listed one after the other.
fn arms(half: u32, depth: u32, micro_batches: u32) -> Vec<Event> {
    let to_middle = half - depth - 1;
    let mut list = List { events: Vec::with_capacity(6 * micro_batches as usize), ..List::default() };
    for _ in 0..2 * to_middle {
        list.forward(0);
    }
    for _ in 0..depth + 1 {
        list.forward(0);
        list.forward(1);
    }
    for _ in 0..to_middle {
        list.input_gradient(1);
        list.weight_gradient();
        list.forward(1);
    }
    for _ in 0..micro_batches + depth + 1 - 2 * half {
        list.forward(0);
        list.backward(1);
        list.forward(1);
        list.backward(0);
    }
    for _ in 0..to_middle {
        list.backward(1);
        list.forward(1);
        list.backward(0);
    }
    // The second half of these backwards leave their weight gradients for the gaps that follow.
    let pairs = depth + 1;
    for k in 0..2 * pairs {
        let arm = 1 - k % 2;
        if k >= pairs { list.input_gradient(arm) } else { list.backward(arm) }
    }
    for _ in 0..to_middle {
        list.weight_gradient();
        list.input_gradient(0);
    }
    for _ in 0..pairs {
        list.weight_gradient();
    }
    list.events
}

/// A forward followed by a whole backward overlaps with it, except the first such pair in the middle, which shortens the bubble (same
/// source).
pub(super) fn overlaps_next(half: u32, depth: u32, events: &[Event], place: usize) -> bool {
    let first_in_the_middle = depth + 1 == half && place == 2 * half as usize;
    match events.get(place..place + 2) {
        Some([forward, backward]) => {
            forward.pass == Pass::Forward && backward.pass == Pass::Backward && !first_in_the_middle
        }
        _ => false,
    }
}

#[derive(Default)]
struct List {
    events: Vec<Event>,
    forwards: [u32; 2],
    backwards: [u32; 2],
    /// Deferred weight gradients, oldest first.
    deferred: std::collections::VecDeque<Event>,
}

impl List {
    fn forward(&mut self, arm: u32) {
        self.events.push(next(Pass::Forward, arm, &mut self.forwards));
    }

    fn backward(&mut self, arm: u32) {
        self.events.push(next(Pass::Backward, arm, &mut self.backwards));
    }

    fn input_gradient(&mut self, arm: u32) {
        let event = next(Pass::InputGradient, arm, &mut self.backwards);
        self.deferred.push_back(Event { pass: Pass::WeightGradient, ..event });
        self.events.push(event);
    }

    fn weight_gradient(&mut self) {
        self.events.extend(self.deferred.pop_front());
    }
}

fn next(pass: Pass, arm: u32, counts: &mut [u32; 2]) -> Event {
    let count = &mut counts[arm as usize];
    *count += 1;
    Event { pass, micro_batch: *count - 1, chunk: arm }
}

// Interleaved 1F1B: v chunks per rank, visited in groups of p micro-batches; with whole backwards, or with separate weight gradients.

/// The passes of a rank, counted in the order in which micro-batches come round: group g of p micro-batches passes chunk 0, then
/// chunk 1, ...; backwards the chunks are in reverse order.
struct Rounds {
    stages: u32,
    chunks: u32,
}

impl Rounds {
    fn forward(&self, k: u32) -> Event {
        let (round, in_round) = (k / (self.stages * self.chunks), k % (self.stages * self.chunks));
        let micro_batch = round * self.stages + k % self.stages;
        Event { pass: Pass::Forward, micro_batch, chunk: in_round / self.stages }
    }

    fn backward(&self, pass: Pass, k: u32) -> Event {
        let forward = self.forward(k);
        Event { pass, chunk: self.chunks - 1 - forward.chunk, ..forward }
    }
}

/// Warm-up of 2(p - rank - 1) + (v - 1)p chunk forwards, then alternating one forward and one backward (arXiv 2104.04473 section 2.2.2;
/// Megatron-LM megatron/core/pipeline_parallel/schedules.py, `get_pp_rank_microbatches`).
pub(super) fn events(stages: u32, chunks: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let rounds = Rounds { stages, chunks };
    let of_rank = |rank| {
        let warm_up = 2 * (stages - rank - 1) + (chunks - 1) * stages;
        in_turn(warm_up, micro_batches * chunks, |k| rounds.forward(k), |k| rounds.backward(Pass::Backward, k))
    };
    (0..stages).map(of_rank).collect()
}

/// Warm-up of (p - rank - 1) + (v - 1)p chunk forwards, then alternating a forward, an input gradient and the weight gradient of `rank`
/// backward passes ago (torch/distributed/pipelining/schedules.py, `ScheduleInterleavedZeroBubble`, `_get_1f1b_rank_ops`).
pub(super) fn zero_bubble(stages: u32, chunks: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let rounds = Rounds { stages, chunks };
    let count = micro_batches * chunks;
    let of_rank = |rank: u32| {
        let weights = |k: u32| rounds.backward(Pass::WeightGradient, k);
        let warm_up = (stages - rank - 1) + (chunks - 1) * stages;
        let passes = in_turn(warm_up, count, |k| rounds.forward(k), |k| rounds.backward(Pass::InputGradient, k));
        let mut list = Vec::with_capacity(3 * count as usize);
        let mut gradients = 0;
        for event in passes {
            list.push(event);
            if event.pass == Pass::InputGradient {
                list.extend((gradients >= rank).then(|| weights(gradients - rank)));
                gradients += 1;
            }
        }
        list.extend((count.saturating_sub(rank)..count).map(weights));
        list
    };
    (0..stages).map(of_rank).collect()
}

// The schedules with one chunk per rank and whole backwards: naive, GPipe and 1F1B.

/// One micro-batch at a time, forward and backward.
pub(super) fn naive(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let list = (0..micro_batches).flat_map(|k| [forward(k), backward(k)]).collect();
    vec![list; stages as usize]
}

/// All forwards, then all backwards in the same order.
pub(super) fn gpipe(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    let list = (0..micro_batches).map(forward).chain((0..micro_batches).map(backward)).collect();
    vec![list; stages as usize]
}

/// Warm-up of p - rank - 1 forwards, then alternating one forward and one backward, then the remaining backwards (Megatron-LM
/// megatron/core/pipeline_parallel/schedules.py, `forward_backward_pipelining_without_interleaving`).
pub(super) fn one_forward_one_backward(stages: u32, micro_batches: u32) -> Vec<Vec<Event>> {
    (0..stages).map(|rank| in_turn(stages - rank - 1, micro_batches, forward, backward)).collect()
}

/// `warm_up` of the first, then alternating one of the first and one of the second, then the rest of the second.
pub(super) fn in_turn(
    warm_up: u32,
    count: u32,
    first: impl Fn(u32) -> Event,
    second: impl Fn(u32) -> Event,
) -> Vec<Event> {
    let warm_up = warm_up.min(count);
    let mut list: Vec<Event> = (0..warm_up).map(&first).collect();
    for k in 0..count {
        if k < count - warm_up {
            list.push(first(warm_up + k));
        }
        list.push(second(k));
    }
    list
}

fn forward(micro_batch: u32) -> Event {
    Event { pass: Pass::Forward, micro_batch, chunk: 0 }
}

fn backward(micro_batch: u32) -> Event {
    Event { pass: Pass::Backward, micro_batch, chunk: 0 }
}

// One pass of one rank, and the messages between ranks.

/// The computing of one event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// F: the activations of a micro-batch through the layers of a chunk.
    Forward,
    /// The whole backward: the gradients of the input and of the weights as one pass.
    Backward,
    /// B of the zero-bubble papers: only the gradient of the input, which the previous stage waits for.
    InputGradient,
    /// W of the zero-bubble papers: only the gradient of the weights, on which no other pass depends.
    WeightGradient,
}

/// The direction of a message or a pass through the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PassDirection {
    /// To the next chunk of the model, with activations.
    Forward,
    /// To the chunk before, with gradients.
    Backward,
}

impl PassDirection {
    pub(super) fn opposite(self) -> PassDirection {
        match self {
            PassDirection::Forward => PassDirection::Backward,
            PassDirection::Backward => PassDirection::Forward,
        }
    }
}

impl Pass {
    /// The direction of its result: activations forward, gradients backward.
    pub fn direction(self) -> PassDirection {
        match self {
            Pass::Forward => PassDirection::Forward,
            Pass::Backward | Pass::InputGradient | Pass::WeightGradient => PassDirection::Backward,
        }
    }

    /// Whether the activations of its forward are freed at its end.
    pub(super) fn frees_activations(self) -> bool {
        matches!(self, Pass::Backward | Pass::WeightGradient)
    }
}

/// One pass of one micro-batch through one of the rank's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Event {
    /// The pass.
    pub pass: Pass,
    /// Which micro-batch, from 0.
    pub micro_batch: u32,
    /// Index of the chunk among those of the rank, from 0; [`Schedule::model_chunk_of`] returns its layers.
    pub chunk: u32,
}

/// A point-to-point message between two ranks: the activations of a forward, or the gradients of a backward.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// The rank at the other end.
    pub peer: u32,
    /// Whether it carries activations to the next chunk of the model; otherwise gradients to the previous one.
    pub forward: bool,
    /// The micro-batch of its activations or gradients.
    pub micro_batch: u32,
    /// The chunk at this end whose event sends the message or waits for it.
    pub chunk: u32,
    /// The chunk at the other end.
    pub peer_chunk: u32,
    /// The index of that event in the list of this end: the message leaves after it, or must arrive before it.
    pub event: usize,
}

// The events of each rank of a pp group in order, and the derived messages and peak activations.

/// The events of each rank of a pp group in one optimizer step, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    pub kind: ScheduleKind,
    /// Ranks of the pp group.
    pub stages: u32,
    /// Chunks per rank: v; for dualpipe 2, one copy of a stage for each direction.
    pub(super) chunks: u32,
    /// Micro-batches of the step, over both directions of dualpipe.
    pub micro_batches: u32,
    pub(super) events: Vec<Vec<Event>>,
}

impl Schedule {
    /// The events of a rank in run order. A rank outside the group has none.
    pub fn events(&self, rank: u32) -> &[Event] {
        self.events.get(rank as usize).map_or(&[], Vec::as_slice)
    }

    /// Whether a rank runs this event and the next in its list as one, as DualPipe does with a forward and a whole backward of the other
    /// direction.
    pub fn overlaps_next(&self, rank: u32, event: usize) -> bool {
        match self.kind {
            ScheduleKind::DualPipe => overlaps_next(self.stages / 2, self.mirrored(rank), self.events(rank), event),
            ScheduleKind::DualPipeV => overlaps_next(self.stages, rank, self.events(rank), event),
            _ => false,
        }
    }

    /// Distance of a rank from the nearer end of the group.
    pub(super) fn mirrored(&self, rank: u32) -> u32 {
        rank.min((self.stages - 1).saturating_sub(rank))
    }

    /// The messages that a rank sends, in the order of the events that produce them. Neighbouring chunks of one rank, as at the turning
    /// point of a V, exchange none.
    pub fn sends(&self, rank: u32) -> impl Iterator<Item = Message> + '_ {
        self.messages(rank, Schedule::consumer_place)
    }

    /// The messages that a rank receives, in the order of the events that wait for them.
    pub fn receives(&self, rank: u32) -> impl Iterator<Item = Message> + '_ {
        self.messages(rank, Schedule::producer_place)
    }

    fn messages(
        &self,
        rank: u32,
        other_end: fn(&Schedule, u32, &Event) -> Option<(u32, u32)>,
    ) -> impl Iterator<Item = Message> + '_ {
        self.events(rank).iter().enumerate().filter_map(move |(place, event)| {
            let (peer, peer_chunk) = other_end(self, rank, event)?;
            let (forward, micro_batch, chunk) = (event.pass == Pass::Forward, event.micro_batch, event.chunk);
            (peer != rank).then_some(Message { peer, forward, micro_batch, chunk, peer_chunk, event: place })
        })
    }

    /// Number of activations that a rank sends per step.
    pub fn forward_sends(&self, rank: u32) -> u64 {
        self.sends(rank).filter(|message| message.forward).count() as u64
    }

    /// Number of activation gradients that a rank sends per step.
    pub fn backward_sends(&self, rank: u32) -> u64 {
        self.sends(rank).filter(|message| !message.forward).count() as u64
    }

    /// The maximum number of chunk forwards whose activations a rank stores at once. They count until the whole backward or the weight
    /// gradient has ended, although the weight gradient needs fewer of them.
    pub fn peak_activation_chunks(&self, rank: u32) -> u32 {
        let mut stored = 0u32;
        let mut peak = 0;
        for event in self.events(rank) {
            if event.pass == Pass::Forward {
                stored += 1;
                peak = peak.max(stored);
            } else if event.pass.frees_activations() {
                stored = stored.saturating_sub(1);
            }
        }
        peak
    }

    /// The share of a chunk in a time of `per_stage` for a whole stage.
    pub(super) fn share(&self, per_stage: Seconds) -> Seconds {
        Seconds(per_stage.0 / f64::from(self.chunks_per_stage()))
    }
}

/// What the figures of the papers state.
#[cfg(test)]
impl Schedule {
    /// [`Schedule::peak_activation_chunks`] in micro-batches of one whole stage: a chunk counts for its share of it.
    pub fn peak_activations(&self, rank: u32) -> f64 {
        f64::from(self.peak_activation_chunks(rank)) / f64::from(self.chunks_per_stage())
    }

    /// As [`Schedule::peak_activations`], if after the input gradient only `weight_gradient_activations` of a
    /// forward's activations are stored for the weight gradient (arXiv 2401.10241 table 1: M_W / M_B).
    pub fn peak_activations_with(&self, rank: u32, weight_gradient_activations: f64) -> f64 {
        let (mut in_flight, mut deferred) = (0i64, 0i64);
        let mut peak = 0.0;
        for event in self.events(rank) {
            match event.pass {
                Pass::Forward => in_flight += 1,
                Pass::Backward => in_flight -= 1,
                Pass::InputGradient => (in_flight, deferred) = (in_flight - 1, deferred + 1),
                Pass::WeightGradient => deferred -= 1,
            }
            peak = f64::max(peak, in_flight as f64 + weight_gradient_activations * deferred as f64);
        }
        peak / f64::from(self.chunks_per_stage())
    }

    /// The largest [`Schedule::peak_activations`] of a rank.
    pub fn peak_activations_max(&self) -> f64 {
        (0..self.stages).map(|rank| self.peak_activations(rank)).fold(0.0, f64::max)
    }
}
