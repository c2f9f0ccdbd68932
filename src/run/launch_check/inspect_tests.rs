//! Tests of the complete check on synthetic profiles: launchers, hosts, devices, limits, and thousands of ranks.

use super::*;
use crate::launch_check::launcher_env::launcher_env;
use crate::world::SoloWorld;

fn rank_hosts(hosts: &[&str]) -> RankHosts {
    RankHosts { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..RankHosts::default() }
}

/// The report on ranks with these profiles.
fn checked(profiles: &[RankProfile], hosts: &[&str], allowed: Allowances) -> LaunchReport {
    let ranks = profiles.len() as u32;
    let all: Vec<Compact> = (0..).zip(profiles).map(|(rank, profile)| profile.compact(rank, ranks)).collect();
    let mut texts = Texts::new();
    for (profile, compact) in profiles.iter().zip(&all) {
        for fact in Fact::ALL {
            if let Some(text) = profile.text(fact) {
                texts.insert((fact, compact.hash(fact)), text.to_owned());
            }
        }
    }
    report(
        &all,
        &texts,
        &rank_hosts(hosts),
        allowed,
        VariableNames { ranks: Some("OMPI_COMM_WORLD_SIZE"), ..VariableNames::default() },
    )
}

/// A rank with its own core and the given launcher variables.
fn profile(core: u32, messages: &[(&'static str, String)]) -> RankProfile {
    let environment = |name: &str| messages.iter().find(|one| one.0 == name).map(|one| one.1.clone());
    let mut profile = RankProfile {
        launcher_env: launcher_env(&environment),
        cores: core.to_string(),
        cores_usable: 1,
        cores_online: 8,
        memory_lock_bytes: None,
        open_files: None,
        ..RankProfile::default()
    };
    profile.set(Fact::Program, "aa");
    profile
}

#[test]
fn a_correct_launch_has_no_messages() {
    let rank =
        |rank: u32| profile(rank, &[("OMPI_COMM_WORLD_SIZE", "2".into()), ("OMPI_COMM_WORLD_RANK", rank.to_string())]);
    let report = checked(&[rank(0), rank(1)], &["a", "a"], Allowances::default());
    assert_eq!((report.refusals.len(), report.warnings.len()), (0, 0), "{report:?}");
    assert_eq!((report.hosts.len(), report.hosts[0].binding.as_str()), (1, "own cores"));
}

#[test]
fn hosts_with_unequal_numbers_of_gpus_are_warned_of_and_those_without_gpus_are_not() {
    let launched = |gpus: bool| {
        let ranks: Vec<RankProfile> = (0..3)
            .map(|rank| {
                let mut profile = profile(rank, &[]);
                if gpus {
                    profile.set(Fact::DeviceUuid, format!("GPU-{rank}"));
                }
                profile
            })
            .collect();
        checked(&ranks, &["a", "a", "b"], Allowances::default()).warnings
    };
    let [warning] = launched(true).try_into().unwrap();
    assert!(warning.starts_with("host b has 1 ranks with a GPU and host a has 2: NCCL may hang"), "{warning}");
    assert_eq!(launched(false), Vec::<String>::new());
}

#[test]
fn a_launcher_that_counts_other_ranks_is_refused_by_its_variable() {
    let rank = |core| profile(core, &[("OMPI_COMM_WORLD_SIZE", "8".into())]);
    let report = checked(&[rank(0), rank(1)], &["a", "a"], Allowances::default());
    assert!(
        report.refusals[0].contains("the launcher reports 8 ranks (OMPI_COMM_WORLD_SIZE), MPI reports 2"),
        "{report:?}"
    );
    let swapped = |rank: u32| profile(rank, &[("PMI_RANK", (1 - rank).to_string())]);
    let report = checked(&[swapped(0), swapped(1)], &["a", "a"], Allowances::default());
    assert!(report.refusals[0].contains("2 ranks have another number"), "{report:?}");
}

#[test]
fn a_launcher_that_counts_hosts_differently_is_reported() {
    let rank = |core| profile(core, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2".into())]);
    let report = checked(&[rank(0), rank(1)], &["a#1", "a#2"], Allowances::default());
    assert!(report.warnings[0].contains("the launcher reports 2 ranks on the host of a#1, 1 were found"), "{report:?}");
}

#[test]
fn ranks_on_one_device_are_refused_unless_they_may_share_it() {
    let on = |core, uuid: &str| {
        let mut profile = profile(core, &[]);
        profile.set(Fact::DeviceUuid, uuid);
        profile
    };
    let ranks = [on(0, "GPU-1"), on(1, "GPU-2"), on(2, "GPU-1")];
    let report = checked(&ranks, &["a", "a", "a"], Allowances::default());
    assert!(report.refusals[0].contains("ranks 0, 2 of host a are on one device (GPU-1)"), "{report:?}");
    let report = checked(&ranks, &["a", "a", "a"], Allowances { shared_devices: true, ..Allowances::default() });
    assert_eq!((report.refusals.len(), report.warnings.len()), (0, 1));
}

#[test]
fn a_refusal_that_can_be_overridden_names_the_flag() {
    let with = |text: &str| {
        let mut profile = profile(0, &[]);
        profile.set(Fact::Environment, text);
        profile
    };
    let ranks = [with("NCCL_ALGO=Ring"), with("NCCL_ALGO=Tree")];
    let refused = checked(&ranks, &["a", "b"], Allowances::default());
    assert!(refused.refusals.last().unwrap().contains("--allow-mixed"), "{refused:?}");
    let allowed = checked(&ranks, &["a", "b"], Allowances { mixed: true, ..Allowances::default() });
    assert_eq!(allowed.refusals, Vec::<String>::new());
    assert!(allowed.warnings.iter().any(|text| text.contains("NCCL_ALGO")));
}

#[test]
fn sixteen_thousand_ranks_are_reported_in_a_few_lines() {
    let ranks = 16_384u32;
    let profiles: Vec<RankProfile> = (0..ranks)
        .map(|rank| {
            let mut profile = profile(rank % 8, &[]);
            profile.set(Fact::Environment, format!("NCCL_ALGO={}", rank % 2));
            profile.memory_lock_bytes = (rank >= 8).then_some(1 << 16);
            profile.cores = "0-63".into();
            profile
        })
        .collect();
    let hosts: Vec<String> = (0..ranks).map(|rank| format!("node{}", rank / 8)).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let report = checked(&profiles, &hosts, Allowances::default());
    assert_eq!((report.hosts.len(), report.differences.len()), (2048, 1));
    let messages = report.refusals.join("\n") + &report.warnings.join("\n");
    assert!(messages.len() < 4000, "{} characters: {messages}", messages.len());
    assert!(messages.contains("64 KiB on node1, node2, node3, node4 and 2043 more"), "{messages}");
    assert!(messages.contains("so on 2045 hosts more"), "{messages}");
}

#[test]
fn a_single_process_is_checked_against_itself() {
    let mut profile = profile(0, &[]);
    profile.set(Fact::Environment, "NCCL_ALGO=Ring");
    let report = inspect(&SoloWorld, &profile, &rank_hosts(&["a"]), Allowances::default()).unwrap().unwrap();
    assert_eq!(report.refusals, Vec::<String>::new());
    assert!(report.shared.iter().any(|one| one.what == "environment" && one.value == "NCCL_ALGO=Ring"), "{report:?}");
}
