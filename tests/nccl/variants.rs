//! The same calls submitted in several ways, between real ranks on stand-ins for CUDA and NCCL: from streams and
//! graphs, alone and in groups, on plain, registered and symmetric buffers. Every case carries the right bytes under a
//! separate name, and unsupported cases are skipped with the reason. Needs the launcher of the MPI that was built
//! with.

use crate::common;

use common::doubles::{with_doubles, with_nccl};
use common::{COMMGAUGE, PAIRS, Ran, SUITE, SWEEP, launcher, lines, of_kind, record_in, words};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

const QUICKLY: &str = "-n 2 -w 0 --replicates 1 --warm-buffers";

/// A launch of a program with `--backend nccl` on hosts with this many devices.
fn nccl(ranks: u32, program: &str, flags: &str, record: &Path) -> Command {
    let mut command = launcher(ranks);
    command.arg(program).args(words(flags)).args(["--backend", "nccl", "--quiet", "--record"]).arg(record);
    with_doubles(&mut command, ranks);
    command
}

/// The cases of a record with their results, by name.
fn by_name(record: &Path) -> BTreeMap<String, (Value, Value)> {
    let lines = lines(record);
    let plan = of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone();
    let of = |case: &&Value| plan[case["case"].as_u64().unwrap() as usize].clone();
    let named = |case: &Value| (case["name"].as_str().unwrap().to_owned(), (of(&case), case.clone()));
    of_kind(&lines, "case").into_iter().map(named).collect()
}

fn status(of: &(Value, Value)) -> &str {
    of.1["outcome"]["status"].as_str().unwrap()
}

/// Checks that everything is verified that can be in these variants; returns the labels of the measured cases by
/// collective.
fn verified(flags: &str) -> BTreeMap<String, BTreeSet<String>> {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    // 1003 B divide neither by the ranks nor by the elements.
    let flags = format!("{flags} -b 1003 -e 1003 --cadence streaming {QUICKLY}");
    Ran::of(&mut nccl(3, SWEEP, &flags, &record), 120).ended_with(0);
    let mut seen: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, (facts, line)) in by_name(&record) {
        let collective = facts["collective"].as_str().unwrap();
        let label = |name: &str| facts["labels"][name].as_str().unwrap_or_default().to_owned();
        if line["outcome"]["status"] == "skipped" {
            let in_place = collective == "all_to_all" && facts["placement"] == "in_place";
            let barrier = collective == "barrier" && !label("buffers").is_empty();
            let ping_pong = collective == "ping_pong" && !label("aggregate").is_empty();
            assert!(in_place || barrier || ping_pong, "{name}: {line}");
            continue;
        }
        assert_eq!(line["outcome"]["verified"], collective != "barrier", "{name}: {line}");
        let graph: u64 = label("submit").strip_prefix("graph:").map_or(1, |calls| calls.parse().unwrap());
        let group: u64 = if label("aggregate").is_empty() { 1 } else { label("aggregate").parse().unwrap() };
        assert_eq!(line["calls_per_sample"].as_u64().unwrap() % (graph * group), 0, "{name}: {line}");
        assert!(line["buffer_copies"].as_u64().unwrap() >= group, "{name}: {line}");
        seen.entry(collective.to_owned()).or_default().insert(facts["labels"].to_string());
    }
    seen
}

#[test]
fn every_collective_comes_out_verified_from_graphs_of_groups_on_registered_buffers() {
    let seen = verified("all --buffers registered --submit graph:3 --aggregate 2");
    assert_eq!(seen.len(), 14, "all but barrier and ping_pong: {:?}", seen.keys());
}

#[test]
fn variants_multiply_and_each_is_verified_under_labels_of_its_own() {
    let seen = verified(
        "all_reduce send_recv ping_pong barrier --placement out --buffers plain,symmetric --submit stream,graph:3 --aggregate 1,2",
    );
    let counts: Vec<(&str, usize)> = seen.iter().map(|(name, labels)| (name.as_str(), labels.len())).collect();
    assert_eq!(counts, [("all_reduce", 8), ("barrier", 4), ("ping_pong", 4), ("send_recv", 8)]);
}

