//! Training runs as a CSV file: one row per run with its layout, the keys of `[training]`, and the time of a step. Users' files and the
//! published sets are read alike.

use crate::planner::{AttentionKernel, Kernels};
use commgauge_base::embedded;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_model::config::machine::LayerKind;
use commgauge_model::config::step::{Work, keys_of};
use commgauge_model::config::{Machine, Model, Place, Shipped, Table, Training, published};
use commgauge_model::layout::{DEFAULT_ORDER, Degrees, Layout};
use commgauge_model::workload::step::{Stages, TrainingStep};
use serde::Deserialize;
use std::fmt::{Display, Formatter};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// The key of `[training]` that is not a column: `global_batch` implies it.
const NO_COLUMN: &str = "micro_batches";

/// Columns with a time, and the seconds in their unit. Every row has one of them.
const TIMES: [(&str, f64); 2] = [("step_seconds", 1.0), ("step_milliseconds", 1e-3)];

/// The other columns.
const OTHERS: &str = include_str!("columns.txt");

/// A run with its measured step time.
#[derive(Clone, Debug)]
pub struct MeasuredRun {
    /// The file and the line of its row.
    pub place: String,
    /// Publisher; empty for a user's own.
    pub source: String,
    /// Publication of that publisher; may be empty.
    pub release: String,
    /// The machine that its row names.
    pub machine: Option<Arc<Machine>>,
    /// GPUs per node, if not those of the machine.
    pub ranks_per_node: Option<u32>,
    /// Bits of the linear layers of blocks.
    pub bits: u8,
    /// Distinguishes it from others of its model, besides the layout; may be empty.
    pub variant: String,
    pub model: Model,
    /// Samples of a step.
    pub global_batch: u64,
    /// Which parts of a layer were one kernel.
    pub kernels: Kernels,
    /// Seconds of a step; 0 if only the memory of the run is known.
    pub measured_seconds: f64,
    /// The column of the step time.
    pub time_column: &'static str,
    training: Training,
    layout: Layout,
}

impl MeasuredRun {
    /// # Errors
    /// If the model cannot be divided by the layout.
    pub fn step(&self) -> Result<TrainingStep<'_>> {
        TrainingStep::new(&self.model, &self.training, self.layout.clone(), &Place::flag(&self.place))
    }

    /// The kind of its model's layers.
    pub fn layers(&self) -> LayerKind {
        layers_of(&self.model)
    }

    /// An error that names the row and a column.
    pub fn wrong(&self, column: &str, problem: &str) -> Error {
        Error::usage(format!("{}: {column}: {problem}", self.place))
    }
}

/// Key of a level.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LevelKey {
    pub layers: LayerKind,
    pub gpu: String,
    pub bits: u8,
}

impl Display for LevelKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let gpu = if self.gpu.is_empty() { String::new() } else { format!("{}, ", self.gpu) };
        match self.layers {
            LayerKind::Dense => write!(f, "{gpu}{} bits", self.bits),
            LayerKind::Experts => write!(f, "{gpu}experts"),
        }
    }
}

impl LevelKey {
    /// Whether both have the same level.
    pub fn shares_level_with(&self, other: &LevelKey) -> bool {
        self.is_alike(other) && (self.bits == other.bits || self.layers == LayerKind::Experts)
    }

    pub fn is_alike(&self, other: &LevelKey) -> bool {
        self.layers == other.layers && self.gpu == other.gpu
    }
}

/// The kind of layer whose level of computing applies to a model.
pub fn layers_of(model: &Model) -> LayerKind {
    if model.mixture.is_some() { LayerKind::Experts } else { LayerKind::Dense }
}

/// The runs of a file, in its order. Models and machines in rows are shipped ones, paths, or files relative to `file`.
///
/// # Errors
/// Names the line and the column: an unknown column, a value that is not accepted, degrees whose product is not the GPUs, two columns with
/// times in one row.
pub fn read_runs(text: &str, file: &str) -> Result<Vec<MeasuredRun>> {
    let rows = Rows::of(text, file)?;
    for column in &rows.heading {
        let known = || columns_of_training().chain(embedded::rows(OTHERS)).chain(TIMES.map(|(name, _)| name));
        if !known().any(|name| name == column) {
            let known: Vec<&str> = known().collect();
            return Err(Error::usage(format!(
                "{file}: line 1: found column `{column}`; accepted: {}; `commgauge plan validate --template` prints a file to start from",
                known.join(", ")
            )));
        }
    }
    let mut machines = Machines::below(file);
    let runs = rows.rows.iter().map(|row| {
        let (column, seconds) = row.time()?;
        run(row, &mut machines, column, seconds)
    });
    let runs: Vec<MeasuredRun> = runs.collect::<Result<_>>()?;
    if runs.is_empty() { Err(Error::usage(format!("{file}: no runs"))) } else { Ok(runs) }
}

