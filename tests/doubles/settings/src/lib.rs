//! Settings of the doubles from the environment: devices, memory, and faults at a rank and an op. Every variable is in
//! `tests/doubles/README.md`. An invalid setting ends the process: a fault that is silently missing would make a test
//! pass without testing anything.

mod channels;
mod fault;
mod name;

pub use channels::channels_of_a_peer;
pub use fault::{Fault, Kind, parse};
pub use name::{bus, uuid, uuid_text};

use std::path::PathBuf;
use std::sync::LazyLock;

/// All settings, read once.
pub struct Settings {
    /// Devices of this host.
    pub devices: u32,
    /// Bytes of memory of the devices, the last for all that follow.
    pub memory_bytes: Vec<u64>,
    /// What follows the name of the devices, the last for all that follow.
    pub models: Vec<String>,
    /// Compute capability, times ten.
    pub capability: u32,
    /// Devices that are parts of one GPU each (MIG), next to one another; 1: whole GPUs.
    pub parts: u32,
    /// Most communicators of a process at one time.
    pub communicators: u64,
    /// Most nanoseconds for which a kernel that waits for the host does so, where that is less than it was told.
    pub longest_hold: Option<u64>,
    /// Thread blocks that kernels of NCCL have on a device together.
    pub blocks: u64,
    /// What decides the order in which streams start what they could start at once; without it, as they come.
    pub order_seed: Option<u64>,
    /// Bytes per second of a link between hosts; without it messages are as fast as memory.
    pub network: Option<u64>,
    /// Ranks that NCCL's formula for channels counts; without it those of the communicator.
    pub counted_ranks: Option<u32>,
    /// The folder of the memory that ranks share.
    pub shared: PathBuf,
    /// The injected faults.
    pub faults: Vec<Fault>,
    /// What NVML answers, as `144@1=1; 4=0+2`: see `tests/doubles/README.md`.
    pub nvml: Vec<NvmlAnswer>,
    /// Microseconds that every call of NVML takes.
    pub nvml_microseconds: u64,
    /// Rank of this process in its launch, if the launcher sets it.
    pub process_rank: Option<u32>,
}

/// The settings of this process.
pub static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings {
    devices: number("COMMGAUGE_DOUBLE_DEVICES").unwrap_or(4) as u32,
    memory_bytes: text("COMMGAUGE_DOUBLE_MEMORY").map_or_else(
        || vec![1 << 30],
        |list| list.split(',').map(|word| whole("COMMGAUGE_DOUBLE_MEMORY", word)).collect(),
    ),
    models: text("COMMGAUGE_DOUBLE_MODELS")
        .map_or_else(Vec::new, |list| list.split(',').map(|word| word.trim().to_owned()).collect()),
    capability: number("COMMGAUGE_DOUBLE_CAPABILITY").unwrap_or(90) as u32,
    parts: number("COMMGAUGE_DOUBLE_PARTS").unwrap_or(1).max(1) as u32,
    communicators: number("COMMGAUGE_DOUBLE_COMMUNICATORS").unwrap_or(100),
    longest_hold: number("COMMGAUGE_DOUBLE_LONGEST_HOLD"),
    blocks: number("COMMGAUGE_DOUBLE_BLOCKS").unwrap_or(32).max(1),
    order_seed: number("COMMGAUGE_DOUBLE_ORDER"),
    network: number("COMMGAUGE_DOUBLE_NETWORK").filter(|rate| *rate > 0),
    counted_ranks: number("COMMGAUGE_DOUBLE_RANKS").map(|ranks| ranks as u32),
    shared: text("COMMGAUGE_DOUBLE_SHARED").unwrap_or_else(|| "/dev/shm".to_owned()).into(),
    faults: parse(&text("COMMGAUGE_DOUBLE_FAULTS").unwrap_or_default()).unwrap_or_else(|cause| stop(&cause)),
    nvml: text("COMMGAUGE_DOUBLE_NVML")
        .unwrap_or_default()
        .split(';')
        .filter(|entry| !entry.trim().is_empty())
        .map(nvml_answer)
        .collect(),
    nvml_microseconds: number("COMMGAUGE_DOUBLE_NVML_MICROSECONDS").unwrap_or(0),
    process_rank: ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"]
        .into_iter()
        .find_map(|name| text(name)?.parse().ok()),
});

/// A number that NVML answers.
#[derive(Clone, Debug)]
pub struct NvmlAnswer {
    /// The number of a field, or a name.
    pub what: String,
    /// The device; without it, every one.
    pub device: Option<u32>,
    pub first: u64,
    /// By how much it rises with every reading.
    pub rise: u64,
}

fn nvml_answer(entry: &str) -> NvmlAnswer {
    const VARIABLE: &str = "COMMGAUGE_DOUBLE_NVML";
    let Some((what, value)) = entry.trim().split_once('=') else {
        stop(&format!("{VARIABLE}: `{entry}` has no value"))
    };
    let (what, device) = what.split_once('@').map_or((what, None), |(what, device)| (what, Some(device)));
    let (first, rise) = value.split_once('+').unwrap_or((value, "0"));
    NvmlAnswer {
        what: what.to_owned(),
        device: device.map(|device| whole(VARIABLE, device) as u32),
        first: whole(VARIABLE, first),
        rise: whole(VARIABLE, rise),
    }
}

impl Settings {
    /// Bytes of memory of a device of this host.
    pub fn memory_of(&self, device: u32) -> u64 {
        of_device(&self.memory_bytes, device).copied().unwrap_or(1 << 30)
    }

    /// What follows the name of a device of this host.
    pub fn model_of(&self, device: u32) -> &str {
        of_device(&self.models, device).map_or("", String::as_str)
    }

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

fn of_device<T>(list: &[T], device: u32) -> Option<&T> {
    list.get(device as usize).or(list.last())
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    Some(whole(name, &text(name)?))
}

fn whole(name: &str, value: &str) -> u64 {
    value.trim().parse().unwrap_or_else(|_| stop(&format!("{name}: `{value}` is no whole number")))
}

fn stop(cause: &str) -> ! {
    eprintln!("commgauge double: {cause}");
    std::process::exit(2)
}
