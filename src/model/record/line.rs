//! The lines of a record. The published JSON Schema (`commgauge show schema`) is made from these types.
//!
//! Numbers carry their unit in their name; there is no NaN and no infinity, an unknown value is left out or null.

pub use super::header::{BackendLine, CaseFacts, ForeignTool, RankFacts};
pub use super::launch_lines::{End, EndStatus};
pub use super::packed::PairTimes;
pub use super::work_lines::{ClockErrors, Outcome, RankHistogram, Samples};
pub use crate::workload::StepUse;
pub use commgauge_base::sample::ClockMethod;

use super::counters::{CountersLine, PerftestLine};
use super::header::{DeviceReadingsLine, DevicesLine};
use super::launch_lines::{Change, HangLine, ResumeLine, UnwatchedLine, shortened};
use super::library_use::LibraryUseLine;
use super::work_lines::{CalibrationLine, CopyLine, InterferenceLine, PlanGrowth, ProductLine, ReplayLine};
use crate::config::RunSettings;
use crate::workload::{RankedStep, StepFacts};
use commgauge_base::digest::sha256;
use commgauge_base::stats::sorted;
use commgauge_base::units::{Rate, Seconds};
use commgauge_base::variant::LibraryChoice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of `format` in every header.
pub const FORMAT: &str = "commgauge-record";

/// The version of the format that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// One line of a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, strum::VariantNames)]
#[serde(tag = "line", rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Line {
    /// First line: where the numbers come from.
    Header(Box<Header>),
    /// Second line: what will be measured.
    Plan(Plan),
    /// How well the ranks' clocks agree; one before the first and one after the last case.
    Clock(ClockLine),
    /// One case of one replicate.
    Case(Box<CaseLine>),
    /// A whole step, replayed.
    Replay(Box<ReplayLine>),
    /// A call alone and concurrent with calls of another axis, in one replicate.
    Interference(Box<InterferenceLine>),
    /// Cases that a run added to its plan.
    PlanGrowth(Box<PlanGrowth>),
    /// How far choosing sizes came.
    Calibration(CalibrationLine),
    /// A matrix product, in one replicate.
    Product(Box<ProductLine>),
    /// A copy between a host and its GPUs, or between GPUs, in one replicate.
    Copy(Box<CopyLine>),
    /// What the watchdog saw when it ended the run.
    Hang(Box<HangLine>),
    /// The watchdog of a host was lost.
    Unwatched(UnwatchedLine),
    /// The devices of the ranks.
    Devices(Box<DevicesLine>),
    /// The devices before and after a case of a replicate.
    DeviceReadings(Box<DeviceReadingsLine>),
    /// Counters of hosts that rose while cases were measured.
    Counters(Box<CountersLine>),
    /// What the library of each rank carries data over; the last such line holds.
    LibraryUse(Box<LibraryUseLine>),
    /// What `ib_write_bw` reaches between two hosts.
    Perftest(Box<PerftestLine>),
    /// A further launch continues a run that ended early.
    Resume(Box<ResumeLine>),
    /// How the run ended. The last line, but for a run that was resumed later; a record without it was cut off.
    End(End),
}

/// Provenance: everything needed to say what the numbers were measured on, and to measure them again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// Always `commgauge-record`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Unique name of the run: start time and a random part.
    pub run_id: String,
    /// Wall-clock start, RFC 3339 with offset.
    pub started_at: String,
    /// Program that measured.
    pub program: String,
    /// Its version.
    pub program_version: String,
    /// SHA-256 of its binary.
    pub program_sha256: String,
    /// Its command line, word by word.
    pub command_line: Vec<String>,
    /// The launch command that `commgauge run` built, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_command: Option<Vec<String>>,
    /// What was requested.
    pub suite: SuiteFacts,
    /// Who carried the ops out.
    pub backend: BackendLine,
    /// Number of ranks.
    pub world_size: u32,
    /// Seed of data and order.
    pub seed: u64,
    /// How samples were taken.
    pub settings: RunSettings,
    /// One entry per rank; per host, with `ranks` above 1, when simulated.
    pub ranks: Vec<RankFacts>,
    /// Variables from the allow-list (NCCL_*, OMPI_MCA_*, UCX_*, ...) of rank 0, never the whole environment.
    pub environment: BTreeMap<String, String>,
    /// Warnings about the machine that hold for all cases, as sentences (more ranks than cores, coarse clock).
    #[serde(default)]
    pub warnings: Vec<String>,
    /// What a reader should know of the machine and what speaks against no case, as sentences (ranks that are not bound to cores).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A note of records of other tools whose files do not say when they ran.
