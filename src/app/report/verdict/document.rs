//! The verdict for people: coverage first, then the rows, the worst first, then the rule.

use crate::report::document;
use crate::report::document::{
    Block, Column, Mark, Row as TableRow, Table, Tone, optional, share, signed_bounds, signed_percent,
};
use crate::report::products::FlopsUnit;
use crate::report::text::visible;
use commgauge_base::units::{Rate, Seconds, three_digits};
use commgauge_judge::verdict::{
    Coverage, CurveChange, CurvePart, Decision, Finding, Metric, Problem, Question, Row, RowCall, RowSubject, Verdict,
};

/// Findings that a page shows without a click.
const MAX_OPEN: usize = 8;

/// Everything below the answer.
pub(super) fn document(verdict: &Verdict) -> Vec<Block> {
    let mut blocks = vec![Block::list(coverage(verdict).into_iter().chain(origins(verdict)))];
    if !verdict.problems.is_empty() {
        blocks.push(problems(verdict));
    }
    let judged: Vec<&Row> = verdict.rows.iter().filter(|row| row.decision.is_some()).collect();
    if !judged.is_empty() {
        let table = rows(verdict.question, "", &judged, &[]);
        let why = Block::headed_list("Why:", Mark::None, explained(&worst_first(&judged)));
        blocks.extend([Block::Table(table), Block::Narrow(why)]);
    }
    blocks.extend(curves_document(&verdict.curves));
    let sentences = verdict.findings.iter().map(|finding| finding.text.as_str());
    let heading = "Calls that break a rule of self-consistency, the worst first:";
    blocks.push(Block::Narrow(Block::headed_list(heading, Mark::Dash, sentences)));
    blocks.extend(findings(verdict));
    blocks.extend(Block::headed_list("How it was decided:", Mark::None, &verdict.rule));
    blocks
}

/// What is wrong with the records.
pub(in crate::report) fn problems(verdict: &Verdict) -> Block {
    let sentence = |problem: &Problem| match problem.exit_code {
        0 => format!("{} (a warning)", problem.text),
        code => format!("{} (exit code {code})", problem.text),
    };
    Block::marked(Mark::Alarm, verdict.problems.iter().map(sentence))
}

/// By decision, and of equal ones the slowest against the base first.
fn worst_first<'a>(rows: &[&'a Row]) -> Vec<&'a Row> {
    let mut rows = rows.to_vec();
    let slowdown = |row: &Row| row.against_base.as_ref().and_then(|against| against.slowdown).unwrap_or(f64::MIN);
    rows.sort_by(|a, b| b.decision.cmp(&a.decision).then(slowdown(b).total_cmp(&slowdown(a))));
    rows
}

/// The reasons of each row; shared reasons are listed once.
fn explained(rows: &[&Row]) -> Vec<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| !row.reasons.is_empty()).copied().collect();
    let shared = shared_reasons(&rows);
    let for_all = (!shared.is_empty()).then(|| format!("all {} rows: {}", rows.len(), shared.join("; ")));
    let own = rows.iter().filter_map(|row| {
        let own = own_reasons(row, &shared);
        let call = row.against_base.as_ref().zip(row.subject.call());
        let call = call.map(|(_, call)| format!(" ({}, {})", call.element_type, call.bytes_total));
        (!own.is_empty()).then(|| format!("{}{}: {}", row.full_name(), call.unwrap_or_default(), own.join("; ")))
    });
    for_all.into_iter().chain(own).collect()
}

/// The reasons that all rows have, where there are several.
fn shared_reasons(rows: &[&Row]) -> Vec<String> {
    let [first, others @ ..] = rows else { return Vec::new() };
    let is_shared = |reason: &&String| !others.is_empty() && others.iter().all(|row| row.reasons.contains(reason));
    first.reasons.iter().filter(is_shared).cloned().collect()
}

fn own_reasons(row: &Row, shared: &[String]) -> Vec<String> {
    row.reasons.iter().filter(|reason| !shared.contains(reason)).cloned().collect()
}

