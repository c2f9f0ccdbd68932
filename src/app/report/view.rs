//! The contents of a report: a record turned into rows, findings and warnings. Formatting is in the renderers.

use super::columns::{CallInterference, Contention, collective_and_variant};
use super::document::Block;
use super::pairs::PairsView;
use super::row::{Entry, Row, Status};
use super::step::StepView;
use super::template::{self, prose};
use super::{nccl_faults, products, provenance, row};
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Rate, Seconds, counted};
use commgauge_base::writing::grouped;
use commgauge_judge::verdict::{Consistency, ConsistencyRule, Subject, Timed, contrasts};
use commgauge_model::record::Record;
use commgauge_model::record::counters::{faults, phrases};
use commgauge_model::record::line::{CaseFacts, CaseLine, ClockLine, End, EndStatus, Header, Outcome};
use commgauge_model::record::times::{CopyTime, ProductTime};
use commgauge_model::record::work_lines::{CalibratedCurve, CalibrationLine, ReplayLine};
use commgauge_model::workload::{RankedStep, Style};
use minijinja::context;
use minijinja::value::Serde;
use std::collections::BTreeMap;

/// All contents of a report, in display order.
#[derive(Clone, Debug, PartialEq)]
pub struct View {
    /// Where the numbers come from, as recorded.
    pub header: Header,
    /// The same for readers: label and text.
    pub provenance: Vec<(&'static str, String)>,
    /// Synchronisation of the clocks.
    pub clocks: Vec<ClockLine>,
    /// One row for each planned case, in the order of the plan.
    pub rows: Vec<Row>,
    /// What each step costs, op by op; none where only sweeps were measured.
    pub steps: Vec<StepView>,
    /// Calls that were measured on all groups at once and on one alone.
    pub contention: Vec<Contention>,
    /// Calls that were measured alone and next to calls of another axis.
    pub interference: Vec<CallInterference>,
    /// The step whose parallelisms are ranked from measured calls.
    pub ranking: Option<RankedStep>,
    /// Steps that were replayed as a whole.
    pub replays: Vec<ReplayLine>,
    /// The pairs of ranks, where those were measured.
    pub pairs: Option<PairsView>,
    /// Findings beyond the rows.
    pub findings: Findings,
    /// Warnings about the numbers, as sentences, without the reasons that are shown with the rows.
    pub warnings: Vec<String>,
    /// Every matrix product.
    pub products: Vec<ProductTime>,
    /// Every copy.
    pub copies: Vec<CopyTime>,
    /// Final state of a calibration run.
    pub calibration: Option<CalibrationLine>,
    /// Whether the run is over, and its record whole.
    pub completion: Completion,
}

/// Whether a run is over, and its record whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// How the run ended, if it has.
    pub end: Option<End>,
    /// True while the run is still running.
    pub running: bool,
    /// True where the digests of the record do not fit its lines.
    pub was_changed: bool,
}

impl View {
    /// Makes the view of a record.
    pub fn new(record: &Record) -> View {
        let mut lines_of_case: Vec<Vec<&CaseLine>> = vec![Vec::new(); record.plan.cases.len()];
        for line in &record.cases {
            if let Some(lines) = lines_of_case.get_mut(line.case as usize) {
                lines.push(line);
            }
        }
        let row = |(facts, lines): (&CaseFacts, &Vec<&CaseLine>)| {
            let late = row::late_rank(record, lines, facts.cadence);
            Row { late, ..Row::merge(facts, lines, &record.header) }
        };
        let cases = record.plan.cases.iter().zip(&lines_of_case);
        let mut rows: Vec<Row> = cases.map(row).collect();
        let of_devices = mark(record, &mut rows);
        let pairs = PairsView::new(record);
        let findings = Findings::new(record, &rows, pairs.as_ref());
        View {
            findings,
            pairs,
            warnings: (provenance::warnings_of(record, &rows).into_iter())
                .chain(of_devices)
                .chain(record.meanwhile.library_use.iter().flat_map(|used| used.surprises(&record.header.ranks)))
                .chain(nccl_faults::met_by(record))
                .collect(),
            provenance: provenance::of(&record.header).into_iter().chain(provenance::carried(record)).collect(),
            header: record.header.clone(),
            clocks: record.clocks.clone(),
            steps: StepView::all_of(record, &rows),
            interference: CallInterference::all_of(record),
            ranking: record.plan.ranking.clone(),
            replays: record.replays.clone(),
            products: record.product_times(),
            copies: record.copy_times(),
            calibration: record.calibration.clone(),
            contention: Contention::all_of(&rows, &lines_of_case),
            rows,
            completion: Completion {
                end: record.end.clone(),
                running: record.file.running,
                was_changed: record.file.seal.tampering().is_some(),
            },
        }
    }

