//! Tokens that a router sends to experts, and the results, arrive unchanged between real ranks, however unevenly they
//! are divided. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{Ran, SWEEP, launcher, lines, of_kind, record_in, words};
use serde_json::Value;

const HOW: &str = "all_to_all_v -n 2 -w 0 --replicates 1 --cadence streaming --warm-buffers";

/// Runs a sweep in which every case must be verified, and returns the facts of its cases.
fn sweep(ranks: u32, flags: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(ranks);
    command.arg(SWEEP).args(words(&format!("{HOW} {flags} --quiet --record"))).arg(&record);
    Ran::of(&mut command, 90).ended_with(0);
    let lines = lines(&record);
    for case in of_kind(&lines, "case") {
        assert_eq!(case["outcome"]["status"], "measured", "{case}");
        assert_eq!(case["outcome"]["verified"], true, "{case}");
    }
    of_kind(&lines, "plan")[0]["cases"].as_array().unwrap().clone()
}

#[test]
fn every_routing_arrives_there_and_back_on_2_3_and_4_ranks() {
    for ranks in [2, 3, 4] {
        for routing in ["uniform", "zipf:1.2", "hot:0.5", "random"] {
            let back = if ranks == 3 { ",back" } else { "" };
            let flags = format!(
                "-b 1003 -e 70001 -i 68998 -d bfloat16,fp8_e4m3,float32 --splits routed:{routing},experts=12,k=2"
            );
            assert_eq!(sweep(ranks, &format!("{flags}{back}")).len(), 6, "{routing} on {ranks}");
        }
    }
    assert_eq!(sweep(4, "-b 70001 -e 70001 --splits routed:random,experts=8,k=2,back").len(), 1);
}

#[test]
fn ranks_that_get_nothing_and_tokens_that_are_dropped_do_no_harm() {
    // Two copies among four experts: two ranks receive none, and on the way back send none.
    for back in ["", ",back"] {
        let few = sweep(4, &format!("-b 8 -e 8 --splits routed:uniform,experts=4,k=2{back}"));
        assert_eq!(few[0]["bytes_total"], 8);
    }
    // 48 of 96 copies of 10 floats would be sent to the first of 4; it accepts ceil(24 x 1.25) = 30 from each.
    let capped = sweep(4, "-b 3840 -e 3840 --splits routed:hot:0.5,experts=4,k=2,hidden=10,capacity=1.25");
    assert_eq!(capped[0]["bytes_accounted"], 4 * 30 * 40);
    let name = capped[0]["name"].as_str().unwrap();
    assert!(name.contains("/routed-hot-0.5-experts4-k2-hidden10-capacity1.25/"), "{name}");
    assert_eq!(capped[0]["splits"]["routed"]["capacity_factor"], 1.25);
}

#[test]
fn experts_that_do_not_come_out_even_are_refused_before_anything_runs() {
    let mut command = launcher(3);
    command.arg(SWEEP).args(words(&format!("{HOW} -b 1K -e 1K --splits routed:uniform,experts=8,k=2")));
    Ran::of(&mut command, 60)
        .ended_with(2)
        .printed_error("8 experts do not divide evenly over 3 ranks; nearest that do: 6 or 9");
}
