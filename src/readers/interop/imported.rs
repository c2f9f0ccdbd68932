//! Times measured by another tool, and the record lines made from them.
//!
//! Independent of foreign formats.

use commgauge_base::collective::{Collective, Division, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::writing::ranges;
use commgauge_cost::cost::Place;
use commgauge_model::config::RunSettings;
use commgauge_model::layout::Locality;
use commgauge_model::record::Parts;
use commgauge_model::record::header::{self, without_secrets};
use commgauge_model::record::library_use::{LibraryUse, LibraryUseLine, UseOfRanks};
use commgauge_model::record::line::{
    BackendLine, CaseFacts, CaseLine, End, EndStatus, ForeignTool, Header, Line, Outcome, RankFacts, START_NOT_STATED,
    SuiteFacts,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;

/// One time reported by another tool.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub collective: Collective,
    pub element_type: ElementType,
    pub ranks: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Time of one call.
    pub latency: Seconds,
    /// Placement of the group, if the tool reports it.
    pub locality: Locality,
    /// Optional facts.
    pub known: Known,
    /// Further columns, by name.
    pub labels: BTreeMap<String, String>,
}

impl Row {
    /// Sets the place of its ranks, if the tool did not report it. Concurrent groups are those of IMB's -multi.
    pub fn place(&mut self, ranks_per_node: u32) {
        if !self.locality.is_known() {
            let groups = self.labels.get("groups").and_then(|groups| groups.parse().ok()).unwrap_or(1);
            self.locality = Locality::filled(self.ranks, ranks_per_node, groups);
        }
    }
}

/// Facts that not every tool reports; `None` if missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Whether the result replaced the input.
    pub placement: Option<Placement>,
    pub cadence: Option<Cadence>,
    /// The reduce operation.
    pub reduce_op: Option<ReduceOp>,
    /// Special rank of the group.
    pub root: Option<u32>,
    /// Result of the tool's data check.
    pub data_check: Option<DataCheck>,
    /// No data moved and no real time passed.
    pub synthetic: bool,
}

/// Result of a tool's data check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataCheck {
    /// All elements were right.
    Right,
    Wrong {
        /// Number of wrong elements, if the tool counts them.
        elements: Option<u64>,
    },
}

impl DataCheck {
    /// The result for a count of wrong elements.
    pub fn of_count(wrong: u64) -> DataCheck {
        if wrong == 0 { DataCheck::Right } else { DataCheck::Wrong { elements: Some(wrong) } }
    }
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Line number in its file, from 1.
    pub number: u64,
    pub problem: String,
}

/// Content of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    /// In file order.
    pub rows: Vec<Row>,
    /// Lines that could not be read.
    pub bad_lines: Vec<BadLine>,
    pub facts: RunsFacts,
}

/// Facts about the runs of a file, or of several files together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunsFacts {
    /// Notes for the reader: size conversions, assumptions.
    pub notes: Vec<String>,
    /// What makes the times unreliable: two hosts with one name, means that hide a slow group.
    pub warnings: Vec<String>,
    /// Faults that prevent the runs from passing: a truncated run, or wrong data.
    pub faults: Vec<RunFault>,
    /// The ranks of the largest run, if the tool names them.
    pub ranks: Vec<RankFacts>,
    /// Start time of the last run, if the tool prints it in every file.
    pub started: Option<Timestamp>,
    /// What NCCL carried data over, by its own log in between.
    pub library_use: LibraryUse,
}

/// How a run of another tool failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunFault {
    /// The kind of failure.
    pub kind: RunFaultKind,
    pub text: String,
}

/// The kinds, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunFaultKind {
    /// The tool found wrong data, in whichever rows.
    WrongData,
    /// The tool reported its own failure.
    Failed,
    /// The log ends before the run does.
    CutOff,
}

