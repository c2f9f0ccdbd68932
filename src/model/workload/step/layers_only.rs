//! Traffic as papers count it: the transformer layers alone, on average over the stages.
//!
//! Embedding, output projection, loss and the small calls are left out, and a pipeline stage is counted with
//! neighbours on both sides. Lists of ops contain everything; this is for comparison with published figures.

use super::{Step, TrainingStep};
use crate::layout::Axis;
use crate::workload::{Op, Style};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;

/// Bytes of an axis, or a share of them.
struct AxisSum {
    axis: Axis,
    bytes: f64,
}

/// Wire bytes of a step by axis: means over the stages, for pp those of the stage that sends most.
///
/// # Errors
/// As [`Step::ops_of_stage`], and totals that pass 64 bits.
pub fn wire_bytes_of_layers(step: &Step) -> Result<Vec<(Axis, Bytes)>> {
    let stages = step.stages().count();
    let mut sums: Vec<AxisSum> = Vec::new();
    for stage in 0..stages {
        let mut of_stage: Vec<AxisSum> = Vec::new();
        for op in step.ops_of_stage(stage)? {
            let bytes = wire_bytes(step, &op)? * share_of_layers(step, stage, &op);
            add(&mut of_stage, op.axis, bytes);
        }
        for AxisSum { axis, bytes } in of_stage {
            match (axis, sums.iter_mut().find(|known| known.axis == axis)) {
                (Axis::Pp, Some(most)) => most.bytes = most.bytes.max(bytes),
                (Axis::Pp, None) => sums.push(AxisSum { axis, bytes }),
                _ => add(&mut sums, axis, bytes / f64::from(stages)),
            }
        }
    }
    Ok(sums.into_iter().filter(|sum| sum.bytes > 0.0).map(|sum| (sum.axis, Bytes(sum.bytes as u64))).collect())
}

fn add(sums: &mut Vec<AxisSum>, axis: Axis, bytes: f64) {
    match sums.iter_mut().find(|known| known.axis == axis) {
        Some(sum) => sum.bytes += bytes,
        None => sums.push(AxisSum { axis, bytes }),
    }
}

fn wire_bytes(step: &Step, op: &Op) -> Result<f64> {
    let count = op.when.count_per_step(step.micro_batches());
    let bytes = count.and_then(|count| op.wire_bytes(step.group_size(op.axis), count));
    let too_many = || Error::usage(format!("the bytes that {} moves in a step do not fit 64 bits", op.axis));
    bytes.map(|bytes| bytes as f64).ok_or_else(too_many)
}

/// The part of an op that is the layers': of gradients and parameters that of the layers' parameters.
fn share_of_layers(step: &Step, stage: u32, op: &Op) -> f64 {
    match (op.style, step) {
        (Style::Vocabulary | Style::Control, _) => 0.0,
        (Style::Data, Step::Training(step)) if op.axis != Axis::Edp => share_of_dense_layers(step, stage),
        _ => 1.0,
    }
}

