//! Reads injected faults from `[[faults]]` of a machine file.

use super::fault::{Direction, FEWEST_TOGETHER, Fault, LONGEST_WINDOW, is_while};
use super::number::{ANY_INDEX, count, number, positive, rate_factor};
use crate::config::document::Table;
use commgauge_base::error::Result;

/// The kinds, as files and flags call them.
const KINDS: &str = "rank, node, link, corrupt, rail, adapter, leaf, scale, cable, device, nvlink, neighbour";
/// The keys of all kinds of fault together.
const KEYS: [&str; 17] = [
    "kind",
    "rank",
    "node",
    "nodes",
    "rail",
    "adapter",
    "device",
    "peer",
    "direction",
    "leaf",
    "from_nodes",
    "delay",
    "rate_factor",
    "probability",
    "window",
    "from",
    "until",
];

/// Reads one `[[faults]]`. Two steps, since the accepted keys depend on the kind.
pub(super) fn fault(mut table: Table) -> Result<Fault> {
    table.only(&KEYS)?;
    let kind = table.require("kind", KINDS)?;
    let name = kind.text_such_as("rank")?;
    let own: &[&'static str] = match name {
        "rank" => &["rank", "delay"],
        "node" => &["node", "rate_factor"],
        "link" => &["nodes", "rate_factor"],
        "corrupt" => &["rank", "probability"],
        "rail" => &["rail", "rate_factor"],
        "adapter" => &["node", "adapter", "rate_factor"],
        "leaf" => &["leaf", "rate_factor"],
        "scale" => &["from_nodes", "rate_factor"],
        "cable" => &["node", "adapter", "direction", "rate_factor"],
        "device" => &["node", "device", "rate_factor"],
        "nvlink" => &["node", "device", "peer", "rate_factor"],
        "neighbour" => &["node", "rate_factor"],
        other => return Err(kind.wrong(format!("found `{other}`; accepted: {KINDS}"))),
    };
    let intermittent: &[&'static str] =
        if ["corrupt", "neighbour"].contains(&name) { &[] } else { &["probability", "window", "from", "until"] };
    table.only(&[&["kind"], own, intermittent].concat())?;
    let mut index = |key| count(&mut table, key, ANY_INDEX);
    let fault = match name {
        "rank" => Fault::Rank { rank: index("rank")?, delay: positive(&mut table, "delay")? },
        "node" => Fault::Node { node: index("node")?, rate_factor: rate_factor(&mut table)? },
        "link" => Fault::Link { nodes: ends(&mut table)?, rate_factor: rate_factor(&mut table)? },
        "corrupt" => {
            let rank = index("rank")?;
            return Ok(Fault::Corrupt { rank, probability: number(&mut table, "probability", 0.0..=1.0)? });
        }
        "rail" => Fault::Rail { rail: index("rail")?, rate_factor: rate_factor(&mut table)? },
        "adapter" => {
            let (node, adapter) = (index("node")?, index("adapter")?);
            Fault::Adapter { node, adapter, rate_factor: rate_factor(&mut table)? }
        }
        "leaf" => Fault::Leaf { leaf: index("leaf")?, rate_factor: rate_factor(&mut table)? },
        "cable" => {
            let (node, adapter) = (index("node")?, index("adapter")?);
            let direction = direction(&mut table)?;
            Fault::Cable { node, adapter, direction, rate_factor: rate_factor(&mut table)? }
        }
        "device" => {
            let (node, device) = (index("node")?, index("device")?);
            Fault::Device { node, device, rate_factor: rate_factor(&mut table)? }
        }
        "nvlink" => {
            let (node, device) = (index("node")?, index("device")?);
            let peer = peer(&mut table, device)?;
            Fault::NvLink { node, device, peer, rate_factor: rate_factor(&mut table)? }
        }
        "neighbour" => Fault::Neighbour { node: index("node")?, rate_factor: rate_factor(&mut table)? },
        _ => {
            let from_nodes = count(&mut table, "from_nodes", FEWEST_TOGETHER..=u32::MAX)?;
            Fault::Scale { from_nodes, rate_factor: rate_factor(&mut table)? }
        }
    };
    with_timing(fault, &mut table)
}

/// Wraps the fault as intermittent or temporary if the table says so.
fn with_timing(fault: Fault, table: &mut Table) -> Result<Fault> {
    if let Some(until) = table.take("until") {
        let from = table.require("from", "when the fault comes, such as '10s'")?;
        let while_ = (from.seconds()?, until.seconds()?);
        if let Some(item) = table.take("probability").or_else(|| table.take("window")) {
            return Err(
                item.wrong("cannot be combined with `from` and `until`; a fault is there for a while or now and then")
            );
        }
        return match is_while(while_.0, while_.1) {
            true => Ok(Fault::While { fault: Box::new(fault), from: while_.0, until: while_.1 }),
            false => {
                Err(until.wrong(format!("found {}; accepted: later than `from`, up to {LONGEST_WINDOW}", while_.1)))
            }
        };
    }
    if let Some(item) = table.take("from") {
        return Err(item.wrong("needs `until` too"));
    }
    let window = match table.take("window") {
        None => None,
        Some(item) => {
            let window = item.seconds()?;
            if !(1e-6..=LONGEST_WINDOW.0).contains(&window.0) {
                return Err(item.wrong(format!("found {window}; accepted: from 1us to 1h")));
            }
            Some((window, item))
        }
    };
    match (table.take("probability"), window) {
        (None, None) => Ok(fault),
        (None, Some((_, item))) => Err(item.wrong("needs `probability` too, the chance that the fault is there")),
        (Some(item), window) => Ok(Fault::Intermittent {
            fault: Box::new(fault),
            probability: item.number_within(0.0..=1.0)?,
            window: window.map(|(window, _)| window),
        }),
    }
}

fn direction(table: &mut Table) -> Result<Direction> {
    let item = table.require("direction", "send or receive, seen from the node")?;
    let name = item.text_such_as("send")?;
    Direction::named(name).ok_or_else(|| item.wrong(format!("found `{name}`; accepted: send, receive")))
}

/// The other end of a link inside a node, if one is named.
fn peer(table: &mut Table, device: u32) -> Result<Option<u32>> {
    let Some(item) = table.take("peer") else { return Ok(None) };
    let peer = item.count_within(ANY_INDEX)?;
    if peer == device {
        return Err(item.wrong(format!("found {peer}; a link joins two different devices")));
    }
    Ok(Some(peer))
}

fn ends(table: &mut Table) -> Result<[u32; 2]> {
    let item = table.require("nodes", "two whole numbers such as [0, 1]")?;
    let nodes = item.pair_of_counts(ANY_INDEX)?;
    if nodes[0] == nodes[1] {
        return Err(item.wrong(format!("found {nodes:?}; a link joins two different nodes")));
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Machine;
    use commgauge_base::units::Seconds;
    use std::path::Path;

    fn read(fault: &str) -> Result<Vec<Fault>> {
        let text = format!(
            "name = 'm'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n[between_nodes]\n\
             latency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '1GB/s'\n[[faults]]\n{fault}\n"
        );
        Ok(Machine::parse(&text, Path::new("m.toml"))?.faults)
    }

    #[test]
    fn a_fault_that_makes_no_sense_is_refused_with_what_is_accepted() {
        for (fault, words) in [
            (
                "kind = 'rial'\nrail = 1",
                "found `rial`; accepted: rank, node, link, corrupt, rail, adapter, leaf, scale, cable, device, nvlink, neighbour",
            ),
            ("kind = 'rail'\nnode = 1", "faults[0].node: unknown key. Known here: kind, rail, rate_factor"),
            ("kind = 'rail'\nrail = 1\nrate_factor = 0", "faults[0].rate_factor: found 0"),
            ("kind = 'scale'\nfrom_nodes = 1\nrate_factor = 0.5", "faults[0].from_nodes: found 1; accepted"),
            ("kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nwindow = '1s'", "needs `probability` too"),
            ("kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nprobability = 0.5\nwindow = '120m'", "from 1us to 1h"),
            ("kind = 'corrupt'\nrank = 1\nprobability = 0.5\nwindow = '2s'", "faults[0].window: unknown key"),
            (
                "kind = 'neighbour'\nnode = 1\nrate_factor = 0.5\nprobability = 0.1",
                "faults[0].probability: unknown key",
            ),
            (
                "kind = 'cable'\nnode = 1\nadapter = 0\ndirection = 'out'\nrate_factor = 0.5",
                "faults[0].direction: found `out`; accepted: send, receive",
            ),
            (
                "kind = 'nvlink'\nnode = 1\ndevice = 0\npeer = 0\nrate_factor = 0.5",
                "faults[0].peer: found 0; a link joins two different devices",
            ),
            ("kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nfrom = '2s'", "faults[0].from: needs `until` too"),
            ("kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nuntil = '2s'", "`from` is missing"),
            ("kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nfrom = '2s'\nuntil = '1s'", "faults[0].until: found 1.00 s"),
            (
                "kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nfrom = '1s'\nuntil = '2s'\nprobability = 0.1",
                "faults[0].probability: cannot be combined with",
            ),
        ] {
            let error = read(fault).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(words), "{fault}: {error}");
        }
    }

    #[test]
    fn every_kind_is_read_and_any_of_them_may_be_there_now_and_then() {
        let rail = Fault::Rail { rail: 2, rate_factor: 0.5 };
        for (fault, expected) in [
            ("kind = 'rail'\nrail = 2\nrate_factor = 0.5", rail.clone()),
            (
                "kind = 'adapter'\nnode = 3\nadapter = 1\nrate_factor = 0.5",
                Fault::Adapter { node: 3, adapter: 1, rate_factor: 0.5 },
            ),
            (
                "kind = 'cable'\nnode = 3\nadapter = 1\ndirection = 'send'\nrate_factor = 0.5",
                Fault::Cable { node: 3, adapter: 1, direction: Direction::Send, rate_factor: 0.5 },
            ),
            (
                "kind = 'device'\nnode = 3\ndevice = 1\nrate_factor = 0.5",
                Fault::Device { node: 3, device: 1, rate_factor: 0.5 },
            ),
            (
                "kind = 'nvlink'\nnode = 3\ndevice = 1\npeer = 0\nrate_factor = 0.5",
                Fault::NvLink { node: 3, device: 1, peer: Some(0), rate_factor: 0.5 },
            ),
            ("kind = 'neighbour'\nnode = 3\nrate_factor = 0.5", Fault::Neighbour { node: 3, rate_factor: 0.5 }),
            ("kind = 'leaf'\nleaf = 1\nrate_factor = 0.7", Fault::Leaf { leaf: 1, rate_factor: 0.7 }),
            ("kind = 'scale'\nfrom_nodes = 8\nrate_factor = 0.7", Fault::Scale { from_nodes: 8, rate_factor: 0.7 }),
            (
                "kind = 'rail'\nrail = 2\nrate_factor = 0.5\nprobability = 0.2\nwindow = '5s'",
                Fault::Intermittent { fault: Box::new(rail.clone()), probability: 0.2, window: Some(Seconds(5.0)) },
            ),
            (
                "kind = 'rail'\nrail = 2\nrate_factor = 0.5\nfrom = '5s'\nuntil = '8s'",
                Fault::While { fault: Box::new(rail), from: Seconds(5.0), until: Seconds(8.0) },
            ),
        ] {
            assert_eq!(read(fault).unwrap(), [expected], "{fault}");
        }
    }
}