    /// Every call, then every copy, then every matrix product.
    pub(crate) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let copies = self.copies.iter().map(|time| (Subject::Copy(&time.copy), &time.times));
        let products = self.products.iter().map(|time| (Subject::Product(&time.product), &time.times));
        let own_work = copies.chain(products);
        let own_work = own_work.map(|(subject, times)| Entry::of_own_work(subject, times, &self.header));
        self.rows.iter().map(Entry::of_call).chain(own_work)
    }

    /// The warnings after which a complete run is not simply good: without the remark on the clocks, which every run with common
    /// starts has, without that of a simulation, which says so itself, and without the barrier that was asked for.
    pub fn serious_warnings(&self) -> impl Iterator<Item = &String> {
        let remark = provenance::clock_remark(&self.clocks, &self.rows);
        let is_synthetic = self.header.backend.synthetic;
        let is_requested =
            move |text: &str| !self.header.settings.start.is_synchronised() && text == provenance::AFTER_A_BARRIER;
        let is_serious = move |text: &&String| {
            remark.as_ref() != Some(*text) && !(is_synthetic && text.starts_with("synthetic")) && !is_requested(text)
        };
        self.warnings.iter().filter(is_serious)
    }

    /// What makes every time of the run doubtful, such as ranks that share cores.
    pub fn machine_warnings(&self) -> impl Iterator<Item = &String> {
        self.header.warnings.iter().filter(|text| !text.starts_with("synthetic"))
    }

    /// The exit code of the record, the most severe first: 4 for wrong data, then the failure of the run itself (5, 6
    /// or 7) or 6 for a failed case, 7 where something planned was not measured or the record was changed, 0 where everything is complete and
    /// correct. Skipped cases do not matter.
    pub fn exit_code(&self) -> i32 {
        let any = |wanted: fn(&Status) -> bool| self.rows.iter().any(|row| wanted(&row.status));
        let ended = self.completion.end.as_ref().map(|end| (end.status, end.exit_code));
        let wrong = any(|status| matches!(status, Status::Wrong { .. })) || self.any_other_outcome(Outcome::is_wrong);
        if wrong || matches!(ended, Some((_, 4))) {
            return 4;
        }
        match ended {
            Some((EndStatus::Failed, code @ 5..=7)) => return code,
            _ if any(|status| matches!(status, Status::Failed(_))) || self.any_other_outcome(is_failed) => return 6,
            Some((EndStatus::Complete, _)) if !self.completion.was_changed => {}
            Some(_) | None => return 7,
        }
        let unmeasured = |entry: Entry| match *entry.status {
            Status::Skipped(_) => false,
            _ => entry.latency.is_none() || entry.is_incomplete(),
        };
        let nothing = self.entries().next().is_none();
        if nothing || self.entries().any(unmeasured) { 7 } else { 0 }
    }

    /// Whether a replay, a product, a copy or an interference measurement has such an outcome.
    fn any_other_outcome(&self, wanted: fn(&Outcome) -> bool) -> bool {
        let replays = self.replays.iter().map(|replay| &replay.outcome);
        let products = self.products.iter().filter_map(|product| product.times.problem());
        let copies = self.copies.iter().filter_map(|copy| copy.times.problem());
        replays
            .chain(products)
            .chain(copies)
            .chain(self.interference.iter().filter_map(|pair| pair.problem.as_ref()))
            .any(wanted)
    }

    /// How products came out, and how copies did, where there are any.
    pub fn own_work(&self) -> Vec<String> {
        let both =
            [products::summary(&self.products, &self.header), products::copies_summary(&self.copies, &self.header)];
        both.into_iter().flatten().collect()
    }

    /// Number of rows, products and copies of each kind, in one sentence.
    pub fn summary(&self) -> String {
        let count = |label: &str| self.rows.iter().filter(|row| row.status.label() == label).count();
        let counts = Status::LABELS.map(|label| (label, count(label))).into_iter().filter(|(_, count)| *count > 0);
        let parts: Vec<String> = counts.map(|(label, count)| format!("{count} {label}")).collect();
        let cases = counted(self.rows.len(), "case");
        let cases = if parts.is_empty() { cases } else { format!("{cases}: {}", parts.join(", ")) };
        let others = self.own_work();
        let cases = (!self.rows.is_empty() || others.is_empty()).then_some(cases);
        cases.into_iter().chain(others).collect::<Vec<_>>().join("; ")
    }
}

