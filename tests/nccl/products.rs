//! `[[compute]]` on GPUs, on stand-ins for CUDA and cuBLAS: products are correct in every type, the record names the
//! library and can be used by a plan, and whatever is missing or fails is named. Needs the launcher of the MPI that
//! was built with.

use crate::common;

use common::doubles::{with_cublas, with_doubles};
use common::{COMMGAUGE, Ran, SUITE, Started, concurrent, ending, launcher, lines, of_kind, record_in, start, words};
use std::path::Path;
use std::process::Command;

/// A model of a few thousand parameters.
const TINY: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;

/// A launch of the products of the model in some types; with a stand-in for cuBLAS, or without one.
fn products(folder: &Path, name: &str, types: &str, flags: &str, fault: &str, has_cublas: bool) -> Started {
    std::fs::write(folder.join("config.json"), TINY).unwrap();
    let suite = folder.join(format!("{name}.toml"));
    let text = format!(
        "name = '{name}'\n[measure]\ncase_budget = '1ms'\nreplicates = 2\n[[compute]]\nmodel = {{ config = 'config.json' }}\n\
         sequence = 16\ntp = 2\nelement_types = [{types}]\n"
    );
    std::fs::write(&suite, text).unwrap();
    let mut command = launcher(2);
    command.arg(SUITE).arg(&suite).args(["--backend", "nccl", "--quiet", "--record"]);
    command.arg(folder.join(format!("{name}.jsonl"))).args(words(flags));
    with_doubles(&mut command, 2).env("COMMGAUGE_DOUBLE_FAULTS", fault);
    if has_cublas {
        with_cublas(&mut command);
    }
    start(&mut command)
}

#[test]
fn products_of_a_model_come_out_right_on_gpus_in_every_type_and_serve_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let types = ["float16", "bfloat16", "float32", "float64"];
    let record = record_in(&folder);
    {
        let _concurrent = concurrent();
        let listed = types.map(|name| format!("'{name}'")).join(", ");
        ending(products(folder.path(), "run", &listed, "", "", true), 60).ended_with(0);
    }
    let written = lines(&record);
    let measured = of_kind(&written, "product");
    // Four shapes of five layers, in four types, twice.
    assert_eq!(measured.len(), 4 * types.len() * 2);
    for line in &measured {
        assert_eq!(line["outcome"]["verified"], true, "{line}");
        let library = line["library"].as_str().unwrap();
        assert!(library.starts_with("cuBLAS 12.8.4 (") && library.contains("libcublas.so.12"), "{library}");
        assert!(line["slowest_nanoseconds"].as_array().is_some_and(|times| times.len() >= 3), "{line}");
    }
    let mut plan = Command::new(COMMGAUGE);
    plan.current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("NO_COLOR", "1")
        .arg("plan")
        .arg("--model")
        .arg(folder.path().join("config.json"));
    plan.args(words(
        "--machine suites/machines/h100-nvswitch-ndr.toml --gpus 8 --gpu-memory 80GB --global-batch 8 --sequence 16 --efficiency measured",
    ));
    let planned = plan.arg("--products").arg(&record).output().unwrap();
    let text = String::from_utf8_lossy(&planned.stdout);
    assert!(planned.status.success(), "{text}{}", String::from_utf8_lossy(&planned.stderr));
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in ["Matrix products are measured", "with cuBLAS 12.8.4", "SYNTHETIC"] {
        assert!(words.contains(said), "`{said}` is not in {text}");
    }
}

#[test]
fn the_time_of_a_product_is_without_the_time_that_the_host_takes_to_launch_it() {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let _concurrent = concurrent();
    let slow = "slow_host call=gemm microseconds=50000";
    ending(products(folder.path(), "run", "'float32'", "", slow, true), 60).ended_with(0);
    let written = lines(&record);
    let measured = of_kind(&written, "product");
    assert!(!measured.is_empty());
    for line in measured {
        let times = line["slowest_nanoseconds"].as_array().unwrap();
        let least = times.iter().filter_map(|time| time.as_u64()).min().unwrap();
        assert!(least < 50_000_000, "a launch of 50 ms is in {line}");
    }
}

