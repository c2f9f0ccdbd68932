//! Suspects: the answer, each suspect with its evidence and next step, and what cannot be determined.

use super::document::{
    Block, Column, Fields, Mark, Terminal, Tone, escaped_markdown, markdown, optional, share, wrapped,
};
use super::text::visible;
use super::verdict::{VerdictFormat, origin, verdict_text};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Seconds, counted, three_digits};
use commgauge_judge::verdict::locate::{Suspect, Suspects};
use commgauge_judge::verdict::{Decision, Problem, Verdict, is_cleared};

/// The suspects as text. `width` is used by the table only.
///
/// # Errors
/// A usage error for a format in which thresholds alone are written.
pub fn suspects_text(suspects: &Suspects, format: VerdictFormat, width: u16) -> Result<String> {
    match format {
        VerdictFormat::Table => {
            let terminal = Terminal::plain(width);
            Ok(wrapped(&visible(&headline(suspects)), width) + &terminal.draw(&document(suspects)))
        }
        VerdictFormat::Markdown => {
            let title = escaped_markdown(&headline(suspects));
            Ok(format!("# commgauge {title}\n{}", markdown(&document(suspects))))
        }
        VerdictFormat::Json => super::text::pretty_json(suspects),
        VerdictFormat::Junit | VerdictFormat::Prometheus | VerdictFormat::Github => {
            Err(Error::usage("--format: suspects have no such format; accepted: table, json, markdown"))
        }
    }
}

/// Thresholds and suspects with their common answer. `suspects` may be the reason why none could be searched for.
///
/// # Errors
/// A usage error for a format in which only one of the two parts is written.
pub fn judged_text(
    exit_code: i32,
    verdict: &Verdict,
    suspects: std::result::Result<&Suspects, &String>,
    format: VerdictFormat,
    width: u16,
) -> Result<String> {
    let answer = judged_answer(exit_code, verdict, suspects.ok());
    let answer = match format {
        VerdictFormat::Table => answer,
        VerdictFormat::Markdown => escaped_markdown(&answer) + "\n",
        _ => {
            return Err(Error::usage(
                "--format: thresholds and suspects together are written as table or markdown; choose one by --part",
            ));
        }
    };
    let located = match suspects {
        Ok(suspects) => suspects_text(suspects, format, width)?,
        Err(reason) => format!("suspects: search not possible: {}\n", visible(reason)),
    };
    Ok(format!("{answer}\n{}\n{located}", verdict_text(verdict, format, width)?))
}

fn judged_answer(exit_code: i32, verdict: &Verdict, suspects: Option<&Suspects>) -> String {
    let found = match suspects {
        Some(suspects) if !suspects.suspects.is_empty() => counted(suspects.suspects.len(), "suspect"),
        // Those that it cannot show are listed below, with the suspects.
        Some(suspects) if suspects.examined.can_name_a_node() && !suspects.unseen.is_empty() => {
            "no suspects of the kinds that this record can show".to_owned()
        }
        Some(suspects) if suspects.examined.can_name_a_node() => "no suspects".to_owned(),
        None => "suspects could not be searched for".to_owned(),
        Some(_) => "too few nodes met in pairs to suspect one".to_owned(),
    };
    let cleared = match suspects {
        Some(suspects) if is_cleared(suspects, Some(verdict)) => {
            "; what one measure alone shows (below) is within its thresholds"
        }
        _ => "",
    };
    let word = |code| Decision::from_exit_code(code).name().to_uppercase();
    format!(
        "judge: {} (exit code {exit_code}): thresholds {}; {found}{cleared}",
        word(exit_code),
        word(verdict.exit_code)
    )
}

/// Everything below the answer.
fn document(suspects: &Suspects) -> Vec<Block> {
    let synthetic = "SYNTHETIC: no data moved and no real time passed; nothing below was measured";
    let synthetic = suspects.synthetic.then(|| synthetic.to_owned());
    let unseen = suspects.unseen_in_words();
    let said = synthetic.into_iter().chain(unseen).chain(examined(suspects)).chain(suspects.runs.iter().map(origin));
    let mut blocks = vec![Block::list(said)];
    let problem = |problem: &Problem| format!("{} (exit code {})", problem.text, problem.exit_code);
    blocks.push(Block::marked(Mark::Alarm, suspects.problems.iter().map(problem)));
    blocks.extend(located(suspects));
    blocks.extend(Block::headed_list("How it was decided:", Mark::Star, &suspects.rule));
    blocks
}

