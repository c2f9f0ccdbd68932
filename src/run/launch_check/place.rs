//! Determines which ranks share a host, from several sources, because each one alone can be wrong: host names repeat,
//! containers share a boot id, images share a machine id, and MPI relies on host names.
//!
//! Two ranks count as on one host only if host name, boot id, MPI and the shared memory all agree. Disagreements are
//! reported.

use crate::device_probe::RankFabric;
use crate::world::{World, from_first, gather_all};
use commgauge_base::digest::sha256;
use commgauge_base::error::Result;
use commgauge_base::writing::named;
use commgauge_model::layout::{Axis, Groups};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::hash::Hash;
use std::os::unix::fs::MetadataExt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchFacts {
    /// A unique name for the host of every rank; empty for a run without launch.
    pub hosts: Vec<String>,
    /// Disagreements between the sources, as sentences; on process 0 only.
    pub warnings: Vec<String>,
    /// What slows ranks of one host without being a disagreement, as sentences; on process 0 only.
    pub notes: Vec<String>,
}

/// Gathers the locations of all ranks. Collective; the hosts are the same on every process.
///
/// # Errors
/// If communication fails.
pub fn locate_ranks(world: &dyn World, mine: &RankLocation) -> Result<LaunchFacts> {
    let rank_hosts = resolve(&gather_all(world, mine)?);
    let hosts = from_first(world, &rank_hosts.hosts)?;
    Ok(LaunchFacts { hosts, ..rank_hosts })
}

fn resolve(all: &[RankLocation]) -> LaunchFacts {
    let key = all.iter().map(|facts| Some((facts.host.as_str(), facts.kernel(), facts.leader, facts.shared_memory)));
    let groups = group_ranks(key).into_iter();
    let nodes: Vec<Node> =
        groups.map(|group| Node { key: &all[group.ranks[0] as usize], ranks: group.ranks }).collect();
    let names = names(&nodes);
    let mut hosts = vec![String::new(); all.len()];
    for (node, name) in nodes.iter().zip(&names) {
        node.ranks.iter().for_each(|rank| hosts[*rank as usize].clone_from(name));
    }
    LaunchFacts { hosts, warnings: warnings(&nodes, &names, all), notes: user_note(&nodes, all).into_iter().collect() }
}

/// Host names, numbered if several hosts have the same.
fn names<'a>(nodes: &[Node<'a>]) -> Vec<String> {
    let mut count: HashMap<&str, u32> = HashMap::new();
    nodes.iter().for_each(|node| *count.entry(&node.key.host).or_default() += 1);
    let mut next: HashMap<&str, u32> = HashMap::new();
    let name = |node: &Node<'a>| {
        let host = node.key.host.as_str();
        if count.get(host) == Some(&1) {
            return host.to_owned();
        }
        let number = next.entry(host).or_default();
        *number += 1;
        format!("{host}#{number}")
    };
    nodes.iter().map(name).collect()
}

/// Groups of several nodes with the same key, by index, in order.
fn groups_of_several<'a, K: Hash + Eq + Copy>(
    nodes: &[Node<'a>],
    key: impl Fn(&'a RankLocation) -> Option<K>,
) -> Vec<Vec<usize>> {
    let groups = group_ranks(nodes.iter().map(|node| key(node.key))).into_iter();
    let nodes_of = |group: RankGroup<K>| group.ranks.into_iter().map(|node| node as usize).collect();
    groups.filter(|group| group.ranks.len() > 1).map(nodes_of).collect()
}

fn warnings<'a>(nodes: &[Node<'a>], names: &[String], all: &[RankLocation]) -> Vec<String> {
    let ranks = |group: &[usize]| {
        let each: Vec<String> = group.iter().take(3).map(|node| named(&nodes[*node].ranks)).collect();
        let more = if group.len() > 3 { format!(" and {} more", group.len() - 3) } else { String::new() };
        each.join(" / ") + &more
    };
    let differ = |group: &[usize], key: fn(&RankLocation) -> u64| {
        group.iter().any(|node| key(nodes[*node].key) != key(nodes[group[0]].key))
    };
    let mut warnings = Vec::new();
    for group in groups_of_several(nodes, |facts: &'a RankLocation| Some(facts.host.as_str())) {
        let (host, ranks_text) = (&nodes[group[0]].key.host, ranks(&group));
        let many = group.len();
        warnings.push(if differ(&group, RankLocation::kernel) {
            format!(
                "{many} hosts call themselves {host} ({ranks_text}): distinguished by their boot ids; give each its own name, since launchers and NCCL rely on names"
            )
        } else if differ(&group, |facts| facts.shared_memory) {
            format!(
                "ranks of host {host} see {many} different /dev/shm ({ranks_text}), though host name and boot id are the same: \
                 containers of one machine with equal names? They count as {many} hosts; give each its own name, or let them share /dev/shm"
            )
        } else {
            format!(
                "MPI finds no shared memory between some ranks of host {host} ({ranks_text}), though host name and boot id are the \
                 same: containers with equal names, or MPI set not to share? They count as {many} hosts"
            )
        });
    }
    for group in groups_of_several(nodes, |facts| (facts.boot != 0).then_some(facts.boot)) {
        let mut hosts: Vec<&str> = group.iter().map(|node| names[*node].as_str()).collect();
        hosts.dedup_by_key(|name| name.split('#').next().unwrap_or_default());
        if hosts.len() > 1 {
            let shown = hosts.iter().take(4).copied().collect::<Vec<_>>().join(", ");
            let more = if hosts.len() > 4 { format!(" and {} more", hosts.len() - 4) } else { String::new() };
            warnings.push(format!(
                "hosts {shown}{more} have the same boot id: containers of one machine; traffic between them does not use a network"
            ));
        }
    }
    for group in groups_of_several(nodes, |facts| facts.leader) {
        if differ(&group, RankLocation::kernel) {
            let ranks_text = ranks(&group);
            warnings.push(format!(
                "MPI takes ranks of different machines for one node ({ranks_text}; their boot ids differ): it may hang where it expects shared memory; give each host its own name"
            ));
        }
    }
    warnings.extend(network_warnings(nodes, all));
    if all.iter().any(|facts| facts.boot == 0) {
        warnings.push("some hosts show no boot id: only names and MPI show which ranks share a machine".to_owned());
    }
    warnings
}

