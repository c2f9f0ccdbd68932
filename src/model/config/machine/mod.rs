//! The machine file: the link rates of a machine, for bounds of bus bandwidth and for the simulated backend, and its
//! expected performance, for verdicts.
//!
//! Rates are those of the links, per direction. The rates that a library reaches over them have to be measured.

mod calls;
mod counters;
mod description;
mod expect;
mod expect_tables;
mod fault;
mod level;
mod lint;

pub use calls::MeasuredCall;
pub use counters::{CounterKind, KnownCounter, known_counter, known_counters};
pub use description::{
    Computing, Expectation, ExpectedCall, ExpectedGroup, JudgedRuns, Limit, Machine, Network, NetworkExpectation,
    NodeLinks, Noise, RequiredCoverage, RequiredTransport, Version,
};
pub use expect_tables::{
    ExpectCopyTable, ExpectNetworkTable, ExpectProductTable, ExpectTable, ExpectTables, ExpectedWork, Figure, Origin,
    OwnWorkExpectation, Rows, Sizes,
};
pub use fault::{Direction, Fault};
pub use level::{ANY_GPU, LayerKind, Level};
pub use lint::{Finding, lint};

use crate::config::document::{Item, Place, Table};
use crate::config::shipped::{Shipped, read_text};
use crate::config::typed::to_toml;
use commgauge_base::collective::{Algorithm, Collective, Motion};
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Rate;
use std::path::Path;

impl Machine {
    /// Reads and checks a machine file, given by path or name, as [`Shipped::find`] finds it.
    ///
    /// # Errors
    /// A usage error where there is none, an environment error where it cannot be read, else as [`Machine::parse`].
    pub fn load(requested: &Path) -> Result<Machine> {
        let path = Shipped::Machine.find(requested).ok_or_else(|| Error::usage(Shipped::Machine.unknown(requested)))?;
        Machine::parse(&read_text(&path, &Place::flag("--machine"))?, &path)
    }

    /// Checks the text of a machine file; `path` is for the messages.
    ///
    /// # Errors
    /// A usage error that names file, line and key: not TOML, an unknown key, a missing or impossible value.
    pub fn parse(text: &str, path: &Path) -> Result<Machine> {
        let (machine, mut file) = Machine::without_other_files(text, path)?;
        let machine = machine.with_node_of(&file)?;
        if let (Some(coverage), Some(item)) = (&machine.required_coverage, file.take("coverage")) {
            let (asked, expectations) = (coverage.expectations, machine.thresholds());
            if asked as usize > expectations {
                let problem = format!("found {asked}; this file has {expectations} expectations");
                return Err(item.table()?.place_of("expectations").wrong(problem));
            }
        }
        Ok(machine)
    }

    /// The file without what refers to other files, checked; with its document for the places of what is wrong.
    fn without_other_files(text: &str, path: &Path) -> Result<(Machine, Table)> {
        let document = Item::from(Table::parse(path, text)?);
        let mut machine: Machine = document.read()?;
        let mut file = document.table()?;
        machine.path = path.to_owned();
        let (hosts, ranks) = (machine.hosts_per_node, machine.ranks_per_node);
        if !ranks.is_multiple_of(hosts) {
            let problem = format!("found {hosts}; the {ranks} ranks of a node do not divide evenly among its hosts");
            return Err(file.place_of("hosts_per_node").wrong(problem));
        }
        let needs_library = |judged: &JudgedRuns| judged.library_from.is_some() || judged.library_below.is_some();
        if machine.judged_runs.as_ref().is_some_and(|judged| judged.library.is_none() && needs_library(judged)) {
            let problem = "a version needs the name of its library, such as library = \"NCCL\"";
            return Err(file.place_of("applies_to").wrong(problem));
        }
        machine.faults = file.tables("faults")?.into_iter().map(fault::fault).collect::<Result<_>>()?;
        for (row, table) in machine.expect.iter().zip(file.tables("expect")?) {
            let place = table.place_of("rows").clone();
            let read = expect::expectations(row, table, &machine)?;
            machine.expectations.extend(read);
            let differs = |other: &&ExpectTable| row.rule.is_some() && other.rule == row.rule && other.rows != row.rows;
            if let (Some(_), Some(rule)) = (machine.expect.iter().find(differs), &row.rule) {
                let problem = format!("the tables of rule `{rule}` have several; accepted: the same in each");
                return Err(place.wrong(problem));
            }
        }
        for (row, table) in machine.expect_network.iter().zip(file.tables("expect_network")?) {
            machine.network.extend(expect::network_expectations(row, &table)?);
        }
        for (row, table) in machine.expect_copy.iter().zip(file.tables("expect_copy")?) {
            machine.own_work.push(expect::expected_copy(row, &table)?);
        }
        for (row, table) in machine.expect_product.iter().zip(file.tables("expect_product")?) {
            let work = ExpectedWork::Product(row.clone());
            machine.own_work.push(OwnWorkExpectation { place: table.place.to_string(), work });
        }
        Ok((machine, file))
    }

