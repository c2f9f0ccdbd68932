//! The columns of nccl-tests, OSU and IMB that a report prints, read by the regular expressions and rules of programs that read those
//! tools' output. Of nccl-tests SuperBench (microsoft/superbenchmark 700d6501, cuda_nccl_bw_performance.py), the ReFrame tests of CSCS
//! (eth-cscs/cscs-reframe-tests 2f813557, xccl_tests.py) and Ramble (GoogleCloudPlatform/ramble, nccl-tests/application.py); of OSU and
//! IMB Ramble (osu-micro-benchmarks and intel-mpi-benchmarks/application.py), and the reader of `commgauge import`.

use crate::offline::{commgauge, text};
use regex::Regex;
use std::collections::BTreeMap;
use std::fs;

/// Ramble's expression of a row, and of the average.
const RAMBLE_ROW: &str = r"\s+([0-9]+)\s+([0-9]+)\s+(\S+)\s+(\S+)\s+(\S+)\s+([0-9]+\.?[0-9]+)\s+([0-9]+\.?[0-9]+)\s+([0-9]+\.?[0-9]+)\s+(\S+)\s+([0-9]+\.?[0-9]+)\s+([0-9]+\.?[0-9]+)\s+([0-9]+\.?[0-9]+)\s+(\S+)";
const RAMBLE_AVERAGE: &str = r"\s*Avg bus bandwidth\s+:\s+([0-9]+\.?[0-9]+)";
/// ReFrame's sanity and performance.
const REFRAME_SANITY: &str = r"Out of bounds values\s*:\s*0\s*OK";
const REFRAME_AVERAGE: &str = r"Avg bus bandwidth\s*:\s*(\S+)";
/// SuperBench's pattern for the beginning of a row.
const SUPERBENCH_ROW: &str = r"^\d+";

/// What SuperBench makes of an output: bus bandwidth by size, out of place or in place.
fn superbench(output: &str, in_place: bool) -> Result<BTreeMap<u64, f64>, String> {
    let lines: Vec<&str> = output.lines().collect();
    let last = |word: &str| lines.iter().rposition(|line| line.contains(word)).ok_or(format!("no line with {word}"));
    let content = lines.get(last("out-of-place")? + 1..last("Out of bounds values")?).unwrap_or_default();
    let heading = content.iter().find(|line| line.contains("time") && line.contains("busbw")).ok_or("no heading")?;
    let names: Vec<&str> = heading[1..].split_whitespace().collect();
    let is_busbw = |name: &&str| *name == "busbw";
    let found = if in_place { names.iter().rposition(is_busbw) } else { names.iter().position(is_busbw) };
    let from_end = names.len() - found.ok_or("no busbw")?;
    let row = Regex::new(SUPERBENCH_ROW).unwrap();
    let mut rows = BTreeMap::new();
    for line in content {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words.first().is_some_and(|word| row.is_match(word)) {
            continue;
        }
        let field = words[words.len() - from_end];
        rows.insert(words[0].parse().unwrap(), field.parse().map_err(|_| format!("`{field}` is no number"))?);
    }
    if rows.is_empty() { Err("no rows".to_owned()) } else { Ok(rows) }
}

/// Simulates a sweep on four ranks; the report in the columns of nccl-tests, and bus bandwidths in GB/s by placement and size.
fn reported(sweep: &str) -> (String, BTreeMap<(String, u64), f64>) {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("s.toml"),
        format!("[measure]\nreplicates = 1\ncadences = 'streaming'\n[[sweep]]\n{sweep}"),
    )
    .unwrap();
    let ran = commgauge(
        folder.path(),
        &["simulate", "s.toml", "--machine", "two-hosts-1gbit", "--nodes", "2", "-o", "r.jsonl"],
    );
    assert_eq!(ran.status.code(), Some(0), "{}", text(&ran.stderr));
    let report = |format: &str| text(&commgauge(folder.path(), &["report", "r.jsonl", "--format", format]).stdout);
    let mut reader = csv::Reader::from_reader(std::io::Cursor::new(report("csv")));
    let names = reader.headers().unwrap().clone();
    let column = |name: &str| names.iter().position(|found| found == name).unwrap();
    let (placement, bytes, busbw) = (column("placement"), column("bytes_total"), column("busbw_bytes_per_second"));
    let mut expected = BTreeMap::new();
    for row in reader.records().map(Result::unwrap).filter(|row| !row[busbw].is_empty()) {
        let key = (row[placement].replace('_', "-"), row[bytes].parse().unwrap());
        expected.insert(key, row[busbw].parse::<f64>().unwrap() * 1e-9);
    }
    (report("nccl-tests"), expected)
}

