//! Faults of folders, files and readers that need no launcher, and the page that lists all faults: every one has a row in
//! docs/reference/faults.md, and every test that a row names is there.

use crate::offline;

use commgauge::record::Record;
use offline::{commgauge, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const MACHINE: &str = "name = 'quiet'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
    [between_nodes]\nlatency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '1GB/s'\n";
const SUITE: &str = "name = 'small'\n[measure]\nminimum_samples = 5\nmaximum_samples = 5\ncase_budget = '1min'\nreplicates = 2\n\
    [[sweep]]\ncollectives = 'all_reduce'\nbytes = ['1KiB', '1MiB']\n";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.toml"), MACHINE).unwrap();
    fs::write(folder.path().join("small.toml"), SUITE).unwrap();
    folder
}

/// A simulated run with its record at a place.
fn run(at: &Path, suite: &str, record: &str) -> Output {
    let words = [
        "run",
        suite,
        "--backend",
        "simulated",
        "--machine",
        "m.toml",
        "-n",
        "4",
        "--format",
        "csv",
        "--record",
        record,
    ];
    commgauge(at, &words)
}

#[track_caller]
fn refused(output: &Output, codes: &[i32], said: &str) {
    let shown = text(&output.stderr);
    assert!(output.status.code().is_some_and(|code| codes.contains(&code)), "{:?}: {shown}", output.status);
    assert!(shown.contains(said), "`{said}` is not in {shown}");
    assert!(shown.len() < 4000, "{} bytes of message", shown.len());
}

#[test]
fn a_folder_that_is_missing_read_only_a_file_or_a_link_is_met_before_anything_is_measured() {
    let folder = folder();
    let at = folder.path();
    fs::create_dir(at.join("real")).unwrap();
    for (link, target) in [("linked", "real"), ("lost", "nowhere"), ("circle", "circle")] {
        std::os::unix::fs::symlink(target, at.join(link)).unwrap();
    }
    fs::write(at.join("file"), "mine").unwrap();
    std::os::unix::fs::symlink("file", at.join("to-file")).unwrap();
    for (record, said) in [
        ("missing/r.jsonl", "there is no folder missing"),
        ("file/r.jsonl", "there is no folder file"),
        ("real", "this is a folder"),
        ("lost/r.jsonl", "there is no folder lost"),
        ("lost", "a symbolic link to nowhere"),
        ("circle/r.jsonl", "there is no folder circle"),
        ("circle", "circle"),
        ("to-file", "exists already and records are never overwritten"),
        // Where not even root may write.
        ("/proc/r.jsonl", "/proc/r.jsonl"),
    ] {
        refused(&run(at, "small.toml", record), &[2, 6], said);
    }
    assert_eq!(fs::read(at.join("file")).unwrap(), b"mine");
    assert_eq!(run(at, "small.toml", "linked/r.jsonl").status.code(), Some(0));
    assert!(Record::read(&at.join("real/r.jsonl")).unwrap().is_finished(), "a link to a folder is a folder");
}

