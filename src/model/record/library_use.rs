//! What NCCL carries data over, as its own log says: networks, adapters, routes between ranks, channels.
//!
//! Lines of NCCL 2.18 to 2.30 (`src/init.cc`, `src/transport/`, `src/mnnvl.cc`), of RCCL, and of network plugins such as aws-ofi-nccl.

use super::header::{RankFacts, host_of};
use commgauge_base::writing::{grouped, parse, ranges};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the communicators of one rank use. What the log does not say is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LibraryUse {
    /// The networks that were chosen: `IB`, `Socket`, `AWS Libfabric`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub networks: BTreeSet<String>,
    /// The adapters or interfaces that each network may use, in its order: `mlx5_0:1/RoCE`, `eth0`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub adapters: BTreeMap<String, Vec<String>>,
    /// The adapters over which this rank itself sends.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub sends_over: BTreeSet<String>,
    /// How channels reach other ranks, without numbers: `P2P/CUMEM`, `SHM/direct`, `NET/IB/GDRDMA`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub routes: BTreeSet<String>,
    /// Channels of each kind of communicator: `24 coll, 0 collnet, 16 nvls, 32 p2p, 4 p2p per peer`.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub channels: BTreeSet<String>,
    /// Whether NVLink SHARP is available to the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvls: Option<bool>,
    /// Ranks in each clique of the multi-node NVLink fabric.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub clique_sizes: BTreeSet<u32>,
    /// Where a log is kept in which no network was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_understood: Option<String>,
}

impl LibraryUse {
    /// Takes what a line of the log says; other lines change nothing.
    pub fn observe(&mut self, line: &str) {
        let Some((_, said)) = line.trim_end().split_once("NCCL INFO ") else { return };
        if let Some(network) = said.strip_prefix("Using network ") {
            self.networks.insert(network.to_owned());
        } else if let Some((network, listed)) = said.strip_prefix("NET/").and_then(|said| said.split_once(" : Using "))
        {
            self.adapters.insert(network.to_owned(), listed_adapters(listed));
        } else if let Some((channel, route)) = said.split_once(" via ") {
            self.observe_route(channel, route);
        } else if said.contains(" p2p channels per peer") {
            self.channels.insert(said.replace(" channels", ""));
        } else if let Some(support) = said.strip_prefix("NVLS multicast support is ") {
            self.nvls = Some(!support.starts_with("not "));
        } else if let Some((_, clique)) = said.split_once(" cliqueSize ") {
            self.clique_sizes.extend(clique.split(' ').next().and_then(|size| size.parse::<u32>().ok()));
        }
    }

    /// `Channel 03/0 : 3[3] -> 8[0] [send]` via `NET/IB/2(1)/GDRDMA`: adapter 2, over rank 1 of this node.
    fn observe_route(&mut self, channel: &str, route: &str) {
        if !channel.starts_with("Channel ") && !channel.starts_with("CollNet ") {
            return;
        }
        // RCCL adds the communicator.
        let route = route.split(" comm ").next().unwrap_or(route);
        let is_number = |part: &str| part.starts_with(|first: char| first.is_ascii_digit());
        let mut parts = route.split('/').filter(|part| *part != "Shared");
        let words: Vec<&str> = parts.clone().filter(|part| !is_number(part)).collect();
        self.routes.insert(words.join("/"));
        let own = parts.find(|part| is_number(part)).and_then(|number| number.parse::<usize>().ok());
        if let (Some(number), Some(network), true) = (own, words.get(1), channel.ends_with("[send]")) {
            self.sends_over.extend(self.adapters_of(network).and_then(|adapters| adapters.get(number)).cloned());
        }
    }

    /// Whether any network or route was named.
    pub fn names_a_network(&self) -> bool {
        !self.networks.is_empty() || !self.routes.is_empty()
    }

    /// The adapters of a network. A plugin for InfiniBand has a name of its own, such as `IBext_v8`, and lists them as NCCL does.
    fn adapters_of(&self, network: &str) -> Option<&Vec<String>> {
        let listed_as = if network.starts_with("IB") { "IB" } else { network };
        self.adapters.get(listed_as)
    }

    /// The routes to other nodes.
    fn network_routes(&self) -> impl Iterator<Item = &str> {
        self.routes.iter().map(String::as_str).filter(|route| route.starts_with("NET/"))
    }

