//! What a step of a model costs, op by op, from the record alone: times of calls, bytes, the ranking of parallelisms
//! against the rule TP > DP > PP, and where their order flips.

mod json;

pub use commgauge_base::stats::Span;
pub use commgauge_model::workload::{Family, Measure};
pub(super) use json::{JsonStep, document, parts};

use super::row::Row;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::writing::distinct;
use commgauge_cost::cost::{Prediction, Status};
use commgauge_model::layout::Axis;
use commgauge_model::record::Record;
use commgauge_model::record::line::{CaseFacts, StepUse};
use commgauge_model::workload::op::{Overlap, When};
use commgauge_model::workload::{Crossing, Op, StepFacts};
use commgauge_plan::planner::communication::OpCost;
use commgauge_plan::planner::rank::{Flip, Order, Priced, RankOptions, crossings, orders_of};

/// One step of the record.
#[derive(Clone, Debug, PartialEq)]
pub struct StepView {
    /// Model, layout, micro-batches and tokens.
    pub facts: StepFacts,
    /// Its calls, in the order of the plan.
    pub ops: Vec<StepOp>,
    /// Totals of all calls, in sequence.
    pub whole: Totals,
    /// Totals of each axis, the slowest first.
    pub axes: Vec<Totals>,
    /// Totals of each style, the slowest first.
    pub styles: Vec<Totals>,
    /// The parallelisms by each measure.
    pub rankings: Vec<Order>,
    /// Where their order flips.
    pub crossovers: Vec<Crossover>,
}

impl StepView {
    /// Every step of the record.
    pub(super) fn all_of(record: &Record, rows: &[Row]) -> Vec<StepView> {
        let view = |(index, facts): (usize, &StepFacts)| StepView::new(facts, ops_of(index as u32, rows), rows);
        record.plan.steps.iter().enumerate().map(view).collect()
    }

    fn new(facts: &StepFacts, ops: Vec<StepOp>, rows: &[Row]) -> StepView {
        let called: Vec<Op> = ops.iter().map(|op| op.called(rows)).collect();
        let priced = priced(&ops, &called, rows);
        StepView {
            facts: facts.clone(),
            whole: Totals::of("", &ops, |_| true),
            axes: Totals::by_name(&ops, |op| op.axis.name()),
            styles: Totals::by_name(&ops, |op| op.used.style.name()),
            rankings: orders_of(&priced, RankOptions::default()),
            crossovers: Crossover::all_of(&priced, facts),
            ops,
        }
    }

    /// The part of an op in the time of all; `None` where some op has no time.
    pub fn share(&self, op: &StepOp) -> Option<f64> {
        let whole = self.whole.time.complete()?.middle;
        op.seconds_per_step().filter(|_| whole > 0.0).map(|seconds| seconds.middle / whole)
    }
}

// Totals over the calls of an axis, a style or a whole step: bytes, time, and the number of calls without a time.

/// Totals over some calls of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct Totals {
    /// The axis or style; empty for the whole step.
    pub name: &'static str,
    /// Size arguments of all calls.
    pub payload_bytes_per_step: Bytes,
    /// Bytes that a rank sends.
    pub wire_bytes_per_step: Bytes,
    /// Time of all calls, one after another.
    pub time: Sum,
    /// Time of the exposed calls only.
    pub exposed_time: Sum,
}

/// A sum over calls of which some may have no time. Missing times are always reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sum {
    /// Seconds of the calls that have a time.
    pub known_seconds: Span,
    /// Distinct calls.
    pub ops: usize,
    /// Those of them without a time: skipped, failed, wrong or not measured.
    pub without_a_time: usize,
}

impl Sum {
    fn of<'a>(ops: impl Iterator<Item = &'a StepOp>) -> Sum {
        let mut sum = Sum { known_seconds: Span::exact(0.0), ops: 0, without_a_time: 0 };
        for op in ops {
            sum.ops += 1;
            match op.seconds_per_step() {
                Some(seconds) => sum.known_seconds = sum.known_seconds.plus(seconds),
                None => sum.without_a_time += 1,
            }
        }
        sum
    }

    /// The sum, where every call has a time.
    pub fn complete(&self) -> Option<Span> {
        (self.without_a_time == 0).then_some(self.known_seconds)
    }

    /// What is missing, as a sentence without full stop.
    pub fn incomplete(&self) -> Option<String> {
        (self.without_a_time > 0)
            .then(|| format!("incomplete: {} of {} ops without a time", self.without_a_time, self.ops))
    }
}

