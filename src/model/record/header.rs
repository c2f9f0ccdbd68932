//! The part of the header that describes the backend, and the machine according to its machine file.

use crate::layout::{Axis, Locality};
use crate::workload::{StepUse, Style};
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::digest;
use commgauge_base::element::ElementType;
use commgauge_base::embedded::pairs;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Splits;
use commgauge_base::nccl_conf::{OWN_LOG, nccl_conf_of_this_process};
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Rate};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// The backend.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackendLine {
    /// `mpi`, `nccl` or `simulated`; `imported` where another tool measured.
    pub name: String,
    /// The tool that measured, where the record was imported.
    pub measured_by: Option<ForeignTool>,
    /// True where no data moved and no real time passed.
    pub synthetic: bool,
    /// Library and version.
    pub library: String,
    /// The variables of the environment that choose or forbid transports, with their values; absent without any.
    pub transport: Option<String>,
    /// Channels of NCCL that carry a message of a pair between two nodes, where they were set for pairs; absent where NCCL chose.
    pub pair_channels: Option<u32>,
    /// How it carries out and times what it does, in sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The machine file that bounds (or, simulated, the times) come from.
    pub machine: Option<String>,
    /// Nodes behind each leaf switch according to the machine file, counted from node 0; absent where it does not say.
    pub nodes_per_leaf: Option<u32>,
    /// Nodes that the links of a rack join according to the machine file, counted from node 0; absent where they join none.
    pub nodes_per_rack: Option<u32>,
}

/// Another tool whose times a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForeignTool {
    /// nccl-tests, or rccl-tests.
    NcclTests,
    /// The OSU micro-benchmarks.
    Osu,
    /// The Intel MPI Benchmarks.
    Imb,
    /// A table of times, which does not say who measured them.
    Csv,
}

impl ForeignTool {
    /// Its name in sentences.
    pub fn name(self) -> &'static str {
        match self {
            ForeignTool::NcclTests => "nccl-tests",
            ForeignTool::Osu => "OSU",
            ForeignTool::Imb => "IMB",
            ForeignTool::Csv => "another tool",
        }
    }

    /// Facts shown with every verdict on its times.
    pub fn label(self) -> String {
        format!("measured by {}; data check and clocks not ours", self.name())
    }

    /// The backend of ours that does what it measures, where that is known.
    pub fn backend(self) -> Option<&'static str> {
        match self {
            ForeignTool::NcclTests => Some("nccl"),
            ForeignTool::Osu | ForeignTool::Imb => Some("mpi"),
            ForeignTool::Csv => None,
        }
    }

    /// Why a row of it is not verified, and what would change that.
    pub fn unchecked(self) -> String {
        let how = match self {
            ForeignTool::NcclTests => "; run it with -c 1",
            ForeignTool::Osu => "; run it with -c",
            ForeignTool::Imb => "; build it with CHECK, or run it with -data_check",
            ForeignTool::Csv => " as far as the table says",
        };
        format!("not verified: {} did not check the data{how}", self.name())
    }
}

// The lines about the devices of the ranks: what they are, and their state before and after each case. Written only
// where ranks have devices that can be queried.

/// The devices of all ranks, once, before the first case.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DevicesLine {
    /// What was asked, and its version, such as `NVML 13.580.95.05`; absent where no rank could ask anything.
    pub source: Option<String>,
    /// Why nothing could be asked, with the first rank where it was so; absent where all could.
    pub absent: Option<String>,
    /// One entry for each rank whose device answered.
    pub devices: Vec<DeviceFacts>,
}

/// A device, as far as it says.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFacts {
    /// World rank that has it.
    pub rank: u32,
    /// Name.
    pub name: String,
    /// Unique name.
    pub uuid: String,
    /// PCI address, as `0000:3b:00.0`.
    pub pci: String,
    /// NUMA node that it is nearest to.
    pub numa_node: Option<u32>,
    /// The one farthest from it, where copies have their far memory; none if the host has one.
    pub far_numa_node: Option<u32>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// The newest CUDA that the driver serves.
    pub cuda: Option<String>,
    /// Power that it may draw.
    pub power_limit_watts: Option<f64>,
    /// NVLinks that are up.
    pub nvlinks_active: Option<u32>,
    /// NVLinks that it has.
    pub nvlinks: Option<u32>,
}

