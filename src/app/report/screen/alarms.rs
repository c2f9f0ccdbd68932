//! Conditions that invalidate the numbers of a run, the most severe first: wrong data before everything.

use crate::report::status::Status;
use crate::report::view::View;
use commgauge_model::record::Record;
use commgauge_model::record::line::EndStatus;

pub(super) fn of(record: &Record, view: &View) -> Vec<String> {
    let mut alarms = Vec::new();
    alarms.extend(first_of(view, "data arrived WRONG in", |status| matches!(status, Status::Wrong { .. })));
    alarms.extend(first_of(view, "failed:", |status| matches!(status, Status::Failed(_))));
    alarms.extend(ending(view));
    if view.header.backend.synthetic {
        alarms.push("SYNTHETIC: no data moved and no real time passed; these are not measurements".to_owned());
    }
    // The warnings of a synthetic record mention it as well.
    let of_machine = view.header.warnings.iter().filter(|text| !text.starts_with("synthetic"));
    alarms.extend(of_machine.chain(&record.file.warnings).cloned());
    alarms
}

/// The number of cases, copies and products with such a status, and the first of them with its reason.
fn first_of(view: &View, what: &str, wanted: fn(&Status) -> bool) -> Option<String> {
    let mut found = view.entries().filter(|entry| wanted(&entry.status));
    let first = found.next()?;
    let reason = first.status.reason().unwrap_or_default();
    let cases = match 1 + found.count() {
        1 => "1 case".to_owned(),
        cases => format!("{cases} cases, the first"),
    };
    Some(format!("{what} {cases}: {}: {reason}", first.name))
}

/// How a run ended other than complete.
pub(in crate::report) fn ending(view: &View) -> Option<String> {
    let Some(end) = &view.completion.end else {
        let text = if view.completion.running {
            "the run is still going on"
        } else {
            "the record has no end: the run was cut off"
        };
        return Some(text.to_owned());
    };
    let how = match end.status {
        EndStatus::Complete => return None,
        EndStatus::Failed => "failed",
        EndStatus::Interrupted => "was interrupted",
        EndStatus::OutOfTime => "stopped before its time limit",
    };
    let why = end.error.as_deref().map_or_else(String::new, |error| format!(": {error}"));
    Some(format!("the run {how}{why}"))
}