pub const START_NOT_STATED: &str = "the log does not say when it ran; the record has the date of its newest file";

/// Hexadecimal digits of 128 bits: the part of a run's id that no other run has.
pub const ID_DIGITS: usize = 32;

/// Whether a run's id has 128 bits of its own. Records from before it had are read with such an id.
pub fn is_unique(run_id: &str) -> bool {
    run_id.split('-').any(|part| part.len() == ID_DIGITS && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

impl Header {
    /// A header of this program with default settings, to be completed with `..`: nothing else is known.
    pub fn new(program: &str, run_id: &str) -> Header {
        Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            run_id: run_id.to_owned(),
            program: program.to_owned(),
            program_version: super::header::program_version().to_owned(),
            ..Header::default()
        }
    }

    /// Adds the digest of its line to an id that other runs may have.
    pub fn identify(&mut self, text: &[u8]) {
        if !is_unique(&self.run_id) {
            self.run_id = format!("{}-{}", self.run_id, &sha256(text.trim_ascii_end())[..ID_DIGITS]);
        }
    }

    /// When the run started, for people.
    pub fn started(&self) -> String {
        match self.notes.iter().any(|note| note == START_NOT_STATED) {
            true => format!("not stated (its newest file is of {})", self.started_at),
            false => self.started_at.clone(),
        }
    }

    /// Whether buffers were in caches before calls: `cold`, `warm`, or `not stated` of another tool's run.
    pub fn buffers(&self) -> &'static str {
        match (&self.backend.measured_by, self.settings.warm_buffers) {
            (Some(_), _) => "not stated",
            (None, true) => "warm",
            (None, false) => "cold",
        }
    }
}

/// The suite that was run.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SuiteFacts {
    /// Its name.
    pub name: String,
    /// Its file; absent for a sweep given by flags.
    pub path: Option<String>,
    /// SHA-256 over the suite and every file that it names.
    pub sha256: String,
    /// The model, if the suite names one.
    pub model: Option<String>,
    /// The layout as written, such as `tp 2 x dp 2`.
    pub layout: Option<String>,
}

/// What will be measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Every case, in the order of the suite. A case is named by its index here.
    pub cases: Vec<CaseFacts>,
    /// Case lines that a complete record has: cases times replicates.
    pub case_lines: u64,
    /// Lines of matrix products and of copies that a complete record has: both times replicates.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub product_lines: u64,
    /// Estimated time of the whole run.
    pub estimated_seconds: Seconds,
    /// The steps that cases belong to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepFacts>,
    /// The step whose parallelisms are ranked from the measured calls, as the ranks do not hold its layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranking: Option<RankedStep>,
}

pub(super) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Agreement of the clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockLine {
    /// `start` or `end`.
    pub moment: ClockMoment,
    /// `synchronised`, or `barrier` where no common clock could be had or a barrier was asked for.
    pub method: ClockMethod,
    /// Resolution of the marks.
    pub resolution_nanoseconds: u64,
    /// Largest disagreement left between any rank's clock and rank 0's. No smaller difference between ranks is reported.
    pub residual_nanoseconds: u64,
    /// The bound of an offset's error, for the rank that is worst off: half the shortest round trip, added up along the
    /// way to rank 0.
    pub worst_half_round_trip_nanoseconds: u64,
    /// Largest drift against rank 0, in parts per million.
    pub worst_drift_ppm: f64,
}