/// The devices before and after a case of a replicate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceReadingsLine {
    /// Index of the case in the plan.
    pub case: u32,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// Ranks whose devices were read.
    pub ranks_read: u32,
    /// Over all of them, before.
    pub before: DeviceSpread,
    /// Over all of them, after.
    pub after: DeviceSpread,
    /// Ranks whose device changed in a way that speaks against the times.
    pub ranks_changed: u32,
    /// The first of them, and how.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<DeviceChange>,
}

/// Lowest and highest of each reading over the ranks; absent where no device tells.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceSpread {
    /// Clock of the multiprocessors, MHz.
    pub multiprocessor_clock_mhz: Option<(f64, f64)>,
    /// Clock of the memory, MHz.
    pub memory_clock_mhz: Option<(f64, f64)>,
    /// Power drawn.
    pub power_watts: Option<(f64, f64)>,
    /// Temperature.
    pub temperature_celsius: Option<(f64, f64)>,
    /// Why any of them was throttled, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub throttle_reasons: Vec<String>,
}

/// What changed on a rank's device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceChange {
    /// World rank.
    pub rank: u32,
    /// How, as a phrase.
    pub what: String,
}

// Where the numbers come from: host, process, processors and the allowed part of the environment.

/// The facts of a rank as its own process knows them; `node` is filled in once all ranks are gathered.
pub fn rank_facts(rank: u32) -> RankFacts {
    let name = rustix::system::uname();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let listed = |key: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(key));
        value.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
    };
    RankFacts {
        pid: std::process::id(),
        cores: listed("Cpus_allowed_list:"),
        numa_nodes: listed("Mems_allowed_list:"),
        processor: processor_name(),
        kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
        ..RankFacts::on_host(rank, name.nodename().to_string_lossy())
    }
}

/// The host of a rank.
pub fn host_of(ranks: &[RankFacts], rank: u32) -> Option<&str> {
    let holds = |facts: &&RankFacts| rank >= facts.rank && rank - facts.rank < facts.ranks;
    ranks.iter().find(holds).map(|facts| &*facts.host)
}

/// Numbers the hosts in order of first appearance.
pub fn number_hosts(ranks: &mut [RankFacts]) {
    let mut hosts: Vec<String> = Vec::new();
    for facts in ranks {
        let known = hosts.iter().position(|host| *host == facts.host);
        facts.node = known.unwrap_or_else(|| {
            hosts.push(facts.host.clone());
            hosts.len() - 1
        }) as u32;
    }
}

/// The environment without the log that this process asks NCCL for, and after it what NCCL's configuration files add to it.
pub fn variables_of_this_process() -> impl Iterator<Item = (String, String)> {
    let named =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned()));
    let of_files = nccl_conf_of_this_process().into_iter().flat_map(|file| file.variables);
    let has_own_log = std::env::var("NCCL_DEBUG_SUBSYS").is_ok_and(|parts| parts == OWN_LOG);
    let is_of_user = move |(name, _): &(String, String)| !(has_own_log && name.starts_with("NCCL_DEBUG"));
    std::env::vars_os().filter_map(named).filter(is_of_user).chain(of_files)
}

/// What NCCL's configuration files set, as sentences without values.
pub fn nccl_conf_notes() -> Vec<String> {
    let files = nccl_conf_of_this_process().into_iter().filter(|file| !file.variables.is_empty());
    files.map(|file| format!("{} sets {} for NCCL", file.path, file.names())).collect()
}

/// The recorded part of the environment. Of variables that are not known to matter for communication, only that they are set.
pub fn environment() -> BTreeMap<String, String> {
    variables_of_this_process()
        .filter(|(name, _)| is_recorded(name))
        .map(
            |(name, value)| {
                if has_shown_value(&name) && !has_user(&value) { (name, value) } else { (name, HIDDEN.to_owned()) }
            },
        )
        .collect()
}

