//! A ranking as text: the axes, the orders and the rule, where they flip, and the effect of moving an axis.

use super::{AxisDocument, FlipDocument, MoveDocument, Quantity, RankDocument, RankingDocument};
use crate::report::plain_table::{Column, table, wrapped};
use commgauge_base::units::{Seconds, three_digits};

/// The whole answer, for a terminal of so many columns.
pub fn text(document: &RankDocument, width: u16) -> String {
    let d = document;
    let mut out = String::new();
    if d.synthetic {
        out += "SYNTHETIC: the fit comes from records without real times; this ranks no machine\n\n";
    }
    if !d.calibrated {
        out += "NOT CALIBRATED: times from published rates are what links allow, not what was measured\n\n";
    }
    let head = format!(
        "{}, {}, order {}, {}: {} ranks on nodes of {}, {} micro-batches and {} tokens of a replica in a step",
        d.model, d.layout, d.moves.order, d.phase, d.ranks, d.ranks_per_node, d.micro_batches, d.tokens_per_replica
    );
    out += &wrapped(&head, width);
    out += &wrapped(&format!("times from {}", d.rates), width);
    if d.axes.is_empty() {
        return out + "\nNothing is communicated: no group has more than one rank.\n";
    }
    out += "\nper step, on the rank that the axis loads most\n\n";
    out += &axes(d, width);
    out += &grounds(d, width);
    out += "\norder: > is sure (95 %), = is a tie, ? is not known how sure\n\n";
    out += &rankings(d, width);
    out += &incomplete(d, width);
    out += &flips(d, width);
    out += &moves(d, width);
    out
}

fn axes(document: &RankDocument, width: u16) -> String {
    let columns = [
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
            amount("bytes", axis.payload_bytes_per_step.0 as f64),
            amount("bytes", axis.wire_bytes_per_step.0 as f64),
            known(axis, axis.seconds_per_step.value),
            between(axis.seconds_per_step),
            known(axis, axis.exposed_seconds_per_step.value),
            between(axis.exposed_seconds_per_step),
            reasons.join(", "),
        ]
    };
    table(&columns, &document.axes.iter().map(row).collect::<Vec<_>>(), width)
}

/// Seconds, with a sign where calls without a time are missing.
fn known(axis: &AxisDocument, value: f64) -> String {
    let missing = if axis.grounds.refused > 0 { "> " } else { "" };
    format!("{missing}{}", Seconds(value))
}

fn between(quantity: Quantity) -> String {
    let ends = quantity.low.zip(quantity.high);
    ends.map_or_else(|| "-".to_owned(), |(low, high)| format!("{} .. {}", Seconds(low), Seconds(high)))
}

fn amount(by: &str, value: f64) -> String {
    match by {
        by if by.ends_with("bytes") => match value {
            v if v >= 1e9 => format!("{} GB", three_digits(v * 1e-9)),
            v if v >= 1e6 => format!("{} MB", three_digits(v * 1e-6)),
            v => format!("{v} B"),
        },
        _ => Seconds(value).to_string(),
    }
}

fn grounds(document: &RankDocument, width: u16) -> String {
    let mut out = "\nthe costliest call of each axis rests on\n".to_owned();
    for axis in &document.axes {
        out += &wrapped(&format!("  {}: {}", axis.axis, axis.ground), width);
    }
    out
}

fn rankings(document: &RankDocument, width: u16) -> String {
    let columns = [
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
            percent(ranking.probability),
            ranking.rule.to_owned(),
            percent(ranking.rule_probability),
        ]
    };
    table(&columns, &document.rankings.iter().map(row).collect::<Vec<_>>(), width)
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}

fn incomplete(document: &RankDocument, width: u16) -> String {
    let by_time = document.rankings.iter().find(|ranking| ranking.by == "time");
    let reasons = by_time.map_or(&[][..], |ranking| ranking.incomplete.as_slice());
    reasons.iter().map(|text| wrapped(&format!("* without a time: {text}"), width)).collect()
}

fn flips(document: &RankDocument, width: u16) -> String {
    if document.flips.is_empty() {
        return String::new();
    }
    let columns = [
        Column::left("pair", 0),
        Column::left("by", 0),
        Column::right("tokens of a replica", 0),
        Column::right("from", 1),
        Column::right("to", 1),
        Column::left("", 0),
    ];
    let tokens = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |tokens| format!("{tokens:.0}"));
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
    let head = format!("\nwhere they are equal (this step has {} tokens)\n\n", document.tokens_per_replica);
    head + &table(&columns, &document.flips.iter().map(row).collect::<Vec<_>>(), width)
}

fn moves(document: &RankDocument, width: u16) -> String {
    let m = &document.moves;
    let head = format!(
        "another order of the axes, against {} with {} (exposed {}) of all axes together",
        m.order,
        Seconds(m.seconds_per_step.value),
        Seconds(m.exposed_seconds_per_step.value)
    );
    let mut out = "\n".to_owned() + &wrapped(&head, width) + "\n";
    if let Some(reason) = &m.reason {
        return out + &wrapped(&format!("none is compared: {reason}"), width);
    }
    let columns = [
        Column::left("move", 0),
        Column::left("order", 0),
        Column::right("change", 0),
        Column::right("95 %", 2),
        Column::right("faster", 1),
        Column::right("exposed change", 0),
        Column::right("faster", 3),
    ];
    let signed = |seconds: f64| format!("{}{}", if seconds > 0.0 { "+" } else { "" }, Seconds(seconds));
    let change = |quantity: Option<Quantity>| quantity.map_or_else(|| "-".to_owned(), |q| signed(q.value));
    let ends = |quantity: Option<Quantity>| {
        let ends = quantity.and_then(|quantity| quantity.low.zip(quantity.high));
        ends.map_or_else(|| "-".to_owned(), |(low, high)| format!("{} .. {}", signed(low), signed(high)))
    };
    let row = |moved: &MoveDocument| {
        vec![
            format!("{} {}", moved.axis, if moved.inside_now { "out of the node" } else { "into the node" }),
            moved.order.clone().unwrap_or_else(|| "none".to_owned()),
            change(moved.change_seconds),
            ends(moved.change_seconds),
            percent(moved.probability_faster),
            change(moved.change_exposed_seconds),
            percent(moved.probability_exposed_faster),
        ]
    };
    out += &table(&columns, &m.moves.iter().map(row).collect::<Vec<_>>(), width);
    if m.unpriced > 0 {
        let reasons =
            format!("{} of {} placements have a call without a time and are left out", m.unpriced, m.placements);
        out += &wrapped(&reasons, width);
    }
    out
}
