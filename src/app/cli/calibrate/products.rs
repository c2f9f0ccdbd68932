//! Which matrix products a calibration measures: those of the model's layers, in the degrees and micro-batches that a plan may choose.

use crate::cli::backend_name::Backend;
use crate::cli::plan::PlannedTraining;
use commgauge_analysis::planner::calibration_suite::CalibrationProducts;
use commgauge_base::element::ElementType;
use commgauge_base::message::eprintln;
use commgauge_model::config::Model;
use std::path::Path;

/// Most degrees of tensor parallelism: the GPUs of the largest usual node.
const MOST_TP: u64 = 8;
/// Most samples of a micro-batch.
const MOST_MICRO_BATCH: u64 = 4;
/// Most tokens of a sample on host memory, where a product takes a thousand times as long and is as fast with few rows.
const MOST_TOKENS_ON_HOSTS: u64 = 512;

/// The products of a model that is found by `name`. None on a backend that computes nothing in the type of the activations, which is
/// said on standard error.
pub(super) fn of(
    name: &str,
    model: &Model,
    planned: &PlannedTraining,
    backend: Backend,
) -> Option<CalibrationProducts> {
    let training = &planned.bases.first;
    let element_type = training.activation_element_type;
    let on_host = [ElementType::Float32, ElementType::Float64].contains(&element_type);
    let (tokens, micro_batches) = match backend {
        Backend::Nccl => (training.sequence, MOST_MICRO_BATCH),
        Backend::Mpi if on_host => (training.sequence.min(MOST_TOKENS_ON_HOSTS), 1),
        Backend::Mpi | Backend::Simulated => {
            eprintln!(
                "matrix products are not measured: --backend {} multiplies no {element_type}; computing is that of the flags",
                backend.name()
            );
            return None;
        }
    };
    let linear = model.linear_attention_in_use().map(|linear| [linear.key_heads, linear.value_heads]);
    let widths: Vec<u64> =
        [model.attention.heads, model.feed_forward].into_iter().chain(linear.into_iter().flatten()).collect();
    let divides = |tp: &u64| widths.iter().all(|width| width.is_multiple_of(*tp));
    let doubling = |most: u64| (0..).map(|power| 1 << power).take_while(move |number| *number <= most);
    let divides_batch = |samples: &u64| planned.global_batch.is_multiple_of(*samples);
    Some(CalibrationProducts {
        model: source(name),
        tp: doubling(MOST_TP).filter(divides).collect(),
        micro_batch: doubling(micro_batches).filter(divides_batch).collect(),
        sequence: tokens,
        element_type,
    })
}

/// How a suite in another folder finds the model.
fn source(name: &str) -> (&'static str, String) {
    let path = Path::new(name);
    let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
    match file.canonicalize() {
        Ok(file) => ("config", file.to_string_lossy().into_owned()),
        Err(_) => ("preset", name.to_owned()),
    }
}
