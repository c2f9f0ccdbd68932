//! `commgauge export` as a user starts it, from public measurements. Needs nothing.

use crate::offline;

use offline::{commgauge, text};
use std::fs;
use std::path::Path;

/// A folder with `fit.json`, of one node without the placement of its groups, and `synthetic.json`, the same marked.
fn fitted() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::copy(root.join("tests/data/nccl/h100_sxm-nccl-2.29.2.csv"), folder.path().join("h100.csv")).expect("copied");
    for arguments in [
        &["import", "--from", "csv", "h100.csv", "-o", "h100.jsonl"][..],
        &["calibrate", "h100.jsonl", "-o", "fit.json", "--resamples", "0"],
    ] {
        let output = commgauge(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    }
    let fit = fs::read_to_string(folder.path().join("fit.json")).expect("a fit");
    let synthetic = fit.replacen("\"synthetic\": false", "\"synthetic\": true", 1);
    assert_ne!(fit, synthetic);
    fs::write(folder.path().join("synthetic.json"), synthetic).expect("written");
    folder
}

fn run(folder: &Path, flags: &str) -> (Option<i32>, String, String) {
    let output = commgauge(folder, &flags.split_whitespace().collect::<Vec<_>>());
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn an_impossible_export_is_reported_and_writes_nothing() {
    let folder = fitted();
    fs::create_dir(folder.path().join("taken")).expect("made");
    for (flags, code, expected) in [
        ("--to poem --fit fit.json -o out", 2, "[possible values: galvatron"),
        ("--to csv --fit absent.json -o out", 2, "cannot read the fit"),
        ("--to csv --fit h100.jsonl -o out", 2, "is not a commgauge fit"),
        ("--to csv --fit synthetic.json -o out", 2, "--allow-synthetic exports it, marked, for a rehearsal"),
        ("--to csv --fit fit.json -o taken", 2, "--output taken is a folder; csv writes one file"),
        ("--to csv --fit fit.json -o fit.json", 2, "is one of the inputs"),
        ("--to galvatron --fit fit.json --ranks-per-node 8 -o h100.csv", 2, "galvatron writes a folder"),
        ("--to galvatron --fit fit.json -o out", 2, "--ranks-per-node is missing"),
        ("--to simai --fit fit.json --axis tp=8 -o out", 2, "found `tp=8`; accepted: an axis"),
        ("--to simai --fit fit.json --axis xp=8@1n -o out", 2, "found `xp=8@1n`"),
        ("--to calculon --fit fit.json --base h100.csv --ranks-per-node 8 -o out", 2, "is not JSON"),
        // Unless the placement of the groups is stated, none is inside a host.
        ("--to aiconfigurator --fit fit.json -o out", 7, "all_gather inside a host was not measured"),
        ("--to astra-sim --fit fit.json --ranks-per-node 16 --unknown-locality 1n -o out", 7, "all_reduce on 16 ranks"),
        (
            "--to galvatron --fit fit.json --ranks-per-node 8 --nodes 2 --unknown-locality 1n -o out",
            7,
            "allreduce_size_16_consec_1: all_reduce on 16 ranks at 2n/1g/s1 was not measured; --unknown-locality gives a different place",
        ),
    ] {
        let (found, out, message) = run(folder.path(), &format!("export {flags}"));
        assert_eq!(found, Some(code), "{flags}: {message}");
        assert!(message.contains(expected) && out.is_empty(), "{flags}: {message}\n{out}");
        assert!(!folder.path().join("out").exists(), "{flags}");
    }
}

#[test]
fn missing_parts_of_an_export_are_reported() {
    let folder = fitted();
    let flags =
        "export --to galvatron --fit fit.json --ranks-per-node 8 --unknown-locality 1n --partial -o hardware_configs";
    let (code, _, message) = run(folder.path(), flags);
    assert_eq!(code, Some(0), "{message}");
    assert!(message.contains("note: pp_size_8: DERIVED from all_gather"), "{message}");
    assert!(message.contains("overlap_coefficient.json"), "{message}");
    let written = folder.path().join("hardware_configs");
    assert!(written.join("allreduce_bandwidth_1nodes_8gpus_per_node.json").is_file());
    let messages = fs::read_to_string(written.join("p2p_bandwidth_1nodes_8gpus_per_node.json")).expect("derived");
    assert!(messages.contains("\"_derived\": \"pp_size_8 from all_gather"), "{messages}");
}

#[test]
fn a_synthetic_fit_is_exported_with_a_mark_on_request() {
    let folder = fitted();
    let flags =
        "export --to aiconfigurator --fit synthetic.json --unknown-locality 1n --allow-synthetic -o nccl_perf.parquet";
    let (code, _, message) = run(folder.path(), flags);
    assert!(code == Some(0) && message.contains("SYNTHETIC"), "{message}");
    let content = fs::read(folder.path().join("nccl_perf.parquet")).expect("written");
    let mark = b"SYNTHETIC, not measured";
    assert!(content.starts_with(b"PAR1") && content.windows(mark.len()).any(|part| part == mark));
}

#[test]
fn comma_separated_values_are_imported_again() {
    let folder = fitted();
    for flags in [
        "export --to csv --fit fit.json -o calibration.csv",
        "import --from csv calibration.csv -o again.jsonl",
        "calibrate again.jsonl -o again.json --resamples 0",
    ] {
        let (code, _, message) = run(folder.path(), flags);
        assert_eq!(code, Some(0), "{flags}: {message}");
    }
    let ask = |fit: &str| {
        run(
            folder.path(),
            &format!("rank call --fit {fit} --collective all_reduce --dtype half --ranks 8 --bytes 3MiB --format csv"),
        )
        .1
    };
    let seconds = |fit: &str| -> f64 {
        let answer = ask(fit);
        let heading: Vec<&str> = answer.lines().next().expect("a heading").split(',').collect();
        let index = heading.iter().position(|name| *name == "seconds").expect("seconds");
        answer.lines().nth(1).expect("an answer").split(',').nth(index).expect("a value").parse().expect("a number")
    };
    assert!((seconds("again.json") / seconds("fit.json") - 1.0).abs() < 0.02);
}
