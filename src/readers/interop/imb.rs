//! The Intel MPI Benchmarks: IMB-MPI1, versions 3 to 2021. <https://github.com/intel/mpi-benchmarks>
//!
//! Sizes: `#bytes` is one process's block for Allgather, Alltoall, Gather, Scatter and Reduce_scatter_block, so `bytes_total` is the block
//! times the processes; for the others it is the size itself. Times are means over the repetitions; the slowest process (`t_max`) is used,
//! as IMB does for its bandwidth.

use super::imported::{DataCheck, Imported, Known, Row, RunFault, RunFaultKind};
use super::log_text::{self, LogLine};
use super::peer::{self, IMB, PeerProgram, PrintedSize, Reading, mpi_type};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::counted;
use commgauge_model::layout::Locality;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::path::Path;

/// The last line of a run, since version 3.2.
const FOOT: &str = "All processes entering MPI_Finalize";

/// Parses the content of a file; `path` is for the messages. Unreadable lines are returned with their number.
///
/// # Errors
/// A usage error if another tool wrote it.
pub fn parse_bytes(bytes: &[u8], path: &Path) -> Result<Imported> {
    let text = log_text::text_of(bytes, path)?;
    log_text::expect_writer(path, &text, "the Intel MPI Benchmarks")?;
    Ok(parse(&text))
}

/// Cadence of its calls: `src_c/IMB_<name>.c` shows which are timed one by one, with a barrier between them.
fn cadence(benchmark: PeerProgram) -> Cadence {
    use Collective::{Barrier, Bidirectional, PingPong, SendRecv};
    let is_streaming = matches!(benchmark.collective, PingPong | Bidirectional | SendRecv | Barrier);
    if is_streaming { Cadence::Streaming } else { Cadence::Isolated }
}

/// Facts from the header of the file that apply to all benchmarks.
#[derive(Default)]
struct Head {
    moved_type: Option<std::result::Result<ElementType, String>>,
    reduced_type: Option<std::result::Result<ElementType, String>>,
    reduce_op: Option<ReduceOp>,
    version: Option<String>,
    started: Option<Timestamp>,
}

impl Head {
    fn take(&mut self, comment: &str) {
        let Some((key, value)) = comment.split_once(':').map(|(key, value)| (key.trim(), value.trim())) else {
            // `Intel(R) MPI Benchmarks 2021.10, MPI-1 part`, once `Intel (R) MPI Benchmark Suite V3.2, MPI-1 part`.
            if let Some((_, rest)) = comment.split_once("MPI Benchmark") {
                let mut words = rest.split([' ', ',']).map(|word| word.trim_start_matches('V'));
                self.version = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned);
            }
            return;
        };
        match key {
            "Date" => self.started = log_text::local_time(value, "%a %b %e %H:%M:%S %Y"),
            "MPI_Datatype" => self.moved_type = Some(mpi_type(value)),
            "MPI_Datatype for reductions" => self.reduced_type = Some(mpi_type(value)),
            "MPI_Op" => self.reduce_op = value.strip_prefix("MPI_").and_then(|op| op.to_ascii_lowercase().parse().ok()),
            _ => {}
        }
    }

    /// IMB's default settings, if the head is missing.
    fn element_type(&self, collective: Collective) -> std::result::Result<ElementType, String> {
        let (stated, usual) = match collective.reduces() {
            true => (&self.reduced_type, ElementType::Float32),
            false => (&self.moved_type, ElementType::Uint8),
        };
        stated.clone().unwrap_or(Ok(usual))
    }
}

/// A benchmark, with its number of groups.
type Block<'a> = peer::Block<'a, u32>;

/// `# Benchmarking Multi-Allreduce`
fn titled(title: LogLine) -> Option<Block> {
    let name = title.text.strip_prefix("# Benchmarking ")?.split_whitespace().next()?;
    let name = name.strip_prefix("Multi-").or(name.strip_prefix("multi-")).unwrap_or(name).to_owned();
    let test = PeerProgram::named(&IMB, &name);
    Some(Block::new(title, name, test, 1))
}

