//! A plan as text: the best layouts as a table with the breakdown of the first, as CSV, and two layouts side by side.

use crate::chart::{Axis, Bar, Bars, Plot, Point, Series, Unit, xy};
use crate::report::document::{Badge, Block, Figure, Mark, Terminal, Tone};
use crate::report::framework_defaults;
use crate::report::template::{self, lines, prose};
use crate::report::text::{fields_csv, object};
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use commgauge_plan::planner::memory::MemoryFit;
use commgauge_plan::planner::plan_document::{Comparison, PlanDocument, PlannedLayout};
use commgauge_plan::planner::price::Exposed;
use minijinja::context;
use minijinja::value::Serde;
use std::collections::BTreeMap;

const COLUMNS: &str = "tp cp ep pp virtual_stages dp zero_stage micro_batch micro_batches recompute dispatcher overlap_exchange order memory_bytes memory_bytes_low \
    memory_bytes_high memory_fit \
    step_seconds step_seconds_low step_seconds_high compute_seconds host_seconds bubble_seconds optimizer_seconds";

/// The layouts as CSV: one line for each, in base units.
///
/// # Errors
/// Where it cannot be written.
pub fn csv(document: &PlanDocument) -> Result<String> {
    let exposed = Exposed::NAMES.map(|name| format!("exposed_{name}_seconds=exposed_communication_seconds/{name}"));
    let columns = format!("{COLUMNS} {} limited_by calibrated synthetic untrusted=is_untrusted", exposed.join(" "));
    let rows = document.layouts.iter().map(|layout| {
        let mut row = object(layout)?;
        row.insert("calibrated".to_owned(), document.calibrated.into());
        row.insert("synthetic".to_owned(), document.synthetic.into());
        row.insert("is_untrusted".to_owned(), (!layout.price.untrusted.is_empty()).into());
        Ok(row)
    });
    fields_csv("the plan as CSV", &columns, rows.collect::<Result<Vec<_>>>()?)
}

// The plan for people: its basis, the best layouts, the breakdown of the first, and the certainty of the order.

/// The choice for a terminal of this width.
pub fn table_text(document: &PlanDocument, width: u16) -> String {
    Terminal::plain(width).draw(&choice(document))
}

/// The choice and what it is made of.
pub fn details_text(document: &PlanDocument, width: u16) -> String {
    Terminal::plain(width).draw(&blocks(document))
}

/// The best layouts, and what decides between them.
fn choice(document: &PlanDocument) -> Vec<Block> {
    let card = document.layouts.first().map(|best| Block::Strong(card(best)));
    let [marks, facts] = head(document).map(|lines| Block::marked(Mark::Close, lines));
    [marks].into_iter().chain(card).chain([facts]).chain(choices(document)).collect()
}

/// The table of the best layouts, and what decides between them.
pub(super) fn choices(document: &PlanDocument) -> Vec<Block> {
    let mut blocks = tables("layouts", document);
    blocks.push(Block::apart(Mark::Flush, said("what decides", document)));
    blocks.extend(tables("what if", document));
    blocks
}

/// The plan, whatever it is written for.
fn blocks(document: &PlanDocument) -> Vec<Block> {
    [choice(document), made_of(document)].concat()
}

/// The parts of the best layout's step and of its memory, and what they rest on.
pub(super) fn made_of(document: &PlanDocument) -> Vec<Block> {
    let said = Block::apart(Mark::Flush, said("details", document));
    let framework = document.framework.as_ref().map(|choices| Block::apart(Mark::Close, framework_defaults(choices)));
    tables("made of", document).into_iter().chain([said]).chain(framework).collect()
}