/// The rules of self-consistency that calls break, with how sure each is, for pages.
pub(in crate::report) fn findings(verdict: &Verdict) -> Option<Block> {
    const COLUMNS: [Column; 5] = [
        Column::left("finding", Column::PAGES_ONLY),
        Column::right("over what is allowed", Column::PAGES_ONLY),
        Column::right("at least", Column::PAGES_ONLY),
        Column::right("p corrected", Column::PAGES_ONLY),
        Column::left("chance", Column::PAGES_ONLY),
    ];
    let over = |times: f64| format!("+{}", share(times - 1.0));
    let row = |finding: &Finding| {
        let cells = vec![
            finding.text.clone(),
            over(finding.times_allowed),
            optional(finding.times_allowed_lower_bound.map(|low| if low > 1.0 { over(low) } else { "nothing".into() })),
            three_digits(finding.p_corrected),
            if finding.certain { "ruled out" } else { "not ruled out" }.to_owned(),
        ];
        document::Row::toned(if finding.certain { Tone::Bad } else { Tone::Plain }, cells)
    };
    let title = "Calls that break a rule of self-consistency, the worst first";
    let table = Table::new(title, &COLUMNS, verdict.findings.iter().map(row))
        .whole_in("`commgauge compare --consistency RECORD --format json` has every finding");
    let many = table.rows.len() > MAX_OPEN;
    (!table.rows.is_empty()).then_some(Block::Table(if many { table.folded() } else { table }))
}

fn origins(verdict: &Verdict) -> Vec<String> {
    let run = |run: &commgauge_judge::verdict::Run| {
        format!(
            "{}: {}, run {} of {}, suite {}, {}, {} ranks",
            run.role, run.path, run.run_id, run.started_at, run.suite, run.library, run.world_size
        ) + &run.measured_by.as_ref().map_or_else(String::new, |label| format!("; {label}"))
    };
    let machine = verdict.machine.iter().map(|machine| format!("machine: {machine}"));
    verdict.runs.iter().map(run).chain(machine).collect()
}

/// The rows, the worst first.
fn rows(question: Question, title: impl Into<String>, rows: &[&Row], said_elsewhere: &[String]) -> Table {
    let rows = worst_first(rows);
    let mut columns = columns(question);
    let has_hosts = rows.iter().any(|row| row.hosts.is_some());
    if has_hosts {
        columns.insert(1, Column::left("hosts", 0));
    }
    let shown = rows.iter().map(|row| {
        let mut cells = cells(question, row, said_elsewhere);
        if has_hosts {
            cells.insert(1, optional(row.hosts.as_ref()));
        }
        document::Row::toned(tone(row.decision), cells)
    });
    Table::new(title, &columns, shown).whole_in("`--format json` has every row")
}

/// The same for a page, with a note: reasons that all rows have are said below them.
pub(in crate::report) fn rows_on_page(question: Question, title: &str, all: &[&Row], note: &str) -> Table {
    let shared = shared_reasons(all);
    let why = (!shared.is_empty()).then(|| format!("Why, in all {} rows: {}.", all.len(), shared.join("; ")));
    let notes: Vec<String> = Some(note.to_owned()).filter(|note| !note.is_empty()).into_iter().chain(why).collect();
    rows(question, title, all, &shared).noted(notes.join(" "))
}

/// The colour of a decision.
pub(in crate::report) fn tone(decision: Option<Decision>) -> Tone {
    match decision {
        Some(Decision::Pass) => Tone::Good,
        Some(Decision::Fail | Decision::Error) => Tone::Bad,
        Some(Decision::Inconclusive) => Tone::Unsure,
        None => Tone::Plain,
    }
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
            Column::left("type", 4),
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
    columns.extend([Column::left("row", Column::PAGES_ONLY), Column::left("why", Column::PAGES_ONLY)]);
    columns
}

