//! Slurm: whether its commands are here, and whether this is a job.

use super::document::{Finding, Section, State};
use super::system::{Answer, Question, System};
use crate::launch::Allocation;

pub(super) fn look(system: &dyn System) -> Section {
    let mut findings = vec![match system.ask(Question::Version("srun")) {
        Answer::Text(text) => Finding::new("srun", State::Fine, text.lines().next().unwrap_or_default().trim()),
        Answer::Absent(_) => Finding::new("srun", State::Note, "not here; only needed on Slurm clusters"),
        Answer::Failed(said) => {
            let found = format!("there, but: {}", said.lines().last().unwrap_or("it ended with an error"));
            Finding::new("srun", State::Note, found).mend("to be used, it needs the cluster's slurm.conf")
        }
        Answer::Died(how) => Finding::new("srun", State::Broken, how),
    }];
    findings.push(match Allocation::of(&|name| system.variable(name)) {
        Ok(None) => Finding::new("job", State::Note, "none: this is not inside of an allocation"),
        Ok(Some(allocation)) => Finding::new("job", State::Fine, allocation.sentence(allocation.ranks)),
        Err(error) => Finding::new("job", State::Warning, error.to_string()),
    });
    Section::new("Slurm", findings)
}
