//! Tests of the messages about differences between ranks.

use super::*;
use crate::launch_check::RankProfile;

const MIXED: Allowances = Allowances { mixed: true, shared_devices: false };

/// Compares ranks with these texts.
fn compared(ranks: &[&[(Fact, &str)]], allowed: Allowances) -> Compared {
    let mut texts = Texts::new();
    let mut all = Vec::new();
    for facts in ranks {
        let mut profile = RankProfile::default();
        facts.iter().for_each(|(fact, text)| profile.set(*fact, *text));
        let compact = profile.compact(0, ranks.len() as u32);
        facts.iter().for_each(|(fact, text)| drop(texts.insert((*fact, compact.hash(*fact)), (*text).to_owned())));
        all.push(compact);
    }
    compare(&all, &texts, allowed)
}

#[test]
fn differences_are_refused_warned_of_or_noted_by_fact() {
    use Fact::{DeviceModel, Environment, Kernel, MpiLibrary, Program, Suite};
    for (first, second, refused, warned, expected) in [
        (
            (Program, "aa"),
            (Program, "bb"),
            true,
            false,
            "do not run the same program (SHA-256 of its binary): aa on rank 0; bb on rank 1",
        ),
        ((Suite, "aa"), (Suite, "bb"), true, false, "do not run the same suite"),
        ((MpiLibrary, "Open MPI 4.1.4"), (MpiLibrary, "Open MPI 4.1.6"), true, false, "have the same MPI library"),
        (
            (Environment, "NCCL_ALGO=Ring\nUCX_TLS=tcp"),
            (Environment, "UCX_TLS=tcp"),
            true,
            false,
            "have the same NCCL_ALGO: Ring on rank 0; not set on rank 1",
        ),
        ((Environment, "OMP_NUM_THREADS=1"), (Environment, ""), true, false, "not set on rank 1"),
        (
            (Environment, "UCX_NET_DEVICES=mlx5_0"),
            (Environment, "UCX_NET_DEVICES=mlx5_1"),
            false,
            false,
            "have the same UCX_NET_DEVICES",
        ),
        ((Environment, "CUDA_VISIBLE_DEVICES=0"), (Environment, "CUDA_VISIBLE_DEVICES=1"), false, false, ""),
        (
            (DeviceModel, "H100"),
            (DeviceModel, "H200"),
            false,
            true,
            "have the same device: H100 on rank 0; H200 on rank 1",
        ),
        ((Kernel, "5.10"), (Kernel, "6.1"), false, false, ""),
    ] {
        let compared = compared(&[&[first], &[second]], Allowances::default());
        assert_eq!(
            (compared.refusals.len(), compared.warnings.len()),
            (usize::from(refused), usize::from(warned)),
            "{first:?}"
        );
        assert_eq!(compared.differences.len(), 1);
        assert_eq!(compared.differences[0].refused, refused);
        let messages = [compared.refusals, compared.warnings, compared.notes].concat().concat();
        assert!(messages.contains(expected), "{messages}");
    }
}

#[test]
fn mixed_environments_may_be_allowed_but_never_mixed_programs() {
    let ranks: [&[(Fact, &str)]; 2] =
        [&[(Fact::Environment, "NCCL_ALGO=Ring")], &[(Fact::Environment, "NCCL_ALGO=Tree")]];
    assert!(compared(&ranks, Allowances::default()).could_be_allowed);
    let allowed = compared(&ranks, MIXED);
    assert_eq!((allowed.refusals.len(), allowed.warnings.len()), (0, 1));
    for never in [Fact::Program, Fact::NcclVersion] {
        let refused = compared(&[&[(never, "a")], &[(never, "b")]], MIXED);
        assert_eq!((refused.refusals.len(), refused.could_be_allowed), (1, false));
    }
    // A flag that would not help is not suggested.
    let both: [&[(Fact, &str)]; 2] = [
        &[(Fact::NcclVersion, "2.30.7"), (Fact::NcclFile, "/a")],
        &[(Fact::NcclVersion, "2.27.3"), (Fact::NcclFile, "/b")],
    ];
    let refused = compared(&both, Allowances::default());
    assert_eq!((refused.refusals.len(), refused.could_be_allowed), (2, false));
}

#[test]
fn ranks_with_the_same_value_are_grouped_even_if_other_lines_differ() {
    let environment = |text| [(Fact::Environment, text)];
    let [a, b, c] = ["A=1\nNCCL_ALGO=Ring", "NCCL_ALGO=Ring", "NCCL_ALGO=Tree"].map(environment);
    let compared = compared(&[&a, &b, &c, &a], Allowances::default());
    let algorithm = compared.differences.iter().find(|one| one.what == "NCCL_ALGO").unwrap();
    let values: Vec<(&str, &str)> =
        algorithm.values.iter().map(|one| (one.value.as_str(), one.ranks.as_str())).collect();
    assert_eq!(values, [("Ring", "0, 1, 3"), ("Tree", "2")]);
}

#[test]
fn a_fact_that_a_rank_does_not_have_is_not_compared() {
    let compared =
        compared(&[&[(Fact::Suite, "aa"), (Fact::Processor, "x")], &[(Fact::Processor, "x")]], Allowances::default());
    assert_eq!((compared.refusals.len(), compared.differences.len()), (0, 0));
    assert!(compared.shared.iter().any(|one| one.what == "processor" && one.value == "x"));
}
