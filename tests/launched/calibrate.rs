//! Runs that choose their own sizes, and matrix products, under the launcher: all ranks measure the same further sizes, and the record
//! says why. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, Ran, SUITE, launcher, lines, of_kind, record_in};
use std::process::Command;

const CURVES: &str = "[measure]\niterations = 20\nreplicates = 2\ncadences = 'streaming'\n\
    [calibrate]\nuntil_error = 0.001\nmost_sizes = 5\n\
    [[sweep]]\ncollectives = ['all_reduce', 'all_gather']\nbytes = ['1KiB', '16KiB', '1MiB']\nplacements = 'out-of-place'\n";

const PRODUCTS: &str = "[measure]\niterations = 6\nreplicates = 2\n\
    [compute]\nmodel = { preset = 'gpt2' }\nsequence = 16\ntp = 4\n";

fn suite(folder: &tempfile::TempDir, text: &str) -> std::path::PathBuf {
    let path = folder.path().join("suite.toml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn all_ranks_measure_the_sizes_that_rank_0_chose_and_the_record_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(3);
    command.arg(SUITE).arg(suite(&folder, CURVES)).arg("--record").arg(&record);
    let ran = Ran::of(&mut command, 120).ended_with(0);
    assert!(ran.stdout.contains("calibration: sizes added in 2 rounds"), "{}", ran.stdout);
    let written = lines(&record);
    let growths = of_kind(&written, "plan_growth");
    assert_eq!(growths.len(), 2);
    for (round, growth) in (1..).zip(&growths) {
        assert_eq!((growth["round"].as_u64(), growth["case_lines"].as_u64()), (Some(round), Some(4)));
        let chosen = growth["chosen"].as_array().unwrap().iter().zip(growth["cases"].as_array().unwrap());
        for (why, case) in chosen {
            let [above, bytes, below] =
                [&why["above"], &case["bytes_total"], &why["below"]].map(|bytes| bytes.as_u64().expect("bytes"));
            assert!(above < bytes && bytes < below, "{above} {bytes} {below}");
            assert!(why["predicted_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{why}");
        }
    }
    assert_eq!(of_kind(&written, "case").len(), 2 * 2 * 5, "two curves of five sizes in two replicates");
    let curves = of_kind(&written, "calibration")[0]["curves"].as_array().unwrap().clone();
    assert!(curves.iter().all(|curve| curve["outcome"] == "most_sizes" && curve["sizes"] == 5), "{curves:?}");
    // What reads records finds nothing amiss with one that grew.
    let report = Command::new(COMMGAUGE).args(["report", "--format", "json"]).arg(&record).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("a document");
    assert_eq!((report["rows"].as_array().unwrap().len(), report["exit_code"].as_i64()), (10, Some(0)));
    let fitted =
        Command::new(COMMGAUGE).arg("calibrate").arg(&record).arg("-o").arg(folder.path().join("fit.json")).output();
    assert!(fitted.unwrap().status.success());
}

#[test]
fn a_record_that_grew_reads_wherever_it_was_cut_off() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(2);
    command.arg(SUITE).arg(suite(&folder, CURVES)).arg("--record").arg(&record);
    Ran::of(&mut command, 120).ended_with(0);
    let text = std::fs::read_to_string(&record).unwrap();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
    let cut = folder.path().join("cut.jsonl");
    for end in &ends[1..ends.len() - 1] {
        std::fs::write(&cut, &text[..*end]).unwrap();
        let read = commgauge::record::Record::read(&cut).expect("a record");
        let cases = text[..*end].lines().filter(|line| line.starts_with("{\"line\":\"case\"")).count();
        assert_eq!(read.cases.len(), cases);
        assert!(read.cases.iter().all(|line| (line.case as usize) < read.plan.cases.len()));
        assert!(read.file.warnings[0].contains("cut off"), "{:?}", read.file.warnings);
    }
}

#[test]
fn products_of_a_model_are_right_on_every_rank_and_have_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(2);
    command.arg(SUITE).arg(suite(&folder, PRODUCTS)).args(["--format", "json", "--record"]).arg(&record);
    let ran = Ran::of(&mut command, 120).ended_with(0);
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("a document");
    let products = report["products"].as_array().expect("products");
    // GPT-2: h 768, f 3072, 12 heads of 64, 50257 words padded to 128 x 4; a quarter of each on a rank.
    let shapes: Vec<[u64; 3]> =
        products.iter().map(|product| ["m", "n", "k"].map(|key| product[key].as_u64().unwrap())).collect();
    assert_eq!(shapes, [[16, 576, 768], [16, 768, 192], [16, 768, 768], [16, 12672, 768]]);
    for product in products {
        assert!(product["flops_per_second"].as_f64().is_some_and(|rate| rate > 1e6), "{product}");
        assert_eq!(product["seconds_per_replicate"].as_array().map(Vec::len), Some(2));
    }
    let written = lines(&record);
    assert_eq!(of_kind(&written, "product").len(), 2 * products.len());
    assert!(of_kind(&written, "product").iter().all(|line| line["outcome"]["verified"] == true));
}
