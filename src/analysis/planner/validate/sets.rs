//! The published runs, from embedded files. suites/published/README.md describes the files and their sources.

use super::runs::{MeasuredRun, Row, Rows, read_runs};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::published;

/// One published set of runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetName {
    MegatronTable1,
    MegatronTable2,
    MegatronSpTable5,
    Vtrain,
    Bloom,
    Internevo,
    LlmFoundry,
    MegatronBridge,
}

const FIGURE_1: &str = "megatron-sp-2205.05198-figure1.csv";

impl SetName {
    pub(super) const ALL: [SetName; 8] = [
        SetName::MegatronTable1,
        SetName::MegatronTable2,
        SetName::MegatronSpTable5,
        SetName::Vtrain,
        SetName::Bloom,
        SetName::Internevo,
        SetName::LlmFoundry,
        SetName::MegatronBridge,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            SetName::MegatronTable1 => "megatron-table-1",
            SetName::MegatronTable2 => "megatron-table-2",
            SetName::MegatronSpTable5 => "megatron-sp-table-5",
            SetName::Vtrain => "vtrain",
            SetName::Bloom => "bloom",
            SetName::Internevo => "internevo",
            SetName::LlmFoundry => "llm-foundry",
            SetName::MegatronBridge => "megatron-bridge",
        }
    }

    pub(super) fn source(self) -> &'static str {
        match self {
            SetName::MegatronTable1 => "arXiv 2104.04473, table 1: Megatron-LM, A100, every layer recomputed",
            SetName::MegatronTable2 => {
                "arXiv 2104.04473, table 2: DeepSpeed's ZeRO-3 against tensor, pipeline and data parallelism, A100"
            }
            SetName::MegatronSpTable5 => {
                "arXiv 2205.05198, table 5: Megatron-LM, A100, full recomputation against sequence parallelism with selective"
            }
            SetName::Vtrain => "VIA-Research/vTrain: Megatron-DeepSpeed, A100-80GB, every layer recomputed",
            SetName::Bloom => {
                "bigscience-workshop/bigscience: the search for BLOOM's layout, Megatron-DeepSpeed, A100-80GB"
            }
            SetName::Internevo => "InternLM/InternEvo: table of training speed, 7B on 8 to 1024 A100-80GB",
            SetName::LlmFoundry => "mosaicml/llm-foundry: tables of FSDP, MPT of 125M to 70B, A100-40GB and H100",
            SetName::MegatronBridge => "NVIDIA-NeMo/Megatron-Bridge: performance pages 25.09 to 26.04, H100 to GB300",
        }
    }

    /// The runs, in the order of the file.
    pub(super) fn runs(self) -> Result<Vec<MeasuredRun>> {
        let file = match self {
            SetName::MegatronTable1 => "megatron-2104.04473-table1.csv",
            SetName::MegatronTable2 => "megatron-2104.04473-table2.csv",
            SetName::MegatronSpTable5 => "megatron-sp-2205.05198-table5.csv",
            SetName::Vtrain => "vtrain-a100-multinode.csv",
            SetName::Bloom => "bloom.csv",
            SetName::Internevo => "internevo.csv",
            SetName::LlmFoundry => "llm-foundry.csv",
            SetName::MegatronBridge => "megatron-bridge.csv",
        };
        read_runs(published(file)?, &format!("embedded:suites/published/{file}"))
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
    let missing = |what: &str| Error::usage(format!("suites/published/{FIGURE_1}: `{what}` is missing"));
    let number = |row: &Row, column: &str| row.number(column)?.ok_or_else(|| missing(column));
    let read = |row: &Row| {
        Ok(PublishedMemory {
            model: row.text("model").ok_or_else(|| missing("model"))?.to_owned(),
            state_gibibytes: number(row, "state_gib")?,
            activations_gibibytes: number(row, "activations_gib")?,
            activations_sparing_gibibytes: number(row, "activations_sp_selective_gib")?,
        })
    };
    Rows::of(published(FIGURE_1)?, FIGURE_1)?.rows.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_set_has_the_runs_of_its_source() {
        for (set, rows, models) in [
            (SetName::MegatronTable1, 10, 10),
            (SetName::MegatronTable2, 12, 2),
            (SetName::MegatronSpTable5, 8, 4),
            (SetName::Vtrain, 109, 4),
            (SetName::Bloom, 46, 9),
            (SetName::Internevo, 54, 1),
            (SetName::LlmFoundry, 148, 9),
            (SetName::MegatronBridge, 124, 9),
        ] {
            let runs = set.runs().unwrap();
            let mut names: Vec<_> = runs.iter().map(|run| run.model.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!((runs.len(), names.len()), (rows, models), "{}", set.name());
            for run in &runs {
                let step = run.step().unwrap();
                let samples = step.micro_batches * step.training.micro_batch * u64::from(step.layout.degrees.dp);
                assert_eq!(samples, run.global_batch, "{}", run.place);
            }
            assert!(runs.iter().all(|run| run.machine.is_some() && !run.source.is_empty()), "{}", set.name());
        }
    }
}
