//! The search against brute force on small worlds, and properties of any plan.

use super::question::PipelineCut;
use super::*;
use crate::planner::compute::Compute;
use crate::planner::memory::{MemoryFit, most_loaded};
use crate::planner::price::{Exposed, Pricing, price};
use crate::planner::rank::{RankOptions, rank};
use crate::planner::rates::{Hidden, Published, RatedCall, Rates};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Seconds;
use commgauge_cost::cost::Prediction;
use commgauge_model::config::step::{DataStyle, Dispatcher, Framework, Recompute, ScheduleKind, Work, keys_of};
use commgauge_model::config::{Machine, Model, Table, Training};
use commgauge_model::layout::{Axis, DEFAULT_ORDER, Degrees, Layout};
use commgauge_model::workload::step::{Step, TrainingStep};
use std::collections::HashSet;
use std::path::Path;

fn machine(within: f64, between: f64) -> Machine {
    let text = format!(
        "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '3us'\nrate = '{within}GB/s'\n\
         [between_nodes]\nlatency = '14us'\nadapters_per_node = 4\nrate_per_adapter = '{between}GB/s'\n"
    );
    Machine::parse(&text, Path::new("m.toml")).unwrap()
}

fn model(name: &str, layers: u32) -> Model {
    let mut model = Model::load(name).unwrap();
    model.keep_layers(layers).unwrap();
    model
}

