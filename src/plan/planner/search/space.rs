//! Every legal way to divide a model over this many GPUs: degrees, virtual stages, and the orders of the axes.
//!
//! `workload::step` and `layout` decide what is legal, so that every other command accepts a planned layout.

use super::question::{Choices, Exchange, PipelineCut, Question, least_dp};
use commgauge_base::writing::ascending;
use commgauge_model::config::Training;
use commgauge_model::config::step::Recompute;
use commgauge_model::layout::{Axis, DEFAULT_ORDER, Degrees, Layout, Locality};
use commgauge_model::workload::step::{Stages, TrainingStep, undivided_axis};
use rayon::prelude::*;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

/// Placeholder for an irrelevant batch size.
const ONE_MICRO_BATCH: u64 = 1;

/// The further axes whose placement distinguishes orders; the ends of pipelines follow from the pipelines, and the other axes only have calls of a
/// few bytes.
const PLACED: [Axis; 8] =
    [Axis::Dp, Axis::DpCp, Axis::Edp, Axis::Pp, Axis::Mp, Axis::World, Axis::DpShard, Axis::DpReplicate];

/// Degrees, and all orders of the axes that place ranks differently.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub degrees: Degrees,
    pub orders: Vec<Order>,
    /// The same orders by the placement of the groups of their layers.
    pub places: Vec<Places>,
    /// Number of legal orders, including those with equal placement.
    pub orders_legal: u64,
}

/// An order of the axes.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub layout: Layout,
    /// Number of orders with exactly this placement of all groups, including this one.
    pub same_placement: u64,
}

/// Orders with equal placement of the groups used in every layer.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Their placement, by [`IN_LAYERS`].
    pub localities: [Locality; IN_LAYERS.len()],
    /// An id of that placement, the same in all shapes.
    pub name: usize,
    /// The orders of the shape with that placement.
    pub orders: Vec<usize>,
}

/// The axes of [`Places`].
pub(super) const IN_LAYERS: [Axis; 9] =
    [Axis::Tp, Axis::Cp, Axis::Ep, Axis::Etp, Axis::EtpEp, Axis::CpInner, Axis::CpOuter, Axis::EpInner, Axis::EpOuter];

/// Layers of the stages of each cut, if they can be distributed.
pub(super) type StagesOf = BTreeMap<PipelineCut, Stages>;

/// All divisions, and why the others are impossible.
#[derive(Debug, Default)]
pub(super) struct Space {
    pub shapes: Vec<Shape>,
    pub stages: StagesOf,
    /// Degrees that break a rule, by rule.
    pub illegal: BTreeMap<&'static str, u64>,
    /// The first of those that do not divide the model, in words.
    pub refused: Option<String>,
}

/// Intermediate results.
#[derive(Default)]
struct Known {
    /// What tp, cp or ep does not divide.
    refused: HashMap<[u32; 4], Option<String>>,
    /// The cuts of the layers over this many stages.
    cuts: HashMap<u32, Vec<PipelineCut>>,
    /// Ids of places.
    places: Names,
}

/// Ids of places.
type Names = HashMap<[Locality; IN_LAYERS.len()], usize>;

impl Space {
    /// All degrees whose product is the number of GPUs.
    pub fn of(question: &Question) -> Space {
        let mut space = Space::default();
        let mut known = Known::default();
        let gpus = question.gpus;
        let experts = question.model.mixture.as_ref().map_or(1, |mixture| mixture.experts);
        let eps: Vec<u32> = divisors(experts).into_iter().filter_map(|ep| u32::try_from(ep).ok()).collect();
        let mut legal = Vec::new();
        for pp in divisors_32(gpus) {
            for tp in divisors_32(gpus / pp) {
                for cp in divisors_32(gpus / pp / tp) {
                    let dp = gpus / pp / tp / cp;
                    for ep in eps.iter().copied() {
                        let usual = [if ep == 1 { tp } else { 1 }];
                        let given = question.only.etp.as_slice();
                        for etp in if given.is_empty() { usual.as_slice() } else { given } {
                            let degrees = Degrees { tp, cp, dp, pp, ep, etp: *etp };
                            if question.only.allows(&degrees) {
                                legal.extend(space.check(question, degrees, &mut known));
                            }
                        }
                    }
                }
            }
        }
        let orders: Vec<(Vec<Order>, u64)> = legal.par_iter().map(|degrees| orders(question, *degrees)).collect();
        for (degrees, (orders, orders_legal)) in legal.into_iter().zip(orders) {
            space.add(question, degrees, orders, orders_legal, &mut known.places);
        }
        space
    }

