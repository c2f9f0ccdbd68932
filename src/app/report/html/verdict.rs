//! The summary at the top: results of the run, of the expectations and of the comparison, and the coverage.

use super::input::HtmlInput;
use crate::report::document::{Badge, Block, Tone};
use crate::report::verdict::{coverage, rows_on_page, thresholds, tone, troubles};
use crate::report::view::View;
use commgauge_analysis::verdict::locate::Suspects;
use commgauge_analysis::verdict::{Decision, Question, Row, Verdict, is_cleared};
use commgauge_base::units::{counted, three_digits};

/// Judged rows up to which those that passed are listed with the others.
const MAX_PASSED: usize = 200;

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let mut badges: Vec<Badge> = vec![gated(input.verdict)];
    badges.extend(input.comparison.map(|verdict| badge("Slower than the base?", verdict)));
    badges.extend(input.suspects.as_ref().ok().map(|suspects| suspects_badge(suspects, input.verdict)));
    badges.extend(input.runs.iter().map(|run| measured(&run.name, &run.view, input.runs.len() > 1)));
    let mut blocks = vec![Block::Badges(badges)];
    for verdict in input.verdict.iter().chain(&input.comparison) {
        let judged = (verdict.question == Question::Gate).then(|| thresholds(verdict)).into_iter();
        blocks.push(Block::list(judged.chain(coverage(verdict)).chain([false_alarms(verdict)])));
        if !verdict.troubles.is_empty() {
            blocks.push(Block::heading("Warnings about the records"));
            blocks.push(troubles(verdict));
        }
    }
    if let Some(verdict) = input.verdict {
        let judged: Vec<&Row> = verdict.rows.iter().filter(|row| row.decision.is_some()).collect();
        let machine = verdict.machine.as_deref().unwrap_or("no machine file");
        if !judged.is_empty() {
            let title = format!("Judged rows, against {machine}");
            let (shown, note) = without_many_passes(&judged);
            blocks
                .push(Block::Table(rows_on_page(verdict.question, &title, &shown, &note).without_columns_that_agree()));
        }
    }
    let judging: Vec<&Verdict> = input.verdict.into_iter().chain(input.comparison).collect();
    if !judging.is_empty() {
        let rules = judging.iter().flat_map(|verdict| verdict.rule.iter().cloned());
        let tried = match input.selftest {
            Some(tried) => tried.summary(),
            None => "how often these rules err was not measured for this page: `commgauge selftest --format json > selftest.json` \
                     measures it, and --selftest selftest.json shows it here"
                .to_owned(),
        };
        let rules = vec![Block::list(rules.chain([tried]))];
        blocks.push(Block::folded("How it was decided, and how often such rules err", rules));
    }
    if input.verdict.is_none() {
        blocks.push(Block::absent(
            "Nothing is expected of this machine here: no machine file was given, so no row could pass or fail. `commgauge report \
             RECORD --machine FILE -o report.html` compares the rows with what a machine file expects.",
        ));
    }
    let pairs = input.runs.iter().filter_map(|run| Some(run.view.pairs.as_ref()?.sentence()));
    let sentences: Vec<String> = input.runs.iter().map(|run| run.view.summary()).chain(pairs).collect();
    blocks.push(Block::list(sentences));
    blocks
}

/// All rows; of very many only those that did not pass, and a sentence on where the others are.
pub(super) fn without_many_passes<'a>(rows: &[&'a Row]) -> (Vec<&'a Row>, String) {
    let passed = rows.iter().filter(|row| matches!(row.decision, Some(Decision::Pass) | None)).count();
    if rows.len() <= MAX_PASSED {
        return (rows.to_vec(), String::new());
    }
    let others = rows.iter().filter(|row| !matches!(row.decision, Some(Decision::Pass) | None)).copied().collect();
    (others, format!("{passed} rows that did not fail are not repeated here: All rows has the verdict on each."))
}