impl ClockLine {
    /// Clocks that agree to within this many nanoseconds.
    pub fn synchronised(moment: ClockMoment, nanoseconds: u64) -> ClockLine {
        ClockLine {
            moment,
            method: ClockMethod::Synchronised,
            resolution_nanoseconds: 1,
            residual_nanoseconds: nanoseconds,
            worst_half_round_trip_nanoseconds: nanoseconds,
            worst_drift_ppm: 0.0,
        }
    }
}

/// When the clocks were compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClockMoment {
    Start,
    End,
}

/// One case of one replicate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CaseLine {
    /// Index in the plan.
    pub case: u32,
    /// Name, as in the plan.
    pub name: Arc<str>,
    /// Which repetition, from 0.
    pub replicate: u32,
    /// Position in the shuffled order of the replicate, from 0.
    pub position: u32,
    /// Its outcome.
    pub outcome: Outcome,
    /// Earlier replicates of the case replaced by this one: they ran out of time before they reached the requested precision, and this one
    /// has more samples. Readers exclude them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<u32>,
    /// Iterations run before timing and not kept.
    pub warm_up_iterations: u32,
    /// Calls in one sample: 1 when isolated, but for graphs and groups of several calls, which are handed over at once.
    pub calls_per_sample: u32,
    /// Why sampling ended; absent where nothing was timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// Half width of the median's 95 % interval relative to the median, as reached; absent with too few samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision_reached: Option<f64>,
    /// The samples, column by column.
    pub samples: Samples,
    /// Histogram of each rank's own time of a sample; empty where `pairs` has every pair's own times.
    pub histograms: Vec<RankHistogram>,
    /// Where a histogram would cover several ranks: the median of each rank's own time of a sample in nanoseconds, to three significant
    /// digits, in the order of the ranks; 0 for one that took no part.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "super::packed")]
    #[schemars(with = "super::packed::Written<Vec<u64>>")]
    pub rank_medians: Vec<u64>,
    /// The pairs of a round and their own times; absent where the groups are no pairs.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "super::packed")]
    #[schemars(with = "Option<super::packed::Written<PairTimes>>")]
    // Boxed: few records have any, and a record may have a million lines.
    pub pairs: Option<Box<PairTimes>>,
    /// Copies of the buffers in the rotation.
    pub buffer_copies: u32,
    /// What the library itself estimates that a call takes, the longest of all ranks (`ncclGroupSimulateEnd`): no measurement. Absent
    /// where it estimates nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub library_estimate_seconds: Option<Seconds>,
    /// What the library chose for the calls by itself, on the first rank of the groups that reported it; absent where it was not asked or
    /// does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // Boxed as `pairs`.
    pub library_choice: Option<Box<LibraryChoice>>,
    /// Warnings that concern the case as a whole, as sentences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl CaseLine {
    /// A line without times, to be completed with `..`: in the order of the plan, a call a sample, in one copy of the buffers.
    pub fn new(case: u32, name: impl Into<Arc<str>>, replicate: u32, outcome: Outcome) -> CaseLine {
        CaseLine {
            case,
            name: name.into(),
            replicate,
            position: case,
            outcome,
            replaces: Vec::new(),
            warm_up_iterations: 0,
            calls_per_sample: 1,
            stop: None,
            precision_reached: None,
            samples: Samples::default(),
            histograms: Vec::new(),
            rank_medians: Vec::new(),
            pairs: None,
            buffer_copies: 1,
            library_estimate_seconds: None,
            library_choice: None,
            warnings: Vec::new(),
        }
    }

    /// A line with verified times of rank 0.
    pub fn timed(case: u32, name: impl Into<Arc<str>>, replicate: u32, nanoseconds: Vec<u64>) -> CaseLine {
        let slowest_rank = vec![0; nanoseconds.len()];
        let samples = Samples { slowest_nanoseconds: nanoseconds, slowest_rank, ..Samples::default() };
        CaseLine { samples, ..CaseLine::new(case, name, replicate, Outcome::Measured { verified: true }) }
    }

    /// Whether a signal ended the sampling early. A resumed run measures the case again.
    pub fn was_cut_short(&self) -> bool {
        self.stop == Some(StopReason::Interrupted)
    }

    /// Ascending times of one transfer in seconds: those of the samples that count, over the calls of a sample and the one-way messages of
    /// a call. Empty where the case was not measured.
    pub fn seconds_per_transfer(&self, facts: &CaseFacts) -> Vec<f64> {
        if !matches!(self.outcome, Outcome::Measured { .. }) {
            return Vec::new();
        }
        let transfers = f64::from(self.calls_per_sample) * f64::from(facts.transfers_per_call);
        let seconds = |index: usize| Seconds::from_nanoseconds(self.samples.slowest_nanoseconds[index]).0 / transfers;
        sorted(self.samples.valid().map(seconds))
    }
}