/// SHA-256 of the running program, in hexadecimal.
///
/// # Errors
/// Where the executable can no longer be read.
pub fn program_sha256() -> Result<String> {
    // The executable can be large and does not change, so it is hashed once.
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let path = std::env::current_exe()
        .map_err(|cause| Error::environment(format!("the file of this program is unknown: {cause}")))?;
    let sha256 = file_sha256(&path)?;
    Ok(KNOWN.get_or_init(|| sha256).clone())
}

/// SHA-256 of a file, in hexadecimal.
pub fn file_sha256(path: &Path) -> Result<String> {
    let failed = |cause| Error::file("read", path, cause);
    digest::sha256_of(fs::File::open(path).map_err(failed)?).map_err(failed)
}

static PROGRAM_VERSION: OnceLock<&str> = OnceLock::new();

/// Sets what [`program_version`] returns; a program does so first. The commit is known to the programs alone, so that a new
/// commit compiles them again and nothing else. A second call changes nothing.
pub fn set_program_version(version: &'static str) {
    let _ = PROGRAM_VERSION.set(version);
}

/// Version of this program, and its commit where it was built from a checkout.
pub fn program_version() -> &'static str {
    PROGRAM_VERSION.get().copied().unwrap_or(env!("CARGO_PKG_VERSION"))
}

fn processor_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("model name"));
    named.map_or_else(|| "unknown".to_owned(), |rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
}

// A rank, as a record describes it.

/// A rank and where it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RankFacts {
    /// World rank.
    pub rank: u32,
    /// Ranks of this entry, from `rank` on (1 unless simulated).
    pub ranks: u32,
    /// Host name, as the host gives it.
    pub host: String,
    /// Number of the host in order of first appearance.
    pub node: u32,
    /// Process id.
    pub pid: u32,
    /// Processors that the rank may run on, as a list of ranges.
    pub cores: String,
    /// NUMA nodes of those processors, as a list of ranges.
    pub numa_nodes: String,
    /// Processor name.
    pub processor: String,
    /// Operating system kernel.
    pub kernel: String,
    /// Device, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Network adapters nearest to the device, all that are equally near, such as `mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))`; behind
    /// them those at least as near of which no port is active, such as `mlx5_1 (same PCIe switch) is down`. Empty where there are none, or
    /// the system does not say.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<String>,
}

// A case of a plan, as a record describes it.

/// A case, as planned.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseFacts {
    /// Name built from the parts below.
    pub name: String,
    /// Who asks for it.
    pub style: Style,
    /// Axis whose groups carry it out, all at once.
    pub axis: Axis,
    /// Ranks in each group.
    pub group_size: u32,
    /// Concurrent groups.
    pub groups: u32,
    /// Placement of a group on the hosts; all zeros if unknown.
    pub locality: Locality,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// How elements are combined.
    pub reduce_op: Option<ReduceOp>,
    /// Special rank of the group.
    pub root: Option<u32>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Bytes that bandwidth is computed from; differs from `bytes_total` for uneven all_to_all_v only.
    pub bytes_accounted: Bytes,
    /// What one rank contributes (the busiest, where they differ).
    pub bytes_per_rank: Bytes,
    /// How the vector forms divide their elements.
    pub splits: Option<Splits>,
    /// Whether the result replaces the input.
    pub placement: Placement,
    /// What is timed.
    pub cadence: Cadence,
    /// One-way messages in one call: latency is the time of a call divided by it.
    pub transfers_per_call: u32,
    /// busbw / algbw; absent for the barrier.
    pub bus_factor: Option<f64>,
    /// Highest bus bandwidth that the machine file allows.
    pub bound_bytes_per_second: Option<Rate>,
    /// The steps that perform it; none for sweeps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub uses: Vec<StepUse>,
    /// Index of the same case on all groups at once, if only one group is active here and the others are idle.
    pub solo_of: Option<u32>,
    /// What sets it apart from the same call otherwise: the variant in which it was handed over (`buffers`, `submit`, `aggregate`,
    /// `max_ctas`), what flags forced (`algorithm`, `protocol`, `min_ctas`), and of imported records what another tool said, by the
    /// name of its column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl RankFacts {
    /// The first of the nearest adapters, if it is active, and its bytes per second.
    pub fn active_adapter(&self) -> Option<(&str, f64)> {
        let (name, rest) = self.adapters.first()?.split_once(" (")?;
        let gigabits: f64 = rest.split_once(" Gb/sec")?.0.rsplit(' ').next()?.parse().ok()?;
        Some((name, gigabits * 1e9 / 8.0))
    }

    /// A rank of which only its host is known.
    pub fn on_host(rank: u32, host: impl Into<String>) -> RankFacts {
        let unknown = || "unknown".to_owned();
        RankFacts {
            rank,
            ranks: 1,
            host: host.into(),
            node: 0,
            pid: 0,
            cores: unknown(),
            numa_nodes: unknown(),
            processor: unknown(),
            kernel: unknown(),
            device: None,
            adapters: Vec::new(),
        }
    }
}

