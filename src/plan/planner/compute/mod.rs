//! Computing time of a rank: the passes of a micro-batch through a chunk, and the optimizer.
//!
//! `work` has the amount of computing, `efficiency` the speed of matrix products. Communication is not counted here.

mod speed;

pub use speed::{
    ChunkCompute, Compute, Efficiency, MeasuredProduct, MeasuredProducts, Product, Saturation, StageCompute, Weights,
    Work,
};

use crate::planner::Kernels;
use crate::planner::memory::updated_bytes;
use crate::planner::step_error::StepError;
use commgauge_base::units::{Rate, Seconds};
use commgauge_model::config::LayerParts;
use commgauge_model::config::machine::{Computing, Level};
use commgauge_model::record::Record;
use commgauge_model::workload::op::Pass;
use commgauge_model::workload::step::TrainingStep;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Adam reads and writes its state of each parameter, reads the gradient and writes the parameter: 30 bytes for the 12
/// bytes of state in 16-bit training.
const OPTIMIZER_MOVES: f64 = 2.5;

/// Bytes per second that Adam moves on the host of eight ranks, for each: 1.91e9 parameters of 30 bytes took 3.19 s on hosts of H100
/// (NVIDIA-NeMo/Megatron-Bridge 067f987df, skills/nemo-mbridge-perf-cpu-offloading/card.yaml, Qwen3-30B-A3B).
const HOST_ADAM_RATE: Rate = Rate(18e9);

impl Compute {
    /// All products at one share of the peak, and nothing else: the simplest baseline for a model of steps.
    pub fn constant(peak_flops_per_second: f64, share: f64) -> Compute {
        Compute {
            peak_flops_per_second,
            peak_of_linears: None,
            efficiency: Efficiency::Saturating(Saturation { best: share, half_width: 0.0 }),
            memory_rate: Rate(f64::INFINITY),
            seconds_per_kernel: Seconds(0.0),
            kernels: Kernels::FUSED,
            lost_beside_calls: 0.0,
            error: StepError::EXACT,
        }
    }

    /// Computing time of a rank of a stage; zero for a stage that does not exist.
    pub fn stage(&self, step: &TrainingStep, stage: u32) -> StageCompute {
        if stage >= step.stages.count() {
            return StageCompute::default();
        }
        let chunks = (0..step.stages.chunks()).map(|chunk| self.chunk(step, stage, chunk)).collect();
        StageCompute { chunks, optimizer: self.optimizer(step, stage) }
    }

    /// One micro-batch through one chunk.
    pub fn chunk(&self, step: &TrainingStep, stage: u32, chunk: u32) -> ChunkCompute {
        let layers = step.stages.layers_of_chunk(stage, chunk);
        let mut sum = ChunkCompute::default();
        let mut known: Vec<((LayerParts, [bool; 3]), ChunkCompute)> = Vec::new();
        let repeated = step.layers_in_pass(Pass::Recompute, layers);
        for layer in layers {
            // Layers of a kind cost the same.
            let [is_trained, is_repeated] = [step.trains(*layer), repeated.binary_search(layer).is_ok()];
            let has_window = step.model.has_sliding_window_in(*layer);
            let kind = (step.model.parts_of(*layer), [has_window, is_trained, is_repeated]);
            let one = match known.iter().find(|(other, _)| *other == kind) {
                Some((_, one)) => *one,
                None => {
                    let work = speed::of_layer(step, *layer, self);
                    let recompute = work.recompute.filter(|_| is_repeated);
                    let all = Work { recompute, ..work }.seconds(self);
                    let one =
                        if is_trained { all } else { ChunkCompute { forward: all.forward, ..Default::default() } };
                    known.push((kind, one));
                    one
                }
            };
            sum = sum.and(one);
        }
        let [has_input, has_output] = step.stages.ends_of_chunk(stage, chunk);
        if has_input {
            sum = sum.and(speed::of_input(step).seconds(self));
        }
        if has_output {
            sum = sum.and(speed::of_output(step).seconds(self));
        }
        sum
    }

    /// The matrix products of a forward pass of a micro-batch through every layer and the end of the model.
    pub fn products(&self, step: &TrainingStep) -> Vec<Product> {
        let layers = (0..step.model.layers).map(|layer| speed::of_layer(step, layer, self));
        layers.chain([speed::of_output(step)]).flat_map(|work| work.products).collect()
    }