#[test]
fn graphs_on_cold_buffers_and_isolated_starts_come_out_verified_and_a_wrong_byte_is_found_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = "all_reduce -b 1003 -e 1003 -n 12 -w 1 --replicates 2 --submit graph --aggregate 2 --max-ctas any,4 \
                 --cadence both";
    Ran::of(&mut nccl(2, SWEEP, flags, &record), 120).ended_with(0);
    let cases = by_name(&record);
    assert_eq!(cases.len(), 8);
    for (name, case) in &cases {
        assert_eq!(case.1["outcome"]["verified"], true, "{name}: {case:?}");
        let calls = if name.contains("isolated/graph-1") { 2 } else { 40 };
        assert_eq!(case.1["calls_per_sample"].as_u64().unwrap() % calls, 0, "{name}");
        assert!(case.1["buffer_copies"].as_u64().unwrap() > 40, "{name}: {case:?}");
    }
    let record = record_in(&tempfile::tempdir().unwrap());
    std::fs::create_dir_all(record.parent().unwrap()).unwrap();
    let flags =
        format!("all_reduce -b 1K -e 1K --placement in --cadence streaming --submit graph:4 --aggregate 2 {QUICKLY}");
    let mut command = nccl(2, SWEEP, &flags, &record);
    Ran::of(command.env("COMMGAUGE_DOUBLE_FAULTS", "corrupt rank=1 op=2-"), 60).ended_with(4);
    let (_, case) = by_name(&record).into_values().next().unwrap();
    assert_eq!((&case["outcome"]["status"], &case["outcome"]["rank"]), (&"corrupt".into(), &1.into()));
}

#[test]
fn allocated_buffers_come_from_nccl_unregistered_so_that_graphs_match_nccl_tests() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    for (buffers, registered_for_graphs) in [("plain", false), ("allocated", true)] {
        let flags = format!(
            "all_reduce -b 1K -e 1K --placement out --cadence streaming --submit graph:2 --buffers {buffers} {QUICKLY}"
        );
        let mut command = nccl(2, SWEEP, &flags, &record);
        // Nothing that was registered by hand would be registered.
        command.env("NCCL_LOCAL_REGISTER", "0").env("NCCL_DEBUG", "WARN");
        let ran = Ran::of(&mut command, 60).ended_with(0);
        let (name, (_, line)) = by_name(&record).into_iter().next().unwrap();
        assert_eq!(line["outcome"]["verified"], true, "{name}: {line}");
        assert_eq!(name.contains("allocated"), registered_for_graphs, "{name}");
        let said = ran.stderr.contains("the buffers of all_reduce are registered for a graph");
        assert_eq!(said, registered_for_graphs, "{buffers}: {}", ran.stderr);
        std::fs::remove_file(&record).unwrap();
    }
    let mut command = nccl(2, SWEEP, &format!("all_reduce -b 1K -e 1K --buffers allocated {QUICKLY}"), &record);
    Ran::of(with_nccl(&mut command, 2, "2.18.1"), 60).ended_with(2).printed_error("ncclMemAlloc needs NCCL 2.19");
}

#[test]
fn all_pairs_of_ranks_take_one_communicator_however_many_they_are() {
    let folder = tempfile::tempdir().unwrap();
    // Windows are made by the ranks of a pair, which have a communicator of their own then: of two rounds at most at a time.
    for (name, flags, most) in [
        ("plain", "", "1"),
        ("limited", "--max-ctas any,2", "2"),
        ("symmetric", "--buffers symmetric", "3"),
        ("both", "--buffers symmetric --max-ctas any,2", "3"),
    ] {
        let record = folder.path().join(format!("{name}.jsonl"));
        let mut command =
            nccl(5, PAIRS, &format!("--bandwidth-bytes 1K -n 2 -w 0 --replicates 2 --warm-buffers {flags}"), &record);
        command.env("COMMGAUGE_DOUBLE_COMMUNICATORS", most);
        Ran::of(&mut command, 120).ended_with(0);
        let cases = by_name(&record);
        assert!(cases.len() >= 5 * 3, "{}", cases.len());
        assert!(cases.values().all(|case| case.1["outcome"]["verified"] == true), "{cases:?}");
    }
}

