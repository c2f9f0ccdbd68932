//! Every parser of user files and of other tools' files: its input, the properties of its result, and its samples.
//!
//! Samples are the shipped and recorded files and, for a parser NAME, those of `tests/corpus/NAME/`, among them inputs
//! that broke it earlier.

use commgauge::cli::layout::parse_ranks;
use commgauge::config::machine::{Fault, lint};
use commgauge::config::{Machine, Model, Recipe, Suite};
use commgauge::cost::Fit;
use commgauge::interop::{Imported, Origin, parse_csv, parse_imb, parse_nccl_tests, parse_osu, record_lines};
use commgauge::launch::parse_hosts;
use commgauge::record::library_use::{LibraryUse, LibraryUseLine};
use commgauge::record::line::ForeignTool;
use commgauge::record::{Line, Record};
use commgauge::report::View;
use commgauge::trace::{TracedPlaces, counted_calls, late_ranks, read_traces};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A parser under test.
pub struct Parser {
    /// As `scripts/fuzz` and the folder of the corpus call it.
    pub name: &'static str,
    /// Reads an input; an error is fine, a panic is not.
    pub read: fn(&[u8]),
    /// Further samples: folder, and the end of the names of files below it.
    samples: &'static [(&'static str, &'static str)],
}

/// All of them.
pub const PARSERS: [Parser; 16] = [
    Parser { name: "trace", read: trace, samples: &[("tests/data/traces", "")] },
    Parser { name: "suite", read: suite, samples: &[("suites", ".toml")] },
    Parser {
        name: "model",
        read: model,
        samples: &[("suites/models", "config.json"), ("tests/data/transformers", "config.json")],
    },
    Parser { name: "machine", read: machine, samples: &[("suites/machines", ".toml")] },
    Parser { name: "line", read: line, samples: &[] },
    Parser { name: "record", read: record, samples: &[] },
    Parser { name: "fit", read: fit, samples: &[] },
    Parser { name: "fault", read: fault, samples: &[] },
    Parser { name: "hosts", read: hosts, samples: &[] },
    Parser { name: "ranks", read: ranks, samples: &[] },
    Parser {
        name: "nccl-tests",
        read: nccl_tests,
        samples: &[("tests/data/foreign", ".txt"), ("tests/data/foreign", ".json")],
    },
    Parser { name: "osu", read: osu, samples: &[("tests/data/foreign", ".txt")] },
    Parser { name: "imb", read: imb, samples: &[("tests/data/foreign", ".txt")] },
    Parser { name: "recipe", read: recipe, samples: &[("tests/data/recipes", "")] },
    Parser { name: "nccl-log", read: nccl_log, samples: &[("tests/data", "nccl-logs.txt")] },
    Parser { name: "csv", read: csv, samples: &[("tests/data/published", ".csv")] },
];

impl Parser {
    /// Whole and right files, and those that once did harm.
    pub fn samples(&self) -> Vec<Vec<u8>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = Vec::new();
        collect(&root.join("tests/corpus").join(self.name), "", &mut files);
        for (folder, ending) in self.samples {
            // The suites have folders of other things below them.
            let from = files.len();
            collect(&root.join(folder), ending, &mut files);
            if self.name == "suite" {
                files.retain(|file| {
                    file.parent().is_some_and(|parent| parent.ends_with("suites") || parent.ends_with("suite"))
                });
            }
            files[from..].sort();
        }
        if self.name == "line" {
            let record =
                std::fs::read_to_string(root.join("tests/data/sample-record.jsonl")).expect("the sample record");
            return record
                .lines()
                .map(|line| line.as_bytes().to_vec())
                .chain(files.iter().map(|file| bytes(file)))
                .collect();
        }
        files.iter().map(|file| bytes(file)).collect()
    }
}

fn bytes(file: &Path) -> Vec<u8> {
    std::fs::read(file).unwrap_or_else(|cause| panic!("{}: {cause}", file.display()))
}

fn collect(folder: &Path, ending: &str, files: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            collect(&path, ending, files);
        } else if path.to_string_lossy().ends_with(ending) {
            files.push(path);
        }
    }
}

fn text(input: &[u8]) -> Option<&str> {
    std::str::from_utf8(input).ok()
}

/// Errors are made to text too: making one may break as well.
fn check_error<T>(answer: commgauge::error::Result<T>) -> Option<T> {
    answer.map_err(|error| assert!(!error.to_string().is_empty() && error.exit_code() > 0)).ok()
}

