//! What the commands of the pages find in their folder: records, fits, machine files and other tools' output, by the name that the
//! mark of a block has for them.

use crate::documented_run::{programs, shell};
use crate::records::{Made, machine};
use std::fs;
use std::path::Path;

/// Two nodes of eight, divided as a model divides them.
const AXES: &str = r#"
name = "axes"
measure.replicates = 1
layout = [{ tp = 8 }]
[[sweep]]
collectives = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "send_recv_chain"]
bytes = { from = "1MiB", to = "1GiB", factor = 4 }
element_types = ["float16"]
axis = "tp"
cadences = ["streaming"]
[[sweep]]
collectives = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "send_recv_chain"]
bytes = { from = "1MiB", to = "1GiB", factor = 4 }
element_types = ["float16"]
axis = "dp"
cadences = ["streaming"]
"#;

/// Creates the files that a page's commands need in their folder.
pub fn make(name: &str, folder: &Path) {
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("the folder is writable");
    let data = |from: &str, to: &str| {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(from);
        fs::copy(from, folder.join(to)).expect("the sample is there");
    };
    let steady = |name: &str, seed: u64| {
        Made::steady(&format!("run-{seed}"), 3, 9, seed).write(&folder.join(name));
    };
    match name {
        "runs" => {
            for (seed, name) in ["run", "last-month", "one", "two", "three"].iter().enumerate() {
                steady(&format!("{name}.jsonl"), seed as u64 + 1);
            }
            write("ours.toml", &machine("0.001GB/s"));
        }
        "selftest" => {
            ran(
                folder,
                "commgauge expect selftest --comparisons 8 --rows 10 --replicates 5 --format json > selftest.json",
            );
        }
        "history" => {
            fs::create_dir_all(folder.join("reports/runs")).expect("the folder is writable");
            (1..=7).for_each(|seed| steady(&format!("reports/runs/{seed}.jsonl"), seed));
        }
        "nightly" => {
            ["runs", "textfile"].iter().for_each(|name| fs::create_dir_all(folder.join(name)).expect("writable"));
            (1..=6).for_each(|seed| steady(&format!("runs/{seed}.jsonl"), seed));
            steady("runs/last.jsonl", 7);
            steady("base.jsonl", 8);
            write("ours.toml", &machine("0.001GB/s"));
        }
        "two-runs" => {
            steady("base.jsonl", 1);
            steady("new.jsonl", 2);
            write("two-ranks.toml", &machine("0.001GB/s"));
        }
        "two-days" => {
            steady("monday.jsonl", 1);
            steady("tuesday.jsonl", 2);
        }
        "two-machines" => {
            // Within a node, and so large that the links bound it.
            let expecting = |name: &str, floor: &str| {
                let bounded = machine(floor)
                    .replace("ranks = 4", "ranks = 2\nnodes = 1")
                    .replace("'1MiB', '1GiB'", "'1GiB', '2GiB'");
                bounded.replace("'m'", &format!("'{name}'"))
            };
            write("h100.toml", &expecting("h100", "300GB/s"));
            write("h200.toml", &expecting("h200", "250GB/s"));
        }
        "nccl-csv" => {
            data("nccl/h100_sxm-nccl-2.29.2.csv", "nccl.csv");
            write("calls.csv", "collective,dtype,ranks,bytes_total\nall_reduce,half,8,1048576\n");
        }
        "recipes" => ["megatron-mixtral.sh", "deepspeed-z3-auto.json", "vllm-deepseek.sh"]
            .iter()
            .for_each(|name| data(&format!("recipes/{name}"), name)),
        "traces" => {
            (0..4).for_each(|rank| data(&format!("traces/fr_trace_rank_{rank}"), &format!("fr_trace_rank_{rank}")));
        }
        "foreign" => {
            data("foreign/nccl-tests-2.11-all_reduce.txt", "run1.txt");
            data("foreign/nccl-tests-2.20-per-iteration.txt", "run2.txt");
            data("foreign/osu-7.5.txt", "osu.txt");
            data("foreign/imb-2021.txt", "imb.txt");
            data("nccl/h100_sxm-nccl-2.29.2.csv", "times.csv");
        }
        "older" => {
            fs::create_dir_all(folder.join("folder")).expect("the folder is writable");
            ["old", "a", "b"]
                .iter()
                .enumerate()
                .for_each(|(seed, name)| steady(&format!("{name}.jsonl"), seed as u64 + 1));
        }
        "calibration" => {
            write("axes.toml", AXES);
            ran(
                folder,
                "commgauge run axes.toml --backend simulated -n 16 --machine h100-nvswitch-ndr --record calibration.jsonl",
            );
            ran(folder, "commgauge calibrate calibration.jsonl -o fit.json");
        }
        "calculon" => {
            fs::create_dir_all(folder.join("systems")).expect("the folder is writable");
            let network =
                r#"{"bandwidth": 450, "efficiency": 1, "size": 8, "latency": 0, "ops": {"all_reduce": [1, null]}}"#;
            write("systems/h100_80g_nvl8.json", &format!(r#"{{"matrix": {{}}, "networks": [{network}, {network}]}}"#));
        }
        "ranks" => {
            let placed = " 0  1  8  9\n 2  3 10 11\n 4  5 12 13\n 6  7 14 15\n";
            write("ranks.txt", placed);
            write("doubled.txt", &placed.replace(" 4 ", " 3 "));
        }
        "model" => {
            fs::create_dir_all(folder.join("path/to")).expect("the folder is writable");
            let model = folder.join("suites/models/llama-3-8b/config.json");
            fs::copy(model, folder.join("path/to/config.json")).expect("the model is there");
        }
        "man-folder" => {
            for made in ["man/man1", "bash-completion/completions"] {
                fs::create_dir_all(folder.join("home/.local/share").join(made)).expect("the folder is writable");
            }
        }
        other => panic!("no fixture is called `{other}`"),
    }
}

fn ran(folder: &Path, command: &str) {
    let bin = folder.join("bin");
    let path = if bin.exists() {
        format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default())
    } else {
        programs(folder)
    };
    let output = shell(command, folder, &path).output().expect("a shell starts");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}
