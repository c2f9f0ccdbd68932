//! Cheats and mistakes, none of which passes: other machines or libraries, less coverage than required, and records that do not match the
//! measurement.

use super::testing::{lines, loaded};
use super::verdict_tests::{HARMS, Harm, good};
use super::*;
use commgauge_model::config::machine::ExpectTable;
use commgauge_model::config::{Expectation, Machine};
use commgauge_model::record::Line;
use commgauge_model::record::launch_lines::{Change, ResumeLine};
use commgauge_model::record::line::{CaseLine, ForeignTool, Header, Plan, StopReason};
use std::path::Path;

const RULE: GateRule = GateRule { confidence: 0.95, allowed: Vec::new() };

/// Two hosts with two devices each; both sizes of [`lines`] are expected.
fn machine() -> Machine {
    parse(SCOPE)
}

const SCOPE: &str = "[applies_to]\nbackend = 'nccl'\ndevices = ['H100']\ndevices_per_node = 2\nlibrary = 'NCCL'\n\
                     library_from = '2.18'\nlibrary_below = '3'\ntransport = 'NVLink'\n\
                     [coverage]\nexpectations = 2\ncollectives = ['all_reduce']\nbytes = ['1MiB', '2MiB']\nnodes = [2]\n";

fn parse(scope: &str) -> Machine {
    parsed(&machine_text(scope))
}

fn parsed(text: &str) -> Machine {
    Machine::parse(text, Path::new("m.toml")).unwrap()
}

fn machine_text(scope: &str) -> String {
    let expect = |bytes: &str| {
        format!(
            "[[expect]]\ncollective = 'all_reduce'\nranks = 4\nbytes = '{bytes}'\nfloor = '10GB/s'\nsource = 's'\ndate = '2026'\n"
        )
    };
    format!(
        "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\nlatency = '5us'\n\
         adapters_per_node = 2\nrate_per_adapter = '400GB/s'\n{scope}{}{}",
        expect("1MiB"),
        expect("2MiB")
    )
}

/// A run on four of its devices.
fn on_devices() -> Vec<Line> {
    let mut lines = lines("a", &good());
    let header = header(&mut lines);
    header.backend.name = "nccl".to_owned();
    header.backend.library = "NCCL 2.27.3 (libnccl.so.2)".to_owned();
    header.backend.transport = Some("NVLink, InfiniBand".to_owned());
    header.ranks.iter_mut().for_each(|rank| rank.device = Some("NVIDIA H100 80GB HBM3".to_owned()));
    lines
}

fn header(lines: &mut [Line]) -> &mut Header {
    let Line::Header(header) = &mut lines[0] else { unreachable!() };
    header
}

fn plan(lines: &mut [Line]) -> &mut Plan {
    let Line::Plan(plan) = &mut lines[1] else { unreachable!() };
    plan
}

const OTHER_MACHINES: [Harm; 13] = [
    ("host memory", 7, |lines| header(lines).backend.name = "mpi".to_owned()),
    ("another tool", 7, |lines| header(lines).backend.name = "imported".to_owned()),
    ("an unknown backend", 7, |lines| header(lines).backend.name = String::new()),
    ("one device of another kind", 7, |lines| header(lines).ranks[3].device = Some("NVIDIA A100-SXM4-80GB".to_owned())),
    ("devices whose name holds the name of others", 7, |lines| {
        header(lines).ranks.iter_mut().for_each(|rank| rank.device = Some("NVIDIA GH100".to_owned()));
    }),
    ("devices that are said to be as good as others", 7, |lines| {
        header(lines).ranks.iter_mut().for_each(|rank| rank.device = Some("NVIDIA A100 (better than H100)".to_owned()));
    }),
    ("a rank without device", 7, |lines| header(lines).ranks[1].device = None),
    ("all ranks on one node", 7, |lines| header(lines).ranks.iter_mut().for_each(|rank| rank.node = 0)),
    ("a library that is too old", 7, |lines| header(lines).backend.library = "NCCL 2.9.9".to_owned()),
    ("a library that is too new", 7, |lines| header(lines).backend.library = "NCCL 3.0".to_owned()),
    ("another library", 7, |lines| header(lines).backend.library = "RCCL 2.27.3".to_owned()),
    ("a library whose name begins with that of another", 7, |lines| {
        header(lines).backend.library = "NCCLX 2.27.3".to_owned();
    }),
    ("another transport", 7, |lines| header(lines).backend.transport = Some("shared memory".to_owned())),
];

