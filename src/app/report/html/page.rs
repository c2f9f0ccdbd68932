//! The page: its head, its sections and the template that frames them.

use crate::chart::STYLE;
use crate::report::columns::{FIELDS, Field, tone};
use crate::report::document::{Block, Fact, Fields, Html, optional, share};
use crate::report::row::{Row, in_words};
use crate::report::step::StepView;
use crate::report::text::visible;
use crate::report::view::View;
use crate::report::{Notes, columns, products, screen, step, template, verdict};
use base64::Engine;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{counted, three_digits};
use commgauge_cost::cost::Fit;
use commgauge_judge::verdict::locate::Suspects;
use commgauge_judge::verdict::{Decision, Difference, Row as Judged, SelfTest, Verdict};
use commgauge_model::record::Record;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// Searches and sorts tables; the only script that the policy of the page allows.
const SCRIPT: &str = include_str!("../../../../reports/templates/report.js");

/// The page with the macros that draw its blocks.
const PAGE: &str = concat!(
    include_str!("../../../../reports/templates/blocks.html"),
    include_str!("../../../../reports/templates/report.html")
);

/// A part of the page with a heading.
#[derive(Debug)]
pub(in crate::report) struct Section {
    id: &'static str,
    title: String,
    blocks: Vec<Block>,
    /// What the line says that opens it with a click.
    brief: Option<String>,
}

impl Section {
    pub fn new(id: &'static str, title: impl Into<String>, blocks: Vec<Block>) -> Section {
        Section { id, title: title.into(), blocks, brief: None }
    }

    /// The same below a line that opens it with a click.
    pub fn folded(self, brief: impl Into<String>) -> Section {
        Section { brief: Some(brief.into()), ..self }
    }

    /// Whether the run has nothing of it.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

/// The whole page; the name of the tab begins with the answer.
pub(in crate::report) fn page_text(
    answer: Option<&str>,
    title: &str,
    subtitle: &str,
    synthetic: bool,
    sections: Vec<Section>,
    footer: &str,
) -> Result<String> {
    let style = format!("{STYLE}{}", include_str!("../../../../reports/templates/report.css"));
    let mut html = Html::default();
    let drawn = |section: Section| {
        let blocks = html.section(&section.title, &section.blocks);
        let (is_folded, brief) = (section.brief.is_some(), visible(&section.brief.unwrap_or_default()));
        json!({ "id": section.id, "title": visible(&section.title), "is_folded": is_folded, "brief": brief, "blocks": blocks })
    };
    let page = json!({
        "tab": visible(&answer.map_or_else(|| title.to_owned(), |answer| format!("{answer} · {title}"))),
        "title": visible(title),
        "subtitle": visible(subtitle),
        "synthetic": synthetic,
        "sections": sections.into_iter().map(drawn).collect::<Vec<_>>(),
        "footer": visible(footer),
        "style_sha256_base64": sha256_base64(&style),
        "style": style,
        "script": SCRIPT,
        "script_sha256_base64": sha256_base64(SCRIPT),
    });
    template::through("report.html", PAGE, page)
}

fn sha256_base64(text: &str) -> String {
    base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text))
}

// What a page is made of: records with their views, and what follows from them.

/// A record and its view.
#[derive(Debug)]
pub struct HtmlRun<'a> {
    /// Its file, as it was named.
    pub name: String,
    /// The record.
    pub record: &'a Record,
    /// The view of the record.
    pub view: View,
    /// Accepted differences from the first record.
    pub differences: Vec<Difference>,
}

/// Everything that goes into a report.
#[derive(Debug)]
pub struct HtmlInput<'a> {
    /// The records, the first in order first; at least one.
    pub runs: &'a [HtmlRun<'a>],
    /// The base of a comparison; empty without one.
    pub base: &'a [HtmlRun<'a>],
    /// The machine file or its name, as it was given.
    pub machine: Option<String>,
    /// The verdict against the expectations of a machine file, if there is one.
    pub verdict: Option<&'a Verdict>,
    /// The verdict against the base.
    pub comparison: Option<&'a Verdict>,
    /// The self-consistency verdict, or why it was not computed.
    pub consistency: std::result::Result<&'a Verdict, String>,
    /// Measured error rates of the rules, if given.
    pub selftest: Option<&'a SelfTest>,
    /// The cost model, or why there is none.
    pub fit: std::result::Result<&'a Fit, String>,
    /// Whether the fit was made from these records.
    pub fit_is_own: bool,
    /// The suspects, or why they could not be searched for.
    pub suspects: std::result::Result<&'a Suspects, String>,
}

// What the model communicates: each step with its tables, folded where there are several.

