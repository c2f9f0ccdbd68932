//! What a rank does: binds every collective at every size, has the blocks measured, and shows them at rank 0.

use super::blocks::{Bounds, measure};
use super::pair::{self, Pair};
use super::raw_loop::RawLoop;
use super::{Arguments, summary};
use commgauge::backend::mpi::MpiBackend;
use commgauge::backend::{Backend, Binding, Call};
use commgauge::collective::{Collective, Placement};
use commgauge::config::RunSettings;
use commgauge::element::ElementType;
use commgauge::error::{Error, Result};
use commgauge::layout::{Axis, Groups};
use commgauge::measure::{ClockModel, DEFAULT_COMPLETION_DEADLINE, MeasureContext};
use commgauge::mpi_call::Communicator;
use commgauge::mpi_call::{self, Datatype};
use commgauge::sample::Cadence;
use commgauge::units::Bytes;
use commgauge::workload::{Op, Style};
use commgauge::world::World;
use std::io::stdout;
use std::sync::atomic::AtomicBool;

/// Measures, and tells whether no criterion was missed.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let mpi = mpi_call::initialize()?;
    let world = Communicator::world()?;
    let mut backend = MpiBackend::new(world.processes())?;
    let groups = Groups::world(world.processes());
    backend.connect(0, &groups)?;
    let mut pairs = Vec::new();
    for name in &arguments.collectives {
        let collective: Collective = name.parse().map_err(Error::usage)?;
        // Sizes below one element for each rank become that.
        let fewest = ElementType::Float32.size() * u64::from(world.processes());
        for bytes in &arguments.sizes {
            let op = op(collective, Bytes(bytes.0.max(fewest)));
            pairs.extend(measure_op(arguments, &world, &mut backend, &groups, &op)?);
        }
    }
    backend.disconnect()?;
    let mut passed = true;
    if world.process() == 0 {
        match arguments.rows_of_launch {
            Some(_) => pair::write(&pairs, stdout().lock())?,
            None => passed = summary::show(&pairs, &mut stdout().lock())?,
        }
    }
    drop(mpi);
    Ok(passed)
}

fn op(collective: Collective, bytes_total: Bytes) -> Op {
    Op::new(Style::Sweep, Axis::World, collective, ElementType::Float32, bytes_total.0)
}

fn measure_op(
    arguments: &Arguments,
    world: &Communicator,
    backend: &mut MpiBackend,
    groups: &Groups,
    op: &Op,
) -> Result<Vec<Pair>> {
    let launch = arguments.rows_of_launch.unwrap_or(0);
    let geometry = op.geometry(world.processes()).map_err(Error::usage)?;
    let settings = RunSettings::default();
    let context = MeasureContext {
        world,
        local_ranks: world.process()..world.process() + 1,
        world_size: world.processes(),
        clock: ClockModel::identity(),
        start: commgauge::record::line::ClockMethod::Synchronised,
        clock_resolution_nanoseconds: backend.clock_resolution_nanoseconds(),
        settings: &settings,
        interrupted: &AtomicBool::new(false),
        injected_delay: None,
        completion_deadline: DEFAULT_COMPLETION_DEADLINE,
    };
    let binding = Binding {
        variant: Default::default(),
        op,
        placement: Placement::OutOfPlace,
        groups,
        groups_number: 0,
        geometry: &geometry,
        seed: settings.seed,
        warm_buffers: false,
        cadence: Cadence::Streaming,
        rotation_within: None,
    };
    let mut call = backend.bind_call(&binding)?;
    let raw = RawLoop::new(op.collective, &geometry, Datatype::of(op.element), world.process())?;
    data_is_right(&mut call, |call| raw.run(call, 1))?;
    data_is_right(&mut call, |call| call.enqueue())?;
    let seed = arguments.seed ^ geometry.bytes_total.0.rotate_left(32) ^ u64::from(launch);
    let bounds = Bounds { budget: arguments.budget, pairs: arguments.pairs, seed };
    let template = Pair {
        ranks: world.processes(),
        launch,
        collective: op.collective.to_string(),
        bytes: geometry.bytes_total.0,
        calls: 0,
        calls_per_sample: 0,
        ours_nanoseconds: 0.0,
        raw_nanoseconds: 0.0,
        raw_again_nanoseconds: 0.0,
    };
    measure(&context, &mut call, &raw, &bounds, &template)
}

/// Both ways of calling move the same data to the same place, or there is nothing to compare.
fn data_is_right<'b>(
    call: &mut commgauge::backend::mpi::MpiCall<'b>,
    once: impl FnOnce(&mut commgauge::backend::mpi::MpiCall<'b>) -> Result<()>,
) -> Result<()> {
    call.fill()?;
    once(call)?;
    match call.check()? {
        None => Ok(()),
        Some(wrong) => Err(Error::environment(format!("the compared calls do not do the same: {wrong:?}"))),
    }
}