/// A file to start from.
pub fn template() -> String {
    include_str!("template.csv").to_owned()
}

fn columns_of_training() -> impl Iterator<Item = &'static str> {
    keys_of(Work::Training).filter(|key| *key != NO_COLUMN)
}

/// The machines in rows, each read once.
struct Machines {
    folder: PathBuf,
    known: Vec<(String, Arc<Machine>)>,
}

impl Machines {
    /// Those in the folder of a file of runs.
    fn below(file: &str) -> Machines {
        Machines { folder: Path::new(file).parent().unwrap_or(Path::new("")).to_owned(), known: Vec::new() }
    }

    fn named(&mut self, name: &str) -> Result<Arc<Machine>> {
        if let Some((_, known)) = self.known.iter().find(|(known, _)| known == name) {
            return Ok(known.clone());
        }
        let machine = Arc::new(Machine::load(&self.resolve(Shipped::Machine, name))?);
        self.known.push((name.to_owned(), machine.clone()));
        Ok(machine)
    }

    /// The path of a name in a row: unchanged if found there, else relative to the file of the runs.
    fn resolve(&self, kind: Shipped, name: &str) -> PathBuf {
        let below = self.folder.join(name);
        match kind.find(Path::new(name)) {
            None if kind.find(&below).is_some() => below,
            _ => PathBuf::from(name),
        }
    }
}

fn run(row: &Row, machines: &mut Machines, time_column: &'static str, measured_seconds: f64) -> Result<MeasuredRun> {
    if row.text("recompute").is_none() {
        return Err(row
            .wrong("recompute", "is missing; accepted: none, selective, full: a step time is meaningless without it"));
    }
    let given = columns_of_training().filter_map(|key| Some((key, key, row.text(key)?.to_owned())));
    let mut training = Training::read(Table::of_flags(given)).map_err(|error| row.says(&error))?;
    let Some(global_batch) = training.global_batch else {
        return Err(row.wrong("global_batch", "is missing"));
    };
    let degree = |key: &str| -> Result<u32> { row.count(key).map(|degree| degree.unwrap_or(1)) };
    let (tp, cp, ep, dp, pp) = (degree("tp")?, degree("cp")?, degree("ep")?, degree("dp")?, degree("pp")?);
    let degrees = Degrees { tp, cp, ep, dp, pp, etp: if ep == 1 { tp } else { 1 } };
    if let Some(gpus) = row.count("gpus")?.filter(|gpus| u64::from(*gpus) != degrees.world()) {
        return Err(row.wrong("gpus", &format!("found {gpus}; {} make {}", degrees.name(), degrees.world())));
    }
    let usual = Kernels::usual_of(training.framework);
    let kernels = Kernels {
        attention: match (row.truth("fused_attention")?, row.truth("ampere_attention")?) {
            (Some(false), Some(true)) => return Err(row.wrong("ampere_attention", "needs fused attention")),
            (_, Some(true)) => AttentionKernel::FusedForAmpere,
            (Some(false), _) => AttentionKernel::Separate,
            _ => usual.attention,
        },
        fused_elementwise: row.truth("fused_kernels")?.unwrap_or(usual.fused_elementwise),
        in_graphs: row.truth("cuda_graphs")?.unwrap_or(usual.in_graphs),
    };
    let bits = match (row.truth("fp4_linears")?, row.truth("fp8_linears")?) {
        (Some(true), Some(true)) => {
            return Err(row.wrong("fp4_linears", "fp8_linears is true too; accepted: one of them"));
        }
        (Some(true), _) => 4,
        (_, Some(true)) => 8,
        _ => 8 * training.activation_element_type.size() as u8,
    };
    let machine = row.text("machine").map(|name| machines.named(name)).transpose().map_err(|error| row.says(&error))?;
    let name = row.text("model").ok_or_else(|| row.wrong("model", "is missing"))?;
    let model = machines.resolve(Shipped::Model, name);
    let model = Model::load(&model.to_string_lossy()).map_err(|error| row.says(&error))?;
    if let Some(uneven) = Stages::uneven(model.layers, pp, &training.pipeline) {
        training.pipeline.stage_layers = Some(uneven);
    }
    let run = MeasuredRun {
        place: row.place.clone(),
        source: row.text("source").unwrap_or_default().to_owned(),
        release: row.text("release").unwrap_or_default().to_owned(),
        machine,
        ranks_per_node: row.count("ranks_per_node")?,
        bits,
        variant: row.text("variant").unwrap_or_default().to_owned(),
        model,
        global_batch,
        kernels,
        measured_seconds,
        time_column,
        training,
        layout: Layout::new(degrees, &DEFAULT_ORDER).map_err(|error| row.says(&error))?,
    };
    run.step().map_err(|error| row.says(&error))?;
    Ok(run)
}

