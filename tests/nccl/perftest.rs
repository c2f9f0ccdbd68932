//! `--perftest`: `ib_write_bw` between two hosts next to the messages of NCCL, whatever it answers. It is a script here, hosts are names on
//! this machine, and NCCL is a stand-in. Needs the launcher of the MPI that was built with.

use crate::common;

use common::doubles::with_doubles;
use common::{COMMGAUGE, PAIRS, Ran, launcher, lines, of_kind, record_in, skipped, words};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What every `ib_write_bw` here does after the line with its usage: which server it writes to, and that it was called, in a folder of all hosts.
const BEGINNING: &str = r#"
here=$(dirname "$0")/..
for word; do case $word in --help) echo "$USAGE"; exit 1 ;; --out_json_file=*) file=${word#*=} ;; esac; done
for server; do :; done
case $server in host*) ;; *) server= ;; esac
echo "$(hostname): $*" >>"$here/calls"
"#;

/// The newest, on a fast link: the side that is written to waits for the other one.
const GOOD: &str = r#"USAGE="--out_json --use_cuda_bus_id"
if [ -z "$server" ]; then
    touch "$here/listens"
    while [ ! -e "$here/written" ]; do sleep 0.05; done
    rm "$here/written" "$here/listens"
    exit 0
fi
[ -e "$here/listens" ] || { echo "Couldn't connect to $server:18515" >&2; exit 1; }
printf '{\n"test_info": {\n"test": "RDMA_Write_BW_Test",\n"Device": "mlx5_7"\n},\n"results": {\n"MsgSize": 1048576,\n' >"$file"
printf '"n_iterations": 9,\n"BW_peak": 0.00,\n"BW_average": 368.00,\n"MsgRate": 0.04\n}\n}\n' >>"$file"
touch "$here/written"
"#;

