//! Reading of nccl-tests' output, and refusals.

use super::text::parse;
use crate::interop::corrupt_input;
use crate::interop::imported::DataCheck;
use crate::interop::{Imported, Row};
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_model::layout::Locality;
use std::path::Path;

const OLD: &str = include_str!("../../../../tests/data/foreign/nccl-tests-2.11-all_reduce.txt");
const TWO_HOSTS: &str = include_str!("../../../../tests/data/foreign/nccl-tests-2.13-two-hosts.txt");
const LOG: &str = include_str!("../../../../tests/data/foreign/nccl-tests-2.17-log.txt");
const PER_ITERATION: &str = include_str!("../../../../tests/data/foreign/nccl-tests-2.20-per-iteration.txt");
const JSON: &str = include_str!("../../../../tests/data/foreign/nccl-tests.json");

fn json(text: &str, file: &str) -> commgauge_base::error::Result<Imported> {
    super::json::parse(text, file, Path::new("out.json"))
}

fn microseconds(row: &Row) -> f64 {
    (row.latency.0 * 1e12).round() / 1e6
}

fn locality_of(nodes_spanned: u32, ranks_per_node: u32, stride: u32, concurrent_groups_per_node: u32) -> Locality {
    Locality { nodes_spanned, ranks_per_node, stride, concurrent_groups_per_node }
}

#[test]
fn the_old_layout_has_its_collective_from_the_command_and_its_ranks_from_the_devices() {
    let imported = parse(OLD, "x.txt");
    assert_eq!((imported.bad_lines.len(), imported.rows.len()), (0, 10));
    let row = &imported.rows[1];
    assert_eq!((row.collective, row.ranks, row.bytes_total.0), (Collective::AllReduce, 8, 1024));
    assert_eq!((row.element_type, microseconds(row)), (ElementType::Float32, 40.9));
    assert_eq!(row.locality, locality_of(2, 4, 1, 1));
    assert_eq!(row.labels["device"], "Tesla V100-SXM2-32GB");
    assert_eq!((row.known.placement, row.known.reduce_op), (Some(Placement::InPlace), Some(ReduceOp::Sum)));
    assert_eq!(row.known.data_check, None, "a deviation is no number of wrong elements");
}

#[test]
fn wrong_elements_and_log_lines_within_a_table_are_reported() {
    let imported = parse(TWO_HOSTS, "x.txt");
    assert!(imported.bad_lines.is_empty(), "{:?}", imported.bad_lines);
    let wrong: Vec<_> = imported.rows.iter().map(|row| row.known.data_check).collect();
    let [right, wrong_12] = [0, 12].map(|count| Some(DataCheck::of_count(count)));
    assert_eq!(wrong, [right, right, right, None, right, wrong_12]);
    // Without a name: sum, no root, and a sixteenth of the bytes counted.
    assert!(imported.rows.iter().all(|row| row.collective == Collective::ReduceScatter && row.ranks == 16));
    assert_eq!(imported.rows[0].locality, locality_of(2, 8, 1, 1));
    let notes = [imported.notes, imported.warnings].concat().join("\n");
    assert!(notes.contains("found wrong data in this run") && notes.contains("1 log line of NCCL within"), "{notes}");
}

#[test]
fn consecutive_runs_have_separate_facts() {
    let imported = parse(LOG, "x.txt");
    let gathers = &imported.rows[..6];
    assert!(gathers.iter().all(|row| row.collective == Collective::AllGather && row.ranks == 8));
    assert_eq!((gathers[0].element_type, gathers[0].known.reduce_op), (ElementType::Bfloat16, None));
    assert_eq!(gathers[0].labels["nccl_version"], "2.27.3");
    assert_eq!(gathers[0].known.cadence, Some(Cadence::Streaming));
    let split = &imported.rows[6..];
    assert_eq!(split.len(), 4);
    for row in split {
        assert_eq!((row.collective, row.ranks, &*row.labels["groups"]), (Collective::AllToAll, 4, "2"));
        assert_eq!((row.locality.clone(), row.known.cadence), (locality_of(1, 4, 2, 2), Some(Cadence::Isolated)));
    }
    let [hypercube] = imported.bad_lines.as_slice() else { panic!("{:?}", imported.bad_lines) };
    assert!(hypercube.problem.contains("`hypercube` measures no call"), "{hypercube:?}");
    assert!(imported.warnings.iter().any(|note| note.contains("means over the groups")), "{:?}", imported.warnings);
}

#[test]
fn further_columns_and_rows_that_are_in_place_only_are_read() {
    let imported = parse(PER_ITERATION, "x.txt");
    assert!(imported.bad_lines.is_empty(), "{:?}", imported.bad_lines);
    let read: Vec<_> =
        imported.rows.iter().map(|row| (row.known.root, row.known.placement, microseconds(row))).collect();
    let (out, within) = (Some(Placement::OutOfPlace), Some(Placement::InPlace));
    assert_eq!(read, [(Some(0), out, 6.21), (Some(0), within, 6.11), (Some(1), within, 6.02)]);
    let labels = &imported.rows[0].labels;
    assert_eq!((&*labels["agg_iters"], &*labels["graph"], &*labels["nccl_version"]), ("4", "1", "2.29.1"));
}