/// The rows of a file with a heading.
pub(super) struct Rows {
    heading: Vec<String>,
    pub rows: Vec<Row>,
}

pub(super) struct Row {
    place: String,
    fields: Vec<(String, String)>,
}

impl Rows {
    pub(super) fn of(text: &str, file: &str) -> Result<Rows> {
        let wrong = |cause: ::csv::Error| Error::usage(format!("{file}: {cause}"));
        let mut reader = ::csv::ReaderBuilder::new().trim(::csv::Trim::All).from_reader(text.as_bytes());
        let heading: Vec<String> = reader.headers().map_err(wrong)?.iter().map(str::to_owned).collect();
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(wrong)?;
            let line = record.position().map_or(0, ::csv::Position::line);
            let fields = heading.iter().zip(&record).map(|(name, value)| (name.clone(), value.to_owned()));
            rows.push(Row { place: format!("{file}: line {line}"), fields: fields.collect() });
        }
        Ok(Rows { heading, rows })
    }
}

impl Row {
    fn wrong(&self, column: &str, problem: &str) -> Error {
        Error::usage(format!("{}: {column}: {problem}", self.place))
    }

    fn says(&self, error: &Error) -> Error {
        Error::usage(format!("{}: {error}", self.place))
    }

    /// The text of a column, unless it is empty or missing.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        let (_, text) = self.fields.iter().find(|(name, _)| name == key)?;
        Some(text.as_str()).filter(|text| !text.is_empty())
    }

    /// The value of a column, if it has one.
    fn value<T: FromStr>(&self, key: &str, is_right: impl Fn(&T) -> bool, accepted: &str) -> Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let wrong = || self.wrong(key, &format!("found `{text}`; accepted: {accepted}"));
        text.parse().ok().filter(is_right).map(Some).ok_or_else(wrong)
    }

    /// A number above 0, if the column has one.
    pub(super) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.value(key, |number: &f64| *number > 0.0 && number.is_finite(), "a number above 0, without a unit")
    }

    fn count(&self, key: &str) -> Result<Option<u32>> {
        self.value(key, |count: &u32| *count > 0, "a whole number from 1 on")
    }

    fn truth(&self, key: &str) -> Result<Option<bool>> {
        self.value(key, |_| true, "true, false")
    }

    /// The time of a step, and its column.
    fn time(&self) -> Result<(&'static str, f64)> {
        let mut times = Vec::new();
        for (column, unit) in TIMES {
            times.extend(self.number(column)?.map(|number| (column, number * unit)));
        }
        match times[..] {
            [time] => Ok(time),
            [] => Err(self.wrong(TIMES[0].0, &format!("is missing, and so is {}", TIMES[1].0))),
            _ => Err(self.wrong(TIMES[1].0, &format!("conflicts with {}; give one of them", TIMES[0].0))),
        }
    }
}

// The published runs, from embedded files. suites/published/README.md describes the files and their sources.

/// Names, files and sources of the sets.
const SETS: &str = "sets.csv";

/// Runs whose memory was published.
const MEMORY: &str = "memory.csv";

/// What [`MEMORY`] says of a run that ran out of memory.
const OUT_OF_MEMORY: &str = "OOM";

/// One published set of runs.
#[derive(Deserialize)]
pub(super) struct PublishedSet {
    pub name: String,
    pub source: String,
    file: String,
}

impl PublishedSet {
    /// All sets, in the order of their file.
    pub(super) fn all() -> Result<Vec<PublishedSet>> {
        let wrong = |cause: csv::Error| Error::usage(format!("suites/published/{SETS}: {cause}"));
        csv::Reader::from_reader(published(SETS)?.as_bytes()).into_deserialize().map(|set| set.map_err(wrong)).collect()
    }

    /// The runs, in the order of the file.
    pub(super) fn runs(&self) -> Result<Vec<MeasuredRun>> {
        read_runs(published(&self.file)?, &format!("embedded:suites/published/{}", self.file))
    }
}

/// A run whose memory was published.
pub(super) struct MemoryRun {
    pub run: MeasuredRun,
    pub gpu_memory: Bytes,
    /// What a GPU held; `None` if the run ran out of memory.
    pub held: Option<Bytes>,
}

