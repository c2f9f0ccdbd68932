//! Logs of other tools in `gate` and `compare`, as a user has them: nccl-tests on GPUs, tables of two versions of NCCL. Needs nothing.

use crate::nccl_log::NcclLog;
use crate::offline::{commgauge, text};
use commgauge::interop::{Origin, Row, parse_csv, record_lines};
use commgauge::record::Record;
use commgauge::record::line::ForeignTool;
use commgauge::verdict::{CompareRule, LoadedRecord, compare};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Output;

/// A log of nccl-tests on one node of eight H100, whose times are stretched by `slow` and scatter with `seed`.
fn log(slow: f64, seed: u32) -> String {
    log_of(slow, seed).text()
}

fn log_of(slow: f64, seed: u32) -> NcclLog {
    let mut state = u64::from(seed) * 2_654_435_761 + 1;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1.0 + 0.01 * ((state >> 40) as f64 / (1u64 << 24) as f64 - 0.5)
    };
    // 400 GB/s of bus bandwidth, and 30 us.
    let mut time = |bytes: u64| (30.0 + bytes as f64 * 1.75 / 400e9 * 1e6) * slow * noise();
    NcclLog::of((20..=30).map(|power| (1 << power, [time(1 << power), time(1 << power)])).collect())
}

const MACHINE: &str = "name = 'm'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n[between_nodes]\n\
    latency = '5us'\nadapters_per_node = 8\nrate_per_adapter = '400GB/s'\n[applies_to]\nbackend = 'nccl'\ndevices = ['H100']\n\
    devices_per_node = 8\nlibrary = 'NCCL'\nlibrary_from = '2.18'\n[coverage]\nexpectations = 1\n[[expect]]\ncollective = 'all_reduce'\n\
    ranks = 8\nbytes = ['512MiB', '1GiB']\nfloor = '380GB/s'\nsource = 'a test'\ndate = '2026'\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a folder"));
        place.put("m.toml", MACHINE);
        place
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).expect("written");
    }

    fn run(&self, line: &str) -> Output {
        commgauge(self.0.path(), &line.split(' ').collect::<Vec<_>>())
    }

    /// Imports logs of nccl-tests, and gates them.
    fn gated(&self, logs: &[String]) -> Output {
        let _ = fs::remove_file(self.0.path().join("r.jsonl"));
        let names: Vec<String> = (0..logs.len()).map(|index| format!("{index}.txt")).collect();
        names.iter().zip(logs).for_each(|(name, log)| self.put(name, log));
        let import = self.run(&format!("import --from nccl-tests {} -o r.jsonl", names.join(" ")));
        assert_eq!(import.status.code(), Some(0), "{}", text(&import.stderr));
        self.run("judge --part thresholds r.jsonl --machine m.toml --width 200")
    }
}

#[track_caller]
fn ended(output: &Output, code: i32, words: &[&str]) {
    let shown = text(&output.stdout) + &text(&output.stderr);
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(output.status.code(), Some(code), "{shown}");
    words.iter().for_each(|words| assert!(shown.contains(words), "`{words}` is not in {shown}"));
}

#[test]
fn several_logs_of_nccl_tests_pass_or_fail_a_gate_and_one_is_inconclusive() {
    let place = Place::new();
    let logs = |slow: f64| (0..6).map(|seed| log(slow, seed)).collect::<Vec<_>>();
    let label = "measured by nccl-tests; data check and clocks not ours";
    ended(&place.gated(&logs(1.0)), 0, &["thresholds: PASS", label, "NCCL 2.27.3"]);
    ended(&place.gated(&logs(1.3)), 1, &["thresholds: FAIL", label]);
    ended(&place.gated(&logs(1.0)[..1]), 3, &["thresholds: INCONCLUSIVE", label]);
}

