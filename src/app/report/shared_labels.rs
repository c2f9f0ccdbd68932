//! Labels that all rows of a table have in common: its heading has them once, and the rows what they differ in.

/// The words that every cell has, in the order of the first cell; those of a cell without labels are none.
pub(super) fn shared(cells: &[String]) -> Vec<String> {
    let Some((first, others)) = cells.split_first() else { return Vec::new() };
    let is_shared = |word: &&str| *word != "-" && others.iter().all(|cell| cell.split(' ').any(|other| other == *word));
    first.split(' ').filter(is_shared).map(str::to_owned).collect()
}

/// A cell without these words; a dash where nothing is left of it.
pub(super) fn without(cell: &str, shared: &[String]) -> String {
    let rest: Vec<&str> = cell.split(' ').filter(|word| shared.iter().all(|shared| shared != word)).collect();
    if rest.is_empty() { "-".to_owned() } else { rest.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_has_what_all_rows_have_and_each_row_what_is_left() {
        for (cells, heading, rows) in [
            (
                &["nvls=off symmetric", "nvls=off", "nvls=off symmetric x8"][..],
                "nvls=off",
                &["symmetric", "-", "symmetric x8"][..],
            ),
            (&["ring ll", "ring ll"], "ring ll", &["-", "-"]),
            (&["ring", "-"], "", &["ring", "-"]),
            (&["x8", "x81"], "", &["x8", "x81"]),
            (&["-"], "", &["-"]),
        ] {
            let cells: Vec<String> = cells.iter().map(|cell| (*cell).to_owned()).collect();
            let shared = shared(&cells);
            assert_eq!(shared.join(" "), heading, "{cells:?}");
            assert_eq!(cells.iter().map(|cell| without(cell, &shared)).collect::<Vec<_>>(), rows, "{cells:?}");
        }
    }
}