// Ranks of one host in their own namespaces, as with one container per rank.

/// Warnings about ranks of one host that may not reach each other.
pub(super) fn network_warnings(nodes: &[Node], all: &[RankLocation]) -> Vec<String> {
    let text = |node: &&Node| {
        format!(
            "ranks of host {} are in different network namespaces ({}): they may not reach each other by its addresses",
            node.key.host,
            named(&node.ranks)
        )
    };
    divided(nodes, all, |facts| facts.network).map(|node| text(&node)).collect()
}

/// A note about hosts whose ranks may not read each other's memory. With Open MPI 4.1.4, ranks in separate containers block forever in
/// `MPI_Send` of large messages; this variable avoids it.
pub(super) fn user_note(nodes: &[Node], all: &[RankLocation]) -> Option<String> {
    let mut hosts = divided(nodes, all, |facts| facts.user);
    let first = hosts.next()?;
    let more = match hosts.count() {
        0 => String::new(),
        others => format!(", and so on for {others} more hosts"),
    };
    Some(format!(
        "ranks of host {} are in different user namespaces ({}{more}), as with one container per rank: none may read another's memory, so MPI copies twice, and Open MPI 4 may block forever in large messages; start one container for all \
         ranks of a host, or set OMPI_MCA_btl_vader_single_copy_mechanism=none",
        first.key.host,
        named(&first.ranks)
    ))
}

/// Hosts whose ranks are not all in one namespace.
fn divided<'a, 'n>(
    nodes: &'a [Node<'n>],
    all: &'a [RankLocation],
    namespace: fn(&RankLocation) -> u64,
) -> impl Iterator<Item = &'a Node<'n>> {
    nodes.iter().filter(move |node| {
        let of = |rank: &u32| namespace(&all[*rank as usize]);
        node.ranks.iter().any(|rank| of(rank) != namespace(node.key))
    })
}

// The location of a rank, according to every source.

/// Location of a rank according to every source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankLocation {
    /// Host name, as the host gives it.
    pub host: String,
    /// Boot id of the kernel, shortened to a hash; 0 where it cannot be read.
    pub boot: u64,
    /// Machine id of the system image, shortened to a hash; 0 where it cannot be read.
    pub machine: u64,
    /// Number of the network namespace, 0 where it cannot be read.
    pub network: u64,
    /// Number of the user namespace, 0 where it cannot be read.
    pub user: u64,
    /// Number of the file system at /dev/shm, 0 where there is none.
    pub shared_memory: u64,
    /// The lowest rank that shares memory with this one according to MPI; absent where MPI was not queried.
    pub leader: Option<u32>,
}

impl RankLocation {
    /// Location of this process.
    pub fn here(leader: Option<u32>) -> RankLocation {
        let hash = |path: &str| fs::read_to_string(path).ok().map_or(0, |text| short_hash(text.trim()));
        RankLocation {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            boot: hash("/proc/sys/kernel/random/boot_id"),
            machine: hash("/etc/machine-id"),
            network: fs::metadata("/proc/self/ns/net").map_or(0, |facts| facts.ino()),
            user: fs::metadata("/proc/self/ns/user").map_or(0, |facts| facts.ino()),
            shared_memory: fs::metadata("/dev/shm").map_or(0, |facts| facts.dev()),
            leader,
        }
    }