impl CaseFacts {
    /// A streaming call of one group of all ranks that contributes all of its bytes, to be completed with `..`.
    pub fn new(collective: Collective, element_type: ElementType, group_size: u32, bytes_total: Bytes) -> CaseFacts {
        CaseFacts {
            name: String::new(),
            style: Style::Sweep,
            axis: Axis::World,
            group_size,
            groups: 1,
            locality: Locality::UNKNOWN,
            collective,
            element_type,
            reduce_op: None,
            root: None,
            bytes_total,
            bytes_accounted: bytes_total,
            bytes_per_rank: bytes_total,
            splits: None,
            placement: collective.placements().first().copied().unwrap_or(Placement::OutOfPlace),
            cadence: Cadence::Streaming,
            transfers_per_call: collective.transfers_per_call(),
            bus_factor: collective.bus_factor(group_size),
            bound_bytes_per_second: None,
            uses: Vec::new(),
            solo_of: None,
            labels: BTreeMap::new(),
        }
    }

    /// Calls per step: all uses in the first step that performs the call. `None` for sweeps.
    pub fn count_per_step(&self) -> Option<u64> {
        let first = self.uses.first()?.step;
        Some(self.uses.iter().filter(|used| used.step == first).map(|used| used.count_per_step).sum())
    }
}

// Keeps secrets out of records and of the commands that are shown. Records hold the values of the variables in `variables.txt`; commands are
// shown to who gave them, without the values of variables whose name says that they are secret, and without addresses that name a user.

/// Replaces a value in a record.
pub const HIDDEN: &str = "set (hidden)";

/// Replaces a value in a displayed command.
pub const HIDDEN_FROM_VIEW: &str = "(hidden)";

/// Parts of names whose values are secret.
const SECRET: [&str; 9] = ["TOKEN", "SECRET", "PASS", "PWD", "KEY", "CRED", "AUTH", "COOKIE", "PRIVATE"];

/// Flags of launchers after which a variable follows, as `NAME=VALUE`, or as two words.
const EXPORTS: [&str; 9] = ["-x", "--x", "-env", "-genv", "--env", "--genv", "-export", "--export", "--export-env"];

/// Before a word for the launcher in a command line of `commgauge run`.
const LAUNCHER_ARGUMENT: &str = "--launcher-arg=";

/// Suffixes of flags whose value is secret; `--prompt-tokens` is an exception.
const SECRET_FLAGS: [&str; 6] = ["-token", "-key", "-secret", "-password", "-passwd", "-credential"];

/// Whether the value of a variable is secret, by its name.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// Whether records hold the value of the variable and not only that it is set.
fn has_shown_value(name: &str) -> bool {
    let shown = pairs(VARIABLES).filter(|(_, said)| *said == "shown");
    shown.flat_map(|(words, _)| words.split_whitespace()).any(|word| match word.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning) && !is_secret(name),
        None => word == name,
    })
}

/// Whether a text holds an address with a user, such as `http://user:password@host`.
fn has_user(text: &str) -> bool {
    text.split("://").skip(1).any(|rest| rest.split('/').next().is_some_and(|authority| authority.contains('@')))
}