/// The best bandwidth of each collective, and the latency of its smallest size.
pub(super) fn peaks(rows: &[Row]) -> Option<String> {
    let measured = rows.iter().filter(|row| row.facts.style != Style::Pairs && row.facts.solo_of.is_none());
    let of_collective = grouped(measured.map(|row| (collective_and_variant(row), row)));
    let sentence = |(name, rows): (String, Vec<&Row>)| {
        let rate = |row: &&Row| Some((row.busbw?.0, row.facts.bytes_total));
        let time = |row: &&Row| Some((row.facts.bytes_total, row.latency?.median.0));
        let (rate, most) = rows.iter().filter_map(rate).max_by(|a, b| a.0.total_cmp(&b.0))?;
        let (least, seconds) = rows.iter().filter_map(time).min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))?;
        let at_most = if most == least { String::new() } else { format!(" at {most}") };
        Some(format!("{name} {}{at_most}, {} at {least}", Rate(rate), Seconds(seconds)))
    };
    let sentences: Vec<String> = of_collective.into_iter().filter_map(sentence).collect();
    (!sentences.is_empty()).then(|| sentences.join("; "))
}

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. })
}

// What is wrong beyond single rows: slow pairs, calls that contradict each other, late ranks; as sentences.

/// Maximum number of self-consistency violations that are listed one by one.
const MAX_CONTRADICTIONS: usize = 5;

/// Findings beyond the rows, as sentences.
#[derive(Clone, Debug, PartialEq)]
pub struct Findings {
    /// Every one.
    pub all: Vec<String>,
    /// The most severe: a slow pair, then calls that contradict each other, then a late rank.
    pub worst: Option<String>,
}

impl Findings {
    pub(super) fn new(record: &Record, rows: &[Row], pairs: Option<&PairsView>) -> Findings {
        let late = rows.iter().filter_map(|row| Some((row::in_words(&row.facts), row.late.as_ref()?)));
        let isolated = rows.iter().filter(|row| row.facts.cadence == Cadence::Isolated && row.counts.samples > 0);
        let late = row::findings(late, isolated.count());
        let of_pairs: Vec<String> = pairs.iter().flat_map(|pairs| pairs.findings()).collect();
        let contradictions = contradictions(record, rows);
        let worst = of_pairs.first().or(contradictions.first()).or(late.first()).cloned();
        Findings { all: [contrasts(record), late, of_pairs, contradictions].concat(), worst }
    }
}

/// Calls that break a rule of self-consistency. Simulations are not checked.
fn contradictions(record: &Record, rows: &[Row]) -> Vec<String> {
    if record.header.backend.synthetic {
        return Vec::new();
    }
    let cases: Vec<Timed> = (rows.iter())
        .map(|row| Timed { facts: &row.facts, seconds: row.latency_seconds_of_replicate.clone() })
        .collect();
    let mut found = Consistency::of(&cases, ConsistencyRule::default());
    found.findings.retain(|finding| finding.certain);
    found.sentences(MAX_CONTRADICTIONS)
}

// Marks rows by the readings of the devices: cases during which a device changed its state, and ranks without readings.