/// `# #processes = 4` or `# ( 2 groups of 4 processes each running simultaneous )`
fn take_comment(block: &mut Block, comment: &str) {
    if let Some(ranks) = comment.strip_prefix("#processes =") {
        block.ranks = ranks.trim().parse().ok().filter(|ranks| *ranks > 0);
    }
    if let ["(", groups, "groups", "of", ranks, "processes", ..] =
        comment.split_whitespace().collect::<Vec<_>>().as_slice()
    {
        block.facts = groups.parse().unwrap_or(1);
        block.ranks = ranks.parse().ok().filter(|ranks| *ranks > 0);
    }
}

fn row(block: &Block, benchmark: PeerProgram, head: &Head, text: &str) -> std::result::Result<Row, String> {
    let reasons = ["out-of-mem.", "int-overflow.", "time-out."];
    if let Some(reason) = reasons.into_iter().find(|reason| text.contains(reason)) {
        return Err(format!("IMB measured no time: {reason}"));
    }
    let cells = block.cells(text)?;
    let ranks = block.ranks.ok_or("no line above gives the number of processes (`# #processes = 4`)")?;
    let defects = cells.of(&["defects"]).map(|text| text.parse::<f64>().unwrap_or(f64::NAN));
    let size = cells.of(&["#bytes"]).map_or(Ok(0), |text| log_text::whole("#bytes", text))?;
    let time = ["t_max[usec]", "t[usec]"].into_iter().find_map(|name| Some((name, cells.of(&[name])?)));
    let (column, time) =
        time.ok_or_else(|| format!("the heading has no t_max[usec] and no t[usec]; found {}", cells.heading()))?;
    let mut labels = BTreeMap::from([("tool".to_owned(), "imb".to_owned())]);
    labels.extend(head.version.iter().map(|version| ("tool_version".to_owned(), version.clone())));
    if column == "t_max[usec]" {
        labels.insert("statistic".to_owned(), "max_over_ranks".to_owned());
    }
    if block.facts > 1 {
        labels.insert("groups".to_owned(), block.facts.to_string());
    }
    Ok(Row {
        collective: benchmark.collective,
        element_type: head.element_type(benchmark.collective)?,
        ranks,
        bytes_total: benchmark.bytes_total(size, ranks)?,
        latency: log_text::microseconds(column, time)?,
        locality: Locality::UNKNOWN,
        known: Known {
            cadence: Some(cadence(benchmark)),
            reduce_op: head.reduce_op.filter(|_| benchmark.collective.reduces()),
            data_check: defects
                .map(|defects| if defects == 0.0 { DataCheck::Right } else { DataCheck::Wrong { elements: None } }),
            ..Known::default()
        },
        labels,
    })
}

/// What IMB's size is.
fn meaning(benchmark: PeerProgram) -> Option<&'static str> {
    Some(match benchmark.collective {
        _ if benchmark.size == PrintedSize::Block => {
            "#bytes is one process's block; bytes_total is the block times the processes"
        }
        Collective::PingPong => "t[usec] is one way, bytes_total the message",
        Collective::SendRecv | Collective::Bidirectional => "bytes_total is what one process sends",
        Collective::Barrier => return None,
        _ => "#bytes is bytes_total",
    })
}

