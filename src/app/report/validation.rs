//! A validation: the levels, every run predicted and measured, and how far intervals and orders held.

use super::template::prose;
use super::text::{fields_csv, object};
use commgauge_base::error::Result;
use commgauge_model::config::machine::ANY_GPU;
use commgauge_plan::planner::validate::{RunResult, SHARE_LIMITS, SetResult, Validation};
use minijinja::context;
use minijinja::value::Serde;

/// The columns of the CSV form, which are fields of a run and of its set.
const COLUMNS: &str = "set level source release model variant gpus tp pp dp virtual_stages micro_batch global_batch measured_seconds \
    predicted_seconds error_percent share_of_peak left_out_seconds left_out_error_percent source_left_out_seconds low_seconds \
    high_seconds left_out_share_of_peak";

/// A line for each run, as CSV.
///
/// # Errors
/// Where it cannot be written.
pub fn csv(validation: &Validation) -> Result<String> {
    let of_set = |set: &SetResult, run: &RunResult| {
        let mut row = object(run)?;
        row.insert("set".to_owned(), set.name.clone().into());
        row.insert("level".to_owned(), set.level.clone().into());
        row.insert("share_of_peak".to_owned(), set.share_of_peak.into());
        Ok(row)
    };
    let rows = validation.sets.iter().flat_map(|set| set.runs.iter().map(move |run| of_set(set, run)));
    fields_csv("the answer as CSV", COLUMNS, rows.collect::<Result<Vec<_>>>()?)
}

/// The complete text for a terminal of this width.
pub fn text(validation: &Validation, width: u16) -> String {
    let share_limits = SHARE_LIMITS.to_vec();
    let context = context! { width, share_limits, any_gpu => ANY_GPU, ..Serde(validation) };
    prose("validation.txt", include_str!("templates/validation.txt"), context)
}

#[cfg(test)]
mod tests {
    // The table at two widths, the CSV and the JSON document.
    use super::*;
    use crate::report::schema_of;
    use commgauge_plan::planner::validate::{FORMAT, VERSION, levels_file, validate};
    use std::path::Path;
    use std::sync::LazyLock;

    static ALL: LazyLock<Validation> = LazyLock::new(|| validate(&[]).unwrap());

    #[test]
    fn the_table_of_a_wide_terminal() {
        insta::assert_snapshot!(text(&ALL, 140));
    }

    #[test]
    fn the_table_keeps_within_80_columns() {
        let text = text(&ALL, 80);
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= 80), "{text}");
        // Columns that are never omitted.
        for heading in ["measured", "predicted", "error", "left out"] {
            assert!(text.lines().any(|line| line.starts_with("model") && line.contains(heading)), "{heading}");
        }
    }

    #[test]
    fn the_csv_has_a_line_for_each_run_under_the_names_of_the_document() {
        let text = csv(&ALL).unwrap();
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let heading = reader.headers().unwrap().clone();
        let rows: Vec<_> = reader.records().map(|row| row.unwrap()).collect();
        assert_eq!(rows.len(), 10 + 12 + 8 + 109 + 46 + 54 + 148 + 136 + 64);
        let column = |name: &str| heading.iter().position(|heading| heading == name).unwrap();
        assert_eq!((&rows[0][0], &rows[0][column("model")]), ("megatron-table-1", "megatron-1.7b"));
        let document = serde_json::to_value(&ALL.sets[0].runs[0]).unwrap();
        let of_the_set = ["set", "level", "share_of_peak"];
        for name in COLUMNS.split_whitespace().filter(|name| !of_the_set.contains(name)) {
            assert!(document.get(name).is_some(), "{name}");
        }
        for row in &rows {
            let number = |name: &str| row[column(name)].parse::<f64>().unwrap();
            let error = 100.0 * (number("predicted_seconds") / number("measured_seconds") - 1.0);
            assert!((error - number("error_percent")).abs() < 0.01, "{row:?}");
        }
    }

    #[test]
    fn the_levels_are_printed_as_tables_that_a_machine_file_takes() {
        let levels = levels_file(&ALL.levels).unwrap();
        let machine = "name = 'm'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n\
        [between_nodes]\nlatency = '14us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n";
        let machine =
            commgauge_model::config::Machine::parse(&(machine.to_owned() + &levels), Path::new("m.toml")).unwrap();
        assert_eq!(machine.own_levels.len(), ALL.levels.len());
        assert!(text(&ALL, 140).starts_with("levels\n"), "the answer comes first");
    }

    #[test]
    fn the_document_fits_the_schema_and_reads_back() {
        let document = serde_json::to_value(&*ALL).unwrap();
        let validator = jsonschema::validator_for(&schema_of::<Validation>(FORMAT, VERSION, "")).unwrap();
        let problems: Vec<_> = validator.iter_errors(&document).map(|problem| problem.to_string()).collect();
        assert!(problems.is_empty(), "{problems:?}");
        let mut other = document.clone();
        other["version"] = serde_json::json!(1);
        assert!(!validator.is_valid(&other), "another version is another document");
        assert_eq!(serde_json::from_value::<Validation>(document).unwrap().sets.len(), ALL.sets.len());
    }
}
