//! The answer of `commgauge judge`: pass or fail, who is suspect and by how much, what was judged and what not, and what to run next.
//! Rows that did not pass and evidence follow.

use super::document::Block;
use super::locate::{and_more, examined, located, named, open_questions};
use super::verdict::{VerdictLook, coverage, evidence, origins, problems, thresholds};
use crate::launch::quote;
use crate::report::prose;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_judge::verdict::locate::Suspects;
use commgauge_judge::verdict::{Decision, NextRun, Verdict, is_cleared, judged_suite, next_run};
use commgauge_model::config::Shipped;
use commgauge_model::record::line::Header;
use minijinja::context;

/// Thresholds and suspects with their common answer.
pub struct Judged<'a> {
    /// The more severe code of both.
    pub exit_code: i32,
    /// The thresholds.
    pub verdict: &'a Verdict,
    /// The suspects, or why none could be searched for.
    pub suspects: std::result::Result<&'a Suspects, &'a String>,
    /// What to run next, with a comment.
    pub next: Option<String>,
}

/// Records that the answer names; further ones are counted.
const MOST_RECORDS: usize = 3;

impl Judged<'_> {
    /// As text.
    ///
    /// # Errors
    /// A usage error for a format in which only one of the two parts is written.
    pub fn text(&self, look: VerdictLook) -> Result<String> {
        look.document(&self.headline(), &self.blocks(look)).ok_or_else(|| {
            Error::usage(
                "--format: thresholds and suspects together are written as table or markdown; choose one by --part",
            )
        })
    }

    fn headline(&self) -> String {
        let found = match self.suspects {
            Ok(suspects) if !suspects.suspects.is_empty() => counted(suspects.suspects.len(), "suspect"),
            Ok(suspects) if suspects.examined.can_name_a_node() && !suspects.unseen.is_empty() => {
                "no suspects of the kinds that this record can show".to_owned()
            }
            Ok(suspects) if suspects.examined.can_name_a_node() => "no suspects".to_owned(),
            Ok(_) => "too few nodes met in pairs to suspect one".to_owned(),
            Err(_) => "suspects could not be searched for".to_owned(),
        };
        let cleared = match self.suspects {
            Ok(suspects) if is_cleared(suspects, Some(self.verdict)) => {
                "; what one measure alone shows is within its thresholds"
            }
            _ => "",
        };
        let word = |code| Decision::from_exit_code(code).name().to_uppercase();
        let (code, of_thresholds) = (self.exit_code, word(self.verdict.exit_code));
        format!("judge: {} (exit code {code}): thresholds {of_thresholds}; {found}{cleared}", word(code))
    }

    fn blocks(&self, look: VerdictLook) -> Vec<Block> {
        let (verdict, suspects) = (self.verdict, self.suspects.ok());
        let mut said: Vec<String> = suspects.map(|suspects| named(suspects, verdict)).unwrap_or_default();
        said.extend(self.suspects.err().map(|reason| format!("suspects: search not possible: {reason}")));
        said.extend(coverage(verdict));
        said.push(thresholds(verdict));
        said.extend(suspects.into_iter().flat_map(open_questions));
        said.extend(suspects.filter(|_| look.explained).into_iter().flat_map(examined));
        let origins = origins(verdict);
        let most = if look.explained { origins.len() } else { MOST_RECORDS };
        let more = and_more(origins.len().saturating_sub(most), "records and files");
        said.extend(origins.into_iter().take(most).chain(more));
        let of_suspects = suspects.into_iter().flat_map(|suspects| &suspects.problems);
        let mut blocks = vec![Block::list(said), problems(verdict.problems.iter().chain(of_suspects))];
        blocks.extend(self.next.clone().map(Block::Command));
        blocks.extend(evidence(verdict, look));
        if let Some(suspects) = suspects {
            blocks.extend(located(suspects, look));
        }
        blocks.extend(look.hint());
        blocks
    }
}

