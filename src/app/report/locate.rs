//! Suspects as text: the answer, each suspect with its evidence and next step, and what cannot be determined.
//!
//! Every text that comes from a record is escaped here, by format.

use super::markdown::{bullets, code, escaped};
use super::plain_table::{Column, markdown_table, table, wrapped};
use super::text::visible;
use super::verdict::ascii_controls;
use commgauge_analysis::verdict::locate::{Suspect, Suspects};
use commgauge_base::error::{Error, Result};
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
        SuspectsFormat::Table => Ok(text(suspects, width)),
        SuspectsFormat::Markdown => Ok(markdown(suspects)),
        SuspectsFormat::Json => {
            let text = serde_json::to_string_pretty(suspects)
                .map_err(|cause| Error::environment(format!("cannot write the suspects as JSON: {cause}")))?;
            Ok(ascii_controls(&text) + "\n")
        }
    }
}

fn text(suspects: &Suspects, width: u16) -> String {
    let mut out = wrapped(&visible(&headline(suspects)), width);
    if suspects.synthetic {
        out += &wrapped("SYNTHETIC: no data moved and no real time passed; nothing below was measured", width);
    }
    for sentence in examined(suspects).into_iter().chain(origins(suspects)) {
        out += &wrapped(&visible(&sentence), width);
    }
    for trouble in &suspects.troubles {
        out += &wrapped(&format!("! {} (exit code {})", visible(&trouble.text), trouble.exit_code), width);
    }
    if !suspects.suspects.is_empty() {
        out += &format!("\n{}", table(&columns(), &rows(suspects), width));
    }
    for suspect in &suspects.suspects {
        out += &format!("\n{}", wrapped(&visible(&suspect.name), width));
        for evidence in &suspect.evidence {
            out += &wrapped(&format!("  * {}", visible(evidence)), width);
        }
        // A command is meant to be copied, so it is not wrapped.
        out += &format!("  next: {}\n", visible(&suspect.next_step));
    }
    for (heading, sentences) in
        [("What the data cannot show:", &suspects.cannot_tell), ("How it was decided:", &suspects.rule)]
    {
        if !sentences.is_empty() {
            out += &format!("\n{heading}\n");
        }
        for sentence in sentences {
            out += &wrapped(&format!("* {}", visible(sentence)), width);
        }
    }
    out
}

fn markdown(suspects: &Suspects) -> String {
    let mut out = format!("# commgauge {}\n", escaped(&headline(suspects)));
    let synthetic = suspects.synthetic.then(|| "SYNTHETIC: nothing below was measured".to_owned());
    let troubles =
        suspects.troubles.iter().map(|trouble| format!("{} (exit code {})", trouble.text, trouble.exit_code));
    let facts = examined(suspects).into_iter().chain(origins(suspects)).chain(troubles);
    out += &bullets(synthetic.into_iter().chain(facts).collect());
    if !suspects.suspects.is_empty() {
        out += &format!("\n{}", markdown_table(&columns(), &rows(suspects)));
    }
    for suspect in &suspects.suspects {
        out += &format!("\n## {}\n", escaped(&suspect.name));
        out += &bullets(suspect.evidence.clone());
        out += &format!("* next: {}\n", code(&suspect.next_step));
    }
    for (heading, sentences) in
        [("What the data cannot show", &suspects.cannot_tell), ("How it was decided", &suspects.rule)]
    {
        if !sentences.is_empty() {
            out += &format!("\n## {heading}\n{}", bullets(sentences.clone()));
        }
    }
    out
}

fn headline(suspects: &Suspects) -> String {
    format!("locate: {} (exit code {})", suspects.answer, suspects.exit_code)
}

/// The extent of the data, as sentences.
fn examined(suspects: &Suspects) -> Vec<String> {
    let seen = &suspects.examined;
    let leaves = seen.nodes_per_leaf.map_or_else(String::new, |each| format!(", {each} behind each leaf"));
    let mut sentences = vec![format!(
        "coverage: {} of {} pairs of {} nodes{leaves}, {} local ranks, {} replicates",
        seen.node_pairs_measured, seen.node_pairs, seen.nodes, seen.local_ranks, seen.replicates
    )];
    let groups: Vec<String> = seen.group_nodes.iter().map(u32::to_string).collect();
    let groups = if groups.is_empty() { "none".to_owned() } else { format!("{} nodes", groups.join(", ")) };
    sentences.push(format!(
        "also measured: {} alone; groups of {groups}; {} with common starts",
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

fn columns() -> [Column; 6] {
    [
        Column::right("#", 3),
        Column::left("suspect", 0),
        Column::left("class", 1),
        Column::left("when", 4),
        Column::right("by", 0),
        Column::right("strength", 2),
    ]
}

fn rows(suspects: &Suspects) -> Vec<Vec<String>> {
    let row = |(index, suspect): (usize, &Suspect)| {
        vec![
            (index + 1).to_string(),
            visible(&suspect.name),
            suspect.culprit.class().to_owned(),
            if suspect.intermittent { "now and then" } else { "always" }.to_owned(),
            by(suspect),
            three_digits(suspect.strength),
        ]
    };
    suspects.suspects.iter().enumerate().map(row).collect()
}

/// How much slower or later, with its unit.
fn by(suspect: &Suspect) -> String {
    match (suspect.slower_by, suspect.late_seconds) {
        (_, Some(late)) => Seconds(late).to_string(),
        (Some(share), None) => format!("+{} %", three_digits(share * 100.0)),
        (None, None) => "-".to_owned(),
    }
}

#[cfg(test)]
#[path = "locate_tests.rs"]
mod tests;