/// A layout by its degrees, such as `tp4 cp2 pp4 dp2`.
fn short_name(layout: &PlannedLayout) -> String {
    let degrees = &layout.layout.degrees;
    let named = [("tp", degrees.tp), ("cp", degrees.cp), ("ep", degrees.ep), ("pp", degrees.pp), ("dp", degrees.dp)];
    let named: Vec<String> =
        named.into_iter().filter(|(_, degree)| *degree > 1).map(|(axis, degree)| format!("{axis}{degree}")).collect();
    if named.is_empty() { "one GPU".to_owned() } else { named.join(" ") }
}

/// A layout with the time of its step.
fn card(layout: &PlannedLayout) -> String {
    let price = &layout.price;
    let [step, low, high] = [price.step_seconds, price.step_seconds_low, price.step_seconds_high].map(Seconds);
    format!("{}: {step} a step ({low} .. {high})", short_name(layout))
}

/// Layouts with a bar.
const MAX_BARS: usize = 10;

/// The first screen of a page: the best layout in large letters, and what the steps of the best ones are made of.
pub(super) fn first_screen(document: &PlanDocument) -> Vec<Block> {
    let Some(best) = document.layouts.first() else {
        return vec![Block::absent("No layout fits and has a price."), Block::list(head(document).concat())];
    };
    let badge = Badge {
        tone: if document.synthetic || !document.calibrated { Tone::Unsure } else { Tone::Plain },
        question: "The fastest layout, with the range of 95 of 100 such steps".to_owned(),
        answer: card(best),
        detail: format!("GB on its fullest GPU: {}; limited by {}", memory_of(best), best.limited_by),
    };
    let mut figures = vec![Figure::new("The best layouts", bars(document).draw())];
    figures.extend(pareto(document).map(|plot| Figure::new("More GPUs", plot.draw())));
    vec![Block::Badges(vec![badge]), Block::Charts(figures), Block::list(head(document).concat())]
}

/// The step of the best layout of each degrees, by its parts.
fn bars(document: &PlanDocument) -> Bars {
    let mut best: Vec<(String, &PlannedLayout)> = Vec::new();
    for layout in &document.layouts {
        let gpus = if document.gpus_compared.is_empty() { String::new() } else { format!("{} GPUs, ", layout.gpus) };
        let name = gpus + &short_name(layout);
        if !best.iter().any(|(known, _)| *known == name) {
            best.push((name, layout));
        }
    }
    let bar = |(label, layout): (String, &PlannedLayout)| {
        let price = &layout.price;
        let parts = [price.compute_seconds, price.exposed.total(), price.bubble_seconds];
        let other = (price.step_seconds - parts.iter().sum::<f64>()).max(0.0);
        let parts = parts.into_iter().chain([other]).collect();
        Bar { label, parts, interval: None, note: Seconds(price.step_seconds).to_string() }
    };
    let bars = best.into_iter().take(MAX_BARS).map(bar).collect();
    let parts = ["compute", "exposed calls", "bubble", "other"].map(str::to_owned).to_vec();
    let description = "Time of a step by its parts, the best layout of each degrees.".to_owned();
    Bars { bars, parts, description, ..Bars::new("Time of a step", Axis::linear("", Unit::Seconds)) }
}

/// The fastest step of each number of GPUs, where several were asked about.
fn pareto(document: &PlanDocument) -> Option<Plot> {
    let mut best: BTreeMap<u64, &PlannedLayout> = BTreeMap::new();
    for layout in document.layouts.iter().rev() {
        best.insert(layout.gpus, layout);
    }
    let point = |(gpus, layout): (&u64, &&PlannedLayout)| {
        let price = &layout.price;
        Point::between(*gpus as f64, price.step_seconds, price.step_seconds_low, price.step_seconds_high)
    };
    let points: Vec<Point> = best.iter().map(point).collect();
    let curve = points.iter().map(|point| xy(point.x, point.y)).collect();
    let mut x = Axis::linear("GPUs", Unit::Count);
    x.ticks = best.keys().map(|gpus| (*gpus as f64, gpus.to_string())).collect();
    let series = vec![Series { points, curve, ..Series::new("fastest step") }];
    let plot = Plot { series, ..Plot::new("More GPUs", x, Axis::linear("time of a step", Unit::Seconds)) };
    (best.len() > 1).then_some(plot)
}