#[test]
fn registered_are_the_buffers_of_every_rank_whatever_each_needs_and_had_before() {
    let folder = tempfile::tempdir().unwrap();
    // Of scatter the root alone sends, of gather and reduce it alone receives; after an all_reduce all ranks have buffers as long.
    for (index, (collectives, expected)) in
        [("all_reduce scatter gather reduce", 8), ("scatter reduce", 4)].iter().enumerate()
    {
        let record = folder.path().join(format!("{index}.jsonl"));
        let flags = format!(
            "{collectives} -b 1K -e 64K -f 64 --placement out --cadence streaming --buffers registered {QUICKLY}"
        );
        Ran::of(&mut nccl(3, SWEEP, &flags, &record), 120).ended_with(0);
        let cases = by_name(&record);
        assert_eq!(cases.len(), *expected);
        assert!(cases.values().all(|case| case.1["outcome"]["verified"] == true), "{cases:?}");
    }
}

/// A suite in variants, for two backends.
const SUITE_OF_VARIANTS: &str = "[measure]\nminimum_samples = 1\nmaximum_samples = 1\ncase_budget = \"1ms\"\nreplicates = 1\n\
    cadences = [\"streaming\"]\n[[sweep]]\ncollectives = [\"all_reduce\"]\nbytes = \"1KiB\"\nplacements = [\"in-place\"]\n\
    buffers = [\"plain\", \"symmetric\"]\nsubmit = [\"stream\", \"graph\"]\n";

#[test]
fn unsupported_cases_are_skipped_with_a_reason_and_the_rest_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("variants.toml");
    std::fs::write(&suite, SUITE_OF_VARIANTS).unwrap();
    let old = "symmetric buffers need NCCL 2.27 (ncclCommWindowRegister), found 2.20.5";
    for (backend, measured, reason) in [("nccl", 2, old), ("mpi", 1, "symmetric needs --backend nccl; this is mpi")] {
        let record = folder.path().join(format!("{backend}.jsonl"));
        let mut command = launcher(2);
        command.arg(SUITE).arg(&suite).args(["--backend", backend, "--record"]).arg(&record);
        let ran = Ran::of(with_nccl(&mut command, 2, "2.20.5"), 60).ended_with(0);
        let cases = by_name(&record);
        let verified = cases.values().filter(|case| status(case) == "measured").count();
        assert_eq!((cases.len(), verified), (4, measured), "{backend}: {cases:?}");
        assert!(ran.stdout.contains("symmetric graph:20") && ran.stdout.contains("skipped"), "{}", ran.stdout);
        assert!(cases["world/all_reduce/sum/float32/1024/in-place/streaming/symmetric"].1.to_string().contains(reason));
    }
    let record = folder.path().join("flags.jsonl");
    let flags = format!("{} --submit graph", suite.display());
    Ran::of(&mut nccl(2, SUITE, &flags, &record), 60)
        .ended_with(2)
        .printed_error("--submit: the suite varies `submit` itself");
}