/// Why sampling ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The asked precision was reached.
    Precision,
    /// The time budget was spent.
    Budget,
    /// The largest number of samples was reached.
    MaximumSamples,
    /// A fixed number was requested and taken.
    FixedCount,
    /// A signal.
    Interrupted,
}

// The published JSON Schema of one line of a record, made from the types in [`super::line`].

/// The JSON Schema (draft 2020-12) of one line.
pub fn schema() -> Value {
    let mut schema = schemars::schema_for!(Line).to_value();
    if let Some(root) = schema.as_object_mut() {
        root.insert("$id".to_owned(), json!(format!("urn:{FORMAT}:{VERSION}")));
        root.insert("title".to_owned(), json!(format!("One line of a {FORMAT}, version {VERSION}")));
        root.insert("version".to_owned(), json!(VERSION));
    }
    // The types cannot express that these two are constants.
    for (property, value) in [("format", json!(FORMAT)), ("version", json!(VERSION))] {
        if let Some(Value::Object(facts)) = schema.pointer_mut(&format!("/$defs/Header/properties/{property}")) {
            facts.insert("const".to_owned(), value);
        }
    }
    if let Some(Value::Array(kinds)) = schema.get_mut("oneOf") {
        for facts in kinds.iter_mut().filter_map(|kind| kind.get_mut("properties")?.as_object_mut()) {
            facts.insert("sha256".to_owned(), digest());
        }
    }
    schema
}

/// The last key of every line, which the journal adds.
fn digest() -> Value {
    json!({
        "description": "SHA-256 of every byte of the file before this key, in hexadecimal: a chain over all lines, by which a line \
                        that was changed can be named. Always the last key; older versions have it in the end line alone.",
        "pattern": "^[0-9a-f]{64}$",
        "type": "string"
    })
}

// Whether a launch may resume a record: the facts of its header that have changed.
//
// Facts that differ in every run (times, process ids, the job id) are not compared.

/// Variables that are unique to a Slurm job; its hosts are compared rank by rank.
const OF_THE_JOB: &str = "SLURM_JOB_";

/// The facts that differ between two headers.
pub fn changes(before: &Header, now: &Header) -> Vec<Change> {
    let mut found = Found(Vec::new());
    found.compare("program", &before.program, &now.program);
    found.compare("version of the program", &before.program_version, &now.program_version);
    found.compare("binary (SHA-256)", &before.program_sha256, &now.program_sha256);
    found.compare("suite", &before.suite.name, &now.suite.name);
    found.compare("suite and its files (SHA-256)", &before.suite.sha256, &now.suite.sha256);
    found.compare("backend", &before.backend.name, &now.backend.name);
    found.compare("library", &before.backend.library, &now.backend.library);
    found.option("transport", before.backend.transport.as_deref(), now.backend.transport.as_deref());
    found.option("machine file", before.backend.machine.as_deref(), now.backend.machine.as_deref());
    found.compare("number of ranks", &before.world_size.to_string(), &now.world_size.to_string());
    found.compare("seed", &before.seed.to_string(), &now.seed.to_string());
    settings(&mut found, &before.settings, &now.settings);
    ranks(&mut found, &before.ranks, &now.ranks);
    environment(&mut found, before, now);
    found.0
}