/// A byte count in decimal GB, as memory of GPUs is given.
fn gigabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e9)
}

/// What makes the plan doubtful, and what was asked and searched.
fn head(document: &PlanDocument) -> [Vec<String>; 2] {
    ["marks", "facts"].map(|part| said(part, document))
}

/// A part of what is said of a plan, in sentences.
fn said(part: &str, document: &PlanDocument) -> Vec<String> {
    let surely_fits = document.layouts.iter().zip(1..).find(|(layout, _)| layout.layout.fit == MemoryFit::Fits);
    let surely_fits = surely_fits.map(|(_, line)| line);
    lines("plan.txt", SENTENCES, context! { part, surely_fits, ..Serde(document) })
}

/// A part of a plan, in tables.
fn tables(part: &str, document: &PlanDocument) -> Vec<Block> {
    template::blocks("plan.txt", SENTENCES, context! { part, ..Serde(document) })
}

const SENTENCES: &str = include_str!("templates/plan.txt");

/// What the fullest GPU of a layout holds in GB, and whether it can.
fn memory_of(layout: &PlannedLayout) -> String {
    let mark = match layout.layout.fit {
        MemoryFit::Fits => "",
        MemoryFit::AtTheEdge => " at the edge",
        MemoryFit::DoesNotFit => " TOO MUCH",
    };
    gigabytes(layout.layout.memory.middle.0) + mark
}

// Two layouts side by side: their differences, and the cost of each part.

/// The comparison for a terminal of this width.
pub fn explain_text(comparison: &Comparison, width: u16) -> String {
    let context = |part: &str| context! { width, part, ..Serde(comparison) };
    let below = Block::marked(Mark::Flush, lines("plan.txt", SENTENCES, context("two layouts")));
    prose("plan.txt", SENTENCES, context("rows of two layouts")) + "\n" + &Terminal::plain(width).draw(&[below])
}

#[cfg(test)]
mod tests {
    // What a plan looks like.
    use super::*;
    use commgauge_base::units::Bytes;
    use commgauge_model::config::step::{Framework, FrameworkChoices, FrameworkDefault, Recompute, ScheduleKind};
    use commgauge_model::layout::Degrees;
    use commgauge_plan::planner::memory::MemoryNeed;
    use commgauge_plan::planner::plan_document::{FORMAT, OrderOfBest, OrderVerdict, PlannedMemory, Reason, VERSION};
    use commgauge_plan::planner::price::StepPrice;
    use commgauge_plan::planner::search::Planned;

    fn layout(tp: u32, bubble: f64) -> PlannedLayout {
        PlannedLayout {
            name: format!(
                "tp={tp},cp=1,ep=1,pp=4,virtual_stages=2,dp=8,zero_stage=1,micro_batch=2,recompute=selective,order=tp-cp-ep-dp-pp"
            ),
            gpus: 256,
            layout: Planned {
                degrees: Degrees { tp, cp: 1, ep: 1, pp: 4, etp: tp, dp: 8 },
                schedule: ScheduleKind::Interleaved,
                stage_layers: (tp == 8).then(|| vec![3, 4, 4, 4, 4, 4, 4, 3]),
                virtual_stages: 2,
                zero_stage: 1,
                micro_batch: 2,
                micro_batches: 16,
                recompute: Recompute::Selective,
                order: "tp-cp-ep-dp-pp".to_owned(),
                exchange: None,
                orders_alike: 1,
                memory: MemoryNeed { low: Bytes(57e9 as u64), middle: Bytes(68_500_000_000), high: Bytes(88e9 as u64) },
                fit: if tp < 8 { MemoryFit::AtTheEdge } else { MemoryFit::DoesNotFit },
                variants: Vec::new(),
            },
            memory: vec![PlannedMemory {
                part: "parameters".into(),
                bytes: 61_500_000_000,
                why: "2 B x 30.75e9".into(),
            }],
            price: StepPrice {
                step_seconds: 10.0 + bubble,
                step_seconds_low: 9.0,
                step_seconds_high: 12.0,
                compute_seconds: 8.0,
                host_seconds: 0.0,
                bubble_seconds: bubble,
                exposed: Exposed { tp: 1.5, dp: 0.25, ..Exposed::default() },
                optimizer_seconds: 0.25,
                untrusted: if tp == 8 { vec!["all_reduce of float32 on 2 ranks".to_owned()] } else { Vec::new() },
            },
            limited_by: "tp exposed (15.0 % of the step)".to_owned(),
        }
    }