/// Every run with published memory, by publisher.
pub(super) fn memory_runs() -> Result<Vec<MemoryRun>> {
    let file = format!("embedded:suites/published/{MEMORY}");
    let mut machines = Machines::below(&file);
    let bytes = |row: &Row, column: &str| {
        let text = row.text(column).ok_or_else(|| row.wrong(column, "is missing"))?;
        Bytes::parse_memory(text).map_err(|problem| row.wrong(column, &problem))
    };
    let read = |row: &Row| {
        let died = row.text("memory") == Some(OUT_OF_MEMORY);
        Ok(MemoryRun {
            run: run(row, &mut machines, "memory", 0.0)?,
            gpu_memory: bytes(row, "gpu_memory")?,
            held: if died { None } else { Some(bytes(row, "memory")?) },
        })
    };
    Rows::of(published(MEMORY)?, &file)?.rows.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADING: &str =
        "model,gpus,tp,dp,sequence,micro_batch,global_batch,recompute,step_seconds,step_milliseconds\n";

    #[test]
    fn the_template_reads_as_two_runs_once_it_names_a_model() {
        let text = template().replace("path/to/config.json", "llama-2-7b");
        let runs = read_runs(&text, "runs.csv").unwrap();
        assert_eq!((runs.len(), runs[1].variant.as_str(), runs[1].global_batch), (2, "no overlap", 256));
        assert_eq!(runs[0].step().unwrap().layout.degrees.world(), 64);
    }

    #[test]
    fn an_invalid_file_is_reported_with_the_line_and_the_column() {
        for (row, expected) in [
            (
                "llama-3-8b,8,2,4,2048,1,8,none,,",
                "runs.csv: line 2: step_seconds: is missing, and so is step_milliseconds",
            ),
            ("llama-3-8b,8,2,4,2048,1,8,none,1,1000", "line 2: step_milliseconds: conflicts with step_seconds"),
            (
                "llama-3-8b,8,2,4,2048,1,8,none,1.5s,",
                "line 2: step_seconds: found `1.5s`; accepted: a number above 0, without",
            ),
            ("llama-3-8b,8,2,8,2048,1,8,none,1,", "line 2: gpus: found 8; tp 2"),
            ("llama-3-8b,8,0,4,2048,1,8,none,1,", "line 2: tp: found `0`; accepted: a whole number from 1 on"),
            ("llama-3-8b,8,2,4,2048,1,7,none,1,", "line 2: "),
            ("llama-4-8b,8,2,4,2048,1,8,none,1,", "line 2: "),
            (",8,2,4,2048,1,8,none,1,", "line 2: model: is missing"),
            ("llama-3-8b,8,2,4,2048,1,8,,1,", "line 2: recompute: is missing; accepted: none, selective, full"),
            ("llama-3-8b,8,2,4,two,1,8,none,1,", "line 2: sequence: "),
        ] {
            let error = read_runs(&format!("{HEADING}{row}\n"), "runs.csv").unwrap_err();
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{row}: {error}");
        }
        let error = read_runs("model,recomputation\n", "runs.csv").unwrap_err();
        assert!(error.to_string().contains("found column `recomputation`; accepted: sequence, "), "{error}");
        assert!(read_runs(HEADING, "runs.csv").unwrap_err().to_string().contains("no runs"));
        assert!(read_runs("model\na,b\n", "runs.csv").is_err());
    }

    #[test]
    fn every_set_has_the_runs_of_its_source() {
        let expected = [
            ("megatron-table-1", 10, 10),
            ("megatron-table-2", 12, 2),
            ("megatron-sp-table-5", 8, 4),
            ("vtrain", 109, 4),
            ("bloom", 46, 9),
            ("internevo", 54, 1),
            ("llm-foundry", 148, 9),
            ("megatron-bridge", 136, 9),
            ("dgx-cloud", 64, 6),
        ];
        let sets = PublishedSet::all().unwrap();
        assert_eq!(sets.len(), expected.len());
        for (set, (name, rows, models)) in sets.iter().zip(expected) {
            let runs = set.runs().unwrap();
            assert_eq!(set.name, name);
            let mut names: Vec<_> = runs.iter().map(|run| run.model.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!((runs.len(), names.len()), (rows, models), "{name}");
            for run in &runs {
                let step = run.step().unwrap();
                let samples = step.micro_batches * step.training.micro_batch * u64::from(step.layout.degrees.dp);
                assert_eq!(samples, run.global_batch, "{}", run.place);
            }
            assert!(runs.iter().all(|run| run.machine.is_some() && !run.source.is_empty()), "{name}");
        }
    }
}
