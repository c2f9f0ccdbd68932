//! Checks the lines of a record against each other: order, counts, and references to the plan.
//!
//! Guarantee of every [`Record`]: each case line belongs to a planned case, and its columns have equal length.

use super::Line;
use super::counters::{CounterBlock, CountersLine, PerftestLine};
use super::header::{DeviceReadingsLine, DevicesLine};
use super::launch_lines::{HangLine, ResumeLine};
use super::library_use::LibraryUseLine;
use super::line::{CaseFacts, CaseLine, ClockLine, End, EndStatus, Header, PairTimes, Plan, Samples};
use super::seal::Seal;
use super::work_lines::{
    CalibrationLine, ChosenSize, CopyLine, InterferenceLine, Outcome, PlanGrowth, ProductLine, ReplayLine,
};
use commgauge_base::units::Seconds;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// More than any run measures: a day of microseconds each.
const MAX_CASE_LINES: u64 = 50_000_000;

/// A record under construction.
#[derive(Default)]
pub(super) struct Assembly {
    /// What was read so far.
    record: Record,
    has_header: bool,
    has_plan: bool,
    replicates: Replicates,
    /// What is to be said of watchdogs that were lost.
    unwatched: Vec<String>,
    lines: LineCount,
}

/// The case lines so far, by case and replicate.
#[derive(Default)]
struct Replicates {
    /// Interned case names, since a case has a line for each replicate.
    names: HashMap<u32, Arc<str>>,
    seen: HashSet<(u32, u32)>,
    /// Those that were replaced by a longer measurement.
    replaced: HashSet<(u32, u32)>,
}

impl Replicates {
    /// Adds one. The error is the reason why it cannot follow.
    fn add(&mut self, case: &mut CaseLine) -> Result<(), String> {
        let (number, own) = (case.case, case.replicate);
        if !self.seen.insert((number, own)) {
            return Err(format!("case {number}, replicate {own} is there twice"));
        }
        let is_there = |other: &u32| *other != own && self.seen.contains(&(number, *other));
        if let Some(other) = case.replaces.iter().find(|other| !is_there(other)) {
            return Err(format!(
                "case {number}, replicate {own} replaces replicate {other}, which is not there before it"
            ));
        }
        self.replaced.extend(case.replaces.iter().map(|other| (number, *other)));
        case.name = Arc::clone(self.names.entry(number).or_insert_with(|| Arc::clone(&case.name)));
        Ok(())
    }
}

/// Lines so far, and whether any are missing.
#[derive(Default)]
struct LineCount {
    read: u64,
    /// The number of lines that the end line states and the number found, where they differ.
    lost: Option<(u64, u64)>,
}

/// How the file of a record ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastLine {
    Whole,
    /// In the middle of a line.
    Torn,
}

/// Whether the run of a record still writes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunState {
    Running,
    /// It has ended, in whatever way.
    Over,
}

