//! What is known of a record while its run writes it.

use commgauge_base::writing;
use commgauge_model::record::launch_lines::{HangLine, HangReason};
use commgauge_model::record::line::{End, EndStatus, RankFacts};
use commgauge_model::record::{Line, Record};
use std::path::PathBuf;

/// Processes of a host that the system has killed for want of memory.
#[derive(Clone, Debug, Default)]
pub(super) struct OutOfMemoryKills {
    pub(super) host: String,
    pub(super) processes: u64,
}

/// State collected from the record while it grew.
#[derive(Debug, Default)]
pub(super) struct RecordState {
    /// The rank map, once the header is there.
    pub(super) header: Option<Vec<RankFacts>>,
    /// Lines of cases and products that a complete record has.
    pub(super) planned: Option<u64>,
    /// The newest round of a run that chooses its own sizes, and how many cases it added.
    pub(super) round: Option<(u32, usize)>,
    /// Lines of cases and products so far.
    pub(super) cases: u64,
    /// The end line, if there is one yet.
    pub(super) end: Option<End>,
    /// Whether the launch resumes a record; its resume line then contains the rank map.
    pub(super) resumed: bool,
    /// What the system has killed for want of memory since the launch began.
    pub(super) out_of_memory_kills: OutOfMemoryKills,
    /// Processes of this host's ranks that exited first; several if their order is unknown.
    pub(super) first_exit: Vec<u32>,
    /// What the watchdog found, if it ended the run.
    pub(super) hang: Option<Hang>,
    /// Whether the record says that a watchdog was lost.
    pub(super) is_unwatched: bool,
    /// What a host found whose watchdog decided alone.
    pub(super) lone_report: Option<HangLine>,
    /// Where the record is, if somebody removed or renamed it while it was written.
    pub(super) moved_to: Option<PathBuf>,
}

/// Why the watchdog ended a run, and which ranks it suspects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hang {
    pub(super) reason: HangReason,
    pub(super) suspects: Vec<u32>,
    pub(super) launcher_may_have_ended_some: bool,
}

impl RecordState {
    /// The state of a record before a launch resumes it.
    pub(super) fn before(record: &Record) -> RecordState {
        let planned = record.plan.case_lines.saturating_add(record.plan.product_lines);
        let planned = (!record.plan.cases.is_empty() || planned > 0).then_some(planned);
        RecordState { planned, cases: record.measured_lines(), resumed: true, ..RecordState::default() }
    }

    /// Whether the run was begun, so that it can be resumed.
    pub(super) fn can_be_resumed(&self) -> bool {
        let ended = self.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete);
        self.header.is_some() && self.planned.is_some() && !ended
    }

    pub(super) fn take(&mut self, line: Line) {
        match line {
            Line::Header(header) => self.header = Some(header.ranks),
            Line::Plan(plan) => self.planned = Some(plan.case_lines.saturating_add(plan.product_lines)),
            Line::Case(_) | Line::Product(_) | Line::Copy(_) => self.cases += 1,
            Line::Hang(hang) => {
                let suspects = writing::parse(&hang.suspects).collect();
                let launcher_may_have_ended_some = hang.launcher_may_have_ended_some;
                self.hang = Some(Hang { reason: hang.reason, suspects, launcher_may_have_ended_some });
            }
            Line::Resume(resume) => self.header = Some(resume.ranks),
            Line::End(end) => self.end = Some(end),
            Line::PlanGrowth(growth) => {
                self.planned = self.planned.map(|planned| planned.saturating_add(growth.case_lines));
                self.round = Some((growth.round, growth.cases.len()));
            }
            Line::Clock(_) | Line::Replay(_) | Line::Interference(_) | Line::Calibration(_) => {}
            Line::Devices(_) | Line::DeviceReadings(_) => {}
            Line::Unwatched(_) => self.is_unwatched = true,
        }
    }
}
