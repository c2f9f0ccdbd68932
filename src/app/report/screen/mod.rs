//! Summary of a run on one screen: alarms, status counts, costs of parallelisms, the worst finding, and the next commands. A
//! record becomes plain data here, and text in `text`; tables are those of the report.

mod alarms;
mod costs;
mod json;
#[cfg(test)]
pub(super) mod tests;
mod text;

pub(super) use alarms::ending;
pub use costs::{Costs, FamilyCost};
pub(super) use json::JsonCosts;
pub(super) use text::document;
pub use text::{head_text, text};

use super::status::Status;
use super::text::visible;
use super::view::View;
use commgauge_model::record::Record;
use commgauge_model::record::line::EndStatus;

/// Maximum number of lines of a screen.
pub const MAX_LINES: usize = 25;

/// What is on the screen, from top to bottom.
#[derive(Clone, Debug, PartialEq)]
pub struct Screen {
    /// Conditions that invalidate the numbers, as sentences, the most severe first.
    pub alarms: Vec<String>,
    /// What ran, where, and for how long.
    pub run: String,
    /// Number of cases by status: label and number.
    pub counts: Vec<(String, usize)>,
    /// The same of matrix products and of copies, where there are any, such as `4 products: 4 right`.
    pub own_work: Vec<String>,
    /// What each parallelism costs, or how to learn it.
    pub costs: Result<Costs, String>,
    /// The worst finding, or a sentence that there is none.
    pub finding: String,
    /// Commands to type next, each with what it is for.
    pub commands: Vec<(String, &'static str)>,
}

/// Names of program and record in suggested commands.
#[derive(Clone, Copy, Debug)]
pub struct CommandNames<'a> {
    /// This program, as it was invoked.
    pub program: &'a str,
    /// The record, quoted for a shell.
    pub record: &'a str,
}

impl Screen {
    /// The screen of a record.
    pub fn of(record: &Record, view: &View, called: CommandNames) -> Screen {
        Screen {
            alarms: alarms::of(record, view),
            run: run(view),
            counts: counts(view),
            own_work: view.own_work(),
            costs: costs::of(view, called.program),
            finding: finding(view),
            commands: commands(view, called),
        }
    }
}

fn finding(view: &View) -> String {
    let is_complete = view.completion.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete);
    match &view.findings.worst {
        Some(worst) => format!("Worst finding: {}", visible(worst)),
        None if is_complete => "Findings: none; no call contradicts another, no rank is late.".to_owned(),
        None => "Findings: none in what was measured.".to_owned(),
    }
}

fn run(view: &View) -> String {
    let (header, of) =
        (&view.header, |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" }));
    let mut hosts: Vec<&str> = header.ranks.iter().map(|rank| rank.host.as_str()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let place = match &hosts[..] {
        [] => String::new(),
        [host] => format!(" on {host}"),
        hosts => format!(" on {}", of(hosts.len(), "host")),
    };
    let time = view.completion.end.as_ref().map_or_else(String::new, |end| format!(", {}", end.elapsed_seconds));
    let ranks = of(header.world_size as usize, "rank");
    format!("{}: {ranks}{place}, {}{time}", header.suite.name, header.backend.library)
}

/// Verified, failed and skipped cases always; other statuses where they occur.
fn counts(view: &View) -> Vec<(String, usize)> {
    let count = |wanted: fn(&Status) -> bool| view.rows.iter().filter(|row| wanted(&row.status)).count();
    let always = [
        ("verified", count(|status| matches!(status, Status::Verified))),
        ("failed", count(|status| matches!(status, Status::Failed(_)))),
        ("skipped", count(|status| matches!(status, Status::Skipped(_)))),
    ];
    let sometimes = [
        ("WRONG", count(|status| matches!(status, Status::Wrong { .. }))),
        ("not verified", count(|status| matches!(status, Status::NotVerified))),
        ("synthetic", count(|status| matches!(status, Status::Synthetic))),
        ("missing", count(|status| matches!(status, Status::Missing))),
    ];
    let present = sometimes.into_iter().filter(|(_, count)| *count > 0);
    always.into_iter().chain(present).map(|(label, count)| (label.to_owned(), count)).collect()
}

fn commands(view: &View, CommandNames { program, record }: CommandNames) -> Vec<(String, &'static str)> {
    let report = (format!("{program} report {record}"), "every table");
    let ended = view.completion.end.as_ref().map(|end| end.status);
    let second = match ended {
        Some(EndStatus::Complete | EndStatus::Failed) => {
            (format!("{program} report {record} -o report.html"), "a page")
        }
        Some(EndStatus::Interrupted | EndStatus::OutOfTime) | None => {
            (format!("{program} run --resume {record}"), "go on")
        }
    };
    vec![report, second]
}