#[test]
fn of_two_runs_with_one_record_one_writes_it_and_the_other_is_refused() {
    let folder = folder();
    let at = folder.path();
    let start = || {
        let words = "run small.toml --backend simulated --machine m.toml -n 4 --format csv --record both.jsonl";
        let mut command = Command::new(env!("CARGO_BIN_EXE_commgauge"));
        command
            .args(words.split(' '))
            .current_dir(at)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let started: Vec<_> = (0..4).map(|_| start()).collect();
    let ended: Vec<Output> = started.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let mut codes: Vec<i32> = ended.iter().map(|output| output.status.code().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [0, 2, 2, 2], "{ended:?}");
    let record = Record::read(&at.join("both.jsonl")).unwrap();
    assert!(record.is_finished() && record.cases.len() as u64 == record.plan.case_lines);
}

#[test]
fn host_files_of_any_shape_are_read_or_refused_with_their_line() {
    let folder = folder();
    let at = folder.path();
    // Without an MPI there is no launcher to show; the host file is read before one is looked for.
    let dry = |content: &[u8]| {
        fs::write(at.join("hosts"), content).unwrap();
        commgauge(at, &["run", "small.toml", "-n", "4", "--hostfile", "hosts", "--dry-run", "--launcher", "/bin/false"])
    };
    let many: String = (0..10_000).map(|host| format!("node-{host:05} slots=1\n")).collect();
    for good in [
        "a slots=2\r\nb slots=2\r\n",
        "\n\n  a \n\r\n# b\nc\n",
        "a:2\nb:2\n",
        "\u{feff}a\nb\n",
        "nöde\nb\n",
        many.as_str(),
    ] {
        let output = dry(good.as_bytes());
        assert!(!text(&output.stderr).contains("--hostfile hosts"), "{good:.40}: {}", text(&output.stderr));
    }
    let long = format!("a slots={}\n", "9".repeat(1 << 20));
    let name = format!("{} slots=1\n", "a".repeat(256));
    for (bad, said) in [
        ("", "names no host"),
        ("a\nb slots=x\r\n", "line 2"),
        ("a\n\n\nb slots=0\n", "line 4"),
        (&long, "line 1"),
        (&name, "line 1"),
    ] {
        refused(&dry(bad.as_bytes()), &[2], said);
    }
    refused(&dry(b"a\n\xff\xfe\n"), &[2, 6], "hosts");
}

/// More ranks than any cluster has, which would be listed one by one.
#[test]
fn numbers_of_ranks_are_bounded_before_memory_is_taken() {
    let folder = folder();
    fs::write(folder.path().join("hosts"), "a slots=2147483647\n").unwrap();
    for (words, said) in [
        (["-n", "2000000000"], "2000000000 ranks; accepted: at most 1048576 (2^20)"),
        (["--hosts", "a:2147483647,b:2147483647"], "4294967294 ranks; accepted: at most 1048576"),
        (["--hostfile", "hosts"], "2147483647 ranks; accepted: at most 1048576"),
    ] {
        let all = [&["run", "small.toml", "--dry-run", "--launcher", "/bin/false"][..], &words].concat();
        refused(&commgauge(folder.path(), &all), &[2], said);
    }
}

/// A machine with noise, whose second node is slow for a while or always, and on which all_reduce must reach a bus bandwidth.
fn with_a_slow_node(when: &str) -> String {
    let noise =
        "[noise]\nrelative_sigma = 0.01\noutlier_probability = 0.001\noutlier_factor = 2.0\narrival_jitter = '1us'\n";
    let expect = "[applies_to]\nbackend = 'mpi'\n[coverage]\nexpectations = 1\n[[expect]]\ncollective = 'all_reduce'\nranks = 4\nbytes = '1MiB'\nfloor = '1GB/s'\nsource = 's'\ndate = '2026'\n";
    let fault = "[[faults]]\nkind = 'node'\nnode = 1\nrate_factor = 0.3\n";
    format!("{MACHINE}{noise}{expect}{}{when}", if when == "never" { "#" } else { fault })
}

#[test]
fn a_slow_while_within_a_run_is_named_with_its_place_and_is_not_taken_for_a_slow_machine() {
    let suite = "name = 'small'\n[measure]\nminimum_samples = 10\nmaximum_samples = 10\ncase_budget = '1s'\nreplicates = 6\n\
        [[sweep]]\ncollectives = ['all_reduce', 'all_gather', 'broadcast']\nbytes = ['256KiB', '512KiB', '1MiB', '2MiB']\n\
        cadences = 'streaming'\n";
    // The fault, the decision on the expected row and its code, and whether a transient slowdown is reported.
    for (name, when, decision, message) in [
        ("never", "never", "inconclusive", false),
        ("while", "from = '300ms'\nuntil = '600ms'\n", "inconclusive", true),
        ("always", "", "fail", false),
    ] {
        let folder = folder();
        let at = folder.path();
        fs::write(at.join("m.toml"), with_a_slow_node(when)).unwrap();
        fs::write(at.join("s.toml"), suite).unwrap();
        let ran = run(at, "s.toml", "r.jsonl");
        assert_eq!(ran.status.code(), Some(0), "{name}: {}", text(&ran.stderr));
        let page = text(&commgauge(at, &["report", "r.jsonl"]).stdout);
        assert_eq!(page.contains("the machine was slow for a while, from case"), message, "{name}: {page}");
        let gate =
            commgauge(at, &["judge", "--part", "thresholds", "r.jsonl", "--machine", "m.toml", "--format", "json"]);
        let verdict: serde_json::Value = serde_json::from_slice(&gate.stdout).unwrap();
        // What is simulated never passes, but it fails.
        assert_eq!(verdict["decision"], decision, "{name}: {verdict:#}");
        let problems = verdict["troubles"].to_string();
        assert_eq!(problems.contains("slow for a while"), message, "{name}: {problems}");
    }
}

#[test]
fn a_hostile_suite_is_refused_in_bounded_time_and_writes_nothing_elsewhere() {
    let folder = folder();
    let at = folder.path().join("inside");
    fs::create_dir(&at).unwrap();
    fs::write(at.join("m.toml"), MACHINE).unwrap();
    let deep = format!("name = 'x'\na = {}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
    let sweep = |more: &str| format!("name = 'x'\n{more}\n[[sweep]]\ncollectives = 'all_reduce'\nbytes = '1KiB'\n");
    let model = |path: &str| {
        format!(
            "name = 'x'\n[model]\nconfig = '{path}'\n[training]\nsequence = 8\n[[layout]]\ntp = 2\nstyles = ['tensor']\n"
        )
    };
    for (suite, said) in [
        (deep, "s.toml"),
        (sweep("name = 'y'"), "duplicate key"),
        (sweep("[measure]\nreplicates = 4294967295"), "replicates"),
        (sweep("[measure]\ncase_budget = '1e300s'"), "case_budget"),
        (sweep("").replace("'1KiB'", "{ from = '1', to = '16EiB', factor = 1 }"), "bytes"),
        (sweep("").replace("'1KiB'", "'99999999999999999999GiB'"), "bytes"),
        (model("/etc/passwd"), "/etc/passwd"),
        (model("../../../../../../etc/shadow"), "etc/shadow"),
        (model("/dev/zero"), "/dev/zero"),
        (sweep("include = '/etc/passwd'"), "include"),
        (sweep("[measure]\nreplicates = '$(touch pwned)'"), "replicates"),
    ] {
        fs::write(at.join("s.toml"), &suite).unwrap();
        let output = run(&at, "s.toml", "r.jsonl");
        refused(&output, &[2, 6], said);
        assert!(!at.join("r.jsonl").exists(), "{suite:.60}");
    }
    // A name is only shown, never a path.
    fs::write(at.join("s.toml"), sweep("").replace("'x'", "'../../outside'")).unwrap();
    assert_eq!(run(&at, "s.toml", "r.jsonl").status.code(), Some(0));
    let names = |at: &Path| -> BTreeSet<String> {
        fs::read_dir(at).unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    assert_eq!(names(folder.path()), ["inside", "m.toml", "small.toml"].map(str::to_owned).into());
    assert_eq!(names(&at), ["m.toml", "r.jsonl", "s.toml"].map(str::to_owned).into());
}

#[test]
fn a_reader_that_closes_the_pipe_early_does_not_fail_the_run() {
    let folder = folder();
    let words = "run small.toml --backend simulated --machine m.toml -n 4 --record r.jsonl";
    let mut command = Command::new(env!("CARGO_BIN_EXE_commgauge"));
    command.args(words.split(' ')).current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(Record::read(&folder.path().join("r.jsonl")).unwrap().is_finished());
}

/// The rows of the page: fault, and all its cells.
fn rows(page: &str) -> Vec<(String, String)> {
    let row = |line: &str| {
        let fault = line.strip_prefix("| F")?.split(' ').next()?;
        Some((format!("F{fault}"), line.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// Names of all test functions, by file.
fn tests_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            tests_in(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let tests = source.split("#[test]").skip(1).filter_map(|rest| rest.split_once("fn ")?.1.split_once('('));
            found.extend(tests.map(|(name, _)| name.to_owned()));
        }
    }
}

#[test]
fn every_documented_fault_names_an_existing_test_or_is_marked_untested() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/reference/faults.md")).unwrap();
    let mut tests = BTreeSet::new();
    tests_in(&root.join("tests"), &mut tests);
    tests_in(&root.join("src"), &mut tests);
    let rows = rows(&page);
    let faults: Vec<&str> = rows.iter().map(|(fault, _)| fault.as_str()).collect();
    let expected: Vec<String> = (1..=59).map(|number| format!("F{number:02}")).collect();
    assert_eq!(faults, expected);
    for (fault, row) in &rows {
        let cell = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        let named: Vec<&str> = cell.split('`').skip(1).step_by(2).collect();
        assert!(
            !named.is_empty() || cell.contains("not held yet"),
            "{fault} names no test and does not say `not held yet`"
        );
        for name in named {
            assert!(tests.contains(name), "{fault} names the test {name}, and there is none");
        }
    }
}

#[test]
fn hosts_and_sizes_are_taken_as_their_tools_write_them_or_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let sweep = ["--sweep", "all_reduce", "-n", "2"];
    for (hosts, arguments, code, expected) in [
        ("", ["--hosts", "node[1-2,5]:8,x", "-n", "8"], 0, "--host node1:8,node2:8,node5:8,x "),
        ("", ["--hosts", "[v6]:8", "-n", "8"], 2, "\"[v6]:8\" is not HOST or HOST:RANKS, and HOST may be node[1-4]"),
        ("", ["--hosts", "[fe80::1]:8", "-n", "8"], 2, "launchers take IPv6 in no list, so give its name"),
        ("node[1-4]:8\n", ["--hostfile", "hosts", "-n", "32"], 0, "node1:8,node2:8,node3:8,node4:8"),
        ("node1:8:mlx5_0\n", ["--hostfile", "hosts", "-n", "8"], 0, "node1:8"),
        ("node1 slots = 8\nnode2 cpu=8\n", ["--hostfile", "hosts", "-n", "16"], 0, "on 16 ranks of 2 nodes"),
    ] {
        std::fs::write(folder.path().join("hosts"), hosts).expect("written");
        let output = commgauge(folder.path(), &[&["run", "quick", "--dry-run"][..], &arguments].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        let is_missing = output.status.code() == Some(6);
        assert!(
            is_missing || (output.status.code() == Some(code) && said.contains(expected)),
            "{hosts}{arguments:?}: {said}"
        );
        assert!(said.matches("gets its hosts as a list").count() < 2, "{said}");
    }
    for (sizes, code, expected) in [
        ("-b 1M -e 1M -f 1", 0, "largest buffer 1 MiB"),
        ("-b 1M -e 1M -i 0", 0, "largest buffer 1 MiB"),
        ("-b 1M -e 2M -f 1", 2, "found a factor of 1; accepted: 2 and more"),
        ("-b 1M -e 2M -i 0", 2, "found a step of 0; accepted: 1 B and more"),
        ("-b -8 -e 64M", 2, "'--minbytes <BYTES>': found `-8`, a negative size"),
        ("-b 8 -e -64M", 2, "'--maxbytes <BYTES>': found `-64M`, a negative size"),
        ("-b -e 64M", 2, "'--minbytes <BYTES>': found `-e`; accepted: a size"),
        ("-b 8 -e 64 -i -8", 2, "'--stepbytes <BYTES>': found `-8`, a negative size"),
        ("-b 1T -e 1T", 0, "does not fit: 2 ranks with 1 TiB each, of "),
    ] {
        let sizes: Vec<&str> = sizes.split(' ').collect();
        let output = commgauge(folder.path(), &[&["run", "--dry-run"][..], &sweep, &sizes].concat());
        let said = text(&output.stdout) + &text(&output.stderr);
        let is_missing = output.status.code() == Some(6);
        assert!(is_missing || (output.status.code() == Some(code) && said.contains(expected)), "{sizes:?}: {said}");
    }
}