/// The suspects, each with its evidence and what to do next, and what the data cannot show.
pub(super) fn located(suspects: &Suspects) -> Vec<Block> {
    let mut blocks = Vec::new();
    if !suspects.suspects.is_empty() {
        let table = Fields::of(suspects.suspects.iter().zip(1..))
            .right("#", 3, |(_, number)| *number)
            .left("suspect", 0, |(suspect, _)| suspect.name.clone())
            .left("class", 1, |(suspect, _)| suspect.kind.class())
            .left("when", 4, |(suspect, _)| if suspect.intermittent { "now and then" } else { "always" })
            .right("by", 0, |(suspect, _)| by(suspect))
            .right("strength", 2, |(suspect, _)| three_digits(suspect.strength))
            .left("action", Column::PAGES_ONLY, |(suspect, _)| suspect.action.clone())
            .toned("", |_| Tone::Bad);
        blocks.push(Block::Table(table));
    }
    for suspect in &suspects.suspects {
        blocks.push(Block::heading(&suspect.name));
        blocks.push(Block::marked(Mark::Star, &suspect.evidence));
        blocks.push(Block::Command(suspect.next_step.clone()));
    }
    blocks.extend(Block::headed_list("What the data cannot show:", Mark::Star, &suspects.cannot_tell));
    blocks
}

fn headline(suspects: &Suspects) -> String {
    format!("{} (exit code {})", suspects.answer, suspects.exit_code)
}

/// The extent of the data, as sentences.
fn examined(suspects: &Suspects) -> Vec<String> {
    let seen = &suspects.examined;
    let each = |each: Option<u32>, place| each.map_or_else(String::new, |each| format!(", {each} {place}"));
    let places = each(seen.nodes_per_leaf, "behind each leaf") + &each(seen.nodes_per_rack, "in each rack");
    let mut sentences = vec![format!(
        "coverage: {} of {} pairs of {}{places}, {}, {}",
        seen.node_pairs_measured,
        seen.node_pairs,
        counted(seen.nodes as usize, "node"),
        counted(seen.local_ranks as usize, "local rank"),
        counted(seen.replicates as usize, "replicate")
    )];
    let groups: Vec<String> = seen.group_nodes.iter().map(u32::to_string).collect();
    let groups = match groups.as_slice() {
        [] => "no groups of nodes".to_owned(),
        sizes => format!("groups of {} nodes", sizes.join(", ")),
    };
    sentences.push(format!(
        "also measured: {} alone; {groups}; {} with common starts",
        counted(seen.nodes_measured_inside as usize, "node"),
        counted(seen.isolated_cases as usize, "case")
    ));
    sentences
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
    // Suspects as text: the table at two widths, Markdown, and hostile names.
    use super::*;
    use commgauge_judge::verdict::locate::{Examined, SUSPECTS_FORMAT, SUSPECTS_VERSION, SuspectKind};
    use commgauge_judge::verdict::{Problem, Run};

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
        for width in [80, 140] {
            let text = suspects_text(&suspects("node-0017"), VerdictFormat::Table, width).unwrap();
            insta::assert_snapshot!(format!("suspects_{width}"), text);
        }
        insta::assert_snapshot!(
            "suspects_markdown",
            suspects_text(&suspects("node-0017"), VerdictFormat::Markdown, 0).unwrap()
        );
    }

    #[test]
    fn hostile_names_leave_no_control_character_and_no_markup() {
        let hostile = "<img src=x onerror=alert(1)>\u{1b}[31m\u{202e}|a\nb";
        for format in [VerdictFormat::Table, VerdictFormat::Markdown, VerdictFormat::Json] {
            let text = suspects_text(&suspects(hostile), format, 100).unwrap();
            let bad = text.chars().find(|c| *c != '\n' && (c.is_control() || *c == '\u{202e}'));
            assert_eq!(bad, None, "{format:?}: {text}");
            assert!(format != VerdictFormat::Markdown || !text.contains("<img"), "{text}");
        }
    }
}