    /// The networks over which ranks of other nodes are reached; those that were chosen, where no rank was reached over a network.
    pub fn networks_used(&self) -> BTreeSet<&str> {
        let used: BTreeSet<&str> = self.network_routes().filter_map(|route| route.split('/').nth(1)).collect();
        if used.is_empty() { self.networks.iter().map(String::as_str).collect() } else { used }
    }

    /// Whether adapters read and write the memory of devices (GPUDirect RDMA) on every route to other nodes; none without such routes.
    pub fn gpudirect(&self) -> Option<bool> {
        let has_routes = self.network_routes().next().is_some();
        has_routes.then(|| self.network_routes().all(|route| route.contains("/GDRDMA")))
    }

    /// Whether ranks of other nodes are reached over sockets.
    pub fn goes_over_sockets(&self) -> bool {
        self.routes.contains("NET/Socket")
    }

    /// The adapters that the networks in use may use.
    pub fn adapters_used(&self) -> BTreeSet<&str> {
        self.networks_used()
            .into_iter()
            .filter_map(|network| self.adapters_of(network))
            .flatten()
            .map(String::as_str)
            .collect()
    }
}

/// `[0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.0.1<0>`: the two adapters. Addresses are left out.
fn listed_adapters(listed: &str) -> Vec<String> {
    let named = listed.split(';').next().unwrap_or_default().split_whitespace().filter_map(|word| {
        let (number, name) = word.strip_prefix('[')?.split_once(']')?;
        number.parse::<u32>().ok()?;
        Some(name)
    });
    // An interface is followed by its address.
    named
        .map(|name| if name.ends_with('>') { name.split(':').next().unwrap_or(name) } else { name }.to_owned())
        .collect()
}

/// What the library of each rank uses; replaces the lines before it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LibraryUseLine {
    /// Ranks that use the same.
    pub uses: Vec<UseOfRanks>,
    /// Why it is not known, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub absent: Option<String>,
}

/// What some ranks use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UseOfRanks {
    /// The ranks, as `0-3,8`.
    pub ranks: String,
    /// What each of them uses.
    #[serde(flatten)]
    pub used: LibraryUse,
}

impl LibraryUseLine {
    /// The line of all ranks, in their order, or why one of them does not know.
    pub fn of(all: Vec<Result<LibraryUse, String>>) -> LibraryUseLine {
        let absent = all.iter().find_map(|one| one.as_ref().err().cloned());
        let known = (0u32..).zip(all).filter_map(|(rank, one)| Some((one.ok()?, rank)));
        let uses = grouped(known).into_iter().map(|(used, ranks)| UseOfRanks { ranks: ranges(&ranks), used });
        LibraryUseLine { uses: uses.collect(), absent }
    }

    /// What speaks for a wrong setting, as sentences: sockets where InfiniBand is up, InfiniBand without GPUDirect RDMA, a log without a network.
    pub fn surprises(&self, ranks: &[RankFacts]) -> Vec<String> {
        let is_up = |adapter: &&String| !adapter.ends_with(" is down");
        let ports: BTreeSet<&str> = ranks
            .iter()
            .flat_map(|rank| rank.adapters.iter().filter(is_up))
            .filter_map(|adapter| adapter.split(' ').next())
            .collect();
        let mut found = Vec::new();
        for UseOfRanks { ranks: ranks_of, used } in &self.uses {
            let who = format!("ranks {ranks_of}");
            let over = used.adapters_used().into_iter().collect::<Vec<_>>().join(", ");
            if used.goes_over_sockets() && !ports.is_empty() {
                let ports = ports.iter().copied().collect::<Vec<_>>().join(", ");
                found.push(format!(
                    "NCCL goes over sockets ({who}: {over}) although InfiniBand or RoCE is up ({ports}): is its plugin missing, or NCCL_IB_DISABLE, NCCL_NET or NCCL_IB_HCA wrong?"
                ));
            }
            if used.gpudirect() == Some(false) && !used.goes_over_sockets() {
                found.push(format!(
                    "NCCL copies messages through host memory ({who}: {over}), without GPUDirect RDMA: is nvidia_peermem loaded, and NCCL_NET_GDR_LEVEL right?"
                ));
            }
            if let Some(file) = &used.not_understood {
                let rank = parse(ranks_of).next().unwrap_or_default();
                let host = host_of(ranks, rank).unwrap_or("unknown");
                found.push(format!(
                    "NCCL's log names no network, so what it used is not known; the log of rank {rank} on {host} is kept: {file}"
                ));
            }
        }
        found
    }

