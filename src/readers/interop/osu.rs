//! The OSU micro-benchmarks (MPI point to point and blocking collectives, versions 3 to 7), and their NCCL variants.
//! <https://mvapich.cse.ohio-state.edu/benchmarks/>
//!
//! Sizes: OSU prints the length of one block. If each rank has a separate block (allgather, alltoall, gather, scatter), `bytes_total` is
//! the block times the ranks; for the others it is the size itself. Times of collectives are means over iterations, each started after a
//! barrier; with -f the slowest rank's mean is used, without it the mean over ranks.

use super::imported::{BadLine, DataCheck, Imported, Known, Row};
use super::log_text::{self, LogLine, Unread, Writer};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::embedded::pairs;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds, counted};
use commgauge_model::layout::Locality;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::LazyLock;

/// The label of tests that do not measure MPI on host memory.
const LIBRARY: &str = "osu_library";

/// Reads a file. OSU does not print the number of ranks: it is taken from `ranks`, or from the command line if the
/// file contains it; without either the rows of collectives cannot be read.
///
/// # Errors
/// A usage error if the file cannot be read, or another tool wrote it.
pub fn read(path: &Path, ranks: Option<u32>) -> Result<Imported> {
    parse_bytes(&log_text::bytes_of(path)?, path, ranks)
}

/// Parses the content of a file, as [`read`] does; `path` is for the messages.
///
/// # Errors
/// As [`read`].
pub fn parse_bytes(bytes: &[u8], path: &Path, ranks: Option<u32>) -> Result<Imported> {
    let text = log_text::text_of(bytes, path)?;
    log_text::expect_writer(path, &text, Writer::Osu, "the OSU micro-benchmarks")?;
    Ok(parse(&text, ranks))
}

/// The test with a title, such as `Reduce Latency Test`.
fn test(title: &str) -> Option<PeerProgram> {
    let (name, word) = title.rsplit_once(' ')?;
    PeerProgram::named(&OSU, name).filter(|_| word.eq_ignore_ascii_case("test"))
}

/// Whether messages go between two ranks, back to back.
fn is_point_to_point(test: PeerProgram) -> bool {
    test.collective.fewest_ranks() == 2
}

/// The part of the file that belongs to one test.
struct Block<'a> {
    title: LogLine<'a>,
    name: String,
    version: Option<String>,
    /// The communication library: `MPI`, `MPI-CUDA`, `NCCL`.
    library: String,
    test: Option<PeerProgram>,
    ranks: Option<u32>,
    element_type: Option<std::result::Result<ElementType, String>>,
    columns: Vec<String>,
    rows_left_out: usize,
}

impl<'a> Block<'a> {
    /// `# OSU MPI-CUDA Reduce Latency Test v7.3`
    fn titled(title: LogLine<'a>, ranks: Option<u32>) -> Option<Self> {
        let words: Vec<&str> = title.text.trim_start_matches('#').split_whitespace().collect();
        let (["OSU", rest @ ..], true) = (words.as_slice(), title.text.starts_with('#')) else { return None };
        // One-sided tests name their call in place of the library: `OSU MPI_Get latency Test`.
        let (library, rest) =
            rest.split_first().filter(|(word, _)| !word.starts_with("MPI_")).unwrap_or((&"MPI", rest));
        let version =
            rest.last().filter(|word| word.starts_with('v') && word.contains('.')).map(|word| (*word).to_owned());
        let name = rest[..rest.len() - usize::from(version.is_some())].join(" ");
        let test = test(&name);
        let (element_type, columns) = (None, Vec::new());
        Some(Block {
            title,
            name,
            version,
            library: (*library).to_owned(),
            test,
            ranks,
            element_type,
            columns,
            rows_left_out: 0,
        })
    }

    fn has_table(&self) -> bool {
        !self.columns.is_empty()
    }

