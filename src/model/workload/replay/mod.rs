//! One training step, or a recorded trace, as a program for each rank: computing, started calls and waits, in order.
//!
//! Nothing is sent here; a backend executes the programs. All ranks of a stage have the same program, since every group except the
//! pipeline's is within a stage; messages name the stage at their other end.
//!
//! Why there is no deadlock: within a stage all ranks start the same calls in the same order. Groups across stages (the embedding, all
//! ranks of a replica) have calls only after the last pass, in the order of the list of ops, which is the same on every stage. Messages are
//! started, never waited for, until all passes are complete, and receives are posted before they are waited for: so a pass waits only for
//! earlier passes of the schedule, which has no cycle.

mod expand;
mod plan;
mod recorded;
mod timetable;

pub use plan::{Region, Regions, ReplayOptions, ReplayPlan, placement_of};
pub use recorded::{RECORDED_SCHEDULE, RecordedAction, RecordedCall, RecordedKind, RecordedRank, TracedReplay};
pub use timetable::{Timetable, TimetableEvent, Transfer};

use super::Op;
use super::op::Pass;
use commgauge_base::geometry::Geometry;

/// Actions of a rank of a stage in a step.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayProgram {
    pub stage: u32,
    /// The ops of the stage, followed by those of its neighbours that it receives.
    pub ops: Vec<Op>,
    /// Number of `ops` that belong to the stage itself.
    pub own_ops: usize,
    /// Element counts of each op.
    pub geometries: Vec<Geometry>,
    /// Index of each op's groups in the plan.
    pub groups: Vec<usize>,
    /// Every call that can be active together with others, once.
    pub slots: Vec<Slot>,
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// For each slot, whether it is a collective that all ranks of its group always wait for right after its start.
    pub at_once: Vec<bool>,
    /// Slots in an order in which all ranks can execute them one after another.
    pub check_order: Vec<usize>,
}

/// A call that can be active together with others. Two of one op that overlap in time are two slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Index of the op.
    pub op: u32,
    /// The transfer.
    pub movement: Movement,
}

/// The transfer of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Movement {
    /// All ranks of the group at once.
    Together,
    /// A message to the rank of another stage in the same pipeline.
    Send {
        /// Its stage, which is its rank in the pipeline's group.
        to: u32,
        /// Messages of one stream arrive in the order in which they were sent.
        stream: u32,
    },
    /// A message from the rank of another stage in the same pipeline.
    Receive {
        /// Its stage, which is its rank in the pipeline's group.
        from: u32,
        /// Messages of one stream arrive in the order in which they were sent.
        stream: u32,
    },
}

/// One action of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Computes for a time, during which started calls progress.
    Compute {
        /// The pass that would be computed.
        pass: Pass,
        /// The duration.
        nanoseconds: u64,
    },
    /// Starts a call.
    Start {
        /// Index of the slot.
        slot: u32,
    },
    /// Waits for a started call.
    Wait {
        /// Index of the slot.
        slot: u32,
    },
}

impl ReplayProgram {
    pub fn op_of(&self, slot: &Slot) -> &Op {
        &self.ops[slot.op as usize]
    }

    /// For each op, whether its calls are hidden collectives.
    pub fn hidden_collectives(&self) -> Vec<bool> {
        let together = |op: usize| {
            let mut own = self.slots.iter().filter(|slot| slot.op as usize == op);
            own.any(|slot| slot.movement == Movement::Together)
        };
        (0..self.ops.len()).map(|op| !self.ops[op].overlap.is_exposed() && together(op)).collect()
    }

    /// The program with its orders derived from the actions.
    pub(super) fn with_orders(mut self) -> ReplayProgram {
        self.at_once = self.waited_for_at_once();
        self.check_order = self.slots_to_check();
        self
    }

    /// For each slot, whether it is a collective that is always waited for right after its start. In a step all ranks of a group
    /// agree on it: groups within a stage have one program, and those across stages only calls of this kind.
    fn waited_for_at_once(&self) -> Vec<bool> {
        let mut at_once: Vec<bool> = self.slots.iter().map(|slot| slot.movement == Movement::Together).collect();
        for (index, action) in self.actions.iter().enumerate() {
            if let Action::Start { slot } = action {
                at_once[*slot as usize] &= self.actions.get(index + 1) == Some(&Action::Wait { slot: *slot });
            }
        }
        at_once
    }