/// The words of a command line for a record, without values of secret variables and of those that a launcher hands on and that records
/// do not hold. A list of words within a word (`--launch-command`, as JSON) is gone through too.
pub fn without_secrets(words: &[String]) -> Vec<String> {
    let is_harmless = |name: &str| is_recorded(name) && has_shown_value(name);
    Hiding { instead: HIDDEN, is_harmless: &is_harmless }.words(words)
}

/// The words of a command line to show to the person who gave it: without values of secret variables.
pub fn to_show(words: &[String]) -> Vec<String> {
    Hiding { instead: HIDDEN_FROM_VIEW, is_harmless: &|name| !is_secret(name) }.words(words)
}

/// What is hidden, and how.
struct Hiding<'a> {
    instead: &'a str,
    /// Of variables that a launcher hands on.
    is_harmless: &'a dyn Fn(&str) -> bool,
}

impl Hiding<'_> {
    fn words(&self, words: &[String]) -> Vec<String> {
        let mut shown: Vec<String> = Vec::with_capacity(words.len());
        let mut hides_next = false;
        for (index, word) in words.iter().enumerate() {
            let before = index.checked_sub(1).map_or("", |before| value_of_flag(&words[before]));
            let is_value = std::mem::take(&mut hides_next);
            let inner = word.strip_prefix(LAUNCHER_ARGUMENT).filter(|_| is_value);
            let (flag, inner) = inner.map_or(("", &word[..]), |inner| (LAUNCHER_ARGUMENT, inner));
            shown.push(match serde_json::from_str::<Vec<String>>(inner) {
                _ if is_value => format!("{flag}{}", self.instead),
                Ok(inner) => serde_json::to_string(&self.words(&inner)).unwrap_or_else(|_| self.instead.to_owned()),
                Err(_) => self.word(before, word),
            });
            let name = value_of_flag(word);
            let names_variable = EXPORTS.contains(&before) && !name.contains('=') && !(self.is_harmless)(name);
            hides_next = !is_value && (is_secret_flag(word) || (names_variable && takes_two_words(before)));
        }
        shown
    }

    fn word(&self, before: &str, word: &str) -> String {
        let flag_of_word = word.split_once('=').filter(|(flag, _)| flag.starts_with('-'));
        match flag_of_word {
            // `--launcher-arg=-x` and `--export=A=1,B=2`
            Some((flag, value)) if EXPORTS.contains(&flag) => format!("{flag}={}", self.exported(flag, value)),
            Some((flag, _)) if is_secret_flag(flag) => format!("{flag}={}", self.instead),
            Some((flag, value)) => format!("{flag}={}", self.word(before, value)),
            None if EXPORTS.contains(&before) => self.exported(before, word),
            // `mca_base_env_list` of Open MPI has `;` between variables.
            None => {
                let is_shown = |name: &str| !is_variable(name) || !is_secret(name);
                let is_list =
                    word.split(';').all(|entry| entry.split_once('=').is_some_and(|(name, _)| is_variable(name)));
                let entries: Vec<&str> = if is_list { word.split(';').collect() } else { vec![word] };
                entries.into_iter().map(|entry| self.entry(entry, is_shown)).collect::<Vec<_>>().join(";")
            }
        }
    }

    /// What follows a flag of [`EXPORTS`]: srun takes a list, in which a value in single quotes may have commas.
    fn exported(&self, flag: &str, value: &str) -> String {
        if !flag.ends_with("export") {
            return self.entry(value, self.is_harmless);
        }
        let mut is_quoted = false;
        let entries = value.split(|c: char| {
            is_quoted ^= c == '\'';
            c == ',' && !is_quoted
        });
        entries.map(|entry| self.entry(entry, self.is_harmless)).collect::<Vec<_>>().join(",")
    }

    fn entry(&self, entry: &str, is_shown: impl Fn(&str) -> bool) -> String {
        match entry.split_once('=') {
            Some((name, value)) if !is_shown(name) || has_user(value) => format!("{name}={}", self.instead),
            None if has_user(entry) => self.instead.to_owned(),
            _ => entry.to_owned(),
        }
    }
}