    fn document() -> PlanDocument {
        PlanDocument {
            format: FORMAT.to_owned(),
            version: VERSION,
            model: "gpt2".to_owned(),
            gpus: 64,
            ranks_per_node: 8,
            gpu_memory_bytes: 80_000_000_000,
            global_batch: 256,
            sequence: 1024,
            framework: Some(FrameworkChoices {
                framework: Framework::Ddp,
                version: "torch 2.15".into(),
                defaults: vec![FrameworkDefault {
                    key: "bucket_rule".into(),
                    value: "pytorch".into(),
                    source: "torch/nn/parallel/distributed.py bucket_cap_mb".into(),
                }],
            }),
            rates: "fit.json".to_owned(),
            computing: "989 TFLOP/s (given) x 0.5 (given)".to_owned(),
            not_validated: None,
            calibrated: true,
            synthetic: true,
            considered: 1000,
            feasible: 400,
            at_the_edge: 30,
            priced: 20,
            elapsed_seconds: 0.0123,
            illegal: vec![Reason { reason: "pp does not divide the layers".to_owned(), count: 3 }],
            unpriced: vec![Reason { reason: "reduce_scatter was not measured".to_owned(), count: 12 }],
            order: OrderOfBest { verdict: OrderVerdict::Tie, probability: Some(0.7), relative_difference: Some(0.05) },
            layouts: vec![layout(4, 0.5), layout(8, 1.0)],
            rivals: Vec::new(),
            measured_by: None,
            gpus_compared: Vec::new(),
            what_if: Vec::new(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_plan_reads_at_80_and_at_140_columns_and_says_what_is_synthetic() {
        for width in [80, 140] {
            let text = table_text(&document(), width);
            assert!(text.contains("SYNTHETIC") && text.contains("WITHOUT A PRICE") && text.contains("TOO MUCH"));
            insta::assert_snapshot!(format!("table at {width}"), text);
        }
    }

    #[test]
    fn lines_of_csv_carry_the_marks() {
        insta::assert_snapshot!("csv", csv(&document()).unwrap());
    }

    #[test]
    fn json_has_the_fields_that_others_build_on() {
        let value = serde_json::to_value(document()).unwrap();
        for field in ["considered", "feasible", "elapsed_seconds", "calibrated", "layouts"] {
            assert!(!value[field].is_null(), "{field}");
        }
        for field in [
            "tp",
            "cp",
            "ep",
            "pp",
            "virtual_stages",
            "dp",
            "zero_stage",
            "micro_batch",
            "recompute",
            "order",
            "memory_bytes",
            "step_seconds",
            "compute_seconds",
            "bubble_seconds",
        ] {
            assert!(!value["layouts"][0][field].is_null(), "{field}");
        }
        assert_eq!(value["layouts"][0]["exposed_communication_seconds"]["tp"], 1.5);
        insta::assert_snapshot!("json", serde_json::to_string_pretty(&value).unwrap());
    }

    #[test]
    fn two_layouts_are_compared_with_the_largest_difference_first() {
        let comparison = Comparison::new(layout(4, 0.5), layout(8, 1.0), Some(0.99));
        insta::assert_snapshot!("explain", explain_text(&comparison, 100));
    }
}