    /// Adam's update, which computes little and moves many bytes, on the GPU and on its host.
    pub(super) fn optimizer(&self, step: &TrainingStep, stage: u32) -> Seconds {
        let own = OPTIMIZER_MOVES * updated_bytes(step, stage) as f64;
        let share = step.training.data.offloaded_percent as f64 / 100.0;
        Seconds((1.0 - share) * own / self.memory_rate.0 + share * own / HOST_ADAM_RATE.0)
    }
}

// The matrix products of a record, in the form of the planner. `record::product_times` extracts them.

impl MeasuredProduct {
    /// Every product of a record with a time, except those that were wrong, skipped or failed in all replicates.
    pub fn all_of(record: &Record) -> Vec<MeasuredProduct> {
        let measured = |time: commgauge_model::record::times::ProductTime| {
            let seconds = time.times.median()?.0;
            let product = time.product;
            Some(MeasuredProduct { m: product.m, n: product.n, k: product.k, element: product.element_type, seconds })
        };
        record.product_times().into_iter().filter_map(measured).collect()
    }
}

// The step model of any GPU without measurements: constants from the published runs of `commgauge plan validate`, and the peaks of the data
// sheet.

/// Values that a data sheet lacks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Constants {
    /// Share of the peak reached by the largest matrix products.
    pub share_of_peak: f64,
    /// Width at which a matrix product reaches half the rate of the largest.
    pub half_width: f64,
    /// Share of the memory rate reached by kernels that only move data.
    pub share_of_memory_rate: f64,
    /// Time in which PyTorch starts a kernel, including the Python around it.
    pub seconds_per_kernel: f64,
    /// Share of its speed that computing loses while a call overlaps with it.
    pub lost_beside_calls: f64,
}

/// The constants that did best on the A100 runs of Megatron-LM and vTrain; the share of the peak comes from a level, if one is known.
pub const PUBLISHED: Constants = Constants {
    share_of_peak: 0.79,
    half_width: 150.0,
    share_of_memory_rate: 0.75,
    seconds_per_kernel: 20e-6,
    lost_beside_calls: 0.2,
};

impl Constants {
    /// The efficiency of products.
    pub fn saturation(&self) -> Saturation {
        Saturation { best: self.share_of_peak, half_width: self.half_width }
    }

    /// The constants of plans at a level.
    pub fn of(level: &Level) -> Constants {
        let Level { share_of_peak, share_of_memory_rate, .. } = *level;
        Constants { share_of_peak, share_of_memory_rate, ..PUBLISHED }
    }

    /// The model of a GPU with these constants.
    pub fn compute(&self, gpu: &Computing) -> Compute {
        Compute {
            peak_flops_per_second: gpu.peak_flops_per_second,
            peak_of_linears: None,
            efficiency: Efficiency::Saturating(self.saturation()),
            memory_rate: Rate(self.share_of_memory_rate * gpu.memory_rate.0),
            seconds_per_kernel: Seconds(self.seconds_per_kernel),
            kernels: Kernels::FUSED,
            lost_beside_calls: self.lost_beside_calls,
            error: StepError::EXACT,
        }
    }
}

#[cfg(test)]
mod tests {
    // Amount of computing against counts of the papers; speed against hand-computed numbers.
    use super::*;
    use crate::planner::testing::{NEMOTRON_H, QWEN3_NEXT, with_step};
    use commgauge_base::element::ElementType;

    /// Everything at the peak: seconds are operations.
    const COUNTING: f64 = 1.0;

    fn counting(fused_attention: bool) -> Compute {
        let kernels = if fused_attention { Kernels::FUSED } else { Kernels::WITH_ATTENTION_MATRICES };
        Compute { kernels, ..Compute::constant(COUNTING, 1.0) }
    }

    fn operations(stage: &StageCompute) -> f64 {
        stage.forward_seconds() + stage.backward_seconds()
    }

    fn close(found: f64, expected: f64, what: &str) {
        assert!((found / expected - 1.0).abs() < 1e-9, "{what}: {found} against {expected}");
    }

