//! The plan for people: its basis, the best layouts, the breakdown of the first, and the certainty of the order.

use crate::report::document::{Block, Column, Mark, Table, Terminal, optional, percent};
use crate::report::framework_defaults;
use commgauge_analysis::planner::plan_document::{OrderVerdict, PlanDocument, PlannedLayout, PlannedMemory};
use commgauge_base::units::{Bytes, Seconds};

/// The plan in so many columns.
pub fn text(document: &PlanDocument, width: u16) -> String {
    Terminal::plain(width).draw(&blocks(document))
}

/// The plan, whatever it is written for.
pub(in crate::report) fn blocks(document: &PlanDocument) -> Vec<Block> {
    let mut blocks = vec![Block::marked(Mark::Close, head(document)), Block::Table(layouts(document))];
    blocks.extend(document.layouts.first().map(|best| Block::Table(breakdown(best))));
    let best = document.layouts.first().filter(|best| !best.memory.is_empty());
    blocks.extend(best.map(|best| Block::Table(memory(best))));
    blocks.push(Block::apart(Mark::Flush, sentences(document)));
    blocks.extend(document.framework.as_ref().map(|choices| Block::apart(Mark::Close, framework_defaults(choices))));
    if !document.what_if.is_empty() {
        blocks.push(Block::text("what another machine would choose"));
        blocks.push(Block::Table(what_if(document)));
    }
    blocks
}

/// The choices of machines that differ in one thing.
fn what_if(document: &PlanDocument) -> Table {
    const COLUMNS: [Column; 4] = [
        Column::left("if", 0),
        Column::right("step", 0),
        Column::right("of today's choice", 1),
        Column::left("best is then", 0),
    ];
    let today = document.layouts.first().map_or("", |best| best.name.as_str());
    let seconds = |seconds: Option<f64>| optional(seconds.map(Seconds));
    let rows = document.what_if.iter().map(|other| {
        let then = match (&other.layout, other.same_choice) {
            (None, _) => "nothing fits".to_owned(),
            (_, true) => "the same".to_owned(),
            (Some(layout), false) => differing_keys(today, layout),
        };
        vec![other.change.clone(), seconds(other.step_seconds), seconds(other.todays_step_seconds), then]
    });
    Table::new("", &COLUMNS, rows)
}

/// What a layout says otherwise than today's, both written as for `--only`: `pp=2,dp=4`. The order of the axes counts only where nothing
/// else differs.
fn differing_keys(today: &str, layout: &str) -> String {
    let today: Vec<&str> = today.split(',').collect();
    let (orders, others): (Vec<&str>, Vec<&str>) =
        layout.split(',').filter(|key| !today.contains(key)).partition(|key| key.starts_with("order="));
    (if others.is_empty() { orders } else { others }).join(",")
}

/// A byte count in decimal GB, as memory of GPUs is given.
pub(super) fn gigabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e9)
}

fn head(document: &PlanDocument) -> Vec<String> {
    let d = document;
    let synthetic = "SYNTHETIC: times come from records without real times; this is no plan for a real machine";
    let published = "NOT CALIBRATED: times of calls come from published rates, not from measurements";
    let marks = [(d.synthetic, synthetic), (!d.calibrated, published)];
    let mut lines: Vec<String> =
        marks.into_iter().filter(|(is, _)| *is).map(|(_, sentence)| sentence.to_owned()).collect();
    lines.extend(d.not_validated.clone());
    lines.extend(d.layouts.first().and_then(|best| untrusted("the best layout", best)));
    lines.push(format!(
        "{} on {} GPUs, {} on each node, {} GB each; {} samples of {} tokens a step",
        d.model,
        gpus(d),
        d.ranks_per_node,
        gigabytes(d.gpu_memory_bytes),
        d.global_batch,
        d.sequence
    ));
    lines.extend([format!("calls: {}", d.rates), format!("computing: {}", d.computing)]);
    lines.push(format!(
        "{} layouts considered, {} fit into memory, {} priced one by one, in {}",
        d.considered,
        d.feasible,
        d.priced,
        Seconds(d.elapsed_seconds)
    ));
    lines
}

/// On which curves a layout rests that are not to be trusted, as a sentence.
pub(super) fn untrusted(which: &str, layout: &PlannedLayout) -> Option<String> {
    let curves = layout.untrusted.join("; ");
    (!curves.is_empty())
        .then(|| format!("UNTRUSTED: {which} rests on curves whose held-out error is over 10 %: {curves}"))
}

/// All numbers of GPUs that were asked about.
fn gpus(document: &PlanDocument) -> String {
    match document.gpus_compared.as_slice() {
        [] => document.gpus.to_string(),
        several => several.iter().map(u32::to_string).collect::<Vec<_>>().join(" or "),
    }
}