    /// The degrees if they break no rule.
    fn check(&mut self, question: &Question, degrees: Degrees, known: &mut Known) -> Option<Degrees> {
        let illegal = &mut self.illegal;
        let mut refuse = |rule: &'static str| {
            *illegal.entry(rule).or_default() += 1;
            None
        };
        let framework = question.bases.first.framework;
        if framework.is_some_and(|framework| undivided_axis(framework, &degrees).is_some()) {
            return refuse("the framework does not divide by tp, cp, ep or pp");
        }
        if !question.global_batch.is_multiple_of(u64::from(degrees.dp)) {
            return refuse("dp does not divide the global batch");
        }
        if degrees.edp().is_none() {
            return refuse("ep does not divide the ranks of a stage");
        }
        let refused = known
            .refused
            .entry([degrees.tp, degrees.cp, degrees.ep, degrees.etp])
            .or_insert_with(|| question.refused_without_pipeline(&degrees));
        if let Some(reason) = refused {
            self.refused.get_or_insert_with(|| reason.clone());
            return refuse("tp, cp or ep does not divide the heads, widths, experts or tokens");
        }
        // A stage may have the embedding alone, another the head.
        if degrees.pp > question.model.layers.saturating_add(2) {
            return refuse("more stages than layers");
        }
        let mut any = false;
        let cuts = known.cuts.entry(degrees.pp).or_insert_with(|| question.cuts(degrees.pp));
        for cut in cuts.iter().copied() {
            if let Entry::Vacant(place) = self.stages.entry(cut) {
                let choices = question.pipeline(cut);
                let Ok(stages) = Stages::divide(question.model.layers, degrees.pp, &choices) else { continue };
                place.insert(stages.with_prediction_layers(question.bases.first.prediction_layers));
            }
            any = true;
        }
        if !any {
            return refuse("the layers cannot be divided over pp stages in these chunks");
        }
        Some(degrees)
    }

    fn add(&mut self, question: &Question, degrees: Degrees, orders: Vec<Order>, orders_legal: u64, names: &mut Names) {
        if orders.is_empty() {
            let rule = "no order of the axes gives dense layers and experts the same pipelines";
            *self.illegal.entry(rule).or_default() += 1;
            return;
        }
        let places = by_places(question, &orders, names);
        self.shapes.push(Shape { degrees, orders, places, orders_legal });
    }
}

impl Question<'_> {
    /// Why heads, widths, experts or tokens cannot be divided this way, by a step without pipeline and replicas.
    fn refused_without_pipeline(&self, degrees: &Degrees) -> Option<String> {
        let alone = Degrees { dp: least_dp(degrees).unwrap_or(1), pp: 1, ..*degrees };
        let mut training = self.training(self.first_choices(degrees));
        (training.global_batch, training.micro_batches) = (None, Some(ONE_MICRO_BATCH));
        training.data = self.bases.plain_data.clone();
        training.pipeline.stage_layers = None;
        let step = Layout::new(alone, &DEFAULT_ORDER).and_then(|layout| {
            TrainingStep::without_messages(self.model, &training, layout, training.places.table()).map(|_| ())
        });
        step.err().map(|error| error.to_string())
    }
}

/// The distinct orders of the axes, one per placement, the usual order first; and the number of legal orders.
fn orders(question: &Question, degrees: Degrees) -> (Vec<Order>, u64) {
    let of_degree = [
        (Axis::Tp, degrees.tp.max(degrees.etp)),
        (Axis::Cp, degrees.cp),
        (Axis::Ep, degrees.ep),
        (Axis::Dp, degrees.dp.max(degrees.edp().unwrap_or(1))),
        (Axis::Pp, degrees.pp),
    ];
    let dense = !degrees.divides_experts();
    let matter = |(axis, degree): &(Axis, u32)| match axis {
        Axis::Dp if dense => degrees.dp > 1,
        _ => *degree > 1,
    };
    let axes: Vec<Axis> = of_degree.iter().filter(|axis| matter(axis)).map(|(axis, _)| *axis).collect();
    let mut found: Vec<(Vec<Locality>, Order)> = Vec::new();
    let mut legal = 0;
    for order in permutations(&axes) {
        if !question.only.order_is(&order) {
            continue;
        }
        let Ok(layout) = Layout::new(degrees, &order) else { continue };
        legal += 1;
        let divided = question.divided(&layout, &question.bases.groups);
        let places: Vec<Locality> =
            IN_LAYERS.into_iter().chain(PLACED).map(|axis| place(question, &divided, axis)).collect();
        match found.iter_mut().find(|(known, _)| *known == places) {
            Some((_, order)) => order.same_placement += 1,
            None => found.push((places, Order { layout, same_placement: 1 })),
        }
    }
    (found.into_iter().map(|(_, order)| order).collect(), legal)
}