/// The value of `--launcher-arg=VALUE`, which is a word for the launcher; other words as they are.
fn value_of_flag(word: &str) -> &str {
    word.strip_prefix(LAUNCHER_ARGUMENT).unwrap_or(word)
}

/// `-genv NAME VALUE` of MPICH and Intel MPI; `-x NAME` of Open MPI does not show the value.
fn takes_two_words(flag: &str) -> bool {
    flag.ends_with("env")
}

fn is_secret_flag(word: &str) -> bool {
    word.starts_with('-') && SECRET_FLAGS.iter().any(|end| word.to_ascii_lowercase().ends_with(end))
}

fn is_variable(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !name.is_empty() && name.bytes().all(is_part)
}

// Which variables of the environment a record holds, by name.

/// A variable of an environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name, without `=`.
    pub name: String,
    /// Its value, which may be secret.
    pub value: String,
}

impl Variable {
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Variable {
        Variable { name: name.into(), value: value.into() }
    }

    /// As a shell sets it: `NAME=value`, not quoted.
    pub fn assignment(&self) -> String {
        format!("{}={}", self.name, self.value)
    }
}

/// Variables by their name or its beginning, and what records hold of them.
const VARIABLES: &str = include_str!("variables.txt");

fn begins_as(name: &str, what: &str) -> bool {
    pairs(VARIABLES).any(|(prefix, said)| said == what && name.starts_with(prefix))
}

/// Whether records hold the variable.
pub(super) fn is_recorded(name: &str) -> bool {
    begins_as(name, "recorded") && !is_launcher_internal(name)
}