    /// The machine with what another file expects of one node alone, of calls and of what each rank does by itself.
    fn with_node_of(mut self, file: &Table) -> Result<Machine> {
        let Some(name) = &self.node_like else { return Ok(self) };
        let (requested, place) = (Path::new(name), file.place_of("node_like"));
        let path = Shipped::Machine.find(requested).ok_or_else(|| place.wrong(Shipped::Machine.unknown(requested)))?;
        let (like, like_file) = Machine::without_other_files(&read_text(&path, place)?, &path)?;
        if like.node_like.is_some() {
            return Err(like_file
                .place_of("node_like")
                .wrong(format!("{} takes its node from here; name the file that has the figures", self.name)));
        }
        if (like.ranks_per_node, like.hosts_per_node) != (self.ranks_per_node, self.hosts_per_node) {
            return Err(place.wrong(format!(
                "a node of {} has {} ranks on {} hosts, one of this file {} on {}",
                like.name, like.ranks_per_node, like.hosts_per_node, self.ranks_per_node, self.hosts_per_node
            )));
        }
        self.expectations.extend(like.expectations.into_iter().filter(|one| one.group.nodes <= like.hosts_per_node));
        self.own_work.extend(like.own_work);
        Ok(self)
    }

    /// The text of a machine file that reads as this machine, without comments and faults.
    ///
    /// # Errors
    /// None that a machine which was read can have.
    pub fn to_toml(&self) -> Result<String> {
        to_toml(self)
    }

    /// Rate at which one rank can send to `ranks` ranks of its node, including itself: over all its links, or those to
    /// its peers.
    pub fn within_rate_per_rank(&self, ranks: u32) -> Rate {
        let peers = f64::from(ranks.saturating_sub(1).max(1));
        let links = self.within_node.rate_per_peer.map_or(f64::INFINITY, |rate| rate.0.0 * peers);
        Rate(self.within_node.rate.0.min(links))
    }

    /// What one rank can send over the network while `active_ranks` ranks of its node do so.
    ///
    /// A rank drives the adapters that are its own: with fewer ranks than adapters several, otherwise one. That is how
    /// libraries bind ranks to adapters; one that lets a rank send over its neighbours' adapters could be faster.
    pub fn adapter_rate_per_rank(&self, active_ranks: u32) -> Rate {
        let adapters = f64::from(self.between_nodes.adapters_per_node);
        let own = (adapters / f64::from(self.ranks_per_node)).max(1.0);
        Rate(own.min(adapters / f64::from(active_ranks.max(1))) * self.between_nodes.rate_per_adapter.0)
    }
}

