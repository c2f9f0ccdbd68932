//! The OSU micro-benchmarks (MPI point to point and blocking collectives, versions 3 to 7), and their NCCL variants.
//! <https://mvapich.cse.ohio-state.edu/benchmarks/>
//!
//! Sizes: OSU prints the length of one block. If each rank has a separate block (allgather, alltoall, gather, scatter), `bytes_total` is
//! the block times the ranks; for the others it is the size itself. Times of collectives are means over iterations, each started after a
//! barrier; with -f the slowest rank's mean is used, without it the mean over ranks.

use super::imported::{DataCheck, Imported, Known, Row};
use super::log_text::{self, LogLine};
use super::peer::{self, Cells, OSU, PeerProgram, PrintedSize, Reading, mpi_type};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Seconds;
use commgauge_model::layout::Locality;
use std::collections::BTreeMap;
use std::path::Path;

/// The label of tests that do not measure MPI on host memory.
const LIBRARY: &str = "osu_library";

const NO_RANKS: &str = "no line above gives the number of ranks; OSU does not print it, so give it with --ranks";

/// Parses the content of a file; `path` is for the messages. OSU does not print the number of ranks: it is taken from `ranks`, or from the
/// command line if the file contains it; without either the rows of collectives cannot be read.
///
/// # Errors
/// A usage error if another tool wrote it.
pub fn parse_bytes(bytes: &[u8], path: &Path, ranks: Option<u32>) -> Result<Imported> {
    let text = log_text::text_of(bytes, path)?;
    log_text::expect_writer(path, &text, "the OSU micro-benchmarks")?;
    Ok(parse(&text, ranks))
}

/// Whether messages go between two ranks, back to back.
fn is_point_to_point(test: PeerProgram) -> bool {
    test.collective.fewest_ranks() == 2
}

type Block<'a> = peer::Block<'a, Facts>;

/// What OSU says of a test.
struct Facts {
    version: Option<String>,
    /// The communication library: `MPI`, `MPI-CUDA`, `NCCL`.
    library: String,
    element_type: Option<std::result::Result<ElementType, String>>,
}

/// `# OSU MPI-CUDA Reduce Latency Test v7.3`
fn titled(title: LogLine) -> Option<Block> {
    let words: Vec<&str> = title.text.trim_start_matches('#').split_whitespace().collect();
    let (["OSU", rest @ ..], true) = (words.as_slice(), title.text.starts_with('#')) else { return None };
    // One-sided tests name their call in place of the library: `OSU MPI_Get latency Test`.
    let (library, rest) = rest.split_first().filter(|(word, _)| !word.starts_with("MPI_")).unwrap_or((&"MPI", rest));
    let version = rest.last().filter(|word| word.starts_with('v') && word.contains('.')).map(|word| (*word).to_owned());
    let name = rest[..rest.len() - usize::from(version.is_some())].join(" ");
    let without_word = name.rsplit_once(' ').filter(|(_, word)| word.eq_ignore_ascii_case("test"));
    let test = without_word.and_then(|(name, _)| PeerProgram::named(&OSU, name));
    Some(Block::new(title, name, test, Facts { version, library: (*library).to_owned(), element_type: None }))
}

fn row(block: &Block, test: PeerProgram, text: &str) -> std::result::Result<Row, String> {
    let cells = block.cells(text)?;
    let ranks = match (is_point_to_point(test), block.ranks) {
        (true, _) => 2,
        (false, Some(ranks)) => ranks,
        (false, None) => return Err(NO_RANKS.to_owned()),
    };
    let size = cells.of(&["size"]).map_or(Ok(0), |text| log_text::whole("size", text))?;
    let (latency, statistic) = latency(test, size, &cells)?;
    let mut labels = BTreeMap::from([("tool".to_owned(), "osu".to_owned())]);
    labels.extend(block.facts.version.iter().map(|version| ("tool_version".to_owned(), version.clone())));
    if block.facts.library != "MPI" {
        labels.insert(LIBRARY.to_owned(), block.facts.library.clone());
    }
    labels.extend(statistic.map(|statistic| ("statistic".to_owned(), statistic.to_owned())));
    let data_check = cells.of(&["validation"]).map(|verdict| {
        if verdict.eq_ignore_ascii_case("pass") { DataCheck::Right } else { DataCheck::Wrong { elements: None } }
    });
    // Before version 7 the output has no type: reductions used MPI_FLOAT then, everything else MPI_CHAR.
    let usual = if test.collective.reduces() { ElementType::Float32 } else { ElementType::Int8 };
    Ok(Row {
        collective: test.collective,
        element_type: block.facts.element_type.clone().unwrap_or(Ok(usual))?,
        ranks,
        bytes_total: test.bytes_total(size, ranks)?,
        latency,
        locality: Locality::UNKNOWN,
        known: Known {
            cadence: Some(if is_point_to_point(test) { Cadence::Streaming } else { Cadence::Isolated }),
            reduce_op: test.collective.reduces().then_some(ReduceOp::Sum),
            data_check,
            ..Known::default()
        },
        labels,
    })
}