    /// Identifies the machine: by the kernel's boot id, or by the machine id of its image where there is no boot id.
    pub(super) fn kernel(&self) -> u64 {
        if self.boot == 0 { self.machine } else { self.boot }
    }
}

// The NVLink fabric of the ranks, which decides whether NCCL goes over NVLink between hosts, and how many communicators may use NVLS.

/// Multicast groups of an NVSwitch. NCCL takes two for a communicator of at least three GPUs below it (NCCL, `src/transport/nvls.cc`), and
/// ends where none is left (nccl#2077).
const MULTICAST_SLOTS: usize = 128;
const SLOTS_OF_COMMUNICATOR: usize = 2;
const LEAST_GPUS_OF_NVLS: usize = 3;

/// Other jobs and registered buffers take slots too, so a suite is to leave this many.
const SPARE_SLOTS: usize = 32;

/// What is wrong with the fabric of a launch, and where it comes near its end once communicators of these groups are open together.
pub fn fabric_warnings(hosts: &[String], ranks: &[RankFabric], groups: &[Groups]) -> Vec<String> {
    let fabric = |rank: &u32| ranks.get(*rank as usize)?.fabric.as_ref();
    let host = |rank: &u32| hosts.get(*rank as usize).map(String::as_str);
    let all = || 0..ranks.len() as u32;
    let mut warnings = Vec::new();
    let ill: Vec<u32> = all().filter(|rank| fabric(rank).is_some_and(|fabric| !fabric.is_healthy)).collect();
    if !ill.is_empty() {
        warnings.push(format!(
            "the GPUs of {} are no healthy members of their NVLink fabric; `nvidia-smi -q` has the reason under Fabric",
            named(&ill)
        ));
    }
    for RankGroup { key, ranks: members } in group_ranks(all().map(|rank| host(&rank))) {
        let cliques = group_ranks(members.iter().map(|rank| fabric(rank).map(|fabric| &*fabric.clique)));
        if cliques.iter().any(|clique| clique.ranks.len() < members.len()) {
            warnings.push(format!(
                "the GPUs of host {key} are not all in one NVLink clique, so NCCL may go over adapters between them: check the partitions of the fabric manager"
            ));
        }
    }
    // Without clusters of several hosts every host is a domain of its own.
    let domain = |rank: u32| {
        fabric(&rank).and_then(|fabric| if fabric.spans_hosts() { Some(&*fabric.clique) } else { host(&rank) })
    };
    for RankGroup { ranks: members, .. } in group_ranks(all().map(domain)) {
        let is_of_several = group_ranks(members.iter().map(host)).len() > 1;
        let lacks_channel = |rank: &u32| !ranks[*rank as usize].has_imex_channel;
        let without: Vec<u32> = members.into_iter().filter(lacks_channel).collect();
        if is_of_several && !without.is_empty() {
            warnings.push(format!(
                "the hosts of {} share NVLink with others and have no IMEX channel (/dev/nvidia-caps-imex-channels), so NCCL goes over adapters: start nvidia-imex, and give the job a channel",
                named(&without)
            ));
        }
    }
    let mut communicators: BTreeMap<&str, usize> = BTreeMap::new();
    for group in groups.iter().filter(|groups| groups.axis != Axis::Pair).flat_map(|groups| &groups.groups) {
        let parts = group_ranks(group.iter().map(|rank| domain(*rank))).into_iter();
        let taking = parts.filter(|part| part.ranks.len() >= LEAST_GPUS_OF_NVLS);
        taking.for_each(|part| *communicators.entry(part.key).or_default() += 1);
    }
    if let Some((domain, count)) = communicators.into_iter().max_by_key(|(_, count)| *count)
        && count * SLOTS_OF_COMMUNICATOR + SPARE_SLOTS > MULTICAST_SLOTS
    {
        warnings.push(format!(
            "this plan opens {count} communicators of at least three GPUs within NVLink of {domain}, which take {} of the {MULTICAST_SLOTS} multicast slots of an NVSwitch; without one NCCL ends with an error of multicast memory (nccl#2077): measure fewer axes in one run, or use --nvls off",
            count * SLOTS_OF_COMMUNICATOR
        ));
    }
    warnings
}

/// The first 64 bits of a SHA-256; 0 for an empty text.
pub(super) fn short_hash(text: &str) -> u64 {
    if text.is_empty() { 0 } else { u64::from_str_radix(&sha256(text)[..16], 16).unwrap_or(0) }
}

/// The ranks of a host, with the location of the first.
pub(super) type Node<'a> = RankGroup<&'a RankLocation>;

