//! Many ranks in one process, on a virtual clock, without data: for rehearsing a run before the machine exists.
//!
//! Times follow from a machine file (`config::machine`): from its figure for the call, else from its links by the formulas in
//! `machine_time`; with seeded noise and faults.
//! Every result is synthetic. The cost is proportional to groups for back-to-back calls, and to ranks where ranks
//! start at different times.

mod call;
mod clocks;
mod fault_states;
#[cfg(test)]
mod fault_tests;
mod figure;
mod fleet;
mod fleet_faults;
mod hidden_calls;
mod noise;
mod placing;
mod replay;
#[cfg(test)]
mod tests;
mod work;

use super::{Backend, BackendFacts, Binding, Call, ReplayBinding, Replayer};
use call::SimulatedCall;
use clocks::{Clocks, MarkLog};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::Machine;
use commgauge_model::layout::Groups;
use commgauge_model::workload::ProductShape;
use fault_states::FaultStates;
use fleet::Fleet;
use noise::Noise;
use placing::Placed;
use replay::SimulatedReplayer;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;
use work::Work;

/// Virtual time taken by reading the clock, so that a loop that waits for a time to pass ends.
const NANOSECONDS_PER_CLOCK_READING: u64 = 100;

/// All ranks of a simulated machine.
#[derive(Debug)]
pub struct SimulatedBackend {
    machine: Machine,
    fleet: Fleet,
    noise: Noise,
    connected: HashMap<usize, Placed>,
    now: Cell<u64>,
    seed: u64,
}

impl SimulatedBackend {
    /// A fleet of as many nodes as `world_size` ranks need; the last may be partly used.
    ///
    /// # Errors
    /// A usage error where the number of ranks is 0 or absurd, or where a fault names a rank or node that is not there.
    pub fn new(machine: &Machine, world_size: u32, seed: u64) -> Result<SimulatedBackend> {
        Ok(SimulatedBackend {
            machine: machine.clone(),
            fleet: Fleet::new(machine, world_size)?,
            noise: Noise::new(&machine.noise, seed),
            connected: HashMap::new(),
            now: Cell::new(0),
            seed,
        })
    }

    /// The name of a node, as a host name: `node-0007`.
    pub fn host_name(node: u32) -> String {
        format!("node-{node:04}")
    }
}

impl Backend for SimulatedBackend {
    fn facts(&self) -> BackendFacts {
        BackendFacts {
            name: "simulated",
            synthetic: true,
            virtual_clock: true,
            notes: Vec::new(),
            warnings: Vec::new(),
            library: format!("commgauge {}, virtual clock", env!("CARGO_PKG_VERSION")),
            transport: Some(format!("none; times from the machine file of {}", self.fleet.machine.name)),
        }
    }

    fn local_ranks(&self) -> Range<u32> {
        0..self.fleet.ranks
    }

    fn connect(&mut self, number: usize, groups: &Groups) -> Result<()> {
        let placed = Placed::new(groups, &self.fleet)?;
        self.connected.insert(number, placed);
        Ok(())
    }

    fn disconnect(&mut self) -> Result<()> {
        self.connected.clear();
        Ok(())
    }

    fn bytes_needed(&self, _: &Binding) -> Bytes {
        Bytes(0)
    }

    fn bytes_available(&self) -> Bytes {
        Bytes(u64::MAX)
    }

    fn product_skip_reason(&self, _: &ProductShape) -> Option<String> {
        Some("the simulated backend computes nothing; its machine file has no rate of products".to_owned())
    }

    /// All ranks begin a case at the same moment.
    fn bind<'b>(&'b mut self, binding: &Binding) -> Result<Box<dyn Call + 'b>> {
        let SimulatedBackend { machine, fleet, noise, connected, now, seed } = self;
        let axis = binding.groups.axis;
        let placed = connected
            .get(&binding.groups_number)
            .ok_or_else(|| Error::environment(format!("axis {axis} is not connected; no call can be bound to it")))?;
        let ranks = binding.geometry.ranks();
        if let Some((shape, _)) = placed.shapes.iter().find(|(shape, _)| shape.ranks != ranks) {
            return Err(Error::mismatch(format!(
                "axis {axis}: a group has {} ranks, the call was made for {ranks}",
                shape.ranks
            )));
        }
        let factor = figure::factor(machine, binding, fleet);
        Ok(Box::new(SimulatedCall {
            clocks: Clocks::new(&placed.group_starts, now.get()),
            work: Work::new(binding.op.collective, binding.geometry, placed, fleet).times(factor),
            log: MarkLog::default(),
            noise,
            now,
            late: placed.late_slots(&fleet.late),
            fault_states: FaultStates::new(fleet, *seed, binding, placed, factor),
            corrupt: &fleet.corrupt,
            aborted: false,
            ranks: fleet.ranks,
            placed,
        }))
    }

    fn ensure_replayable(&self, _: &ReplayBinding) -> Result<()> {
        if self.fleet.intermittent.is_empty() {
            return Ok(());
        }
        Err(Error::usage("a replayed step cannot be simulated with faults that come and go; take them out"))
    }

    fn replay_bytes_needed(&self, _: &ReplayBinding) -> Result<Bytes> {
        Ok(Bytes(0))
    }

    fn bind_replay<'b>(&'b mut self, binding: &ReplayBinding<'b>) -> Result<Box<dyn Replayer + 'b>> {
        let SimulatedBackend { fleet, noise, connected, now, .. } = self;
        Ok(Box::new(SimulatedReplayer::new(binding, fleet, connected, noise, now)?))
    }

    /// The furthest of the virtual clocks, moved on a little by every reading.
    fn now_nanoseconds(&self) -> u64 {
        let now = self.now.get().saturating_add(NANOSECONDS_PER_CLOCK_READING);
        self.now.set(now);
        now
    }

    fn clock_resolution_nanoseconds(&self) -> u64 {
        1
    }
}