fn parse(text: &str) -> Imported {
    let (mut head, mut reading) = (Head::default(), Reading::new(meaning));
    for line in log_text::log_lines(text) {
        if let Some(next) = titled(line) {
            reading.begin(Some(next));
        } else if line.text.contains("#repetitions") {
            match &mut reading.block {
                Some(block) => block.columns = line.text.split_whitespace().map(str::to_owned).collect(),
                None => {
                    let problem = "a heading without `# Benchmarking ...` above it";
                    reading.imported.bad_lines.push(line.bad(problem));
                }
            }
        } else if line.text.starts_with('#') {
            let comment = line.text.trim_start_matches("# ").trim();
            head.take(comment);
            if let Some(block) = &mut reading.block {
                take_comment(block, comment);
            }
        } else if let Some(block) = &reading.block
            && !block.columns.is_empty()
            && line.text.starts_with(|c: char| c.is_ascii_digit())
        {
            match block.test.map(|benchmark| row(block, benchmark, &head, line.text)) {
                // Faster than the clock shows: nothing was measured.
                Some(Err(_)) if line.text.ends_with(" 0.00") => reading.unread.add(line),
                row => reading.take(line, row),
            }
        } else {
            reading.is_lost_row(line);
        }
    }
    let count = |words: &str| text.lines().filter(|line| line.contains(words)).count();
    let (runs, feet) = (count("MPI-1 part").max(1), count(FOOT));
    if feet < runs {
        let text = format!("the log was cut off: it has `{FOOT}` {feet} times, for {}", counted(runs, "run"));
        reading.imported.facts.faults.push(RunFault { kind: RunFaultKind::CutOff, text });
    }
    let assumed = head.moved_type.is_none() || head.reduced_type.is_none();
    reading.imported.facts.started = head.started;
    reading
        .finish(assumed.then(|| "the head of the file names no data types; assuming MPI_BYTE and MPI_FLOAT".to_owned()))
}

#[cfg(test)]
mod tests {
    // Reading of IMB's output, and refusals.
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
        assert_eq!(parse(SAMPLE).facts.faults, []);
        let cut = parse(&SAMPLE.replace(FOOT, "")).facts.faults;
        assert!(cut.len() == 1 && cut[0].kind == RunFaultKind::CutOff, "{cut:?}");
        assert_eq!(parse(&format!("{SAMPLE}{SAMPLE}")).facts.faults, []);
        assert_eq!(parse(&format!("{SAMPLE}{}", SAMPLE.replace(FOOT, ""))).facts.faults.len(), 1);
    }

    #[test]
    fn unreadable_lines_are_reported_with_their_number() {
        let bad: Vec<_> = parse(SAMPLE).bad_lines.into_iter().map(|line| (line.number, line.problem)).collect();
        let line_of = |words: &str| SAMPLE.lines().position(|line| line.contains(words)).unwrap() as u64 + 1;
        let expected = [
            (line_of("Benchmarking Exchange"), "commgauge has no call for the test `Exchange`; skipped: 2 rows"),
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
            assert!(
                imported.facts.notes.iter().any(|note| note.contains("assuming MPI_BYTE and MPI_FLOAT")),
                "{:?}",
                imported.facts.notes
            );
        }
    }

    #[test]
    fn the_facts_of_the_file_header_are_imported() {
        let imported = parse(SAMPLE);
        let all_reduce = &imported.rows[4];
        assert_eq!((all_reduce.element_type, all_reduce.known.reduce_op), (ElementType::Float32, Some(ReduceOp::Sum)));
        assert_eq!(
            (&*all_reduce.labels["tool_version"], &*all_reduce.labels["statistic"]),
            ("2021.10", "max_over_ranks")
        );
        assert_eq!(all_reduce.known.cadence, Some(Cadence::Isolated));
        assert_eq!((imported.rows[0].element_type, imported.rows[0].known.reduce_op), (ElementType::Uint8, None));
        let multi = &imported.rows[11];
        assert_eq!((&*multi.labels["groups"], multi.known.data_check), ("2", Some(DataCheck::Right)));
        assert_eq!(imported.rows[12].known.data_check, Some(DataCheck::Wrong { elements: None }));
        assert!(imported.facts.notes.iter().any(
            |note| note == "Allgather: #bytes is one process's block; bytes_total is the block times the processes"
        ));
    }

    proptest::proptest! {
        #[test]
        fn no_input_panics(text in corrupt_input::corrupted(&[SAMPLE])) {
            corrupt_input::assert_consistent(&parse(&text));
        }
    }
}