/// The ranks with one value: a host, the hash or the text of a fact.
pub(super) struct RankGroup<K> {
    pub key: K,
    /// In ascending order.
    pub ranks: Vec<u32>,
}

/// Groups ranks by their keys, in the order of their first rank. A rank without a key is in no group.
pub(super) fn group_ranks<K: Hash + Eq + Copy>(keys: impl IntoIterator<Item = Option<K>>) -> Vec<RankGroup<K>> {
    let mut groups: Vec<RankGroup<K>> = Vec::new();
    let mut known: HashMap<K, usize> = HashMap::new();
    for (rank, key) in (0u32..).zip(keys) {
        let Some(key) = key else { continue };
        let group = *known.entry(key).or_insert_with(|| {
            groups.push(RankGroup { key, ranks: Vec::new() });
            groups.len() - 1
        });
        groups[group].ranks.push(rank);
    }
    groups
}

#[cfg(test)]
mod tests {
    // Tests of which ranks share a host: the locations of four ranks, the host names they get, and the warnings.
    use super::*;
    use crate::device_probe::Fabric;

    fn fabrics(of: &[(&str, bool)]) -> Vec<RankFabric> {
        let fabric = |clique: &str| (!clique.is_empty()).then(|| Fabric { clique: clique.into(), is_healthy: true });
        of.iter().map(|(clique, has)| RankFabric { fabric: fabric(clique), has_imex_channel: *has }).collect()
    }

    const ALONE: &str = "00000000000000000000000000000000:0";
    const RACK: &str = "0707:1";

    #[test]
    fn a_fabric_that_keeps_nccl_from_nvlink_is_named_with_its_ranks() {
        let hosts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (names, of, said) in [
            (&["a", "a", "b"][..], &[(ALONE, false), (ALONE, false), (ALONE, false)][..], None),
            (&["a", "b"], &[("", false), ("", false)], None),
            (&["a", "b"], &[(RACK, true), (RACK, true)], None),
            (&["a", "b"], &[(RACK, true), (RACK, false)], Some("the hosts of rank 1 share NVLink")),
            (&["a", "a"], &[(RACK, true), ("0707:2", true)], Some("host a are not all in one NVLink clique")),
            (&["a", "a"], &[(RACK, true), ("", true)], Some("host a are not all in one NVLink clique")),
            // Two racks.
            (&["a", "b"], &[(RACK, true), ("0808:1", true)], None),
        ] {
            let warnings = fabric_warnings(&hosts(names), &fabrics(of), &[]);
            assert_eq!(warnings.len(), usize::from(said.is_some()), "{of:?}: {warnings:?}");
            assert!(said.is_none_or(|said| warnings[0].contains(said)), "{warnings:?}");
        }
        let mut ill = fabrics(&[(ALONE, false), (ALONE, false)]);
        ill[1].fabric.as_mut().unwrap().is_healthy = false;
        let warnings = fabric_warnings(&hosts(&["a", "a"]), &ill, &[]);
        assert!(warnings[0].contains("the GPUs of rank 1 are no healthy members"), "{warnings:?}");
    }

    #[test]
    fn a_plan_near_the_multicast_slots_of_an_nvswitch_is_said_before_it_runs() {
        let hosts: Vec<String> = (0..72).map(|rank| format!("n{}", rank / 4)).collect();
        let of = |size: u32| Groups {
            axis: Axis::Tp,
            groups: (0..72 / size).map(|group| (group * size..(group + 1) * size).collect()).collect(),
        };
        let pairs = Groups { axis: Axis::Pair, groups: (0..200).map(|_| vec![0, 1, 2]).collect() };
        let warned = |clique: &str, groups: &[Groups]| fabric_warnings(&hosts, &fabrics(&[(clique, true); 72]), groups);
        assert!(warned(RACK, &[of(2), of(4), of(8), of(72), pairs]).is_empty(), "28 communicators");
        let warnings = warned(RACK, &[of(3), of(4), of(8)]);
        assert!(warnings[0].contains("51 communicators") && warnings[0].contains("102 of the 128"), "{warnings:?}");
        assert!(warned(ALONE, &[of(3), of(4), of(8)]).is_empty(), "every host has switches of its own");
    }

    fn rank(host: &str, boot: u64, leader: u32, shared_memory: u64) -> RankLocation {
        RankLocation {
            host: host.to_owned(),
            boot,
            machine: 7,
            network: 1,
            user: 1,
            shared_memory,
            leader: Some(leader),
        }
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
                "containers with different names",
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
                "an MPI set not to share",
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
        assert!(
            rank_hosts.warnings[0].contains("different network namespaces (ranks 0, 1)"),
            "{:?}",
            rank_hosts.warnings
        );
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
                Some("host a are in different user namespaces (ranks 0, 1, and so on for 2 more hosts),"),
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
}