#[test]
fn programs_that_read_nccl_tests_find_every_row_and_its_value_and_nothing_else() {
    let [reframe_average, reframe_sanity, ramble_average, ramble_row] =
        [REFRAME_AVERAGE, REFRAME_SANITY, RAMBLE_AVERAGE, RAMBLE_ROW].map(|pattern| Regex::new(pattern).unwrap());
    // A sweep, its measured rows out of place and in place, and whether notes mention skipped cases.
    for (sweep, out_of_place, in_place, notes) in [
        ("collectives = 'all_reduce'\nbytes = { from = '1KiB', to = '1MiB' }", 11, 11, false),
        ("collectives = 'all_gather'\nbytes = { from = '1KiB', to = '1MiB' }", 11, 11, false),
        // Too little for four ranks to share: the first two sizes are skipped.
        ("collectives = 'all_gather'\nbytes = { from = '4B', to = '64B' }", 3, 3, true),
        ("collectives = 'all_reduce'\nbytes = ['1KiB', '1MiB']\nplacements = 'out-of-place'", 2, 0, false),
        ("collectives = 'all_reduce'\nbytes = ['1KiB', '1MiB']\nplacements = 'in-place'", 0, 2, false),
        ("collectives = 'broadcast'\nbytes = ['1KiB', '1MiB']", 0, 2, false),
        // Nothing of the last collective is measured.
        ("collectives = ['all_reduce', 'all_gather']\nbytes = '8B'", 1, 1, true),
    ] {
        let (output, expected) = reported(sweep);
        let in_csv = |placement: &str| {
            let rows = expected.iter().filter(|((of, _), _)| of == placement);
            rows.map(|((_, bytes), rate)| (*bytes, *rate)).collect::<BTreeMap<u64, f64>>()
        };
        assert_eq!(output.contains("skipped"), notes, "{output}");
        for (placement, is_in_place, count) in [("out-of-place", false, out_of_place), ("in-place", true, in_place)] {
            let rows = in_csv(placement);
            assert_eq!(rows.len(), count, "{sweep}: {output}");
            if count == 0 {
                continue;
            }
            let read = superbench(&output, is_in_place).unwrap_or_else(|problem| panic!("{problem}: {output}"));
            assert_eq!(read.keys().collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>(), "{output}");
            for (bytes, rate) in &read {
                assert!((rate - rows[bytes]).abs() <= 0.0051, "{bytes}: {rate} against {}\n{output}", rows[bytes]);
            }
        }
        let captured = reframe_average.captures(&output).expect("an average");
        let average: f64 = captured[1].parse().expect("a number");
        let mean = expected.values().sum::<f64>() / expected.len() as f64;
        assert!((average - mean).abs() <= 1e-3 * mean, "{average} against {mean}");
        assert!(reframe_sanity.is_match(&output), "{output}");
        assert!(ramble_average.is_match(&output), "{output}");
        let rows: Vec<_> = ramble_row.captures_iter(&output).collect();
        // It knows rows with both placements only.
        assert_eq!(rows.len(), if out_of_place == in_place { in_place } else { 0 }, "{output}");
    }
}

#[test]
fn wrong_data_is_reported_where_those_programs_look_for_it() {
    let output = commgauge(
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")),
        &["report", "tests/data/sample-record.jsonl", "--format", "nccl-tests"],
    );
    let output = text(&output.stdout);
    let gathered = output.split("# Collective test starting: ").find(|block| block.starts_with("all_gather_perf"));
    let gathered = gathered.expect("a block");
    assert!(gathered.contains("# Out of bounds values : 1 FAILED"), "{gathered}");
    assert!(!Regex::new(REFRAME_SANITY).unwrap().is_match(gathered));
    assert!(superbench(gathered, false).is_err());
}

/// Ramble's patterns for the heading of OSU's times, for a row, for a row of IMB's times, and for the end of IMB.
const RAMBLE_OSU_HEADING: &str = r"(?m)^#\s+Size\s+Avg Latency\(us\)\s*$";
const RAMBLE_OSU_ROW: &str = r"^\s*(?P<msg_size>[0-9]+)\s+(?P<avg_lat>[0-9\.]+)\s*$";
const RAMBLE_IMB_ROW: &str =
    r"^\s+(?P<bytes>\d+)\s+(?P<repetitions>\d+)\s+(?P<t_min>\d+\.\d+)\s+(?P<t_max>\d+\.\d+)\s+(?P<t_avg>\d+\.\d+)$";