#[test]
fn products_that_no_device_can_hold_are_skipped_with_the_reason_and_the_others_are_measured() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), TINY).unwrap();
    let suite = folder.path().join("suite.toml");
    let text = "[measure]\ncase_budget = '1ms'\nreplicates = 1\n[[compute]]\nmodel = { config = 'config.json' }\n\
                sequence = 16\ntp = 2\nmicro_batch = [1, 100000]\nelement_types = ['bfloat16']\n";
    std::fs::write(&suite, text).unwrap();
    let record = record_in(&folder);
    let mut command = launcher(2);
    command.arg(SUITE).arg(&suite).args(["--backend", "nccl", "--quiet", "--record"]).arg(&record);
    with_doubles(&mut command, 2).env("COMMGAUGE_DOUBLE_MEMORY", "536870912");
    with_cublas(&mut command);
    let _concurrent = concurrent();
    Ran::of(&mut command, 60).ended_with(0);
    let written = lines(&record);
    let of_rows = |wanted: fn(u64) -> bool| {
        of_kind(&written, "product").into_iter().filter(move |line| wanted(line["product"]["m"].as_u64().unwrap()))
    };
    assert!(of_rows(|rows| rows == 16).all(|line| line["outcome"]["status"] == "measured"), "{written:?}");
    assert!(of_rows(|rows| rows > 16).count() > 2);
    for line in of_rows(|rows| rows > 16) {
        let reason = line["outcome"]["reason"].as_str().unwrap_or_default();
        assert!(reason.starts_with("needs ") && reason.contains(" available on rank "), "{line}");
    }
    let report = Command::new(COMMGAUGE).arg("report").arg(&record).output().unwrap();
    let text = String::from_utf8_lossy(&report.stdout);
    assert!(text.contains("4 synthetic, ") && text.contains(" skipped"), "{text}");
}

#[test]
fn what_goes_wrong_in_products_on_gpus_or_is_missing_is_named_and_has_its_code() {
    let folder = tempfile::tempdir().unwrap();
    let _concurrent = concurrent();
    let named = "product of 16 x ";
    let device = "rank 1, host ";
    for wave in [
        // The first product is warmed up twice, then repeated at least three times.
        [
            ("corrupt", "'bfloat16'", "", "corrupt rank=1 call=gemm op=3-", true, 4, &[][..], 8),
            (
                "error",
                "'float32'",
                "",
                "error rank=1 call=gemm op=12 code=14",
                true,
                6,
                &[named, device, "CUBLAS_STATUS_INTERNAL_ERROR"],
                0,
            ),
            (
                "hang",
                "'float32'",
                "--timeout 2",
                "hang rank=1 call=gemm op=12",
                true,
                5,
                &["no progress within 2.00 s", "device 1 ("],
                0,
            ),
            (
                "alone",
                "'float32'",
                "--timeout 2 --no-watchdog",
                "hang rank=1 call=gemm op=12",
                true,
                5,
                &[named, device, "not done within 2 s; aborted"],
                0,
            ),
        ],
        [
            ("memory", "'float32'", "", "out_of_memory rank=1 allocation=2", true, 6, &[], 8),
            (
                "missing",
                "'float32'",
                "",
                "",
                false,
                2,
                &["libcublas.so.12: ", "pip install nvidia-cublas", "--cublas-library"],
                0,
            ),
            (
                "other",
                "'float32'",
                "--cublas-library libc.so.6",
                "",
                false,
                2,
                &["libc.so.6 is not a usable cuBLAS"],
                0,
            ),
            (
                "type",
                "'fp8_e4m3'",
                "",
                "",
                true,
                2,
                &["found fp8_e4m3; accepted: float16, bfloat16, float32, float64"],
                0,
            ),
        ],
    ] {
        let started = wave.map(|row| products(folder.path(), row.0, row.1, row.2, row.3, row.4));
        for ((name, _, _, _, _, code, said, fewest), started) in wave.into_iter().zip(started) {
            let ran: Ran = ending(started, 25).ended_with(code);
            for words in said {
                assert!(ran.stderr.contains(words), "{name}: `{words}` is not in\n{}", ran.stderr);
            }
            let record = folder.path().join(format!("{name}.jsonl"));
            assert_eq!(record.exists(), code != 2, "{name}");
            if code == 2 {
                continue;
            }
            let lines = lines(&record);
            let written = of_kind(&lines, "product");
            assert!(written.len() >= fewest, "{name}: {} lines", written.len());
            let status = match name {
                "corrupt" => "corrupt",
                "memory" => "failed",
                _ => continue,
            };
            assert!(written.iter().any(|line| line["outcome"]["status"] == status), "{name}");
            assert!(
                name == "memory"
                    || written
                        .iter()
                        .all(|line| line["outcome"]["status"] == "corrupt" && line["outcome"]["rank"] == 1)
            );
        }
    }
}