fn trace(bytes: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("rank0");
    std::fs::write(&path, bytes).expect("written");
    let Ok(trace) = read_traces(&[path]) else { return };
    let places = TracedPlaces::new(&trace, None);
    let counted = counted_calls(&trace, &places, 1);
    assert!(counted.len() <= trace.calls.len() && late_ranks(&trace, &places).len() <= trace.groups.len());
    assert!(counted.iter().all(|call| call.calls_per_step >= 1.0));
}

fn recipe(bytes: &[u8]) {
    static MODEL: LazyLock<Model> = LazyLock::new(|| Model::load("llama-3-8b").expect("a model that ships"));
    let folder = tempfile::tempdir().expect("a folder");
    for ending in ["sh", "yaml", "json", "toml"] {
        let path = folder.path().join(format!("recipe.{ending}"));
        std::fs::write(&path, bytes).expect("written");
        let recipe = check_error(Recipe::read(&path, &MODEL));
        assert!(recipe.is_none_or(|recipe| recipe.notes.starts_with("from ")));
    }
}

fn suite(input: &[u8]) {
    // The folder of the models that suites name.
    let Some(text) = text(input) else { return };
    check_error(Suite::parse(Path::new("suites/fuzzed.toml"), text));
}

fn model(input: &[u8]) {
    let Some(model) = text(input).and_then(|text| check_error(Model::read(Path::new("config.json"), "fuzzed", text)))
    else {
        return;
    };
    assert!(model.parameters() >= model.parameters_active());
}

fn machine(input: &[u8]) {
    let Some(text) = text(input) else { return };
    let Some(machine) = check_error(Machine::parse(text, Path::new("fuzzed.toml"))) else { return };
    lint(std::slice::from_ref(&machine), "2026-01-01");
}

fn line(input: &[u8]) {
    let Ok(line) = serde_json::from_slice::<Line>(input) else { return };
    let written = serde_json::to_string(&line).expect("what was read can be written");
    assert_eq!(serde_json::from_str::<Line>(&written).expect("what was written can be read"), line);
}

fn record(input: &[u8]) {
    let Some(record) = check_error(Record::parse(input, "fuzzed.jsonl")) else { return };
    let view = View::new(&record);
    assert_eq!(view.rows.len(), record.plan.cases.len());
}

fn fit(input: &[u8]) {
    let Some(text) = text(input) else { return };
    check_error(Fit::parse(text, Path::new("fuzzed.json")));
}

fn fault(input: &[u8]) {
    let Some(fault) = text(input).and_then(|text| text.parse::<Fault>().ok()) else { return };
    let written = fault.to_string();
    written.parse::<Fault>().unwrap_or_else(|problem| panic!("{fault:?} was written as {written}: {problem}"));
}

fn hosts(input: &[u8]) {
    let Some(hosts) = text(input).and_then(|text| check_error(parse_hosts(text))) else { return };
    assert!(hosts.iter().all(|(name, slots)| !name.is_empty() && *slots > 0));
}

fn ranks(input: &[u8]) {
    let Some(input) = text(input) else { return };
    for world in [4, 16] {
        let Some(mut ranks) = check_error(parse_ranks(input, Path::new("ranks.txt"), world)) else { continue };
        ranks.sort_unstable();
        assert!(ranks.into_iter().eq(0..world));
    }
}

/// Every row is valid, every bad line has a number, and all rows together form a record.
fn imported(answer: commgauge::error::Result<Imported>) {
    let Some(imported) = check_error(answer) else { return };
    for row in &imported.rows {
        assert!(row.ranks > 0 && row.latency.0 > 0.0 && row.latency.0.is_finite(), "{row:?}");
    }
    assert!(imported.bad_lines.iter().all(|line| line.number > 0 && !line.problem.is_empty()));
    let lines = record_lines("run", &Origin::of(ForeignTool::Csv, &[]), &imported.rows);
    Record::from_lines(lines).expect("imported lines make a record");
}

fn nccl_tests(input: &[u8]) {
    imported(parse_nccl_tests(input, Path::new("log.txt"), None));
}

fn osu(input: &[u8]) {
    imported(parse_osu(input, Path::new("log.txt"), None));
    imported(parse_osu(input, Path::new("log.txt"), Some(8)));
}

fn imb(input: &[u8]) {
    imported(parse_imb(input, Path::new("log.txt")));
}

fn nccl_log(input: &[u8]) {
    let mut used = LibraryUse::default();
    String::from_utf8_lossy(input).lines().for_each(|line| used.observe(line));
    let line = LibraryUseLine::of(vec![Ok(used), Err("not read".to_owned())]);
    assert_eq!(line.phrases().len(), 2);
    assert!(line.surprises(&[]).len() <= 1);
}

fn csv(input: &[u8]) {
    imported(parse_csv(input, Path::new("times.csv")));
}
