//! Checks for Slurm's commands, and for a running job.

use super::document::{Finding, Section, State};
use super::system::{Query, Response, System};
use crate::launch::Allocation;

pub(super) fn check(system: &dyn System) -> Section {
    let mut findings = vec![match system.query(Query::Version("srun")) {
        Response::Text(text) => Finding::new("srun", State::Fine, text.lines().next().unwrap_or_default().trim()),
        Response::Absent(_) => Finding::new("srun", State::Note, "not here; only needed on Slurm clusters"),
        Response::Failed(output) => {
            let found = format!("there, but: {}", output.lines().last().unwrap_or("it ended with an error"));
            Finding::new("srun", State::Note, found).with_fix("to be used, it needs the cluster's slurm.conf")
        }
        Response::Died(how) => Finding::new("srun", State::Broken, how),
    }];
    findings.push(match Allocation::of(&|name| system.variable(name)) {
        Ok(None) => Finding::new("job", State::Note, "none: this is not inside of an allocation"),
        Ok(Some(allocation)) => Finding::new("job", State::Fine, allocation.describe(allocation.ranks)),
        Err(error) => Finding::new("job", State::Warning, error.to_string()),
    });
    Section::new("Slurm", findings)
}