    /// Every slot once, in an order in which all ranks can execute them one after another: collectives in program order, then the messages
    /// from stage to stage in one order for all ranks.
    fn slots_to_check(&self) -> Vec<usize> {
        let mut order: Vec<usize> =
            (0..self.slots.len()).filter(|slot| self.slots[*slot].movement == Movement::Together).collect();
        let mut messages: Vec<(u32, u32, u32, usize)> = Vec::new();
        for (index, slot) in self.slots.iter().enumerate() {
            let message = match slot.movement {
                Movement::Together => continue,
                Movement::Send { to, stream } => (self.stage, to, stream, index),
                Movement::Receive { from, stream } => (from, self.stage, stream, index),
            };
            // One per stream: the others are the same message in other buffers.
            if !messages.iter().any(|known| (known.0, known.1, known.2) == (message.0, message.1, message.2)) {
                messages.push(message);
            }
        }
        messages.sort_unstable();
        order.extend(messages.into_iter().map(|message| message.3));
        order
    }

    /// How often each op of the list is started in the program.
    pub fn starts_per_op(&self) -> Vec<u64> {
        let mut starts = vec![0; self.ops.len()];
        for action in &self.actions {
            if let Action::Start { slot } = action {
                starts[self.slots[*slot as usize].op as usize] += 1;
            }
        }
        starts
    }

    pub fn compute_nanoseconds(&self) -> u64 {
        let of = |action: &Action| match action {
            Action::Compute { nanoseconds, .. } => *nanoseconds,
            _ => 0,
        };
        self.actions.iter().map(of).sum()
    }
}

#[cfg(test)]
mod deadlock {
    // A checker for tests: executes the programs of all ranks at once under the strictest rules, and reports deadlocked
    // ranks.
    //
    // A collective is complete when all its members started it, a message when both its ends did. Messages are matched by
    // sender, receiver and stream, in order; collectives by group, in order.
    use super::{Action, Movement, ReplayPlan};
    use crate::layout::Axis;
    use commgauge_base::collective::Collective;
    use std::collections::HashMap;