#[test]
fn rows_of_different_variants_are_the_same_row_of_a_comparison_only_where_labels_are_allowed_to_differ() {
    let folder = tempfile::tempdir().unwrap();
    let mut records = Vec::new();
    for submit in ["stream", "graph"] {
        let record = folder.path().join(format!("{submit}.jsonl"));
        let flags = format!("all_reduce -b 1K -e 1K --cadence streaming --submit {submit} {QUICKLY}");
        Ran::of(&mut nccl(2, SWEEP, &flags, &record), 60).ended_with(0);
        records.push(record);
    }
    let trials = [
        (None, 2, "differ, so a difference in speed would say nothing"),
        (Some("--allow=suite"), 2, "use --allow labels"),
        (Some("--allow=suite,labels"), 3, "allowed to differ: labels (submit)"),
    ];
    for (more, code, words) in trials {
        let output = Command::new(COMMGAUGE).args(["compare", "--explain"]).args(&records).args(more).output().unwrap();
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn the_estimate_of_nccl_is_recorded_with_the_measurement() {
    for (version, estimate) in [("2.30.7", Some(10.0 + 1024e-4)), ("2.20.5", None)] {
        let folder = tempfile::tempdir().unwrap();
        let record = record_in(&folder);
        let flags = format!("all_reduce -b 1K -e 1K --placement out --aggregate 1,2 {QUICKLY}");
        let mut command = nccl(2, SWEEP, &flags, &record);
        Ran::of(with_nccl(&mut command, 2, version), 60).ended_with(0);
        for (name, (_, line)) in by_name(&record) {
            let message = line["library_estimate_seconds"].as_f64();
            // The time model of the stand-in is 10 us and 0.1 ns a byte for a group, of which each call has its share.
            let expected = estimate.map(|alone| if name.contains("aggregate-2") { 5.0 + 1024e-4 } else { alone });
            assert_eq!(
                message.map(|seconds| (seconds * 1e10).round()),
                expected.map(|us: f64| (us * 1e4).round()),
                "{name}"
            );
        }
        let output = Command::new(COMMGAUGE).args(["report", "--format", "markdown"]).arg(&record).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(shown.contains("no measurement"), estimate.is_some(), "{shown}");
    }
}

#[test]
fn messages_are_not_estimated_and_the_next_ones_are_carried_as_they_were_called() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let flags = format!("send_recv all_to_all gather all_reduce -b 1K -e 4K --placement out {QUICKLY}");
    Ran::of(&mut nccl(3, SWEEP, &flags, &record), 60).ended_with(0);
    for (name, (facts, line)) in by_name(&record) {
        assert_eq!(line["outcome"]["verified"], true, "{name}: {line}");
        assert_eq!(line["library_estimate_seconds"].is_number(), facts["collective"] == "all_reduce", "{name}");
    }
}

#[test]
fn limits_to_thread_blocks_hold_alone_and_are_not_measured_where_the_environment_is_above_them() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let sweep = |more: &str| format!("all_reduce -b 1K -e 1K --placement out --cadence streaming {QUICKLY} {more}");
    Ran::of(nccl(2, SWEEP, &sweep("--min-ctas 2"), &record).env("NCCL_DEBUG", "WARN"), 60).ended_with(0);
    // Its log is not mixed with our output.
    assert_eq!(lines(&record)[0]["environment"]["NCCL_DEBUG_FILE"], "/dev/stderr");
    assert!(by_name(&record).values().all(|case| case.1["outcome"]["verified"] == true));

    let record = folder.path().join("overridden.jsonl");
    let mut command = nccl(2, SWEEP, &sweep("--max-ctas any,4,8"), &record);
    Ran::of(command.env("NCCL_MAX_CTAS", "4"), 60).ended_with(0);
    let cases = by_name(&record);
    let skipped: Vec<_> = cases.iter().filter(|(_, case)| status(case) == "skipped").collect();
    let [(name, (_, line))] = skipped[..] else { panic!("{skipped:?}") };
    let reason =
        "maximum thread blocks: 8 requested, but the environment has NCCL_MAX_CTAS=4, which takes precedence in NCCL";
    assert!(name.contains("max-ctas-8") && line["outcome"]["reason"] == reason && cases.len() == 3, "{name}: {line}");

    let (suite, record) = (folder.path().join("limits.toml"), folder.path().join("limits.jsonl"));
    let end = SUITE_OF_VARIANTS.find("buffers").unwrap();
    std::fs::write(&suite, format!("{}max_ctas = [\"any\", 4]\n", &SUITE_OF_VARIANTS[..end])).unwrap();
    // On shared devices the limit of their ranks is not below the least that is requested.
    let flags = format!("{} --min-ctas 8 --share-gpu", suite.display());
    Ran::of(&mut nccl(2, SUITE, &flags, &record), 60).ended_with(0);
    let outcomes: Vec<String> = by_name(&record).values().map(|case| case.1["outcome"].to_string()).collect();
    assert!(outcomes.len() == 2 && outcomes[0].contains("measured"), "{outcomes:?}");
    assert!(outcomes[1].contains("a maximum of 4 thread blocks is below --min-ctas 8"), "{outcomes:?}");

    for (flags, variable, said) in [
        ("--max-ctas 8", "NCCL_MAX_CTAS", "8 requested, but the environment has NCCL_MAX_CTAS=0"),
        ("--min-ctas 8", "NCCL_MIN_CTAS", "8 requested, but the environment has NCCL_MIN_CTAS=0"),
        ("", "NCCL_COMM_BLOCKING", "the environment has NCCL_COMM_BLOCKING=0"),
    ] {
        let mut command = nccl(2, SWEEP, &sweep(flags), &folder.path().join("none.jsonl"));
        Ran::of(command.env(variable, "0"), 60).ended_with(2).printed_error(said);
    }
}