const RAMBLE_IMB_END: &str = ".*?All processes entering MPI_Finalize";

/// Sizes and times in microseconds that the first numbers of an expression's groups make.
fn sizes_and_times(output: &str, row: &str, size: &str, time: &str) -> Vec<(u64, f64)> {
    let row = Regex::new(row).expect("an expression");
    let rows = output.lines().filter_map(|line| row.captures(line));
    rows.map(|found| (found[size].parse().expect("bytes"), found[time].parse().expect("microseconds"))).collect()
}

#[test]
fn programs_that_read_osu_and_imb_find_every_row_and_its_value() {
    let folder = tempfile::tempdir().expect("a folder");
    let suite = "[measure]\nreplicates = 2\ncadences = 'isolated'\n[[sweep]]\ncollectives = ['all_reduce', 'all_gather', 'send_recv_chain', \
                 'reduce_scatter_v']\nbytes = { from = '4KiB', to = '1MiB' }\nplacements = 'out-of-place'\n";
    fs::write(folder.path().join("s.toml"), suite).expect("a suite");
    let run = |line: &str| {
        let ran = commgauge(folder.path(), &line.split(' ').collect::<Vec<_>>());
        assert_eq!(ran.status.code(), Some(0), "{line}: {}", text(&ran.stderr));
        text(&ran.stdout)
    };
    run("run s.toml --backend simulated --machine two-hosts-1gbit -n 4 --record r.jsonl");
    let whole: Vec<u64> = (12..=20).map(|power| 1 << power).collect();
    let blocks: Vec<u64> = whole.iter().map(|bytes| bytes / 4).collect();

    let osu = run("report r.jsonl --format osu");
    assert_eq!(Regex::new(RAMBLE_OSU_HEADING).unwrap().find_iter(&osu).count(), 2, "{osu}");
    let of_osu = sizes_and_times(&osu, RAMBLE_OSU_ROW, "msg_size", "avg_lat");
    // The test of bandwidth has rows of the same form.
    let sizes: Vec<u64> = of_osu.iter().map(|(bytes, _)| *bytes).collect();
    assert_eq!(sizes, [&whole[..], &blocks, &whole].concat(), "{osu}");
    assert!(osu.contains("# commgauge: OSU has no test for reduce_scatter_v"), "{osu}");

    let imb = run("report r.jsonl --format imb");
    let of_imb = sizes_and_times(&imb, RAMBLE_IMB_ROW, "bytes", "t_avg");
    let sizes: Vec<u64> = of_imb.iter().map(|(bytes, _)| *bytes).collect();
    assert_eq!(sizes, [&whole[..], &blocks].concat(), "{imb}");
    assert!(Regex::new(RAMBLE_IMB_END).unwrap().is_match(&imb), "{imb}");
    assert!(imb.contains("# commgauge: IMB has no test for reduce_scatter_v, send_recv_chain"), "{imb}");
    // Both belong to the same record.
    assert_eq!(of_imb[..], of_osu[..of_imb.len()]);

    // What was written is read back as what was measured, to the digits that were written.
    let medians = |csv: &str| {
        let mut reader = csv::Reader::from_reader(std::io::Cursor::new(csv));
        let names = reader.headers().expect("headings").clone();
        let column = |name: &str| names.iter().position(|found| found == name).expect(name);
        let (collective, bytes, time) = (column("collective"), column("bytes_total"), column("latency_seconds_median"));
        let rows = reader.records().map(Result::unwrap).filter(|row| !row[time].is_empty());
        rows.map(|row| ((row[collective].to_owned(), row[bytes].to_owned()), row[time].parse::<f64>().unwrap()))
            .collect::<BTreeMap<_, _>>()
    };
    let measured = medians(&run("report r.jsonl --format csv"));
    for (tool, output, flags) in [("osu", osu, " --ranks 4"), ("imb", imb, "")] {
        fs::write(folder.path().join(tool), output).expect("a file");
        run(&format!("import --from {tool} {tool}{flags} -o {tool}.jsonl"));
        let read = medians(&run(&format!("report {tool}.jsonl --format csv")));
        assert!(read.len() >= 18, "{read:?}");
        for (call, seconds) in &read {
            let expected = measured.get(call).unwrap_or_else(|| panic!("{tool}: {call:?} was never measured"));
            // OSU writes the mean of the ranks, IMB also that of the slowest, and a report the median of the slowest.
            assert!((0.5..1.5).contains(&(seconds / expected)), "{tool} {call:?}: {seconds} against {expected}");
        }
    }
}