fn cells(question: Question, row: &Row, said_elsewhere: &[String]) -> Vec<String> {
    let of_call = |cell: fn(&RowCall) -> String| optional(row.subject.call().map(cell));
    let mut cells = vec![
        decision(row).to_owned(),
        row.subject.axis(),
        what(row),
        optional(row.subject.bytes()),
        of_call(|call| call.group_size.to_string()),
        of_call(|call| call.locality.to_string()),
        of_call(|call| call.cadence.to_string()),
        of_call(|call| call.placement.to_string()),
    ];
    cells.extend(match question {
        Question::Gate => gate_cells(row),
        Question::Compare => compare_cells(row),
        Question::Consistency => Vec::new(),
    });
    cells.extend([row.full_name().into_owned(), own_reasons(row, said_elsewhere).join("; ")]);
    cells
}

/// The row's subject, with all that distinguishes it from its neighbours and has no column.
fn what(row: &Row) -> String {
    match &row.subject {
        RowSubject::Call(call) => call.collective.to_string(),
        RowSubject::Copy { copy } => {
            let memory = copy.host_memory.map(|memory| memory.name().to_owned());
            let peer = copy.peer_distance.map(|distance| format!("rank +{distance}"));
            let each = if copy.alone { "alone" } else { "together" }.to_owned();
            let parts = [copy.kind.name().to_owned()].into_iter().chain(memory).chain(peer).chain([each]);
            parts.collect::<Vec<_>>().join(", ")
        }
        RowSubject::Product { product } => format!("product {} x {} x {}", product.m, product.n, product.k),
    }
}

fn gate_cells(row: &Row) -> Vec<String> {
    let Some(against) = &row.against_limit else {
        return [vec![row.replicates.to_string()], vec![optional(None::<String>); 4]].concat();
    };
    let shown = |number: f64| value(against.metric, number);
    let bounds = against.lower_bound.zip(against.upper_bound);
    vec![
        row.replicates.to_string(),
        optional(against.median.map(shown)),
        optional(bounds.map(|(low, high)| format!("{} .. {}", shown(low), shown(high)))),
        shown(against.limit),
        format!("{} ({})", against.source, against.date),
    ]
}

fn compare_cells(row: &Row) -> Vec<String> {
    let Some(against) = &row.against_base else {
        return [vec![optional(row.subject.element_type())], vec![optional(None::<String>); 7]].concat();
    };
    let p = |p: f64| format!("{p:.4}");
    vec![
        optional(row.subject.element_type()),
        format!("{}/{}", against.replicates_base, row.replicates),
        optional(against.latency_seconds_base.map(Seconds)),
        optional(against.latency_seconds_new.map(Seconds)),
        optional(against.slowdown.map(signed_percent)),
        signed_bounds(against.slowdown_lower_bound, against.slowdown_upper_bound),
        optional(against.p_row.map(p)),
        optional(against.p_corrected.map(p)),
    ]
}

// The sentences and words of a verdict that all of its formats share.

/// What was asked, in a word; thresholds are one part of what `commgauge judge` asks.
pub(super) fn asked(question: Question) -> &'static str {
    if question == Question::Gate { "thresholds" } else { question.name() }
}

/// The first line: the question, the answer and its exit code.
pub(super) fn headline(verdict: &Verdict) -> String {
    let what = asked(verdict.question);
    let judged = if verdict.question == Question::Gate { format!("; {}", thresholds(verdict)) } else { String::new() };
    format!("{what}: {} (exit code {}){judged}", verdict.decision.name().to_uppercase(), verdict.exit_code)
}

/// How many limits of the machine file the verdict rests on.
pub(in crate::report) fn thresholds(verdict: &Verdict) -> String {
    let c = &verdict.coverage;
    let missing = c.expectations.saturating_sub(c.expectations_judged);
    format!("{} of {} thresholds judged, {missing} not measured", c.expectations_judged, c.expectations)
}