fn training(sequence: u64, global_batch: u64, keys: &[(&'static str, String)]) -> Training {
    let batch = [("sequence", sequence.to_string()), ("global_batch", global_batch.to_string())];
    read(&[&batch, keys].concat()).unwrap()
}

fn read(keys: &[(&'static str, String)]) -> Result<Training> {
    let mut all = vec![
        ("sequence", "2048".to_owned()),
        ("global_batch", "16".to_owned()),
        ("sequence_parallel", "true".to_owned()),
    ];
    all.retain(|(name, _)| keys.iter().all(|(key, _)| key != name));
    all.extend(keys.iter().cloned());
    Training::read(Table::of_flags(all.into_iter().map(|(key, value)| ("--training", key, value))))
}

/// Links with a different time for every order of the axes, and with calls that disturb each other.
struct Uneven<'a> {
    links: Published<'a>,
    hidden: Hidden,
}

impl Rates for Uneven<'_> {
    fn price(&self, call: &RatedCall) -> Prediction {
        let prediction = self.links.price(call);
        let slower = 1.0 + 0.01 * f64::from(call.locality.stride) + 0.003 * f64::from(call.locality.nodes_spanned);
        Prediction { seconds: prediction.seconds.map(|seconds| Seconds(seconds.0 * slower)), ..prediction }
    }

    fn ground(&self, call: &RatedCall) -> String {
        self.links.ground(call)
    }

    fn hidden(&self) -> Option<&Hidden> {
        Some(&self.hidden)
    }

    fn calibrated(&self) -> bool {
        false
    }

    fn synthetic(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        "uneven links".to_owned()
    }
}

struct World {
    uneven: bool,
    /// Without sequence parallelism, and with messages in parts.
    in_parts: bool,
    /// With every way to exchange tokens.
    exchanges: bool,
    framework: Option<Framework>,
    /// Keys of the training.
    keys: Vec<(&'static str, String)>,
    model: Model,
    machine: Machine,
    compute: Compute,
    gpus: u32,
    batch: u64,
    memory: f64,
    only: Only,
    wanted: usize,
}

impl World {
    fn new(name: &str, layers: u32, gpus: u32) -> World {
        World {
            uneven: false,
            in_parts: false,
            exchanges: false,
            framework: None,
            keys: Vec::new(),
            model: model(name, layers),
            machine: machine(100.0, 5.0),
            compute: Compute::constant(100e12, 0.5),
            gpus,
            batch: 16,
            memory: 40e9,
            only: Only::default(),
            wanted: 10,
        }
    }

    fn found(&self) -> Found {
        search(&self.question(self.rates().as_ref()))
    }

    fn rates(&self) -> Box<dyn Rates + '_> {
        let links = Published::new(&self.machine);
        let hidden = Hidden::while_calling(Axis::Dp, Collective::AllGather, Axis::Pp, 1.7);
        if self.uneven { Box::new(Uneven { links, hidden }) } else { Box::new(links) }
    }

    fn question<'a>(&'a self, rates: &'a dyn Rates) -> Question<'a> {
        let mut base = training(2048, self.batch, &self.keys);
        base.tensor.sequence_parallel = !self.in_parts;
        base.pipeline.scatter_gather = self.in_parts;
        let mut bases = match self.framework {
            None => Bases::of(&self.model, &base),
            Some(framework) => {
                Bases::of_framework(framework, &self.model, None, |style| self.training_of(framework, style))
            }
        }
        .unwrap();
        if self.exchanges {
            bases.choose_exchange(|_| false);
        }
        Question {
            model: &self.model,
            bases,
            global_batch: self.batch,
            gpus: self.gpus,
            ranks_per_node: 4,
            gpu_memory: Bytes(self.memory as u64),
            compute: &self.compute,
            rates,
            only: self.only.clone(),
            wanted: self.wanted,
            results: Results::Layouts,
        }
    }

    fn training_of(&self, framework: Framework, style: DataStyle) -> Result<Training> {
        Training::read(Table::of_flags(vec![
            ("--sequence", "sequence", "2048".to_owned()),
            ("--global-batch", "global_batch", self.batch.to_string()),
            ("--framework", "framework", framework.name().to_owned()),
            ("--only", "data_style", style.name().to_owned()),
        ]))
    }

    /// Every layout that the other commands accept: how many, how many fit, and the prices of those, ascending.
    fn brute_force(&self) -> (u64, u64, Vec<f64>) {
        let rates = self.rates();
        let question = self.question(rates.as_ref());
        let (mut legal, mut fits, mut prices) = (0, 0, Vec::new());
        let up_to = |most: u32| 1..=most;
        let experts = self.model.mixture.as_ref().map_or(1, |mixture| mixture.experts as u32);
        let all = |degrees: &Degrees| degrees.world() == u64::from(self.gpus);
        for tp in up_to(self.gpus) {
            for cp in up_to(self.gpus / tp) {
                for pp in up_to(self.gpus / tp / cp) {
                    for ep in up_to(experts) {
                        let dp = self.gpus / tp / cp / pp;
                        let degrees = Degrees { tp, cp, dp, pp, ep, etp: if ep == 1 { tp } else { 1 } };
                        if !all(&degrees) || !question.only.allows(&degrees) {
                            continue;
                        }
                        for choices in self.choices(&question, &degrees) {
                            let mut training = question.training(choices);
                            let Choices { schedule, virtual_stages, .. } = choices;
                            training.pipeline = question.pipeline(PipelineCut { pp, schedule, virtual_stages });
                            for order in permutations_of(&degrees) {
                                let Ok(layout) = Layout::new(degrees, &order) else { continue };
                                let step = TrainingStep::new(&self.model, &training, layout, training.places.table());
                                let Ok(step) = step else { continue };
                                legal += 1;
                                let need = question.need(most_loaded(&step).1.total().0);
                                if need.fit(question.gpu_memory) == MemoryFit::DoesNotFit {
                                    continue;
                                }
                                fits += 1;
                                prices.push(
                                    price(
                                        &step,
                                        Pricing { compute: &self.compute, rates: rates.as_ref(), ranks_per_node: 4 },
                                    )
                                    .unwrap()
                                    .step_seconds,
                                );
                            }
                        }
                    }
                }
            }
        }
        prices.sort_by(f64::total_cmp);
        (legal, fits, prices)
    }

    fn choices(&self, question: &Question, degrees: &Degrees) -> Vec<Choices> {
        let mut all = Vec::new();
        let mut stages: Vec<u8> = (0..4).filter(|stage| question.bases.stage(*stage).is_some()).collect();
        // Without replicas there is nothing to shard.
        stages.truncate(if degrees.dp * degrees.cp == 1 { 1 } else { 4 });
        for zero_stage in stages {
            for PipelineCut { schedule, virtual_stages, .. } in question.cuts(degrees.pp) {
                for micro_batch in 1..=self.batch {
                    for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
                        let choices = Choices {
                            zero_stage,
                            schedule,
                            virtual_stages,
                            micro_batch,
                            recompute,
                            ..question.first_choices(degrees)
                        };
                        let exchanges = question.exchanges_of(degrees, choices);
                        let of = |place: u8| question.bases.exchanges[usize::from(place)];
                        all.extend(exchanges.map(|place| Choices { exchange: of(place), ..choices }));
                    }
                }
            }
        }
        all
    }
}

/// Orders of the axes above degree 1 in either grid.
fn permutations_of(degrees: &Degrees) -> Vec<Vec<Axis>> {
    let matters = |axis: &Axis| match axis {
        Axis::Tp => degrees.tp.max(degrees.etp) > 1,
        Axis::Cp => degrees.cp > 1,
        Axis::Ep => degrees.ep > 1,
        Axis::Dp => degrees.dp > 1 || (degrees.divides_experts() && degrees.edp().unwrap_or(1) > 1),
        _ => degrees.pp > 1,
    };
    let axes: Vec<Axis> = DEFAULT_ORDER.into_iter().filter(matters).collect();
    let mut all: Vec<Vec<Axis>> = vec![Vec::new()];
    for axis in axes {
        all = all
            .iter()
            .flat_map(|order| {
                (0..=order.len()).map(|place| {
                    let mut longer = order.clone();
                    longer.insert(place, axis);
                    longer
                })
            })
            .collect();
    }
    all
}

#[test]
fn what_is_found_is_what_pricing_every_layout_finds() {
    for (name, layers, gpus, memory, uneven, framework) in [
        ("llama-3-8b", 4, 8, 40e9, false, None),
        ("llama-3-8b", 4, 8, 40e9, true, None),
        ("llama-3-8b", 4, 8, 15e9, false, None),
        ("gpt2", 6, 6, 40e9, false, None),
        ("llama-3-8b", 5, 8, 40e9, true, None),
        ("mixtral-8x7b", 2, 4, 60e9, false, None),
        ("mixtral-8x7b", 2, 4, 60e9, true, None),
        ("llama-3-8b", 4, 8, 60e9, true, Some(Framework::Megatron)),
        ("llama-3-8b", 4, 8, 60e9, true, Some(Framework::DeepSpeed)),
        ("llama-3-8b", 4, 8, 60e9, true, Some(Framework::Fsdp2)),
        ("llama-3-8b", 4, 8, 60e9, true, Some(Framework::Torchtitan)),
        ("llama-3-8b", 4, 8, 60e9, true, Some(Framework::HuggingFace)),
        ("llama-3-8b", 4, 8, 60e9, true, Some(Framework::Ddp)),
        ("llama-3-8b", 4, 8, 60e9, true, Some(Framework::Fsdp1)),
        ("mixtral-8x7b", 2, 4, 90e9, true, Some(Framework::Megatron)),
    ] {
        let mut world = World::new(name, layers, gpus);
        (world.memory, world.batch, world.uneven, world.framework) = (memory, 8, uneven, framework);
        world.in_parts = name == "llama-3-8b" && memory < 20e9;
        if name == "gpt2" {
            world.batch = u64::from(gpus);
        }
        let (legal, fits, prices) = world.brute_force();
        assert!(fits > 0 && fits <= legal, "{name}: {fits} of {legal}");
        world.wanted = usize::MAX;
        let all = world.found();
        assert_eq!((all.considered, all.feasible), (legal, fits), "{name}");
        let mut expected: Vec<f64> = Vec::new();
        for found in &all.best {
            expected.extend(vec![found.price.step_seconds; found.layout.orders_alike as usize]);
        }
        expected.sort_by(f64::total_cmp);
        assert_eq!(expected.len(), prices.len(), "{name}");
        assert!(expected.iter().zip(&prices).all(|(a, b)| (a / b - 1.0).abs() < 1e-9), "{name}");
        world.wanted = 5;
        let best = world.found();
        let seconds = |found: &Found| found.best.iter().map(|best| best.price.step_seconds).collect::<Vec<_>>();
        let wanted = all.best.len().min(5);
        assert_eq!(seconds(&best), seconds(&all)[..wanted], "{name}");
        // One more than requested may have to be priced to know that.
        assert!(all.best.len() <= wanted + 1 || best.priced < all.priced, "{name}: {} of {}", best.priced, all.priced);
    }
}

#[test]
fn layers_that_are_repeated_in_part_or_trained_in_part_are_found_as_if_everything_were_priced() {
    for keys in [
        vec![("recompute_layers", "1"), ("recompute_method", "block")],
        vec![("recompute_layers", "2")],
        vec![("recompute_modules", "layernorm,PART")],
        vec![("lora_rank", "8"), ("optimizer_offload", "50")],
        vec![("trainable_layers", "1")],
        vec![("trainable_layers", "2"), ("lora_rank", "8"), ("lora_modules", "qkv,fc2")],
    ] {
        for (name, part, layers, memory) in [("llama-3-8b", "mlp", 4, 25e9), ("mixtral-8x7b", "moe_act", 2, 60e9)] {
            let mut world = World::new(name, layers, 4);
            (world.memory, world.batch, world.uneven, world.wanted) = (memory, 4, true, usize::MAX);
            world.keys = keys.iter().map(|(key, value)| (*key, value.replace("PART", part))).collect();
            let (legal, fits, prices) = world.brute_force();
            let all = world.found();
            assert_eq!((all.considered, all.feasible), (legal, fits), "{name} {keys:?}");
            world.wanted = 1;
            let best = world.found().best[0].price.step_seconds;
            assert!((best / prices[0] - 1.0).abs() < 1e-9, "{name} {keys:?}: {best} against {}", prices[0]);
        }
    }
}

#[test]
fn exchanges_are_chosen_as_if_everything_were_priced_and_may_be_given() {
    for framework in [None, Some(Framework::Megatron)] {
        let mut world = World::new("mixtral-8x7b", 4, 4);
        (world.memory, world.batch, world.uneven, world.framework) = (190e9, 4, true, framework);
        world.only.ep = vec![2, 4];
        let fixed = world.found().best[0].price.step_seconds;
        world.exchanges = true;
        let best = world.found().best[0].clone();
        let (_, _, prices) = world.brute_force();
        let seconds = best.price.step_seconds;
        // Bytes of layers are known to a thousandth.
        assert!((seconds / prices[0] - 1.0).abs() < 1e-5, "{framework:?}: {seconds} against {}", prices[0]);
        let exchange = best.layout.exchange.expect("of ranks with different experts");
        assert!(seconds < fixed, "{framework:?}: {exchange:?}");
        world.only = best.layout.only();
        let again = world.found().best[0].clone();
        assert_eq!((again.layout.exchange, again.price.step_seconds), (Some(exchange), seconds));
        world.only = Only { dispatcher: vec![Dispatcher::AllToAll], overlap_exchange: vec![false], ..world.only };
        let plain = world.found().best.into_iter().next().map(|plain| plain.price.step_seconds);
        assert!(plain.is_none_or(|plain| plain >= seconds), "{framework:?}");
    }
}

#[test]
fn divided_groups_are_searched_as_if_everything_were_priced() {
    for (model, layers, gpus, keys) in [
        ("llama-3-8b", 4, 8, "replicas_of_shards=2"),
        ("llama-3-8b", 4, 8, "context_style=hybrid context_inner=2"),
        ("llama-3-8b", 4, 8, "secondary_shards=2"),
        ("mixtral-8x7b", 2, 8, "dispatcher=deepep expert_inner=2"),
        ("mixtral-8x7b", 2, 4, "prediction_layers=1"),
    ] {
        let mut world = World::new(model, layers, gpus);
        (world.memory, world.batch, world.uneven) = (90e9, 8, true);
        let pairs = keys.split(' ').filter_map(|pair| pair.split_once('='));
        world.keys = pairs.map(|(key, value)| (key, value.to_owned())).collect();
        let (legal, fits, prices) = world.brute_force();
        let found = world.found();
        assert_eq!((found.considered, found.feasible), (legal, fits), "{keys}");
        let best = found.best[0].price.step_seconds;
        assert!((best / prices[0] - 1.0).abs() < 1e-9, "{keys}: {best} against {}", prices[0]);
    }
}

#[test]
fn schedules_that_are_asked_for_are_searched_as_if_everything_were_priced() {
    for schedule in [
        ScheduleKind::ZbH1,
        ScheduleKind::ZbV,
        ScheduleKind::DualPipe,
        ScheduleKind::GPipe,
        ScheduleKind::InterleavedZb,
    ] {
        let mut world = World::new("llama-3-8b", 5, 4);
        world.only = Only { schedule: vec![schedule], ..Only::default() };
        world.wanted = usize::MAX;
        let (legal, fits, prices) = world.brute_force();
        let found = world.found();
        assert_eq!((found.considered, found.feasible), (legal, fits), "{schedule}");
        let best = found.best[0].price.step_seconds;
        assert!((best / prices[0] - 1.0).abs() < 1e-9, "{schedule}: {best} against {}", prices[0]);
        let of_two = |found: &&Priced| found.layout.degrees.pp == 2;
        let named = found.best.iter().find(of_two).expect("a pipeline");
        assert!(named.layout.name().contains(&format!("schedule={schedule},")), "{}", named.layout.name());
    }
}

#[test]
fn a_bubble_that_weight_gradients_fill_is_shorter_and_mirrored_stages_compute_once() {
    let price_of = |schedule: ScheduleKind| {
        let mut world = World::new("llama-3-8b", 8, 4);
        world.memory = 200e9;
        world.only = Only {
            pp: vec![4],
            schedule: vec![schedule],
            virtual_stages: vec![1],
            micro_batch: vec![1],
            recompute: vec![Recompute::None],
            ..Only::default()
        };
        world.found().best[0].price.clone()
    };
    let (plain, zero, dual) =
        (price_of(ScheduleKind::OneForwardOneBackward), price_of(ScheduleKind::ZbH1), price_of(ScheduleKind::DualPipe));
    assert!(zero.bubble_seconds < plain.bubble_seconds, "{zero:?} {plain:?}");
    assert_eq!(zero.compute_seconds, plain.compute_seconds);
    // The first and the last rank share the first and the last stage; the last has the head.
    let share = dual.compute_seconds / plain.compute_seconds;
    assert!((0.6..=1.0).contains(&share), "{dual:?} {plain:?}");
}

#[test]
fn deepseek_v3_is_planned_on_sixteen_uneven_stages() {
    let mut world = World::new("deepseek-v3", 61, 256);
    (world.memory, world.batch) = (1e15, 256);
    world.only = Only {
        tp: vec![1],
        cp: vec![1],
        ep: vec![8],
        pp: vec![16],
        micro_batch: vec![1],
        zero_stage: vec![1],
        recompute: vec![Recompute::Full],
        virtual_stages: vec![1],
        ..Only::default()
    };
    let best = &world.found().best[0].layout;
    let layers = best.stage_layers.as_ref().expect("uneven");
    assert_eq!((layers.len(), layers.iter().sum::<u32>(), layers[0], layers[15]), (16, 61, 2, 3));
}

#[test]
fn faster_links_and_more_memory_never_make_the_best_slower() {
    let best = |world: &World| world.found().best[0].price.step_seconds;
    let mut world = World::new("llama-3-8b", 8, 16);
    let mut before = f64::INFINITY;
    for (within, between) in [(10.0, 1.0), (10.0, 5.0), (100.0, 5.0), (400.0, 50.0)] {
        world.machine = machine(within, between);
        let seconds = best(&world);
        assert!(seconds <= before, "{within} {between}: {seconds} after {before}");
        before = seconds;
    }
    for memory in [12e9, 20e9, 40e9, 80e9] {
        world.memory = memory;
        let seconds = best(&world);
        if memory > 12e9 {
            assert!(seconds <= before, "{memory}: {seconds} after {before}");
        }
        before = seconds;
    }
}

#[test]
fn without_a_fitting_layout_the_nearest_is_named_and_a_named_layout_is_still_priced() {
    let mut world = World::new("llama-3-8b", 4, 8);
    world.memory = 1e9;
    let found = world.found();
    assert!(found.best.is_empty() && found.feasible == 0 && found.considered > 0);
    let nearest = found.nearest.unwrap();
    assert!(nearest.fit == MemoryFit::DoesNotFit && nearest.memory.low > Bytes(1_000_000_000));
    world.only = Only { tp: vec![2], dp: vec![4], micro_batch: vec![1], ..Only::default() };
    let found = world.found();
    let named = |best: &Priced| best.layout.fit == MemoryFit::DoesNotFit && best.layout.degrees.tp == 2;
    assert!(!found.best.is_empty() && found.best.iter().all(named));
}

#[test]
fn the_fastest_layout_that_surely_fits_is_always_shown() {
    let mut edges = 0;
    for memory in [16e9, 20e9, 24e9, 28e9, 32e9, 40e9, 60e9] {
        let mut world = World::new("llama-3-8b", 4, 8);
        (world.memory, world.wanted) = (memory, usize::MAX);
        let sure = |all: &[Priced]| {
            let sure = all.iter().filter(|one| one.layout.fit == MemoryFit::Fits);
            sure.map(|sure| sure.price.step_seconds).min_by(f64::total_cmp)
        };
        let fastest = sure(&world.found().best);
        let rates = world.rates();
        let shown = families(&Question { wanted: 2, ..world.question(rates.as_ref()) }).best;
        assert!(shown.len() <= 3 && shown.iter().all(|one| one.layout.may_run()), "{memory}");
        let names: HashSet<String> = shown.iter().map(|one| one.layout.name()).collect();
        assert_eq!(names.len(), shown.len(), "{memory}: no layout is shown twice");
        let ratio = sure(&shown).zip(fastest).map(|(shown, fastest)| shown / fastest);
        assert_eq!(ratio.is_some(), fastest.is_some(), "{memory}");
        assert!(ratio.is_none_or(|ratio| (1.0..=1.0 + ALIKE).contains(&ratio)), "{memory}: {ratio:?}");
        edges += usize::from(shown[0].layout.fit == MemoryFit::AtTheEdge);
    }
    assert!(edges > 0);
}

#[test]
fn given_parts_of_the_layout_are_respected() {
    let mut world = World::new("llama-3-8b", 4, 8);
    world.only = Only {
        tp: vec![2],
        pp: vec![2],
        zero_stage: vec![1],
        recompute: vec![Recompute::Full],
        order: vec![vec![Axis::Tp, Axis::Pp, Axis::Dp]],
        ..Only::default()
    };
    let found = world.found();
    for best in &found.best {
        let layout = &best.layout;
        assert_eq!((layout.degrees.tp, layout.degrees.pp, layout.zero_stage), (2, 2, 1));
        assert!(layout.recompute == Recompute::Full && layout.order.starts_with("tp-pp-dp") || layout.degrees.cp > 1);
    }
    assert!(!found.best.is_empty());
}

#[test]
fn one_node_that_is_much_faster_inside_keeps_tensor_parallelism_there() {
    let mut world = World::new("llama-3-70b", 8, 16);
    (world.machine, world.memory) = (machine(400.0, 2.0), 40e9);
    let found = world.found();
    let best = &found.best[0].layout;
    assert!(best.degrees.tp <= 4 && best.order.starts_with("tp"), "{best:?}");
}

/// Values of keys that take no names.
const VALUES: [(&str, &[&str]); 23] = [
    ("bucket_parameters", &["1000000"]),
    ("capacity_factor", &["1.5"]),
    ("context_inner", &["2", "3"]),
    ("expert_inner", &["1", "2", "4", "3"]),
    ("live_parameters", &["0", "1000000"]),
    ("lora_modules", &["qkv", "proj,fc2"]),
    ("lora_rank", &["1", "16"]),
    ("optimizer_offload", &["0", "50", "100"]),
    ("persistent_parameters", &["0", "1000000000"]),
    ("prediction_layers", &["1"]),
    ("prefetch_bucket", &["0"]),
    ("quantised_gradients", &["2", "3"]),
    ("replicas_of_shards", &["2", "4", "3"]),
    ("recompute_layers", &["1", "2", "100"]),
    (
        "recompute_modules",
        &["core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts", "mlp,moe"],
    ),
    ("reuse_distance", &["0"]),
    ("routing", &["random", "hot:0.5"]),
    ("routing_seed", &["2"]),
    ("secondary_shards", &["2", "3"]),
    ("small_calls", &["none", "norm"]),
    ("stage_layers", &["1,3", "0,4", "4,0"]),
    ("placements", &["in-place"]),
    ("trainable_layers", &["1", "3", "100"]),
];

/// The values that a key accepts: those that the refusal of another one names, or those of [`VALUES`].
fn values_of(key: &'static str) -> Vec<String> {
    if let Some((_, values)) = VALUES.iter().find(|(name, _)| *name == key) {
        return values.iter().map(|value| (*value).to_owned()).collect();
    }
    let refusal = read(&[(key, "?".to_owned())]).unwrap_err().to_string();
    let (_, names) = refusal.rsplit_once("accepted: ").unwrap_or_else(|| panic!("{key}: {refusal}"));
    let names = names.split(", ").flat_map(|names| names.split(" or ")).map(str::to_owned);
    // A refusal of a type names more types than the key takes.
    names
        .filter(|name| !read(&[(key, name.clone())]).is_err_and(|error| error.to_string().contains("found ")))
        .collect()
}

/// The training with a key, and with the keys that this one needs; or its refusal.
fn with_needs(model: &Model, key: &'static str, value: &str) -> std::result::Result<Bases, String> {
    let mut keys = vec![(key, value.to_owned())];
    match (key, value) {
        ("recompute_method", _) => keys.push(("recompute_layers", "1".to_owned())),
        ("lora_modules", _) => keys.push(("lora_rank", "8".to_owned())),
        ("context_style", "hybrid") => keys.push(("context_inner", "2".to_owned())),
        ("replica_reduction" | "outer_sharding", _) => keys.push(("replicas_of_shards", "2".to_owned())),
        _ => {}
    }
    loop {
        let training = read(&keys).map_err(|error| error.to_string())?;
        let refusal = match Bases::of(model, &training) {
            Ok(bases) => return Ok(bases),
            Err(error) => error.to_string(),
        };
        let needed = refusal.split_once(" needs ").and_then(|(_, rest)| rest.split_once(" = "));
        let (needed, rest) = needed.ok_or_else(|| refusal.clone())?;
        let needed = keys_of(Work::Training).find(|known| *known == needed).ok_or_else(|| refusal.clone())?;
        let value = rest.split([',', ';', ' ']).next().unwrap_or_default();
        if keys.iter().any(|(known, _)| *known == needed) {
            return Err(refusal);
        }
        keys.push((needed, value.to_owned()));
    }
}

#[test]
fn every_key_is_priced_as_its_step_is_or_refused_with_its_own_reason() {
    let dense = Only { tp: vec![2], cp: vec![4], pp: vec![2], dp: vec![4], ..Only::default() };
    let experts = Only { tp: vec![1], cp: vec![1], pp: vec![2], ep: vec![4], dp: vec![8], ..Only::default() };
    let (mut priced, mut refused, mut wrong) = (0, Vec::new(), Vec::new());
    for (model, layers, gpus, only) in [("llama-3-8b", 4, 64, dense), ("mixtral-8x7b", 4, 16, experts)] {
        let mut world = World::new(model, layers, gpus);
        world.memory = 1e15;
        world.uneven = true;
        // One order of the axes, in which every group reaches over nodes.
        world.only = Only {
            micro_batch: vec![1],
            recompute: vec![Recompute::Selective],
            virtual_stages: vec![1],
            order: vec![DEFAULT_ORDER.to_vec()],
            ..only
        };
        let rates = world.rates();
        for (key, value) in keys_and_values() {
            let name = format!("{model}: {key} = {value}");
            let bases = match with_needs(&world.model, key, &value) {
                Ok(bases) => bases,
                Err(reason) => {
                    refused.push(format!("{name}: {reason}"));
                    continue;
                }
            };
            for stage in ZERO_STAGES.into_iter().filter(|stage| bases.stage(*stage).is_some()) {
                let name = format!("{name}, ZeRO {stage}");
                let of_layers = ["recompute_layers", "recompute_method"].contains(&key);
                let recompute = vec![if of_layers { Recompute::Full } else { Recompute::Selective }];
                let mut only = Only { zero_stage: vec![stage], recompute, ..world.only.clone() };
                if key == "trainable_layers" {
                    // Without stages there are twice as many replicas.
                    (only.pp, only.dp) = (vec![1], vec![2 * only.dp[0]]);
                }
                let question = Question { bases: bases.clone(), only, ..world.question(rates.as_ref()) };
                let found = search(&question);
                match found.best.first() {
                    None => refused.push(format!("{name}: {}", found.refused.unwrap_or_default())),
                    Some(best) => {
                        priced += 1;
                        let differences = differences_to_its_step(&question, best).into_iter();
                        wrong.extend(differences.map(|difference| format!("{name}: {difference}")));
                    }
                }
            }
        }
    }
    // A reason says what is right.
    let has_reason = |text: &&String| text.contains("accepted: ") || text.contains("nearest that do: ");
    wrong.extend(refused.iter().filter(|refusal| !has_reason(refusal)).cloned());
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(priced > 700 && refused.len() < 100, "{priced} priced, refused: {refused:#?}");
}

fn keys_and_values() -> impl Iterator<Item = (&'static str, String)> {
    let keys = keys_of(Work::Training).filter(|key| !CHOSEN_KEYS.contains(key));
    keys.flat_map(|key| values_of(key).into_iter().map(move |value| (key, value)))
}

/// What differs between a found layout and its step as `rank` ranks it: price, waiting, memory.
fn differences_to_its_step(question: &Question, best: &Priced) -> Vec<String> {
    let layout = &best.layout;
    let options = RankOptions { resamples: 2, seed: 1 };
    let ranked = question.with_step(layout, |step| {
        let place = step.training.places.table();
        let whole = TrainingStep::new(question.model, step.training, step.layout.clone(), place)?;
        let price = price(&whole, question.pricing()).map_err(|error| Error::usage(error.to_string()))?;
        let memory = question.need(question.compute.kernels.most_loaded(&whole).1.total().0);
        let ranked = rank(&Step::Training(whole), question.ranks_per_node, question.rates, options)?;
        Ok((price, memory, ranked))
    });
    let (price, memory, ranked) = match ranked {
        Ok(all) => all,
        Err(error) => return vec![error.to_string()],
    };
    let by_node = [Axis::EpInner, Axis::EpOuter];
    let exchanges = ranked.axes.iter().filter(|axis| by_node.contains(&axis.cost.axis));
    let exchanges: f64 = exchanges.map(|axis| axis.cost.exposed.middle).sum();
    let mut all = vec![
        ("memory".to_owned(), memory.middle.0 as f64, layout.memory.middle.0 as f64),
        ("step".to_owned(), price.step_seconds, best.price.step_seconds),
    ];
    let exposed = price.exposed.values().into_iter().zip(best.price.exposed.values());
    all.extend(Exposed::NAMES.iter().zip(exposed).map(|(axis, (a, b))| ((*axis).to_owned(), a, b)));
    // Exchanges that nothing hides take in a plan what they take in a ranking.
    if exchanges > 0.0 {
        all.push(("ep in rank".to_owned(), exchanges, best.price.exposed.ep));
    }
    let differ = |a: f64, b: f64| (a - b).abs() > 1e-6 * a.abs().max(b.abs());
    all.into_iter().filter(|(_, a, b)| differ(*a, *b)).map(|(what, a, b)| format!("{what} {a} against {b}")).collect()
}

#[test]
fn every_division_has_a_bound_by_every_dispatcher() {
    for dispatcher in [Dispatcher::AllToAll, Dispatcher::AllGather, Dispatcher::DeepEp, Dispatcher::HybridEp] {
        let mut world = World::new("deepseek-v3", 8, 64);
        world.keys = vec![("dispatcher", dispatcher.name().to_owned())];
        let rates = world.rates();
        let question = world.question(rates.as_ref());
        let space = Space::of(&question);
        let mut bounds = Bounds::new(&question, &space);
        for shape in &space.shapes {
            let choices = question.first_choices(&shape.degrees);
            for places in &shape.places {
                assert!(
                    bounds.busy(&question, shape, places, choices).is_some(),
                    "{dispatcher}, {:?}: without a bound every one of its layouts is priced",
                    shape.degrees
                );
            }
        }
        assert!(space.shapes.iter().any(|shape| shape.degrees.ep == 64), "{dispatcher}");
    }
}
