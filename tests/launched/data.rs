//! Every collective, element type, reduce operation, placement, root and kind of splits carries the right bytes between real
//! ranks. Needs the launcher of the MPI that was built with.

use crate::common;

use commgauge::collective::{Collective, ReduceOp};
use commgauge::element::ElementType;
use common::{Ran, SWEEP, launcher, lines, of_kind, record_in, words};
use serde_json::Value;
use std::collections::BTreeSet;

/// Runs a sweep and returns the facts of the measured cases, after checking every case line.
fn sweep(ranks: u32, flags: &str) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let record = record_in(&folder);
    let mut command = launcher(ranks);
    command.arg(SWEEP).args(words(flags)).args(["--quiet", "--record"]).arg(&record);
    Ran::of(&mut command, 90).ended_with(0);

    let lines = lines(&record);
    let plan = &of_kind(&lines, "plan")[0];
    let planned = plan["cases"].as_array().unwrap();
    let cases = of_kind(&lines, "case");
    assert_eq!(cases.len() as u64, plan["case_lines"].as_u64().unwrap(), "every case has its line");
    let mut measured = Vec::new();
    for case in cases {
        let facts = &planned[case["case"].as_u64().unwrap() as usize];
        if case["outcome"]["status"] == "skipped" {
            assert_skipped_for_a_reason(facts, case["outcome"]["reason"].as_str().unwrap());
            continue;
        }
        assert_eq!(case["outcome"]["status"], "measured", "{case}");
        assert_eq!(case["outcome"]["verified"], facts["collective"] != "barrier", "{case}");
        measured.push(facts.clone());
    }
    measured
}

/// The one thing that cannot be run here is a reduction of an 8-bit float.
fn assert_skipped_for_a_reason(facts: &Value, reason: &str) {
    let collective: Collective = facts["collective"].as_str().unwrap().parse().unwrap();
    let element: ElementType = facts["element_type"].as_str().unwrap().parse().unwrap();
    assert!(collective.reduces() && element.moves_only(), "{facts}: {reason}");
    assert!(reason.contains("can only move it"), "{reason}");
}

/// The values of a key over the cases of one collective.
fn seen(measured: &[Value], collective: Collective, key: &str) -> BTreeSet<String> {
    let of_it = measured.iter().filter(|facts| facts["collective"] == collective.name());
    of_it.map(|facts| facts[key].to_string().trim_matches('"').to_owned()).collect()
}

/// Every element type, operation, placement and root that a collective can take was measured.
fn assert_complete(measured: &[Value], roots: &[u32]) {
    for collective in Collective::ALL {
        let names = |names: &mut dyn Iterator<Item = &'static str>| names.map(str::to_owned).collect::<BTreeSet<_>>();
        if collective != Collective::Barrier {
            let types = ElementType::ALL.into_iter().filter(|element| !(collective.reduces() && element.moves_only()));
            assert_eq!(seen(measured, collective, "element_type"), names(&mut types.map(ElementType::name)));
        }
        if collective.reduces() {
            assert_eq!(
                seen(measured, collective, "reduce_op"),
                names(&mut ReduceOp::ALL.map(ReduceOp::name).into_iter())
            );
        }
        if collective.has_root() {
            let roots: BTreeSet<String> = roots.iter().map(u32::to_string).collect();
            assert_eq!(seen(measured, collective, "root"), roots, "{collective}");
        }
        assert_eq!(seen(measured, collective, "placement").len(), collective.placements().len(), "{collective}");
    }
}

/// 52 B and 1003 B: neither divides by the ranks, nor by the elements.
const EVERYTHING: &str =
    "all -b 52 -e 1003 -i 951 -d all -o all -n 2 -w 0 --replicates 1 --cadence streaming --warm-buffers";

#[test]
fn everything_that_can_be_carried_comes_out_verified_on_2_ranks_with_equal_splits() {
    assert_complete(&sweep(2, &format!("{EVERYTHING} -r all")), &[0, 1]);
}

#[test]
fn everything_that_can_be_carried_comes_out_verified_on_3_ranks_with_skewed_splits() {
    assert_complete(&sweep(3, &format!("{EVERYTHING} -r 0,2 --splits skewed:1.5")), &[0, 2]);
}

#[test]
fn everything_that_can_be_carried_comes_out_verified_on_4_ranks_with_given_splits() {
    assert_complete(&sweep(4, &format!("{EVERYTHING} -r 1,3 --splits given:3,1,2,1")), &[1, 3]);
}

#[test]
fn isolated_iterations_on_cold_buffers_come_out_verified() {
    let measured = sweep(2, "all -b 1003 -e 1003 -d bfloat16 -o avg -n 3 -w 1 --replicates 1 --cadence isolated");
    assert!(
        Collective::ALL.iter().all(|collective| measured.iter().any(|facts| facts["collective"] == collective.name()))
    );
}

#[test]
fn ranks_without_a_share_of_a_vector_form_take_part() {
    // One collective for each launch: a rank without a share must not find the buffer of an earlier case.
    for collective in ["all_gather_v", "reduce_scatter_v", "all_to_all_v"] {
        for splits in ["given:1,0,2", "given:0,0,1"] {
            let how = "-b 64 -e 64 -o avg -n 2 -w 0 --replicates 2 --cadence streaming --warm-buffers";
            let flags = format!("{collective} {how} --splits {splits}");
            assert!(!sweep(3, &flags).is_empty(), "{flags}");
        }
    }
}