impl Totals {
    /// The totals of the calls that are wanted.
    fn of(name: &'static str, ops: &[StepOp], wanted: impl Fn(&StepOp) -> bool) -> Totals {
        let chosen = || ops.iter().filter(|op| wanted(op));
        let bytes = |of: fn(&StepOp) -> Bytes| Bytes(chosen().fold(0u64, |sum, op| sum.saturating_add(of(op).0)));
        Totals {
            name,
            payload_bytes_per_step: bytes(|op| op.payload_bytes_per_step),
            wire_bytes_per_step: bytes(|op| op.used.wire_bytes_per_step),
            time: Sum::of(chosen()),
            exposed_time: Sum::of(chosen().filter(|op| op.used.exposed)),
        }
    }

    /// One for each name, the one that takes longest first; without times the one that sends most.
    fn by_name(ops: &[StepOp], name_of: impl Fn(&StepOp) -> &'static str) -> Vec<Totals> {
        let names = distinct(ops.iter().map(&name_of));
        let mut all: Vec<Totals> =
            names.into_iter().map(|name| Totals::of(name, ops, |op| name_of(op) == name)).collect();
        all.sort_by(|a, b| {
            let by_time = b.time.known_seconds.middle.total_cmp(&a.time.known_seconds.middle);
            by_time.then(b.wire_bytes_per_step.cmp(&a.wire_bytes_per_step))
        });
        all
    }
}

#[cfg(test)]
pub(super) mod tests {
    // What a step's report promises: known answers by hand, and the formats as published.
    use super::*;
    use crate::report::{Format, Paint, View, render};
    use commgauge_base::sample::Cadence;
    use commgauge_base::units::Bytes;
    use commgauge_model::layout::{Axis, Degrees};
    use commgauge_model::record::Record;
    use commgauge_model::record::line::{CaseFacts, CaseLine, Outcome, StepUse};
    use commgauge_model::workload::Crossing;
    use commgauge_model::workload::Style;
    use commgauge_model::workload::op::{End, Moment, Pass, When};

    const MICRO_BATCH: When = When::MicroBatch { pass: Pass::Forward, end: End::Whole, calls: 1, one_in: 1 };
    const ONCE: When = When::Step { moment: Moment::LastBackward, calls: 1 };

    /// A call of the step in question: microseconds of a call in each replicate, none where it was skipped.
    pub(in crate::report) struct StepCall {
        pub axis: Axis,
        pub style: Style,
        when: When,
        count: u64,
        wire: u64,
        exposed: bool,
        pub microseconds: &'static [f64],
    }

    const fn called(
        axis: Axis,
        style: Style,
        when: When,
        count: u64,
        wire: u64,
        microseconds: &'static [f64],
    ) -> StepCall {
        let exposed = !matches!(style, Style::Data);
        StepCall { axis, style, when, count, wire, exposed, microseconds }
    }

    /// TP of 64 calls of about 100 us, DP of 2 of about 1 ms, PP of 8 of about 200 us.
    pub(in crate::report) const USUAL: [StepCall; 3] = [
        called(Axis::Tp, Style::Tensor, MICRO_BATCH, 64, 640_000_000, &[100.0, 102.0, 98.0]),
        called(Axis::Dp, Style::Data, ONCE, 2, 80_000_000, &[1000.0, 1010.0, 990.0]),
        called(Axis::Pp, Style::Pipeline, MICRO_BATCH, 8, 8_000_000, &[200.0, 202.0, 198.0]),
    ];

    /// A record of one step of 8192 tokens with these calls.
    pub(in crate::report) fn record(calls: &[StepCall]) -> Record {
        let mut record = commgauge_model::record::testing::sample();
        let (facts, line) = (record.plan.cases[0].clone(), record.cases[0].clone());
        record.plan.cases = calls.iter().map(|call| case_of(&facts, call)).collect();
        let line_of = |(index, call): (usize, &StepCall)| {
            let name = case_of(&facts, call).name;
            let place = |replicate: usize| CaseLine {
                case: index as u32,
                name: name.as_str().into(),
                replicate: replicate as u32,
                ..line_of_times(&line, call.microseconds.get(replicate))
            };
            (0..call.microseconds.len().max(1)).map(place).collect::<Vec<_>>()
        };
        record.cases = calls.iter().enumerate().flat_map(line_of).collect();
        record.plan.steps = vec![StepFacts {
            model: "a model".to_owned(),
            layout: "tp 2 x dp 2 x pp 2".to_owned(),
            phase: "training".to_owned(),
            degrees: Degrees::dense(2, 1, 2, 2),
            micro_batches: 8,
            tokens_per_replica: 8192,
        }];
        record
    }