fn share_of_dense_layers(step: &TrainingStep, stage: u32) -> f64 {
    let (layers, all) = (step.rank_layer_parameters(stage).dense, step.rank_parameters(stage).dense);
    if all == 0 { 1.0 } else { layers as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    /// Model, layout, training, ranks, and GB by axis, the most first.
    type Row = (&'static str, &'static str, &'static str, u32, &'static [(&'static str, &'static str)]);

    /// Sources of the rows, and the bytes that a GPU sends in a step by axis, in GB: counter-examples to TP > DP > PP.
    ///
    /// Layouts: arXiv 2104.04473 table 2 and its run of 1 T parameters (gathered at the receivers, its section 4.1);
    /// arXiv 2407.21783 table 4; MLPerf Training v4.0, GPT-3 on 10,752 H100; vTrain (arXiv 2312.12391); Megatron-LM's
    /// 16-GPU example; the others are usual fine-tuning and pre-training layouts of Llama 2 and 3.
    const ROWS: [Row; 12] = [
        (
            "gpt3-175b",
            "tp = 8\npp = 12\ndp = 16",
            "sequence = 2048\nmicro_batches = 96\nrecompute = 'full'\nscatter_gather = true",
            1536,
            &[("tp", "405.9"), ("dp", "13.6"), ("pp", "1.2")],
        ),
        (
            "llama-3-405b",
            "tp = 8\npp = 16\ndp = 128",
            "sequence = 8192\nmicro_batches = 16\ndata_style = 'zero1'\nscatter_gather = true",
            16_384,
            &[("tp", "236.8"), ("dp", "18.7"), ("pp", "1.1")],
        ),
        (
            "gpt3-175b",
            "tp = 4\npp = 6\ndp = 448",
            "sequence = 2048\nmicro_batches = 6\ndata_style = 'zero1'\nvirtual_stages = 8\nscatter_gather = true",
            10_752,
            &[("dp", "43.4"), ("tp", "29.0"), ("pp", "1.2")],
        ),
        (
            "llama-2-7b",
            "tp = 2\ndp = 512",
            "sequence = 4096\nmicro_batches = 2\ndata_style = 'zero1'",
            1024,
            &[("dp", "19.4"), ("tp", "8.6")],
        ),
        (
            "llama-2-7b",
            "tp = 2\ndp = 64",
            "sequence = 4096\nmicro_batches = 16\ndata_style = 'zero1'",
            128,
            &[("tp", "68.7"), ("dp", "19.1")],
        ),
        (
            "llama-3-70b",
            "tp = 8\ndp = 8",
            "sequence = 2048\nmicro_batches = 1\ndata_style = 'zero1'",
            64,
            &[("dp", "44.9"), ("tp", "18.8")],
        ),
        (
            "llama-3-70b",
            "tp = 8\ndp = 8",
            "sequence = 8192\nmicro_batches = 8\ndata_style = 'zero1'",
            64,
            &[("tp", "601.3"), ("dp", "44.9")],
        ),
        (
            "gpt3-175b",
            "tp = 8\npp = 32\ndp = 2",
            "sequence = 2048\nmicro_batches = 768\nrecompute = 'full'\ngradient_element_type = 'float16'",
            512,
            &[("tp", "1217.6"), ("pp", "77.3"), ("dp", "1.4")],
        ),
        (
            "megatron-1t",
            "tp = 8\npp = 64\ndp = 6",
            "sequence = 2048\nmicro_batches = 512\nrecompute = 'full'\nscatter_gather = true",
            3072,
            &[("tp", "1127.4"), ("pp", "13.4"), ("dp", "13.1")],
        ),
        (
            "gpt-7.5b",
            "tp = 2\npp = 4\ndp = 2",
            "sequence = 2048\nglobal_batch = 512",
            16,
            &[("tp", "154.6"), ("pp", "8.6"), ("dp", "3.6")],
        ),
        (
            "gpt-7.5b",
            "tp = 2\npp = 4\ndp = 2",
            "sequence = 2048\nglobal_batch = 8",
            16,
            &[("dp", "3.6"), ("tp", "2.4"), ("pp", "0.1")],
        ),
        (
            "llama-3.1-405b",
            "tp = 8\ncp = 16\npp = 16\ndp = 8",
            "sequence = 131072\nmicro_batches = 16\ndata_style = 'zero1'\nscatter_gather = true",
            16_384,
            &[("tp", "236.8"), ("cp", "23.8"), ("dp_cp", "18.7"), ("pp", "1.1")],
        ),
    ];

    #[test]
    fn tensor_traffic_is_not_always_above_data_and_data_not_always_above_pipeline() {
        for (model, layout, training, ranks, expected) in ROWS {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
            let text = format!("[model]\npreset = '{model}'\n[training]\n{training}\n[[layout]]\n{layout}\n");
            let suite = Suite::parse(&path, &text).unwrap();
            let step = Step::all_of(&suite.layouts[0], ranks).unwrap().remove(0);
            let mut found = wire_bytes_of_layers(&step).unwrap();
            // With scatter/gather the receivers gather over tp, which the published figures do not count.
            let gathered: f64 = gathered_over_tp(&step);
            found.iter_mut().filter(|(axis, _)| *axis == Axis::Tp).for_each(|(_, bytes)| bytes.0 -= gathered as u64);
            found.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
            let found: Vec<_> =
                found.iter().map(|(axis, bytes)| (axis.name(), format!("{:.1}", bytes.0 as f64 * 1e-9))).collect();
            let found: Vec<_> = found.iter().map(|(axis, bytes)| (*axis, bytes.as_str())).collect();
            assert_eq!(found, expected, "{model} {layout} {training}");
        }
    }

    fn gathered_over_tp(step: &Step) -> f64 {
        let stages = step.stages().count();
        let of_stage = |stage: u32| -> f64 {
            let ops = step.ops_of_stage(stage).unwrap();
            let gathers = ops.iter().filter(|op| op.style == Style::Pipeline && op.axis == Axis::Tp);
            gathers.map(|op| wire_bytes(step, op).unwrap()).sum()
        };
        (0..stages).map(of_stage).sum::<f64>() / f64::from(stages)
    }
}