const OTHER_RUNS: [Harm; 6] = [
    ("two nodes of one name", 7, |lines| header(lines).ranks.iter_mut().for_each(|rank| rank.host = "one".to_owned())),
    ("a library of no version", 7, |lines| header(lines).backend.library = "NCCL unknown".to_owned()),
    ("no transport", 7, |lines| header(lines).backend.transport = None),
    ("a size left out of the suite", 3, |lines| leave_out_second_row(lines)),
    ("other ranks than expected", 3, |lines| {
        plan(lines).cases.iter_mut().for_each(|case| (case.group_size, case.bus_factor) = (2, Some(1.0)));
    }),
    ("one replicate", 3, |lines| {
        header(lines).settings.replicates = 1;
        lines.retain(|line| !matches!(line, Line::Case(case) if case.replicate > 0));
        plan(lines).case_lines = 2;
        recount(lines);
    }),
];

const OTHER_CALLS: [Harm; 10] = [
    ("a slice of a device", 7, |lines| {
        let slice = || Some("NVIDIA H100 80GB HBM3 MIG 1g.10gb".to_owned());
        header(lines).ranks.iter_mut().for_each(|rank| rank.device = slice());
    }),
    ("a record that names no ranks", 7, |lines| header(lines).ranks.clear()),
    ("a record that names half of its ranks", 7, |lines| header(lines).ranks.truncate(2)),
    ("buffers that caches serve", 3, |lines| header(lines).settings.warm_buffers = true),
    ("eight calls in one group", 3, |lines| label(lines, "aggregate", "8")),
    ("calls that nccl-tests launched from a graph", 3, |lines| label(lines, "graph", "1")),
    ("a forced algorithm", 3, |lines| label(lines, "algorithm", "nvls")),
    ("faster than the links are", 3, |lines| {
        let cases = lines.iter_mut().filter_map(|line| if let Line::Case(case) = line { Some(case) } else { None });
        cases.for_each(|case| case.samples.slowest_nanoseconds.iter_mut().for_each(|time| *time /= 100));
    }),
    ("bandwidth by the factor of more ranks", 7, |lines| plan(lines).cases[0].bus_factor = Some(1.75)),
    ("bandwidth of more bytes than were moved", 7, |lines| {
        plan(lines).cases[1].bytes_accounted = commgauge_base::units::Bytes(1 << 30);
    }),
];