#[test]
fn buffers_of_which_nccl_makes_nothing_are_not_measured_under_their_name() {
    let folder = tempfile::tempdir().unwrap();
    let of = |buffers: &str, variable: &str, version: &str, code| {
        let record = folder.path().join(format!("{buffers}-{version}.jsonl"));
        let flags = format!("all_reduce send_recv -b 1K -e 1K --placement out --buffers plain,{buffers} {QUICKLY}");
        let mut command = nccl(2, SWEEP, &flags, &record);
        Ran::of(with_nccl(command.env(variable, "0"), 2, version), 60).ended_with(code);
        let cases = by_name(&record);
        let (named, others): (Vec<_>, Vec<_>) = cases.into_iter().partition(|(name, _)| name.contains(buffers));
        assert!(others.iter().all(|(_, case)| case.1["outcome"]["verified"] == true), "{others:?}");
        let outcomes =
            named.into_iter().map(|(_, case)| (status(&case).to_owned(), case.1["outcome"]["reason"].to_string()));
        outcomes.collect::<BTreeSet<_>>()
    };
    let message = of("registered", "NCCL_LOCAL_REGISTER", "2.30.7", 6);
    assert!(
        message
            .iter()
            .all(|(status, reason)| status == "failed" && reason.contains("ncclCommRegister registers nothing")),
        "{message:?}"
    );
    // Older versions return something other than a window if they create none.
    for version in ["2.30.7", "2.28.9", "2.27.3"] {
        let message = of("symmetric", "NCCL_WIN_ENABLE", version, 0);
        let skipped = |reason: &str| reason.contains("makes no symmetric windows");
        assert!(
            message.iter().all(|(status, reason)| status == "skipped" && skipped(reason)),
            "{version}: {message:?}"
        );
    }
}

#[test]
fn windows_are_as_long_on_all_ranks_whatever_cases_each_has_had_before() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    // Of three ranks one has no partner in each round. In this order a rank with long buffers is paired with one that
    // has not had any.
    let flags = "--bandwidth-bytes 64K -n 2 -w 0 --replicates 1 --warm-buffers --buffers symmetric --seed 4";
    Ran::of(&mut nccl(3, PAIRS, flags, &record), 120).ended_with(0);
    let cases = by_name(&record);
    assert!(!cases.is_empty() && cases.values().all(|case| case.1["outcome"]["verified"] == true), "{cases:?}");
}

#[test]
fn the_choice_of_nccl_is_read_from_its_log_and_the_times_get_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let flags =
        format!("all_reduce send_recv all_gather -b 1K -e 1M -f 1024 --placement out --submit stream,graph {QUICKLY}");
    let mut command = nccl(3, SWEEP, &format!("{flags} --cadence both --record-algorithm"), &record);
    Ran::of(command.env("TMPDIR", &logs), 60).ended_with(0);
    // The time model of the stand-in.
    let expected =
        |bytes: &Value| if bytes.as_u64().unwrap() <= 1024 { ("tree", "ll", 1) } else { ("ring", "simple", 4) };
    let cases = by_name(&record);
    assert_eq!(cases.len(), 24);
    for (name, (facts, line)) in cases {
        let choice = &line["library_choice"];
        if facts["collective"] == "send_recv" {
            assert!(choice.is_null(), "{name}: messages have no algorithm: {choice}");
            continue;
        }
        let (algorithm, protocol, channels) = expected(&facts["bytes_total"]);
        assert_eq!((&choice["algorithm"], &choice["protocol"]), (&algorithm.into(), &protocol.into()), "{name}");
        assert_eq!(choice["channels"], channels, "{name}");
    }
    let left: Vec<_> = std::fs::read_dir(&logs).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!left.iter().any(|path| path.to_string_lossy().contains("commgauge-nccl")), "{left:?}");
    let output = Command::new(COMMGAUGE).arg("report").arg(&record).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("tree ll x1"), "{shown}");
    let header = &lines(&record)[0];
    assert!(header["warnings"].to_string().contains("(--record-algorithm): times are longer"), "{header}");
    assert!(!header["notes"].to_string().contains("NCCL_DEBUG"), "the same settings on all ranks: {header}");
    let mut command = nccl(2, SWEEP, "all_reduce -b 1K -e 1K --record-algorithm", &folder.path().join("a.jsonl"));
    Ran::of(command.env("NCCL_DEBUG", "WARN"), 60).ended_with(2).printed_error("the environment has NCCL_DEBUG");
}