/// Upper bound on the false alarms of the verdict on a healthy machine.
fn false_alarms(verdict: &Verdict) -> String {
    let budget = &verdict.false_alarms;
    let chance = three_digits(budget.level * 100.0);
    match budget.over_all_rows {
        _ if budget.rows == 0 => "false-alarm budget: none, because no row was judged".to_owned(),
        true => format!(
            "false-alarm budget: a chance of {chance} % of any false alarm over all {} together",
            counted(budget.rows as usize, "row")
        ),
        false => format!(
            "false-alarm budget: a chance of {chance} % on each of {}, so at most {} false alarms are to be expected",
            counted(budget.rows as usize, "judged row"),
            three_digits(budget.expected_at_most)
        ),
    }
}

fn gated(verdict: Option<&Verdict>) -> Badge {
    match verdict {
        Some(verdict) => badge("Does the machine reach what is expected?", verdict),
        None => Badge {
            tone: Tone::Plain,
            question: "Does the machine reach what is expected?".into(),
            answer: "NOT JUDGED".into(),
            detail: "no machine file was given".into(),
        },
    }
}

/// Result of the search for suspects. Finding none does not prove that there is none.
fn suspects_badge(suspects: &Suspects, verdict: Option<&Verdict>) -> Badge {
    let cleared = is_cleared(suspects, verdict);
    let (tone, answer) = match (suspects.suspects.len(), suspects.exit_code) {
        (0, code) if code == 0 || cleared => (Tone::Plain, "NO SUSPECTS".to_owned()),
        (0, _) => (Tone::Unsure, "UNDECIDED".to_owned()),
        (count, _) => (Tone::Bad, counted(count, "suspect").to_uppercase()),
    };
    let full = suspects.answer.as_str();
    let mut detail = full.strip_prefix("undecided: ").unwrap_or(full).to_owned();
    if cleared {
        detail = "what one measure alone shows is within its thresholds".to_owned();
    }
    if let Some(unseen) = suspects.unseen_in_words().filter(|_| suspects.suspects.is_empty()) {
        detail += &format!("; {unseen}");
    }
    Badge { tone, question: "Is a node, link or rank to blame?".into(), answer, detail }
}

fn badge(question: &str, verdict: &Verdict) -> Badge {
    let c = &verdict.coverage;
    let (passed, failed, unsure) = (c.rows_passed, c.rows_failed, c.rows_inconclusive);
    Badge {
        tone: tone(Some(verdict.decision)),
        question: question.into(),
        answer: verdict.decision.name().to_uppercase(),
        detail: format!(
            "{} of {} rows judged: {passed} passed, {failed} failed, {unsure} inconclusive (exit code {})",
            c.rows_judged, c.rows, verdict.exit_code
        ),
    }
}

fn measured(name: &str, view: &View, several: bool) -> Badge {
    let code = view.exit_code();
    let warnings = view.serious_warnings().count();
    let (tone, answer) = match code {
        0 if warnings > 0 => (Tone::Unsure, "COMPLETE, WITH WARNINGS"),
        0 if view.header.backend.synthetic => (Tone::Plain, "COMPLETE, SYNTHETIC"),
        0 => (Tone::Good, "COMPLETE"),
        4 => (Tone::Bad, "WRONG DATA"),
        5 | 6 => (Tone::Bad, "FAILED"),
        _ if view.completion.running => (Tone::Unsure, "STILL RUNNING"),
        _ => (Tone::Unsure, "INCOMPLETE"),
    };
    let warned = if warnings > 0 { format!("; {}", counted(warnings, "warning")) } else { String::new() };
    let question =
        if several { format!("Was everything measured? {name}") } else { "Was everything measured?".to_owned() };
    let short = view.rows.iter().filter(|row| row.is_incomplete()).count();
    let lacking = if short > 0 { format!("; {} without all replicates", counted(short, "row")) } else { String::new() };
    let detail = format!("{}{lacking}{warned} (exit code {code})", view.summary());
    Badge { tone, question, answer: answer.to_owned(), detail }
}
