//! The doctor's findings as text: backends first, then section by section, each problem with its fix.

use crate::doctor::{DoctorDocument, Finding};
use crate::report::{visible, wrap};

/// Maximum width of the column of items.
const MAX_ITEM_WIDTH: usize = 22;

pub(super) fn text(document: &DoctorDocument, width: u16) -> String {
    let mut text = format!("commgauge {} on {}\n\n", document.program_version, visible(&document.host));
    for backend in &document.backends {
        let state = if backend.ready { "ready" } else { "not here" };
        text += &paragraph(&format!("{:<10} {state:<9}", backend.name), &backend.reason, width);
        if let Some(fix) = &backend.fix {
            text += &paragraph(&format!("{:<20}", ""), &format!("-> {fix}"), width);
        }
    }
    for section in &document.sections {
        text += &format!("\n{}\n", section.name);
        let items = section.findings.iter().map(|one| one.item.chars().count()).max().unwrap_or(0).min(MAX_ITEM_WIDTH);
        section.findings.iter().for_each(|finding| text += &finding_text(finding, items, width));
    }
    text
}

fn finding_text(finding: &Finding, items: usize, width: u16) -> String {
    let before = format!("  {:<8} {:<items$} ", finding.state.name(), visible(&finding.item));
    let mut text = paragraph(&before, &finding.found, width);
    if let Some(fix) = &finding.fix {
        let indent = " ".repeat(before.chars().count());
        text += &paragraph(&indent, &format!("-> {fix}"), width);
    }
    text
}

/// A text with a prefix, whose further lines are indented under the first.
fn paragraph(before: &str, text: &str, width: u16) -> String {
    let indent = before.chars().count() + 1;
    let room = usize::from(width).saturating_sub(indent).max(24);
    let lines = wrap(&visible(text), room, 0).replace('\n', &format!("\n{}", " ".repeat(indent)));
    format!("{before} {lines}\n")
}