#[test]
fn logs_that_are_cut_unchecked_unlike_or_of_another_machine_never_pass_and_the_reason_is_named() {
    let place = Place::new();
    let logs = |change: &dyn Fn(&str) -> String| {
        let mut logs: Vec<String> = (0..6).map(|seed| log(1.0, seed)).collect();
        logs[5] = change(&logs[5]);
        logs
    };
    let all = |change: &dyn Fn(&str) -> String| (0..6).map(|seed| change(&log(1.0, seed))).collect::<Vec<_>>();
    for (what, logs, code, words) in [
        ("cut", logs(&|log| log[..log.find(" 268435456").unwrap()].to_owned()), 7, "5.txt: the last run is truncated"),
        (
            "another command",
            logs(&|log| log.replace(" iters: 20 agg", " iters: 100 agg")),
            3,
            "no bound from 1 replicate, at least",
        ),
        ("another host", logs(&|log| log.replace("worker-1", "worker-2")), 3, "worker-2"),
        (
            "unchecked",
            all(&|log| log.replace("      0", "    N/A")),
            3,
            "nccl-tests did not check the data; run it with -c 1",
        ),
        ("wrong data", logs(&|log| log.replace("      0\n", "      7\n")), 4, "7 wrong elements"),
        ("other devices", all(&|log| log.replace("H100 80GB HBM3", "A100-SXM4-80GB")), 7, "ran on NVIDIA A100"),
        ("an old library", all(&|log| log.replace("library=22703", "library=21203")), 7, "NCCL 2.12.3"),
        (
            "no version",
            all(&|log| log.lines().skip(1).collect::<Vec<_>>().join("\n")),
            3,
            "does not name the library's version",
        ),
        (
            "slices of devices",
            all(&|log| log.replace("80GB HBM3", "80GB HBM3 MIG 1g.10gb")),
            7,
            "MIG 1g.10gb; the machine file",
        ),
        ("one log six times", (0..6).map(|_| log(1.0, 0)).collect(), 3, "a copy is not a replicate"),
        ("a copy among others", logs(&|_| log(1.0, 0)), 3, "a copy is not a replicate"),
        ("calls in groups", all(&|log| log.replace("agg iters: 1 ", "agg iters: 8 ")), 3, "its calls used aggregate 8"),
        ("calls in graphs", all(&|log| log.replace("graph: 0", "graph: 20")), 3, "its calls used submit 20"),
        ("faster than the links", (0..6).map(|seed| log(0.3, seed)).collect(), 3, "that the links of m.toml can carry"),
        (
            "two hosts of one name",
            all(&|log| {
                let first = |log: String, device: u32| {
                    log.replace(&format!("device {device:>2}"), &format!("device {:>2}", device - 4))
                };
                (4..8).fold(log.to_owned(), first)
            }),
            3,
            "ranks 0 and 4 are both on device 0 [0x8d] of worker-1: two hosts have one name",
        ),
        (
            "four of eight devices",
            (0..6).map(|seed| NcclLog { gpus: 4, ..log_of(1.0, seed) }.text()).collect(),
            7,
            "worker-1 has 4 ranks",
        ),
    ] {
        let output = place.gated(&logs);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{what}: {shown}");
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(words), "{what}: `{words}` is not in {shown}");
    }
}

#[test]
fn a_log_whose_columns_contradict_each_other_is_refused_and_without_these_rows_it_passes_nothing() {
    let place = Place::new();
    let mut logs: Vec<String> = (0..6).map(|seed| log(1.0, seed)).collect();
    // The time alone, of the largest size, in place.
    let (head, row) = logs[5].split_once("  1073741824").expect("a row");
    let (row, foot) = row.split_once('\n').expect("a line");
    let mut words: Vec<&str> = row.split_whitespace().collect();
    let time = format!("{:.1}", words[8].parse::<f64>().expect("a time") * 0.7);
    words[8] = &time;
    logs[5] = format!("{head}  1073741824 {}\n{foot}", words.join(" "));
    logs.iter().enumerate().for_each(|(index, log)| place.put(&format!("{index}.txt"), log));
    let line = "import --from nccl-tests 0.txt 1.txt 2.txt 3.txt 4.txt 5.txt -o c.jsonl";
    ended(&place.run(line), 2, &["5.txt:", "and algbw", "contradict each other"]);
    ended(&place.run(&format!("{line} --skip-bad-lines")), 0, &["left out"]);
    ended(&place.run("judge --part thresholds c.jsonl --machine m.toml"), 3, &["left out"]);
}

#[test]
fn ranks_that_a_log_does_not_list_follow_from_its_columns_and_are_named() {
    let place = Place::new();
    let without_ranks = |log: &String| -> String {
        let is_kept = |line: &&str| !(4..8).any(|rank| line.contains(&format!("Rank {rank:>2} ")));
        log.lines().filter(is_kept).map(|line| line.to_owned() + "\n").collect()
    };
    let logs: Vec<String> = (0..6).map(|seed| without_ranks(&log(1.0, seed))).collect();
    logs.iter().enumerate().for_each(|(index, log)| place.put(&format!("{index}.txt"), log));
    let imported = place.run("import --from nccl-tests 0.txt 1.txt 2.txt 3.txt 4.txt 5.txt -o c.jsonl");
    ended(&imported, 0, &["busbw / algbw tells 8 ranks, which count; 4 have a `# Rank` line"]);
    ended(&place.run("judge --part thresholds c.jsonl --machine m.toml"), 7, &["devices"]);
}