impl Assembly {
    /// Adds the next line. The error is the reason why it cannot follow, a sentence without full stop.
    pub(super) fn add(&mut self, line: Line) -> Result<(), String> {
        if self.record.end.is_some() && !matches!(line, Line::Resume(_)) {
            return Err("there is a line after the end of the record".to_owned());
        }
        let lines_before = self.lines.read;
        self.lines.read += 1;
        let record = &mut self.record;
        match (line, self.has_header, self.has_plan) {
            (Line::Header(mut header), false, _) => {
                header.settings.seed = header.seed;
                (record.header, self.has_header) = (*header, true);
            }
            (Line::Header(_), true, _) => return Err("a second header; two runs in one file?".to_owned()),
            (_, false, _) => return Err("a record begins with its header".to_owned()),
            (Line::Plan(plan), _, false) => {
                check_plan(&plan)?;
                check_replicates(record.header.settings.replicates, plan.cases.len())?;
                (record.plan, self.has_plan) = (plan, true);
            }
            (Line::Plan(_), _, true) => return Err("a second plan; two runs in one file?".to_owned()),
            // A run that fails before its plan is made still has an end line.
            (Line::End(end), _, _) => {
                let lost = end.lines_before.filter(|written| *written != lines_before);
                self.lines.lost = self.lines.lost.or(lost.map(|written| (written, lines_before)));
                record.end = Some(end);
            }
            (Line::Resume(resume), _, _) => self.resume(*resume),
            (Line::Hang(hang), _, _) => record.hang = Some(*hang),
            (Line::Unwatched(lost), _, _) => self.unwatched.push(lost.sentence()),
            (_, _, false) => return Err("the plan must come before clocks and cases".to_owned()),
            (Line::Clock(clock), _, _) => record.clocks.push(clock),
            (Line::Case(case), _, true) => {
                check_case(&case, &record.plan)?;
                let mut case = *case;
                self.replicates.add(&mut case)?;
                record.cases.push(case);
            }
            (Line::Replay(replay), _, true) => {
                check_replay(&replay, &record.plan)?;
                record.replays.push(*replay);
            }
            (Line::PlanGrowth(growth), _, true) => record.chosen.extend(grow(&mut record.plan, *growth)?),
            (Line::Calibration(calibration), _, true) => {
                check_calibration(&calibration, &record.plan)?;
                record.calibration = Some(calibration);
            }
            (Line::Product(product), _, true) => {
                check_product(&product)?;
                record.products.push(*product);
            }
            (Line::Copy(copy), _, true) => {
                check_copy(&copy)?;
                record.copies.push(*copy);
            }
            (Line::Devices(devices), _, true) => record.devices = Some(*devices),
            (Line::DeviceReadings(readings), _, true) => {
                if readings.case as usize >= record.plan.cases.len() {
                    return Err(format!("devices were read at case {}, which is not in the plan", readings.case));
                }
                record.meanwhile.device_readings.push(*readings);
            }
            (Line::Perftest(written), _, true) => record.meanwhile.perftest.push(*written),
            (Line::LibraryUse(used), _, true) => record.meanwhile.library_use = Some(*used),
            (Line::Counters(counters), _, true) => {
                let cases = || counters.blocks.iter().flat_map(|block| &block.during);
                if let Some((case, _)) = cases().find(|(case, _)| *case as usize >= record.plan.cases.len()) {
                    return Err(format!("counters rose during case {case}, which is not in the plan"));
                }
                record.meanwhile.counters.push(*counters);
            }
            (Line::Interference(pair), _, true) => {
                check_interference(&pair, &record.plan)?;
                record.interference.push(*pair);
            }
        }
        Ok(())
    }

    /// Resumes the run: drops the earlier end, and the cases that a signal cut short, since they are measured again.
    fn resume(&mut self, resume: ResumeLine) {
        let record = &mut self.record;
        (record.end, record.hang) = (None, None);
        let seen = &mut self.replicates.seen;
        record.cases.retain(|case| !case.was_cut_short() || !seen.remove(&(case.case, case.replicate)));
        record.resumes.push(resume);
    }

    /// The record, with a warning for each missing part. `None` without a header.
    pub(super) fn finish(self, last_line: LastLine, run: RunState, seal: Seal) -> Option<Record> {
        let mut record = self.has_header.then_some(self.record)?;
        let header = &mut record.header;
        let running = run == RunState::Running;
        for resume in &record.resumes {
            let warnings = resume.warning().into_iter().chain(resume.warnings.iter().cloned());
            warnings
                .for_each(|warning| header.warnings.extend((!header.warnings.contains(&warning)).then_some(warning)));
        }
        let mut warnings = Vec::new();
        if record.end.is_none() {
            warnings.push(match running {
                true => "run in progress; results so far".to_owned(),
                false => "the record was cut off: it has no end line".to_owned(),
            });
        }
        if last_line == LastLine::Torn && !running {
            warnings.push("the last line was torn and is left out".to_owned());
        }
        if let Some((written, found)) = self.lines.lost {
            warnings.push(format!("the run wrote {written} lines before its end, the record holds {found} of them"));
        }
        warnings.extend(seal.tampering());
        header.notes.extend(seal.note());
        warnings.extend(self.unwatched);
        if let Some(hang) = &record.hang {
            warnings.push(hang.sentence());
        }
        let running = running && record.end.is_none();
        if !self.has_plan {
            warnings.push("the record ends before its plan: what was to be measured is not known".to_owned());
        }
        record.cases.retain(|case| !self.replicates.replaced.contains(&(case.case, case.replicate)));
        record.file = FileState { torn: last_line == LastLine::Torn, running, seal, warnings };
        Some(record)
    }
}

