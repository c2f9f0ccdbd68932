//! Slowdown of a call while calls of another axis are in flight: alone and together, replicate by replicate.

use super::contention::reading;
use super::document::{Block, Column, Row, Table, Tone, optional, percent, range};
use commgauge_base::stats::{Interval, median, median_interval, sorted};
use commgauge_base::units::{Seconds, three_digits};
use commgauge_model::record::Record;
use commgauge_model::record::interference_line::{InterferenceLine, InterferingCall};
use commgauge_model::record::line::Outcome;

/// Upper bound on the wait for a call that has already completed: two clock readings and a call into the library.
const NANOSECONDS_OF_A_WAIT_FOR_NOTHING: u64 = 1_000;

/// A call next to another one, over all replicates.
#[derive(Clone, Debug, PartialEq)]
pub struct CallInterference {
    /// The call that is timed.
    pub timed: InterferingCall,
    /// The call that is in flight meanwhile.
    pub beside: InterferingCall,
    /// Maximum number of calls of the other that were started before it.
    pub calls_beside: u32,
    /// Median over the replicates, alone.
    pub alone: Option<Seconds>,
    /// Median over the replicates, together.
    pub together: Option<Seconds>,
    /// Median over the replicates of time(together)/time(alone), both of the same replicate.
    pub factor: Option<f64>,
    /// 95 % interval of that median; `None` with fewer than 6 replicates.
    pub interval: Option<Interval>,
    /// Replicates in which both have a time.
    pub replicates: u32,
    /// Share of the timed call during which the other was certainly in flight. All of it where the other had not completed
    /// afterwards; else at most the fastest time of one call of the other alone.
    pub certain_overlap: Option<f64>,
    /// Why a replicate has no time.
    pub trouble: Option<Outcome>,
}

impl CallInterference {
    /// Every pair of the record.
    pub(super) fn all_of(record: &Record) -> Vec<CallInterference> {
        let mut kinds: Vec<Vec<&InterferenceLine>> = Vec::new();
        for line in &record.interference {
            let key = |line: &InterferenceLine| (line.step, line.timed.clone(), line.beside.clone());
            match kinds.iter_mut().find(|lines| key(lines[0]) == key(line)) {
                Some(lines) => lines.push(line),
                None => kinds.push(vec![line]),
            }
        }
        kinds.iter().filter_map(|lines| Some(CallInterference::of(lines.first()?, lines))).collect()
    }

    fn of(first: &InterferenceLine, lines: &[&InterferenceLine]) -> CallInterference {
        let good = || lines.iter().filter(|line| matches!(line.outcome, Outcome::Measured { .. }));
        let wrong = lines.iter().any(|line| line.outcome.is_wrong());
        let medians: Vec<(f64, f64)> = good()
            .filter(|_| !wrong)
            .filter_map(|line| Some((middle(&line.alone_nanoseconds)?, middle(&line.together_nanoseconds)?)))
            .filter(|(alone, _)| *alone > 0.0)
            .collect();
        let over = |of: fn(&(f64, f64)) -> f64| sorted(medians.iter().map(of));
        let ratios = over(|(alone, together)| together / alone);
        let shares: Vec<f64> = good().filter(|_| !wrong).flat_map(|line| shares_of(line)).collect();
        CallInterference {
            timed: first.timed.clone(),
            beside: first.beside.clone(),
            calls_beside: lines.iter().map(|line| line.calls_beside).max().unwrap_or(0),
            alone: median(&over(|pair| pair.0 * 1e-9)).map(Seconds),
            together: median(&over(|pair| pair.1 * 1e-9)).map(Seconds),
            factor: median(&ratios),
            interval: median_interval(&ratios, 0.95),
            replicates: ratios.len() as u32,
            certain_overlap: (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64),
            trouble: lines
                .iter()
                .map(|line| &line.outcome)
                .find(|outcome| !matches!(outcome, Outcome::Measured { .. }))
                .cloned(),
        }
    }
}

/// For each repetition the share of the timed call during which the other was certainly in flight.
fn shares_of(line: &InterferenceLine) -> Vec<f64> {
    let fastest = line.beside_alone_nanoseconds.iter().min().copied().unwrap_or(0);
    let nothing = NANOSECONDS_OF_A_WAIT_FOR_NOTHING * u64::from(line.calls_beside);
    let share = |(took, waited): (&u64, &u64)| {
        if *waited > nothing { 1.0 } else { (fastest as f64 / (*took).max(1) as f64).min(1.0) }
    };
    line.together_nanoseconds.iter().zip(&line.still_waited_nanoseconds).map(share).collect()
}

fn middle(nanoseconds: &[u64]) -> Option<f64> {
    median(&sorted(nanoseconds.iter().map(|time| *time as f64)))
}

/// The table of all pairs, where there are any.
pub(super) fn document(pairs: &[CallInterference]) -> Option<Block> {
    const COLUMNS: [Column; 10] = [
        Column::left("timed", 0),
        Column::left("beside", 0),
        Column::right("calls beside", 4),
        Column::right("alone", 2),
        Column::right("together", 2),
        Column::right("factor", 0),
        Column::left("[95 %]", 0),
        Column::right("repl.", 3),
        Column::right("surely beside", 0),
        Column::left("reads as", 5),
    ];
    let title = "interference: time of a call while calls of another axis are under way, over that alone";
    let table =
        Table::new(title, &COLUMNS, pairs.iter().map(row)).whole_in("`commgauge report --format json` has every pair");
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

fn row(pair: &CallInterference) -> Row {
    let call = |call: &InterferingCall| format!("{} {} {}", call.axis, call.collective, call.bytes_total);
    let (tone, reading) = match &pair.trouble {
        Some(outcome) if outcome.is_wrong() => (Tone::Bad, "WRONG: data arrived wrong".to_owned()),
        Some(Outcome::Failed { reason }) => (Tone::Bad, format!("failed: {reason}")),
        _ => (Tone::Plain, reading(pair.factor, pair.interval)),
    };
    let cells = vec![
        call(&pair.timed),
        call(&pair.beside),
        pair.calls_beside.to_string(),
        optional(pair.alone),
        optional(pair.together),
        optional(pair.factor.map(three_digits)),
        range(pair.interval.map(|interval| interval.map(three_digits))),
        pair.replicates.to_string(),
        optional(pair.certain_overlap.map(|share| percent(share, 0))),
        reading,
    ];
    Row::toned(tone, cells)
}
