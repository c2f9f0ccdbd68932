//! The published runs, read from embedded files, each as a checked training step.
//!
//! suites/published/README.md describes the files and their sources.

use commgauge_base::error::{Error, Result};
use commgauge_model::config::{Machine, Model, Place, Table, Training, published};
use commgauge_model::layout::{DEFAULT_ORDER, Degrees, Layout};
use commgauge_model::workload::step::TrainingStep;
use std::path::{Path, PathBuf};

/// One published set of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetName {
    MegatronTable1,
    MegatronSpTable5,
    Vtrain,
}

/// Vocabulary of all of them, padded (arXiv 2104.04473 section 5, arXiv 2205.05198 section 6).
const VOCABULARY: u64 = 51_200;

const TABLE_5: &str = "megatron-sp-2205.05198-table5.csv";
const FIGURE_1: &str = "megatron-sp-2205.05198-figure1.csv";

impl SetName {
    pub(super) const ALL: [SetName; 3] = [SetName::MegatronTable1, SetName::MegatronSpTable5, SetName::Vtrain];

    pub(super) fn name(self) -> &'static str {
        match self {
            SetName::MegatronTable1 => "megatron-table-1",
            SetName::MegatronSpTable5 => "megatron-sp-table-5",
            SetName::Vtrain => "vtrain",
        }
    }

    pub(super) fn source(self) -> &'static str {
        match self {
            SetName::MegatronTable1 => "arXiv 2104.04473, table 1: Megatron-LM, A100, every layer recomputed",
            SetName::MegatronSpTable5 => {
                "arXiv 2205.05198, table 5: Megatron-LM, A100, full recomputation against sequence parallelism with selective"
            }
            SetName::Vtrain => "VIA-Research/vTrain: Megatron-DeepSpeed, A100-80GB, every layer recomputed",
        }
    }

    /// The machine that the runs were made on, with the rates that libraries reach there.
    pub(super) fn machine(self) -> Result<Machine> {
        let file = match self {
            SetName::MegatronTable1 | SetName::MegatronSpTable5 => "dgx-a100-hdr.toml",
            SetName::Vtrain => "a100-800gbit.toml",
        };
        Machine::parse(published(file)?, &Path::new("suites/published").join(file))
    }

    /// The runs, in the order of the file.
    pub(super) fn runs(self) -> Result<Vec<PublishedRun>> {
        let file = match self {
            SetName::MegatronTable1 => "megatron-2104.04473-table1.csv",
            SetName::MegatronSpTable5 => TABLE_5,
            SetName::Vtrain => "vtrain-a100-multinode-small.csv",
        };
        let mut runs = Vec::new();
        for row in Rows::of(published(file)?, file)?.0 {
            match self {
                SetName::MegatronTable1 => runs.push(table_1(&row)?),
                SetName::MegatronSpTable5 => runs.extend(table_5(&row)?),
                SetName::Vtrain => runs.push(vtrain(&row)?),
            }
        }
        Ok(runs)
    }
}

/// A run with the time that it took.
#[derive(Clone, Debug)]
pub(super) struct PublishedRun {
    /// The model's name in the file.
    pub name: String,
    /// What distinguishes it from other runs of its model, beside the layout; may be empty.
    pub variant: &'static str,
    /// Samples of a step.
    pub global_batch: u64,
    /// Seconds of a step.
    pub measured_seconds: f64,
    /// GPUs.
    pub gpus: u32,
    model: Model,
    training: Training,
    layout: Layout,
}

impl PublishedRun {
    pub(super) fn step(&self) -> Result<TrainingStep<'_>> {
        TrainingStep::new(&self.model, &self.training, self.layout.clone(), &Place::flag("published run"))
    }
}

/// Memory of a model in figure 1 of arXiv 2205.05198, in GiB.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PublishedMemory {
    pub model: String,
    pub state_gibibytes: f64,
    pub activations_gibibytes: f64,
    pub activations_sparing_gibibytes: f64,
}

pub(super) fn published_memory() -> Result<Vec<PublishedMemory>> {
    let rows = Rows::of(published(FIGURE_1)?, FIGURE_1)?;
    let read = |row: &Row| {
        Ok(PublishedMemory {
            model: row.text("model")?.to_owned(),
            state_gibibytes: row.number("state_gib")?,
            activations_gibibytes: row.number("activations_gib")?,
            activations_sparing_gibibytes: row.number("activations_sp_selective_gib")?,
        })
    };
    rows.0.iter().map(read).collect()
}

