//! A ranking for people: the axes, the orders and the rule, where they flip, and the effect of moving an axis.

use super::documents::{AxisDocument, FlipDocument, MoveDocument, Quantity, RankDocument, RankingDocument};
use crate::report::document::{Block, Column, Mark, Table, Terminal, gigabytes, optional, percent};
use commgauge_base::units::Seconds;

/// The whole answer, for a terminal of so many columns.
pub fn text(document: &RankDocument, width: u16) -> String {
    Terminal::plain(width).draw(&self::document(document))
}

fn document(d: &RankDocument) -> Vec<Block> {
    let synthetic = "SYNTHETIC: the fit comes from records without real times; this ranks no machine";
    let published = "NOT CALIBRATED: times from published rates are what links allow, not what was measured";
    let marks = [(d.synthetic, synthetic), (!d.calibrated, published)];
    let mut blocks: Vec<Block> =
        marks.into_iter().filter(|(is, _)| *is).map(|(_, sentence)| Block::Alarm(sentence.to_owned())).collect();
    let head = format!(
        "{}, {}, order {}, {}: {} ranks on nodes of {}, {} micro-batches and {} tokens of a replica in a step",
        d.model, d.layout, d.moves.order, d.phase, d.ranks, d.ranks_per_node, d.micro_batches, d.tokens_per_replica
    );
    blocks.push(Block::apart(Mark::None, [head, format!("times from {}", d.rates)]));
    if d.axes.is_empty() {
        blocks.push(Block::text("Nothing is communicated: no group has more than one rank."));
        blocks.extend(step(d));
        return blocks;
    }
    blocks.extend([Block::text("per step, on the rank that the axis loads most"), Block::Table(axes(d))]);
    let grounds = d.axes.iter().map(|axis| format!("{}: {}", axis.axis, axis.ground));
    blocks.extend(Block::headed_list("the costliest call of each axis rests on", Mark::None, grounds));
    let order = "order: > is sure (95 %), = is a tie, ? is not known how sure";
    blocks.extend([Block::text(order), Block::Table(rankings(d)), Block::marked(Mark::Star, incomplete(d))]);
    if !d.flips.is_empty() {
        let equal = format!("where they are equal (this step has {} tokens)", d.tokens_per_replica);
        blocks.extend([Block::text(equal), Block::Table(flips(d))]);
    }
    blocks.extend(moves(d));
    blocks.extend(step(d));
    blocks
}

/// The step as `plan` prices it: what it is made of.
fn step(document: &RankDocument) -> Vec<Block> {
    const COLUMNS: [Column; 3] = [Column::left("the step", 0), Column::right("time", 0), Column::right("share", 0)];
    let Some(step) = &document.step else { return Vec::new() };
    let ground = format!("computing: {}", step.computing);
    let Some(price) = &step.price else {
        let reason = step.reason.as_deref().unwrap_or("a call has no time");
        return vec![Block::apart(Mark::None, [format!("the step has no price: {reason}"), ground])];
    };
    let row = |name: &str, seconds: f64| {
        vec![name.to_owned(), Seconds(seconds).to_string(), percent(seconds / price.step_seconds, 1)]
    };
    let parts = price.parts();
    let mut rows: Vec<_> =
        parts.iter().filter(|(_, seconds)| *seconds > 0.0).map(|(name, seconds)| row(name, *seconds)).collect();
    rows.push(row("step", price.step_seconds));
    let (low, high) = (Seconds(price.step_seconds_low), Seconds(price.step_seconds_high));
    let interval = format!("95 of 100 such steps take {low} to {high}, as published runs did (`commgauge validate`)");
    vec![Block::Table(Table::new("", &COLUMNS, rows)), Block::list([interval, ground])]
}

fn axes(document: &RankDocument) -> Table {
    const COLUMNS: [Column; 11] = [
        Column::left("axis", 0),
        Column::right("ranks", 3),
        Column::right("nodes", 4),
        Column::right("groups/node", 5),
        Column::right("payload", 2),
        Column::right("wire", 0),
        Column::right("time", 0),
        Column::right("95 %", 6),
        Column::right("exposed", 0),
        Column::right("exposed 95 %", 7),
        Column::left("rests on", 1),
    ];
    let row = |axis: &AxisDocument| {
        let g = &axis.grounds;
        let kinds = [
            (g.measured, "measured"),
            (g.interpolated, "interpolated"),
            (g.transferred, "transferred"),
            (g.extrapolated, "extrapolated"),
            (g.refused, "REFUSED"),
            (if document.calibrated { g.untrusted } else { 0 }, "UNTRUSTED"),
        ];
        let reasons: Vec<String> =
            kinds.iter().filter(|(ops, _)| *ops > 0).map(|(ops, name)| format!("{ops} {name}")).collect();
        vec![
            axis.axis.to_string(),
            axis.group_size.to_string(),
            axis.nodes_spanned.to_string(),
            axis.concurrent_groups_per_node.to_string(),
            gigabytes(axis.payload_bytes_per_step),
            gigabytes(axis.wire_bytes_per_step),
            known(axis, axis.seconds_per_step.value),
            ends(axis, axis.seconds_per_step),
            known(axis, axis.exposed_seconds_per_step.value),
            ends(axis, axis.exposed_seconds_per_step),
            reasons.join(", "),
        ]
    };
    Table::new("", &COLUMNS, document.axes.iter().map(row))
}

