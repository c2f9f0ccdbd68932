//! The answer of `commgauge judge`: pass or fail, who is suspect and by how much, what was judged and what not, and what to run next.
//! Rows that did not pass and evidence follow.

use super::document::Block;
use super::locate::{and_more, examined, located, named, open_questions};
use super::verdict::{VerdictLook, coverage, evidence, origins, problems, thresholds};
use crate::launch::quote;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_judge::verdict::locate::Suspects;
use commgauge_judge::verdict::{Decision, NextRun, Row, Verdict, is_cleared, judged_suite, next_run};
use commgauge_model::config::Shipped;
use commgauge_model::record::line::Header;

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
        let records = self.records.join(" ");
        let rows = || self.verdicts.iter().flat_map(|verdict| &verdict.rows);
        let has = |decision: Decision| rows().any(|row| row.decision == Some(decision));
        let searched = self.suspects.is_some_and(|suspects| suspects.examined.can_name_a_node());
        let ranks = &self.header.ranks;
        let machine =
            self.machine.as_deref().map_or_else(String::new, |machine| format!(" --machine {}", quote(machine)));
        let nothing_judged = self.verdicts.first().is_some_and(|verdict| verdict.coverage.rows_judged == 0);
        match self.exit_code {
            4..=6 => Some("commgauge doctor  # what cannot run on this machine, and the fix".to_owned()),
            1 if has(Decision::Fail) && !searched && ranks.iter().any(|rank| rank.host != ranks[0].host) => {
                let command = next_run(self.header, NextRun::Pairs, None);
                Some(format!("{command}  # every two ranks: is it a node or a link?"))
            }
            1 => Some(format!(
                "commgauge judge {records}{machine} --explain  # what was searched, and what the data cannot show"
            )),
            3 if rows().any(|row| row.replicates_more.is_some()) => {
                let again = match self.base.is_empty() {
                    true => format!("commgauge judge {records} AGAIN.jsonl{machine}"),
                    false => {
                        let base: String = self.base.iter().map(|base| format!(" --base {base}")).collect();
                        format!("commgauge report {records} AGAIN.jsonl{machine}{base} -o report.html")
                    }
                };
                Some(format!("{again}  # after the same run once more: {}", needed(rows())))
            }
            3 | 7 if self.disturbed => {
                Some("commgauge doctor  # what disturbs runs on this machine, and the fix".to_owned())
            }
            3 | 7 if nothing_judged => {
                let suite = judged_suite(self.header);
                let machine = if machine.is_empty() { " --machine FILE" } else { &machine };
                Some(format!(
                    "commgauge judge --plan {suite}{machine} --nodes N  # what is judged of it, before it is run"
                ))
            }
            0 if self.verdicts.is_empty() && !can_be_judged(self.header) => {
                let command = next_run(self.header, NextRun::Qualify, None);
                Some(format!("{command}  # rows that a machine file judges"))
            }
            0 if self.verdicts.is_empty() => Some(format!(
                "commgauge judge {records} --machine FILE --page report.html  # against what is expected of it"
            )),
            _ => None,
        }
    }
}

/// Whether a machine file may expect something of a run: of the shipped suites only those that qualify.
fn can_be_judged(header: &Header) -> bool {
    let is_shipped = Shipped::Suite.embedded(&header.suite.name).is_some();
    !is_shipped || ["qualify-gpu", "qualify-host"].contains(&&*header.suite.name)
}

/// How many replicates would decide what is not decided, as far as any number would.
fn needed<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let open: Vec<&Row> = rows.filter(|row| row.decision == Some(Decision::Inconclusive)).collect();
    let more: Vec<u32> = open.iter().filter_map(|row| row.replicates_more).collect();
    let most = more.iter().max().copied().unwrap_or_default();
    match open.len() == more.len() {
        true => format!("{most} more replicates would decide every row"),
        false => format!("{most} more replicates would decide {} of {} rows", more.len(), open.len()),
    }
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
        let mut verdict = compare(&run("a"), &run("b"), &rule).unwrap();
        let mut said = |more: [Option<u32>; 2]| {
            for (row, more) in verdict.rows.iter_mut().zip(more) {
                (row.decision, row.replicates_more) = (Some(Decision::Inconclusive), more);
            }
            needed(verdict.rows.iter())
        };
        assert_eq!(said([Some(2), Some(5)]), "5 more replicates would decide every row");
        assert_eq!(said([Some(2), None]), "2 more replicates would decide 1 of 2 rows");
    }
}