/// Records that look honest at first: what they claim is contradicted elsewhere in them, or leaves out what does not suit.
const HONEST_LOOKS: [Harm; 20] = [
    ("times divided by messages that the call does not send", 7, |lines| plan(lines).cases[0].transfers_per_call = 3),
    ("a small call that is named as a large one", 7, |lines| {
        let bytes = commgauge_base::units::Bytes(1 << 19);
        plan(lines).cases[0].bytes_per_rank = bytes;
    }),
    ("more groups than the ranks make", 7, |lines| plan(lines).cases[0].groups = 2),
    ("a group of two nodes that is said to be on one", 7, |lines| {
        let locality = &mut plan(lines).cases[0].locality;
        (locality.nodes_spanned, locality.ranks_per_node) = (1, 4);
    }),
    ("a group of four that is said to be two ranks", 7, |lines| plan(lines).cases[1].locality.ranks_per_node = 1),
    ("a group on more nodes than the run has", 7, |lines| plan(lines).cases[1].locality.nodes_spanned = 4),
    ("one rank that is listed twice", 7, |lines| header(lines).ranks[1].rank = 0),
    ("ranks of another run", 7, |lines| header(lines).ranks[3].rank = 7),
    ("a slowest rank that the run does not have", 7, |lines| each_case(lines, |case| case.samples.slowest_rank[0] = 9)),
    ("data that was verified without a check", 7, |lines| header(lines).settings.verify = false),
    ("ranks that were slower than the slowest", 7, |lines| {
        each_case(lines, |case| case.rank_medians = vec![400_000; 4])
    }),
    ("fast replicates in place of slow ones that needed no other", 7, |lines| {
        let faster = |case: &mut CaseLine| (case.replicate, case.replaces) = (6, vec![0]);
        add_copies(lines, faster);
    }),
    ("a seventh replicate that was not asked for", 3, |lines| add_copies(lines, |case| case.replicate = 6)),
    ("slow replicates left out of a run with a time limit", 7, |lines| {
        header(lines).settings.within = Some(commgauge_base::units::Seconds(1.0));
        lines.retain(|line| !matches!(line, Line::Case(case) if case.replicate == 2));
        recount(lines);
    }),
    ("replicates that a signal cut short", 7, |lines| {
        each_case(lines, |case| case.stop = Some(StopReason::Interrupted));
        let end = lines.len() - 1;
        lines.insert(end, resumed(Vec::new()));
        recount(lines);
    }),
    ("resumed on another host", 3, |lines| {
        let (before, now) = ("node-b".to_owned(), "node-c".to_owned());
        lines.insert(4, resumed(vec![Change { what: "host of rank 3".to_owned(), before, now }]));
        recount(lines);
    }),
    ("a rank that died under a run that claims to be complete", 6, |lines| {
        let Some(Line::End(end)) = lines.last_mut() else { unreachable!() };
        end.exit_code = 6;
    }),
    ("a plan that names the slow size once more, without times", 7, |lines| {
        let again = plan(lines).cases[1].clone();
        plan(lines).cases.push(again);
        plan(lines).case_lines += 6;
    }),
    ("no clock that all ranks had in common", 7, |lines| {
        lines.retain(|line| !matches!(line, Line::Clock(_)));
        recount(lines);
    }),
    ("lines of the record that were taken out", 7, |lines| {
        if let Some(Line::End(end)) = lines.last_mut() {
            end.lines_before = end.lines_before.map(|before| before + 1);
        }
    }),
];

fn each_case(lines: &mut [Line], change: impl Fn(&mut CaseLine)) {
    lines.iter_mut().for_each(|line| {
        if let Line::Case(case) = line {
            change(case);
        }
    });
}

/// Adds a changed copy of the last replicate of each row.
fn add_copies(lines: &mut Vec<Line>, change: impl Fn(&mut CaseLine)) {
    let is_last = |line: &&Line| matches!(line, Line::Case(case) if case.replicate == 5);
    let mut copies: Vec<Line> = lines.iter().filter(is_last).cloned().collect();
    each_case(&mut copies, change);
    let at = lines.iter().rposition(|line| matches!(line, Line::Case(_))).unwrap() + 1;
    lines.splice(at..at, copies);
    recount(lines);
}

fn resumed(changes: Vec<Change>) -> Line {
    let resumed_at = "2026-11-21T12:00:00+00:00".to_owned();
    Line::Resume(Box::new(ResumeLine { resumed_at, changes, ..ResumeLine::default() }))
}

fn label(lines: &mut [Line], name: &str, value: &str) {
    for case in &mut plan(lines).cases {
        case.labels.insert(name.to_owned(), value.to_owned());
    }
}

fn leave_out_second_row(lines: &mut Vec<Line>) {
    plan(lines).cases.truncate(1);
    lines.retain(|line| !matches!(line, Line::Case(case) if case.case > 0));
    let count = lines.iter().filter(|line| matches!(line, Line::Case(_))).count() as u64;
    plan(lines).case_lines = count;
    recount(lines);
}