impl RunFaultKind {
    /// The end line of such a run's record.
    fn end(self) -> (EndStatus, i32) {
        match self {
            RunFaultKind::WrongData => (EndStatus::Complete, 4),
            RunFaultKind::Failed => (EndStatus::Failed, 6),
            RunFaultKind::CutOff => (EndStatus::Interrupted, 7),
        }
    }
}

/// Source of the rows of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The measuring tool.
    pub tool: ForeignTool,
    pub files: Vec<String>,
    /// Modification time of the newest file, if any.
    pub written: Option<Timestamp>,
    pub facts: RunsFacts,
}

impl Origin {
    /// The source for files about which only the tool is known.
    pub fn of(tool: ForeignTool, files: &[String]) -> Origin {
        Origin { tool, files: files.to_vec(), written: None, facts: RunsFacts::default() }
    }

    /// All reasons against the times.
    pub fn objections(&self) -> impl Iterator<Item = &str> {
        let RunsFacts { faults, warnings, .. } = &self.facts;
        faults.iter().map(|fault| fault.text.as_str()).chain(warnings.iter().map(String::as_str))
    }
}

/// The record lines of these rows. Rows of the same call, size and labels are replicates.
///
/// A record has fields that other tools do not report: streaming cadence and out-of-place buffers are then assumed, and a note says so; the
/// sampling method and the processors stay empty. Times of calls with wrong data are dropped.
pub fn record_lines(run_id: &str, origin: &Origin, rows: &[Row]) -> Vec<Line> {
    let mut cases: Vec<(&Row, Vec<&Row>)> = Vec::new();
    let mut index_of: BTreeMap<String, usize> = BTreeMap::new();
    for row in rows {
        let index = *index_of.entry(name(row)).or_insert_with(|| {
            cases.push((row, Vec::new()));
            cases.len() - 1
        });
        cases[index].1.push(row);
    }
    let replicates = cases.iter().map(|(_, rows)| rows.len()).max().unwrap_or(0) as u32;
    let mut record = Parts::new(header(run_id, origin, rows, replicates));
    for (case, (first, rows)) in (0u32..).zip(&cases) {
        let facts = case_facts(first);
        record.cases.extend((0u32..).zip(rows).map(|(replicate, row)| case_line(case, &facts.name, replicate, row)));
        record.plan.cases.push(facts);
    }
    record.plan.case_lines = rows.len() as u64;
    if origin.facts.library_use.names_a_network() {
        let ranks = ranges(&(0..record.header.world_size).collect::<Vec<u32>>());
        let uses = vec![UseOfRanks { ranks, used: origin.facts.library_use.clone() }];
        record.library_use = Some(LibraryUseLine { uses, absent: None });
    }
    if let Some(worst) = origin.facts.faults.iter().min_by_key(|fault| fault.kind) {
        let (status, exit_code) = worst.kind.end();
        record.end = End { status, exit_code, error: Some(worst.text.clone()), ..record.end };
    }
    record.lines()
}

/// The key of a case is built from all parts, labels included, so that only rows that agree in everything except the time share a case.
pub fn name(row: &Row) -> String {
    let mut name = format!(
        "imported/{}/{}/{}-ranks/{}/{}",
        row.collective,
        row.element_type,
        row.ranks,
        Place::of(&row.locality),
        row.bytes_total.0
    );
    // Groups with a different placement are different cases, however many ranks a host has.
    if row.locality.is_known() {
        name += &format!("/{}", Place::of(&row.locality));
    }
    let known = &row.known;
    let parts = [
        known.placement.map(|placement| placement.name().to_owned()),
        known.cadence.map(|cadence| cadence.name().to_owned()),
        known.reduce_op.map(|op| op.name().to_owned()),
        known.root.map(|root| format!("root-{root}")),
    ];
    for part in parts.into_iter().flatten() {
        name += &format!("/{part}");
    }
    for (column, text) in &row.labels {
        name += &format!("/{column}={text}");
    }
    name
}

