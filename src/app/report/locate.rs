//! Suspects: the answer, each suspect with its evidence and next step, and what cannot be determined.

use super::document::{
    Block, Column, Mark, Row, Table, Terminal, Tone, escaped_markdown, markdown, optional, share, wrapped,
};
use super::text::visible;
use commgauge_analysis::verdict::Trouble;
use commgauge_analysis::verdict::locate::{Suspect, Suspects};
use commgauge_base::error::Result;
use commgauge_base::units::{Seconds, counted, three_digits};

/// How suspects are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum SuspectsFormat {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document in base units, whose schema `commgauge schema suspects` prints.
    Json,
    /// For a page or an issue.
    Markdown,
}

/// The suspects as text. `width` is used by the table only.
///
/// # Errors
/// Where the document cannot be written as JSON.
pub fn suspects_text(suspects: &Suspects, format: SuspectsFormat, width: u16) -> Result<String> {
    match format {
        SuspectsFormat::Table => {
            let terminal = Terminal::plain(width);
            Ok(wrapped(&visible(&headline(suspects)), width) + &terminal.draw(&document(suspects)))
        }
        SuspectsFormat::Markdown => {
            let title = escaped_markdown(&headline(suspects));
            Ok(format!("# commgauge {title}\n{}", markdown(&document(suspects))))
        }
        SuspectsFormat::Json => super::verdict::json(suspects),
    }
}

/// Everything below the answer.
fn document(suspects: &Suspects) -> Vec<Block> {
    let synthetic = "SYNTHETIC: no data moved and no real time passed; nothing below was measured";
    let synthetic = suspects.synthetic.then(|| synthetic.to_owned());
    let unseen = suspects.unseen_in_words();
    let said = synthetic.into_iter().chain(unseen).chain(examined(suspects)).chain(origins(suspects));
    let mut blocks = vec![Block::list(said)];
    let trouble = |trouble: &Trouble| format!("{} (exit code {})", trouble.text, trouble.exit_code);
    blocks.push(Block::marked(Mark::Alarm, suspects.troubles.iter().map(trouble)));
    blocks.extend(located(suspects));
    blocks.extend(Block::headed_list("How it was decided:", Mark::Star, &suspects.rule));
    blocks
}

/// The suspects, each with its evidence and what to do next, and what the data cannot show.
pub(super) fn located(suspects: &Suspects) -> Vec<Block> {
    const COLUMNS: [Column; 7] = [
        Column::right("#", 3),
        Column::left("suspect", 0),
        Column::left("class", 1),
        Column::left("when", 4),
        Column::right("by", 0),
        Column::right("strength", 2),
        Column::left("action", Column::PAGES_ONLY),
    ];
    let mut blocks = Vec::new();
    if !suspects.suspects.is_empty() {
        blocks.push(Block::Table(Table::new(
            "",
            &COLUMNS,
            suspects.suspects.iter().zip(1..).map(|(suspect, number)| row(number, suspect)),
        )));
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
    format!("locate: {} (exit code {})", suspects.answer, suspects.exit_code)
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

fn origins(suspects: &Suspects) -> impl Iterator<Item = String> + '_ {
    suspects.runs.iter().map(|run| {
        format!(
            "{}: {}, run {} of {}, suite {}, {}, {} ranks",
            run.role, run.path, run.run_id, run.started_at, run.suite, run.library, run.world_size
        )
    })
}

fn row(number: usize, suspect: &Suspect) -> Row {
    let cells = vec![
        number.to_string(),
        suspect.name.clone(),
        suspect.culprit.class().to_owned(),
        if suspect.intermittent { "now and then" } else { "always" }.to_owned(),
        by(suspect),
        three_digits(suspect.strength),
        suspect.action.clone(),
    ];
    Row::toned(Tone::Bad, cells)
}

/// How much slower or later, with its unit.
pub(super) fn by(suspect: &Suspect) -> String {
    match (suspect.slower_by, suspect.late_seconds) {
        (_, Some(late)) => Seconds(late).to_string(),
        (slower, None) => optional(slower.map(|slower| format!("+{}", share(slower)))),
    }
}

#[cfg(test)]
#[path = "locate_tests.rs"]
mod tests;
