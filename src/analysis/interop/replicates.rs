//! Several logs of one command as replicates of each other, and what speaks against that.

use super::imported::{ForeignRank, Imported, Origin, Row, RunFault, name};
use commgauge_model::record::line::ForeignTool;
use std::collections::{BTreeMap, BTreeSet};

/// A file of another tool.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedFile {
    /// Its name in notes and warnings.
    pub name: String,
    /// What it holds.
    pub imported: Imported,
}

/// The rows of several files of a tool, and where they come from. Warnings name files that are no replicates of each other: of
/// other commands, of other hosts or devices, or cut off.
pub fn joined(tool: ForeignTool, files: Vec<ImportedFile>) -> (Origin, Vec<Row>) {
    let names: Vec<String> = files.iter().map(|file| file.name.clone()).collect();
    let mut origin = Origin::of(tool, &names);
    for ImportedFile { name: file, imported } in &files {
        origin.notes.extend(imported.notes.iter().map(|note| format!("{file}: {note}")));
        origin.warnings.extend(imported.warnings.iter().map(|warning| format!("{file}: {warning}")));
        let faults = imported.faults.iter();
        origin.faults.extend(faults.map(|fault| RunFault { text: format!("{file}: {}", fault.text), ..*fault }));
    }
    origin.warnings.extend(unlike(&files));
    origin.started =
        files.iter().map(|file| file.imported.started).collect::<Option<Vec<_>>>().into_iter().flatten().max();
    let largest = files.iter().max_by_key(|file| file.imported.ranks.len());
    origin.ranks = largest.map(|file| file.imported.ranks.clone()).unwrap_or_default();
    let rows: Vec<Row> = files.into_iter().flat_map(|file| file.imported.rows).collect();
    origin.warnings.extend(uneven(&rows));
    (origin, rows)
}

/// The first file that has rows of an earlier one and other settings or ranks.
fn unlike(files: &[ImportedFile]) -> Option<String> {
    let names: Vec<BTreeSet<String>> = files.iter().map(|file| file.imported.rows.iter().map(name).collect()).collect();
    let placed = |ranks: &[ForeignRank]| {
        ranks.iter().map(|rank| (rank.rank, rank.host.clone(), rank.device.clone())).collect::<BTreeSet<_>>()
    };
    for (later, ImportedFile { name: file, imported }) in files.iter().enumerate() {
        for (earlier, ImportedFile { name: other, imported: before }) in files[..later].iter().enumerate() {
            if names[earlier].is_disjoint(&names[later]) {
                continue;
            }
            let problem = if before.settings != imported.settings {
                let shown = |settings: &BTreeSet<String>| settings.iter().cloned().collect::<Vec<_>>().join(" and ");
                format!("of different commands: {} / {}", shown(&before.settings), shown(&imported.settings))
            } else if placed(&before.ranks) != placed(&imported.ranks) {
                "of different hosts or devices".to_owned()
            } else {
                continue;
            };
            return Some(format!(
                "{other} and {file} are logs {problem}, so their rows are no replicates of each other"
            ));
        }
    }
    None
}

/// Rows of one curve that are there in different numbers.
fn uneven(rows: &[Row]) -> Option<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut curve_of: BTreeMap<String, String> = BTreeMap::new();
    for row in rows {
        let name = name(row);
        let curve = Row { bytes_total: commgauge_base::units::Bytes(0), ..row.clone() };
        curve_of.entry(name.clone()).or_insert_with(|| self::name(&curve));
        *counts.entry(name).or_default() += 1;
    }
    let mut rows_of_curve: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    for (name, count) in &counts {
        rows_of_curve.entry(curve_of[name].as_str()).or_default().push((*count, name.as_str()));
    }
    rows_of_curve.into_values().find_map(|rows| {
        let ((few, rare), (many, often)) = (rows.iter().min()?, rows.iter().max()?);
        (few < many).then(|| {
            format!("{rare} is there {few} times and {often} {many} times: a log was cut off, or is of another command")
        })
    })
}
