//! The tables of a fit: every curve, the held-out errors, and the coefficients of contention, interference and overlap.

use super::plain_table::{Column, table, wrapped};
use commgauge_analysis::cost::{AtOnce, Coefficient, Contention, CurveFit, Errors, FamilyFit, FamilyKey, Fit};
use commgauge_base::units::three_digits;

pub(super) fn text(fit: &Fit, width: u16) -> String {
    let mut text = String::new();
    if fit.synthetic {
        text += "SYNTHETIC: no data moved and no real time passed; nothing below was measured\n\n";
    }
    let columns = [
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
    let curves = fit.families.iter().flat_map(|family| family.curves.iter().map(move |curve| (family, curve)));
    text += &table(&columns, &curves.map(|(family, curve)| row(family, curve)).collect::<Vec<_>>(), width);
    text += "\nHeld-out errors, relative\n";
    text += &held_out(fit, width);
    text += &coefficients(fit, width);
    for warning in &fit.warnings {
        text += &wrapped(&format!("* {warning}"), width);
    }
    text
}

fn row(family: &FamilyFit, curve: &CurveFit) -> Vec<String> {
    let key = &family.key;
    let between = |low: Option<f64>, high: Option<f64>| {
        low.zip(high).map_or_else(|| "-".to_owned(), |(a, b)| format!("{}..{}", three_digits(a), three_digits(b)))
    };
    let percent = |error: Option<f64>| error.map_or_else(|| "-".to_owned(), |error| format!("{:.1}", 100.0 * error));
    let microseconds = |seconds: commgauge_base::units::Seconds| seconds.0 * 1e6;
    let mean = percent(curve.held_out_sizes.map(|errors| errors.mean));
    vec![
        key.collective.to_string() + &labels(key),
        key.element_type.map_or_else(|| "any".to_owned(), |element| element.to_string()),
        key.place.to_string(),
        key.cadence.to_string(),
        curve.ranks.to_string(),
        curve.points.len().to_string(),
        curve.points.iter().filter(|point| point.is_disturbed()).count().to_string(),
        three_digits(microseconds(curve.alpha_seconds)),
        between(curve.alpha_seconds_low.map(microseconds), curve.alpha_seconds_high.map(microseconds)),
        curve.bytes_per_second.map_or_else(|| "-".to_owned(), |rate| three_digits(rate.gigabytes_per_second())),
        between(
            curve.bytes_per_second_low.map(|rate| rate.gigabytes_per_second()),
            curve.bytes_per_second_high.map(|rate| rate.gigabytes_per_second()),
        ),
        percent(curve.held_out_sizes.map(|errors| errors.median)),
        if curve.untrusted { mean + " UNTRUSTED" } else { mean },
    ]
}

fn held_out(fit: &Fit, width: u16) -> String {
    let columns = [
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
            errors.p95.map_or_else(|| "-".to_owned(), percent),
            percent(errors.maximum),
            percent(errors.bias),
        ]
    };
    let mut rows: Vec<Vec<String>> = fit.held_out.sizes.iter().map(|errors| row("every second size", errors)).collect();
    rows.extend(fit.held_out.regimes.iter().map(|by| row(&format!("  {}", by.regime.name()), &by.errors)));
    rows.extend(fit.held_out.group_sizes.iter().map(|errors| row("inner group sizes", errors)));
    if rows.is_empty() {
        return "not available: too few sizes to leave any out\n".to_owned();
    }
    table(&columns, &rows, width)
}

/// Labels that distinguish a curve from others of the same call.
fn labels(key: &FamilyKey) -> String {
    let words: Vec<String> =
        key.labels.iter().map(|(name, text)| format!("{} {}", name.escape_debug(), text.escape_debug())).collect();
    if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) }
}

/// The tables of coefficients, as far as the fit has them.
fn coefficients(fit: &Fit, width: u16) -> String {
    let mut text = String::new();
    let mut part = |title: &str, columns: &[Column], rows: Vec<Vec<String>>| {
        if !rows.is_empty() {
            text += &format!("\n{title}\n{}", table(columns, &rows, width));
        }
    };
    let columns = [
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
    part(title, &columns, fit.contention.iter().map(contention).collect());
    let columns = [
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
    part(
        "Interference: time of a call while calls of another axis are under way, over that alone",
        &columns,
        rows.collect(),
    );
    let columns = [
        Column::left("axis", 0),
        Column::right("hidden share", 0),
        Column::right("95 %", 0),
        Column::right("under way/alone", 0),
        Column::right("95 %", 0),
        Column::right("replays", 1),
    ];
    let rows = fit.overlap.iter().map(|overlap| {
        let ([hidden, of_hidden], [slower, of_slower]) =
            (cells(Some(&overlap.hidden_share)), cells(overlap.slowdown.as_ref()));
        let replays = overlap.hidden_share.measurements.to_string();
        vec![overlap.axis.to_string(), hidden, of_hidden, slower, of_slower, replays]
    });
    part("Overlap with computing, from replays", &columns, rows.collect());
    let columns = [
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
    part("Messages of both directions at once, from replays without computing", &columns, rows.collect());
    text
}

fn contention(one: &Contention) -> Vec<String> {
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
    let Some(found) = coefficient else { return ["-".to_owned(), "-".to_owned()] };
    let interval =
        found.low.zip(found.high).map_or_else(|| "-".to_owned(), |(low, high)| format!("{low:.2}..{high:.2}"));
    [format!("{:.2}", found.value), interval]
}
