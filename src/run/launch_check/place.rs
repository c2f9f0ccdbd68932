//! Determines which ranks share a host, from several sources, because each one alone can be wrong: host names repeat,
//! containers share a boot id, images share a machine id, and MPI relies on host names.
//!
//! Two ranks count as on one host only if host name, boot id, MPI and the shared memory all agree. Disagreements are
//! reported.

use super::location::{Node, RankLocation};
use super::namespaces;
use crate::world::World;
use commgauge_base::error::{Error, Result};
use commgauge_base::rank_list::named;
use std::collections::HashMap;

/// Hosts of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankHosts {
    /// A unique name for the host of every rank.
    pub hosts: Vec<String>,
    /// Disagreements between the sources, as sentences; on process 0 only.
    pub warnings: Vec<String>,
    /// What slows ranks of one host and is no disagreement, as sentences; on process 0 only.
    pub notes: Vec<String>,
}

/// Gathers the locations of all ranks. Collective; the hosts are the same on every process.
///
/// # Errors
/// If communication fails, or a host's name has a line break.
pub fn locate_ranks(world: &dyn World, mine: &RankLocation) -> Result<RankHosts> {
    let text =
        serde_json::to_vec(mine).map_err(|cause| Error::environment(format!("cannot say where this is: {cause}")))?;
    let gathered = world.gather(&text)?;
    let all: std::result::Result<Vec<RankLocation>, _> =
        gathered.iter().map(|one| serde_json::from_slice(one)).collect();
    let rank_hosts =
        resolve(&all.map_err(|cause| Error::environment(format!("a rank's whereabouts do not read: {cause}")))?);
    let mut hosts = rank_hosts.hosts.join("\n").into_bytes();
    world.broadcast(&mut hosts)?;
    let hosts: Vec<String> = String::from_utf8_lossy(&hosts).split('\n').map(str::to_owned).collect();
    if hosts.len() != world.processes() as usize {
        return Err(Error::environment(format!("a host name has a line break: {hosts:?}")).shared());
    }
    Ok(RankHosts { hosts, ..rank_hosts })
}

fn resolve(all: &[RankLocation]) -> RankHosts {
    let mut nodes: Vec<Node> = Vec::new();
    let mut known = HashMap::new();
    let mut node_of_rank = Vec::with_capacity(all.len());
    for (rank, facts) in (0u32..).zip(all) {
        let key = (facts.host.as_str(), facts.kernel(), facts.leader, facts.shared_memory);
        let node = *known.entry(key).or_insert_with(|| {
            nodes.push(Node { facts, ranks: Vec::new() });
            nodes.len() - 1
        });
        nodes[node].ranks.push(rank);
        node_of_rank.push(node);
    }
    let names = names(&nodes);
    RankHosts {
        hosts: node_of_rank.into_iter().map(|node| names[node].clone()).collect(),
        warnings: warnings(&nodes, &names, all),
        notes: namespaces::user_note(&nodes, all).into_iter().collect(),
    }
}

/// Host names, numbered if several hosts have the same.
fn names<'a>(nodes: &[Node<'a>]) -> Vec<String> {
    let mut count: HashMap<&str, u32> = HashMap::new();
    nodes.iter().for_each(|node| *count.entry(&node.facts.host).or_default() += 1);
    let mut next: HashMap<&str, u32> = HashMap::new();
    let name = |node: &Node<'a>| {
        let host = node.facts.host.as_str();
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
fn groups_of_several<'a, K: std::hash::Hash + Eq>(
    nodes: &[Node<'a>],
    key: impl Fn(&'a RankLocation) -> Option<K>,
) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    let mut known = HashMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let Some(key) = key(node.facts) else { continue };
        let group = *known.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(index);
    }
    groups.retain(|group| group.len() > 1);
    groups
}

fn warnings<'a>(nodes: &[Node<'a>], names: &[String], all: &[RankLocation]) -> Vec<String> {
    let ranks = |group: &[usize]| {
        let each: Vec<String> = group.iter().take(3).map(|node| named(&nodes[*node].ranks)).collect();
        let more = if group.len() > 3 { format!(" and {} more", group.len() - 3) } else { String::new() };
        each.join(" / ") + &more
    };
    let differ = |group: &[usize], key: fn(&RankLocation) -> u64| {
        group.iter().any(|node| key(nodes[*node].facts) != key(nodes[group[0]].facts))
    };
    let mut warnings = Vec::new();
    for group in groups_of_several(nodes, |facts: &'a RankLocation| Some(facts.host.as_str())) {
        let (host, ranks_text) = (&nodes[group[0]].facts.host, ranks(&group));
        let many = group.len();
        warnings.push(if differ(&group, RankLocation::kernel) {
            format!(
                "{many} hosts call themselves {host} ({ranks_text}): distinguished by their boot ids; give each a name of its own, \
                 as launchers and NCCL go by names"
            )
        } else if differ(&group, |facts| facts.shared_memory) {
            format!(
                "ranks of host {host} see {many} different /dev/shm ({ranks_text}), though host name and boot id are the same: \
                 containers of one machine with equal names? They count as {many} hosts; give each a name of its own, or \
                 let them share /dev/shm"
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
                "hosts {shown}{more} have the same boot id: containers of one machine; what is measured between them is \
                 not a network"
            ));
        }
    }
    for group in groups_of_several(nodes, |facts| facts.leader) {
        if differ(&group, RankLocation::kernel) {
            let ranks_text = ranks(&group);
            warnings.push(format!(
                "MPI takes ranks of different machines for one node ({ranks_text}; their boot ids differ): it may hang where it \
                 expects shared memory; give each host a name of its own"
            ));
        }
    }
    warnings.extend(namespaces::network_warnings(nodes, all));
    if all.iter().any(|facts| facts.boot == 0) {
        warnings
            .push("some hosts show no boot id: which ranks share a machine is known by name and MPI alone".to_owned());
    }
    warnings
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