/// Seconds, with a sign where calls without a time are missing; nothing where all are.
fn known(axis: &AxisDocument, value: f64) -> String {
    match (axis.grounds.refused, value > 0.0) {
        (0, _) => Seconds(value).to_string(),
        (_, true) => format!("> {}", Seconds(value)),
        (_, false) => optional(None::<String>),
    }
}

/// The interval of seconds; nothing where no call has a time.
fn ends(axis: &AxisDocument, quantity: Quantity) -> String {
    let known = |_: &(f64, f64)| axis.grounds.refused == 0 || quantity.value > 0.0;
    let ends = quantity.low.zip(quantity.high).filter(known);
    optional(ends.map(|(low, high)| format!("{} .. {}", Seconds(low), Seconds(high))))
}

fn rankings(document: &RankDocument) -> Table {
    const COLUMNS: [Column; 5] = [
        Column::left("by", 0),
        Column::left("order", 0),
        Column::right("probability", 1),
        Column::left("TP > DP > PP", 0),
        Column::right("probability of the rule", 3),
    ];
    let row = |ranking: &RankingDocument| {
        vec![
            ranking.by.to_owned(),
            ranking.text.clone(),
            optional(ranking.probability.map(|share| percent(share, 0))),
            ranking.rule.to_owned(),
            optional(ranking.rule_probability.map(|share| percent(share, 0))),
        ]
    };
    Table::new("", &COLUMNS, document.rankings.iter().map(row))
}

/// What has no time.
fn incomplete(document: &RankDocument) -> impl Iterator<Item = String> + '_ {
    let by_time = document.rankings.iter().find(|ranking| ranking.by == "time");
    let reasons = by_time.into_iter().flat_map(|ranking| &ranking.incomplete);
    reasons.map(|reason| format!("without a time: {reason}"))
}

fn flips(document: &RankDocument) -> Table {
    const COLUMNS: [Column; 6] = [
        Column::left("pair", 0),
        Column::left("by", 0),
        Column::right("tokens of a replica", 0),
        Column::right("from", 1),
        Column::right("to", 1),
        Column::left("", 0),
    ];
    let tokens = |value: Option<f64>| optional(value.map(|tokens| format!("{tokens:.0}")));
    let row = |flip: &FlipDocument| {
        let at = flip.tokens_per_replica;
        let what = match (flip.larger_above, flip.always_larger) {
            (Some(larger), _) => format!("{larger} is larger above"),
            (None, Some(larger)) => format!("{larger} is larger at any"),
            (None, None) => "not known".to_owned(),
        };
        vec![
            flip.between.join(" and "),
            flip.by.to_owned(),
            tokens(at.map(|at| at.value)),
            tokens(at.and_then(|at| at.low)),
            tokens(at.and_then(|at| at.high)),
            what,
        ]
    };
    Table::new("", &COLUMNS, document.flips.iter().map(row))
}

fn moves(document: &RankDocument) -> Vec<Block> {
    const COLUMNS: [Column; 7] = [
        Column::left("move", 0),
        Column::left("order", 0),
        Column::right("change", 0),
        Column::right("95 %", 2),
        Column::right("faster", 1),
        Column::right("exposed change", 0),
        Column::right("faster", 3),
    ];
    let m = &document.moves;
    let now = [m.seconds_per_step, m.exposed_seconds_per_step].map(|quantity| Seconds(quantity.value));
    let head = match m.reason.is_some() && now[0].0 <= 0.0 {
        true => format!("another order of the axes than {}", m.order),
        false => format!(
            "another order of the axes, against {} with {} (exposed {}) of all axes together",
            m.order, now[0], now[1]
        ),
    };
    let head = Block::apart(Mark::None, [head]);
    if let Some(reason) = &m.reason {
        return vec![head, Block::apart(Mark::None, [format!("none is compared: {reason}")])];
    }
    let unpriced = (m.unpriced > 0)
        .then(|| format!("{} of {} placements have a call without a time and are left out", m.unpriced, m.placements));
    vec![head, Block::Table(Table::new("", &COLUMNS, m.moves.iter().map(move_cells))), Block::list(unpriced)]
}

fn move_cells(moved: &MoveDocument) -> Vec<String> {
    let signed = |seconds: f64| format!("{}{}", if seconds > 0.0 { "+" } else { "" }, Seconds(seconds));
    let change = |quantity: Option<Quantity>| optional(quantity.map(|quantity| signed(quantity.value)));
    let ends = |quantity: Option<Quantity>| {
        let ends = quantity.and_then(|quantity| quantity.low.zip(quantity.high));
        optional(ends.map(|(low, high)| format!("{} .. {}", signed(low), signed(high))))
    };
    let probability = |share: Option<f64>| optional(share.map(|share| percent(share, 0)));
    vec![
        format!("{} {}", moved.axis, if moved.inside_now { "out of the node" } else { "into the node" }),
        moved.order.clone().unwrap_or_else(|| "none".to_owned()),
        change(moved.change_seconds),
        ends(moved.change_seconds),
        probability(moved.probability_faster),
        change(moved.change_exposed_seconds),
        probability(moved.probability_exposed_faster),
    ]
}