#[test]
fn a_log_that_says_that_it_failed_or_ends_before_its_foot_passes_nothing_anywhere() {
    let place = Place::new();
    for night in 0..3 {
        place.put(&format!("{night}.txt"), &log(1.0, night));
        place.run(&format!("import --from nccl-tests {night}.txt -o good-{night}.jsonl"));
    }
    let foot = |wanted: &str| log(1.0, 9).replace("0 OK", wanted);
    let whole = log(1.0, 9);
    let until = |words: &str| whole[..whole.find(words).expect("a line")].to_owned();
    for (what, log, code) in [
        ("FAILED", foot("3 FAILED"), 4),
        ("not 0", foot("3 OK"), 4),
        ("unknown", foot("?"), 4),
        ("too slow by itself", whole.replace(" \n#\n# Collective test", " FAILED\n#\n# Collective test"), 6),
        ("cut in the table", until("  1073741824"), 7),
        ("cut after the table", until("# Out of bounds"), 7),
        ("cut in the foot", until("# Avg bus"), 7),
        ("a foot without the count", whole.replace("# Out of bounds values : 0 OK\n", ""), 7),
        ("followed by a whole one", until("# Out of bounds") + &whole, 7),
    ] {
        place.put("bad.txt", &log);
        let _ = fs::remove_file(place.0.path().join("bad.jsonl"));
        let import = place.run("import --from nccl-tests bad.txt -o bad.jsonl");
        assert_eq!(import.status.code(), Some(0), "{what}: {}", text(&import.stderr));
        for line in [
            "report bad.jsonl",
            "report bad.jsonl -o page.html",
            "report bad.jsonl -o page.html --machine m.toml",
            "report good-0.jsonl -o page.html --base bad.jsonl --allow suite",
            "report bad.jsonl -o page.html --base good-0.jsonl --allow suite",
            "judge --part thresholds bad.jsonl --machine m.toml",
            "judge --part thresholds good-0.jsonl bad.jsonl good-1.jsonl good-2.jsonl --machine m.toml --allow suite",
            "judge bad.jsonl --machine m.toml",
            "compare good-0.jsonl bad.jsonl --allow suite",
            "compare bad.jsonl good-0.jsonl --allow suite",
            "compare good-0.jsonl good-1.jsonl --more-new bad.jsonl --allow suite",
            "compare --consistency bad.jsonl",
            "judge --part suspects bad.jsonl",
            "expect learn bad.jsonl -o learned.toml --name l --like m.toml",
        ] {
            // Pages compare what is alike; of two runs in one file they refuse the other.
            let ended = place.run(line).status.code();
            assert!(
                ended == Some(code) || (ended == Some(2) && what == "followed by a whole one"),
                "{what}: {line}: {ended:?}"
            );
        }
        // No row of it has a say among the nights.
        let history = place.run("history good-0.jsonl bad.jsonl good-1.jsonl --format json");
        let shown = text(&history.stdout);
        assert!(history.status.code() == Some(3) && shown.contains("bad.jsonl"), "{what}: {shown}");
        assert!(shown.contains("cut off") || shown.contains("wrong") || shown.contains("failed"), "{what}: {shown}");
    }
}

/// A log of OSU or IMB on eight ranks whose times of 1 MiB are stretched by `slow` and scatter with `seed`.
fn log_on_hosts(tool: &str, slow: f64, seed: u32) -> String {
    // 8 GB/s of bus bandwidth.
    let time = 1_048_576.0 * 1.75 / 8e9 * 1e6 * slow * (1.0 + 0.002 * f64::from(seed * 7 % 11));
    match tool {
        "osu" => format!(
            "+ mpiexec --np 8 ./osu_allreduce -f -c -T mpi_float\n# OSU MPI Allreduce Latency Test v7.5\n# Datatype: MPI_FLOAT.\n\
             # Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations        Validation\n\
             1048576      {:.2}             {:.2}             {time:.2}         1000             Pass\n",
            time * 0.95,
            time * 0.9
        ),
        _ => format!(
            "#------------------------------------------------------------\n#    Intel(R) MPI Benchmarks 2021.10, MPI-1 part\n\
             #------------------------------------------------------------\n# MPI_Datatype                   :   MPI_BYTE\n\
             # MPI_Datatype for reductions    :   MPI_FLOAT\n# MPI_Op                         :   MPI_SUM\n\
             #----------------------------------------------------------------\n# Benchmarking Allreduce\n# #processes = 8\n\
             #----------------------------------------------------------------\n\
             #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]      defects\n 1048576 640 {:.2} {time:.2} {:.2} 0.00\n\
             # All processes entering MPI_Finalize\n",
            time * 0.9,
            time * 0.95
        ),
    }
}