/// The placement of the groups of an axis; unknown where the training has no calls on it.
fn place(question: &Question, layout: &Layout, axis: Axis) -> Locality {
    let training = &question.bases.groups;
    let is_used = match axis {
        Axis::CpInner | Axis::CpOuter => training.context.inner > 1,
        Axis::EpInner | Axis::EpOuter => training.expert.dispatcher.goes_by_node(),
        Axis::DpShard | Axis::DpReplicate => training.data.shards.are_divided(),
        _ => true,
    };
    if is_used && layout.group_size(axis) > 1 {
        layout.locality(axis, question.ranks_per_node)
    } else {
        Locality::UNKNOWN
    }
}

fn by_places(question: &Question, orders: &[Order], names: &mut Names) -> Vec<Places> {
    let mut found: Vec<Places> = Vec::new();
    for (index, order) in orders.iter().enumerate() {
        let layout = question.divided(&order.layout, &question.bases.groups);
        let localities = IN_LAYERS.map(|axis| place(question, &layout, axis));
        match found.iter_mut().find(|known| known.localities == localities) {
            Some(known) => known.orders.push(index),
            None => {
                let next = names.len();
                let name = *names.entry(localities.clone()).or_insert(next);
                found.push(Places { localities, name, orders: vec![index] });
            }
        }
    }
    found
}

/// All orders, starting with that of the list.
fn permutations(axes: &[Axis]) -> Vec<Vec<Axis>> {
    if axes.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (index, first) in axes.iter().enumerate() {
        let others: Vec<Axis> = axes.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, a)| *a).collect();
        for mut rest in permutations(&others) {
            rest.insert(0, *first);
            all.push(rest);
        }
    }
    all
}

/// Divisors, ascending.
pub(super) fn divisors(number: u64) -> Vec<u64> {
    let small: Vec<u64> = (1..=number.isqrt()).filter(|divisor| number.is_multiple_of(*divisor)).collect();
    let large = small.iter().rev().map(|divisor| number / divisor).filter(|large| large * large > number);
    small.iter().copied().chain(large).collect()
}

fn divisors_32(number: u32) -> Vec<u32> {
    divisors(u64::from(number)).into_iter().filter_map(|divisor| u32::try_from(divisor).ok()).collect()
}

// One training per set of choices except the micro-batch, created once and cached.

/// Trainings by their choices, with micro-batches of one sample.
pub(super) struct Trainings(HashMap<Choices, Training>);

/// Samples per micro-batch of the cached trainings.
const CACHED: u64 = 1;

impl Trainings {
    /// All trainings that the shapes can need.
    pub fn of(question: &Question, space: &Space) -> Trainings {
        let pipelines: Vec<_> = ascending(space.stages.keys().map(|cut| (cut.schedule, cut.virtual_stages)));
        let mut all = HashMap::new();
        for recompute in [Recompute::None, Recompute::Selective, Recompute::Full] {
            for zero_stage in question.bases.stages(u64::MAX) {
                for sequence_parallel in [false, true] {
                    for (schedule, virtual_stages) in pipelines.iter().copied() {
                        let with = |exchange: &Exchange| Choices {
                            zero_stage,
                            schedule,
                            virtual_stages,
                            micro_batch: CACHED,
                            recompute,
                            sequence_parallel,
                            exchange: *exchange,
                        };
                        let choices = question.bases.exchanges.iter().map(with);
                        all.extend(choices.map(|choices| (choices, question.training(choices))));
                    }
                }
            }
        }
        Trainings(all)
    }

    /// The training of these choices, with micro-batches of one sample.
    pub fn of_one_sample(&self, choices: Choices) -> Option<&Training> {
        self.0.get(&Choices { micro_batch: CACHED, ..choices })
    }

    pub fn get(&self, choices: Choices) -> Option<Training> {
        let training = self.of_one_sample(choices)?;
        Some(Training { micro_batch: choices.micro_batch, ..training.clone() })
    }
}
