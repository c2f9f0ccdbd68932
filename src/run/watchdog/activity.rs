//! The current activity of a rank, in the form used by a report.

use commgauge_base::progress::NO_GROUP;
use commgauge_model::layout::Groups;
use commgauge_model::record::hang_line::HungActivity;
use commgauge_model::workload::Case;
use std::time::Duration;

/// A phase of the run that all ranks execute together.
#[derive(Clone, Debug)]
pub struct Activity {
    /// Description for the report.
    pub facts: HungActivity,
    /// This rank's group in it, by index.
    pub group: u32,
    /// How long a rank may stay in an operation.
    pub deadline: Duration,
    /// Names of a replay's ops, by index.
    pub ops: Vec<String>,
}

impl Activity {
    /// An activity that has only a name.
    pub fn named(name: impl Into<String>, deadline: Duration) -> Activity {
        let facts = HungActivity { name: name.into(), ..HungActivity::default() };
        Activity { facts, group: NO_GROUP, deadline, ops: Vec::new() }
    }

    /// A case of a plan, from the view of one rank.
    pub fn case(name: String, case: &Case, groups: &Groups, rank: u32, deadline: Duration) -> Activity {
        let op = &case.op;
        let facts = HungActivity {
            name,
            case: Some(case.name()),
            collective: Some(op.collective.name().to_owned()),
            bytes_total: Some(op.bytes_total),
            axis: Some(op.axis.name().to_owned()),
        };
        let group = groups.place_of(rank).map_or(NO_GROUP, |place| place.group as u32);
        Activity { facts, group, deadline, ops: Vec::new() }
    }
}