/// Checks that both plans have the same calls on the same groups; the error is a sentence without full stop. Cases of another
/// plan never fit into the record, whatever is allowed.
pub fn ensure_same_plan(before: &Plan, now: &Plan) -> Result<(), String> {
    let (then, here) = (before.cases.len(), now.cases.len());
    if then != here {
        return Err(format!("the record plans {then} cases, this launch {here}"));
    }
    for (index, (old, new)) in before.cases.iter().zip(&now.cases).enumerate() {
        if old.name != new.name {
            return Err(format!("case {index} of the record is `{}`, of this launch `{}`", old.name, new.name));
        }
        if old.locality != new.locality {
            return Err(format!("the groups of case {index} (`{}`) are placed differently on the hosts", old.name));
        }
        // A bound comes from a machine file and affects no measurement.
        let bound: Option<Rate> = new.bound_bytes_per_second;
        if *new != (CaseFacts { bound_bytes_per_second: bound, ..old.clone() }) {
            return Err(format!("case {index} (`{}`) is another call", old.name));
        }
    }
    if before.case_lines != now.case_lines || before.product_lines != now.product_lines {
        let lines = |plan: &Plan| format!("{} + {}", plan.case_lines, plan.product_lines);
        return Err(format!(
            "the record has {} lines of cases, products and copies when complete, this launch {}",
            lines(before),
            lines(now)
        ));
    }
    if before.steps != now.steps { Err("its steps are others".to_owned()) } else { Ok(()) }
}

/// The changes as a table with a heading, each row indented; at most this many.
pub fn table(changes: &[Change], most: usize) -> String {
    let row = |what: &str, before: &str, now: &str| [shortened(what), shortened(before), shortened(now)];
    let mut rows = vec![row("what", "in the record", "now")];
    rows.extend(changes.iter().take(most).map(|change| row(&change.what, &change.before, &change.now)));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    let lines = rows.iter().map(|[what, before, now]| format!("  {what:<first$}  {before:<second$}  {now}"));
    let mut text = lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n");
    if changes.len() > most {
        text += &format!("\n  ... and {} more", changes.len() - most);
    }
    text
}

struct Found(Vec<Change>);

impl Found {
    fn compare(&mut self, what: &str, before: &str, now: &str) {
        if before != now {
            self.0.push(Change { what: what.to_owned(), before: before.to_owned(), now: now.to_owned() });
        }
    }

    fn option(&mut self, what: &str, before: Option<&str>, now: Option<&str>) {
        self.compare(what, before.unwrap_or("none"), now.unwrap_or("none"));
    }
}

fn settings(found: &mut Found, before: &RunSettings, now: &RunSettings) {
    // Destructured so that a new setting cannot be forgotten here; settings in a record lack the last ones.
    let parts = |settings: &RunSettings| {
        let RunSettings {
            precision,
            minimum_samples,
            maximum_samples,
            case_budget,
            replicates,
            warm_buffers,
            start,
            timing,
            verify,
            within,
            soak,
            iterations,
            calls_like,
            warm_up_iterations: _,
            seed: _,
            calibrate: _,
            last_in_order: _,
        } = settings;
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
        [
            ("precision", precision.to_string()),
            ("minimum_samples", minimum_samples.to_string()),
            ("maximum_samples", maximum_samples.to_string()),
            ("case_budget", case_budget.to_string()),
            ("replicates", replicates.to_string()),
            ("warm_buffers", warm_buffers.to_string()),
            ("start", start.to_string()),
            ("timing", timing.to_string()),
            ("verify", verify.to_string()),
            ("within", or_none(within.map(|within| within.to_string()))),
            ("soak", soak.to_string()),
            ("iterations", or_none(iterations.map(|count| count.to_string()))),
            ("like", or_none(calls_like.map(|tool| tool.name().to_owned()))),
        ]
    };
    for ((name, then), (_, here)) in parts(before).into_iter().zip(parts(now)) {
        found.compare(name, &then, &here);
    }
}

type Fact = fn(&RankFacts) -> &str;