/// The section.
pub(super) fn step_blocks(input: &HtmlInput) -> Vec<Block> {
    let mut blocks: Vec<Block> = input.runs.iter().flat_map(|run| screen::document(&run.view)).collect();
    let alone = input.runs.iter().map(|run| run.view.steps.len()).sum::<usize>() == 1;
    for (index, run) in input.runs.iter().enumerate() {
        let which = if input.runs.len() > 1 { format!("run {}: ", index + 1) } else { String::new() };
        for step in &run.view.steps {
            let name = format!("{which}{}, {}: {}", step.facts.model, step.facts.layout, styles(step));
            let shown = step::document(step, &run.view.rows);
            match alone {
                true => blocks.extend([vec![Block::heading(name)], shown].concat()),
                false => blocks.push(Block::folded(name, shown)),
            }
        }
    }
    for run in input.runs {
        blocks.extend(columns::disturbed_document(&run.view.contention, &run.view.interference));
        blocks.extend(products::soak_document(&run.view.rows, &run.view.header).map(Block::Table));
        blocks.extend(products::replays_document(&run.view.replays, &run.view.steps));
        // The first one is on the first screen.
        blocks.extend(run.view.replays.iter().skip(1).filter_map(products::timeline));
    }
    blocks
}

fn styles(step: &StepView) -> String {
    step.styles.iter().map(|totals| totals.name).collect::<Vec<_>>().join(", ")
}

// Every row of every record in one table, with the verdict on it; and every matrix product and copy.

/// The section of all rows.
pub(super) fn rows_blocks(input: &HtmlInput) -> Vec<Block> {
    let mut blocks: Vec<Block> =
        input.runs.iter().enumerate().flat_map(|(index, run)| of_run(input, index, run)).collect();
    blocks.push(Block::text(
        "Raw samples, histograms of each rank and the whole provenance are in the record itself; `commgauge report --format csv` and \
         `--format json` have every row in base units.",
    ));
    blocks
}

fn of_run(input: &HtmlInput, index: usize, run: &HtmlRun) -> Vec<Block> {
    let rows = &run.view.rows;
    if rows.is_empty() {
        return heading(input, index, run).into_iter().collect();
    }
    let mut notes = Notes::default();
    let numbers = notes.numbers_of(rows);
    let limits = by_name(input.verdict);
    let base = by_name(input.comparison);
    let decided = |rows: &HashMap<&str, &Judged>, row: &Row| {
        optional(rows.get(&*row.facts.name).map(|row| verdict::decision(row)))
    };
    let mut fields = Fields::of(rows.iter().zip(numbers)).left("case in words", 0, |(row, _)| in_words(&row.facts));
    for field in FIELDS.iter().filter(|field| field.is_own() && is_said(field, rows)) {
        fields = fields.column(field.column, |(row, number)| field.cell(row, *number));
    }
    let table = fields
        .left("axis", 0, |(row, _)| row.facts.axis)
        .left("style", 0, |(row, _)| row.facts.style.name())
        .left("cadence", 0, |(row, _)| row.facts.cadence)
        .right("groups", 0, |(row, _)| row.facts.groups)
        .right("ranks", 0, |(row, _)| row.facts.group_size)
        .left("hosts x ranks", 0, |(row, _)| row.facts.locality.to_string())
        .when(!limits.is_empty(), |fields| fields.left("verdict", 0, |(row, _)| decided(&limits, row)))
        .when(!base.is_empty(), |fields| fields.left("against the base", 0, |(row, _)| decided(&base, row)))
        .toned(format!("All {} rows of {}", rows.len(), run.name), |(row, _)| tone(row))
        .without_columns_that_agree()
        .whole_in(format!("`commgauge report {} --format csv` has every row", run.name));
    heading(input, index, run).into_iter().chain([Block::Table(table)]).chain(notes.document()).collect()
}

/// The rows of a verdict by the name of the case; none without one.
fn by_name(verdict: Option<&Verdict>) -> HashMap<&str, &Judged> {
    let rows = verdict.into_iter().flat_map(|verdict| &verdict.rows);
    rows.map(|row| (row.name.as_str(), row)).collect()
}

/// Whether a column says anything about any row.
fn is_said(field: &Field, rows: &[Row]) -> bool {
    rows.iter().any(|row| field.cell(row, None) != "-")
}

/// Judged rows up to which those that passed are listed with the others.
const MAX_PASSED: usize = 200;

