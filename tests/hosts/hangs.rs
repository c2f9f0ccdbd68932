//! On two hosts: a rank of the other host that is stopped or killed is named with its host, and the record has an honest end.
//! Needs the launcher of the MPI that was built with, and the right to make namespaces; skipped without.

use crate::common;

use common::hosts::VirtualCluster;
use common::{Ran, SWEEP, lines, of_kind, wait_until, words};

#[test]
fn a_rank_of_another_host_is_named_with_its_host() {
    let Some(cluster) = VirtualCluster::up_for_ranks("hangs", 2, "1gbit", &[]) else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (kind, state, code) in [("stop", "stopped_answering", 5), ("hang", "never_entered", 5), ("kill", "died", 6)] {
        let record = folder.path().join(format!("{kind}.jsonl"));
        let flags = "all_reduce -b 64 -e 64 -n 100 -w 5 --cadence streaming --placement out --warm-buffers --replicates 9 --timeout 3 --inject-fault";
        let mut command = cluster.command(4, 2, SWEEP);
        command.args(words(flags)).arg(format!("3:{kind}:300")).arg("--record").arg(&record);
        let ran = Ran::of(&mut command, 90);
        assert_ne!(ran.code, Some(0), "{}", ran.stderr);
        wait_until(5, "the record has its end", || lines(&record).last().is_some_and(|line| line["line"] == "end"));
        let lines = lines(&record);
        let hang = of_kind(&lines, "hang").first().copied().cloned().unwrap_or_default();
        assert_eq!(hang["suspects"], "3", "{kind}: {hang}\n{}", ran.stderr);
        let held = hang["ranks"].as_array().unwrap().iter().find(|held| held["state"] == state).unwrap().clone();
        assert_eq!(held["hosts"], serde_json::json!(["host1"]), "{kind}");
        assert_eq!(lines.last().unwrap()["exit_code"], code, "{kind}");
    }
}