/// A run of all pairs on two hosts of a rank each, where `ib_write_bw` of each host does this; `None` where hosts cannot be named.
fn run(programs: [Option<&str>; 2], flags: &str, code: i32) -> Option<(Vec<Value>, String, String)> {
    if !Command::new("unshare").args(["--uts", "true"]).status().is_ok_and(|status| status.success()) {
        skipped("perftest on two hosts", "this user may not make host names of its own");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    for (host, text) in programs.into_iter().enumerate() {
        let file = folder.path().join(format!("bin{host}/ib_write_bw"));
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        let Some(text) = text else { continue };
        let (usage, rest) = text.split_once('\n').unwrap();
        std::fs::write(&file, format!("#!/bin/sh\n{usage}{BEGINNING}{rest}")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let (record, bins) = (record_in(&folder), folder.path().join("bin"));
    let host = r#"rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; export PATH="$0$rank:$PATH"; exec unshare --uts sh -c 'hostname "$0"; exec "$@"' host$rank "$@""#;
    let mut command = launcher(2);
    command.args(["sh", "-c", host]).arg(bins).arg(PAIRS);
    command
        .args(words("--backend nccl --replicates 1 -n 2 -w 1 --bandwidth-bytes 64KiB --timeout 60 --quiet"))
        .args(words(flags));
    let ran = Ran::of(with_doubles(command.arg("--record").arg(&record), 1), 180).ended_with(code);
    if code != 0 {
        return Some((Vec::new(), ran.stderr, String::new()));
    }
    let written = of_kind(&lines(&record), "perftest").into_iter().cloned().collect();
    let calls = std::fs::read_to_string(folder.path().join("calls")).unwrap_or_default();
    Some((written, judged(&record), calls))
}

/// What `judge` and `report` say; both must have every sentence about the adapters.
fn judged(record: &Path) -> String {
    let [judge, report] = ["judge", "report"].map(|verb| {
        let ran = Ran::of(Command::new(COMMGAUGE).env("NO_COLOR", "1").env("COLUMNS", "400").arg(verb).arg(record), 60);
        ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    });
    assert!(report.contains("ib_write_bw"), "{report}");
    judge
}

#[test]
fn what_fails_on_one_of_two_hosts_is_said_with_host_and_reason_and_never_guessed() {
    let old = "USAGE=\"-d -F\"\n";
    let no_link = "USAGE=--out_json\n[ -n \"$server\" ] || exec sleep 60\necho 'Unable to Connect the HCAs through the link' >&2\nexit 1\n";
    let broken = GOOD.replace("\"results\": {", "\"results\" {");
    let without = GOOD.replace("BW_average", "bw_mean");
    let port = "USAGE=--out_json\necho \"Couldn't listen to port 18515\" >&2\nexit 1\n";
    for (programs, expected) in [
        ([None, Some(GOOD)], "host0: ib_write_bw of perftest is not on PATH"),
        ([Some(GOOD), None], "host1: ib_write_bw of perftest is not on PATH"),
        ([Some(GOOD), Some(old)], "host1: ib_write_bw has no --out_json; accepted: perftest from 2021 on"),
        (
            [Some(no_link), Some(no_link)],
            "host1: ib_write_bw ended with 1: Unable to Connect the HCAs through the link",
        ),
        ([Some(port), Some(GOOD)], "host0: ib_write_bw ended with 1: Couldn't listen to port 18515"),
        ([Some(GOOD), Some(&broken)], "host1: JSON of ib_write_bw is broken: expected `:` at line 6"),
        ([Some(GOOD), Some(&without)], "host1: JSON of ib_write_bw has no results.BW_average"),
    ] {
        let Some((written, judged, _)) = run(programs, "--perftest=mlx5_7", 0) else { return };
        assert!(!written.is_empty() && written.iter().all(|line| line["bytes_per_second"].is_null()), "{written:?}");
        let problem = written[0]["problem"].as_str().unwrap();
        assert!(problem.contains(expected), "{problem}");
        assert!(
            judged.contains(&format!("ib_write_bw from mlx5_7 of host1 to mlx5_7 of host0: {problem}")),
            "{judged}"
        );
    }
}

#[test]
fn without_known_adapters_or_a_second_host_nothing_is_measured() {
    let Some((_, said, _)) = run([Some(GOOD); 2], "--perftest", 2) else { return };
    assert!(said.contains("no active adapter next to the GPUs; name some, such as --perftest=mlx5_0"), "{said}");
    let mut one = launcher(2);
    one.arg(PAIRS).args(words("--backend nccl --replicates 1 -n 2 --quiet --perftest=mlx5_0"));
    let ran = Ran::of(with_doubles(&mut one, 2), 60).ended_with(2);
    assert!(
        ran.stderr.contains("--perftest: found one host; accepted: two or more, such as --hosts A:8,B:8"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_fast_adapter_next_to_slow_messages_tells_that_the_link_is_fine_in_host_memory_and_by_gpudirect() {
    let Some((written, judged, calls)) = run([Some(GOOD); 2], "--perftest=mlx5_7", 0) else { return };
    let rates: Vec<&Value> = written.iter().map(|line| &line["bytes_per_second"]).collect();
    assert_eq!(rates, [&serde_json::json!(46e9); 2], "{written:?}");
    assert_eq!((written[0]["gpudirect"].is_null(), &written[1]["gpudirect"]), (true, &Value::Bool(true)));
    for words in [
        "ib_write_bw from mlx5_7 of host1 to mlx5_7 of host0 46.0 GB/s: the link carries more, look at NCCL",
        "ib_write_bw by GPUDirect from mlx5_7 of host1 to mlx5_7 of host0 46.0 GB/s",
    ] {
        assert!(judged.contains(words), "{judged}");
    }
    let served = "host0: -d mlx5_7 -F --report_gbits -s 1048576 -D 3\n";
    let of_gpu = "host0: -d mlx5_7 -F --report_gbits -s 1048576 -D 3 --use_cuda_bus_id=0000:10:00.0\n";
    assert!(calls.contains(served) && calls.contains(of_gpu), "{calls}");
    assert!(calls.lines().any(|call| call.starts_with("host1: -d mlx5_7") && call.ends_with(".json host0")), "{calls}");
}
