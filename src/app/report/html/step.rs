//! What a step of the model costs: bytes and time by axis and style, exposed time, and whether TP > DP > PP holds.

use super::HtmlInput;
use super::page::{Block, Figure, Table, folded};
use crate::chart::{Axis, Bar, Bars, Unit};
use crate::report::replay::replay_time;
use crate::report::screen::CostTable;
use crate::report::step::{Crossing, Measure, Rule, StepView, Sum, Totals};
use commgauge_base::units::{Seconds, three_digits};
use commgauge_model::record::replay_line::ReplayLine;

/// The section: one line for each step, then each with its charts, of which the first is open.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let several = input.runs.len() > 1;
    let mut blocks: Vec<Block> = input.runs.iter().flat_map(|run| ranking(CostTable::of(&run.view))).collect();
    let mut overview = Table::new("Every step that was measured", &OVERVIEW);
    let mut steps = Vec::new();
    for (index, run) in input.runs.iter().enumerate() {
        let which = if several { format!("run {}: ", index + 1) } else { String::new() };
        for step in &run.view.steps {
            let styles: Vec<&str> = step.styles.iter().map(|totals| totals.name).collect();
            let (model, layout, styles) = (&step.facts.model, &step.facts.layout, styles.join(", "));
            overview.row(overview_cells(step, format!("{which}{model}"), layout, &styles));
            steps.push((format!("{which}{model}, {layout}: {styles}"), of_step(step, &run.view.rows)));
        }
    }
    if steps.len() > 1 {
        blocks.push(Block::Table(overview.capped("`commgauge report --format json` has every step")));
    }
    for (index, (name, shown)) in steps.into_iter().enumerate() {
        if index == 0 {
            blocks.push(Block::heading(name));
            blocks.extend(shown);
        } else {
            blocks.extend(folded(name, shown));
        }
    }
    blocks.extend(input.runs.iter().flat_map(|run| run.view.replays.iter().flat_map(of_replay)));
    blocks
}

