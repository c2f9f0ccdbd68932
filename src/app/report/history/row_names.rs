//! Names of rows for tables: without the parts that all rows of a place have, which are said once, and with sizes as people write
//! them. Other formats have the whole names.

use commgauge_analysis::verdict::history::Series;
use std::collections::BTreeSet;

/// Between the parts of a name.
const SEPARATOR: char = '/';

/// How the rows of a place are called in its table.
pub(super) struct RowNames {
    /// Parts that all names have, in their order.
    shared: Vec<String>,
    /// Whether what is left of the names still tells them apart.
    are_short: bool,
}

impl RowNames {
    pub(super) fn of(rows: &[Series]) -> RowNames {
        let shared = shared(rows);
        let mut names = RowNames { shared, are_short: true };
        let short: BTreeSet<String> = rows.iter().map(|row| names.name(row)).collect();
        if short.len() < rows.len() {
            names = RowNames { shared: Vec::new(), are_short: false };
        }
        names
    }

    /// The name of one of them.
    pub(super) fn name(&self, row: &Series) -> String {
        if !self.are_short {
            return row.name.clone();
        }
        let mut own: Vec<&str> = Vec::new();
        for part in parts(row).filter(|part| !self.shared.iter().any(|shared| shared == part)) {
            if !own.contains(&part) {
                own.push(part);
            }
        }
        let shown = own.into_iter().map(|part| if is_size(row, part) { size(row) } else { part.to_owned() });
        shown.collect::<Vec<_>>().join("/")
    }

    /// What the names in the table leave out, as a sentence; empty where that is nothing.
    pub(super) fn note(&self) -> String {
        if self.shared.is_empty() {
            return String::new();
        }
        format!("Also in the name of every row here: {}.", self.shared.join(", "))
    }
}

fn parts(row: &Series) -> impl Iterator<Item = &str> {
    row.name.split(SEPARATOR)
}

fn is_size(row: &Series, part: &str) -> bool {
    row.subject.bytes().is_some_and(|bytes| part == bytes.0.to_string())
}

/// The size of a row, in binary units where it is a whole number of one.
fn size(row: &Series) -> String {
    let bytes = row.subject.bytes().unwrap_or_default();
    Some(bytes.to_string()).filter(|text| !text.contains('.')).unwrap_or_else(|| bytes.0.to_string())
}

/// The parts that all names have; what a row is of, and its size, stay in each.
fn shared(rows: &[Series]) -> Vec<String> {
    let [first, others @ ..] = rows else { return Vec::new() };
    let is_shared = |part: &str| {
        let is_subject = rows.iter().any(|row| row.subject.what() == part || is_size(row, part));
        !is_subject && !others.is_empty() && others.iter().all(|row| parts(row).any(|other| other == part))
    };
    let mut shared: Vec<String> = Vec::new();
    for part in parts(first).filter(|part| is_shared(part)) {
        if !shared.iter().any(|known| known == part) {
            shared.push(part.to_owned());
        }
    }
    shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_analysis::verdict::history::{HistoryInput, HistoryRule, history};
    use commgauge_analysis::verdict::testing::{lines, loaded};
    use commgauge_base::units::Bytes;

    /// Rows of these names, whose size is 1 MiB.
    fn rows(names: &[&str]) -> Vec<Series> {
        let mut run = loaded("run.jsonl", lines("run", &vec![vec![100.0; 3]; names.len()]));
        for (case, name) in run.record.plan.cases.iter_mut().zip(names) {
            (case.name, case.bytes_total) = ((*name).to_owned(), Bytes(1 << 20));
        }
        let mut input = HistoryInput::default();
        input.add(&run.path.clone(), Ok(run));
        history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 }).lineages.remove(0).rows
    }

    fn shown(names: &[&str]) -> (Vec<String>, String) {
        let rows = rows(names);
        let of_place = RowNames::of(&rows);
        (rows.iter().map(|row| of_place.name(row)).collect(), of_place.note())
    }

    #[test]
    fn names_of_imported_rows_keep_what_tells_them_apart() {
        let long = |ranks: &str, nodes: &str, place: &str| {
            format!("imported/all_reduce/float32/{ranks}-ranks/{nodes}/1048576/{nodes}/{place}/device=NVIDIA H100")
        };
        let names = [long("8", "1n", "in-place"), long("8", "1n", "out-of-place"), long("16", "2n", "in-place")];
        let (short, note) = shown(&names.each_ref().map(String::as_str));
        let expected = ["8-ranks/1n/1 MiB/in-place", "8-ranks/1n/1 MiB/out-of-place", "16-ranks/2n/1 MiB/in-place"];
        assert_eq!(short, expected.map(|name| format!("all_reduce/{name}")));
        assert_eq!(note, "Also in the name of every row here: imported, float32, device=NVIDIA H100.");
    }

    #[test]
    fn a_single_row_keeps_its_parts_and_names_that_would_become_equal_are_whole() {
        assert_eq!(shown(&["world/all_reduce/1048576"]), (vec!["world/all_reduce/1 MiB".to_owned()], String::new()));
        for names in [["a/b", "b/a"], ["x/a", "x/a/a"], ["x/1048576", "x/1 MiB"]] {
            assert_eq!(shown(&names), (names.map(str::to_owned).to_vec(), String::new()));
        }
    }
}