/// The time of a call, and which statistic over the ranks it is.
fn latency(
    test: PeerProgram,
    block: u64,
    cells: &Cells,
) -> std::result::Result<(Seconds, Option<&'static str>), String> {
    if let Some(text) = cells.of(&["bandwidth (mb/s)"]) {
        let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && rate.is_finite());
        let rate = rate.ok_or_else(|| format!("bandwidth: found `{text}`; accepted: MB/s above 0"))?;
        // One counts both directions together, the other a single direction.
        let moved = if test.collective == Collective::Bidirectional { 2.0 } else { 1.0 } * block as f64;
        return log_text::microseconds("time from bandwidth", &(moved / rate).to_string()).map(|time| (time, None));
    }
    let of_ranks = |statistic| (!is_point_to_point(test)).then_some(statistic);
    if let Some(text) = cells.of(&["max latency(us)"]).filter(|_| !is_point_to_point(test)) {
        return Ok((log_text::microseconds("max latency", text)?, of_ranks("max_over_ranks")));
    }
    match cells.of(&["latency (us)", "latency(us)", "avg latency(us)", "avg latency (us)"]) {
        Some(text) => Ok((log_text::microseconds("latency", text)?, of_ranks("mean_over_ranks"))),
        None => Err(format!("the heading has neither latency nor bandwidth; found {}", cells.heading())),
    }
}

/// What OSU's size is.
fn meaning(test: PeerProgram) -> Option<&'static str> {
    Some(match test.collective {
        _ if test.size == PrintedSize::Block => {
            "OSU's size is one rank's block; bytes_total is the block times the ranks"
        }
        Collective::SendRecvChain => "time of a message is size / bandwidth, with a window of messages in flight",
        Collective::Bidirectional => "time of a message is 2 x size / bandwidth, since OSU counts both directions",
        Collective::PingPong => "OSU's latency is one way, bytes_total the message",
        Collective::Barrier => return None,
        _ => "OSU's size is bytes_total",
    })
}

fn parse(text: &str, given: Option<u32>) -> Imported {
    let mut reading = Reading::new(meaning);
    let mut table_open = false;
    let mut of_command = None;
    for line in log_text::log_lines(text) {
        if let Some(next) = titled(line) {
            // A command line describes only the test that it starts.
            let ranks = given.or(of_command.take());
            reading.begin(Some(Block { ranks, ..next }));
            table_open = false;
        } else if line.text.is_empty() {
            table_open = false;
        } else if line.text.starts_with('#') {
            if let Some(block) = &mut reading.block {
                table_open |= comment(block, line.text);
            }
        } else if let Some(block) = &reading.block
            && !block.columns.is_empty()
            && (table_open || log_text::looks_like_a_row(line.text))
        {
            let row = block.test.map(|test| row(block, test, line.text));
            reading.take(line, row);
        } else if !reading.is_lost_row(line) {
            of_command = log_text::launched_processes(line.text).or(of_command);
        }
    }
    reading.finish(None)
}

/// A comment inside a block; whether it is the heading of its table.
fn comment(block: &mut Block, text: &str) -> bool {
    let inside = text.trim_start_matches('#').trim();
    if let Some(name) = inside.strip_prefix("Datatype:") {
        block.facts.element_type = Some(mpi_type(name.trim()));
        return false;
    }
    let lower = inside.to_ascii_lowercase();
    if !(lower.starts_with("size") || lower.starts_with("avg latency")) {
        return false;
    }
    block.columns = lower.split("  ").map(str::trim).filter(|column| !column.is_empty()).map(str::to_owned).collect();
    true
}

#[cfg(test)]
mod tests {
    // Reading of OSU's output, and refusals.
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
                vec![
                    (21, "no call for the test `Multiple Bandwidth / Message Rate Test`"),
                    (28, "--ranks"),
                    (29, "--ranks"),
                ],
            ),
            (problems(POINT_TO_POINT, Some(8)), vec![(21, "skipped: 1 row")]),
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
                vec![(3, "exceed 64 bits")],
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
        assert_eq!(
            (checked.element_type, checked.labels["statistic"].as_str()),
            (ElementType::Float32, "max_over_ranks")
        );
        let notes = parse(COLLECTIVES, None).facts.notes.join("\n");
        assert!(
            notes.contains(
                "Allgather Latency Test: OSU's size is one rank's block; bytes_total is the block times the ranks"
            ),
            "{notes}"
        );
        assert!(notes.contains("lines that no table has were not read"), "{notes}");
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
            assert_eq!(log_text::launched_processes(text), ranks, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics(text in corrupt_input::corrupted(&[POINT_TO_POINT, COLLECTIVES]), ranks in proptest::option::of(1u32..)) {
            corrupt_input::assert_consistent(&parse(&text, ranks));
        }
    }
}
