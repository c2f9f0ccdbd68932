//! Reading of nccl-tests' output, and refusals.

use super::text::parse;
use crate::interop::corrupt_input;
use crate::interop::imported::DataCheck;
use crate::interop::{Imported, Row, RunFaultKind};
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
    assert!(imported.notes.iter().any(|note| note.contains("1 log line of NCCL within")), "{:?}", imported.notes);
    let [fault] = imported.faults.as_slice() else { panic!("{:?}", imported.faults) };
    assert!(fault.kind == RunFaultKind::WrongData && fault.text.contains("wrong data in this run"), "{fault:?}");
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
    let [fault] = imported.faults.as_slice() else { panic!("{:?}", imported.faults) };
    assert_eq!(fault.kind, RunFaultKind::CutOff);
    assert!(fault.text.contains("its table has no foot, and the file ends within a line"), "{fault:?}");
}

#[test]
fn every_foot_but_a_whole_and_good_one_is_a_fault_of_the_run() {
    use RunFaultKind::{CutOff, Failed, WrongData};
    let foot = OLD.find("# Out of bounds").unwrap();
    let (table, foot) = (&OLD[..foot], &OLD[foot..]);
    assert_eq!(parse(OLD, "x.txt").faults, []);
    for (changed, expected) in [
        (String::new(), vec![CutOff]),
        ("# Out of bounds values : 0 OK\n".to_owned(), vec![CutOff]),
        ("# Out of bounds values : 0 OK\n# Collective test concluded: all_reduce_perf\n".to_owned(), vec![CutOff]),
        ("# Avg bus bandwidth    : 5.2301 \n".to_owned(), vec![CutOff]),
        (foot.replace("0 OK", "3 FAILED"), vec![WrongData]),
        (foot.replace("0 OK", "3 OK"), vec![WrongData]),
        (foot.replace("0 OK", "0 FAILED"), vec![WrongData]),
        (foot.replace("0 OK", ""), vec![WrongData]),
        (foot.replace("0 OK", "many"), vec![WrongData]),
        (foot.replace("5.2301", "5.2301 FAILED"), vec![Failed]),
        (foot.replace("0 OK", "1 FAILED").replace("5.2301", "5.2301 FAILED"), vec![WrongData, Failed]),
        // The run that follows is whole.
        (OLD.to_owned(), vec![CutOff]),
        (foot.replace("0 OK", "3 FAILED") + OLD, vec![WrongData]),
    ] {
        let found: Vec<RunFaultKind> =
            parse(&format!("{table}{changed}"), "x.txt").faults.iter().map(|fault| fault.kind).collect();
        assert_eq!(found, expected, "{changed}");
    }
    for (from, to, expected) in [
        ("\"okay\":\"true\"", "\"okay\":true", vec![]),
        ("\"count\":0", "\"count\":3", vec![WrongData]),
        ("\"okay\":\"true\"", "\"okay\":\"false\"", vec![WrongData]),
        ("\"out_of_bounds\":{\"count\":0,\"okay\":\"true\"},", "", vec![CutOff]),
        ("\"okay\":\"unchecked\"", "\"okay\":\"false\"", vec![Failed]),
        ("\"okay\":\"unchecked\"", "\"okay\":false", vec![Failed]),
        ("\"errors\":[]", "\"errors\":[\"unhandled cuda error\"]", vec![Failed]),
    ] {
        assert!(JSON.contains(from), "{from}");
        let found = json(&JSON.replace(from, to), "out.json").unwrap().faults;
        assert_eq!(found.iter().map(|fault| fault.kind).collect::<Vec<_>>(), expected, "{to}");
    }
}

#[test]
fn time_algbw_and_busbw_that_contradict_each_other_are_named_in_either_placement_and_every_version() {
    let (old, new) = ("nccl-tests 2.11", "nccl-tests 2.20");
    for (version, text, from, to, words) in [
        (
            old,
            OLD,
            "  2710.0    6.19   10.83",
            "  1897.0    6.19   10.83",
            "time 1897 us and algbw 6.19 GB/s (out of place)",
        ),
        (
            old,
            OLD,
            "  2698.0    6.22   10.88",
            "  1897.0    6.22   10.88",
            "time 1897 us and algbw 6.22 GB/s (in place)",
        ),
        (old, OLD, "  2710.0    6.19   10.83", "  2710.0    8.84   10.83", "algbw 8.84 GB/s (out of place)"),
        (
            old,
            OLD,
            "  2698.0    6.22   10.88",
            "  2698.0    6.22   15.50",
            "time 2698 us and busbw 15.5 GB/s (in place)",
        ),
        (
            old,
            OLD,
            "  2698.0    6.22   10.88",
            "  2698.0    6.22    6.22",
            "16777216 bytes of all_reduce on 8 ranks in that time are 10.88 GB/s",
        ),
        (
            new,
            PER_ITERATION,
            "    6.11    0.67    0.67",
            "    4.11    0.67    0.67",
            "time 4.11 us and algbw 0.67 GB/s (in place)",
        ),
        (new, PER_ITERATION, "    6.02    0.68    0.68", "    6.02    0.68    1.68", "busbw 1.68 GB/s (in place)"),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from}");
        let imported = parse(&text.replace(from, to), "x.txt");
        let [bad] = imported.bad_lines.as_slice() else { panic!("{version}, {to}: {:?}", imported.bad_lines) };
        assert!(bad.problem.contains(words) && bad.problem.contains("contradict each other"), "{version}: {bad:?}");
    }
    for (from, to, words) in [
        ("\"time\":33.125", "\"time\":23.125", "time 23.125 us and algbw"),
        ("\"bus_bw\":125.203104", "\"bus_bw\":83.468736", "busbw 83.468736 GB/s (in place)"),
    ] {
        let bad = json(&JSON.replace(from, to), "out.json").unwrap().bad_lines;
        assert!(bad[0].problem.contains(words), "{bad:?}");
    }
    // As often as not the last digit is cut off instead of rounded, or there are fewer.
    let cut = OLD.replace("  2710.0    6.19   10.83", "    2710     6.1    10.8");
    assert_eq!(parse(&cut, "x.txt").bad_lines, []);
}

#[test]
fn a_run_of_which_only_the_head_is_there_is_reported_as_cut_off() {
    let head = &LOG[..LOG.rfind("Using devices").unwrap()];
    let imported = parse(head, "x.txt");
    assert!(!imported.rows.is_empty());
    assert!(imported.faults.iter().any(|fault| fault.text.contains("it has no table")), "{:?}", imported.faults);
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