/// Marks the rows, and returns the warnings about the whole record.
pub(super) fn mark(record: &Record, rows: &mut [Row]) -> Vec<String> {
    let mut changed: BTreeMap<u32, (u32, String)> = BTreeMap::new();
    for readings in record.meanwhile.device_readings.iter().filter(|readings| readings.ranks_changed > 0) {
        let Some(first) = readings.changes.first() else { continue };
        let text = || format!("the device of rank {} changed meanwhile ({})", first.rank, first.what);
        let (ranks, _) = changed.entry(readings.case).or_insert_with(|| (0, text()));
        *ranks = (*ranks).max(readings.ranks_changed);
    }
    for (case, (ranks, text)) in changed {
        let more = if ranks > 1 { format!(", and of {} more", ranks - 1) } else { String::new() };
        if let Some(row) = rows.get_mut(case as usize) {
            row.warnings.push(text + &more);
        }
    }
    let absent = record.devices.as_ref().and_then(|devices| devices.absent.as_ref());
    let unknown = absent.map(|why| format!("clocks, power and temperature of devices are not known: {why}"));
    unknown.into_iter().chain(counted_errors(record)).collect()
}

/// Errors that are named.
const MOST_NAMED: usize = 8;

/// The errors that hosts counted while cases were measured, and what is wrong with their devices.
fn counted_errors(record: &Record) -> Option<String> {
    let errors: Vec<String> = phrases(faults(record.meanwhile.blocks())).into_iter().take(MOST_NAMED).collect();
    (!errors.is_empty()).then(|| format!("while cases were measured {}", errors.join(", ")))
}

// The result of a calibration run: for each curve its sizes, its expected error, and the errors of the predictions of added
// sizes before they were measured.

/// The table of all curves, where sizes were chosen.
pub(super) fn document(view: &View) -> Vec<Block> {
    let Some(calibration) = &view.calibration else { return Vec::new() };
    let names =
        calibration.curves.iter().map(|curve| (curve_name(view, curve), curve.outcome.name())).collect::<Vec<_>>();
    template::blocks(
        "calibration.txt",
        include_str!("templates/calibration.txt"),
        context! { names, ..Serde(calibration) },
    )
}

/// The common name of the cases of a curve: the name of one of them without its size.
fn curve_name(view: &View, curve: &CalibratedCurve) -> String {
    view.rows.get(curve.case as usize).map_or_else(String::new, |row| {
        let facts = &row.facts;
        let size = format!("/{}/", facts.name.rsplit('/').nth(2).unwrap_or_default());
        facts.name.replacen(&size, "/", 1)
    })
}

// The same cases launched with several algorithms and protocols: which is best for each, and which are within its noise.

/// A launch with a forced algorithm and protocol.
pub struct Combination {
    /// Name of the combination, such as `ring ll128`.
    pub name: String,
    /// Its results.
    pub view: View,
}

