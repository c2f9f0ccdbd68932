//! The tables of a fit: every curve, the held-out errors, and the coefficients of contention, interference and overlap.

use super::document::{Block, Column, Mark, Row, Table, Terminal, Tone, gigabytes_per_second, optional};
use commgauge_analysis::cost::{AtOnce, Coefficient, Contention, CurveFit, Errors, FamilyKey, Fit};
use commgauge_base::units::{Seconds, three_digits};

/// The tables for a terminal of so many columns.
pub fn fit_text(fit: &Fit, width: u16) -> String {
    let synthetic = "SYNTHETIC: no data moved and no real time passed; nothing below was measured";
    let mut blocks: Vec<Block> = fit.synthetic.then(|| Block::Alarm(synthetic.to_owned())).into_iter().collect();
    blocks.push(Block::Table(Table { title: String::new(), ..curves(fit) }));
    blocks.extend(match held_out(fit) {
        Some(table) => vec![Block::Table(table)],
        None => vec![
            Block::heading("Held-out errors, relative"),
            Block::list(["not available: too few sizes to leave any out"]),
        ],
    });
    blocks.extend(coefficients(fit));
    blocks.push(Block::marked(Mark::Star, &fit.warnings));
    Terminal::plain(width).draw(&blocks)
}

/// Every curve.
pub(super) fn curves(fit: &Fit) -> Table {
    const COLUMNS: [Column; 13] = [
        Column::left("collective", 0),
        Column::left("type", 0),
        Column::left("locality", 2),
        Column::left("cadence", 6),
        Column::right("ranks", 0),
        Column::right("sizes", 5),
        Column::right("disturbed", 7),
        Column::right("alpha us", 0),
        Column::right("95 %", 3),
        Column::right("1/beta GB/s", 0),
        Column::right("95 % GB/s", 4),
        Column::right("held-out median %", 1),
        Column::right("mean %", 8),
    ];
    let title = "Alpha: cost of a call however small. 1/beta: bytes_total over time of a call however large";
    let curves = fit.families.iter().flat_map(|family| family.curves.iter().map(move |curve| (family, curve)));
    let rows = curves.map(|(family, curve)| {
        Row::toned(if curve.untrusted { Tone::Unsure } else { Tone::Plain }, curve_cells(&family.key, curve))
    });
    Table::new(title, &COLUMNS, rows).whole_in("`commgauge fit --format json` has every curve")
}

fn curve_cells(key: &FamilyKey, curve: &CurveFit) -> Vec<String> {
    let between = |ends: Option<(String, String)>| optional(ends.map(|(low, high)| format!("{low}..{high}")));
    let percent = |error: Option<f64>| optional(error.map(|error| format!("{:.1}", 100.0 * error)));
    let microseconds = |seconds: Seconds| three_digits(seconds.0 * 1e6);
    let mean = percent(curve.held_out_sizes.map(|errors| errors.mean));
    vec![
        key.collective.to_string() + &labels(key),
        key.element_type.map_or_else(|| "any".to_owned(), |element| element.to_string()),
        key.place.to_string(),
        key.cadence.to_string(),
        curve.ranks.to_string(),
        curve.points.len().to_string(),
        curve.points.iter().filter(|point| point.is_disturbed()).count().to_string(),
        microseconds(curve.alpha_seconds),
        between(curve.alpha_seconds_low.map(microseconds).zip(curve.alpha_seconds_high.map(microseconds))),
        optional(curve.bytes_per_second.map(gigabytes_per_second)),
        between(
            curve
                .bytes_per_second_low
                .map(gigabytes_per_second)
                .zip(curve.bytes_per_second_high.map(gigabytes_per_second)),
        ),
        percent(curve.held_out_sizes.map(|errors| errors.median)),
        if curve.untrusted { mean + " UNTRUSTED" } else { mean },
    ]
}

/// Errors at what the fit did not see; none where nothing could be left out.
pub(super) fn held_out(fit: &Fit) -> Option<Table> {
    const COLUMNS: [Column; 6] = [
        Column::left("left out", 0),
        Column::right("points", 2),
        Column::right("median %", 0),
        Column::right("p95 %", 0),
        Column::right("maximum %", 0),
        Column::right("bias %", 1),
    ];
    let percent = |value: f64| format!("{:.1}", 100.0 * value);
    let row = |name: &str, errors: &Errors| {
        vec![
            name.to_owned(),
            errors.points.to_string(),
            percent(errors.median),
            optional(errors.p95.map(percent)),
            percent(errors.maximum),
            percent(errors.bias),
        ]
    };
    let mut rows: Vec<Vec<String>> = fit.held_out.sizes.iter().map(|errors| row("every second size", errors)).collect();
    rows.extend(fit.held_out.regimes.iter().map(|by| row(&format!("  {}", by.regime.name()), &by.errors)));
    rows.extend(fit.held_out.group_sizes.iter().map(|errors| row("inner group sizes", errors)));
    (!rows.is_empty()).then(|| Table::new("Held-out errors, relative", &COLUMNS, rows))
}