#[test]
fn json_counts_the_ranks_behind_each_process() {
    let imported = json(JSON, "out.json").unwrap();
    let read: Vec<_> = imported
        .rows
        .iter()
        .map(|row| (row.bytes_total.0, row.ranks, microseconds(row), row.known.data_check))
        .collect();
    let expected = [
        (1_048_576, 4, 33.125, Some(DataCheck::Right)),
        (1_048_576, 4, 32.5, Some(DataCheck::Right)),
        (8_388_608, 4, 101.25, None),
        (8_388_608, 4, 100.5, None),
    ];
    assert_eq!(read, expected);
    assert_eq!(imported.rows[0].locality, locality_of(2, 2, 1, 1));
    assert_eq!(
        (imported.rows[0].collective, imported.rows[0].element_type),
        (Collective::AllReduce, ElementType::Float16)
    );
    assert!(imported.bad_lines[0].problem.contains("results[2]: there is no `time`"), "{:?}", imported.bad_lines);
    assert!(imported.rows.iter().all(|row| row.labels.values().all(|label| !label.contains("HOME"))));
}

#[test]
fn torn_and_foreign_json_is_refused_with_its_place() {
    for (text, words) in [
        (&JSON[..JSON.len() / 2], "it ends too early"),
        ("{}", "missing field `config`"),
        ("{\"traceEvents\":[]}", "no JSON of nccl-tests"),
    ] {
        let error = json(text, "out.json").unwrap_err().to_string();
        assert!(error.contains("out.json") && error.contains(words), "{error}");
    }
    let huge = JSON.replace("\"nthreads\":1", "\"nthreads\":4000000000");
    assert!(json(&huge, "out.json").unwrap().bad_lines[0].problem.contains("from 1 to 4096"));
}

/// The sample with one change, and the problem of its first bad line.
fn problem(change: impl Fn(&str) -> String) -> (u64, String) {
    let imported = parse(&change(TWO_HOSTS), "x.txt");
    imported.bad_lines.first().map(|line| (line.number, line.problem.clone())).unwrap_or_default()
}

#[test]
fn unreadable_lines_are_reported_with_their_number() {
    let without = |word: &'static str| {
        move |text: &str| {
            text.lines().filter(|line| !line.contains(word)).map(|line| format!("{line}\n")).collect::<String>()
        }
    };
    let twice =
        |text: &str| text.replace("# Using devices\n", "# Using devices\n#  Rank  0 Pid 1 on a device  0 [0x01] X\n");
    let line = 24;
    for (found, expected_line, words) in [
        (problem(without("Rank ")), line - 16, "number of ranks is unknown"),
        (problem(without("Rank  7")), line - 1, "ranks are missing"),
        (problem(twice), line + 1, "listed twice"),
        (problem(|text| text.replace(" device  3 ", " devise  3 ")), line - 17, "host and device cannot be read"),
        (
            problem(|text| format!("{}{text}", text.lines().next().unwrap_or_default().to_owned() + "\n")),
            line + 1,
            "copies",
        ),
        (problem(without("algbw")), line - 1, "no heading above it"),
        (problem(|text| text.replace("38.10", "-38.1")), line, "time: found `-38.1`"),
        (problem(|text| text.replace("38.10", "")), line, "has 12 fields, the heading 13"),
        (problem(|text| text.replace("float", "poem")), line, "found element type `poem`"),
        (problem(|text| text.replace("     0    37.60", "     x    37.60")), line, "#wrong: found `x`"),
        (problem(|text| text.replace(" time ", " cputime ")), line - 2, "those of the processor"),
        (
            problem(|text| text.replace("       65536          1024", "       65536          1000")),
            line,
            "more than one fits",
        ),
        (problem(|text| text.replace("Group  0 Pid   6900", "Group  1 Pid   6900")), line, "of different size"),
    ] {
        assert_eq!(found.0, expected_line, "{found:?} instead of {words}");
        assert!(found.1.contains(words), "{} instead of {words}", found.1);
    }
}

#[test]
fn a_collective_name_that_contradicts_the_rows_is_rejected() {
    let text = format!("# Collective test starting: all_reduce_perf\n{TWO_HOSTS}");
    let imported = parse(&text, "x.txt");
    assert!(imported.rows.is_empty());
    assert!(imported.bad_lines[0].problem.contains("do not make up 65536 bytes in all_reduce of 16 ranks"));
}

#[test]
fn a_run_without_its_footer_is_reported_as_cut_off() {
    let cut = &OLD[..OLD.find("# Out of bounds").unwrap() - 20];
    let imported = parse(cut, "x.txt");
    assert_eq!((imported.rows.len(), imported.bad_lines.len()), (8, 1));
    let notes = imported.warnings.join("\n");
    assert!(notes.contains("its table has no foot") && notes.contains("ends within a line"), "{notes}");
}

#[test]
fn a_run_of_which_only_the_head_is_there_is_reported_as_cut_off() {
    let head = &LOG[..LOG.rfind("Using devices").unwrap()];
    let imported = parse(head, "x.txt");
    assert!(!imported.rows.is_empty());
    assert!(imported.warnings.iter().any(|text| text.contains("it has no table")), "{:?}", imported.warnings);
    assert!(!parse(OLD, "x.txt").warnings.iter().any(|text| text.contains("cut off")));
}

#[test]
fn a_file_may_name_the_collective() {
    let gather = TWO_HOSTS.replace("sum", "none");
    assert!(parse(&gather, "run7.txt").bad_lines[0].problem.contains("name the file after it"));
    assert!(parse(&gather, "h100-all_gather.txt").rows.iter().all(|row| row.collective == Collective::AllGather));
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in corrupt_input::corrupted(&[OLD, TWO_HOSTS, LOG, PER_ITERATION])) {
        corrupt_input::assert_consistent(&parse(&text, "x.txt"));
    }

    #[test]
    fn no_json_panics(text in corrupt_input::corrupted(&[JSON])) {
        if let Ok(imported) = json(&text, "x.json") {
            corrupt_input::assert_consistent(&imported);
        }
    }
}