/// The table: for every case all combinations, the best first and marked, and those within noise of it.
pub fn combinations_text(combinations: &[Combination], width: u16) -> String {
    let launch = |(name, row): (&str, &Row)| {
        let interval = row.latency.and_then(|latency| latency.interval);
        let [low, high] = [interval.map(|interval| interval.low.0), interval.map(|interval| interval.high.0)];
        let (median, busbw) = (row.latency.map(|latency| latency.median.0), row.busbw.map(|rate| rate.0));
        context! { name, median, low, high, busbw, why => row.status.to_string() }
    };
    let rows = combinations.iter().flat_map(|combination| {
        combination.view.rows.iter().map(|row| (row.facts.name.as_str(), (combination.name.as_str(), row)))
    });
    let case = |(name, rows): (&str, Vec<_>)| (name.to_owned(), rows.into_iter().map(launch).collect::<Vec<_>>());
    let cases: Vec<_> = grouped(rows).into_iter().map(case).collect();
    let synthetic = combinations.iter().any(|combination| combination.view.header.backend.synthetic);
    let source = include_str!("templates/combinations.txt");
    prose("combinations.txt", source, context! { width, synthetic, cases })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::View;
    use crate::report::row::Latency;
    use commgauge_base::stats::Interval;
    use commgauge_model::record::counters::{CounterBlock, CountersLine};
    use commgauge_model::record::header::{DeviceChange, DeviceReadingsLine, DevicesLine};
    use commgauge_model::record::line::Line;

    #[test]
    fn a_case_during_which_a_device_changed_is_marked_and_missing_readings_are_listed() {
        let text = include_bytes!("../../../tests/data/sample-record.jsonl");
        let sample = Record::parse(text, "sample").unwrap();
        let mut lines: Vec<Line> =
            text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
        lines.truncate(2);
        let absent = Some("rank 1: NVML (libnvidia-ml.so.1) cannot be used".to_owned());
        lines.push(Line::Devices(Box::new(DevicesLine { absent, ..DevicesLine::default() })));
        let changes = vec![DeviceChange { rank: 3, what: "throttled by power cap".into() }];
        let readings = DeviceReadingsLine { ranks_changed: 2, changes, ..DeviceReadingsLine::default() };
        lines.push(Line::DeviceReadings(Box::new(readings.clone())));
        let view = View::new(&Record::from_lines(lines.clone()).unwrap());
        let said = view.warnings.join("\n");
        let name = row::in_words(&sample.plan.cases[0]);
        let expected =
            format!("{name}: the device of rank 3 changed meanwhile (throttled by power cap), and of 1 more");
        assert!(said.contains(&expected), "{said}");
        assert!(said.contains("are not known: rank 1: NVML (libnvidia-ml.so.1) cannot be used"), "{said}");
        let errors = BTreeMap::from([("symbol_error of mlx5_4 port 1".to_owned(), 812)]);
        let block = CounterBlock { host: "n3".into(), during: vec![(0, 0)], errors, ..CounterBlock::default() };
        let twice = CountersLine { blocks: vec![block.clone(), block], ..CountersLine::default() };
        lines.push(Line::Counters(Box::new(twice)));
        let said = View::new(&Record::from_lines(lines.clone()).unwrap()).warnings.join("\n");
        let expected = "while cases were measured symbol_error of mlx5_4 port 1 on n3 rose by 1624";
        assert!(said.contains(expected), "{said}");
        lines.push(Line::DeviceReadings(Box::new(DeviceReadingsLine { case: 999, ..readings })));
        let error = Record::from_lines(lines).unwrap_err().to_string();
        assert!(error.contains("at case 999, which is not in the plan"), "{error}");
    }

    fn launch(name: &str, median: f64, interval: Option<[f64; 2]>) -> Combination {
        let text = include_bytes!("../../../tests/data/sample-record.jsonl");
        let mut view = View::new(&Record::parse(text, "sample").unwrap());
        let interval = interval.map(|[low, high]| Interval { low: Seconds(low), high: Seconds(high) });
        let row = view.rows.iter().find(|row| row.latency.is_some()).unwrap();
        let latency = row.latency.map(|latency| Latency { median: Seconds(median), interval, ..latency });
        view.rows = vec![Row { latency, ..row.clone() }];
        Combination { name: name.to_owned(), view }
    }

    #[test]
    fn the_best_is_marked_and_so_is_what_is_within_its_noise() {
        let all = [
            launch("ring ll", 10e-6, Some([9e-6, 11e-6])),
            launch("tree ll", 10.5e-6, Some([10.9e-6, 11e-6])),
            launch("tree simple", 12e-6, Some([11.5e-6, 12.5e-6])),
            launch("ring simple", 20e-6, None),
        ];
        let text = combinations_text(&all, 80);
        for (mark, name) in [("*", "ring ll"), ("~", "tree ll"), (" ", "tree simple"), ("~", "ring simple")] {
            assert!(text.lines().any(|line| line.starts_with(&format!("{mark}  {name} "))), "{mark} {name}: {text}");
        }
        assert!(text.contains("12.0  11.5..12.5") && text.contains(" 20.0 %\n"), "{text}");
        let mut failed = launch("pat ll", 1.0, None);
        failed.view.rows[0] =
            Row { latency: None, status: Status::Failed("no | memory".into()), ..failed.view.rows[0].clone() };
        let text = combinations_text(&[failed], 80);
        assert!(text.contains("\npat ll: failed: no | memory\n"), "{text}");
    }
}