/// Labels that distinguish a curve from others of the same call.
pub(super) fn labels(key: &FamilyKey) -> String {
    let words: Vec<String> =
        key.labels.iter().map(|(name, text)| format!("{} {}", name.escape_debug(), text.escape_debug())).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// The tables of coefficients, as far as the fit has them.
pub(super) fn coefficients(fit: &Fit) -> impl Iterator<Item = Block> + '_ {
    let tables = [contention(fit), interference(fit), overlap(fit), both_ways(fit)];
    tables.into_iter().filter(|table| !table.rows.is_empty()).map(Block::Table)
}

fn contention(fit: &Fit) -> Table {
    const COLUMNS: [Column; 11] = [
        Column::left("call", 0),
        Column::left("groups", 1),
        Column::left("cadence", 3),
        Column::left("counted per", 5),
        Column::right("measured", 2),
        Column::right("latency ^", 0),
        Column::right("95 %", 0),
        Column::right("bandwidth ^", 0),
        Column::right("95 %", 0),
        Column::right("error p95 %", 1),
        Column::left("of", 4),
    ];
    let title = "Contention: with x times as many groups at once a call takes x^exponent times as long";
    Table::new(title, &COLUMNS, fit.contention.iter().map(contention_cells))
}

fn interference(fit: &Fit) -> Table {
    const COLUMNS: [Column; 5] = [
        Column::left("timed", 0),
        Column::left("beside", 0),
        Column::right("together/alone", 0),
        Column::right("95 %", 0),
        Column::right("replicates", 1),
    ];
    let rows = fit.interference.iter().map(|pair| {
        let AtOnce { axis, collective, beside_axis, beside_collective } = pair.calls;
        let [value, interval] = cells(Some(&pair.slowdown));
        let replicates = pair.slowdown.measurements.to_string();
        vec![format!("{axis} {collective}"), format!("{beside_axis} {beside_collective}"), value, interval, replicates]
    });
    Table::new(
        "Interference: time of a call while calls of another axis are under way, over that alone",
        &COLUMNS,
        rows,
    )
}

fn overlap(fit: &Fit) -> Table {
    const COLUMNS: [Column; 6] = [
        Column::left("axis", 0),
        Column::right("hidden share", 0),
        Column::right("95 %", 0),
        Column::right("hidden/alone", 0),
        Column::right("95 %", 0),
        Column::right("replays", 1),
    ];
    let rows = fit.overlap.iter().map(|overlap| {
        let ([hidden, of_hidden], [slower, of_slower]) =
            (cells(Some(&overlap.hidden_share)), cells(overlap.slowdown.as_ref()));
        let replays = overlap.hidden_share.measurements.to_string();
        vec![overlap.axis.to_string(), hidden, of_hidden, slower, of_slower, replays]
    });
    Table::new("Overlap with computing, from replays", &COLUMNS, rows)
}

fn both_ways(fit: &Fit) -> Table {
    const COLUMNS: [Column; 4] = [
        Column::left("stages", 0),
        Column::right("message both ways/alone", 0),
        Column::right("95 %", 0),
        Column::right("replays", 1),
    ];
    let rows = fit.both_ways.iter().map(|both| {
        let [slower, of_slower] = cells(Some(&both.slowdown));
        let stages = if both.between_hosts { "on different hosts" } else { "on one host" };
        vec![stages.to_owned(), slower, of_slower, both.slowdown.measurements.to_string()]
    });
    Table::new("Messages of both directions at once, from replays without computing", &COLUMNS, rows)
}

fn contention_cells(one: &Contention) -> Vec<String> {
    let ([latency, of_latency], [bandwidth, of_bandwidth]) =
        (cells(one.latency_exponent.as_ref()), cells(one.bandwidth_exponent.as_ref()));
    let errors = one.errors.p95_or_maximum();
    vec![
        one.collective.map_or_else(|| "all others".to_owned(), |collective| collective.to_string()),
        (if one.across_nodes { "across nodes" } else { "within a node" }).to_owned(),
        one.cadence.to_string(),
        one.adapters_per_node.map_or_else(|| "node".to_owned(), |adapters| format!("adapter ({adapters} a node)")),
        format!("{}..{} groups", one.groups_fewest, one.groups_most),
        latency,
        of_latency,
        bandwidth,
        of_bandwidth,
        format!("{:.1}", 100.0 * errors),
        one.errors_from.name().to_owned(),
    ]
}

/// A number and its interval.
fn cells(coefficient: Option<&Coefficient>) -> [String; 2] {
    let interval = coefficient.and_then(|found| found.low.zip(found.high));
    [
        optional(coefficient.map(|found| format!("{:.2}", found.value))),
        optional(interval.map(|(low, high)| format!("{low:.2}..{high:.2}"))),
    ]
}
