//! Tests of which ranks share a host: the locations of four ranks, the host names they get, and the warnings.

use super::*;

fn rank(host: &str, boot: u64, leader: u32, shared_memory: u64) -> RankLocation {
    RankLocation { host: host.to_owned(), boot, machine: 7, network: 1, user: 1, shared_memory, leader: Some(leader) }
}

#[test]
fn ranks_share_a_host_only_if_all_sources_agree() {
    let two_of = |a: RankLocation, b: RankLocation| vec![a.clone(), a, b.clone(), b];
    for (what, all, hosts, warnings) in [
        ("two machines", two_of(rank("a", 1, 0, 9), rank("b", 2, 2, 9)), ["a", "a", "b", "b"], &[][..]),
        ("one machine", two_of(rank("a", 1, 0, 9), rank("a", 1, 0, 9)), ["a", "a", "a", "a"], &[]),
        (
            "equal names, as in nccl issue 187",
            two_of(rank("localhost", 1, 0, 9), rank("localhost", 2, 2, 9)),
            ["localhost#1", "localhost#1", "localhost#2", "localhost#2"],
            &["2 hosts call themselves localhost (ranks 0, 1 / ranks 2, 3): distinguished by their boot ids"],
        ),
        (
            "equal names that MPI believes",
            two_of(rank("localhost", 1, 0, 9), rank("localhost", 2, 0, 9)),
            ["localhost#1", "localhost#1", "localhost#2", "localhost#2"],
            &["2 hosts call themselves localhost", "MPI takes ranks of different machines for one node"],
        ),
        (
            "containers with names of their own",
            two_of(rank("pod-a", 1, 0, 8), rank("pod-b", 1, 2, 9)),
            ["pod-a", "pod-a", "pod-b", "pod-b"],
            &["hosts pod-a, pod-b have the same boot id: containers of one machine"],
        ),
        (
            "containers with equal names",
            two_of(rank("pod", 1, 0, 8), rank("pod", 1, 0, 9)),
            ["pod#1", "pod#1", "pod#2", "pod#2"],
            &["ranks of host pod see 2 different /dev/shm (ranks 0, 1 / ranks 2, 3)"],
        ),
        (
            "an MPI that was told not to share",
            two_of(rank("a", 1, 0, 9), rank("a", 1, 2, 9)),
            ["a#1", "a#1", "a#2", "a#2"],
            &["MPI finds no shared memory between some ranks of host a"],
        ),
    ] {
        let rank_hosts = resolve(&all);
        assert_eq!(rank_hosts.hosts, hosts, "{what}");
        assert_eq!(rank_hosts.warnings.len(), warnings.len(), "{what}: {:?}", rank_hosts.warnings);
        for (warning, expected) in rank_hosts.warnings.iter().zip(warnings) {
            assert!(warning.contains(expected), "{what}: {warning}");
        }
    }
}

#[test]
fn without_a_boot_id_the_machine_id_distinguishes_hosts_and_that_is_reported() {
    let on = |machine| RankLocation { machine, ..rank("localhost", 0, 0, 9) };
    let rank_hosts = resolve(&[on(5), on(6)]);
    assert_eq!(rank_hosts.hosts, ["localhost#1", "localhost#2"]);
    assert!(rank_hosts.warnings.iter().any(|warning| warning.contains("no boot id")), "{:?}", rank_hosts.warnings);
}

#[test]
fn ranks_of_one_host_in_different_networks_are_named() {
    let rank_hosts = resolve(&[rank("a", 1, 0, 9), RankLocation { network: 2, ..rank("a", 1, 0, 9) }]);
    assert_eq!(rank_hosts.hosts, ["a", "a"]);
    assert!(rank_hosts.warnings[0].contains("different network namespaces (ranks 0, 1)"), "{:?}", rank_hosts.warnings);
}

#[test]
fn ranks_of_one_host_that_may_not_read_each_others_memory_are_noted_with_what_to_set() {
    let alone = |host: &str, user| RankLocation { user, ..rank(host, 1, 0, 9) };
    for (all, expected) in [
        (vec![alone("a", 1), alone("a", 1), alone("b", 2)], None),
        (
            vec![alone("a", 1), alone("a", 2), alone("b", 3)],
            Some("host a are in different user namespaces (ranks 0, 1),"),
        ),
        (
            vec![alone("a", 1), alone("a", 2), alone("b", 3), alone("b", 4), alone("c", 5), alone("c", 6)],
            Some("host a are in different user namespaces (ranks 0, 1, and so on 2 hosts more),"),
        ),
    ] {
        let notes = resolve(&all).notes;
        assert_eq!(notes.len(), expected.iter().count(), "{notes:?}");
        assert!(expected.is_none_or(|words| notes[0].contains(words)), "{notes:?}");
    }
}

#[test]
fn sixteen_thousand_ranks_are_placed_without_a_warning() {
    let all: Vec<RankLocation> =
        (0..16_384u32).map(|r| rank(&format!("n{}", r / 8), u64::from(r / 8) + 1, r / 8 * 8, 9)).collect();
    let rank_hosts = resolve(&all);
    assert_eq!((rank_hosts.hosts[0].as_str(), rank_hosts.hosts[16_383].as_str()), ("n0", "n2047"));
    assert_eq!(rank_hosts.warnings, Vec::<String>::new());
}