/// Limits the number of replicates, since readers iterate over every replicate of every case.
fn check_replicates(replicates: u32, cases: usize) -> Result<(), String> {
    match u64::from(replicates).checked_mul(cases as u64) {
        Some(lines) if lines <= MAX_CASE_LINES => Ok(()),
        _ => {
            Err(format!("{replicates} replicates of {cases} cases; a record holds at most {MAX_CASE_LINES} case lines"))
        }
    }
}

fn check_plan(plan: &Plan) -> Result<(), String> {
    for (index, case) in plan.cases.iter().enumerate() {
        if case.transfers_per_call == 0 || case.group_size == 0 || case.groups == 0 {
            return Err(format!("case {index}: transfers_per_call, group_size and groups must be at least 1"));
        }
        if let Some(other) = case.solo_of.filter(|other| *other as usize >= plan.cases.len()) {
            return Err(format!("case {index} is compared with case {other}, which is not in the plan"));
        }
        if let Some(used) = case.uses.iter().find(|used| used.step as usize >= plan.steps.len()) {
            let steps = plan.steps.len();
            return Err(format!("case {index} serves step {}, but the plan has {steps} steps", used.step));
        }
    }
    Ok(())
}

/// Adds a round to the plan, and returns the reason for each of its cases.
fn grow(plan: &mut Plan, growth: PlanGrowth) -> Result<Vec<(u32, ChosenSize)>, String> {
    let (round, cases, reasons) = (growth.round, growth.cases.len(), growth.chosen.len());
    if cases != reasons {
        return Err(format!("round {round} adds {cases} cases and gives {reasons} reasons"));
    }
    let first = plan.cases.len() as u32;
    plan.cases.extend(growth.cases);
    check_plan(plan)?;
    plan.case_lines = plan.case_lines.saturating_add(growth.case_lines);
    plan.estimated_seconds = Seconds(plan.estimated_seconds.0 + growth.estimated_seconds.0);
    Ok((first..).zip(growth.chosen).collect())
}

fn check_calibration(calibration: &CalibrationLine, plan: &Plan) -> Result<(), String> {
    match calibration.curves.iter().find(|curve| curve.case as usize >= plan.cases.len()) {
        Some(curve) => Err(format!("a curve is that of case {}, which is not in the plan", curve.case)),
        None => Ok(()),
    }
}

fn check_product(line: &ProductLine) -> Result<(), String> {
    let product = &line.product;
    if [product.m, product.n, product.k].contains(&0) {
        return Err(format!("matrix product {} x {} x {} has a zero dimension", product.m, product.n, product.k));
    }
    if line.slowest_rank.len() != line.slowest_nanoseconds.len() {
        return Err("the columns of a product's repetitions differ in length".to_owned());
    }
    Ok(())
}

fn check_copy(line: &CopyLine) -> Result<(), String> {
    if line.copy.bytes.0 == 0 {
        return Err("copy of 0 bytes".to_owned());
    }
    if line.slowest_rank.len() != line.slowest_nanoseconds.len() {
        return Err("the columns of a copy's samples differ in length".to_owned());
    }
    Ok(())
}

fn check_interference(pair: &InterferenceLine, plan: &Plan) -> Result<(), String> {
    if pair.step as usize >= plan.steps.len() {
        return Err(format!("calls at once are of step {}, the plan has {} steps", pair.step, plan.steps.len()));
    }
    if pair.together_nanoseconds.len() != pair.still_waited_nanoseconds.len() {
        return Err(format!("calls at once of step {}: the columns of the repetitions differ in length", pair.step));
    }
    Ok(())
}

fn check_replay(replay: &ReplayLine, plan: &Plan) -> Result<(), String> {
    if !replay.is_of_trace() && replay.step as usize >= plan.steps.len() {
        return Err(format!("the replay is of step {}, the plan has {} steps", replay.step, plan.steps.len()));
    }
    if replay.slowest_rank.len() != replay.slowest_nanoseconds.len() {
        return Err(format!("the replay of step {}: the columns of the repetitions differ in length", replay.step));
    }
    Ok(())
}

