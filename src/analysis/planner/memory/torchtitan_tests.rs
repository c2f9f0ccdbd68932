//! The memory model against what runs of torchtitan printed.

use super::most_loaded;
use crate::planner::testing::with_step;

/// A run of benchmarks/llama3_h100_202412_torchtitan.md of pytorch/torchtitan, on H100 of 96 GB.
struct Printed {
    preset: &'static str,
    training: &'static str,
    layout: &'static str,
    ranks: u32,
    /// Peak memory that the allocator reserved, of all variants of the run.
    gibibytes: &'static [f64],
}

const fn printed(
    preset: &'static str,
    training: &'static str,
    layout: &'static str,
    ranks: u32,
    gibibytes: &'static [f64],
) -> Printed {
    Printed { preset, training, layout, ranks, gibibytes }
}

/// Tables 1 to 6. Where the tables do not say how many micro-batches a pipeline has, it has as many as stages, the default.
const PRINTED: [Printed; 13] = [
    // Eager, and compiled.
    printed("llama-3-8b", "sequence = 8192\nmicro_batch = 2\nrecompute = 'selective'", "dp = 8", 8, &[82.4, 77.0]),
    printed("llama-3-8b", "sequence = 8192\nmicro_batch = 2\nrecompute = 'selective'", "dp = 128", 128, &[67.0, 62.0]),
    // One sample of 32,768 tokens for each rank of cp: as much as four samples of the tokens that the preset allows.
    printed("llama-3-8b", "sequence = 8192\nmicro_batch = 4\nrecompute = 'full'", "dp = 8", 8, &[83.9]),
    printed("llama-3-8b", "sequence = 8192\nmicro_batch = 8\nrecompute = 'full'", "dp = 4\ncp = 2", 8, &[84.2]),
    printed("llama-3-8b", "sequence = 8192\nmicro_batch = 16\nrecompute = 'full'", "dp = 2\ncp = 4", 8, &[84.0]),
    printed("llama-3-8b", "sequence = 8192\nmicro_batch = 32\nrecompute = 'full'", "cp = 8", 8, &[84.5]),
    // Without and with asynchronous tensor parallelism.
    printed(
        "llama-3-70b",
        "sequence = 8192\nmicro_batch = 16\nrecompute = 'full'",
        "tp = 8\ndp = 32",
        256,
        &[71.9, 67.6],
    ),
    printed(
        "llama-3-405b",
        "sequence = 8192\nmicro_batch = 4\nmicro_batches = 8\nrecompute = 'full'\nschedule = 'interleaved'\nvirtual_stages = 2",
        "tp = 8\npp = 8\ndp = 8",
        512,
        &[72.7],
    ),
    printed(
        "llama-3.1-405b",
        "sequence = 32768\nmicro_batches = 8\nrecompute = 'full'",
        "tp = 8\npp = 8\ndp = 8",
        512,
        &[75.3],
    ),
    printed(
        "llama-3.1-405b",
        "sequence = 65536\nmicro_batches = 8\nrecompute = 'full'",
        "tp = 8\npp = 8\ncp = 2\ndp = 4",
        512,
        &[75.9],
    ),
    printed(
        "llama-3.1-405b",
        "sequence = 131072\nmicro_batches = 8\nrecompute = 'full'",
        "tp = 8\npp = 8\ncp = 4\ndp = 2",
        512,
        &[77.1],
    ),
    printed(
        "llama-3-405b",
        "sequence = 8192\nmicro_batch = 4\nmicro_batches = 8\nrecompute = 'full'",
        "tp = 8\npp = 8\ndp = 8",
        512,
        &[82.5],
    ),
    printed(
        "llama-3.1-405b",
        "sequence = 131072\nmicro_batch = 2\nmicro_batches = 8\nrecompute = 'full'",
        "tp = 8\npp = 8\ncp = 8",
        512,
        &[84.9],
    ),
];

#[test]
fn torchtitan_holds_what_was_printed_within_a_tenth() {
    for Printed { preset, training, layout, ranks, gibibytes: printed } in &PRINTED {
        let training = format!("framework = 'torchtitan'\n{training}");
        let (stage, used) = with_step(preset, &training, layout, *ranks, most_loaded);
        let found = used.total().0 as f64 / f64::from(1 << 30);
        for printed in *printed {
            let off = (found / printed - 1.0).abs();
            assert!(off <= 0.1, "{training} {layout}: {found:.1} GiB on stage {stage}, {printed} printed: {used:?}");
        }
    }
}