/// The coverage, as sentences.
pub(in crate::report) fn coverage(verdict: &Verdict) -> Vec<String> {
    let c = &verdict.coverage;
    if verdict.question == Question::Consistency {
        let certain = verdict.findings.iter().filter(|finding| finding.certain).count();
        let found = verdict.findings.len();
        return vec![format!(
            "{} rows; {certain} findings beyond chance, {} that may be chance",
            c.rows,
            found - certain
        )];
    }
    let rows = format!(
        "coverage: {} of {} rows judged: {} passed, {} failed, {} inconclusive; {} not judged",
        c.rows_judged, c.rows, c.rows_passed, c.rows_failed, c.rows_inconclusive, c.rows_not_judged
    );
    let replicates =
        format!("replicates of judged rows: {} of {} measured", c.replicates_measured, c.replicates_planned);
    [rows].into_iter().chain(network(c)).chain([replicates]).collect()
}

/// Whether the network was judged; nothing where that was not asked.
fn network(c: &Coverage) -> Option<String> {
    Some(match (c.nodes, c.rows_judged_between_nodes) {
        (0, _) => return None,
        (1, _) => "network: not judged; the run has one node".to_owned(),
        (nodes, 0) => format!("network: NOT JUDGED: no judged row is between the {nodes} nodes"),
        (nodes, rows) => format!("network: {rows} of the judged rows are between the {nodes} nodes"),
    })
}

/// A row's decision in a word.
pub(in crate::report) fn decision(row: &Row) -> &'static str {
    row.decision.map_or("not judged", |decision| decision.name())
}

/// A value of a limit with its unit.
pub(in crate::report) fn value(metric: Metric, value: f64) -> String {
    match metric {
        Metric::BusBandwidthBytesPerSecond => Rate(value).to_string(),
        Metric::LatencySeconds => Seconds(value).to_string(),
        Metric::CopyBytesPerSecond => Rate(value).to_string(),
        Metric::FlopsPerSecond => flops(value),
    }
}

/// A rate of computing in the unit that fits it.
fn flops(per_second: f64) -> String {
    let unit = FlopsUnit::of(per_second);
    format!("{} {}", unit.number(per_second), unit.name())
}

/// Reasons joined into one escaped text.
pub(super) fn reasons(row: &Row) -> String {
    visible(&row.reasons.join("; "))
}

// Changes of whole curves: alpha and beta before and after, one line each.

/// The table, the worst first, where there are any.
pub(in crate::report) fn curves_document(curves: &[CurveChange]) -> Option<Block> {
    const COLUMNS: [Column; 9] = [
        Column::left("curve", 0),
        Column::right("sizes", 4),
        Column::left("part", 0),
        Column::right("base", 2),
        Column::right("new", 2),
        Column::right("costs more", 0),
        Column::left("bounds", 3),
        Column::right("p corrected", 1),
        Column::left("verdict", 0),
    ];
    let mut curves: Vec<&CurveChange> = curves.iter().collect();
    curves.sort_by(|a, b| b.worse.cmp(&a.worse).then(b.slowdown.total_cmp(&a.slowdown)));
    let table = Table::new("Latency and bandwidth of whole curves:", &COLUMNS, curves.into_iter().map(row))
        .whole_in("`commgauge compare --format json` has every curve");
    (!table.rows.is_empty()).then_some(Block::Table(table))
}

fn row(curve: &CurveChange) -> TableRow {
    let value = |cost: f64| match curve.part {
        CurvePart::Latency => Seconds(cost).to_string(),
        CurvePart::Bandwidth => Rate(1.0 / cost).to_string(),
    };
    let (tone, verdict) = if curve.worse { (Tone::Bad, "worse") } else { (Tone::Plain, "-") };
    let cells = vec![
        curve.name.clone(),
        curve.cases.to_string(),
        curve.part.name().to_owned(),
        value(curve.base),
        value(curve.new),
        signed_percent(curve.slowdown),
        signed_bounds(curve.slowdown_lower_bound, curve.slowdown_upper_bound),
        format!("{:.4}", curve.p_corrected),
        verdict.to_owned(),
    ];
    TableRow::toned(tone, cells)
}
