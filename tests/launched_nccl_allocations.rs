//! Nothing is allocated in the timed loop over NCCL, streaming and isolated: the same batch with more calls allocates
//! as often. Alone in its program, because it counts every allocation of a thread; allocations of the stand-ins are
//! not counted.

#![cfg(feature = "mpi")]

#[path = "common/allocations.rs"]
mod allocations;
mod common;

use allocations::ALLOCATIONS;
use commgauge::backend::nccl::{Opened, Options, Placing};
use commgauge::backend::{Backend, Binding, Call};
use commgauge::collective::{Collective, Placement};
use commgauge::config::RunSettings;
use commgauge::element::ElementType;
use commgauge::error::{Error, Result};
use commgauge::layout::{Axis, Groups};
use commgauge::measure::{
    Batch, ClockModel, DEFAULT_COMPLETION_DEADLINE, Lead, MeasureContext, isolated_batch, streaming_batch,
};
use commgauge::mpi_call;
use commgauge::mpi_call::Communicator;
use commgauge::record::line::ClockMethod;
use commgauge::sample::Cadence;
use commgauge::workload::{Op, Style};
use commgauge::world::World;
use std::sync::atomic::AtomicBool;

const RANKS: u32 = 2;
/// Set in the processes that are ranks.
const AS_RANK: &str = "COMMGAUGE_TEST_ALLOCATIONS_RANK";

#[test]
fn nothing_is_allocated_in_the_timed_loop_over_nccl() {
    if std::env::var_os(AS_RANK).is_some() {
        return as_rank().unwrap();
    }
    let mut command = common::launcher(RANKS);
    command.arg(std::env::current_exe().expect("this program has a file"));
    command.args(["--exact", "nothing_is_allocated_in_the_timed_loop_over_nccl", "--nocapture"]).env(AS_RANK, "1");
    common::doubles::with_doubles(&mut command, RANKS);
    common::Ran::of(&mut command, 60).ended_with(0);
}

fn as_rank() -> Result<()> {
    let _mpi = mpi_call::initialize()?;
    let world = Communicator::world()?;
    let rank = world.process();
    let placing = Placing { local_rank: rank, ranks_on_host: RANKS, host: "here".to_owned(), ..Placing::default() };
    let mut backend = Opened::find(Options::default(), placing)?.into_backend(None)?;
    let groups = Groups::world(RANKS);
    backend.connect(0, &groups)?;
    let (settings, interrupted) = (RunSettings::default(), AtomicBool::new(false));
    let context = MeasureContext {
        world: &world,
        local_ranks: rank..rank + 1,
        world_size: RANKS,
        clock: ClockModel::identity(),
        start: ClockMethod::Synchronised,
        clock_resolution_nanoseconds: backend.clock_resolution_nanoseconds(),
        settings: &settings,
        interrupted: &interrupted,
        injected_delay: None,
        completion_deadline: DEFAULT_COMPLETION_DEADLINE,
    };
    // A collective of NCCL's own, and one that is a group of parts.
    for collective in [Collective::AllReduce, Collective::AllToAllV] {
        let op = Op::new(Style::Sweep, Axis::World, collective, ElementType::Float32, 4096);
        let geometry = op.geometry(RANKS).map_err(Error::usage)?;
        let binding = Binding {
            op: &op,
            placement: Placement::OutOfPlace,
            groups: &groups,
            groups_number: 0,
            geometry: &geometry,
            seed: 1,
            warm_buffers: false,
            rotation_within: None,
            variant: Default::default(),
            cadence: Cadence::Streaming,
        };
        let mut call = backend.bind(&binding)?;
        call.fill()?;
        allocates_as_often_for_more(&context, call.as_mut(), collective)?;
    }
    backend.disconnect()
}

fn allocates_as_often_for_more(context: &MeasureContext, call: &mut dyn Call, collective: Collective) -> Result<()> {
    let (mut batch, mut lead) = (Batch::default(), Lead::default());
    // The largest first, so that all room is there.
    let mut counted = Vec::new();
    for calls_per_sample in [10, 1, 10] {
        let before = ALLOCATIONS.get();
        streaming_batch(context, call, 40, calls_per_sample, &mut batch)?;
        counted.push(ALLOCATIONS.get() - before);
    }
    assert_eq!(counted[1], counted[2], "streaming {collective}: {counted:?}");
    let mut counted = Vec::new();
    for iterations in [60, 5, 60] {
        let before = ALLOCATIONS.get();
        isolated_batch(context, call, iterations, &mut lead, &mut batch)?;
        counted.push(ALLOCATIONS.get() - before);
    }
    assert_eq!(counted[1], counted[2], "isolated {collective}: {counted:?}");
    // Vectors of a batch, and not one for each call.
    assert!(counted[2] > 0, "the count counts");
    Ok(())
}