/// All rows; of very many only those that did not pass, and a sentence on where the others are.
pub(super) fn without_many_passes<'a>(rows: &[&'a Judged]) -> (Vec<&'a Judged>, String) {
    let passed = rows.iter().filter(|row| matches!(row.decision, Some(Decision::Pass) | None)).count();
    if rows.len() <= MAX_PASSED {
        return (rows.to_vec(), String::new());
    }
    let others = rows.iter().filter(|row| !matches!(row.decision, Some(Decision::Pass) | None)).copied().collect();
    (others, format!("{passed} rows that did not fail are not repeated here: All rows has the verdict on each."))
}

/// What each run has of a kind, below the name of the run where there are several.
pub(super) fn of_runs(input: &HtmlInput, of: impl Fn(&View) -> Vec<Block>) -> Vec<Block> {
    let runs = input.runs.iter().enumerate().map(|(index, run)| (index, run, of(&run.view)));
    let runs = runs.filter(|(_, _, blocks)| !blocks.is_empty());
    runs.flat_map(|(index, run, blocks)| heading(input, index, run).into_iter().chain(blocks)).collect()
}

/// Which run it is, where there are several.
fn heading(input: &HtmlInput, index: usize, run: &HtmlRun) -> Option<Block> {
    (input.runs.len() > 1).then(|| Block::heading(format!("Run {}, {}", index + 1, run.name)))
}

// Provenance of every run, and late ranks.

/// Provenance of every run.
pub(super) fn runs_blocks(input: &HtmlInput) -> Vec<Block> {
    let several = input.runs.len() + input.base.len() > 1;
    let mut blocks = Vec::new();
    let roles = input.runs.iter().map(|run| (run, "record")).chain(input.base.iter().map(|run| (run, "base")));
    for (run, role) in roles {
        if several {
            blocks.push(Block::heading(format!("{role} {}", run.name)));
        }
        if !run.differences.is_empty() {
            blocks.push(Block::text("Differences from the first record, allowed by --allow:"));
            let differences = run.differences.iter().map(|difference| {
                let (kind, fact) = (difference.kind.name(), &difference.fact);
                format!("{kind} ({fact}): {} there, {} here", difference.base, difference.new)
            });
            blocks.push(Block::list(differences));
        }
        let facts = run.view.provenance.iter().map(|(label, text)| Fact::new(*label, text));
        let clocks = run.view.clocks.iter().map(|clock| {
            let description = format!(
                "{:?}, resolution {} ns, the ranks agree to {} ns, drift up to {} ppm",
                clock.method,
                clock.resolution_nanoseconds,
                clock.residual_nanoseconds,
                three_digits(clock.worst_drift_ppm)
            );
            Fact::new(format!("clock at {:?}", clock.moment).to_lowercase(), description.to_lowercase())
        });
        let mut all: Vec<Fact> = facts.chain(clocks).collect();
        all.push(Fact::new("program's SHA-256", &run.view.header.program_sha256));
        all.push(Fact::new("suite's SHA-256", &run.view.header.suite.sha256));
        blocks.push(Block::Facts(all));
    }
    blocks
}

/// How many cases name a late rank.
pub(super) fn late_in_short(run: &HtmlRun) -> String {
    match run.view.rows.iter().filter(|row| row.late.is_some()).count() {
        0 => "no rank is late in any case".to_owned(),
        late => format!("a late rank in {}", counted(late, "case")),
    }
}

/// Late ranks; nothing where no isolated sample could show one.
pub(super) fn late(run: &HtmlRun) -> Vec<Block> {
    let isolated = run.view.rows.iter().filter(|row| row.facts.cadence == Cadence::Isolated && row.counts.samples > 0);
    let (world, samples) = (run.view.header.world_size, isolated.map(|row| row.counts.samples).sum::<u64>());
    if samples == 0 {
        return Vec::new();
    }
    let late = run.view.rows.iter().filter_map(|row| Some((in_words(&row.facts), row.late.as_ref()?)));
    let table = Fields::of(late)
        .left("case", 0, |(case, _)| (*case).clone())
        .right("late rank", 0, |(_, late)| late.rank)
        .left("host", 0, |(_, late)| late.host.clone())
        .right("last in", 0, |(_, late)| share(late.share))
        .right("behind the first", 0, |(_, late)| late.spread)
        .table("Late ranks by case");
    let rule = format!(
        "Of {samples} isolated samples; by chance each of {world} ranks would be last in {} %. A rank is named as late only where it was last \
         in a clear majority, by more than the clocks' disagreement.",
        three_digits(100.0 / f64::from(world.max(1)))
    );
    let named = match table.rows.is_empty() {
        true => Block::text("No rank is named as late in any case."),
        false => Block::Table(table.whole_in("`commgauge report --format json` has every row")),
    };
    vec![Block::text(rule), named]
}
