//! What the model communicates: every step in one line, then each with its charts and tables, of which the first is open.

use super::input::HtmlInput;
use crate::report::document::{Block, Column, Table, gigabytes};
use crate::report::step::{Measure, Rule, StepView, Sum};
use crate::report::{contention, interference, replay, screen, soak, step};
use commgauge_base::units::Seconds;

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let several = input.runs.len() > 1;
    let mut blocks: Vec<Block> = input.runs.iter().flat_map(|run| screen::document(&run.view)).collect();
    let mut overview = Vec::new();
    let mut steps = Vec::new();
    for (index, run) in input.runs.iter().enumerate() {
        let which = if several { format!("run {}: ", index + 1) } else { String::new() };
        for step in &run.view.steps {
            let styles: Vec<&str> = step.styles.iter().map(|totals| totals.name).collect();
            let (model, layout, styles) = (&step.facts.model, &step.facts.layout, styles.join(", "));
            overview.push(overview_cells(step, format!("{which}{model}"), &styles));
            steps.push((format!("{which}{model}, {layout}: {styles}"), step::document(step, &run.view.rows)));
        }
    }
    if !overview.is_empty() {
        let table = Table::new("Every step that was measured", &OVERVIEW, overview)
            .noted("Orders: > is larger, = a tie within the intervals, ? too few samples.")
            .whole_in("`commgauge report --format json` has every step");
        blocks.push(Block::Table(table));
    }
    let names: Vec<String> = steps.iter().map(|(name, _)| name.clone()).collect();
    for (index, (name, shown)) in steps.into_iter().enumerate() {
        let is_alone = names.iter().filter(|other| **other == name).count() == 1;
        let name = if is_alone { name } else { format!("{name}, step {} of {}", index + 1, names.len()) };
        if index == 0 {
            blocks.push(Block::heading(name));
            blocks.extend(shown);
        } else {
            blocks.push(Block::folded(name, shown));
        }
    }
    for run in input.runs {
        blocks.extend(contention::document(&run.view.contention, &run.view.rows));
        blocks.extend(soak::document(&run.view).map(Block::Table));
        blocks.extend(interference::document(&run.view.interference));
        blocks.extend(replay::document(&run.view));
    }
    blocks
}

const OVERVIEW: [Column; 8] = [
    Column::left("model", 0),
    Column::left("layout", 0),
    Column::left("styles", 0),
    Column::right("payload of a rank", 0),
    Column::right("wire bytes of a rank", 0),
    Column::right("time of all calls", 0),
    Column::right("of it exposed", 0),
    Column::left("TP > DP > PP by time", 0),
];

fn overview_cells(step: &StepView, model: String, styles: &str) -> Vec<String> {
    let by_time = step.rankings.iter().find(|ranking| ranking.measure == Measure::Time);
    let of = |sum: &Sum| match sum.without_a_time {
        0 if sum.known_seconds.middle == 0.0 => "nothing".to_owned(),
        0 => Seconds(sum.known_seconds.middle).to_string(),
        without if without == sum.ops => "not measured".to_owned(),
        _ => format!("{}, incomplete", Seconds(sum.known_seconds.middle)),
    };
    vec![
        model,
        step.facts.layout.clone(),
        styles.to_owned(),
        gigabytes(step.whole.payload_bytes_per_step),
        gigabytes(step.whole.wire_bytes_per_step),
        of(&step.whole.time),
        of(&step.whole.exposed_time),
        by_time.map_or_else(String::new, |ranking| match &ranking.rule {
            Rule::NothingToCompare => "only one of them".to_owned(),
            rule => rule.text(),
        }),
    ]
}