fn recount(lines: &mut [Line]) {
    let before = lines.len() as u64 - 1;
    if let Some(Line::End(end)) = lines.last_mut() {
        end.lines_before = Some(before);
    }
}

#[test]
fn the_machine_itself_passes_and_none_of_64_ways_to_cheat_or_to_err_does() {
    let gated = |lines: Vec<Line>| gate(&[loaded("r.jsonl", lines)], Some(&machine()), &RULE).unwrap();
    assert_eq!(gated(on_devices()).exit_code, 0);
    let others = OTHER_MACHINES.into_iter().chain(OTHER_RUNS).chain(OTHER_CALLS);
    let all: Vec<Harm> = HARMS.into_iter().chain(others).chain(HONEST_LOOKS).collect();
    assert_eq!(all.len(), 64);
    for (what, code, harm) in all {
        let mut harmed = on_devices();
        harm(&mut harmed);
        let verdict = gated(harmed);
        assert_eq!(verdict.exit_code, code, "{what}: {:?}", verdict.problems);
        assert_ne!(verdict.decision, Decision::Pass, "{what}");
    }
}

#[test]
fn versions_of_mpi_libraries_are_judged_as_those_of_nccl_are() {
    for (library, name, from, below, code) in [
        ("Open MPI v4.1.4", "Open MPI", "4.1", "5", 0),
        ("Open MPI v5.0.7", "Open MPI", "4.1", "5", 7),
        ("Open MPI v4.0.3", "Open MPI", "4.1", "5", 7),
        ("MPICH 4.0.2", "MPICH", "4", "4.1", 0),
        ("MPICH Version:\t4.0.2", "MPICH", "4", "4.1", 0),
        ("MPICH 4.2.1", "MPICH", "4", "4.1", 7),
        ("Intel(R) MPI Library 2021.18 for Linux* OS", "Intel(R) MPI Library", "2021.9", "2022", 0),
    ] {
        let mut lines = lines("a", &good());
        header(&mut lines).backend.library = library.to_owned();
        let machine = parse(&format!(
            "[applies_to]\nbackend = 'mpi'\nlibrary = '{name}'\nlibrary_from = '{from}'\nlibrary_below = '{below}'\n\
             [coverage]\nexpectations = 2\n"
        ));
        let verdict = gate(&[loaded("r.jsonl", lines)], Some(&machine), &RULE).unwrap();
        assert_eq!(verdict.exit_code, code, "{library}: {:?}", verdict.problems);
    }
}

#[test]
fn a_machine_file_that_leaves_open_what_it_judges_or_what_must_be_covered_passes_nothing() {
    for (scope, expected) in [
        ("", "does not define which runs it judges"),
        ("[applies_to]\nbackend = 'nccl'\n", "does not define what a run must cover"),
        ("[coverage]\nexpectations = 1\n", "does not define which runs it judges"),
        ("[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 1\nnodes = [1]\n", "groups over 1 node"),
        ("[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 1\nbytes = ['8B']\n", "nothing judged of 8 B"),
        ("[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 1\ncollectives = ['all_gather']\n", "all_gather"),
    ] {
        let verdict = gate(&[loaded("r.jsonl", on_devices())], Some(&parse(scope)), &RULE).unwrap();
        assert_eq!(verdict.exit_code, 3, "{scope}");
        assert!(
            verdict.problems.iter().any(|problem| problem.text.contains(expected)),
            "{scope}: {:?}",
            verdict.problems
        );
    }
    let least = "[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 1\n";
    assert_eq!(gate(&[loaded("r.jsonl", on_devices())], Some(&parse(least)), &RULE).unwrap().exit_code, 0);
}