/// The runs of table 5 with nothing recomputed and no sequence parallelism, which figure 1 shows beside the others.
pub(super) fn without_recomputation() -> Result<Vec<PublishedRun>> {
    let rows = Rows::of(published(TABLE_5)?, TABLE_5)?;
    rows.0.iter().map(|row| of_table_5(row, "", &[("recompute", "none")], f64::NAN)).collect()
}

fn table_1(row: &Row) -> Result<PublishedRun> {
    let shape = Shape {
        name: format!("{}B", row.text("params_billion")?),
        sequence: 2048,
        virtual_stages: row.count("virtual_stages")?,
        ..Shape::of(row)?
    };
    shape.run("", &[("recompute", "full"), ("scatter_gather", "true")], row.number("step_seconds")?)
}

/// The paper has two runs of each model.
fn table_5(row: &Row) -> Result<[PublishedRun; 2]> {
    let sparing = [("recompute", "selective"), ("sequence_parallel", "true")];
    Ok([
        of_table_5(row, "full", &[("recompute", "full")], row.number("step_seconds_full_recompute")?)?,
        of_table_5(row, "sp + selective", &sparing, row.number("step_seconds_sp_selective")?)?,
    ])
}

fn of_table_5(
    row: &Row,
    variant: &'static str,
    choices: &[(&'static str, &str)],
    seconds: f64,
) -> Result<PublishedRun> {
    let shape = Shape {
        name: row.text("model")?.to_owned(),
        sequence: 2048,
        virtual_stages: row.count("virtual_stages")?,
        ..Shape::of(row)?
    };
    let choices: Vec<_> = choices.iter().copied().chain([("scatter_gather", "true")]).collect();
    shape.run(variant, &choices, seconds)
}

fn vtrain(row: &Row) -> Result<PublishedRun> {
    let shape = Shape { name: row.text("model")?.to_owned(), sequence: row.count("sequence")?, ..Shape::of(row)? };
    shape.run("", &[("recompute", "full")], 1e-3 * row.number("step_milliseconds")?)
}

/// The numbers of a run.
struct Shape {
    name: String,
    hidden: u64,
    layers: u64,
    heads: u64,
    sequence: u64,
    micro_batch: u64,
    global_batch: u64,
    virtual_stages: u64,
    degrees: Degrees,
    gpus: u32,
}

impl Shape {
    /// Fields common to all files.
    fn of(row: &Row) -> Result<Shape> {
        let degree = |key: &str| -> Result<u32> { Ok(row.count(key)?.min(u64::from(u32::MAX)) as u32) };
        Ok(Shape {
            name: String::new(),
            hidden: row.count("hidden")?,
            layers: row.count("layers")?,
            heads: row.count("heads")?,
            sequence: 0,
            micro_batch: row.count("micro_batch")?,
            global_batch: row.count("global_batch")?,
            virtual_stages: 1,
            degrees: Degrees::dense(degree("tp")?, 1, degree("dp")?, degree("pp")?),
            gpus: degree("gpus")?,
        })
    }

    fn run(self, variant: &'static str, choices: &[(&'static str, &str)], seconds: f64) -> Result<PublishedRun> {
        let config = serde_json::json!({
            "model_type": "gpt2", "n_embd": self.hidden, "n_head": self.heads, "n_layer": self.layers,
            "n_inner": null, "n_positions": self.sequence, "vocab_size": VOCABULARY,
            "activation_function": "gelu_new", "tie_word_embeddings": true,
        });
        let model = Model::read(&PathBuf::from(&self.name), &self.name, &config.to_string())?;
        // Training was in fp16, gradients were reduced in it, after the backward pass and not during it.
        let common = [
            ("sequence", self.sequence.to_string()),
            ("micro_batch", self.micro_batch.to_string()),
            ("global_batch", self.global_batch.to_string()),
            ("virtual_stages", self.virtual_stages.to_string()),
            ("activation_element_type", "float16".to_owned()),
            ("parameter_element_type", "float16".to_owned()),
            ("gradient_element_type", "float16".to_owned()),
            ("overlap_gradients", "false".to_owned()),
        ];
        let own = choices.iter().map(|(key, text)| (*key, (*text).to_owned()));
        let flags = common.into_iter().chain(own).map(|(key, text)| (key, key, text));
        let training = Training::read(Table::of_flags(flags))?;
        let layout = Layout::new(self.degrees, &DEFAULT_ORDER)?;
        Ok(PublishedRun {
            name: self.name,
            variant,
            global_batch: self.global_batch,
            measured_seconds: seconds,
            gpus: self.gpus,
            model,
            training,
            layout,
        })
    }
}