#[test]
fn logs_of_osu_and_imb_pass_or_fail_a_gate_where_it_is_said_where_their_ranks_were() {
    let place = Place::new();
    let machine = "name = 'h'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '100GB/s'\n[between_nodes]\nlatency = '5us'\n\
                   adapters_per_node = 1\nrate_per_adapter = '25GB/s'\n[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n\
                   [[expect]]\ncollective = 'all_reduce'\nranks = 8\nbytes = '1MiB'\ncadence = 'isolated'\nfloor = '7GB/s'\nsource = 's'\n\
                   date = '2026'\n";
    place.put("h.toml", machine);
    let gated = |tool: &str, flags: &str, logs: &[String]| {
        let _ = fs::remove_file(place.0.path().join("h.jsonl"));
        let names: Vec<String> = (0..logs.len()).map(|index| format!("{tool}-{index}.txt")).collect();
        names.iter().zip(logs).for_each(|(name, log)| place.put(name, log));
        let import = place.run(&format!("import --from {tool} {} {flags}-o h.jsonl", names.join(" ")));
        assert_eq!(import.status.code(), Some(0), "{}", text(&import.stderr));
        place.run("judge --part thresholds h.jsonl --machine h.toml --width 200")
    };
    for (tool, label) in [("osu", "measured by OSU"), ("imb", "measured by IMB")] {
        let logs = |slow: f64| (0..6).map(|seed| log_on_hosts(tool, slow, seed)).collect::<Vec<_>>();
        let placed = "--ranks-per-node 4 ";
        ended(&gated(tool, placed, &logs(1.0)), 0, &["thresholds: PASS", label, "data check and clocks not ours"]);
        ended(&gated(tool, placed, &logs(1.3)), 1, &["thresholds: FAIL", label]);
        ended(&gated(tool, placed, &logs(1.0)[..1]), 3, &["thresholds: INCONCLUSIVE", label]);
        ended(&gated(tool, "", &logs(1.0)), 3, &["0 of 1 thresholds judged"]);
        // All on one node is another placement.
        ended(&gated(tool, "--ranks-per-node 8 ", &logs(1.0)), 3, &["0 of 1 thresholds judged"]);
    }
    let means: Vec<String> = (0..6).map(|seed| log_on_hosts("osu", 1.0, seed).replace(" -f ", " ")).collect();
    let means: Vec<String> = means
        .iter()
        .map(|log| {
            log.replace("   Min Latency(us)   Max Latency(us)  Iterations        Validation", "       Validation")
        })
        .collect();
    let means: Vec<String> = means
        .iter()
        .map(|log| {
            let (head, row) = log.trim_end().rsplit_once('\n').expect("a row");
            let words: Vec<&str> = row.split_whitespace().collect();
            format!("{head}\n{} {} {}\n", words[0], words[1], words[5])
        })
        .collect();
    ended(&gated("osu", "--ranks-per-node 4 ", &means), 3, &["the mean over ranks hides the slowest"]);
    ended(
        &place.run("import --from nccl-tests 0.txt --ranks-per-node 4 -o x.jsonl"),
        2,
        &["is for --from osu and imb"],
    );
}

