//! Tests of the whole check on sheets that were made up: launchers, hosts, devices, limits, and thousands of ranks.

use super::*;
use crate::launch_check::told::told;
use crate::world::SoloWorld;

fn places(hosts: &[&str]) -> Places {
    Places { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), doubts: Vec::new() }
}

/// The report on ranks with these sheets.
fn checked(sheets: &[Sheet], hosts: &[&str], asked: Asked) -> LaunchReport {
    let ranks = sheets.len() as u32;
    let all: Vec<Compact> = (0..).zip(sheets).map(|(rank, sheet)| sheet.compact(rank, ranks)).collect();
    let mut texts = Texts::new();
    for (sheet, compact) in sheets.iter().zip(&all) {
        for fact in Fact::ALL {
            if let Some(text) = sheet.text(fact) {
                texts.insert((fact, compact.hash(fact)), text.to_owned());
            }
        }
    }
    report(&all, &texts, &places(hosts), asked, Names { ranks: Some("OMPI_COMM_WORLD_SIZE"), ..Names::default() })
}

/// A rank with its own core and the given launcher variables.
fn sheet(core: u32, said: &[(&'static str, String)]) -> Sheet {
    let environment = |name: &str| said.iter().find(|one| one.0 == name).map(|one| one.1.clone());
    let mut sheet = Sheet {
        told: told(&environment),
        cores: core.to_string(),
        cores_usable: 1,
        cores_online: 8,
        memory_lock_bytes: None,
        open_files: None,
        ..Sheet::default()
    };
    sheet.set(Fact::Program, "aa");
    sheet
}

#[test]
fn a_launch_without_fault_has_nothing_to_say() {
    let rank =
        |rank: u32| sheet(rank, &[("OMPI_COMM_WORLD_SIZE", "2".into()), ("OMPI_COMM_WORLD_RANK", rank.to_string())]);
    let report = checked(&[rank(0), rank(1)], &["a", "a"], Asked::default());
    assert_eq!((report.refusals.len(), report.warnings.len()), (0, 0), "{report:?}");
    assert_eq!((report.hosts.len(), report.hosts[0].binding.as_str()), (1, "own cores"));
}

#[test]
fn a_launcher_that_counts_other_ranks_is_refused_by_its_variable() {
    let rank = |core| sheet(core, &[("OMPI_COMM_WORLD_SIZE", "8".into())]);
    let report = checked(&[rank(0), rank(1)], &["a", "a"], Asked::default());
    assert!(
        report.refusals[0].contains("the launcher reports 8 ranks (OMPI_COMM_WORLD_SIZE), MPI reports 2"),
        "{report:?}"
    );
    let swapped = |rank: u32| sheet(rank, &[("PMI_RANK", (1 - rank).to_string())]);
    let report = checked(&[swapped(0), swapped(1)], &["a", "a"], Asked::default());
    assert!(report.refusals[0].contains("2 ranks have another number"), "{report:?}");
}

#[test]
fn a_launcher_that_counts_hosts_differently_is_told() {
    let rank = |core| sheet(core, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2".into())]);
    let report = checked(&[rank(0), rank(1)], &["a#1", "a#2"], Asked::default());
    assert!(report.warnings[0].contains("the launcher reports 2 ranks on the host of a#1, 1 were found"), "{report:?}");
}

#[test]
fn ranks_on_one_device_are_refused_unless_they_may_share_it() {
    let on = |core, uuid: &str| {
        let mut sheet = sheet(core, &[]);
        sheet.set(Fact::DeviceUuid, uuid);
        sheet
    };
    let ranks = [on(0, "GPU-1"), on(1, "GPU-2"), on(2, "GPU-1")];
    let report = checked(&ranks, &["a", "a", "a"], Asked::default());
    assert!(report.refusals[0].contains("ranks 0, 2 of host a are on one device (GPU-1)"), "{report:?}");
    let report = checked(&ranks, &["a", "a", "a"], Asked { shared_devices: true, ..Asked::default() });
    assert_eq!((report.refusals.len(), report.warnings.len()), (0, 1));
}

#[test]
fn a_refusal_that_may_be_waived_says_how() {
    let with = |text: &str| {
        let mut sheet = sheet(0, &[]);
        sheet.set(Fact::Environment, text);
        sheet
    };
    let ranks = [with("NCCL_ALGO=Ring"), with("NCCL_ALGO=Tree")];
    let refused = checked(&ranks, &["a", "b"], Asked::default());
    assert!(refused.refusals.last().unwrap().contains("--allow-mixed"), "{refused:?}");
    let allowed = checked(&ranks, &["a", "b"], Asked { mixed: true, ..Asked::default() });
    assert_eq!(allowed.refusals, Vec::<String>::new());
    assert!(allowed.warnings.iter().any(|text| text.contains("NCCL_ALGO")));
}

#[test]
fn sixteen_thousand_ranks_are_told_in_a_few_lines() {
    let ranks = 16_384u32;
    let sheets: Vec<Sheet> = (0..ranks)
        .map(|rank| {
            let mut sheet = sheet(rank % 8, &[]);
            sheet.set(Fact::Environment, format!("NCCL_ALGO={}", rank % 2));
            sheet.memory_lock_bytes = (rank >= 8).then_some(1 << 16);
            sheet.cores = "0-63".into();
            sheet
        })
        .collect();
    let hosts: Vec<String> = (0..ranks).map(|rank| format!("node{}", rank / 8)).collect();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    let report = checked(&sheets, &hosts, Asked::default());
    assert_eq!((report.hosts.len(), report.differences.len()), (2048, 1));
    let said = report.refusals.join("\n") + &report.warnings.join("\n");
    assert!(said.len() < 4000, "{} characters: {said}", said.len());
    assert!(said.contains("64 KiB on node1, node2, node3, node4 and 2043 more"), "{said}");
    assert!(said.contains("so on 2045 hosts more"), "{said}");
}

#[test]
fn a_single_process_is_checked_against_itself() {
    let mut sheet = sheet(0, &[]);
    sheet.set(Fact::Environment, "NCCL_ALGO=Ring");
    let report = inspect(&SoloWorld, &sheet, &places(&["a"]), Asked::default()).unwrap().unwrap();
    assert_eq!(report.refusals, Vec::<String>::new());
    assert!(report.shared.iter().any(|one| one.what == "environment" && one.value == "NCCL_ALGO=Ring"), "{report:?}");
}
