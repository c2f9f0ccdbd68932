//! Ways to cheat or to err, of which none passes: other machines, other libraries, less than was to be covered, and records that
//! say less or something else than what was measured.

use super::testing::{lines, loaded};
use super::tests::{HARMS, Harm, good};
use super::*;
use commgauge_model::config::Machine;
use commgauge_model::record::Line;
use commgauge_model::record::line::{Header, Plan};
use std::path::Path;

const RULE: GateRule = GateRule { confidence: 0.95, allowed: Vec::new() };

/// Two hosts with two devices each, of which both sizes of [`lines`] are expected.
fn machine() -> Machine {
    parse(SCOPE)
}

const SCOPE: &str = "[applies_to]\nbackend = 'nccl'\ndevices = ['H100']\ndevices_per_node = 2\nlibrary = 'NCCL'\n\
                     library_from = '2.18'\nlibrary_below = '3'\ntransport = 'NVLink'\n\
                     [coverage]\nexpectations = 2\ncollectives = ['all_reduce']\nbytes = ['1MiB', '2MiB']\nnodes = [2]\n";

fn parse(scope: &str) -> Machine {
    let expect = |bytes: &str| {
        format!(
            "[[expect]]\ncollective = 'all_reduce'\nranks = 4\nbytes = '{bytes}'\nfloor = '10GB/s'\nsource = 's'\ndate = '2026'\n"
        )
    };
    let text = format!(
        "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '400GB/s'\n[between_nodes]\nlatency = '5us'\n\
         adapters_per_node = 2\nrate_per_adapter = '400GB/s'\n{scope}{}{}",
        expect("1MiB"),
        expect("2MiB")
    );
    Machine::parse(&text, Path::new("m.toml")).unwrap()
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

const OTHER_MACHINES: [Harm; 12] = [
    ("host memory", 7, |lines| header(lines).backend.name = "mpi".to_owned()),
    ("another tool", 7, |lines| header(lines).backend.name = "imported".to_owned()),
    ("an unknown backend", 7, |lines| header(lines).backend.name = String::new()),
    ("one device of another kind", 7, |lines| header(lines).ranks[3].device = Some("NVIDIA A100-SXM4-80GB".to_owned())),
    ("devices whose name holds the name of others", 7, |lines| {
        header(lines).ranks.iter_mut().for_each(|rank| rank.device = Some("NVIDIA GH100".to_owned()));
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
    ("other ranks than are expected", 3, |lines| plan(lines).cases.iter_mut().for_each(|case| case.group_size = 2)),
    ("one replicate", 3, |lines| {
        header(lines).settings.replicates = 1;
        lines.retain(|line| !matches!(line, Line::Case(case) if case.replicate > 0));
        plan(lines).case_lines = 2;
        recount(lines);
    }),
];

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
fn the_machine_itself_passes_and_none_of_32_ways_to_cheat_or_to_err_does() {
    let gated = |lines: Vec<Line>| gate(&[loaded("r.jsonl", lines)], Some(&machine()), &RULE).unwrap();
    assert_eq!(gated(on_devices()).exit_code, 0);
    let all: Vec<Harm> = HARMS.into_iter().chain(OTHER_MACHINES).chain(OTHER_RUNS).collect();
    assert_eq!(all.len(), 32);
    for (what, code, harm) in all {
        let mut harmed = on_devices();
        harm(&mut harmed);
        let verdict = gated(harmed);
        assert_eq!(verdict.exit_code, code, "{what}: {:?}", verdict.troubles);
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
        assert_eq!(verdict.exit_code, code, "{library}: {:?}", verdict.troubles);
    }
}

#[test]
fn a_machine_file_that_leaves_open_what_it_judges_or_what_must_be_covered_passes_nothing() {
    for (scope, expected) in [
        ("", "does not say which runs it judges"),
        ("[applies_to]\nbackend = 'nccl'\n", "does not say what a run must cover"),
        ("[coverage]\nexpectations = 1\n", "does not say which runs it judges"),
        ("[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 1\nnodes = [1]\n", "groups over 1 node"),
        ("[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 1\nbytes = ['8B']\n", "nothing judged of 8 B"),
        ("[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 1\ncollectives = ['all_gather']\n", "all_gather"),
    ] {
        let verdict = gate(&[loaded("r.jsonl", on_devices())], Some(&parse(scope)), &RULE).unwrap();
        assert_eq!(verdict.exit_code, 3, "{scope}");
        assert!(
            verdict.troubles.iter().any(|trouble| trouble.text.contains(expected)),
            "{scope}: {:?}",
            verdict.troubles
        );
    }
    let least = "[applies_to]\nbackend = 'nccl'\n[coverage]\nexpectations = 1\n";
    assert_eq!(gate(&[loaded("r.jsonl", on_devices())], Some(&parse(least)), &RULE).unwrap().exit_code, 0);
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
