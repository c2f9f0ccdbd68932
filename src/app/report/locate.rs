//! Suspects: the answer, each suspect with its evidence and next step, and what cannot be determined.

use super::document::{Block, Column, Fields, Mark, Tone, optional, share};
use super::template::lines;
use super::verdict::{VerdictFormat, VerdictLook, origin, problems};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Seconds, counted, three_digits};
use commgauge_judge::verdict::locate::{Suspect, SuspectKind, Suspects, Unconfirmed};
use commgauge_judge::verdict::{Decision, Row, Verdict};
use minijinja::value::Serde;

/// Suspects that the answer names; further ones are counted.
const MOST_NAMED: usize = 3;

/// Sentences of evidence for a suspect, unless all are requested.
const MOST_REASONS: usize = 3;

/// The suspects as text.
///
/// # Errors
/// A usage error for a format in which thresholds alone are written.
pub fn suspects_text(suspects: &Suspects, look: VerdictLook) -> Result<String> {
    if look.format == VerdictFormat::Json {
        return super::text::pretty_json(suspects);
    }
    look.document(&headline(suspects), &document(suspects, look))
        .ok_or_else(|| Error::usage("--format: suspects have no such format; accepted: table, json, markdown"))
}

/// Everything below the answer.
fn document(suspects: &Suspects, look: VerdictLook) -> Vec<Block> {
    let synthetic = "SYNTHETIC: no data moved and no real time passed; nothing below was measured";
    let synthetic = suspects.synthetic.then(|| synthetic.to_owned());
    let said = synthetic.into_iter().chain(open_questions(suspects)).chain(examined(suspects));
    let said = said.chain(suspects.runs.iter().map(origin));
    let mut blocks = vec![Block::list(said), problems(&suspects.problems)];
    let first = suspects.suspects.first().filter(|_| !look.explained);
    blocks.extend(first.map(|suspect| Block::Command(suspect.next_step.clone())));
    blocks.extend(table(suspects, ""));
    blocks.extend(located(suspects, look));
    blocks.extend(look.hint());
    blocks
}

/// What one measure alone shows, and faults that the data cannot show.
pub(super) fn open_questions(suspects: &Suspects) -> impl Iterator<Item = String> + '_ {
    suspects.unconfirmed.iter().map(Unconfirmed::in_words).chain(suspects.unseen_in_words())
}

/// The first suspects, each with its factor and how many of the failed rows of a verdict it explains.
pub(super) fn named(suspects: &Suspects, verdict: &Verdict) -> Vec<String> {
    let failed: Vec<&Row> = verdict.rows.iter().filter(|row| row.decision == Some(Decision::Fail)).collect();
    let one = |suspect: &Suspect| {
        let explained = failed.iter().filter(|row| suspect.explains(row)).count();
        let explained = match (failed.len(), suspect.slower_by) {
            (0, _) | (_, None) => String::new(),
            (all, Some(_)) => format!("; explains {explained} of {}", counted(all, "failure")),
        };
        let when = if suspect.intermittent { " now and then" } else { "" };
        format!("suspect: {}: {}{when}{explained}", suspect.name, factor(suspect))
    };
    let more = suspects.suspects.len().saturating_sub(MOST_NAMED);
    suspects.suspects.iter().take(MOST_NAMED).map(one).chain(and_more(more, "suspects")).collect()
}

/// How many more there are, if any.
pub(super) fn and_more(more: usize, what: &str) -> Option<String> {
    (more > 0).then(|| format!("and {more} more {what}: --explain"))
}

/// The share of the others' rate that is left, or how late a rank is.
fn factor(suspect: &Suspect) -> String {
    let Some(slower) = suspect.slower_by else { return format!("{} late", by(suspect)) };
    let rate = match &suspect.kind {
        SuspectKind::Network => "the expected rate",
        SuspectKind::OnlyAtScale { .. } => "the rate that smaller groups predict",
        _ => "the others' rate",
    };
    format!("{:.2} of {rate}", 1.0 / (1.0 + slower))
}

