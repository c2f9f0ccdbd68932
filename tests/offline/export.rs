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
        &["fit", "h100.jsonl", "-o", "fit.json", "--resamples", "0"],
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
            "--to galvatron --fit fit.json --ranks-per-node 8 --unknown-locality 1n -o out",
            7,
            "pp_size_8: send_recv_chain or send_recv on 8 ranks at 1n/1g/s1 was not measured",
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
    assert!(message.contains("left out: pp_size_8") && message.contains("overlap_coefficient.json"), "{message}");
    let written = folder.path().join("hardware_configs");
    assert!(written.join("allreduce_bandwidth_1nodes_8gpus_per_node.json").is_file());
    assert!(!written.join("p2p_bandwidth_1nodes_8gpus_per_node.json").exists());
}

#[test]
fn a_synthetic_fit_is_exported_with_a_mark_on_request() {
    let folder = fitted();
    let flags =
        "export --to aiconfigurator --fit synthetic.json --unknown-locality 1n --allow-synthetic -o nccl_perf.txt";
    let (code, _, message) = run(folder.path(), flags);
    assert!(code == Some(0) && message.contains("SYNTHETIC"), "{message}");
    let text = fs::read_to_string(folder.path().join("nccl_perf.txt")).expect("written");
    assert!(text.lines().skip(1).all(|line| line.contains("SYNTHETIC, no machine was measured")), "{text}");
}

#[test]
fn the_measurements_of_aiconfigurator_come_back_as_they_were() {
    let folder = fitted();
    let (code, _, message) =
        run(folder.path(), "export --to aiconfigurator --fit fit.json --unknown-locality 1n -o nccl_perf.txt");
    assert_eq!(code, Some(0), "{message}");
    let source = fs::read_to_string(folder.path().join("h100.csv")).expect("the source");
    let exported = fs::read_to_string(folder.path().join("nccl_perf.txt")).expect("written");
    let of = |op: &str, ranks: &str, elements: u64| -> f64 {
        let key = format!(",{op},NCCL,half,{ranks},{elements},");
        let line = exported.lines().find(|line| line.contains(&key)).unwrap_or_else(|| panic!("{key}"));
        line.rsplit(',').next().expect("a column").parse().expect("milliseconds")
    };
    let mut compared = 0;
    for line in source.lines().skip(1) {
        let columns: Vec<&str> = line.split(',').collect();
        let (call, dtype, ranks, bytes, microseconds) = (columns[3], columns[4], columns[5], columns[6], columns[7]);
        let bytes: u64 = bytes.parse().expect("bytes");
        if dtype != "half" || call != "all_reduce" || bytes < 1 << 20 {
            continue;
        }
        let measured: f64 = microseconds.parse().expect("microseconds");
        let found = of("all_reduce", ranks, bytes / 2) * 1e3;
        assert!((found / measured - 1.0).abs() < 0.1, "{line}: {found}");
        compared += 1;
    }
    assert!(compared >= 20, "{compared}");
}

#[test]
fn comma_separated_values_are_imported_again() {
    let folder = fitted();
    for flags in [
        "export --to csv --fit fit.json -o calibration.csv",
        "import --from csv calibration.csv -o again.jsonl",
        "fit again.jsonl -o again.json --resamples 0",
    ] {
        let (code, _, message) = run(folder.path(), flags);
        assert_eq!(code, Some(0), "{flags}: {message}");
    }
    let ask = |fit: &str| {
        run(
            folder.path(),
            &format!("predict --fit {fit} --collective all_reduce --dtype half --ranks 8 --bytes 3MiB --format csv"),
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