    fn case_of(facts: &CaseFacts, call: &StepCall) -> CaseFacts {
        let used = StepUse {
            step: 0,
            style: call.style,
            when: call.when,
            count_per_step: call.count,
            wire_bytes_per_step: Bytes(call.wire),
            exposed: call.exposed,
            overlaps_with: (!call.exposed).then(|| "last micro-batch's backward".to_owned()),
            why: "by hand".to_owned(),
        };
        let name = format!("{}/{}/{}", call.axis, call.style.name(), call.wire);
        let bytes_total = Bytes(call.wire / call.count);
        CaseFacts { name, axis: call.axis, style: call.style, bytes_total, uses: vec![used], ..facts.clone() }
    }

    /// Twelve samples, a thousandth apart, around a time.
    fn line_of_times(line: &CaseLine, microseconds: Option<&f64>) -> CaseLine {
        let mut line = CaseLine { calls_per_sample: 1, histograms: Vec::new(), ..line.clone() };
        let samples = &mut line.samples;
        samples.excluded.clear();
        match microseconds {
            None => {
                *samples = commgauge_model::record::line::Samples::default();
                line.outcome = Outcome::Skipped { reason: "not here".to_owned() };
            }
            Some(middle) => {
                samples.slowest_nanoseconds =
                    (0..13u64).map(|index| (middle * 1000.0) as u64 * (994 + index) / 1000).collect();
                samples.slowest_rank = vec![0; 13];
                line.outcome = Outcome::Measured { verified: true };
            }
        }
        line
    }

    fn step(calls: &[StepCall]) -> StepView {
        View::new(&record(calls)).steps.remove(0)
    }

    fn rule(step: &StepView, measure: Measure) -> String {
        step.rankings.iter().find(|ranking| ranking.measure == measure).unwrap().rule_text()
    }

    fn near(found: f64, expected: f64) -> bool {
        (found / expected - 1.0).abs() < 1e-3
    }

    #[test]
    fn a_call_without_a_time_makes_totals_and_rankings_incomplete_and_never_smaller() {
        let mut calls = USUAL;
        calls[1].microseconds = &[];
        let step = step(&calls);
        let dp = step.axes.iter().find(|totals| totals.name == "dp").unwrap();
        assert_eq!(dp.time.complete(), None);
        assert_eq!(step.whole.time.complete(), None);
        assert_eq!(step.whole.time.incomplete().unwrap(), "incomplete: 1 of 3 ops without a time");
        assert_eq!(rule(&step, Measure::Time), "not known, DP: 1 of 1 ops without a time: skipped");
        assert_eq!(rule(&step, Measure::WireBytes), "holds", "bytes are known without a time");
        assert!(step.ops.iter().all(|op| step.share(op).is_none()), "shares of an unknown whole");
        assert_eq!(step.crossovers[0].time, Crossing::Unknown);
        let mut text = Vec::new();
        render(&View::new(&record(&calls)), Format::Table, 140, Paint::Plain, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("all calls one after another: > 8.00 ms, incomplete: 1 of 3 ops without a time"),
            "{text}"
        );
    }

    #[test]
    fn the_cost_of_a_call_is_its_time_times_its_count() {
        let step = step(&USUAL);
        let seconds: Vec<f64> = step.ops.iter().map(|op| op.seconds_per_step().unwrap().middle).collect();
        for (found, expected) in seconds.iter().zip([64.0 * 100e-6, 2.0 * 1e-3, 8.0 * 200e-6]) {
            assert!(near(*found, expected), "{found} {expected}");
        }
        assert!(near(step.whole.time.complete().unwrap().middle, 10e-3));
        assert!(near(step.whole.exposed_time.complete().unwrap().middle, 8e-3), "all but the data parallel calls");
        assert!(near(step.share(&step.ops[0]).unwrap(), 0.64));
        let names: Vec<_> = step.axes.iter().map(|totals| totals.name).collect();
        assert_eq!(names, ["tp", "dp", "pp"], "the slowest first");
    }