/// Neighbouring ranks with the same fact before, and the same now.
#[derive(Clone, Copy)]
struct ChangedRanks<'a> {
    first: u32,
    last: u32,
    before: &'a str,
    now: &'a str,
}

/// Rank by rank; neighbours with the same change share a row.
fn ranks(found: &mut Found, before: &[RankFacts], now: &[RankFacts]) {
    let facts: [(&str, Fact); 6] = [
        ("host", |facts| &facts.host),
        ("processor", |facts| &facts.processor),
        ("kernel", |facts| &facts.kernel),
        ("cores", |facts| &facts.cores),
        ("NUMA nodes", |facts| &facts.numa_nodes),
        ("device", |facts| facts.device.as_deref().unwrap_or("none")),
    ];
    for (name, of) in facts {
        let mut run: Option<ChangedRanks> = None;
        for (old, new) in before.iter().zip(now) {
            let (before, now, last) = (of(old), of(new), old.rank + old.ranks.saturating_sub(1));
            run = match run {
                Some(run) if run.before == before && run.now == now => Some(ChangedRanks { last, ..run }),
                ended => {
                    ended.into_iter().for_each(|run| push_ranks(found, name, run));
                    Some(ChangedRanks { first: old.rank, last, before, now })
                }
            };
        }
        run.into_iter().for_each(|run| push_ranks(found, name, run));
    }
}

fn push_ranks(found: &mut Found, name: &str, run: ChangedRanks) {
    let ChangedRanks { first, last, before, now } = run;
    let of = if first == last { format!("rank {first}") } else { format!("ranks {first}-{last}") };
    found.compare(&format!("{name} of {of}"), before, now);
}

