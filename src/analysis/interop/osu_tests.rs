//! Reading of OSU's output, and refusals.

use super::*;
use crate::interop::corrupt_input;

const POINT_TO_POINT: &str = include_str!("../../../tests/data/foreign/osu-5.6.txt");
const COLLECTIVES: &str = include_str!("../../../tests/data/foreign/osu-7.5.txt");

fn facts(row: &Row) -> (Collective, u32, u64, f64) {
    (row.collective, row.ranks, row.bytes_total.0, (row.latency.0 * 1e12).round() / 1e6)
}

#[test]
fn blocks_become_totals_and_bandwidths_become_times() {
    use Collective::*;
    let rows: Vec<_> = parse(POINT_TO_POINT, None).rows.iter().map(facts).collect();
    let expected = [
        (PingPong, 2, 0, 1.04),
        (PingPong, 2, 1, 1.06),
        (PingPong, 2, 1024, 1.71),
        (PingPong, 2, 1_048_576, 88.4),
        (SendRecvChain, 2, 1, 0.25),
        (SendRecvChain, 2, 65536, 6.4),
        (Bidirectional, 2, 65536, 8.0),
    ];
    assert_eq!(rows, expected);
    let rows: Vec<_> = parse(COLLECTIVES, None).rows.iter().map(facts).collect();
    let expected = [
        (AllGather, 8, 8, 3.4),
        (AllGather, 8, 524_288, 221.0),
        (ReduceScatter, 8, 64, 9.4),
        (ReduceScatter, 8, 4096, 10.4),
        (AllToAll, 8, 8192, 14.2),
        (Broadcast, 8, 1024, 3.3),
        (Barrier, 8, 0, 4.2),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn unreadable_lines_are_reported_with_their_number() {
    let problems = |text, ranks| -> Vec<(u64, String)> {
        parse(text, ranks).bad_lines.into_iter().map(|line| (line.number, line.problem)).collect()
    };
    for (found, expected) in [
        (
            problems(POINT_TO_POINT, None),
            vec![(21, "Multiple Bandwidth / Message Rate Test` measures no call"), (28, "--ranks"), (29, "--ranks")],
        ),
        (problems(POINT_TO_POINT, Some(8)), vec![(21, "left out: 1 row")]),
        (
            problems(COLLECTIVES, None),
            vec![(14, "has 4 fields, the heading 6"), (34, "Non-blocking Allreduce Latency Test`")],
        ),
        (problems("8   1.20\n", None), vec![(1, "no heading above it")]),
        (
            problems("# OSU MPI Latency Test v7.4\n# Size  Latency (us)\n8  0.00\n9 1.0 2.0\nx\n", None),
            vec![(3, "latency: found `0.00`"), (4, "has 3 fields"), (5, "has 1 fields")],
        ),
        (
            problems("# OSU MPI Bandwidth Test v7.4\n# Size  Bandwidth (MB/s)\n8  0.00\n", None),
            vec![(3, "bandwidth: found")],
        ),
        (
            problems(
                "# OSU MPI Allgather Latency Test v7.4\n# Size  Avg Latency(us)\n9223372036854775808  1\n",
                Some(4),
            ),
            vec![(3, "are too many")],
        ),
        (
            problems(
                "# OSU MPI Reduce Latency Test v7.4\n# Datatype: MPI_POEM.\n# Size  Avg Latency(us)\n8  1\n",
                Some(4),
            ),
            vec![(4, "MPI_POEM")],
        ),
    ] {
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((line, problem), (expected_line, words)) in found.iter().zip(expected) {
            assert_eq!(*line, expected_line, "{found:?}");
            assert!(problem.contains(words), "{problem}");
        }
    }
}

#[test]
fn the_facts_of_a_test_are_imported() {
    let imported = parse(POINT_TO_POINT, Some(8));
    let all_reduce = imported.rows.last().unwrap();
    assert_eq!((all_reduce.collective, all_reduce.element_type), (Collective::AllReduce, ElementType::Float32));
    assert_eq!(all_reduce.labels["statistic"], "mean_over_ranks");
    assert_eq!(all_reduce.known.cadence, Some(Cadence::Isolated));
    assert_eq!(all_reduce.known.placement, None);
    let checked = &parse(COLLECTIVES, None).rows[2];
    assert_eq!(checked.known.data_check, Some(DataCheck::Right));
    assert_eq!(parse(COLLECTIVES, None).rows[3].known.data_check, Some(DataCheck::Wrong { elements: None }));
    assert_eq!((checked.element_type, checked.labels["statistic"].as_str()), (ElementType::Float32, "max_over_ranks"));
    let notes = parse(COLLECTIVES, None).notes.join("\n");
    assert!(
        notes.contains("all_gather: OSU's size is one rank's block; bytes_total is that times the ranks"),
        "{notes}"
    );
    assert!(notes.contains("lines outside of tables were not read"), "{notes}");
}

#[test]
fn the_number_of_ranks_is_read_from_the_launch_command() {
    for (text, ranks) in [
        ("$ mpirun -np 8 ./osu_bcast", Some(8)),
        ("/usr/bin/mpiexec --np 16 --ppn 8 x", Some(16)),
        ("srun -N2 -n2 -t00:8:00 osu_latency", Some(2)),
        ("srun --ntasks=64 x", Some(64)),
        ("srun --nodes=2 x", None),
        ("mpirun -np", None),
        ("mpirun -np 0 x", None),
        ("tar -n 5", None),
    ] {
        assert_eq!(ranks_of_command(text), ranks, "{text}");
    }
}

proptest::proptest! {
    #[test]
    fn no_input_panics(text in corrupt_input::corrupted(&[POINT_TO_POINT, COLLECTIVES]), ranks in proptest::option::of(1u32..)) {
        corrupt_input::assert_consistent(&parse(&text, ranks));
    }
}