    #[test]
    fn products_that_were_not_measured_in_the_type_or_took_no_time_are_refused() {
        let product = |element, seconds| MeasuredProduct { m: 8, n: 8, k: 8, element, seconds };
        let message = |products: &[MeasuredProduct]| {
            let error = MeasuredProducts::new(products, ElementType::Bfloat16).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        };
        assert!(message(&[]).contains("no matrix product of bfloat16 was measured, none at all"));
        assert!(message(&[product(ElementType::Float32, 1.0)]).contains("was measured, of float32"));
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(message(&[product(ElementType::Bfloat16, seconds)]).contains("8 x 8 x 8 took"), "{seconds}");
        }
    }

    /// arXiv 2104.04473 equation 3: 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) with every layer recomputed; without, 72 B s l h^2 (1 +
    /// s/(6h) + V/(12 l h)).
    #[test]
    fn a_step_of_gpt_takes_the_operations_that_megatron_counts() {
        let (s, l, h, v) = (2048.0, 96.0, 12288.0, 51_200.0);
        for (recompute, expected) in [
            ("full", 96.0 * s * l * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * l * h))),
            ("none", 72.0 * s * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * l * h))),
            // arXiv 2205.05198 appendix: attention's part, 4 s^2 h forward, once more.
            ("selective", 72.0 * s * l * h * h * (1.0 + s / (6.0 * h) + v / (12.0 * l * h)) + 4.0 * s * s * h * l),
        ] {
            let stage = |tp: u32| {
                with_step("gpt3-175b", &format!("recompute = '{recompute}'"), &format!("tp = {tp}"), tp, |step| {
                    counting(false).stage(step, 0)
                })
            };
            close(operations(&stage(1)), expected, recompute);
            close(operations(&stage(8)), expected / 8.0, recompute);
            close(stage(1).passes().weight_gradient.0, s * (24.0 * l * h * h + 2.0 * h * v), recompute);
        }
    }

    #[test]
    fn stages_and_chunks_share_the_layers_and_the_ends_are_on_their_stages() {
        let training = "micro_batches = 8\nvirtual_stages = 2";
        with_step("gpt3-175b", training, "pp = 4", 4, |step| {
            let stages: Vec<StageCompute> = (0..4).map(|stage| counting(false).stage(step, stage)).collect();
            let head = 6.0 * 2048.0 * 12288.0 * 51_200.0;
            let layers = operations(&stages[0]);
            assert_eq!(stages.iter().map(|stage| stage.chunks.len()).collect::<Vec<_>>(), [2; 4]);
            for (stage, expected) in stages.iter().zip([layers, layers, layers, layers + head]) {
                close(operations(stage), expected, "stage");
            }
            close(
                stages[3].chunks[1].forward.0 - stages[3].chunks[0].forward.0,
                head / 3.0,
                "the head is in the last chunk",
            );
            assert_eq!(counting(false).stage(step, 4), StageCompute::default(), "a stage that does not exist");
        });
    }

    #[test]
    fn a_fused_kernel_skips_what_a_causal_mask_hides() {
        let attention =
            |fused| with_step("gpt3-175b", "", "tp = 1", 1, |step| counting(fused).stage(step, 0).forward_seconds());
        close(attention(false) - attention(true), 96.0 * 2.0 * 2048.0 * 2048.0 * 12288.0, "half of 4 s^2 h");
    }

    #[test]
    fn a_token_passes_only_its_own_experts() {
        // Mixtral 8x7B: 12.9 B of 46.7 B are active. Forward 2 operations for each parameter but those of the embedding.
        let tokens = 2048.0;
        with_step("mixtral-8x7b", "", "tp = 1", 1, |step| {
            let model = step.model;
            let norms = 65 * model.norm_parameters();
            let multiplied = (model.parameters_active() - model.embedding_parameters() - norms) as f64;
            let attention = 32.0 * 2.0 * 2048.0 * 32.0 * 128.0;
            let found = counting(true).stage(step, 0).forward_seconds();
            close(found, tokens * (2.0 * multiplied + attention), "mixtral");
        });
        let whole = |layout: &str, ranks| {
            with_step("mixtral-8x7b", "", layout, ranks, |step| counting(true).stage(step, 0).forward_seconds())
        };
        close(whole("dp = 8\nep = 4", 8), whole("tp = 1", 1), "ep moves tokens, and as many come as go");
    }

    #[test]
    fn context_parallelism_divides_tokens_and_not_their_context() {
        let of = |cp: u32| {
            with_step("llama-3-8b", "sequence = 8192", &format!("cp = {cp}"), cp, |step| {
                operations(&counting(true).stage(step, 0))
            })
        };
        close(of(4), of(1) / 4.0, "cp 4");
    }

    #[test]
    fn larger_products_reach_more_of_the_peak() {
        let form = Efficiency::Saturating(Saturation { best: 0.8, half_width: 100.0 });
        let product = |m, n, k| Product { count: 2.0, ..Product::linear(m, n, k) };
        // 300/400 of 0.8, 100/200 and 900/1000.
        let expected = 2.0 * 2.0 * 300.0 * 100.0 * 900.0 / (1e9 * 0.8 * 0.75 * 0.5 * 0.9);
        close(form.seconds(&product(300, 100, 900), 1e9), expected, "saturating");
    }

    #[test]
    fn a_measured_product_uses_its_own_time_and_others_are_interpolated() {
        let measured = |m: u64, flops_per_second: f64| MeasuredProduct {
            m,
            n: 1024,
            k: 1024,
            element: ElementType::Bfloat16,
            seconds: 2.0 * m as f64 * 1024.0 * 1024.0 / flops_per_second,
        };
        let list = [measured(256, 1e12), measured(1024, 4e12), measured(65_536, 5e12)];
        let form = Efficiency::Measured(MeasuredProducts::new(&list, ElementType::Bfloat16).unwrap());
        let speed = |m: u64| {
            let product = Product::linear(m, 1024, 1024);
            product.flops() / form.seconds(&product, 1.0)
        };
        close(speed(256), 1e12, "measured");
        close(speed(1024), 4e12, "measured");
        // Between two at one octave each: their geometric mean, minus the pull of the distant one.
        assert!((speed(512) / 2e12 - 1.0).abs() < 0.01, "{}", speed(512));
        assert!(speed(1 << 24) > 4e12 && speed(1 << 24) < 5e12 && speed(1) > 1e12 && speed(1) < 2e12);
    }

    /// A GPU whose memory moves a byte per second, and that computes in no time.
    fn moving() -> Compute {
        Compute {
            memory_rate: Rate(1.0),
            kernels: Kernels::WITH_ATTENTION_MATRICES,
            ..Compute::constant(f64::INFINITY, 1.0)
        }
    }

    #[test]
    fn adam_moves_thirty_bytes_for_each_parameter_that_the_rank_updates() {
        with_step("llama-3-8b", "", "tp = 1", 1, |step| {
            close(moving().stage(step, 0).optimizer.0, 30.0 * 8_030_261_248.0, "all");
        });
        with_step("llama-3-8b", "data_style = 'zero1'", "dp = 8", 8, |step| {
            close(moving().stage(step, 0).optimizer.0, 30.0 * 8_030_261_248.0 / 8.0, "a share");
        });
    }

    #[test]
    fn the_host_updates_in_the_time_that_megatron_bridge_measured_and_frees_the_moments() {
        let layout = "tp = 2\npp = 2\ndp = 4\nep = 4";
        let of = |percent: u64| {
            let training = format!(
                "data_style = 'zero1'\nsequence_parallel = true\nmicro_batches = 4\noptimizer_offload = {percent}"
            );
            with_step("qwen3-30b-a3b", &training, layout, 16, |step| {
                let gpu = Compute { memory_rate: Rate(2.5e12), ..moving() };
                (gpu.optimizer(step, 0).0, Kernels::FUSED.memory(step, 0).optimizer.0 as f64)
            })
        };
        let (alone, held) = of(0);
        for (percent, seconds, freed) in
            [(25, 0.875, 3.8e9), (50, 1.488, 7.6e9), (75, 2.191, 11.6e9), (100, 3.193, 15.3e9)]
        {
            let (found, left) = of(percent);
            assert!(((found - alone) / seconds - 1.0).abs() < 0.12, "{percent} %: {}", found - alone);
            assert!(((held - left) / freed - 1.0).abs() < 0.02, "{percent} %: {}", held - left);
        }
    }

    #[test]
    fn parts_of_layers_and_some_layers_take_their_own_forward_again() {
        let of = |training: &str| {
            with_step("llama-3-8b", training, "tp = 1", 1, |step| counting(true).stage(step, 0).passes())
        };
        let plain = of("");
        let tokens = 2048.0;
        // Three matrices of 4096 x 14336 in each of 32 layers.
        let feed_forward = 2.0 * tokens * 32.0 * 3.0 * 4096.0 * 14336.0;
        close(of("recompute_modules = ['mlp']").recompute.0, feed_forward, "mlp");
        assert_eq!(of("recompute_modules = ['layernorm']").recompute.0, 0.0, "norms only move");
        let head = 2.0 * tokens * 4096.0 * 128_256.0;
        let all = plain.forward.0 - head;
        close(of("recompute_layers = 4").recompute.0, all, "in groups of four");
        close(of("recompute_layers = 8\nrecompute_method = 'block'").recompute.0, all / 4.0, "8 of 32 layers");
        // With adapters: two products of rank 16 of each linear, and no other gradient of weights.
        let adapters =
            2.0 * tokens * 32.0 * 16.0 * (4096.0 + 6144.0 + 2.0 * 4096.0 + 4096.0 + 28672.0 + 14336.0 + 4096.0);
        let lora = of("lora_rank = 16");
        close(lora.forward.0, plain.forward.0 + adapters, "adapters");
        close(lora.weight_gradient.0, adapters, "their gradients");
        let some = of("lora_rank = 16\nlora_modules = ['proj', 'fc1']");
        let adapters = 2.0 * tokens * 32.0 * 16.0 * (2.0 * 4096.0 + 4096.0 + 28672.0);
        close(some.forward.0, plain.forward.0 + adapters, "two linears");
        // Only the last four layers and the frozen head behind them go backward.
        let last = of("trainable_layers = 4");
        assert_eq!(last.forward, plain.forward);
        close(last.weight_gradient.0, (plain.weight_gradient.0 - head) / 8.0, "gradients of four layers");
        close(last.input_gradient.0, (plain.input_gradient.0 - head) / 8.0 + head, "and of their inputs");
        close(of("trainable_layers = 4\nrecompute = 'full'").recompute.0, all / 8.0, "what is repeated");
    }

    #[test]
    fn sequence_parallelism_divides_the_operations_around_the_blocks() {
        let moved = |sequence_parallel: bool| {
            let training = format!("sequence_parallel = {sequence_parallel}");
            with_step("gpt3-175b", &training, "tp = 8", 8, |step| moving().stage(step, 0).forward_seconds())
        };
        // Two norms of 4 bytes an element, two additions of 7: 22 sbh a layer, of which seven eighths fall away.
        close(moved(false) - moved(true), 96.0 * 22.0 * 2048.0 * 12288.0 * 7.0 / 8.0, "22 sbh");
    }

    #[test]
    fn kernels_that_are_not_fused_move_what_those_of_pytorch_do() {
        with_step("llama-3-8b", "", "tp = 1", 1, |step| {
            let of = |fused_elementwise| {
                let kernels = Kernels { fused_elementwise, ..moving().kernels };
                Compute { kernels, ..moving() }.stage(step, 0).forward_seconds()
            };
            // Per token: 36 bytes instead of 4 for each number of two norms; ten times 2 bytes for each of 32 heads of queries and 8 of
            // keys; 10 instead of 6 for each of 14336 numbers of the gate.
            let of_a_token = 2.0 * 4096.0 * 32.0 + 40.0 * 128.0 * 20.0 + 14336.0 * 4.0;
            close(of(false) - of(true), 32.0 * step.tokens_per_micro_batch() as f64 * of_a_token, "bytes");
        });
    }

    #[test]
    fn tokens_are_copied_for_each_expert_and_sorted_where_a_rank_has_several() {
        let moved = |layout: &str, ranks| {
            with_step("mixtral-8x7b", "", layout, ranks, |step| moving().stage(step, 0).forward_seconds())
        };
        // 32 layers, 2 experts for each of 2048 tokens, 4096 wide, 2 bytes: read and written before and after the experts.
        let sorted = 32.0 * 4.0 * 2.0 * 2048.0 * 4096.0 * 2.0;
        close(moved("dp = 8\nep = 4", 8) - moved("dp = 8\nep = 8", 8), sorted, "one expert on a rank needs no sorting");
        let layers = with_step("mixtral-8x7b", "", "dp = 8\nep = 8", 8, |step| {
            (0..step.model.layers)
                .map(|layer| super::speed::of_layer(step, layer, &counting(true)).moved_bytes)
                .sum::<f64>()
        });
        // Around two blocks 10 bytes each; 3 x 2 bytes of the inner width of 2 experts; 3 copies of 2 and the sum of each token.
        let layer = 2048.0 * (2.0 * 10.0 * 4096.0 + 6.0 * 2.0 * 14336.0 + 2.0 * (3.0 * 2.0 + 1.0) * 4096.0);
        close(layers, 32.0 * layer, "by hand");
    }

    #[test]
    fn a_tiny_micro_batch_takes_as_long_as_its_kernels_take_to_start() {
        let compute = Compute { seconds_per_kernel: Seconds(1.0), ..counting(false) };
        let compute = Compute { peak_flops_per_second: f64::INFINITY, ..compute };
        with_step("gpt2", "sequence = 1", "tp = 1", 1, |step| {
            let one = compute.chunk(step, 0, 0);
            // 12 layers of 34 kernels and 6 products; 4 before and 10 after them.
            close(one.forward.0, 12.0 * 40.0 + 14.0, "forward");
            close(one.backward().0, 1.5 * one.forward.0, "backward");
            let in_graphs = Kernels { in_graphs: true, ..compute.kernels };
            close(1.0 + Compute { kernels: in_graphs, ..compute.clone() }.chunk(step, 0, 0).forward.0, 1.0, "graphs");
        });
        // 32 layers of 34 kernels, 7 products, 40 of routing and 5 for each of 2 experts; 4 before and 10 after them.
        with_step("mixtral-8x7b", "sequence = 1", "dp = 4\nep = 4", 4, |step| {
            close(compute.chunk(step, 0, 0).forward.0, 32.0 * (34.0 + 7.0 + 40.0 + 10.0) + 14.0, "experts");
        });
    }

    #[test]
    fn linear_attention_takes_as_much_for_each_token_however_long_the_sequence() {
        let operations = |model: &str, sequence: u64, weights: bool| -> f64 {
            with_step(model, &format!("sequence = {sequence}"), "tp = 1", 1, |step| {
                let products = counting(true).products(step);
                let has_weights = |product: &&Product| (product.weights == Weights::Trained) == weights;
                products.iter().filter(has_weights).map(Product::flops).sum()
            })
        };
        // In each chunk of 64 tokens and each of 32 heads of 128 the delta rule has three products of 64 x 64 x 128 for keys, two for values
        // and three of 64 x 128 x 128; 36 layers. Attention of 12 layers has 16 heads of 256, of which the mask hides half.
        let (s, rule) = (2048.0, 2.0 * (5.0 * 64.0 * 64.0 * 128.0 + 3.0 * 64.0 * 128.0 * 128.0));
        let delta = |s: f64| 36.0 * (s / 64.0) * 32.0 * rule;
        let attention = |s: f64| 12.0 * 16.0 * 0.5 * 2.0 * (2.0 * s * s * 256.0);
        close(operations(QWEN3_NEXT, 2048, false), delta(s) + attention(s), "gated DeltaNet");
        close(
            operations(QWEN3_NEXT, 8192, false),
            4.0 * delta(s) + 16.0 * attention(s),
            "gated DeltaNet, four times as long",
        );
        // Mamba-2, in chunks of 128: 8 groups compare 128 x 128 x 128; 128 heads of 64 have 128 x 128 x 64 and two of 128 x 64 x 128. 4
        // layers have attention with 32 heads of 128.
        let scan = 2.0 * (8.0 * 128.0f64.powi(3) + 128.0 * 3.0 * 128.0 * 128.0 * 64.0);
        let expected = 24.0 * (s / 128.0) * scan + 4.0 * 32.0 * 0.5 * 2.0 * (2.0 * s * s * 128.0);
        close(operations(NEMOTRON_H, 2048, false), expected, "Mamba-2");
        // Projections: two operations for each weight and token, in layers that are a mixer or a feed-forward.
        let mamba = 4096.0 * (18_560.0 + 8192.0);
        let weights = 24.0 * mamba + 4.0 * 4096.0 * (2.0 * 4096.0 + 2.0 * 1024.0) + 24.0 * 2.0 * 4096.0 * 21_504.0;
        close(operations(NEMOTRON_H, 2048, true), 2.0 * s * (weights + 4096.0 * 131_072.0), "weights of Nemotron-H");
    }

    #[test]
    fn layers_of_a_stage_that_are_not_alike_are_each_computed_as_they_are() {
        // Of 12 layers on each of 4 stages 9 have linear attention; the stages differ in their ends only.
        with_step(QWEN3_NEXT, "micro_batches = 4", "pp = 4", 4, |step| {
            let [second, third] = [1, 2].map(|stage| counting(true).stage(step, stage).forward_seconds());
            close(second, third, "stages in the middle");
            let all: f64 = (0..4).map(|stage| counting(true).stage(step, stage).forward_seconds()).sum();
            close(all, counting(true).products(step).iter().map(Product::flops).sum(), "all stages");
        });
    }
}
