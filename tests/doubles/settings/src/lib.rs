//! What the environment asks of the doubles: devices, memory, and faults at a rank and an op. Every variable is in
//! `tests/doubles/README.md`. A setting that cannot be read ends the process: a fault that is silently not there would
//! make a test pass for nothing.

mod fault;

pub use fault::{Fault, Kind, parse};

use std::sync::LazyLock;

/// All settings, read once.
pub struct Settings {
    /// Devices of this host.
    pub devices: u32,
    /// Bytes of memory of each device.
    pub memory_bytes: u64,
    /// Compute capability, times ten.
    pub capability: u32,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// Rank of this process in its launch, where the launcher tells.
    pub process_rank: Option<u32>,
}

/// The settings of this process.
pub static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings {
    devices: number("COMMGAUGE_DOUBLE_DEVICES").unwrap_or(4) as u32,
    memory_bytes: number("COMMGAUGE_DOUBLE_MEMORY").unwrap_or(1 << 30),
    capability: number("COMMGAUGE_DOUBLE_CAPABILITY").unwrap_or(90) as u32,
    faults: parse(&text("COMMGAUGE_DOUBLE_FAULTS").unwrap_or_default()).unwrap_or_else(|cause| stop(&cause)),
    process_rank: ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]
        .into_iter()
        .find_map(|name| text(name)?.parse().ok()),
});

impl Settings {
    /// The fault of a kind that strikes `rank` at the `number`-th time (from 1) that something happens. The launch's rank
    /// counts; without one, the rank of the communicator.
    pub fn fault(
        &self,
        kind: Kind,
        communicator_rank: Option<u32>,
        call: &str,
        number: impl Fn(&Fault) -> u64,
    ) -> Option<&Fault> {
        let rank = self.process_rank.or(communicator_rank);
        let strikes = |fault: &&Fault| {
            fault.kind == kind
                && (fault.rank.is_none() || fault.rank == rank)
                && fault.call.as_deref().is_none_or(|wanted| wanted == call)
                && fault.when.contains(&number(fault))
        };
        self.faults.iter().find(strikes)
    }
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    let value = text(name)?;
    Some(value.parse().unwrap_or_else(|_| stop(&format!("{name}={value} is no whole number"))))
}

fn stop(cause: &str) -> ! {
    eprintln!("commgauge double: {cause}");
    std::process::exit(2)
}
