//! Matrix products, and the result of a calibration run.

use super::HtmlInput;
use super::page::{Block, Table};
use crate::report::{View, calibration};
use commgauge_base::units::{counted, three_digits};
use commgauge_model::record::calibration_line::CalibrationLine;
use commgauge_model::record::line::Outcome;
use commgauge_model::record::product_times::ProductTime;

/// Matrix products, where there are any.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let several = input.runs.len() > 1;
    let mut blocks = Vec::new();
    for (index, run) in input.runs.iter().enumerate() {
        let Some(first) = run.view.products.first() else { continue };
        let which = if several { format!("Run {}: ", index + 1) } else { String::new() };
        blocks.push(Block::Table(products(&run.view.products, first, &which)));
    }
    blocks
}

fn products(times: &[ProductTime], first: &ProductTime, which: &str) -> Table {
    let columns = [
        ("layers", false),
        ("m x k by k x n", false),
        ("type", false),
        ("time", true),
        ("95 % interval", true),
        ("GFLOP/s of a rank", true),
        ("replicates", true),
        ("check", false),
    ];
    let caption = format!(
        "{which}products of m x k by k x n, the slowest of {} on a host that compute at once; {}",
        counted(first.ranks_per_host as usize, "rank"),
        first.library
    );
    let mut table = Table::new(caption, &columns);
    for time in times {
        let product = &time.product;
        let unknown = || "not available".to_owned();
        let (tone, check) = match &time.trouble {
            None => ("", "right".to_owned()),
            Some(Outcome::Corrupt { rank, element, .. }) => ("bad", format!("WRONG on rank {rank}, element {element}")),
            Some(Outcome::Waived { .. }) => ("unsure", "waived".to_owned()),
            Some(Outcome::Failed { reason }) => ("bad", format!("failed: {reason}")),
            Some(Outcome::Measured { .. }) => ("", unknown()),
        };
        let cells = vec![
            product.uses.join(", "),
            format!("{} x {} by {} x {}", product.m, product.k, product.k, product.n),
            product.element_type.to_string(),
            time.median().map_or_else(unknown, |seconds| seconds.to_string()),
            time.interval.map_or_else(|| "too few samples".to_owned(), |(low, high)| format!("{low} to {high}")),
            time.flops_per_second().map_or_else(unknown, |rate| three_digits(rate * 1e-9)),
            time.seconds.len().to_string(),
            check,
        ];
        table.row_toned(tone, cells);
    }
    table.capped("`commgauge report --format json` has every product")
}

/// The rounds of a calibration run; none for other runs.
pub(super) fn calibration(view: &View) -> Option<Block> {
    let line = view.calibration.as_ref().filter(|line| !line.curves.is_empty())?;
    Some(Block::Table(curves(view, line)))
}

fn curves(view: &View, line: &CalibrationLine) -> Table {
    let columns = [
        ("curve", false),
        ("sizes", true),
        ("expected error", true),
        ("last prediction", true),
        ("worst prediction", true),
        ("ended", false),
    ];
    let caption = format!(
        "Calibration: sizes were added in {} where curves were least sure, until {} %",
        counted(line.rounds as usize, "round"),
        three_digits(line.until_error * 100.0)
    );
    let mut table = Table::new(caption, &columns);
    for curve in &line.curves {
        let percent = |error: Option<f64>| {
            error.map_or_else(|| "not available".to_owned(), |error| format!("{} %", three_digits(error * 100.0)))
        };
        table.row(vec![
            calibration::curve_name(view, curve),
            curve.sizes.to_string(),
            percent(curve.expected_error),
            percent(curve.last_error),
            percent(curve.largest_error),
            curve.outcome.name().to_owned(),
        ]);
    }
    table
        .capped("`commgauge report --format json` has every curve")
        .noted("Predictions are of sizes before they were measured.")
}
