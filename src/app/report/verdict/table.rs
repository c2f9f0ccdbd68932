//! The verdict for people: answer and coverage first, then the rows, the worst first, then the rule and what to fill in.

use super::super::markdown::{bullets, escaped};
use super::super::plain_table::{Column, markdown_table, table, wrapped};
use super::super::text::{signed_percent, visible};
use super::{coverage, curves, decision, headline, reasons, value};
use commgauge_analysis::verdict::{Question, Row, Verdict};
use commgauge_base::units::Seconds;

/// For a terminal.
pub(super) fn text(verdict: &Verdict, width: u16) -> String {
    let mut out = headline(verdict) + "\n";
    for sentence in coverage(verdict).into_iter().chain(origins(verdict)) {
        out += &wrapped(&visible(&sentence), width);
    }
    for trouble in &verdict.troubles {
        out += &wrapped(&format!("! {} (exit code {})", visible(&trouble.text), trouble.exit_code), width);
    }
    let shown = shown(verdict);
    if !shown.is_empty() {
        let cells: Vec<Vec<String>> = shown.iter().map(|row| cells(verdict.question, row)).collect();
        out += &format!("\n{}", table(&columns(verdict.question), &cells, width));
    }
    let explained: Vec<&Row> = shown.iter().copied().filter(|row| !row.reasons.is_empty()).collect();
    if !explained.is_empty() {
        out += "\nWhy:\n";
    }
    out += &explained_by(&explained, width);
    out += &curves::text(&verdict.curves, width);
    if !verdict.findings.is_empty() {
        out += "\nCalls that break a rule of self-consistency, the worst first:\n";
    }
    for finding in &verdict.findings {
        out += &wrapped(&format!("- {}", visible(&finding.text)), width);
    }
    out += "\nHow it was decided:\n";
    for sentence in &verdict.rule {
        out += &wrapped(&visible(sentence), width);
    }
    if let Some(template) = verdict.template.as_ref().filter(|_| verdict.coverage.rows_judged == 0) {
        out += &format!("\nTo fill in and add to a machine file:\n\n{template}");
    }
    out
}

/// The reasons of each row; shared reasons are listed once.
fn explained_by(rows: &[&Row], width: u16) -> String {
    let (first, others) = match rows {
        [first, others @ ..] if !others.is_empty() => (first.reasons.as_slice(), others),
        _ => (&[][..], rows),
    };
    let shared: Vec<String> =
        first.iter().filter(|reason| others.iter().all(|row| row.reasons.contains(reason))).cloned().collect();
    let mut out = String::new();
    if !shared.is_empty() {
        out += &wrapped(&format!("all {} rows: {}", rows.len(), visible(&shared.join("; "))), width);
    }
    for row in rows {
        let own: Vec<String> = row.reasons.iter().filter(|reason| !shared.contains(reason)).cloned().collect();
        if !own.is_empty() {
            out += &wrapped(&format!("{}: {}", visible(&row.name), visible(&own.join("; "))), width);
        }
    }
    out
}

/// For a page.
pub(super) fn markdown(verdict: &Verdict) -> String {
    let mut out = format!("# commgauge {}\n", escaped(&headline(verdict)));
    let sentences = coverage(verdict).into_iter().chain(origins(verdict));
    let troubles = verdict.troubles.iter().map(|trouble| format!("{} (exit code {})", trouble.text, trouble.exit_code));
    out += &bullets(sentences.chain(troubles).collect());
    let shown = shown(verdict);
    if !shown.is_empty() {
        let mut columns = columns(verdict.question);
        columns.push(Column::left("why", 0));
        let cells: Vec<Vec<String>> = shown
            .iter()
            .map(|row| {
                let mut cells = cells(verdict.question, row);
                cells.push(reasons(row));
                cells
            })
            .collect();
        out += &format!("\n{}", markdown_table(&columns, &cells));
    }
    out += &curves::markdown(&verdict.curves);
    if !verdict.findings.is_empty() {
        let findings = verdict.findings.iter().map(|finding| finding.text.clone()).collect();
        out += &format!("\n## Calls that break a rule of self-consistency\n{}", bullets(findings));
    }
    out += &format!("\n## How it was decided\n{}", bullets(verdict.rule.clone()));
    if let Some(template) = verdict.template.as_ref().filter(|_| verdict.coverage.rows_judged == 0) {
        out += &format!("\n## To fill in and add to a machine file\n\n```toml\n{template}```\n");
    }
    out
}

