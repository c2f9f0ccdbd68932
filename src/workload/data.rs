//! Data parallelism: the all_reduces of gradients, once per optimizer step, bucket by bucket.
//!
//! Buckets are cut after exactly so many parameters. Megatron-LM closes a bucket at the next boundary between
//! parameters, so its buckets are a little larger and differ among each other.

use super::op::{Op, Style};
use super::training_step::TrainingStep;
use crate::collective::{Collective, ReduceOp};
use crate::geometry::Splits;
use crate::layout::Axis;
use crate::units::Bytes;

/// The calls of the groups of dp in one optimizer step.
pub(super) fn ops(step: &TrainingStep) -> Vec<Op> {
    let (t, d, p) = (u64::from(step.degrees.tp), u64::from(step.degrees.dp), step.degrees.pp);
    let held = step.model.first_stage_parameters(t, p);
    let (bucket, rule) = match step.training.bucket_parameters {
        Some(bucket) => (bucket, "bucket_parameters of the suite".to_owned()),
        None => (default_bucket_parameters(d), format!("max(40e6, 1e6*d) with d = {d}")),
    };
    let whole = held / bucket;
    let rest = held % bucket;
    let mut ops = Vec::new();
    for (parameters, count) in [(bucket, whole), (rest, 1)] {
        if parameters > 0 && count > 0 {
            ops.push(bucket_op(step, held, parameters, count, &rule));
        }
    }
    ops
}

/// Megatron-LM's rule (`core/distributed/distributed_data_parallel.py`).
fn default_bucket_parameters(data_parallel: u64) -> u64 {
    (1_000_000 * data_parallel).max(40_000_000)
}

fn bucket_op(step: &TrainingStep, held: u64, parameters: u64, count: u64, rule: &str) -> Op {
    let element = step.training.gradient_element_type;
    let bytes = element.size() * parameters;
    let (t, p) = (step.degrees.tp, step.degrees.pp);
    let stage = match p {
        1 => String::new(),
        _ => "; counted for the first stage, as Megatron-LM reduces later stages in one bucket".to_owned(),
    };
    let vocabulary = match step.model.padded_vocabulary(u64::from(t)) {
        padded if padded == step.model.vocabulary => String::new(),
        padded => format!(", vocabulary padded from {} to {padded}", step.model.vocabulary),
    };
    let why = format!(
        "{}: Eg*bucket = {} B*{parameters} = {bytes} B; {count} of the buckets of {held} parameters held by the rank \
         (t = {t}, p = {p}{vocabulary}), cut by {rule}{stage} \
         (Megatron-LM core/distributed/distributed_data_parallel.py; arXiv 2006.15704 section 3.2)",
        step.layout,
        element.size()
    );
    Op {
        style: Style::Data,
        axis: Axis::Dp,
        collective: Collective::AllReduce,
        element,
        reduce_op: Some(ReduceOp::Sum),
        root: 0,
        bytes_total: Bytes(bytes),
        splits: Splits::Equal,
        count_per_step: Some(count),
        why,
    }
}