    fn column<'r>(&self, wanted: &[&str], fields: &[&'r str]) -> Option<&'r str> {
        let index = self.columns.iter().position(|column| wanted.contains(&column.as_str()))?;
        fields.get(index).copied()
    }

    fn row(&self, test: PeerProgram, text: &str) -> std::result::Result<Row, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        if fields.len() != self.columns.len() {
            return Err(format!("has {} fields, the heading {}", fields.len(), self.columns.len()));
        }
        let ranks = match (is_point_to_point(test), self.ranks) {
            (true, _) => 2,
            (false, Some(ranks)) => ranks,
            (false, None) => {
                return Err("no line above gives the number of ranks; OSU does not print it, so give it with --ranks"
                    .to_owned());
            }
        };
        let block = self.column(&["size"], &fields).map_or(Ok(0), |text| log_text::whole("size", text))?;
        let bytes = if test.size == PrintedSize::Block { log_text::for_each_rank(block, ranks)? } else { block };
        let (latency, statistic) = self.latency(test, block, &fields)?;
        let mut labels = BTreeMap::from([("tool".to_owned(), "osu".to_owned())]);
        labels.extend(self.version.iter().map(|version| ("tool_version".to_owned(), version.clone())));
        if self.library != "MPI" {
            labels.insert(LIBRARY.to_owned(), self.library.clone());
        }
        labels.extend(statistic.map(|statistic| ("statistic".to_owned(), statistic.to_owned())));
        let data_check = self.column(&["validation"], &fields).map(|verdict| {
            if verdict.eq_ignore_ascii_case("pass") { DataCheck::Right } else { DataCheck::Wrong { elements: None } }
        });
        Ok(Row {
            collective: test.collective,
            element_type: self.element_type(test)?,
            ranks,
            bytes_total: Bytes(bytes),
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
        &self,
        test: PeerProgram,
        block: u64,
        fields: &[&str],
    ) -> std::result::Result<(Seconds, Option<&'static str>), String> {
        if let Some(text) = self.column(&["bandwidth (mb/s)"], fields) {
            let rate = text.parse::<f64>().ok().filter(|rate| *rate > 0.0 && rate.is_finite());
            let rate = rate.ok_or_else(|| format!("bandwidth: found `{text}`; accepted: MB/s above 0"))?;
            // One counts both directions together, the other a single direction.
            let moved = if test.collective == Collective::Bidirectional { 2.0 } else { 1.0 } * block as f64;
            return log_text::microseconds("time from bandwidth", &(moved / rate).to_string()).map(|time| (time, None));
        }
        let of_ranks = |statistic| (!is_point_to_point(test)).then_some(statistic);
        if let Some(text) = self.column(&["max latency(us)"], fields).filter(|_| !is_point_to_point(test)) {
            return Ok((log_text::microseconds("max latency", text)?, of_ranks("max_over_ranks")));
        }
        match self.column(&["latency (us)", "latency(us)", "avg latency(us)", "avg latency (us)"], fields) {
            Some(text) => Ok((log_text::microseconds("latency", text)?, of_ranks("mean_over_ranks"))),
            None => Err(format!("the heading has neither latency nor bandwidth; found {}", self.columns.join(", "))),
        }
    }

    /// Before version 7 the output has no type: reductions used MPI_FLOAT then, everything else MPI_CHAR.
    fn element_type(&self, test: PeerProgram) -> std::result::Result<ElementType, String> {
        match &self.element_type {
            Some(stated) => stated.clone(),
            None if test.collective.reduces() => Ok(ElementType::Float32),
            None => Ok(ElementType::Int8),
        }
    }

    fn left_out(&self) -> Option<BadLine> {
        (self.test.is_none() && self.rows_left_out > 0).then(|| {
            let rows = counted(self.rows_left_out, "row");
            self.title.bad(format!("commgauge has no call for the test `{}`; skipped: {rows}", self.name))
        })
    }

    fn note(&self) -> Option<String> {
        let test = self.test.filter(|_| self.has_table())?;
        let meaning = match test.collective {
            _ if test.size == PrintedSize::Block => {
                "OSU's size is one rank's block; bytes_total is the block times the ranks"
            }
            Collective::SendRecvChain => "time of a message is size / bandwidth, with a window of messages in flight",
            Collective::Bidirectional => "time of a message is 2 x size / bandwidth, since OSU counts both directions",
            Collective::PingPong => "OSU's latency is one way, bytes_total the message",
            Collective::Barrier => return None,
            _ => "OSU's size is bytes_total",
        };
        Some(format!("{}: {meaning}", test.collective))
    }
}

/// The element type of a name of MPI.
pub(super) fn mpi_type(name: &str) -> std::result::Result<ElementType, String> {
    let name = name.trim_end_matches(['.', ',']);
    let found = pairs(include_str!("mpi_types.txt")).find(|(known, _)| *known == name);
    found.and_then(|(_, element)| element.parse().ok()).ok_or_else(|| {
        format!("found data type `{name}`; known: MPI_CHAR, MPI_BYTE, MPI_INT, MPI_LONG, MPI_FLOAT, MPI_DOUBLE")
    })
}

fn parse(text: &str, given: Option<u32>) -> Imported {
    let mut imported = Imported::default();
    let (mut notes, mut unread) = (BTreeSet::new(), Unread::default());
    let mut block: Option<Block> = None;
    let mut table_open = false;
    let mut of_command = None;
    for line in log_text::log_lines(text) {
        if let Some(next) = Block::titled(line, given.or(of_command)) {
            // A command line describes only the test that it starts.
            of_command = None;
            close(block.replace(next), &mut imported, &mut notes);
            table_open = false;
        } else if line.text.is_empty() {
            table_open = false;
        } else if line.text.starts_with('#') {
            if let Some(block) = &mut block {
                table_open |= comment(block, line.text);
            }
        } else if let Some(block) =
            block.as_mut().filter(|block| block.has_table() && (table_open || log_text::looks_like_a_row(line.text)))
        {
            match block.test.map(|test| block.row(test, line.text)) {
                None => block.rows_left_out += 1,
                Some(Ok(row)) => imported.rows.push(row),
                Some(Err(problem)) => imported.bad_lines.push(line.bad(problem)),
            }
        } else if log_text::looks_like_a_row(line.text) {
            imported.bad_lines.push(line.bad("a row outside a table: no heading above it"));
        } else {
            of_command = ranks_of_command(line.text).or(of_command);
            unread.add(line);
        }
    }
    close(block, &mut imported, &mut notes);
    imported.bad_lines.sort_by_key(|line| line.number);
    imported.notes = notes.into_iter().chain(unread.note()).collect();
    imported
}