// The highest bus bandwidth that the links of a machine allow.
//
// Every bound counts the bytes that must cross the busiest link in one direction, whatever the algorithm, as long as
// ranks do the sending and reducing. Symbols: k nodes with m ranks each, n = k m ranks in the group, S the size argument,
// r the rate of a rank's links within the node, a the rate of the adapters that one rank can use (shared with the
// other ranks of its node that use the network at the same time), e = m a what the group gets out of or into a node,
// B = f S / t the bus bandwidth with the factor f of [`Collective::bus_factor`].
//
// * all_gather: the adapters bring S (k-1)/k into each node and the links the rest of S (n-1)/n to each rank. From
//   t >= S (k-1)/k / e follows B <= a (n-1)/(k-1); from t >= S (n-k)/n / r follows B <= r (n-1)/(n-k). reduce_scatter is
//   its mirror image and all_reduce both one after the other. The rule "adapter rate = busbw (k-1)/(n-1)" is that of
//   S. Bekman, ml-engineering, `network/README.md`.
// * all_to_all: each rank sends S (n-m)/n over its adapter and S (m-1)/n within the node: B <= a (n-1)/(n-m) and
//   B <= r (n-1)/(m-1). With many ranks per node the first is near a k/(k-1), the answer in nccl-tests issue 130; SimAI has
//   the same in `calbusbw.cc`.
// * broadcast, reduce: S crosses the links of the root, and the adapters of every other node: B <= e and B <= r.
// * gather, scatter: S (n-m)/n crosses the adapters of the root's node, S (n-1)/n the root's links and its own adapter.
// * point-to-point: one message crosses one link; how many share the adapters depends on the pattern.
//
// Hosts whose ranks are joined by the links within a node (NVL72) count as that node. Where each pair of ranks has a link of
// its own instead of a switch (`rate_per_peer`), r is that of the links to the ranks of the group.
//
// Switches that reduce or copy by themselves (NVLS, SHARP) move fewer bytes and may exceed these bounds.

impl Machine {
    /// The highest bus bandwidth that the links allow for the groups of an expectation.
    fn bound_of(&self, expected: &Expectation) -> Option<Rate> {
        let ExpectedGroup { nodes, ranks_per_node, groups_per_node, .. } = expected.group;
        self.bus_bandwidth_bound(expected.table.collective, nodes, ranks_per_node, groups_per_node)
    }

    /// The highest bus bandwidth that the links allow for a group with `ranks_per_node` ranks on each of
    /// `nodes_spanned` nodes, while `concurrent_groups_per_node` such groups share the adapters of a node.
    ///
    /// `None` where nothing crosses a link (one rank, barrier) and where every rate in question is only assumed. If
    /// nodes have different numbers of the group's ranks, pass the largest: the bound is then looser, but still valid.
    /// The ranks of a node must be neighbours within the group.
    pub fn bus_bandwidth_bound(
        &self,
        collective: Collective,
        nodes_spanned: u32,
        ranks_per_node: u32,
        concurrent_groups_per_node: u32,
    ) -> Option<Rate> {
        let (nodes_spanned, ranks_per_node) = self.as_nodes(nodes_spanned, ranks_per_node);
        let concurrent_groups_per_node = concurrent_groups_per_node.max(1);
        let (k, m) = (f64::from(nodes_spanned), f64::from(ranks_per_node));
        let n = k * m;
        if n < 2.0 {
            return None;
        }
        let within = self.within_bound(ranks_per_node);
        // Adapters per rank when all ranks of the group use the network, and when one rank of each group on a node does.
        let all = self.network_rate(ranks_per_node.saturating_mul(concurrent_groups_per_node));
        let single = self.network_rate(concurrent_groups_per_node);
        let crosses = nodes_spanned > 1;
        // For bounds that apply only to groups with several ranks on a node, and only to those that span nodes.
        let inside = |rate: f64| if ranks_per_node > 1 { rate } else { f64::INFINITY };
        let outside = |rate: f64| if crosses { rate } else { f64::INFINITY };
        let bound = match collective.motion() {
            Motion::Together(Algorithm::Dissemination) => return None,
            Motion::Together(Algorithm::RingAllReduce | Algorithm::RingAllGather) => {
                outside(all * (n - 1.0) / (k - 1.0)).min(inside(within * (n - 1.0) / (n - k)))
            }
            Motion::Together(Algorithm::PairwiseAllToAll) => {
                // Where blocks differ, the busiest rank may find the adapters idle that its neighbours hardly use.
                let adapters = if collective.has_splits() { single } else { all };
                outside(adapters * (n - 1.0) / (n - m)).min(inside(within * (n - 1.0) / (m - 1.0)))
            }
            Motion::Together(Algorithm::BinomialTree) => outside(all * m).min(inside(within)),
            Motion::Together(Algorithm::BinomialGather) if crosses => {
                let root_links = single + if ranks_per_node > 1 { within } else { 0.0 };
                (all * m * (n - 1.0) / (n - m)).min(root_links)
            }
            Motion::Together(Algorithm::BinomialGather) => within,
            // Around a ring or down a chain, one rank of each group sends to the next node.
            Motion::Ring | Motion::Chain => outside(single).min(inside(within)),
            // Ranks half a group apart: all pairs join two nodes as soon as the group spans two.
            Motion::Pairs { .. } if crosses => all,
            // Each rank has one partner.
            Motion::Pairs { .. } => self.within_bound(2),
        };
        bound.is_finite().then_some(Rate(bound))
    }

