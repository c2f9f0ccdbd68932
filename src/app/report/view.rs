//! The contents of a report: a record turned into rows, findings and warnings. Formatting is in the renderers.

use super::contention::Contention;
use super::copies;
use super::devices;
use super::entry::Entry;
use super::findings::Findings;
use super::interference::CallInterference;
use super::late;
use super::pairs::PairsView;
use super::products;
use super::provenance;
use super::row::Row;
use super::status::Status;
use super::step::StepView;
use super::warnings;
use commgauge_analysis::verdict::Subject;
use commgauge_model::record::Record;
use commgauge_model::record::calibration_line::CalibrationLine;
use commgauge_model::record::copy_times::CopyTime;
use commgauge_model::record::line::{CaseFacts, CaseLine, ClockLine, End, EndStatus, Header, Outcome};
use commgauge_model::record::product_times::ProductTime;
use commgauge_model::record::replay_line::ReplayLine;
use commgauge_model::workload::RankedStep;

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
            let late = late::late_rank(record, lines, facts.cadence);
            Row { late, ..Row::merge(facts, lines, &record.header) }
        };
        let cases = record.plan.cases.iter().zip(&lines_of_case);
        let mut rows: Vec<Row> = cases.map(row).collect();
        let of_devices = devices::mark(record, &mut rows);
        let pairs = PairsView::new(record);
        let findings = Findings::new(record, &rows, pairs.as_ref());
        View {
            findings,
            pairs,
            warnings: warnings::of(record, &rows).into_iter().chain(of_devices).collect(),
            provenance: provenance::of(&record.header),
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
        let remark = warnings::clock_remark(&self.clocks, &self.rows);
        let is_synthetic = self.header.backend.synthetic;
        let is_requested =
            move |text: &str| !self.header.settings.start.is_synchronised() && text == warnings::AFTER_A_BARRIER;
        let is_serious = move |text: &&String| {
            remark.as_ref() != Some(*text) && !(is_synthetic && text.starts_with("synthetic")) && !is_requested(text)
        };
        self.warnings.iter().filter(is_serious)
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
        let products = self.products.iter().filter_map(|product| product.times.trouble());
        let copies = self.copies.iter().filter_map(|copy| copy.times.trouble());
        replays
            .chain(products)
            .chain(copies)
            .chain(self.interference.iter().filter_map(|pair| pair.trouble.as_ref()))
            .any(wanted)
    }

    /// How products came out, and how copies did, where there are any.
    pub fn own_work(&self) -> Vec<String> {
        let both = [products::summary(&self.products, &self.header), copies::summary(&self.copies, &self.header)];
        both.into_iter().flatten().collect()
    }

    /// How many rows, products and copies there are of each kind, in one sentence.
    pub fn summary(&self) -> String {
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for label in Status::LABELS {
            counts.push((label, self.rows.iter().filter(|row| row.status.label() == label).count()));
        }
        let parts: Vec<String> = counts
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(label, count)| format!("{count} {label}"))
            .collect();
        let cases = match self.rows.len() {
            1 => "1 case".to_owned(),
            cases => format!("{cases} cases"),
        };
        let cases = if parts.is_empty() { cases } else { format!("{cases}: {}", parts.join(", ")) };
        let others = self.own_work();
        let cases = (!self.rows.is_empty() || others.is_empty()).then_some(cases);
        cases.into_iter().chain(others).collect::<Vec<_>>().join("; ")
    }
}

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Failed { .. })
}
