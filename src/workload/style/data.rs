//! Data parallelism: the all_reduces of gradients, once per optimizer step, bucket by bucket.
//!
//! Buckets are cut after exactly so many parameters. Megatron-LM closes a bucket at the next boundary between
//! parameters, so its buckets are a little larger and differ among each other.

use crate::collective::Collective;
use crate::error::Result;
use crate::layout::Axis;
use crate::workload::step::TrainingStep;
use crate::workload::when::{Moment, Overlap, When};
use crate::workload::{Op, Style};

/// The calls of one rank of a stage in an optimizer step.
pub(super) fn ops(step: &TrainingStep, stage: u32) -> Result<Vec<Op>> {
    let [t, p, d, c, _] = step.degrees();
    let _ = stage;
    let held = step.model.first_stage_parameters(t, p as u32);
    let (bucket, rule) = match step.training.data.bucket_parameters {
        Some(bucket) => (bucket, "bucket_parameters".to_owned()),
        None => (default_bucket_parameters(d), format!("max(40e6, 1e6*d) with d = {d}")),
    };
    let element = step.training.data.gradient_element_type;
    let axis = if c > 1 { Axis::DpCp } else { Axis::Dp };
    let (whole, rest) = (held / bucket, held % bucket);
    let op = |parameters: u64, calls: u64| Op {
        when: When::Step { moment: Moment::LastBackward, calls },
        overlap: Overlap::LastBackward,
        why: format!(
            "Eg*bucket = {} B*{parameters}; {calls} of the buckets of {held} parameters held by the rank (t = {t}, p = {p}), \
             cut by {rule} (Megatron-LM core/distributed/distributed_data_parallel.py; arXiv 2006.15704 section 3.2)",
            element.size()
        ),
        ..Op::new(Style::Data, axis, Collective::AllReduce, element, element.size() * parameters)
    };
    let ops = [(bucket, whole), (rest, 1)].into_iter().filter(|(parameters, calls)| parameters * calls > 0);
    Ok(ops.map(|(parameters, calls)| op(parameters, calls)).collect())
}

/// Megatron-LM's rule (`core/distributed/distributed_data_parallel.py`).
fn default_bucket_parameters(data_parallel: u64) -> u64 {
    (1_000_000 * data_parallel).max(40_000_000)
}