fn environment(found: &mut Found, before: &Header, now: &Header) {
    let (old, new) = (&before.environment, &now.environment);
    let added = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(added).filter(|name| !name.starts_with(OF_THE_JOB)) {
        let value = |of: &std::collections::BTreeMap<String, String>| of.get(name).cloned();
        let shown = |value: Option<String>| value.unwrap_or_else(|| "not set".to_owned());
        found.compare(name, &shown(value(old)), &shown(value(new)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Peer;
    use crate::record::Record;
    use commgauge_base::sample::Timing;
    use commgauge_base::units::Seconds;

    #[test]
    fn every_record_line_is_valid_and_an_unknown_one_is_not() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        for (index, text) in include_str!("../../../tests/data/sample-record.jsonl").lines().enumerate() {
            let line: Value = serde_json::from_str(text).unwrap();
            let errors: Vec<String> = validator.iter_errors(&line).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "line {}: {errors:?}", index + 1);
        }
        assert!(!validator.is_valid(
            &json!({"line": "end", "status": "complete", "exit_code": 0, "elapsed_seconds": 1, "sha256": "?"})
        ));
        assert!(!validator.is_valid(&json!({"line": "poem"})));
        assert!(!validator.is_valid(&json!({"line": "end", "status": "complete"})), "the exit code is missing");
    }

    #[test]
    fn settings_have_the_keys_of_records_without_what_only_a_run_needs() {
        let settings = RunSettings {
            within: Some(Seconds(2.0)),
            soak: true,
            start: ClockMethod::Barrier,
            timing: Timing::Whole,
            iterations: Some(3),
            calls_like: Some(Peer::NcclTests),
            warm_up_iterations: Some(1),
            last_in_order: true,
            ..RunSettings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        let expected = "{\"precision\":0.02,\"minimum_samples\":30,\"maximum_samples\":100000,\"case_budget_seconds\":1.0,\"replicates\":3,\
                        \"warm_buffers\":false,\"start\":\"barrier\",\"timing\":\"whole\",\"verify\":true,\"within_seconds\":2.0,\
                        \"soak\":true,\"iterations\":3,\"calls_like\":\"nccl-tests\"}";
        assert_eq!(text, expected);
        let read: RunSettings = serde_json::from_str(&text).unwrap();
        assert_eq!(read, RunSettings { seed: 0, warm_up_iterations: None, last_in_order: false, ..settings });
        assert_eq!(sample().header.settings.seed, sample().header.seed, "a whole record has it in the header");
    }

    #[test]
    fn the_schema_names_its_version() {
        let schema = schema();
        assert_eq!(schema["$id"], "urn:commgauge-record:1");
        assert_eq!(schema.pointer("/$defs/Header/properties/version/const"), Some(&json!(1)));
    }

    fn sample() -> Record {
        Record::parse(include_bytes!("../../../tests/data/sample-record.jsonl"), "sample").unwrap()
    }

    #[test]
    fn every_fact_that_is_another_is_named_with_both_values() {
        let before = sample().header;
        type Edit<'a> = &'a dyn Fn(&mut Header);
        let cases: [(&str, Edit); 12] = [
            ("binary (SHA-256)", &|now| now.program_sha256 = "f00".into()),
            ("version of the program", &|now| now.program_version = "9".into()),
            ("suite and its files (SHA-256)", &|now| now.suite.sha256 = "f00".into()),
            ("library", &|now| now.backend.library = "other MPI".into()),
            ("machine file", &|now| now.backend.machine = Some("new".into())),
            ("number of ranks", &|now| now.world_size += 1),
            ("case_budget", &|now| now.settings.case_budget = Seconds(77.0)),
            ("verify", &|now| now.settings.verify = !now.settings.verify),
            ("host of rank 1", &|now| now.ranks[1].host = "elsewhere".into()),
            ("kernel of ranks 0-1", &|now| now.ranks[..2].iter_mut().for_each(|rank| rank.kernel = "Linux 9".into())),
            ("device of rank 0", &|now| now.ranks[0].device = Some("GPU".into())),
            ("NCCL_ALGO", &|now| drop(now.environment.insert("NCCL_ALGO".into(), "Ring".into()))),
        ];
        for (what, change) in cases {
            let mut now = before.clone();
            change(&mut now);
            let found = changes(&before, &now);
            assert_eq!(found.iter().map(|change| change.what.as_str()).collect::<Vec<_>>(), [what]);
            assert_ne!(found[0].before, found[0].now);
        }
    }

    #[test]
    fn what_differs_from_run_to_run_is_no_change() {
        let before = sample().header;
        let mut now = before.clone();
        now.run_id = "another".into();
        now.started_at = "2027-01-01T00:00:00+00:00".into();
        now.command_line.push("--resume".into());
        now.ranks.iter_mut().for_each(|rank| rank.pid += 1);
        now.environment.insert("SLURM_JOB_ID".into(), "4711".into());
        assert_eq!(changes(&before, &now), []);
    }

    #[test]
    fn a_plan_of_other_calls_is_refused_and_another_bound_is_not() {
        let plan = sample().plan;
        let changed = |change: &dyn Fn(&mut Plan)| {
            let mut now = plan.clone();
            change(&mut now);
            ensure_same_plan(&plan, &now)
        };
        assert_eq!(changed(&|_| {}), Ok(()));
        assert_eq!(changed(&|now| now.cases[0].bound_bytes_per_second = Some(Rate(1e9))), Ok(()));
        type Edit<'a> = &'a dyn Fn(&mut Plan);
        let cases: [(&str, Edit); 5] = [
            ("cases, this launch", &|now| drop(now.cases.pop())),
            ("of this launch `x`", &|now| now.cases[1].name = "x".into()),
            ("placed differently", &|now| now.cases[0].locality.nodes_spanned += 1),
            ("is another call", &|now| now.cases[0].groups += 1),
            ("lines of cases, products and copies", &|now| now.case_lines += 1),
        ];
        for (reason, change) in cases {
            let refused = changed(change).expect_err(reason);
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn the_table_names_each_change_in_a_row_and_counts_what_it_leaves_out() {
        let change = |what: &str| Change { what: what.into(), before: "node-a".into(), now: "node-b".into() };
        let many: Vec<Change> = ["host of rank 2", "kernel"].map(change).into();
        let text = table(&many, 1);
        let expected =
            "  what            in the record  now\n  host of rank 2  node-a         node-b\n  ... and 1 more";
        assert_eq!(text, expected);
    }
}