    #[test]
    fn the_rule_holds_breaks_and_ties_as_the_intervals_say() {
        let time = |dp: &'static [f64], pp: &'static [f64]| {
            let mut calls = USUAL;
            (calls[1].microseconds, calls[2].microseconds) = (dp, pp);
            rule(&step(&calls), Measure::Time)
        };
        assert_eq!(time(&[1000.0, 1010.0, 990.0], &[200.0, 202.0, 198.0]), "holds");
        assert_eq!(time(&[4000.0, 4010.0, 3990.0], &[200.0, 202.0, 198.0]), "does not hold: DP > TP > PP");
        assert_eq!(time(&[1000.0, 1010.0, 990.0], &[250.0, 270.0, 230.0]), "tie: TP > DP = PP");
        let two = step(&USUAL[..2]);
        assert_eq!(rule(&two, Measure::WireBytes), "holds", "an axis that is not there is left out");
        assert_eq!(rule(&two, Measure::ExposedTime), "holds", "nothing is exposed of DP");
        assert!(rule(&step(&USUAL[..1]), Measure::Time).starts_with("nothing to compare"));
    }

    #[test]
    fn the_order_flips_where_the_calls_of_every_micro_batch_have_grown_enough() {
        let step = step(&USUAL);
        let pair = |a, b| step.crossovers.iter().find(|crossover| crossover.families == [a, b]).unwrap();
        // T* = T_d x 80 MB / 640 MB, and T_d x 2 ms / 6.4 ms.
        let tp_dp = pair(Family::Tensor, Family::Data);
        let at = |crossing| match crossing {
            Crossing::At { tokens, larger_above } => (tokens, larger_above),
            other => panic!("{other:?}"),
        };
        assert_eq!(at(tp_dp.wire), (Span::exact(1024.0), Family::Tensor));
        let (tokens, larger_above) = at(tp_dp.time);
        assert!(near(tokens.middle, 8192.0 * 2.0 / 6.4) && larger_above == Family::Tensor, "{tokens:?}");
        let interval = tokens.interval.unwrap();
        assert!(interval.low < tokens.middle && tokens.middle < interval.high);
        // T* = T_d x 80 MB / 8 MB: far above this step.
        let dp_pp = pair(Family::Data, Family::Pipeline);
        assert_eq!(at(dp_pp.wire), (Span::exact(81_920.0), Family::Pipeline));
        assert_eq!(pair(Family::Tensor, Family::Pipeline).time, Crossing::Never(Family::Tensor));
        // A few bytes of PP once in a step are more than TP only below one micro-batch.
        let mut calls = USUAL;
        calls[2] = called(Axis::Pp, Style::Control, ONCE, 1, 4, &[1.0, 1.01, 0.99]);
        let tiny = self::step(&calls);
        let tp_pp = tiny.crossovers.iter().find(|crossover| crossover.families[1] == Family::Pipeline).unwrap();
        assert_eq!((tp_pp.wire, tp_pp.time), (Crossing::Never(Family::Tensor), Crossing::Never(Family::Tensor)));
    }

    #[test]
    fn streaming_times_are_preferred_over_isolated_ones() {
        let mut record = record(&USUAL);
        let mut isolated = record.plan.cases[0].clone();
        (isolated.cadence, isolated.name) = (Cadence::Isolated, "isolated".to_owned());
        record.plan.cases.insert(0, isolated);
        for line in &mut record.cases {
            line.case += 1;
        }
        let slow = CaseLine { case: 0, name: "isolated".into(), ..line_of_times(&record.cases[0], Some(&500.0)) };
        record.cases.push(slow);
        let chosen = |record: &Record| {
            let step = View::new(record).steps.remove(0);
            assert_eq!(step.ops.len(), 3, "the same call is listed once");
            (step.ops[0].cadence, step.ops[0].seconds_per_call.unwrap().middle)
        };
        assert_eq!(chosen(&record).0, Cadence::Streaming);
        record.cases.retain(|line| line.case != 1);
        let (cadence, seconds) = chosen(&record);
        assert_eq!(cadence, Cadence::Isolated);
        assert!(near(seconds, 500e-6), "{seconds}");
    }

