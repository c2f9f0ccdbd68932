//! Reading of IMB's output, and refusals.

use super::*;
use crate::interop::corrupt_input;

const SAMPLE: &str = include_str!("../../../tests/data/foreign/imb-2021.txt");

#[test]
fn blocks_become_totals_and_the_slowest_process_counts() {
    use Collective::*;
    let rows: Vec<_> = parse(SAMPLE)
        .rows
        .iter()
        .map(|row| (row.collective, row.ranks, row.bytes_total.0, (row.latency.0 * 1e12).round() / 1e6))
        .collect();
    let expected = [
        (PingPong, 2, 0, 0.71),
        (PingPong, 2, 1024, 1.2),
        (PingPong, 2, 4_194_304, 402.1),
        (SendRecv, 4, 1024, 1.6),
        (AllReduce, 8, 4, 2.4),
        (AllReduce, 8, 4096, 9.9),
        (AllGather, 8, 32768, 19.9),
        (ReduceScatter, 8, 4096, 8.9),
        (ReduceScatter, 8, 32768, 28.9),
        (AllToAll, 8, 32768, 39.9),
        (Broadcast, 8, 4096, 4.9),
        (AllReduce, 4, 4096, 6.9),
        (AllReduce, 4, 8192, 7.9),
        (Barrier, 8, 0, 1.95),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn a_log_without_the_line_by_which_imb_ends_is_cut_off() {
    assert_eq!(parse(SAMPLE).faults, []);
    let cut = parse(&SAMPLE.replace(FOOT, "")).faults;
    assert!(cut.len() == 1 && cut[0].kind == RunFaultKind::CutOff, "{cut:?}");
    assert_eq!(parse(&format!("{SAMPLE}{SAMPLE}")).faults, []);
    assert_eq!(parse(&format!("{SAMPLE}{}", SAMPLE.replace(FOOT, ""))).faults.len(), 1);
}

#[test]
fn unreadable_lines_are_reported_with_their_number() {
    let bad: Vec<_> = parse(SAMPLE).bad_lines.into_iter().map(|line| (line.number, line.problem)).collect();
    let line_of = |words: &str| SAMPLE.lines().position(|line| line.contains(words)).unwrap() as u64 + 1;
    let expected = [
        (line_of("Benchmarking Exchange"), "Exchange measures no call that commgauge knows; left out: 2 rows"),
        (line_of("int-overflow."), "int-overflow."),
        (line_of("out-of-mem."), "out-of-mem."),
    ];
    assert_eq!(bad.len(), expected.len(), "{bad:?}");
    for ((line, problem), (expected_line, words)) in bad.iter().zip(expected) {
        assert!(*line == expected_line && problem.contains(words), "{line}: {problem}");
    }
}

#[test]
fn a_truncated_file_is_reported_with_the_line_where_it_ends() {
    let head = "# Benchmarking Allreduce \n# #processes = 4 \n";
    let heading = "#bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n";
    for (text, line, words) in [
        (format!("{head}{heading}8 1000 1.0 1.2\n"), 4, "has 4 fields, the heading 5"),
        (format!("{head}{heading}8 1000 1.0 0.00 1.1\n"), 4, "t_max[usec]: found `0.00`"),
        (format!("# Benchmarking Allreduce \n{heading}8 1000 1.0 1.2 1.1\n"), 3, "number of processes"),
        (format!("{heading}8 1000 1.0 1.2 1.1\n"), 1, "without `# Benchmarking"),
        (format!("{head}8 1000 1.0 1.2 1.1\n"), 3, "no heading above it"),
    ] {
        let imported = parse(&text);
        assert_eq!(imported.bad_lines[0].number, line, "{text}");
        assert!(imported.bad_lines[0].problem.contains(words), "{:?}", imported.bad_lines);
        assert!(imported.rows.is_empty());
        assert!(imported.notes.iter().any(|note| note.contains("MPI_FLOAT are assumed")), "{:?}", imported.notes);
    }
}

#[test]
fn the_facts_of_the_file_header_are_imported() {
    let imported = parse(SAMPLE);
    let all_reduce = &imported.rows[4];
    assert_eq!((all_reduce.element_type, all_reduce.known.reduce_op), (ElementType::Float32, Some(ReduceOp::Sum)));
    assert_eq!((&*all_reduce.labels["tool_version"], &*all_reduce.labels["statistic"]), ("2021.10", "max_over_ranks"));
    assert_eq!(all_reduce.known.cadence, Some(Cadence::Isolated));
    assert_eq!((imported.rows[0].element_type, imported.rows[0].known.reduce_op), (ElementType::Uint8, None));
    let multi = &imported.rows[11];
    assert_eq!((&*multi.labels["groups"], multi.known.data_check), ("2", Some(DataCheck::Right)));
    assert_eq!(imported.rows[12].known.data_check, Some(DataCheck::Wrong { elements: None }));
    assert!(
        imported
            .notes
            .iter()
            .any(|note| note == "Allgather: #bytes is one process's block; bytes_total is that times the processes")
    );
}

proptest::proptest! {
    #[test]
    fn no_input_panics(text in corrupt_input::corrupted(&[SAMPLE])) {
        corrupt_input::assert_consistent(&parse(&text));
    }
}