/// Whether a launcher sets the variable for its own processes only.
pub fn is_launcher_internal(name: &str) -> bool {
    begins_as(name, "internal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_in_order_of_first_appearance() {
        let on = |rank, host: &str| RankFacts { host: host.to_owned(), ..rank_facts(rank) };
        let mut ranks = [on(0, "b"), on(1, "a"), on(2, "b")];
        number_hosts(&mut ranks);
        assert_eq!(ranks.map(|r| r.node), [0, 1, 0]);
    }

    #[test]
    fn values_of_secret_variables_and_of_what_launchers_hand_on_are_hidden() {
        for (line, expected) in [
            ("mpirun -x HF_TOKEN=abc -x NCCL_ALGO=Ring p", "mpirun -x HF_TOKEN=# -x NCCL_ALGO=Ring p"),
            ("mpirun -x MY_OWN=abc -x HOME p -b 8", "mpirun -x MY_OWN=# -x HOME p -b 8"),
            ("mpiexec -genv A_KEY abc -genv NCCL_ALGO Ring p", "mpiexec -genv A_KEY # -genv NCCL_ALGO Ring p"),
            ("srun --export=ALL,A=b,NCCL_ALGO=Ring --mpi=pmix p", "srun --export=ALL,A=#,NCCL_ALGO=Ring --mpi=pmix p"),
            ("srun --export ALL,S3_SECRET=x p", "srun --export ALL,S3_SECRET=# p"),
            ("srun --export=S3_SECRET='x,y',HOME p", "srun --export=S3_SECRET=#,HOME p"),
            ("mpirun -x A_TOKEN=x,y;z p", "mpirun -x A_TOKEN=# p"),
            ("mpirun --mca mca_base_env_list A=1;A_TOKEN=x p", "mpirun --mca mca_base_env_list A=1;A_TOKEN=# p"),
            ("env DB_PASSWORD=x HWLOC=1 srun p", "env DB_PASSWORD=# HWLOC=1 srun p"),
            ("mpirun -x NCCL_CREDS=x -x NCCL_IB_HCA=mlx5 p", "mpirun -x NCCL_CREDS=# -x NCCL_IB_HCA=mlx5 p"),
            ("mpirun -x FI_PROVIDER=http://u:p@h/x p http://u@h", "mpirun -x FI_PROVIDER=# p #"),
            (
                "commgauge run s --launcher-arg=-x --launcher-arg=W=1",
                "commgauge run s --launcher-arg=-x --launcher-arg=W=#",
            ),
            ("commgauge run s --launcher-arg=AWS_KEY=1", "commgauge run s --launcher-arg=AWS_KEY=#"),
            (
                "commgauge run s --launcher-arg=-genv --launcher-arg=W --launcher-arg=1",
                "commgauge run s --launcher-arg=-genv --launcher-arg=W --launcher-arg=#",
            ),
            ("p --api-key abc --auth-token=abc --prompt-tokens 8", "p --api-key # --auth-token=# --prompt-tokens 8"),
            (r#"p --launch-command ["mpirun","-x","A_TOKEN=1"]"#, r#"p --launch-command ["mpirun","-x","A_TOKEN=#"]"#),
            ("p -f 2 --machine=m --key=value all_reduce", "p -f 2 --machine=m --key=value all_reduce"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let expected = expected.replace("--key=value", &format!("--key={HIDDEN}"));
            assert_eq!(without_secrets(&words).join(" "), expected.replace('#', HIDDEN), "{line}");
        }
    }

    #[test]
    fn a_shown_command_hides_what_is_secret_by_its_name_in_the_way_of_every_launcher() {
        for (line, expected) in [
            ("mpirun -x HF_TOKEN=a,b -x LD_LIBRARY_PATH=/opt p", "mpirun -x HF_TOKEN=# -x LD_LIBRARY_PATH=/opt p"),
            ("mpirun -x hf_token=abc -x A_KEY p", "mpirun -x hf_token=# -x A_KEY p"),
            ("mpiexec --env DB_PASSWD abc -env B 1 p", "mpiexec --env DB_PASSWD # -env B 1 p"),
            ("mpiexec -genv A_KEY abc -genv B_KEY=abc p", "mpiexec -genv A_KEY # -genv B_KEY=# p"),
            ("srun --export=ALL,A=b,A_CREDENTIAL=x p", "srun --export=ALL,A=b,A_CREDENTIAL=# p"),
            ("env MY_SECRET=x MPIR_CVAR=1 mpiexec p", "env MY_SECRET=# MPIR_CVAR=1 mpiexec p"),
        ] {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            assert_eq!(to_show(&words).join(" "), expected.replace('#', HIDDEN_FROM_VIEW), "{line}");
        }
    }

    #[test]
    fn values_are_recorded_only_of_variables_that_matter_for_communication() {
        let (absent, named, valued) = ((false, false), (true, false), (true, true));
        for (name, recorded) in [
            ("AWS_SECRET_ACCESS_KEY", absent),
            ("PATH", absent),
            ("OMPI_MCA_orte_hnp_uri", absent),
            ("OMPI_MCA_PREFIXES", absent),
            ("NCCL_VERSION", absent),
            ("I_MPI_PIN_INFO", absent),
            ("I_MPI_INFO_NP", absent),
            ("NCCL_PWD", named),
            ("NCCL_CREDS", named),
            ("NCCL_AUTH_COOKIE", named),
            ("NCCL_IB_AUTH", named),
            ("UCX_TLS_PASS", named),
            ("UCX_BEARER", named),
            ("FI_AUTH", named),
            ("FI_PRIVATE", named),
            ("SLURM_JOB_ACCOUNT", named),
            ("SLURM_JOB_COMMENT", named),
            ("NCCL_ALGO", valued),
            ("NCCL_IB_PKEY", valued),
            ("NCCL_IB_HCA", valued),
            ("OMPI_MCA_btl", valued),
            ("I_MPI_FABRICS", valued),
            ("SLURM_JOB_ID", valued),
        ] {
            assert_eq!((is_recorded(name), is_recorded(name) && has_shown_value(name)), recorded, "{name}");
        }
        for (text, expected) in
            [("http://u:p@h", true), ("tcp://u@h:1/x", true), ("http://h/a@b", false), ("eth0", false)]
        {
            assert_eq!(has_user(text), expected, "{text}");
        }
    }
}
