//! Suspects and next steps; without a search for suspects, the findings of pairs and arrivals alone.

use super::HtmlInput;
use super::page::{Block, Table};
use commgauge_analysis::verdict::locate::Suspects;
use commgauge_base::units::{Seconds, three_digits};

/// The section.
pub(super) fn blocks(input: &HtmlInput) -> Vec<Block> {
    let mut blocks = match &input.suspects {
        Ok(suspects) => located(suspects),
        Err(reason) => vec![Block::absent(format!("No search for culprits could be made: {reason}"))],
    };
    let findings: Vec<&String> = input.runs.iter().flat_map(|run| &run.view.findings).collect();
    if !findings.is_empty() {
        blocks.push(Block::heading("What the numbers say by themselves"));
        blocks.push(Block::list(findings));
    }
    let warnings: Vec<&String> = input.runs.iter().flat_map(|run| &run.view.warnings).collect();
    blocks.push(Block::heading("Warnings"));
    blocks.push(match warnings.is_empty() {
        true => Block::text("None."),
        false => Block::list(warnings),
    });
    blocks
}

fn located(suspects: &Suspects) -> Vec<Block> {
    let mut blocks = vec![Block::text(&suspects.answer)];
    if !suspects.suspects.is_empty() {
        let columns = [
            ("suspect", false),
            ("class", false),
            ("slower by", true),
            ("strength", true),
            ("action", false),
            ("evidence", false),
        ];
        let mut table = Table::new("Suspects, the strongest evidence first", &columns);
        for suspect in &suspects.suspects {
            let slower = suspect.slower_by.map(|share| format!("{} %", three_digits(share * 100.0)));
            let late = suspect.late_seconds.map(|late| format!("{} late", Seconds(late)));
            let often = if suspect.intermittent { " (at times)" } else { "" };
            table.row_toned(
                "bad",
                vec![
                    suspect.name.clone(),
                    format!("{}{often}", suspect.culprit.class()),
                    slower.or(late).unwrap_or_default(),
                    three_digits(suspect.strength),
                    suspect.action.clone(),
                    suspect.evidence.join("; "),
                ],
            );
        }
        blocks.push(Block::Table(table));
        blocks.push(Block::heading("Next steps"));
        let mut steps: Vec<&String> = Vec::new();
        for suspect in &suspects.suspects {
            if !steps.contains(&&suspect.next_step) {
                steps.push(&suspect.next_step);
            }
        }
        blocks.extend(steps.into_iter().map(|step| Block::Command(step.into())));
    }
    if !suspects.cannot_tell.is_empty() {
        blocks.push(Block::heading("What the data cannot show"));
        blocks.push(Block::list(&suspects.cannot_tell));
    }
    blocks
}