    /// The record with the tensor calls once more on one group alone, a fifth faster, in seven replicates.
    fn with_solo() -> Record {
        let mut calls = USUAL;
        calls[0].microseconds = &[100.0, 102.0, 98.0, 101.0, 99.0, 100.5, 99.5];
        let mut record = record(&calls);
        let mut alone = record.plan.cases[0].clone();
        (alone.name, alone.groups, alone.solo_of) = ("tp/solo".to_owned(), 1, Some(0));
        alone.uses.clear();
        record.plan.cases.push(alone);
        let of_all: Vec<CaseLine> = record.cases.iter().filter(|line| line.case == 0).cloned().collect();
        for mut line in of_all {
            (line.case, line.name) = (3, "tp/solo".into());
            line.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time = *time * 4 / 5);
            record.cases.push(line);
        }
        record
    }

    #[test]
    fn contention_is_the_median_of_paired_ratios_and_has_an_interval_from_six_replicates_on() {
        let mut record = with_solo();
        let view = View::new(&record);
        let [pair] = view.contention.as_slice() else { panic!("{:?}", view.contention) };
        assert!(near(pair.slowdown.factor_median.unwrap(), 1.25), "{pair:?}");
        assert!(pair.slowdown.factor_interval_low.unwrap() > 1.24);
        assert_eq!((pair.slowdown.replicates, pair.groups, pair.slowdown.reading.as_str()), (7, 2, "slower together"));
        assert_eq!(view.steps[0].ops.len(), 3, "the case on one group alone belongs to no step");

        record.cases.retain(|line| line.replicate < 3);
        let pair = View::new(&record).contention.remove(0);
        assert!(near(pair.slowdown.factor_median.unwrap(), 1.25));
        assert_eq!((pair.slowdown.factor_interval_low, pair.slowdown.replicates), (None, 3));

        record.cases[0].outcome = Outcome::corrupt("after", 0, 0, ["1", "2"], 1);
        assert_eq!(View::new(&record).contention[0].slowdown.factor_median, None, "numbers of wrong data are withheld");
    }

    #[test]
    fn every_format_shows_the_step_as_published() {
        let view = View::new(&with_solo());
        let rendered = |format, width| {
            let mut out = Vec::new();
            render(&view, format, width, Paint::Plain, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        for width in [80u16, 140] {
            let text = rendered(Format::Table, width);
            let section = &text[text.find("step: ").unwrap()..];
            assert!(section.lines().all(|line| line.chars().count() <= usize::from(width)), "{section}");
            insta::assert_snapshot!(format!("step_table_{width}"), section);
        }
        let markdown = rendered(Format::Markdown, 80);
        insta::assert_snapshot!("step_markdown", &markdown[markdown.find("## step").unwrap()..]);
        let json: serde_json::Value = serde_json::from_str(&rendered(Format::Json, 80)).unwrap();
        let parts = serde_json::json!({ "steps": json["steps"], "contention": json["contention"] });
        insta::assert_snapshot!("step_json", serde_json::to_string_pretty(&parts).unwrap());
    }
}

// The calls of one step, each with its measured time and its total in the step.

/// One call of a step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepOp {
    /// Index of the row whose time is taken, or of the first of the call where none has a time.
    pub row: usize,
    /// The axis whose groups carry it out.
    pub axis: Axis,
    /// How the step performs it.
    pub used: StepUse,
    /// Size argument of all calls together.
    pub payload_bytes_per_step: Bytes,
    /// Cadence of the measurement.
    pub cadence: Cadence,
    /// Seconds of one call; `None` where there is no time.
    pub seconds_per_call: Option<Span>,
}

impl StepOp {
    /// Seconds of all its calls in a step, one after another.
    pub fn seconds_per_step(&self) -> Option<Span> {
        self.seconds_per_call.map(|call| call.times(self.used.count_per_step as f64))
    }

    /// Whether it occurs in every micro-batch, so that its count grows with the tokens of a replica.
    pub fn every_micro_batch(&self) -> bool {
        is_in_every_micro_batch(self.used.when)
    }

    /// The call as a style would have it.
    pub(super) fn called(&self, rows: &[Row]) -> Op {
        let facts = &rows[self.row].facts;
        let overlap = if self.used.exposed { Overlap::Exposed } else { Overlap::Backward };
        let op = Op::new(self.used.style, self.axis, facts.collective, facts.element_type, facts.bytes_total.0);
        Op { when: self.used.when, overlap, ..op }
    }

    /// The computing that hides it; `None` for exposed calls.
    pub fn overlaps_with(&self) -> Option<&str> {
        (!self.used.exposed).then(|| self.used.overlaps_with.as_deref().unwrap_or("something unnamed"))
    }
}