#[test]
fn sums_of_what_is_multiplied_first_and_reductions_of_eight_bit_floats_come_out_verified_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let reductions = "all_reduce reduce reduce_scatter reduce_scatter_v -b 1003 -e 1003 -r 1 --cadence streaming";
    let flags = format!("{reductions} -o mulsum -d all {QUICKLY}");
    Ran::of(&mut nccl(3, SWEEP, &flags, &record), 120).ended_with(0);
    let cases = by_name(&record);
    assert!(cases.len() >= 4 * 12, "{}", cases.len());
    assert!(cases.values().all(|case| case.0["reduce_op"] == "mulsum" && case.1["outcome"]["verified"] == true));

    for (version, capability, status, words) in [
        ("2.30.7", "90", "measured", ""),
        ("2.30.7", "80", "skipped", "NCCL reduces fp8_e5m2 from compute capability 9.0 on, found 8.0"),
        ("2.20.5", "90", "skipped", "reducing fp8_e5m2 needs NCCL 2.24, found 2.20.5"),
    ] {
        let record = folder.path().join(format!("{version}-{capability}.jsonl"));
        let flags = format!("all_reduce -b 1K -e 1K -d fp8_e5m2 --placement out --cadence streaming {QUICKLY}");
        let mut command = nccl(2, SWEEP, &flags, &record);
        command.env("COMMGAUGE_DOUBLE_CAPABILITY", capability);
        Ran::of(with_nccl(&mut command, 2, version), 60).ended_with(if status == "skipped" { 7 } else { 0 });
        let (_, line) = by_name(&record).into_values().next().unwrap();
        assert!(line["outcome"]["status"] == status && line["outcome"].to_string().contains(words), "{line}");
    }
    for (flags, said) in [
        ("-d fp8_e5m2", "--backend nccl reduces it from NCCL 2.24 and compute capability 9.0 on"),
        ("-o mulsum", "all_reduce with mulsum is an NCCL operation"),
    ] {
        let mut command = launcher(2);
        command.arg(SWEEP).args(words(&format!("all_reduce -b 1K -e 1K {flags} {QUICKLY}")));
        Ran::of(&mut command, 60).ended_with(2).printed_error(said);
    }
}

#[test]
fn algorithms_and_protocols_are_launched_one_by_one_and_refusals_of_nccl_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("one.toml");
    let end = SUITE_OF_VARIANTS.find("buffers").unwrap();
    std::fs::write(&suite, &SUITE_OF_VARIANTS[..end]).unwrap();
    let mut run = Command::new(COMMGAUGE);
    run.env("NO_COLOR", "1").arg("run").arg(&suite).args([
        "-n",
        "2",
        "--backend",
        "nccl",
        "--algorithm",
        "any,ring,nvls",
    ]);
    run.args(["--protocol", "ll,simple", "--record"]).arg(folder.path().join("a.jsonl"));
    let ran = Ran::of(with_doubles(&mut run, 2), 120).ended_with(0);
    let ran = ran
        .printed_error("NCCL refuses nvls ll; continuing with the others")
        .printed_error("no algorithm/protocol available");
    let table = ran.stdout.split("Algorithms and protocols").nth(1).expect("a table at the end");
    for words in
        ["world/all_reduce/sum/float32/1024", "*", "any ll", "ring ll", "ring simple", "nvls simple", "SYNTHETIC"]
    {
        assert!(table.contains(words), "{words}: {table}");
    }
    assert!(!table.contains("nvls ll"), "{table}");
    let case = by_name(&folder.path().join("a-nvls-simple.jsonl")).into_values().next().unwrap();
    assert_eq!((&case.0["labels"]["algorithm"], &case.0["labels"]["protocol"]), (&"NVLS".into(), &"Simple".into()));
    assert_eq!(lines(&folder.path().join("a-ring-ll.jsonl"))[0]["environment"]["NCCL_PROTO"], "LL");
}