#[test]
fn one_row_judged_by_several_like_expectations_covers_no_more_than_by_one() {
    // The second expectation of the file, about 2 MiB, is replaced by another one.
    for (second, code) in [
        ("bytes = '1MiB'\nfloor = '9GB/s'", 3),
        ("bytes = '1MiB'\nfloor = '11GB/s'\nranks_per_node = 2\nnodes = 2", 3),
        ("bytes = '1MiB'\nceiling = '1ms'", 0),
        ("bytes = ['1MiB', '2MiB']\nfloor = '9GB/s'", 0),
        ("bytes = '1MiB'\nfloor = '9GB/s'\nplacement = 'out_of_place'", 0),
        ("bytes = '1MiB'\nfloor = '9GB/s'\nelement_type = 'float32'", 0),
    ] {
        let text = machine_text("[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 2\n");
        let machine = parsed(&text.replace("bytes = '2MiB'\nfloor = '10GB/s'", second));
        let verdict = gate(&[loaded("r.jsonl", on_devices())], Some(&machine), &RULE).unwrap();
        let alike = "1 of 2 expectations judged, without 1 that repeat another; [coverage] requires 2";
        let is_named = verdict.problems.iter().any(|problem| problem.text.contains(alike));
        assert_eq!((verdict.exit_code, is_named), (code, code == 3), "{second}: {:?}", verdict.problems);
    }
}

#[test]
fn a_log_names_all_of_its_ranks_or_none() {
    for (named, is_contradiction) in [(0, false), (1, true), (2, true), (4, false)] {
        let mut lines = lines("a", &good());
        let header = header(&mut lines);
        header.backend.measured_by = Some(ForeignTool::NcclTests);
        header.ranks.truncate(named);
        let verdict = gate(&[loaded("r.jsonl", lines)], Some(&machine()), &RULE).unwrap();
        let reason = format!("the record names {named} of its 4 ranks");
        let found = verdict.problems.iter().any(|problem| problem.exit_code == 7 && problem.text.contains(&reason));
        assert_eq!(found, is_contradiction, "{named}: {:?}", verdict.problems);
    }
}

#[test]
fn an_older_run_under_another_name_counts_once_and_a_run_of_another_size_is_no_replicate() {
    let twice = [loaded("new.jsonl", on_devices()), loaded("old.jsonl", on_devices())];
    assert_eq!(gate(&twice, Some(&machine()), &RULE).unwrap_err().exit_code(), 2);
    let mut other = on_devices();
    (header(&mut other).run_id, header(&mut other).world_size) = ("b".to_owned(), 8);
    let two = [loaded("a.jsonl", on_devices()), loaded("b.jsonl", other)];
    assert_eq!(gate(&two, Some(&machine()), &RULE).unwrap_err().exit_code(), 2);
}

/// Rows of steady times around one, in microseconds.
fn rows(count: usize, microseconds: f64) -> Vec<Vec<f64>> {
    let time = |row: usize, replicate: usize| microseconds * (1.0 + 0.001 * ((row * 7 + replicate * 3) % 11) as f64);
    (0..count).map(|row| (0..6).map(|replicate| time(row, replicate)).collect()).collect()
}