fn data(name: &str) -> String {
    format!("{}/tests/data/nccl/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// The rows of a comparison as JSON.
fn compared(place: &Place, flags: &str) -> (i32, serde_json::Value) {
    let output = place.run(&format!("compare base.jsonl new.jsonl {flags} --format json"));
    let json = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    (output.status.code().expect("it ends"), json)
}

fn failed(json: &serde_json::Value) -> Vec<&str> {
    let rows = json["rows"].as_array().expect("rows").iter();
    rows.filter(|row| row["decision"] == "fail").filter_map(|row| row["name"].as_str()).collect()
}

#[test]
fn rows_that_a_new_nccl_made_slow_are_named_and_a_planted_one_too() {
    let place = Place::new();
    place.run(&format!("import --from csv {} -o base.jsonl", data("b200_sxm-nccl-2.27.5.csv")));
    place.run(&format!("import --from csv {} -o new.jsonl", data("b200_sxm-nccl-2.28.9.csv")));
    ended(&place.run("compare base.jsonl new.jsonl"), 2, &["versions (nccl_version)", "use --allow versions"]);
    for allowed in ["versions", "versions,labels"] {
        let (code, json) = compared(&place, &format!("--allow {allowed}"));
        assert_eq!(code, 1);
        assert_eq!(json["coverage"]["rows_judged"], 504);
        let slow = failed(&json);
        assert!(
            slow.iter().any(|name| name.contains("all_gather/float16/4-ranks") && name.contains("/524288")),
            "{slow:?}"
        );
        // The other way round nothing became slower by as much.
        let output = place.run(&format!("compare new.jsonl base.jsonl --allow {allowed}"));
        assert_ne!(output.status.code(), Some(1), "{}", text(&output.stdout));
    }
    let label = "measured by another tool; data check and clocks not ours";
    let output = place.run("compare base.jsonl new.jsonl --allow versions --width 200 --explain");
    ended(
        &output,
        1,
        &[label, "are too few for a test of each row, so the noise", "512 KiB float16: slower by 23.4 %"],
    );
    let shown = text(&output.stdout);
    let fails: Vec<&str> = shown.lines().filter(|line| line.starts_with("fail ")).collect();
    assert!(fails[0].contains("512 KiB") && fails[0].contains("float16"), "the slowest comes first: {fails:?}");
    let table = fs::read_to_string(data("b200_sxm-nccl-2.28.9.csv")).expect("read");
    for (row, words) in [
        ("b200_sxm,NVIDIA B200,2.28.9,all_reduce,half,8,8388608,72.54", "all_reduce/float16/8-ranks"),
        ("b200_sxm,NVIDIA B200,2.28.9,all_gather,half,2,512,8.32", "all_gather/float16/2-ranks"),
    ] {
        let (key, time) = row.rsplit_once(',').expect("columns");
        let planted = format!("{key},{:.2}", time.parse::<f64>().expect("a time") * 1.75);
        assert!(table.contains(row));
        place.put("planted.csv", &table.replace(row, &planted));
        let _ = fs::remove_file(place.0.path().join("new.jsonl"));
        place.run("import --from csv planted.csv -o new.jsonl");
        let (code, json) = compared(&place, "--allow versions");
        assert!(code == 1 && failed(&json).iter().any(|name| name.contains(words)), "{words}: {:?}", failed(&json));
    }
}

#[test]
fn pairs_of_equal_runs_raise_false_alarms_no_more_often_than_stated() {
    // Three runs of three replicates on one host; every two replicates are a pair of equal runs, once in each order.
    let mut runs: Vec<LoadedRecord> = Vec::new();
    for run in 1..=3 {
        let path = format!("{}/tests/data/host/open-mpi-4.1.4-run{run}.csv", env!("CARGO_MANIFEST_DIR"));
        let imported = parse_csv(&fs::read(&path).expect("read"), Path::new(&path)).expect("a table");
        for replicate in 0..3 {
            let mut seen: HashMap<String, usize> = HashMap::new();
            let is_wanted = |row: &&Row| {
                let count = seen.entry(format!("{} {}", row.collective, row.bytes_total.0)).or_default();
                *count += 1;
                *count == replicate + 1
            };
            let rows: Vec<Row> = imported.rows.iter().filter(is_wanted).cloned().collect();
            let lines = record_lines(&format!("{run}-{replicate}"), &Origin::of(ForeignTool::Csv, &[]), &rows);
            runs.push(LoadedRecord { path: path.clone().into(), record: Record::from_lines(lines).expect("a record") });
        }
    }
    let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };
    let (mut alarms, mut pairs) = (0, 0);
    for (index, base) in runs.iter().enumerate() {
        for new in runs.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, new)| new) {
            let verdict = compare(std::slice::from_ref(base), std::slice::from_ref(new), &rule).expect("comparable");
            alarms += usize::from(verdict.exit_code == 1);
            pairs += 1;
        }
    }
    assert_eq!(pairs, 72);
    assert!(alarms as f64 <= 0.05 * f64::from(pairs), "{alarms} of {pairs} pairs of equal runs");
}