/// Cases of a record whose data were wrong, with what was found.
fn wrong(record: &Path) -> Vec<Value> {
    of_kind(&lines(record), "case")
        .iter()
        .map(|case| case["outcome"].clone())
        .filter(|of| of["status"] == "corrupt")
        .collect()
}

const ALL_BUFFERS: &str = "--buffers plain,allocated,registered,symmetric --submit stream,graph";

#[test]
fn a_call_that_reads_before_the_kernel_before_it_has_written_is_found_in_all_buffers_from_streams_and_graphs() {
    let folder = tempfile::tempdir().unwrap();
    for collective in ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"] {
        let record = folder.path().join(format!("{collective}.jsonl"));
        let flags = format!(
            "{collective} -b 1K -e 1K --placement out -n 20 -w 2 --replicates 1 --cadence streaming {ALL_BUFFERS}"
        );
        let mut command = nccl(2, SWEEP, &flags, &record);
        Ran::of(command.env("COMMGAUGE_DOUBLE_FAULTS", "early rank=0"), 120).ended_with(4);
        let wrong = wrong(&record);
        assert_eq!(wrong.len(), 8, "{collective}: {wrong:?}");
        assert!(wrong.iter().all(|of| of["when"] == "before" && of["call"]["number"] == 1), "{wrong:?}");
    }
}

#[test]
fn one_wrong_call_anywhere_in_a_batch_is_found_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let found = |way: &str, op: u64| {
        let record = folder.path().join(format!("{way}-{op}.jsonl"));
        let flags = format!(
            "all_reduce -b 1K -e 1K --placement out -n 20 -w 2 --replicates 1 --cadence streaming --submit {way} --buffers symmetric"
        );
        let mut command = nccl(2, SWEEP, &flags, &record);
        Ran::of(command.env("COMMGAUGE_DOUBLE_FAULTS", format!("corrupt rank=1 op={op}")), 60).ended_with(4);
        wrong(&record).pop().unwrap()
    };
    // The first call connects, and the next eight are each compared behind it; then come warm-up, timed calls and the last check.
    for op in 2..=24 {
        let outcome = found("stream", op);
        assert_eq!((&outcome["rank"], &outcome["call"]["number"]), (&1.into(), &(op - 1).into()), "{op}: {outcome}");
        assert_eq!(outcome["call"]["wrong_copies"], 1, "{op}: {outcome}");
        assert_eq!(outcome["when"], if op <= 9 { "before" } else { "after" }, "{op}: {outcome}");
    }
    // Eight calls of the check and twenty of the timed graph are captured once.
    for op in (2..=29).step_by(3) {
        let outcome = found("graph", op);
        assert_eq!((&outcome["rank"], &outcome["element"]), (&1.into(), &128.into()), "{op}: {outcome}");
    }
}

#[test]
fn a_soak_ends_at_the_first_wrong_byte_and_else_when_its_time_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let flags = |soak| format!("all_reduce all_gather -b 1K -e 8K -f 8 --soak {soak} --submit stream,graph");
    let record = folder.path().join("wrong.jsonl");
    // As long as a busy machine may need for 500 calls.
    let mut command = nccl(2, SWEEP, &flags("90s"), &record);
    Ran::of(command.env("COMMGAUGE_DOUBLE_FAULTS", "corrupt rank=1 op=500"), 120).ended_with(4);
    let found = lines(&record);
    let last = of_kind(&found, "case").pop().unwrap();
    assert_eq!((&last["outcome"]["rank"], wrong(&record).len()), (&1.into(), 1), "{last}");
    assert!(last["outcome"]["call"]["number"].as_u64().is_some(), "{last}");

    let record = folder.path().join("right.jsonl");
    Ran::of(&mut nccl(2, SWEEP, &flags("4s"), &record), 60).ended_with(0);
    let found = lines(&record);
    let cases = of_kind(&found, "case");
    let planned = of_kind(&found, "plan")[0]["cases"].as_array().unwrap().len();
    assert!(cases.len() >= planned && cases.iter().all(|case| case["outcome"]["verified"] == true));
    let samples = |case: &Value| case["samples"]["slowest_nanoseconds"].as_array().unwrap().len();
    assert!(cases.iter().map(|case| samples(case)).max() <= Some(80), "a line stays short");
}