/// The suspects, one a row.
pub(super) fn table(suspects: &Suspects, title: &str) -> Option<Block> {
    let table = Fields::of(suspects.suspects.iter().zip(1..))
        .right("#", 3, |(_, number)| *number)
        .left("suspect", 0, |(suspect, _)| suspect.name.clone())
        .left("class", 1, |(suspect, _)| suspect.kind.class())
        .left("when", 4, |(suspect, _)| if suspect.intermittent { "now and then" } else { "always" })
        .right("by", 0, |(suspect, _)| by(suspect))
        .right("strength", 2, |(suspect, _)| three_digits(suspect.strength))
        .left("action", Column::PAGES_ONLY, |(suspect, _)| suspect.action.clone())
        .toned(title, |_| Tone::Bad);
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

/// Each suspect with its evidence; explained, also what to do next, what the data cannot show, and the rule.
pub(super) fn located(suspects: &Suspects, look: VerdictLook) -> Vec<Block> {
    let explained = look.explained;
    let mut blocks = Vec::new();
    let (named, reasons) = if explained { (usize::MAX, usize::MAX) } else { (MOST_NAMED, MOST_REASONS) };
    for suspect in suspects.suspects.iter().take(named) {
        let more = suspect.evidence.len().saturating_sub(reasons);
        let evidence = suspect.evidence.iter().take(reasons).cloned();
        blocks.push(Block::heading(&suspect.name));
        blocks.push(Block::marked(Mark::Star, evidence.chain(and_more(more, "like these"))));
        if explained {
            blocks.push(Block::Command(suspect.next_step.clone()));
        }
    }
    if explained {
        blocks.extend(Block::headed_list("What the data cannot show:", Mark::Star, &suspects.cannot_tell));
        blocks.extend(Block::headed_list("How suspects were decided:", Mark::Star, &suspects.rule));
    }
    blocks
}

fn headline(suspects: &Suspects) -> String {
    format!("{} (exit code {})", suspects.answer, suspects.exit_code)
}

/// The extent of the data, as sentences.
pub(super) fn examined(suspects: &Suspects) -> Vec<String> {
    lines("examined.txt", include_str!("templates/examined.txt"), Serde(&suspects.examined).into())
}

/// How much slower or later, with its unit.
pub(super) fn by(suspect: &Suspect) -> String {
    match (suspect.slower_by, suspect.late_seconds) {
        (_, Some(late)) => Seconds(late).to_string(),
        (slower, None) => optional(slower.map(|slower| format!("+{}", share(slower)))),
    }
}

#[cfg(test)]
mod tests {
    use crate::report::Paint;
    // Suspects as text: the table at two widths, Markdown, and hostile names.
    use super::*;
    use crate::report::Judged;
    use commgauge_judge::verdict::locate::{Examined, SUSPECTS_FORMAT, SUSPECTS_VERSION, SuspectKind};
    use commgauge_judge::verdict::testing::{lines, loaded, machine};
    use commgauge_judge::verdict::{GateRule, Problem, Run, gate};

    fn suspects(host: &str) -> Suspects {
        let suspect = |kind: SuspectKind, name: String, intermittent| Suspect {
            intermittent,
            slower_by: Some(0.571),
            late_seconds: None,
            strength: 9.04,
            evidence: vec![format!("one way: {name} takes 57 % longer than usual, with 63 of 63 other nodes")],
            action: kind.action().to_owned(),
            next_step: format!("commgauge run qualify -n 32 --hosts {host}:8"),
            name,
            kind,
        };
        let late = Suspect {
            slower_by: None,
            late_seconds: Some(2e-3),
            ..suspect(SuspectKind::LateRank { rank: 5, node: 0 }, "rank 5 on node 0 (a)".to_owned(), false)
        };
        Suspects {
            format: SUSPECTS_FORMAT.to_owned(),
            version: SUSPECTS_VERSION,
            exit_code: 1,
            answer: format!("2 suspects, first of all node 17 ({host})"),
            synthetic: true,
            runs: vec![Run {
                role: "looked at".to_owned(),
                path: "q.jsonl".to_owned(),
                run_id: "run-1".to_owned(),
                started_at: "2026-01-01T00:00:00+00:00".to_owned(),
                suite: "qualify".to_owned(),
                backend: "mpi".to_owned(),
                library: "Open MPI 4.1.4".to_owned(),
                world_size: 512,
                synthetic: true,
                measured_by: None,
            }],
            unconfirmed: Vec::new(),
            slow_periods: Vec::new(),
            examined: Examined {
                inside_pairs: 0,
                pairs_expected: false,
                nodes: 64,
                hosts: vec![host.to_owned()],
                local_ranks: 8,
                nodes_per_leaf: Some(8),
                nodes_per_rack: None,
                node_pairs: 2016,
                node_pairs_measured: 2010,
                nodes_measured_inside: 64,
                group_nodes: vec![2, 4, 8],
                isolated_cases: 1,
                replicates: 3,
            },
            suspects: vec![suspect(SuspectKind::Node { node: 17 }, format!("node 17 ({host})"), true), late],
            unseen: vec!["leaf switch".to_owned(), "late rank".to_owned()],
            cannot_tell: vec!["messages go there and back: sending and receiving cannot be distinguished".to_owned()],
            problems: vec![Problem { exit_code: 7, text: "6 of 2016 pairs of nodes were not measured".to_owned() }],
            rule: vec!["an outlier is above the median of its kind by more than scatter explains".to_owned()],
        }
    }

    #[test]
    fn tables_for_two_widths_and_a_page() {
        for (width, explained) in [(80, false), (140, true)] {
            let look = VerdictLook { format: VerdictFormat::Table, width, paint: Paint::Plain, explained };
            let text = suspects_text(&suspects("node-0017"), look).unwrap();
            insta::assert_snapshot!(format!("suspects_{width}"), text);
        }
        insta::assert_snapshot!(
            "suspects_markdown",
            suspects_text(&suspects("node-0017"), VerdictLook::WHOLE).unwrap()
        );
    }

    #[test]
    fn the_answer_names_the_suspect_with_its_factor_and_the_failures_that_it_explains() {
        let times = |middle: f64| (0..6).map(|index| middle + f64::from(index)).collect::<Vec<f64>>();
        let run = loaded("run.jsonl", lines("20261121T093000Z-7f3a", &[times(100.0), times(300.0), times(4000.0)]));
        let rule = GateRule { confidence: 0.95, allowed: Vec::new() };
        let verdict = gate(&[run], Some(&machine("14GB/s")), &rule).unwrap();
        let suspects = suspects("node-0017");
        let text = |explained| {
            let judged = Judged { exit_code: 1, verdict: &verdict, suspects: Ok(&suspects), next: None };
            judged
                .text(VerdictLook { format: VerdictFormat::Table, width: 100, paint: Paint::Plain, explained })
                .unwrap()
        };
        insta::assert_snapshot!("judged_100", text(false));
        let (answer, whole) = (text(false), text(true));
        assert!(whole.contains("How it was decided:") && whole.contains("What the data cannot show:"), "{whole}");
        assert!(whole.contains("\npass ") && !answer.contains("\npass "), "{answer}");
    }

    #[test]
    fn hostile_names_leave_no_control_character_and_no_markup() {
        let hostile = "<img src=x onerror=alert(1)>\u{1b}[31m\u{202e}|a\nb";
        for format in [VerdictFormat::Table, VerdictFormat::Markdown, VerdictFormat::Json] {
            let text = suspects_text(
                &suspects(hostile),
                VerdictLook { format, width: 100, paint: Paint::Plain, explained: true },
            )
            .unwrap();
            let bad = text.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
            assert_eq!(bad, None, "{format:?}: {text}");
            assert!(format != VerdictFormat::Markdown || !text.contains("<img"), "{text}");
        }
    }
}