fn check_case(case: &CaseLine, plan: &Plan) -> Result<(), String> {
    let Some(planned) = plan.cases.get(case.case as usize) else {
        return Err(format!("case {} is not in the plan, which has {} cases", case.case, plan.cases.len()));
    };
    if *planned.name != *case.name {
        return Err(format!("case {} is named `{}`, in the plan `{}`", case.case, case.name, planned.name));
    }
    let Samples {
        slowest_nanoseconds,
        slowest_rank,
        arrival_spread_nanoseconds,
        transfer_nanoseconds,
        last_rank,
        excluded,
        clock_errors,
    } = &case.samples;
    let samples = slowest_nanoseconds.len();
    let optional = [arrival_spread_nanoseconds.len(), transfer_nanoseconds.len(), last_rank.len()];
    if slowest_rank.len() != samples || optional.iter().any(|length| *length != 0 && *length != samples) {
        return Err(format!("case {}: the columns of the samples differ in length", case.case));
    }
    let in_batches: u64 = clock_errors.iter().map(|batch| u64::from(batch.samples)).sum();
    if !clock_errors.is_empty() && in_batches != samples as u64 {
        return Err(format!("case {}: batches of {in_batches} samples, where there are {samples}", case.case));
    }
    if let Some((index, _)) = excluded.iter().find(|(index, _)| *index as usize >= samples) {
        return Err(format!("case {}: sample {index} is unreliable, but there are only {samples}", case.case));
    }
    if let Some(pairs) = &case.pairs {
        check_pairs(pairs).map_err(|problem| format!("case {}: {problem}", case.case))?;
    }
    if matches!(case.outcome, Outcome::Measured { .. }) && case.calls_per_sample == 0 {
        return Err(format!("case {}: calls_per_sample must be at least 1", case.case));
    }
    Ok(())
}

fn check_pairs(pairs: &PairTimes) -> Result<(), String> {
    let PairTimes { rank_a, rank_b, samples, p10_nanoseconds, median_nanoseconds, p90_nanoseconds } = pairs;
    let columns = [rank_b.len(), samples.len(), p10_nanoseconds.len(), median_nanoseconds.len(), p90_nanoseconds.len()];
    if columns.iter().any(|length| *length != rank_a.len()) {
        return Err("the columns of the pairs differ in length".to_owned());
    }
    match rank_a.iter().zip(rank_b).find(|(a, b)| a == b) {
        Some((rank, _)) => Err(format!("rank {rank} is paired with itself")),
        None => Ok(()),
    }
}

// A record, as read.

/// A record, as read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Where the numbers come from.
    pub header: Header,
    /// The plan, including cases that were added during the run; empty where the record was cut off before it.
    pub plan: Plan,
    /// The cases that the run added itself, by index in the plan, and why.
    pub chosen: BTreeMap<u32, ChosenSize>,
    /// Final state of a calibration that ran to its end.
    pub calibration: Option<CalibrationLine>,
    /// Synchronisation of the ranks' clocks.
    pub clocks: Vec<ClockLine>,
    /// The measured cases, in the order of measurement.
    pub cases: Vec<CaseLine>,
    pub replays: Vec<ReplayLine>,
    /// Every interference measurement, replicate by replicate.
    pub interference: Vec<InterferenceLine>,
    /// Every matrix product, replicate by replicate.
    pub products: Vec<ProductLine>,
    /// Every copy, replicate by replicate.
    pub copies: Vec<CopyLine>,
    /// The report of the watchdog, where it ended the run.
    pub hang: Option<HangLine>,
    /// Every launch that resumed the run.
    pub resumes: Vec<ResumeLine>,
    /// The devices of the ranks, where they can be queried.
    pub devices: Option<DevicesLine>,
    /// What devices and hosts did while cases were measured.
    pub meanwhile: Meanwhile,
    /// How the run ended; absent if it was truncated or is in progress.
    pub end: Option<End>,
    /// How the file is as a whole.
    pub file: FileState,
}