#[test]
fn rows_of_other_suites_and_ranks_are_no_replicates_of_each_other_even_where_that_may_differ() {
    let machine = super::testing::machine("10GB/s");
    let rule = GateRule { allowed: vec![Allowed::Suite, Allowed::RankMap, Allowed::Settings], ..RULE };
    let with = |id: &str, times: f64, change: fn(&mut Vec<Line>)| {
        let mut lines = lines(id, &rows(1, times));
        change(&mut lines);
        loaded(&format!("{id}.jsonl"), lines)
    };
    let smaller = |lines: &mut Vec<Line>| {
        let bytes = commgauge_base::units::Bytes(1 << 10);
        let case = &mut plan(lines).cases[0];
        (case.bytes_total, case.bytes_accounted, case.bytes_per_rank) = (bytes, bytes, bytes);
    };
    let pairs = |lines: &mut Vec<Line>| {
        let case = &mut plan(lines).cases[0];
        (case.group_size, case.groups, case.bus_factor) = (2, 2, Some(1.0));
    };
    // 1 MiB in 1 ms is a tenth of what is expected; the others take 20 us.
    for (what, change) in [("of other sizes", smaller as fn(&mut Vec<Line>)), ("of other ranks", pairs)] {
        let records = [with("a", 1000.0, |_| {}), with("b", 20.0, change), with("c", 20.0, change)];
        let verdict = gate(&records, Some(&machine), &rule).unwrap();
        assert_eq!((verdict.exit_code, verdict.rows.len()), (1, 2), "{what}: {:?}", verdict.rows);
        // A row that only a later record has is judged too.
        let verdict = gate(&[with("b", 20.0, change), with("a", 1000.0, |_| {})], Some(&machine), &rule).unwrap();
        assert_eq!(verdict.exit_code, 1, "{what}: {:?}", verdict.rows);
    }
}

#[test]
fn a_copy_under_another_name_is_no_replicate_and_no_run_to_compare_with() {
    let machine = super::testing::machine("10GB/s");
    let record = |id: &str, rows: &[Vec<f64>]| loaded(&format!("{id}.jsonl"), lines(id, rows));
    let (one, other) = (rows(4, 50.0), rows(4, 50.2));
    for (rows_of_b, code) in [(&other, 0), (&one, 3)] {
        let records = [record("a", &one), record("b", rows_of_b)];
        let verdict = gate(&records, Some(&machine), &RULE).unwrap();
        assert_eq!(verdict.exit_code, code, "{:?}", verdict.problems);
        let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };
        let verdict = compare(&records[..1], &records[1..], &rule).unwrap();
        assert_eq!(verdict.exit_code, code, "{:?}", verdict.problems);
    }
}

#[test]
fn processors_and_warm_buffers_are_judged_where_the_file_says_so() {
    for (scope, code) in
        [("processors = ['sample processor']", 0), ("processors = ['another']", 7), ("warm_buffers = true", 0)]
    {
        let mut lines = lines("a", &good());
        let header = header(&mut lines);
        header.settings.warm_buffers = scope.starts_with("warm");
        header.ranks.iter_mut().for_each(|rank| rank.processor = "Sample Processor 8000".to_owned());
        let machine = parse(&format!("[applies_to]\nbackend = 'mpi'\n{scope}\n[coverage]\nexpectations = 2\n"));
        let verdict = gate(&[loaded("r.jsonl", lines)], Some(&machine), &RULE).unwrap();
        assert_eq!(verdict.exit_code, code, "{scope}: {:?}", verdict.problems);
    }
}

#[test]
fn calls_of_a_variant_are_judged_by_what_is_expected_of_that_variant_alone() {
    let parsed = |variant: &str| {
        let text = "[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n";
        let mut machine = parse(text);
        let one = machine.expectations[0].clone();
        let variant = variant.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let table = ExpectTable { variant: variant.into_iter().collect(), ..one.table.clone() };
        machine.expectations = vec![Expectation { table, ..one }];
        machine
    };
    for (variant, label_of_rows, code) in [
        ("", None, 0),
        ("aggregate=8", Some(("aggregate", "8")), 0),
        ("aggregate=8", Some(("agg_iters", "8")), 0),
        ("aggregate=8", Some(("aggregate", "4")), 3),
        ("aggregate=8", None, 3),
        ("", Some(("buffers", "registered")), 3),
    ] {
        let mut lines = lines("a", &good()[..1]);
        label_of_rows.into_iter().for_each(|(name, value)| label(&mut lines, name, value));
        let verdict = gate(&[loaded("r.jsonl", lines)], Some(&parsed(variant)), &RULE).unwrap();
        assert_eq!(verdict.exit_code, code, "{variant}, {label_of_rows:?}: {:?}", verdict.problems);
    }
}