    /// The machine with what its `[[expect_network]]` require of these calls as expectations like any others. Those that are about none of
    /// them stay as they are. A library may give a pair of ranks fewer channels than its adapter could fill: `most_of_a_pair`.
    pub fn expecting(&self, calls: impl IntoIterator<Item = ExpectedCall>, most_of_a_pair: Option<Rate>) -> Machine {
        let mut machine = self.clone();
        let mut is_used = vec![false; self.network.len()];
        for call in calls {
            let Some(carried) = self.network_bound(call.collective, &call.group) else { continue };
            let is_pair = matches!(call.collective.motion(), Motion::Pairs { .. });
            let library = most_of_a_pair.filter(|_| is_pair).map_or(f64::INFINITY, |rate| rate.0);
            for (row, is_used) in self.network.iter().zip(&mut is_used) {
                let Some(expected) = row.of(&call, Rate((carried.0 * row.share).min(library))) else { continue };
                *is_used = true;
                if !machine.expectations.contains(&expected) {
                    machine.expectations.push(expected);
                }
            }
        }
        let mut used = is_used.into_iter();
        machine.network.retain(|_| used.next() == Some(false));
        machine
    }

    /// The bus bandwidth that the adapters of a node carry for a group. Rings leave a node over all adapters of its ranks, on two nodes as on
    /// many; the bound of the links is higher there, since trees move less over the network. None inside a node.
    fn network_bound(&self, collective: Collective, group: &ExpectedGroup) -> Option<Rate> {
        let (nodes, ranks) = self.as_nodes(group.nodes, group.ranks_per_node);
        if nodes < 2 || self.between_nodes.assumed {
            return None;
        }
        let bound = self.bus_bandwidth_bound(collective, nodes, ranks, group.groups_per_node)?;
        let adapters = self.network_rate(ranks.saturating_mul(group.groups_per_node)) * f64::from(ranks);
        let is_ring =
            matches!(collective.motion(), Motion::Together(Algorithm::RingAllReduce | Algorithm::RingAllGather));
        Some(if is_ring { Rate(bound.0.min(adapters)) } else { bound })
    }

    /// Hosts of a group, and its ranks on each, as nodes of this file. As few nodes as possible: the bound is then
    /// looser, but still valid. A group that is already described by nodes has more ranks on each than a host has, or
    /// is on one host.
    fn as_nodes(&self, hosts: u32, ranks_per_host: u32) -> (u32, u32) {
        let joined = self.hosts_per_node;
        if hosts <= 1 || ranks_per_host > self.ranks_per_node / joined {
            return (hosts, ranks_per_host);
        }
        (hosts.div_ceil(joined), ranks_per_host.saturating_mul(hosts.min(joined)))
    }

    fn within_bound(&self, ranks: u32) -> f64 {
        if self.within_node.assumed { f64::INFINITY } else { self.within_rate_per_rank(ranks).0 }
    }