/// What was asked of records and answered, for the command to run next.
pub(crate) struct Answered<'a> {
    /// Of the first record.
    pub header: &'a Header,
    /// The records, as words of a command.
    pub records: Vec<String>,
    /// The machine file, as the user named it.
    pub machine: Option<String>,
    /// Records of a base, as words of a command.
    pub base: Vec<String>,
    /// Verdicts about the records.
    pub verdicts: Vec<&'a Verdict>,
    /// Suspects, if they were searched for.
    pub suspects: Option<&'a Suspects>,
    /// Whether something disturbed a run.
    pub disturbed: bool,
    /// The exit code of it all.
    pub exit_code: i32,
}

impl Answered<'_> {
    /// The command with a comment on what it is for: it confirms a suspect, completes a run, or decides what is not decided; `None` where
    /// there is nothing to do.
    pub fn next(&self) -> Option<String> {
        if let Some(suspect) = self.suspects.and_then(|suspects| suspects.suspects.first()) {
            return Some(suspect.next_step.clone());
        }
        let rows = || self.verdicts.iter().flat_map(|verdict| &verdict.rows);
        let has = |decision: Decision| rows().filter(|row| row.decision == Some(decision)).count();
        let more =
            || rows().filter(|row| row.decision == Some(Decision::Inconclusive)).filter_map(|row| row.replicates_more);
        let ranks = &self.header.ranks;
        let context = context! {
            exit_code => self.exit_code, records => self.records.join(" "), machine => self.machine.as_deref().map(quote),
            base => &self.base, failed => has(Decision::Fail), undecided => has(Decision::Inconclusive),
            decidable => more().count(), most => more().max(), disturbed => self.disturbed,
            searched => self.suspects.is_some_and(|suspects| suspects.examined.can_name_a_node()),
            several_hosts => ranks.iter().any(|rank| rank.host != ranks[0].host), is_judged => !self.verdicts.is_empty(),
            rows_judged => self.verdicts.first().map(|verdict| verdict.coverage.rows_judged),
            suite => judged_suite(self.header), can_be_judged => can_be_judged(self.header),
            pairs => next_run(self.header, NextRun::Pairs, None), qualify => next_run(self.header, NextRun::Qualify, None),
        };
        let next = prose("next.txt", include_str!("templates/next.txt"), context);
        Some(next.trim_end().to_owned()).filter(|next| !next.is_empty())
    }
}

/// Whether a machine file may expect something of a run: of the shipped suites only those that qualify.
fn can_be_judged(header: &Header) -> bool {
    let is_shipped = Shipped::Suite.embedded(&header.suite.name).is_some();
    !is_shipped || ["qualify-gpu", "qualify-host"].contains(&&*header.suite.name)
}

#[cfg(test)]
mod tests {

    use super::*;
    use commgauge_judge::verdict::testing::{lines, loaded};
    use commgauge_judge::verdict::{CompareRule, compare};

    #[test]
    fn replicates_are_not_promised_to_decide_what_no_number_of_them_would() {
        let run = |id: &str| [loaded(&format!("{id}.jsonl"), lines(id, &[vec![100.0; 6], vec![200.0; 6]]))];
        let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };
        let header = run("a")[0].record.header.clone();
        let mut verdict = compare(&run("a"), &run("b"), &rule).unwrap();
        let mut said = |more: [Option<u32>; 2]| {
            for (row, more) in verdict.rows.iter_mut().zip(more) {
                (row.decision, row.replicates_more) = (Some(Decision::Inconclusive), more);
            }
            let answered = Answered {
                header: &header,
                records: vec!["a.jsonl".into()],
                machine: Some("own machine".into()),
                base: Vec::new(),
                verdicts: vec![&verdict],
                suspects: None,
                disturbed: false,
                exit_code: 3,
            };
            answered.next().unwrap()
        };
        let again = "commgauge judge a.jsonl AGAIN.jsonl --machine 'own machine'  # after the same run once more: ";
        assert_eq!(said([Some(2), Some(5)]), format!("{again}5 more replicates would decide every row"));
        assert_eq!(said([Some(2), None]), format!("{again}2 more replicates would decide 1 of 2 rows"));
    }
}