    /// Key for matching the calls of several ranks.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    enum MatchKey {
        Group { groups: usize, group: usize, turn: u64 },
        Message { from: u32, to: u32, stream: u32, turn: u64 },
    }

    #[derive(Debug)]
    struct Call {
        what: (Collective, u64),
        there: u32,
        needed: u32,
    }

    /// Executes all ranks; panics if calls do not match, and on a deadlock with the ranks involved.
    pub(super) fn carry_out(plan: &ReplayPlan) {
        let ranks = plan.stage_of_rank.len();
        let mut calls: HashMap<MatchKey, Call> = HashMap::new();
        // By rank: how often it has started this key.
        let mut turns: Vec<HashMap<MatchKey, u64>> = vec![HashMap::new(); ranks];
        let mut next = vec![0usize; ranks];
        let at_once: Vec<Option<Vec<bool>>> =
            plan.programs.iter().map(|program| program.as_ref().map(|program| program.at_once.clone())).collect();
        // Blocking and nonblocking calls never match each other in MPI (MPI-3.1 5.12).
        let mut blocking: HashMap<MatchKey, bool> = HashMap::new();
        let mut pending: Vec<HashMap<u32, MatchKey>> = vec![HashMap::new(); ranks];
        loop {
            let mut moved = false;
            for rank in 0..ranks as u32 {
                let program = plan.program_of_rank(rank).expect("every rank has a program");
                while let Some(action) = program.actions.get(next[rank as usize]) {
                    match action {
                        Action::Compute { .. } => {}
                        Action::Start { slot } => {
                            let key = start(plan, rank, *slot, &mut calls, &mut turns[rank as usize]);
                            let of_stage = at_once[plan.stage_of_rank[rank as usize] as usize].as_ref();
                            let blocks = of_stage.expect("every rank has a program")[*slot as usize];
                            let agreed = *blocking.entry(key).or_insert(blocks);
                            assert_eq!(agreed, blocks, "rank {rank}: others of the group make the other kind of call");
                            let before = pending[rank as usize].insert(*slot, key);
                            assert_eq!(before, None, "rank {rank} starts slot {slot}, which is in flight");
                        }
                        Action::Wait { slot } => {
                            let key = pending[rank as usize][slot];
                            if calls[&key].there < calls[&key].needed {
                                break;
                            }
                            pending[rank as usize].remove(slot);
                        }
                    }
                    next[rank as usize] += 1;
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        for rank in 0..ranks {
            let program = plan.program_of_rank(rank as u32).unwrap();
            let (done, all) = (next[rank], program.actions.len());
            assert_eq!(done, all, "rank {rank} blocks forever at {:?}", &program.actions[done..all.min(done + 2)]);
            assert!(pending[rank].is_empty(), "rank {rank} never waits for {:?}", pending[rank]);
        }
        let alone: Vec<_> = calls.iter().filter(|(_, call)| call.there != call.needed).collect();
        assert!(alone.is_empty(), "calls that some ranks never made: {alone:?}");
    }

    fn start(
        plan: &ReplayPlan,
        rank: u32,
        slot: u32,
        calls: &mut HashMap<MatchKey, Call>,
        turns: &mut HashMap<MatchKey, u64>,
    ) -> MatchKey {
        let program = plan.program_of_rank(rank).unwrap();
        let slot = program.slots[slot as usize];
        let (op, groups) = (program.op_of(&slot), program.groups[slot.op as usize]);
        let pipeline = |stage: u32| {
            let pipelines = plan.groups.iter().find(|groups| groups.axis == Axis::Pp).unwrap();
            pipelines.groups[pipelines.place_of(rank).unwrap().group][stage as usize]
        };
        let (key, needed) = match slot.movement {
            Movement::Together => {
                let group = plan.groups[groups].place_of(rank).expect("only members start a collective").group;
                (MatchKey::Group { groups, group, turn: 0 }, plan.groups[groups].groups[group].len() as u32)
            }
            Movement::Send { to, stream } => (MatchKey::Message { from: rank, to: pipeline(to), stream, turn: 0 }, 2),
            Movement::Receive { from, stream } => {
                (MatchKey::Message { from: pipeline(from), to: rank, stream, turn: 0 }, 2)
            }
        };
        let now = turns.entry(key).or_default();
        let key = match key {
            MatchKey::Group { groups, group, .. } => MatchKey::Group { groups, group, turn: *now },
            MatchKey::Message { from, to, stream, .. } => MatchKey::Message { from, to, stream, turn: *now },
        };
        *now += 1;
        let what = (op.collective, op.bytes_total.0);
        let call = calls.entry(key).or_insert(Call { what, there: 0, needed });
        assert_eq!(call.what, what, "rank {rank} at {key:?}");
        call.there += 1;
        key
    }
}

#[cfg(test)]
mod replay_tests {
    // Properties of programs: the bytes of the list of ops, no deadlock, and no conflicting use of buffers.
    use super::deadlock::carry_out;
    use super::*;
    use crate::config::Suite;
    use crate::layout::Axis;
    use crate::workload::step::Step;
    use commgauge_base::error::Result;
    use commgauge_base::units::Seconds;
    use std::path::Path;

    const OPTIONS: ReplayOptions =
        ReplayOptions { repetitions: 1, warm_up: 0, forward_seconds_per_layer: Seconds(1e-3) };

    /// A suite in the folder of the shipped ones, so that it finds their models.
    fn suite(model: &str, training: &str, layout: &str) -> Suite {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let text = format!("[model]\n{model}\n[training]\nsequence = 64\n{training}\n[[layout]]\n{layout}\n");
        Suite::parse(&path, &text).unwrap()
    }

    fn plan_of(suite: &Suite, ranks: u32) -> Result<ReplayPlan> {
        let steps = Step::all_of(&suite.layouts[0], ranks)?;
        ReplayPlan::new(&steps[0], &timetable(&steps[0])?, &OPTIONS, |_| true)
    }

    fn timetable(step: &Step) -> Result<Timetable> {
        let Step::Training(training) = step else { panic!("the suite trains") };
        Timetable::of(training)
    }

    /// The timetable of 1F1B in a step of this many micro-batches.
    fn of_micro_batches(micro_batches: u32) -> Timetable {
        let suite = suite(SMALL, &format!("micro_batches = {micro_batches}"), "tp = 2\npp = 2");
        timetable(&Step::all_of(&suite.layouts[0], 4).unwrap()[0]).unwrap()
    }

    const SMALL: &str = "preset = 'llama-3-8b'\nlayers = 4";
    const EIGHT: &str = "preset = 'llama-3-8b'\nlayers = 8";
    const LINEAR_AND_EXPERTS: &str = "config = '../tests/data/transformers/qwen3_next/config.json'\nlayers = 8";
    const ONE_BLOCK_EACH: &str = "config = '../tests/data/transformers/nemotron_h/config.json'\nlayers = 10";
    const EXPERTS: &str = "preset = 'mixtral-8x7b'\nlayers = 4";

    #[test]
    fn every_listed_call_is_replayed_as_often_as_listed_without_deadlock() {
        for (model, training, layout, ranks) in [
            (SMALL, "micro_batches = 4", "tp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 3", "tp = 2\npp = 2", 8),
            (SMALL, "micro_batches = 1", "pp = 4", 4),
            (SMALL, "micro_batches = 2", "tp = 2", 4),
            (SMALL, "micro_batches = 2\nrecompute = 'full'", "tp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\nsequence_parallel = true", "tp = 2\npp = 2\ncp = 2", 8),
            (SMALL, "micro_batches = 2\nstage_layers = [1, 3]", "tp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\nbucket_parameters = 1000000", "dp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\ndata_style = 'fsdp'", "dp = 4", 4),
            (SMALL, "micro_batches = 2\ndata_style = 'fsdp'\nreshard_after_forward = false", "dp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\ndata_style = 'hsdp'\nreplicas_of_shards = 2", "dp = 4", 4),
            (SMALL, "micro_batches = 2\ndata_style = 'zero1'", "dp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\ndata_style = 'zero2'", "dp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\ncontext_style = 'all_to_all'", "cp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\ncontext_style = 'hybrid'\ncontext_inner = 2", "cp = 4\npp = 2", 8),
            (SMALL, "micro_batches = 4\nschedule = 'naive'", "tp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 4\nschedule = 'gpipe'", "tp = 2\npp = 4", 8),
            (SMALL, "micro_batches = 8\nschedule = 'zb-h1'", "tp = 2\npp = 4", 8),
            (SMALL, "micro_batches = 8\nschedule = 'zb-1p'", "tp = 2\npp = 4", 8),
            (SMALL, "micro_batches = 8\nschedule = 'zb-2p'\nrecompute = 'full'", "tp = 2\npp = 4", 8),
            (EIGHT, "micro_batches = 8\nvirtual_stages = 2", "tp = 2\npp = 4", 8),
            (EIGHT, "micro_batches = 4\nvirtual_stages = 4\ndata_style = 'zero1'", "dp = 2\npp = 2", 4),
            (EIGHT, "micro_batches = 8\nschedule = 'zb-v'", "tp = 2\npp = 4", 8),
            (EIGHT, "micro_batches = 8\nschedule = 'v-half'", "dp = 2\npp = 4", 8),
            (EIGHT, "micro_batches = 8\nschedule = 'v-min'\nsequence_parallel = true", "tp = 2\npp = 4", 8),
            (EIGHT, "micro_batches = 8\nschedule = 'dualpipe-v'", "tp = 2\npp = 4", 8),
            (EIGHT, "micro_batches = 8\nschedule = 'dualpipe'", "dp = 2\npp = 4", 8),
            (EIGHT, "micro_batches = 8\nschedule = 'dualpipe'", "tp = 2\npp = 4", 8),
            (EIGHT, "micro_batches = 8\nschedule = 'dualpipe'\nsequence_parallel = true", "tp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 4\nscatter_gather = true", "tp = 2\npp = 4", 8),
            (EXPERTS, "micro_batches = 2", "dp = 4\nep = 4", 4),
            (EXPERTS, "micro_batches = 2\nrouting = 'random'\nrecompute = 'full'", "dp = 4\nep = 4\npp = 2", 8),
            ("preset = 'deepseek-v3'\nlayers = 6", "micro_batches = 2", "dp = 4\nep = 4\npp = 2", 8),
            (EXPERTS, "micro_batches = 2\nsequence_parallel = true", "tp = 2\ndp = 4\nep = 2\netp = 1\npp = 2", 16),
            (SMALL, "micro_batches = 2\nsequence_parallel = true\ngather_recipe = 'fp8_current'", "tp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\nsequence_parallel = true\ngather_recipe = 'mxfp8'", "tp = 2", 2),
            (SMALL, "micro_batches = 2\nsequence_parallel = true\nproduct_overlap = 'pieces'", "tp = 2\npp = 2", 4),
            (EXPERTS, "micro_batches = 2\ndispatcher = 'deepep'\nexpert_inner = 2", "dp = 4\nep = 4\npp = 2", 8),
            (EXPERTS, "micro_batches = 2\ndispatcher = 'hybrid_ep'\nrecompute = 'full'", "dp = 4\nep = 4", 4),
            (SMALL, "micro_batches = 4\ndata_style = 'fsdp'\nschedule = 'zb-h1'", "dp = 2\npp = 4", 8),
            (SMALL, "micro_batches = 2\ndata_style = 'zero2'\nschedule = 'zb-h1'", "dp = 2\npp = 2\ncp = 2", 8),
            (SMALL, "micro_batches = 2\ndata_style = 'zero3'\nrecompute = 'full'", "dp = 2\npp = 2\ntp = 2", 8),
            (SMALL, "micro_batches = 2\ndata_style = 'zero1'\nreplicas_of_shards = 2", "dp = 4", 4),
            (SMALL, "micro_batches = 2\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'", "dp = 2\npp = 2", 4),
            (EXPERTS, "micro_batches = 2\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'", "dp = 4\nep = 2", 4),
            (SMALL, "micro_batches = 2\ndata_style = 'fsdp'\nunit_rule = 'buckets'", "tp = 2\ndp = 2\npp = 2", 8),
            (
                EIGHT,
                "micro_batches = 4\nvirtual_stages = 2\ndata_style = 'fsdp'\nunit_rule = 'buckets'",
                "dp = 2\npp = 2",
                4,
            ),
            (EXPERTS, "micro_batches = 2\ndata_style = 'fsdp'\nunit_rule = 'buckets'", "dp = 4\nep = 2", 4),
            (
                SMALL,
                "micro_batches = 2\ndata_style = 'hsdp'\nunit_rule = 'buckets'\nreplicas_of_shards = 2\nbucket_parameters = 1000000",
                "dp = 4",
                4,
            ),
            (
                SMALL,
                "micro_batches = 2\ndata_style = 'zero3'\nunit_rule = 'modules'\nquantised_parameters = true",
                "dp = 4",
                4,
            ),
            (
                SMALL,
                "micro_batches = 1\ndata_style = 'zero3'\nunit_rule = 'modules'\nquantised_parameters = true\nquantised_gradients = 2\n\
             secondary_shards = 2",
                "dp = 4",
                4,
            ),
            (
                EXPERTS,
                "micro_batches = 1\ndata_style = 'zero3'\nunit_rule = 'modules'\nquantised_gradients = 2",
                "dp = 4",
                4,
            ),
            (
                SMALL,
                "micro_batches = 2\ndata_style = 'hsdp'\nunit_rule = 'buckets'\nreplicas_of_shards = 2\nouter_sharding = 'optim'",
                "dp = 4",
                4,
            ),
            (
                SMALL,
                "micro_batches = 2\ndata_style = 'fsdp'\nunit_rule = 'buckets'\nparameter_element_type = 'fp8_e4m3'",
                "dp = 4",
                4,
            ),
            (SMALL, "micro_batches = 2\nmuon_tp_mode = 'duplicated'", "tp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 4\nbatch_broadcast = 'fields_and_mask'\nvirtual_stages = 2", "tp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 4\nbatch_broadcast = 'fields'\nschedule = 'dualpipe'", "tp = 2\npp = 2", 4),
            (
                SMALL,
                "micro_batches = 2\ndata_style = 'zero1'\nbucket_rule = 'layer_wise'\nmuon_tp_mode = 'distributed'",
                "tp = 2\ndp = 2\npp = 2",
                8,
            ),
            (SMALL, "micro_batches = 2\noverlap_gradients = false", "dp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\nbucket_rule = 'pytorch'", "dp = 2\npp = 2", 4),
            (SMALL, "micro_batches = 2\nlinears = 'column'\nfused_cross_entropy = true", "tp = 2\npp = 2", 4),
            ("preset = 'gpt-7.5b'\nlayers = 4", "micro_batches = 2\nsequence_parallel = true", "tp = 2\npp = 4", 8),
            (
                LINEAR_AND_EXPERTS,
                "micro_batches = 2\nsequence_parallel = true\ndata_style = 'fsdp'",
                "tp = 2\nep = 4\npp = 2",
                16,
            ),
            (ONE_BLOCK_EACH, "micro_batches = 2\ndata_style = 'fsdp'", "tp = 2\ndp = 2\npp = 2", 8),
        ] {
            let plan = plan_of(&suite(model, training, layout), ranks).unwrap();
            carry_out(&plan);
            for (program, listed) in plan.programs.iter().flatten().zip(&plan.listed) {
                let starts = program.starts_per_op();
                for totals in listed {
                    let own =
                        program.ops[..program.own_ops].iter().zip(&starts).filter(|(op, _)| op.axis == totals.axis);
                    let payload: u64 = own.map(|(op, starts)| op.bytes_total.0 * starts).sum();
                    assert_eq!(payload, totals.payload_bytes_per_step.0, "{training} {layout} {}", totals.axis);
                }
                assert!(!listed.is_empty(), "{layout}: nothing is replayed");
            }
        }
    }

    #[test]
    fn calls_in_flight_together_never_write_to_the_same_bytes() {
        let buckets = "micro_batches = 2\nbucket_parameters = 100000000";
        let plan = plan_of(&suite(SMALL, buckets, "tp = 2\ndp = 2\npp = 2"), 8).unwrap();
        let mut together_at_most = 0;
        for (rank, stage) in plan.stage_of_rank.iter().enumerate() {
            let program = plan.programs[*stage as usize].as_ref().unwrap();
            let place = |groups: usize| {
                let place = plan.groups[groups].place_of(rank as u32)?;
                Some((plan.groups[groups].groups[place.group].as_slice(), place.rank_in_group))
            };
            let regions = Regions::of(program, place).unwrap();
            let mut written: Vec<(u32, Region)> = Vec::new();
            for action in &program.actions {
                match action {
                    Action::Start { slot } => {
                        let new = regions.receive[*slot as usize];
                        assert!(new.offset + new.bytes <= regions.receive_bytes);
                        for (other, old) in &written {
                            let apart = new.offset + new.bytes <= old.offset || old.offset + old.bytes <= new.offset;
                            assert!(apart || new.bytes == 0 || old.bytes == 0, "slots {slot} and {other}");
                        }
                        written.push((*slot, new));
                        together_at_most = together_at_most.max(written.len());
                    }
                    Action::Wait { slot } => written.retain(|(other, _)| other != slot),
                    Action::Compute { .. } => {}
                }
            }
            let every: u64 = regions.receive.iter().map(|region| region.bytes).sum();
            assert!(regions.receive_bytes < every, "buffers are shared if safe");
        }
        assert!(together_at_most > 4, "{together_at_most}");
    }

    #[test]
    fn overlapped_calls_are_started_and_exposed_calls_are_waited_for_at_once() {
        let plan = plan_of(&suite(SMALL, "micro_batches = 2", "tp = 2\ndp = 2\npp = 2"), 8).unwrap();
        for program in plan.programs.iter().flatten() {
            for (slot, at_once) in program.slots.iter().zip(program.at_once.clone()) {
                let op = program.op_of(slot);
                let in_layer = matches!(op.when, crate::workload::op::When::Layer { .. });
                match slot.movement {
                    Movement::Together if op.overlap.is_exposed() => assert!(at_once, "{op:?}"),
                    // At the ends of the model there is no computing that could hide a call.
                    Movement::Together => assert!(!(at_once && in_layer && op.axis == Axis::Tp), "{op:?}"),
                    Movement::Send { .. } | Movement::Receive { .. } => assert!(!at_once, "{op:?}"),
                }
            }
        }
    }

    #[test]
    fn the_computing_of_a_step_is_that_of_its_layers() {
        let plan = plan_of(&suite(SMALL, "micro_batches = 4", "tp = 2\npp = 2"), 4).unwrap();
        for program in plan.programs.iter().flatten() {
            // Two layers, four micro-batches, 1 ms forward and 2 ms backward.
            assert_eq!(program.compute_nanoseconds(), 2 * 4 * 3_000_000);
        }
        let again = plan_of(&suite(SMALL, "micro_batches = 4\nrecompute = 'full'", "tp = 2\npp = 2"), 4).unwrap();
        assert_eq!(again.programs[0].as_ref().unwrap().compute_nanoseconds(), 2 * 4 * 4_000_000);
    }

    #[test]
    fn invalid_options_are_refused() {
        let suite = suite(SMALL, "micro_batches = 2", "tp = 2\npp = 2");
        let steps = Step::all_of(&suite.layouts[0], 4).unwrap();
        let timetable = of_micro_batches(2);
        for (options, expected) in [
            (ReplayOptions { repetitions: 0, ..OPTIONS }, "repetitions of a replay: found 0"),
            (ReplayOptions { forward_seconds_per_layer: Seconds(f64::NAN), ..OPTIONS }, "found NaN; accepted: 0"),
            (ReplayOptions { forward_seconds_per_layer: Seconds(-1.0), ..OPTIONS }, "found -1; accepted: 0"),
        ] {
            let error = ReplayPlan::new(&steps[0], &timetable, &options, |_| true).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let short = of_micro_batches(1);
        let error = ReplayPlan::new(&steps[0], &short, &OPTIONS, |_| true).unwrap_err();
        assert!(error.to_string().contains("times in a step, the list of ops has"), "{error}");
        let other = Timetable { events: timetable.events[..1].to_vec(), ..timetable };
        assert!(ReplayPlan::new(&steps[0], &other, &OPTIONS, |_| true).is_err());
    }

    #[test]
    fn a_schedule_with_an_unmatched_send_is_refused() {
        let mut events = of_micro_batches(2).events;
        events[1].swap(0, 2);
        let error = Timetable::checked("odd".to_owned(), events).unwrap_err();
        assert!(
            error.to_string().contains("stage 0 sends the micro-batches [0, 1], stage 1 waits for [1, 0]"),
            "{error}"
        );
    }

    #[test]
    fn a_process_makes_the_programs_of_its_own_ranks_only() {
        let suite = suite(SMALL, "micro_batches = 2", "tp = 2\npp = 2");
        let steps = Step::all_of(&suite.layouts[0], 4).unwrap();
        let plan = ReplayPlan::new(&steps[0], &of_micro_batches(2), &OPTIONS, |rank| rank == 3).unwrap();
        assert_eq!(plan.stage_of_rank, [0, 0, 1, 1]);
        assert!(plan.programs[0].is_none() && plan.program_of_rank(3).is_some());
        assert_eq!(plan.listed.len(), 2);
    }

    #[test]
    fn the_quick_suite_can_be_replayed_layout_by_layout() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/quick.toml");
        let quick = Suite::load(&path).unwrap();
        let mut replayed = 0;
        for table in &quick.layouts {
            for step in Step::all_of(table, 4).unwrap().iter().filter(|step| matches!(step, Step::Training(_))) {
                let plan = ReplayPlan::new(step, &timetable(step).unwrap(), &OPTIONS, |_| true);
                carry_out(&plan.unwrap_or_else(|error| panic!("{}: {error}", step.layout().degrees.name())));
                replayed += 1;
            }
        }
        assert!(replayed > 1, "{replayed}");
    }

    #[test]
    fn every_schedule_with_every_data_style_is_replayed_as_listed() {
        use crate::config::step::{DataStyle, ScheduleKind};
        let mut replayed = 0;
        for &schedule in ScheduleKind::ALL {
            for style in DataStyle::ALL {
                for (others, layout, ranks) in [
                    ("recompute = 'full'\n", "tp = 2\npp = 4", 16),
                    ("sequence_parallel = true\nbucket_parameters = 50000000\n", "tp = 2\ncp = 2\npp = 2", 16),
                    ("", "pp = 4", 8),
                ] {
                    let chunks = if schedule.goes_round() { "virtual_stages = 2\n" } else { "" };
                    let training = format!(
                        "micro_batches = 8\nschedule = '{schedule}'\n{chunks}data_style = '{style}'\n{others}{}",
                        if *style == DataStyle::Hsdp { "replicas_of_shards = 2\n" } else { "" }
                    );
                    match plan_of(&suite(EIGHT, &training, layout), ranks) {
                        Ok(plan) => {
                            carry_out(&plan);
                            replayed += 1;
                        }
                        Err(error) => {
                            let text = error.to_string();
                            let rules = ["pass different layers of a stage cannot be replayed", "does not support"];
                            let known = rules.iter().any(|rule| text.contains(rule));
                            assert!(known && schedule == ScheduleKind::DualPipe, "{training}{layout}: {text}");
                        }
                    }
                }
            }
        }
        assert!(replayed >= 200, "{replayed}");
    }
}