/// What devices and hosts did while cases were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Meanwhile {
    /// The state of the devices before and after each case.
    pub device_readings: Vec<DeviceReadingsLine>,
    /// Counters of hosts that rose; empty where none were read.
    pub counters: Vec<CountersLine>,
    /// What the library carried data over; absent where it was not asked.
    pub library_use: Option<LibraryUseLine>,
    /// What the adapters carry without it.
    pub perftest: Vec<PerftestLine>,
}

impl Meanwhile {
    /// The blocks of cases in which counters rose.
    pub fn blocks(&self) -> impl Iterator<Item = &CounterBlock> + Clone {
        self.counters.iter().flat_map(|line| &line.blocks)
    }
}

/// How the file of a record is as a whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileState {
    /// True where the last line was truncated and left out.
    pub torn: bool,
    /// True where its run still has the lock.
    pub running: bool,
    /// Result of the digest check; whole where the record was never a file.
    pub seal: Seal,
    /// Its problems, as sentences.
    pub warnings: Vec<String>,
}

// Records that no run writes: imports, rehearsals, self-tests and tests.

/// The parts of a complete record.
#[derive(Clone, Debug)]
pub struct Parts {
    /// The header.
    pub header: Header,
    /// The plan.
    pub plan: Plan,
    /// Synchronisation of the clocks before and after the cases; none where another tool measured.
    pub clocks: Option<[ClockLine; 2]>,
    /// What the library used, if known.
    pub library_use: Option<LibraryUseLine>,
    /// The measured cases.
    pub cases: Vec<CaseLine>,
    /// How the run ended.
    pub end: End,
}

impl Parts {
    /// A record without cases, whose run ended well.
    pub fn new(header: Header) -> Parts {
        let end = End::new(EndStatus::Complete, 0, None, Duration::ZERO);
        Parts { header, plan: Plan::default(), clocks: None, library_use: None, cases: Vec::new(), end }
    }

    /// Without cases, but with header, clocks and duration of another record, whose machine file and warnings are left out.
    pub fn like(record: &Record, run_id: &str) -> Parts {
        let mut header = Header { run_id: run_id.to_owned(), warnings: Vec::new(), ..record.header.clone() };
        header.backend.machine = None;
        let clocks = record.clocks.clone().try_into().ok();
        let elapsed_seconds = record.end.as_ref().map_or(Seconds(0.0), |end| end.elapsed_seconds);
        let end = End { elapsed_seconds, ..Parts::new(header.clone()).end };
        Parts { clocks, end, ..Parts::new(header) }
    }

    /// Plans a case for each row, and measures them replicate by replicate: the nanoseconds of each one's samples.
    pub fn measure(&mut self, rows: Vec<(CaseFacts, Vec<Vec<u64>>)>) {
        let replicates = rows.iter().map(|(_, replicates)| replicates.len()).max().unwrap_or(0);
        for replicate in 0..replicates {
            for (case, (facts, times)) in rows.iter().enumerate() {
                let Some(nanoseconds) = times.get(replicate) else { continue };
                let line = CaseLine::timed(case as u32, facts.name.as_str(), replicate as u32, nanoseconds.clone());
                self.cases.push(line);
            }
        }
        self.header.settings.replicates = replicates as u32;
        self.plan.case_lines = (rows.len() * replicates) as u64;
        self.plan.cases = rows.into_iter().map(|(facts, _)| facts).collect();
    }

    /// The lines of the record.
    pub fn lines(self) -> Vec<Line> {
        let Parts { header, plan, clocks, library_use, cases, mut end } = self;
        let (start, stop) = clocks.map_or((None, None), |[start, stop]| (Some(start), Some(stop)));
        let mut lines = vec![Line::Header(Box::new(header)), Line::Plan(plan)];
        lines.extend(start.map(Line::Clock));
        lines.extend(library_use.map(|used| Line::LibraryUse(Box::new(used))));
        lines.extend(cases.into_iter().map(|case| Line::Case(Box::new(case))));
        lines.extend(stop.map(Line::Clock));
        end.lines_before = Some(lines.len() as u64);
        lines.push(Line::End(end));
        lines
    }
}