fn close(block: Option<Block>, imported: &mut Imported, notes: &mut BTreeSet<String>) {
    let Some(block) = block else { return };
    imported.bad_lines.extend(block.left_out());
    notes.extend(block.note());
}

/// A comment inside a block; whether it is the heading of its table.
fn comment(block: &mut Block, text: &str) -> bool {
    let inside = text.trim_start_matches('#').trim();
    if let Some(name) = inside.strip_prefix("Datatype:") {
        block.element_type = Some(mpi_type(name.trim()));
        return false;
    }
    let lower = inside.to_ascii_lowercase();
    if !(lower.starts_with("size") || lower.starts_with("avg latency")) {
        return false;
    }
    block.columns = lower.split("  ").map(str::trim).filter(|column| !column.is_empty()).map(str::to_owned).collect();
    true
}

/// The ranks of a launch command: `mpirun -np 8 ...`, `srun -n2 ...`.
fn ranks_of_command(text: &str) -> Option<u32> {
    let is_launcher =
        |word: &str| ["mpirun", "mpiexec", "mpirun_rsh", "srun"].contains(&word.rsplit('/').next().unwrap_or(word));
    let mut words = text.split_whitespace().skip_while(|word| !is_launcher(word)).skip(1);
    while let Some(word) = words.next() {
        let flag = ["--ntasks=", "-np", "--np", "--ntasks", "-n"].into_iter().find_map(|flag| word.strip_prefix(flag));
        match flag {
            Some("") => return words.next()?.parse().ok().filter(|ranks| *ranks > 0),
            Some(number) if number.parse::<u32>().is_ok_and(|ranks| ranks > 0) => return number.parse().ok(),
            _ => {}
        }
    }
    None
}

// Names of OSU's and IMB's tests, for reading and writing their output, and the meaning of the printed size.
//
// A collective without a line has no test there.

/// Meaning of the size that a tool prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
#[strum(serialize_all = "lowercase")]
pub enum PrintedSize {
    /// `bytes_total`.
    Total,
    /// One rank's block.
    Block,
    /// No size, as nothing is moved.
    Absent,
}

/// A test of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerProgram {
    pub collective: Collective,
    /// Its name in the title.
    pub name: &'static str,
    /// Meaning of the printed size.
    pub size: PrintedSize,
}

fn tests_of(table: &'static str) -> Vec<PeerProgram> {
    let test = |(name, meaning): (&'static str, &str)| {
        let (collective, size) = meaning.split_once(' ')?;
        Some(PeerProgram { collective: collective.parse().ok()?, name, size: size.parse().ok()? })
    };
    pairs(table).filter_map(test).collect()
}

/// The tests of the OSU micro-benchmarks (`c/mpi`), by their titles without the last word.
pub static OSU: LazyLock<Vec<PeerProgram>> = LazyLock::new(|| tests_of(include_str!("osu_tests.txt")));

/// The benchmarks of IMB-MPI1.
pub static IMB: LazyLock<Vec<PeerProgram>> = LazyLock::new(|| tests_of(include_str!("imb_tests.txt")));

impl PeerProgram {
    /// The first of `tests` that measures the collective.
    pub fn of(tests: &'static [PeerProgram], collective: Collective) -> Option<PeerProgram> {
        tests.iter().copied().find(|test| test.collective == collective)
    }

    /// The test in `tests` with this name, ignoring case: versions differ.
    pub(super) fn named(tests: &'static [PeerProgram], name: &str) -> Option<PeerProgram> {
        tests.iter().copied().find(|test| test.name.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests {
    // Reading of OSU's output, and refusals.
    use super::*;
    use crate::interop::corrupt_input;

    const POINT_TO_POINT: &str = include_str!("../../../tests/data/foreign/osu-5.6.txt");
    const COLLECTIVES: &str = include_str!("../../../tests/data/foreign/osu-7.5.txt");

    #[test]
    fn every_row_of_the_tables_of_tests_and_types_is_read() {
        let rows = [include_str!("osu_tests.txt"), include_str!("imb_tests.txt")].map(|table| pairs(table).count());
        assert_eq!(rows, [OSU.len(), IMB.len()]);
        assert!(pairs(include_str!("mpi_types.txt")).all(|(name, element)| mpi_type(name) == element.parse()));
    }

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
        let notes = parse(COLLECTIVES, None).notes.join("\n");
        assert!(
            notes.contains("all_gather: OSU's size is one rank's block; bytes_total is the block times the ranks"),
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
            assert_eq!(ranks_of_command(text), ranks, "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics(text in corrupt_input::corrupted(&[POINT_TO_POINT, COLLECTIVES]), ranks in proptest::option::of(1u32..)) {
            corrupt_input::assert_consistent(&parse(&text, ranks));
        }
    }
}