/// Judged rows, the worst first.
fn shown(verdict: &Verdict) -> Vec<&Row> {
    let mut rows: Vec<&Row> = verdict.rows.iter().filter(|row| row.decision.is_some()).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.decision));
    rows
}

fn origins(verdict: &Verdict) -> Vec<String> {
    let run = |run: &commgauge_analysis::verdict::Run| {
        format!(
            "{}: {}, run {} of {}, suite {}, {}, {} ranks",
            run.role, run.path, run.run_id, run.started_at, run.suite, run.library, run.world_size
        )
    };
    let machine = verdict.machine.iter().map(|machine| format!("machine: {machine}"));
    verdict.runs.iter().map(run).chain(machine).collect()
}

fn columns(question: Question) -> Vec<Column> {
    let mut columns = vec![
        Column::left("verdict", 0),
        Column::left("axis", 0),
        Column::left("collective", 0),
        Column::right("size", 0),
        Column::right("ranks", 6),
        Column::left("hosts x ranks", 8),
        Column::left("cadence", 1),
        Column::left("placement", 9),
    ];
    columns.extend(match question {
        Question::Gate => vec![
            Column::right("repl.", 5),
            Column::right("median", 0),
            Column::left("bounds", 4),
            Column::right("limit", 0),
            Column::left("source", 10),
        ],
        Question::Compare => vec![
            Column::right("repl.", 5),
            Column::right("base", 0),
            Column::right("new", 2),
            Column::right("slower by", 0),
            Column::left("bounds", 4),
            Column::right("p", 10),
            Column::right("p corrected", 3),
        ],
        Question::Consistency => Vec::new(),
    });
    columns
}

fn cells(question: Question, row: &Row) -> Vec<String> {
    let mut cells = vec![
        decision(row).to_owned(),
        row.axis.to_string(),
        row.collective.to_string(),
        row.bytes_total.to_string(),
        row.group_size.to_string(),
        row.locality.to_string(),
        row.cadence.to_string(),
        row.placement.to_string(),
    ];
    cells.extend(match question {
        Question::Gate => gate_cells(row),
        Question::Compare => compare_cells(row),
        Question::Consistency => Vec::new(),
    });
    cells
}

fn gate_cells(row: &Row) -> Vec<String> {
    let dash = || "-".to_owned();
    let Some(against) = &row.against_limit else {
        return vec![row.replicates.to_string(), dash(), dash(), dash(), dash()];
    };
    let shown = |number: f64| value(against.metric, number);
    let bounds = against.lower_bound.zip(against.upper_bound);
    vec![
        row.replicates.to_string(),
        against.median.map_or_else(dash, shown),
        bounds.map_or_else(dash, |(low, high)| format!("{} .. {}", shown(low), shown(high))),
        shown(against.limit),
        visible(&format!("{} ({})", against.source, against.date)),
    ]
}

fn compare_cells(row: &Row) -> Vec<String> {
    let dash = || "-".to_owned();
    let Some(against) = &row.against_base else { return std::iter::repeat_with(dash).take(7).collect() };
    let time = |seconds: Option<f64>| seconds.map_or_else(dash, |seconds| Seconds(seconds).to_string());
    let p = |p: Option<f64>| p.map_or_else(dash, |p| format!("{p:.4}"));
    let bounds = against.slowdown_lower_bound.zip(against.slowdown_upper_bound);
    vec![
        format!("{}/{}", against.replicates_base, row.replicates),
        time(against.latency_seconds_base),
        time(against.latency_seconds_new),
        against.slowdown.map_or_else(dash, signed_percent),
        bounds.map_or_else(dash, |(low, high)| format!("{} .. {}", signed_percent(low), signed_percent(high))),
        p(against.p_row),
        p(against.p_corrected),
    ]
}