/// The calls of a step, in the order of the plan.
pub(super) fn ops_of(step: u32, rows: &[Row]) -> Vec<StepOp> {
    let serves = |row: &Row| row.facts.uses.iter().any(|used| used.step == step);
    let mut ops = Vec::new();
    for (index, first) in rows.iter().enumerate().filter(|(_, row)| serves(row)) {
        let same = |row: &Row| serves(row) && is_same_call(&row.facts, &first.facts);
        // The same call in another placement or cadence is listed once.
        if rows[..index].iter().any(same) {
            continue;
        }
        let chosen = chosen(rows, same).unwrap_or(index);
        ops.extend(
            first.facts.uses.iter().filter(|used| used.step == step).map(|used| op(chosen, &rows[chosen], used)),
        );
    }
    ops
}

/// The row whose time is taken: streaming where that was measured, as a step has its calls back to back; else isolated.
fn chosen(rows: &[Row], same: impl Fn(&Row) -> bool) -> Option<usize> {
    let timed = |cadence| {
        rows.iter().position(|row| same(row) && row.facts.cadence == cadence && seconds_per_call(row).is_some())
    };
    timed(Cadence::Streaming).or_else(|| timed(Cadence::Isolated))
}

/// Whether two cases differ in placement and cadence only.
fn is_same_call(a: &CaseFacts, b: &CaseFacts) -> bool {
    let key = |facts: &CaseFacts| {
        let CaseFacts { axis, group_size, groups, collective, element_type, reduce_op, root, bytes_total, .. } = facts;
        (*axis, *group_size, *groups, *collective, *element_type, *reduce_op, *root, *bytes_total)
    };
    key(a) == key(b) && a.splits == b.splits && a.uses == b.uses
}

fn op(index: usize, row: &Row, used: &StepUse) -> StepOp {
    let bytes_total = row.facts.bytes_total.0;
    StepOp {
        row: index,
        axis: row.facts.axis,
        used: used.clone(),
        payload_bytes_per_step: Bytes(bytes_total.saturating_mul(used.count_per_step)),
        cadence: row.facts.cadence,
        seconds_per_call: seconds_per_call(row),
    }
}

/// The latency of a row covers one way; a call may have several.
fn seconds_per_call(row: &Row) -> Option<Span> {
    let latency = row.latency?;
    let interval = latency.interval.map(|interval| interval.map(|seconds| seconds.0));
    Some(Span { middle: latency.median.0, interval }.times(f64::from(row.facts.transfers_per_call)))
}

// Where the order of two parallelisms of a measured step flips: every pair that crosses somewhere, and those of the rule.

/// Where two parallelisms are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossover {
    /// The two.
    pub families: [Family; 2],
    /// By the bytes that a rank sends.
    pub wire: Crossing,
    /// By the time of all calls.
    pub time: Crossing,
}

impl Crossover {
    /// Every pair of parallelisms that cross somewhere, and the pairs of the rule in any case.
    pub(super) fn all_of(priced: &[Priced], facts: &StepFacts) -> Vec<Crossover> {
        let grows = |op: &Op, _| is_in_every_micro_batch(op.when);
        let flips = crossings(priced, facts.tokens_per_replica, facts.micro_batches, grows);
        let of_pair = |pair: &[Flip]| {
            let by = |measure| pair.iter().find(|flip| flip.measure == measure).map(|flip| flip.crossing);
            let (wire, time) = by(Measure::WireBytes).zip(by(Measure::Time))?;
            let crosses = [wire, time].iter().any(|crossing| matches!(crossing, Crossing::At { .. }));
            let families = pair[0].families.into();
            (crosses || pair[0].is_of_rule()).then_some(Crossover { families, wire, time })
        };
        flips.chunk_by(|a, b| a.families == b.families).filter_map(of_pair).collect()
    }
}

/// The calls with the times that were measured.
pub(super) fn priced<'o>(ops: &[StepOp], called: &'o [Op], rows: &[Row]) -> Vec<Priced<'o>> {
    let price = |(op, called): (&StepOp, &'o Op)| {
        let Row { facts, status, .. } = &rows[op.row];
        let call = match op.seconds_per_call {
            Some(seconds) => Prediction::of(seconds, Status::Measured),
            None => Prediction::refused(status.label().to_owned()),
        };
        let cost = OpCost {
            ranks: facts.group_size,
            calls: op.used.count_per_step,
            payload_bytes: op.payload_bytes_per_step,
            wire_bytes: op.used.wire_bytes_per_step,
            call,
        };
        Priced { op: called, cost, locality: facts.locality.clone() }
    };
    ops.iter().zip(called).map(price).collect()
}

fn is_in_every_micro_batch(when: When) -> bool {
    !matches!(when, When::Step { .. } | When::Outside)
}