/// The rows of a file with a heading.
struct Rows(Vec<Row>);

struct Row {
    place: String,
    fields: Vec<(String, String)>,
}

impl Rows {
    fn of(text: &str, file: &str) -> Result<Rows> {
        let wrong = |cause: ::csv::Error| Error::usage(format!("suites/published/{file}: {cause}"));
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let heading = reader.headers().map_err(wrong)?.clone();
        let mut rows = Vec::new();
        for (index, record) in reader.records().enumerate() {
            let record = record.map_err(wrong)?;
            let fields = heading.iter().zip(&record).map(|(name, value)| (name.to_owned(), value.to_owned()));
            rows.push(Row { place: format!("suites/published/{file}: line {}", index + 2), fields: fields.collect() });
        }
        Ok(Rows(rows))
    }
}

impl Row {
    fn text(&self, key: &str) -> Result<&str> {
        let field = self.fields.iter().find(|(name, _)| name == key);
        field
            .map(|(_, value)| value.as_str())
            .ok_or_else(|| Error::usage(format!("{}: `{key}` is missing", self.place)))
    }

    fn number(&self, key: &str) -> Result<f64> {
        let text = self.text(key)?;
        let number = text.parse::<f64>().ok().filter(|number| *number > 0.0 && number.is_finite());
        number.ok_or_else(|| Error::usage(format!("{}: {key}: found `{text}`; accepted: a number above 0", self.place)))
    }

    fn count(&self, key: &str) -> Result<u64> {
        let text = self.text(key)?;
        text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
            Error::usage(format!("{}: {key}: found `{text}`; accepted: a whole number from 1 on", self.place))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_file_is_reported_with_the_line() {
        let rows = Rows::of("a,b\n1,x\n0,2\n", "f.csv").unwrap().0;
        assert_eq!(rows[0].count("c").unwrap_err().to_string(), "suites/published/f.csv: line 2: `c` is missing");
        assert!(rows[0].number("b").unwrap_err().to_string().contains("b: found `x`; accepted: a number above 0"));
        assert!(rows[1].count("a").unwrap_err().to_string().contains("line 3: a: found `0`; accepted: a whole number"));
        assert!(Rows::of("a,b\n1\n", "f.csv").is_err());
    }

    #[test]
    fn every_run_is_a_step_on_as_many_gpus_as_its_file_says() {
        for (set, rows, models) in
            [(SetName::MegatronTable1, 10, 10), (SetName::MegatronSpTable5, 8, 4), (SetName::Vtrain, 41, 2)]
        {
            let runs = set.runs().unwrap();
            let mut names: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
            names.dedup();
            assert_eq!((runs.len(), names.len()), (rows, models), "{}", set.name());
            for run in &runs {
                let step = run.step().unwrap_or_else(|error| panic!("{}: {error}", run.name));
                assert_eq!(step.layout.degrees.world(), u64::from(run.gpus), "{}", run.name);
                let samples = step.micro_batches * step.training.micro_batch * u64::from(step.layout.degrees.dp);
                assert_eq!(samples, run.global_batch, "{}", run.name);
            }
            assert_eq!(set.machine().unwrap().ranks_per_node, 8);
        }
    }

    #[test]
    fn models_have_the_parameter_count_in_their_name() {
        for set in SetName::ALL {
            for run in set.runs().unwrap() {
                let called: f64 = match run.name.as_str() {
                    "1T" => 1008.0,
                    name => name.trim_end_matches('B').parse().unwrap(),
                };
                let found = run.step().unwrap().model.parameters() as f64 * 1e-9;
                assert!((found / called - 1.0).abs() < 0.03, "{}: {found}", run.name);
            }
        }
    }
}
