//! Records the devices of the ranks, and whether their state changed while a case was measured. Does nothing if the
//! backend has no devices to read.

use super::work_loop::Run;
use crate::backend::{Backend, DeviceIdentity, DeviceState};
use crate::world::{World, agree};
use commgauge_base::error::{Error, Result};
use commgauge_model::record::device_line::{DeviceChange, DeviceFacts, DeviceReadingsLine, DeviceSpread, DevicesLine};
use commgauge_model::record::line::Line;
use serde::{Deserialize, Serialize};

/// Smaller relative changes of a clock are noise.
const SIGNIFICANT_CHANGE: f64 = 0.05;
/// Ranks whose changes are listed.
const MAX_CHANGES: usize = 16;

/// Device of one rank with its state.
#[derive(Serialize, Deserialize)]
struct DeviceReport {
    source: std::result::Result<String, String>,
    identity: Option<DeviceIdentity>,
    nvlinks_active: Option<u32>,
}

/// State of a rank's device around a case.
#[derive(Serialize, Deserialize)]
struct DeviceReadings {
    before: DeviceState,
    after: DeviceState,
}

/// Records the devices of all ranks. Collective if the backend has devices, else does nothing.
pub(super) fn record_devices(run: &mut Run, backend: &mut dyn Backend) -> Result<()> {
    let Some(reader) = backend.device_reader() else { return Ok(()) };
    let mine = DeviceReport {
        source: reader.source(),
        identity: reader.identity(),
        nvlinks_active: reader.read().and_then(|state| state.nvlinks_active),
    };
    let all: Vec<DeviceReport> = gather(run.world, &mine)?;
    run.journal.write(|| Line::Devices(Box::new(devices_line(all))))
}

fn devices_line(all: Vec<DeviceReport>) -> DevicesLine {
    let source = all.iter().find_map(|report| report.source.as_ref().ok().cloned());
    let absent = all
        .iter()
        .enumerate()
        .find_map(|(rank, report)| Some(format!("rank {rank}: {}", report.source.as_ref().err()?)));
    let facts = |(rank, report): (u32, DeviceReport)| {
        let DeviceIdentity { name, uuid, pci, numa_node, driver, cuda, power_limit_watts, nvlinks } = report.identity?;
        let nvlinks_active = report.nvlinks_active;
        Some(DeviceFacts { rank, name, uuid, pci, numa_node, driver, cuda, power_limit_watts, nvlinks_active, nvlinks })
    };
    DevicesLine { source, absent, devices: (0u32..).zip(all).filter_map(facts).collect() }
}

/// State of this rank's device before a case.
pub(super) fn before(backend: &mut dyn Backend) -> Option<DeviceState> {
    backend.device_reader()?.read()
}

/// Records the state of the devices before and after a case. Collective if the backend has devices, else does nothing.
pub(super) fn record_changes(
    run: &mut Run,
    backend: &mut dyn Backend,
    before: Option<DeviceState>,
    case: u32,
    replicate: u32,
) -> Result<()> {
    let Some(reader) = backend.device_reader() else { return Ok(()) };
    let mine = before.zip(reader.read()).map(|(before, after)| DeviceReadings { before, after });
    let all: Vec<Option<DeviceReadings>> = gather(run.world, &mine)?;
    if run.world.process() == 0 && all.iter().all(Option::is_none) {
        // The line with the devices gives the reason; the other processes wait here until it is written.
        return agree(run.world, Ok(()));
    }
    run.journal.write(|| Line::DeviceReadings(Box::new(readings(&all, case, replicate))))
}

fn readings(all: &[Option<DeviceReadings>], case: u32, replicate: u32) -> DeviceReadingsLine {
    let read = || all.iter().flatten();
    let changed: Vec<DeviceChange> = (0u32..)
        .zip(all)
        .filter_map(|(rank, readings)| {
            let DeviceReadings { before, after } = readings.as_ref()?;
            Some(DeviceChange { rank, what: change(before, after)? })
        })
        .collect();
    DeviceReadingsLine {
        case,
        replicate,
        ranks_read: read().count() as u32,
        before: spread(read().map(|readings| &readings.before)),
        after: spread(read().map(|readings| &readings.after)),
        ranks_changed: changed.len() as u32,
        changes: changed.into_iter().take(MAX_CHANGES).collect(),
    }
}

fn spread<'a>(states: impl Iterator<Item = &'a DeviceState> + Clone) -> DeviceSpread {
    let of = |value: fn(&DeviceState) -> Option<f64>| {
        let values = states.clone().filter_map(value);
        values.fold(None, |range: Option<(f64, f64)>, one| {
            Some(range.map_or((one, one), |(a, b)| (a.min(one), b.max(one))))
        })
    };
    let mut reasons: Vec<String> = states.clone().flat_map(|state| state.throttle_reasons.iter().cloned()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    DeviceSpread {
        multiprocessor_clock_mhz: of(|state| state.multiprocessor_clock_mhz),
        memory_clock_mhz: of(|state| state.memory_clock_mhz),
        power_watts: of(|state| state.power_watts),
        temperature_celsius: of(|state| state.temperature_celsius),
        throttle_reasons: reasons,
    }
}

/// Describes a change between two readings that makes the times in between unreliable. Clocks that rise when an idle
/// device gets work do not count.
fn change(before: &DeviceState, after: &DeviceState) -> Option<String> {
    let mut what = Vec::new();
    for (name, clock) in [
        ("multiprocessor clock", (before.multiprocessor_clock_mhz, after.multiprocessor_clock_mhz)),
        ("memory clock", (before.memory_clock_mhz, after.memory_clock_mhz)),
    ] {
        let (Some(first), Some(second)) = clock else { continue };
        let fell = second < first * (1.0 - SIGNIFICANT_CHANGE) && !after.is_idle;
        let rose = second > first * (1.0 + SIGNIFICANT_CHANGE) && !before.is_idle;
        if fell || rose {
            what.push(format!("{name} {first:.0} -> {second:.0} MHz"));
        }
    }
    let mut reasons: Vec<&String> = before.throttle_reasons.iter().chain(&after.throttle_reasons).collect();
    reasons.sort_unstable();
    reasons.dedup();
    what.extend(reasons.into_iter().map(|reason| format!("throttled by {reason}")));
    if let (Some(first), Some(second)) = (before.nvlinks_active, after.nvlinks_active)
        && first != second
    {
        what.push(format!("{first} -> {second} NVLinks up"));
    }
    (!what.is_empty()).then(|| what.join(", "))
}

fn gather<T: Serialize + for<'a> Deserialize<'a>>(world: &dyn World, mine: &T) -> Result<Vec<T>> {
    let broken = |cause: serde_json::Error| Error::environment(format!("a rank's device cannot be described: {cause}"));
    let all = world.gather(&serde_json::to_vec(mine).map_err(broken)?)?;
    all.iter().map(|bytes| serde_json::from_slice(bytes).map_err(broken)).collect()
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;