    /// What was used, for readers: a phrase for the ranks that use the same networks and routes.
    pub fn phrases(&self) -> Vec<String> {
        let mut phrases: BTreeSet<String> = BTreeSet::new();
        for UseOfRanks { used, .. } in &self.uses {
            let joined = |words: &mut dyn Iterator<Item = &str>| words.collect::<Vec<_>>().join(", ");
            let mut parts = vec![format!("network {}", joined(&mut used.networks_used().into_iter()))];
            let adapters = used.adapters_used();
            if !adapters.is_empty() {
                parts.push(format!("over {}", joined(&mut adapters.into_iter())));
            }
            if !used.routes.is_empty() {
                parts.push(format!("routes {}", joined(&mut used.routes.iter().map(String::as_str))));
            }
            parts.extend(used.channels.iter().map(|channels| format!("channels {channels}")));
            parts.extend(used.nvls.map(|nvls| if nvls { "NVLS available" } else { "no NVLS" }.to_owned()));
            parts.extend(used.clique_sizes.iter().map(|size| format!("NVLink clique of {size}")));
            phrases.insert(parts.join("; "));
        }
        phrases.into_iter().chain(self.absent.iter().map(|why| format!("not known: {why}"))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(log: &str) -> LibraryUse {
        let mut used = LibraryUse::default();
        log.lines().for_each(|line| used.observe(line));
        used
    }

    /// Logs as their writers published them, with host names replaced; the first line names the source.
    fn published() -> impl Iterator<Item = (&'static str, LibraryUse)> {
        let logs = include_str!("../../../tests/data/nccl-logs.txt").split("\n\n");
        logs.map(|log| (log.lines().next().unwrap_or_default(), used(log)))
    }

    #[test]
    fn logs_of_many_versions_and_plugins_say_what_was_used() {
        insta::assert_snapshot!(
            published()
                .map(|(source, used)| format!("{source}\n{}\n", serde_json::to_string(&used).unwrap()))
                .collect::<String>()
        );
    }

    #[test]
    fn a_log_that_says_nothing_known_leaves_everything_open() {
        for log in [
            "",
            "NCCL INFO",
            "host:1:2 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>",
            "a via b",
            "NCCL INFO NET/ : Using [x]",
        ] {
            let used = used(log);
            assert_eq!(used.networks_used().len() + used.routes.len() + used.sends_over.len(), 0, "{log}");
            assert_eq!(used.gpudirect(), None, "{log}");
        }
    }

    #[test]
    fn what_speaks_for_a_wrong_setting_is_named_with_its_ranks() {
        let socket = "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\nNCCL INFO Using network Socket\n\
            NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0";
        let infiniband = |route: &str| {
            format!(
                "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>\nNCCL INFO Using network IB\n\
                NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via {route}"
            )
        };
        let local = "NCCL INFO Using network Socket\nNCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM";
        let unknown = LibraryUse { not_understood: Some("/tmp/x.log".into()), ..LibraryUse::default() };
        for (used, adapters, said) in [
            (
                used(socket),
                &["mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))"][..],
                Some("over sockets (ranks 0-1: eth0) although InfiniBand or RoCE is up (mlx5_0)"),
            ),
            (used(socket), &["mlx5_0 (same PCIe switch) is down"], None),
            (used(socket), &[], None),
            (used(local), &["mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))"], None),
            (
                used(&infiniband("NET/IB/0")),
                &[],
                Some("through host memory (ranks 0-1: mlx5_0:1/IB), without GPUDirect RDMA"),
            ),
            (used(&infiniband("NET/IB/0/GDRDMA")), &[], None),
            (
                unknown,
                &[],
                Some("names no network, so what it used is not known; the log of rank 0 on n0 is kept: /tmp/x.log"),
            ),
        ] {
            let rank = RankFacts {
                adapters: adapters.iter().map(|name| (*name).to_owned()).collect(),
                ..RankFacts::on_host(0, "n0")
            };
            let found = LibraryUseLine::of(vec![Ok(used.clone()), Ok(used)]).surprises(&[rank]).join("\n");
            assert!(said.map_or(found.is_empty(), |said| found.contains(said)), "{said:?}: {found}");
        }
    }
}