fn layouts(document: &PlanDocument) -> Table {
    let of_gpus = if document.gpus_compared.is_empty() { 7 } else { 0 };
    let columns: [Column; 18] = [
        Column::right("step", 0),
        Column::right("GPUs", of_gpus),
        Column::right("tp", 0),
        Column::right("cp", 0),
        Column::right("ep", 5),
        Column::right("pp", 0),
        Column::right("v", 0),
        Column::left("schedule", 8),
        Column::right("dp", 0),
        Column::right("zero", 0),
        Column::right("mb", 0),
        Column::left("recompute", 0),
        Column::left("order", 2),
        Column::right("orders", 6),
        Column::right("GB", 0),
        Column::right("compute", 3),
        Column::right("bubble", 4),
        Column::left("limited by", 1),
    ];
    let share = |layout: &PlannedLayout, seconds: f64| percent(seconds / layout.step_seconds, 1);
    let rows = document.layouts.iter().map(|layout| {
        vec![
            Seconds(layout.step_seconds).to_string(),
            layout.gpus.to_string(),
            layout.tp.to_string(),
            layout.cp.to_string(),
            layout.ep.to_string(),
            layout.pp.to_string(),
            layout.virtual_stages.to_string(),
            layout.schedule.to_string(),
            layout.dp.to_string(),
            layout.zero_stage.to_string(),
            layout.micro_batch.to_string(),
            layout.recompute.to_string(),
            layout.order.clone(),
            layout.orders_alike.to_string(),
            format!("{}{}", gigabytes(layout.memory_bytes), if layout.fits { "" } else { " TOO MUCH" }),
            share(layout, layout.compute_seconds),
            share(layout, layout.bubble_seconds),
            layout.limited_by.clone(),
        ]
    });
    Table::new("", &columns, rows)
}

/// The non-zero parts of a step.
fn breakdown(layout: &PlannedLayout) -> Table {
    const COLUMNS: [Column; 3] =
        [Column::left("the best layout", 0), Column::right("time", 0), Column::right("share", 0)];
    let row = |name: &str, seconds: f64| {
        vec![name.to_owned(), Seconds(seconds).to_string(), percent(seconds / layout.step_seconds, 1)]
    };
    let parts = layout.parts();
    // A sum of parts that cancel leaves a rounding error.
    let counts = |seconds: f64| seconds > 1e-9 * layout.step_seconds;
    let mut rows: Vec<_> =
        parts.iter().filter(|(_, seconds)| counts(*seconds)).map(|(name, seconds)| row(name, *seconds)).collect();
    rows.push(row("step", layout.step_seconds));
    Table::new("", &COLUMNS, rows)
}

/// What its fullest GPU holds.
fn memory(layout: &PlannedLayout) -> Table {
    const COLUMNS: [Column; 3] =
        [Column::left("its fullest GPU holds", 0), Column::right("GB", 0), Column::left("made of", 1)];
    let row = |part: &PlannedMemory| vec![part.part.clone(), gigabytes(part.bytes), part.why.clone()];
    Table::new("", &COLUMNS, layout.memory.iter().map(row))
}

fn sentences(document: &PlanDocument) -> Vec<String> {
    let mut all = vec![order(document)];
    if let Some(best) = document.layouts.first() {
        all.push(format!(
            "95 of 100 such steps take {} to {}: the errors of calls, of computing and of what is not modelled, as published runs \
             show them (`commgauge validate`).",
            Seconds(best.step_seconds_low),
            Seconds(best.step_seconds_high)
        ));
        all.push(format!("The best again: --only {}", best.name));
        all.extend(best.stage_layers.as_ref().map(|layers| {
            let layers = layers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            format!("Its layers do not divide evenly; its chunks have {layers} (stage_layers).")
        }));
        let unused = document.gpu_memory_bytes.saturating_sub(best.memory_bytes);
        if best.fits {
            let unused = Bytes(unused);
            all.push(format!("Its fullest GPU has {unused} to spare, for the CUDA context, NCCL and fragments."));
        }
    }
    let summary = |reasons: &[commgauge_analysis::planner::plan_document::Reason]| {
        let one = |reason: &commgauge_analysis::planner::plan_document::Reason| {
            format!("{} ({})", reason.reason, reason.count)
        };
        reasons.iter().map(one).collect::<Vec<_>>().join("; ")
    };
    if !document.illegal.is_empty() {
        all.push(format!("Degrees that break a rule: {}.", summary(&document.illegal)));
    }
    if !document.unpriced.is_empty() {
        all.push(format!("WITHOUT A PRICE, and so not among these: {}.", summary(&document.unpriced)));
    }
    all.extend(document.notes.iter().cloned());
    all
}

fn order(document: &PlanDocument) -> String {
    let order = &document.order;
    let difference = order.relative_difference.map_or_else(String::new, |share| percent(share, 1));
    let percent = order.probability.map_or_else(String::new, |share| format!("{:.0} of 100", 100.0 * share));
    match order.verdict {
        OrderVerdict::Alone => "There is no runner-up.".to_owned(),
        OrderVerdict::Sure => {
            format!("The runner-up takes {difference} longer; the best is faster in {percent} draws.")
        }
        OrderVerdict::Tie if order.probability.is_none() => "A tie: the runner-up takes just as long.".to_owned(),
        OrderVerdict::Tie => {
            format!("A tie: the runner-up takes {difference} longer, but the best is faster in {percent} draws only.")
        }
    }
}