    fn network_rate(&self, active_ranks: u32) -> f64 {
        if self.between_nodes.assumed { f64::INFINITY } else { self.adapter_rate_per_rank(active_ranks).0 }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use Collective::*;
    use commgauge_base::units::Seconds;
    use std::path::PathBuf;

    fn machine(assumed: &str) -> Machine {
        let text = format!(
            "name = 'm'\nranks_per_node = 8\n\
             [within_node]\nlatency = '3us'\nrate = '450GB/s'\n{assumed}\n\
             [between_nodes]\nlatency = '14us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n"
        );
        Machine::parse(&text, Path::new("m.toml")).unwrap()
    }

    #[test]
    fn bounds_match_the_published_rules_of_thumb() {
        // (collective, nodes, ranks per node, concurrent groups, GB/s)
        for (collective, nodes, ranks, groups, expected) in [
            (AllReduce, 1, 8, 1, 450.0),
            (AllToAll, 1, 8, 1, 450.0),
            (Broadcast, 1, 4, 2, 450.0),
            (PingPong, 1, 2, 4, 450.0),
            // 50 GB/s per rank times (n-1)/(k-1), where that is below what NVLink leaves: 255/31 * 50.
            (AllReduce, 32, 8, 1, 50.0 * 255.0 / 31.0),
            // Two nodes inflate the figure until NVLink bounds it: 450 * 15/14.
            (AllGather, 2, 8, 1, 450.0 * 15.0 / 14.0),
            // One rank per node: a flat ring over the network, each with its own adapter, alone or eight at a time.
            (AllReduce, 4, 1, 8, 50.0),
            (AllReduce, 4, 1, 1, 50.0),
            // nccl-tests issue 130: k/(k-1) times the adapter, here (n-1)/(n-m) exactly.
            (AllToAll, 2, 8, 1, 50.0 * 15.0 / 8.0),
            (Broadcast, 4, 8, 1, 400.0),
            (SendRecv, 4, 8, 1, 50.0),
            (Bidirectional, 2, 8, 1, 50.0),
            (PingPong, 2, 1, 16, 25.0),
            (Gather, 2, 1, 1, 50.0),
        ] {
            let bound = machine("").bus_bandwidth_bound(collective, nodes, ranks, groups).unwrap();
            let difference = (bound.gigabytes_per_second() - expected).abs();
            assert!(difference < 1e-6, "{collective} on {nodes} x {ranks}: {bound}, expected {expected}");
        }
    }

    #[test]
    fn barriers_single_ranks_and_assumed_links_have_no_bound() {
        assert_eq!(machine("").bus_bandwidth_bound(Barrier, 2, 8, 1), None);
        assert_eq!(machine("").bus_bandwidth_bound(AllReduce, 1, 1, 8), None);
        let guessed = machine("assumed = true");
        assert_eq!(guessed.bus_bandwidth_bound(AllReduce, 1, 8, 1), None);
        assert_eq!(guessed.bus_bandwidth_bound(Gather, 2, 2, 1), Some(Rate(2.0 * 50e9 * 3.0 / 2.0)));
    }

    #[test]
    fn links_to_each_peer_bound_small_groups_and_hosts_of_one_node_are_no_network() {
        // MI300X: seven links of 64 GB/s; two of its GPUs have one between them.
        let mut mesh = machine("rate_per_peer = '64GB/s'");
        mesh.within_node.rate = Rate(448e9);
        for (collective, ranks, expected) in
            [(AllReduce, 8, 448e9), (AllReduce, 2, 64e9), (AllGather, 4, 192e9), (PingPong, 8, 64e9)]
        {
            assert_eq!(mesh.bus_bandwidth_bound(collective, 1, ranks, 1), Some(Rate(expected)), "{collective} {ranks}");
        }
        // NVL72: 18 hosts of 4 ranks are one node, 36 are two.
        let mut rack = machine("");
        (rack.ranks_per_node, rack.hosts_per_node, rack.between_nodes.adapters_per_node) = (72, 18, 72);
        assert_eq!(rack.bus_bandwidth_bound(AllReduce, 18, 4, 1), Some(Rate(450e9)));
        assert_eq!(rack.bus_bandwidth_bound(AllReduce, 36, 4, 1), rack.bus_bandwidth_bound(AllReduce, 2, 72, 1));
    }

    #[test]
    fn groups_that_outnumber_the_adapters_share_them() {
        let mut machine = machine("");
        machine.between_nodes.adapters_per_node = 2;
        for (groups, expected) in [(1, 50e9), (2, 50e9), (4, 25e9), (8, 12.5e9)] {
            assert_eq!(machine.bus_bandwidth_bound(AllReduce, 2, 1, groups), Some(Rate(expected)), "{groups} groups");
        }
    }

    const GOOD: &str = r#"
name = "small"
ranks_per_node = 2
[within_node]
latency = "1us"
rate = "10GB/s"
[between_nodes]
latency = "5us"
adapters_per_node = 1
rate_per_adapter = "8Gbit/s"
[noise]
relative_sigma = 0.02
arrival_jitter = "3us"
[[faults]]
kind = "rank"
rank = 3
delay = "2ms"
[[faults]]
kind = "link"
nodes = [0, 1]
rate_factor = 0.25
"#;

    #[test]
    fn a_wrong_value_is_refused_with_file_key_and_accepted_values() {
        for (from, to, words) in [
            (
                "adapters_per_node",
                "adapter_per_node",
                "m.toml:9: between_nodes.adapter_per_node: unknown key; did you mean `adapters_per_node`?",
            ),
            ("name", "hue", "m.toml:2: hue: unknown key. Known here: name, cloud, ranks_per_node"),
            ("\"10GB/s\"", "\"-10GB/s\"", "within_node.rate: found `-10GB/s`; accepted: a rate such as"),
            ("\"10GB/s\"", "\"10GB\"", "within_node.rate: found `10GB`"),
            ("\"10GB/s\"", "10", "m.toml:6: within_node.rate: found 10; accepted: a rate such as \"25GB/s\""),
            ("\"1us\"", "\"1 parsec\"", "within_node.latency: found `1 parsec`; accepted: a time with its unit"),
            ("\"1us\"", "\"0us\"", "within_node.latency: found `0us`; accepted: from 1ns to 1s"),
            ("\"1us\"", "\"2s\"", "within_node.latency: found `2s`; accepted: from 1ns to 1s"),
            (
                "ranks_per_node = 2",
                "ranks_per_node = 0",
                "m.toml:3: ranks_per_node: found 0; accepted: a whole number from 1",
            ),
            (
                "ranks_per_node = 2",
                "",
                "m.toml: the file: `ranks_per_node` is missing; accepted: a whole number from 1",
            ),
            ("[within_node]", "[noise2]", "noise2: unknown key; did you mean `noise`?"),
            (
                "relative_sigma = 0.02",
                "relative_sigma = nan",
                "noise.relative_sigma: found NaN; accepted: a number from 0",
            ),
            (
                "rate_factor = 0.25",
                "rate_factor = 1.5",
                "m.toml:21: faults[1].rate_factor: found 1.5; accepted: a number from 0.000001 to 1",
            ),
            ("rate_factor = 0.25", "rate_factor = 0", "faults[1].rate_factor: found 0;"),
            ("[0, 1]", "[1, 1]", "faults[1].nodes: found [1, 1]; a link joins two different nodes"),
            ("\"link\"", "\"lnk\"", "faults[1].kind: found `lnk`; accepted: node, link, rail, adapter"),
            ("rank = 3", "node = 3", "m.toml:16: faults[0].node: unknown key. Known here: kind, rank, delay"),
            ("rank = 3", "rank = -3", "faults[0].rank: found -3;"),
            (
                "name = \"small\"",
                "name = \" \"",
                "m.toml:2: name: found the text \" \"; accepted: a text in quotes, not blank",
            ),
            ("latency = \"1us\"", "", "m.toml:4: within_node: `latency` is missing; accepted: a time such as \"2us\""),
            ("kind = \"rank\"", "", "m.toml:14: faults[0]: `kind` is missing; accepted: node, link, rail, adapter"),
            ("name = \"small\"", "name = ", "m.toml:2: not TOML: "),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let error = Machine::parse(&text, Path::new("m.toml")).expect_err(to);
            let message = error.to_string();
            assert!(message.starts_with("m.toml:") && message.contains(words), "{to}: {message}");
            assert_eq!(error.exit_code(), 2, "{to}");
        }
    }

    #[test]
    fn a_missing_table_is_named_with_its_keys() {
        let text = GOOD.split("[between_nodes]").next().unwrap_or_default();
        let message = Machine::parse(text, Path::new("m.toml")).unwrap_err().to_string();
        assert_eq!(
            message,
            "m.toml: the file: `between_nodes` is missing; accepted: a table with latency, adapters_per_node, rate_per_adapter, assumed, nodes_per_leaf"
        );
    }

    #[test]
    fn a_node_like_that_of_another_file_has_its_figures_and_what_cannot_be_like_it_is_refused() {
        let text = |like: &str, ranks: u32| {
            GOOD.replace("ranks_per_node = 2", &format!("ranks_per_node = {ranks}\nnode_like = \"{like}\""))
        };
        let like = Machine::load(Path::new("h100-nvswitch-ndr")).unwrap();
        let machine = Machine::parse(&text("h100-nvswitch-ndr", 8), Path::new("m.toml")).unwrap();
        let of_a_node = like.expectations.iter().filter(|one| one.group.nodes == 1).count();
        assert_eq!((machine.expectations.len(), machine.network.len()), (of_a_node, 0));
        for (like, ranks, words) in [
            ("h101", 8, "m.toml:4: node_like: there is no machine `h101`"),
            ("h100-nvswitch-ndr", 2, "a node of h100-nvswitch-ndr has 8 ranks on 1 hosts, one of this file 2 on 1"),
            ("aws-p5-h100", 8, "small takes its node from here; name the file that has the figures"),
        ] {
            let error = Machine::parse(&text(like, ranks), Path::new("m.toml")).unwrap_err();
            assert!(error.to_string().contains(words), "{like}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Machine::load(Path::new("/nowhere/m.toml")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(
            error
                .to_string()
                .starts_with("there is no file `/nowhere/m.toml`; accepted: a path, or the name of a machine"),
            "{error}"
        );
    }

    #[test]
    fn a_good_file_is_read_in_base_units() {
        let machine = Machine::parse(GOOD, Path::new("m.toml")).unwrap();
        assert_eq!((machine.name.as_str(), machine.ranks_per_node), ("small", 2));
        assert_eq!(
            machine.within_node,
            NodeLinks {
                latency: Seconds(1e-6),
                rate: Rate(1e10),
                rate_per_peer: None,
                measured_calls: None,
                assumed: false
            }
        );
        assert_eq!(machine.between_nodes.rate_per_adapter, Rate(1e9));
        assert_eq!(machine.noise.outlier_factor, 1.0);
        assert_eq!(machine.faults[1], Fault::Link { nodes: [0, 1], rate_factor: 0.25 });
    }

    #[test]
    fn every_shipped_machine_loads_and_is_named_like_its_file() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let machine = Machine::load(&path).unwrap();
            assert_eq!(Some(machine.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
            assert_eq!(machine.faults, [], "{}: a shipped machine is a healthy one", machine.name);
            seen += 1;
        }
        assert!(seen >= 20, "found {seen} machine files");
    }

    #[test]
    fn ranks_that_the_hosts_of_a_node_cannot_share_are_refused() {
        let text = GOOD.replace("ranks_per_node = 2", "ranks_per_node = 6\nhosts_per_node = 4");
        let error = Machine::parse(&text, Path::new("m.toml")).unwrap_err().to_string();
        assert!(error.contains("hosts_per_node: found 4; the 6 ranks of a node do not divide evenly"), "{error}");
    }

    #[test]
    fn the_commented_example_faults_of_the_shipped_file_are_valid() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines/two-hosts-1gbit.toml");
        let text = std::fs::read_to_string(&path).unwrap().replace("#:", "");
        let faults = Machine::parse(&text, &path).unwrap().faults;
        let expected = [
            Fault::Rank { rank: 3, delay: Seconds(2e-3) },
            Fault::Node { node: 1, rate_factor: 0.5 },
            Fault::Link { nodes: [0, 1], rate_factor: 0.25 },
            Fault::Corrupt { rank: 2, probability: 0.1 },
        ];
        assert_eq!(faults, expected);
    }

    #[test]
    fn every_shipped_machine_reads_back_as_it_was_written() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines");
        for entry in std::fs::read_dir(folder).unwrap() {
            let mut machine = Machine::load(&entry.unwrap().path()).unwrap();
            let text = machine.to_toml().unwrap();
            let mut written = Machine::parse(&text, &machine.path).unwrap_or_else(|error| panic!("{error}\n{text}"));
            for machine in [&mut machine, &mut written] {
                machine.expectations.iter_mut().for_each(|one| one.place.clear());
                machine.network.iter_mut().for_each(|one| one.of_call.place.clear());
                machine.own_work.iter_mut().for_each(|one| one.place.clear());
            }
            assert_eq!(written, machine);
        }
    }
}