fn header(run_id: &str, origin: &Origin, rows: &[Row], replicates: u32) -> Header {
    let label = |name: &str| rows.first().and_then(|row| row.labels.get(name));
    let library = label("nccl_version").map_or_else(|| "unknown".to_owned(), |version| format!("NCCL {version}"));
    let synthetic = rows.iter().any(|row| row.known.synthetic);
    let mut ranks = origin.facts.ranks.clone();
    header::number_hosts(&mut ranks);
    let started = origin.facts.started.or(origin.written).unwrap_or_else(Timestamp::now).to_zoned(TimeZone::system());
    let notes = [origin.tool.label(), ASSUMED.to_owned()]
        .into_iter()
        .chain(origin.facts.started.is_none().then(|| START_NOT_STATED.to_owned()))
        .chain(origin.facts.notes.iter().cloned());
    Header {
        started_at: started.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        command_line: without_secrets(&std::env::args().collect::<Vec<_>>()),
        suite: SuiteFacts { name: "imported".to_owned(), path: Some(origin.files.join(", ")), ..SuiteFacts::default() },
        backend: BackendLine {
            name: "imported".to_owned(),
            measured_by: Some(origin.tool),
            synthetic,
            library,
            ..BackendLine::default()
        },
        world_size: rows.iter().map(|row| row.ranks).max().unwrap_or(0),
        settings: RunSettings {
            precision: 0.0,
            minimum_samples: 1,
            maximum_samples: 1,
            case_budget: Seconds(0.0),
            replicates,
            verify: false,
            ..RunSettings::default()
        },
        ranks,
        warnings: origin.objections().map(str::to_owned).collect(),
        notes: notes.collect(),
        ..Header::new("commgauge import", run_id)
    }
}

const ASSUMED: &str = "times count as streaming and out of place unless the tool reports otherwise";

fn case_facts(row: &Row) -> CaseFacts {
    let usual = CaseFacts::new(row.collective, row.element_type, row.ranks, row.bytes_total);
    CaseFacts {
        name: name(row),
        locality: row.locality.clone(),
        reduce_op: row.known.reduce_op,
        root: row.known.root,
        bytes_per_rank: Bytes(largest_block(row).saturating_mul(row.element_type.size())),
        placement: row.known.placement.unwrap_or(usual.placement),
        cadence: row.known.cadence.unwrap_or(usual.cadence),
        // The times of other tools are those of a message.
        transfers_per_call: 1,
        labels: row.labels.clone(),
        ..usual
    }
}

/// Elements of the largest block, computed without a list of all: a file may claim any number of ranks.
fn largest_block(row: &Row) -> u64 {
    let (elements, ranks) = (row.bytes_total.0 / row.element_type.size(), u64::from(row.ranks).max(1));
    match row.collective.division() {
        Division::Nothing => 0,
        Division::Whole => elements,
        Division::EqualBlocks => elements / ranks,
        Division::OwnBlocks => elements.div_ceil(ranks),
    }
}

fn case_line(case: u32, name: &str, replicate: u32, row: &Row) -> CaseLine {
    let calls_per_sample = CALLS_PER_SAMPLE;
    match row.known.data_check {
        Some(DataCheck::Wrong { elements }) => {
            let wrong = Outcome::FoundWrong { count: elements };
            CaseLine { calls_per_sample, ..CaseLine::new(case, name, replicate, wrong) }
        }
        checked => {
            let nanoseconds = Seconds(row.latency.0 * f64::from(CALLS_PER_SAMPLE)).as_nanoseconds();
            let outcome = Outcome::Measured { verified: checked.is_some() };
            CaseLine { calls_per_sample, outcome, ..CaseLine::timed(case, name, replicate, vec![nanoseconds]) }
        }
    }
}

/// Other tools report a mean over calls with fractions of a nanosecond; as the time of this many calls it loses no digits.
const CALLS_PER_SAMPLE: u32 = 1000;