/// What each parallelism costs in the step that the plan ranks.
fn ranking(costs: Option<CostTable>) -> Vec<Block> {
    let Some(costs) = costs else { return Vec::new() };
    let columns: Vec<(&'static str, bool)> =
        costs.columns.iter().map(|column| (column.heading(), column.is_number())).collect();
    let mut table = Table::new(&costs.title, &columns);
    costs.rows.into_iter().for_each(|row| table.row(row));
    vec![Block::Table(table), Block::List(costs.sentences.iter().map(Into::into).collect())]
}

const OVERVIEW: [(&str, bool); 7] = [
    ("model", false),
    ("layout", false),
    ("styles", false),
    ("wire bytes of a rank", true),
    ("time of all calls", true),
    ("of it exposed", true),
    ("TP > DP > PP by time", false),
];

fn overview_cells(step: &StepView, model: String, layout: &str, styles: &str) -> Vec<String> {
    let by_time = step.rankings.iter().find(|ranking| ranking.measure == Measure::Time);
    let of = |sum: &Sum| match sum.without_a_time {
        0 if sum.known_seconds.middle == 0.0 => "nothing".to_owned(),
        0 => Seconds(sum.known_seconds.middle).to_string(),
        without if without == sum.ops => "not measured".to_owned(),
        _ => format!("{}, incomplete", Seconds(sum.known_seconds.middle)),
    };
    vec![
        model,
        layout.to_owned(),
        styles.to_owned(),
        step.whole.wire_bytes_per_step.to_string(),
        of(&step.whole.time),
        of(&step.whole.exposed_time),
        by_time.map_or_else(String::new, |ranking| match &ranking.rule {
            Rule::NothingToCompare => "only one of them".to_owned(),
            rule => rule.text(),
        }),
    ]
}

fn of_step(step: &StepView, rows: &[crate::report::Row]) -> Vec<Block> {
    let mut blocks = Vec::new();
    blocks.extend(step.whole.time.incomplete().map(|what| Block::text(format!("Times are {what}."))));
    blocks.push(Block::Charts(vec![
        Figure::new("Wire bytes by axis", &bytes("Bytes that a rank sends in a step, by axis", &step.axes).draw()),
        Figure::new("Time by axis", &time("Time of all calls in a step, by axis", &step.axes).draw()),
        Figure::new("Time by style", &time("Time of all calls in a step, by style", &step.styles).draw()),
    ]));
    let mut ranking =
        Table::new("Which parallelism costs most", &[("by", false), ("order", false), ("TP > DP > PP", false)]);
    for place in &step.rankings {
        ranking.row(vec![place.measure.name().to_owned(), place.order_text(), place.rule.text()]);
    }
    blocks.push(Block::Table(ranking.noted("> is larger, = a tie within the intervals, ? too few samples")));
    if !step.crossovers.is_empty() {
        blocks.push(Block::Table(crossovers(step)));
    }
    blocks.push(Block::Folded(totals(step)));
    blocks.push(Block::Folded(ops(step, rows)));
    blocks
}

fn bytes(title: &str, totals: &[Totals]) -> Bars {
    let mut bars = Bars::new(title, Axis::linear("", Unit::Bytes));
    bars.description = "The numbers are in the table below.".into();
    bars.bars = totals
        .iter()
        .map(|totals| Bar {
            label: totals.name.to_owned(),
            parts: vec![totals.wire_bytes_per_step.0 as f64],
            interval: None,
            note: totals.wire_bytes_per_step.to_string(),
        })
        .collect();
    bars
}

fn time(title: &str, totals: &[Totals]) -> Bars {
    let mut bars = Bars::new(title, Axis::linear("", Unit::Seconds));
    bars.description =
        "Stacked: what nothing hides, and what may be hidden. The numbers are in the table below.".into();
    bars.parts = vec!["exposed".into(), "may be hidden".into()];
    bars.bars = totals
        .iter()
        .map(|totals| {
            let (all, exposed) = (totals.time.known_seconds, totals.exposed_time.known_seconds);
            let note = match totals.time.without_a_time {
                0 => Seconds(all.middle).to_string(),
                without if without == totals.time.ops => "not measured".to_owned(),
                _ => format!("{}, incomplete", Seconds(all.middle)),
            };
            Bar {
                label: totals.name.to_owned(),
                parts: vec![exposed.middle, (all.middle - exposed.middle).max(0.0)],
                interval: all.interval.map(|interval| (interval.low, interval.high)),
                note,
            }
        })
        .collect();
    bars
}

fn crossovers(step: &StepView) -> Table {
    let columns = [("parallelisms", false), ("by wire bytes", false), ("by time", false)];
    let mut table = Table::new("Where the order turns round: tokens of a replica in a step", &columns);
    let crossing_text = |crossing: &Crossing| match crossing {
        Crossing::At { tokens, larger_above } => {
            format!("{} above {} tokens", larger_above.name(), three_digits(tokens.middle))
        }
        Crossing::Never(larger) => format!("{} always", larger.name()),
        Crossing::Unknown => "not known".to_owned(),
    };
    for crossover in &step.crossovers {
        let (a, b) = crossover.families;
        let both = format!("{} and {}", a.name(), b.name());
        table.row(vec![both, crossing_text(&crossover.wire), crossing_text(&crossover.time)]);
    }
    table
}

fn totals(step: &StepView) -> Table {
    let columns = [
        ("axis or style", false),
        ("payload", true),
        ("wire bytes", true),
        ("time", true),
        ("95 % interval", true),
        ("exposed", true),
        ("note", false),
    ];
    let mut table = Table::new("Table: bytes and times of a step by axis, then by style", &columns);
    for totals in step.axes.iter().chain(&step.styles).chain([&step.whole]) {
        let interval = totals.time.known_seconds.interval;
        let name = if totals.name.is_empty() { "all" } else { totals.name };
        table.row(vec![
            name.to_owned(),
            totals.payload_bytes_per_step.to_string(),
            totals.wire_bytes_per_step.to_string(),
            Seconds(totals.time.known_seconds.middle).to_string(),
            interval.map_or_else(
                || "too few samples".to_owned(),
                |interval| format!("{} to {}", Seconds(interval.low), Seconds(interval.high)),
            ),
            Seconds(totals.exposed_time.known_seconds.middle).to_string(),
            totals.time.incomplete().unwrap_or_default(),
        ]);
    }
    table
}

fn ops(step: &StepView, rows: &[crate::report::Row]) -> Table {
    let columns = [
        ("style", false),
        ("axis", false),
        ("case", false),
        ("calls", true),
        ("wire bytes", true),
        ("time", true),
        ("share", true),
        ("hidden by", false),
        ("why", false),
    ];
    let mut table = Table::new("Table: every call of a step", &columns);
    for op in &step.ops {
        let share =
            step.share(op).map_or_else(|| "not available".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        let time = op.seconds_per_step().map(|span| Seconds(span.middle).to_string());
        table.row(vec![
            op.style.name().to_owned(),
            op.axis.name().to_owned(),
            rows.get(op.row).map_or_else(String::new, |row| row.facts.name.clone()),
            op.count_per_step.to_string(),
            op.wire_bytes_per_step.to_string(),
            time.unwrap_or_else(|| "not available".to_owned()),
            share,
            op.overlaps_with.clone().unwrap_or_else(|| "nothing".to_owned()),
            op.why.clone(),
        ]);
    }
    table.capped("`commgauge report --format json` has every call")
}

fn of_replay(replay: &ReplayLine) -> Vec<Block> {
    let mut blocks = vec![Block::heading(format!("Replayed as a whole: {}", replay.schedule))];
    let Some(time) = replay_time(replay) else {
        blocks.push(Block::absent("The replay has no time: it failed, was skipped, or data arrived wrong."));
        return blocks;
    };
    let interval = time.interval.map_or_else(
        || "too few repetitions for an interval".to_owned(),
        |(low, high)| format!("95 % interval {low} to {high}"),
    );
    blocks.push(Block::text(format!(
        "{} from the common start to the end of the slowest rank ({interval}); {} of it computing.",
        time.median,
        Seconds::from_nanoseconds(replay.computing_nanoseconds_median)
    )));
    let columns = [("axis", false), ("waiting", true), ("under way", true), ("hidden", true), ("calls", true)];
    let mut table = Table::new("What the slowest rank waited for", &columns);
    for axis in &replay.axes {
        table.row(vec![
            axis.axis.name().to_owned(),
            Seconds::from_nanoseconds(axis.waiting_nanoseconds_median).to_string(),
            Seconds::from_nanoseconds(axis.under_way_nanoseconds_median).to_string(),
            axis.overlap_efficiency
                .map_or_else(|| "not available".to_owned(), |share| format!("{:.0} %", 100.0 * share)),
            axis.calls_counted.to_string(),
        ]);
    }
    blocks.push(Block::Table(table));
    blocks
}
