//! The ops of a step as text: a table, the totals of axes and styles, and the reasons.

use super::document::{OpLine, OpsDocument, Totals};
use crate::report::document::{Column, gigabytes, optional, table, wrapped};
use crate::report::framework_defaults;
use std::collections::BTreeMap;

/// The complete text for a terminal of this width.
pub(super) fn text(document: &OpsDocument, width: u16) -> String {
    let d = document;
    let mut out = format!(
        "{}, {}, {}: {} ranks, {} micro-batches and {} tokens of a replica in a step\n",
        d.model, d.layout, d.phase, d.ranks, d.micro_batches, d.tokens_per_replica
    );
    if let Some(rule) = &d.stage_layers {
        out += &wrapped(&format!("layers of a stage: {rule}"), width);
    }
    if let Some(framework) = &d.framework {
        out.extend(framework_defaults(framework).iter().map(|line| wrapped(line, width)));
    }
    if d.ops.is_empty() {
        out += "\nNothing is communicated: no group has more than one rank.\n";
        return out;
    }
    out.push('\n');
    out += &ops(d, width);
    out += "\nper step, on the rank that the axis loads most\n\n";
    out += &axes(d, width);
    out.push('\n');
    out += &styles(d, width);
    out += "\nwhy\n\n";
    for (number, op) in d.ops.iter().enumerate() {
        out += &wrapped(&format!("[{}] {}", number + 1, op.why), width);
    }
    out
}

fn ops(document: &OpsDocument, width: u16) -> String {
    let columns = [
        Column::right("", 0),
        Column::left("axis", 0),
        Column::left("style", 0),
        Column::left("call", 0),
        Column::left("type", 4),
        Column::right("ranks", 3),
        Column::right("bytes", 0),
        Column::right("per rank", 5),
        Column::right("/layer", 2),
        Column::right("/mb", 2),
        Column::right("/step", 0),
        Column::right("wire/step", 0),
        Column::left("exposed", 0),
        Column::left("hidden by", 6),
    ];
    let rows: Vec<Vec<String>> = document.ops.iter().enumerate().map(|(index, op)| row(index, op)).collect();
    table(&columns, &rows, width)
}

fn row(index: usize, op: &OpLine) -> Vec<String> {
    vec![
        format!("[{}]", index + 1),
        op.axis.to_string(),
        op.style.name().to_owned(),
        op.collective.to_string(),
        op.element_type.to_string(),
        op.group_size.to_string(),
        op.bytes_total.to_string(),
        op.bytes_per_rank.to_string(),
        optional(op.count_per_layer),
        optional(op.count_per_micro_batch),
        op.count_per_step.to_string(),
        gigabytes(op.wire_bytes_per_step),
        if op.exposed { "yes" } else { "no" }.to_owned(),
        op.overlaps_with.unwrap_or("-").to_owned(),
    ]
}

fn axes(document: &OpsDocument, width: u16) -> String {
    let columns = [
        Column::left("axis", 0),
        Column::right("stage", 2),
        Column::right("payload", 0),
        Column::right("wire", 0),
        Column::right("exposed wire", 0),
        Column::right("wire of layers alone", 1),
    ];
    let row = |(name, totals): (&&'static str, &Totals)| {
        let alone = document.layers_alone_wire_bytes_per_step.get(*name);
        let mut row = vec![(*name).to_owned(), optional(totals.stage)];
        row.extend(amounts(totals));
        row.push(optional(alone.map(|bytes| gigabytes(*bytes))));
        row
    };
    table(&columns, &by_wire(&document.axes).into_iter().map(row).collect::<Vec<_>>(), width)
}

fn styles(document: &OpsDocument, width: u16) -> String {
    let columns = [
        Column::left("style", 0),
        Column::right("payload", 0),
        Column::right("wire", 0),
        Column::right("exposed wire", 0),
    ];
    let row = |(name, totals): (&&'static str, &Totals)| {
        let mut row = vec![(*name).to_owned()];
        row.extend(amounts(totals));
        row
    };
    table(&columns, &by_wire(&document.styles).into_iter().map(row).collect::<Vec<_>>(), width)
}

/// The most wire bytes first.
fn by_wire<'a>(totals: &'a BTreeMap<&'static str, Totals>) -> Vec<(&'a &'static str, &'a Totals)> {
    let mut order: Vec<_> = totals.iter().collect();
    order.sort_by_key(|(name, totals)| (std::cmp::Reverse(totals.wire_bytes_per_step), **name));
    order
}

fn amounts(totals: &Totals) -> [String; 3] {
    [totals.payload_bytes_per_step, totals.wire_bytes_per_step, totals.exposed_wire_bytes_per_step].map(gigabytes)
}
