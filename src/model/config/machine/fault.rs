//! Injected faults of a simulated machine. `fault_table` reads those of a machine file, `fault_text` those of the command line;
//! the simulated backend applies them to times.

use super::level::{ANY_INDEX, SMALLEST_RATE_FACTOR, count, number, positive, rate_factor};
use crate::config::document::Table;
use commgauge_base::error::Result;
use commgauge_base::units::{Seconds, parse_seconds};
use std::fmt;
use std::fmt::Display;
use std::str::FromStr;

/// An injected fault, to rehearse finding it. Indices are checked once the number of ranks is known.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// A rank that is late for every agreed start.
    Rank {
        /// World rank.
        rank: u32,
        /// How late.
        delay: Seconds,
    },
    /// A node all of whose links, inside and to the network, are slow.
    Node {
        /// The node.
        node: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// A slow path between two nodes.
    Link {
        /// Its ends.
        nodes: [u32; 2],
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// A rank that produces wrong data in some checks.
    Corrupt {
        /// World rank.
        rank: u32,
        /// Share of checks that find an error.
        probability: f64,
    },
    /// The same adapter of every node: the switch that connects them is slow.
    Rail {
        /// Number of the adapter on its node.
        rail: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// One adapter of one node.
    Adapter {
        /// The node.
        node: u32,
        /// Number of the adapter on it.
        adapter: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// One direction of the cable of one adapter.
    Cable {
        /// The node.
        node: u32,
        /// Number of the adapter on it.
        adapter: u32,
        /// The slow direction, seen from the node.
        direction: Direction,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// One device of a node: its links inside, and its way to the network.
    Device {
        /// The node.
        node: u32,
        /// Local rank that drives it.
        device: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// Links inside a node: all of one device, or the one between two devices.
    NvLink {
        /// The node.
        node: u32,
        /// Local rank that drives the device.
        device: u32,
        /// The other end; none where all links of the device are slow.
        peer: Option<u32>,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// Another job that uses the network of a node in bursts.
    Neighbour {
        /// The node.
        node: u32,
        /// Share of the rate that is left during a burst.
        rate_factor: f64,
    },
    /// A leaf switch: the network of all nodes behind it is slow.
    Leaf {
        /// Its number, counting nodes from 0.
        leaf: u32,
        /// Share of the rate that is left.
        rate_factor: f64,
    },
    /// Slow only where a group spans many nodes.
    Scale {
        /// The fewest nodes of a group that is slow.
        from_nodes: u32,
        /// Share of the rate between nodes that is left.
        rate_factor: f64,
    },
    /// Any of the others but `Corrupt` and `Neighbour`, with a probability.
    Intermittent {
        /// The fault while it is active.
        fault: Box<Fault>,
        /// Probability that it is active.
        probability: f64,
        /// Length of the windows in which the state is constant; it changes from call to call if absent.
        window: Option<Seconds>,
    },
    /// Any of the others but `Corrupt` and `Neighbour`, for a limited time.
    While {
        /// The fault while it is active.
        fault: Box<Fault>,
        /// Start time on the virtual clock.
        from: Seconds,
        /// Until when.
        until: Seconds,
    },
}

/// A direction of messages, seen from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Out of the node.
    Send,
    /// Into the node.
    Receive,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Send, Direction::Receive];

    /// The name in files and flags.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Send => "send",
            Direction::Receive => "receive",
        }
    }

    pub(super) fn named(name: &str) -> Option<Direction> {
        Direction::ALL.into_iter().find(|direction| direction.name() == name)
    }
}

/// The longest window of an intermittent fault: an hour.
pub(super) const LONGEST_WINDOW: Seconds = Seconds(3600.0);

/// The fewest nodes that work together.
pub(super) const FEWEST_TOGETHER: u32 = 2;

/// Whether there is time between two moments.
pub(super) fn is_while(from: Seconds, until: Seconds) -> bool {
    from.0 >= 0.0 && from.0 < until.0 && until.0 <= LONGEST_WINDOW.0
}

/// Whether a share of a rate can be left.
pub(super) fn is_rate_factor(factor: f64) -> bool {
    (SMALLEST_RATE_FACTOR..=1.0).contains(&factor)
}

// Reads injected faults from `[[faults]]` of a machine file.

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

// A fault in the words of the command line, such as `node:17:rate=0.6`.

/// The accepted forms, with an example of each.
const ACCEPTED: &str = "accepted: node:17:rate=0.6, link:3-9:rate=0.5, rail:2:rate=0.5, adapter:17.2:rate=0.5, \
     leaf:1:rate=0.5, scale:32:rate=0.5, cable:17.2.send:rate=0.5, device:17.2:rate=0.5, nvlink:17.2:rate=0.5, \
     nvlink:17.2-5:rate=0.5, rank:5:delay=2ms, neighbour:17:rate=0.5, corrupt:5:probability=0.1, and any but the last two now and then: \
     intermittent:0.2:node:17:rate=0.6 from call to call, intermittent:0.2/5s:node:17:rate=0.6 for 5 s each time; \
     or once: while:10s-25s:node:17:rate=0.6";

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Fault, String> {
        let wrong = |problem: String| format!("fault `{text}`: {problem}; {ACCEPTED}");
        let (kind, rest) = text.split_once(':').ok_or_else(|| wrong("found no `:`".to_owned()))?;
        if kind == "intermittent" {
            return intermittent(rest).map_err(wrong);
        }
        if kind == "while" {
            return for_a_while(rest).map_err(wrong);
        }
        let (which, how) = rest
            .split_once(':')
            .ok_or_else(|| wrong(format!("`{rest}` needs a severity after a second `:`, such as rate=0.6")))?;
        one(kind, which, how).map_err(wrong)
    }
}

fn one(kind: &str, which: &str, how: &str) -> std::result::Result<Fault, String> {
    Ok(match kind {
        "rank" => Fault::Rank { rank: index(which)?, delay: delay(how)? },
        "node" => Fault::Node { node: index(which)?, rate_factor: rate(how)? },
        "rail" => Fault::Rail { rail: index(which)?, rate_factor: rate(how)? },
        "leaf" => Fault::Leaf { leaf: index(which)?, rate_factor: rate(how)? },
        "corrupt" => Fault::Corrupt { rank: index(which)?, probability: probability(value(how, "probability")?)? },
        "scale" => match index(which)? {
            from_nodes if from_nodes >= FEWEST_TOGETHER => Fault::Scale { from_nodes, rate_factor: rate(how)? },
            from_nodes => return Err(format!("found {from_nodes} nodes; at least {FEWEST_TOGETHER} work together")),
        },
        "link" => {
            let (one, other) =
                which.split_once('-').ok_or_else(|| format!("found `{which}` where A-B is two nodes"))?;
            let nodes = [index(one)?, index(other)?];
            if nodes[0] == nodes[1] {
                return Err(format!("found `{which}`; a link joins two different nodes"));
            }
            Fault::Link { nodes, rate_factor: rate(how)? }
        }
        "adapter" => {
            let [node, adapter] = split(which, '.', "NODE.ADAPTER is one adapter of one node")?;
            Fault::Adapter { node: index(node)?, adapter: index(adapter)?, rate_factor: rate(how)? }
        }
        "cable" => {
            let form = "NODE.ADAPTER.send or NODE.ADAPTER.receive is one direction of one adapter";
            let [node, rest] = split(which, '.', form)?;
            let [adapter, direction] = split(rest, '.', form)?;
            let direction = Direction::named(direction).ok_or_else(|| format!("found `{which}` where {form}"))?;
            Fault::Cable { node: index(node)?, adapter: index(adapter)?, direction, rate_factor: rate(how)? }
        }
        "device" => {
            let [node, device] = split(which, '.', "NODE.DEVICE is one device of one node")?;
            Fault::Device { node: index(node)?, device: index(device)?, rate_factor: rate(how)? }
        }
        "nvlink" => {
            let [node, devices] = split(which, '.', "NODE.DEVICE or NODE.DEVICE-DEVICE is links inside a node")?;
            let (device, peer) = match devices.split_once('-') {
                None => (index(devices)?, None),
                Some((device, peer)) => (index(device)?, Some(index(peer)?)),
            };
            if Some(device) == peer {
                return Err(format!("found `{which}`; a link joins two different devices"));
            }
            Fault::NvLink { node: index(node)?, device, peer, rate_factor: rate(how)? }
        }
        "neighbour" => Fault::Neighbour { node: index(which)?, rate_factor: rate(how)? },
        other => return Err(format!("there is no kind `{other}`")),
    })
}

/// The two parts of a text around a letter; `form` says what they are.
fn split<'a>(text: &'a str, letter: char, form: &str) -> std::result::Result<[&'a str; 2], String> {
    let parts = text.split_once(letter).ok_or_else(|| format!("found `{text}` where {form}"))?;
    Ok([parts.0, parts.1])
}

fn intermittent(text: &str) -> std::result::Result<Fault, String> {
    let (how_often, fault) = text.split_once(':').ok_or("`intermittent` lacks the fault after its probability")?;
    let (chance, window) = match how_often.split_once('/') {
        None => (how_often, None),
        Some((chance, window)) => {
            let seconds = parse_seconds(window)?;
            if !(1e-6..=LONGEST_WINDOW.0).contains(&seconds.0) {
                return Err(format!("found a window of {seconds}; accepted: from 1us to 1h"));
            }
            (chance, Some(seconds))
        }
    };
    Ok(Fault::Intermittent { fault: transient(fault)?, probability: probability(chance)?, window })
}

fn for_a_while(text: &str) -> std::result::Result<Fault, String> {
    let (period, fault) =
        text.split_once(':').ok_or("`while` needs a fault after its period, such as while:10s-25s:node:1:rate=0.5")?;
    let (from, until) =
        period.split_once('-').ok_or_else(|| format!("found `{period}`; expected a period such as 10s-25s"))?;
    let (from, until) = (parse_seconds(from)?, parse_seconds(until)?);
    if !is_while(from, until) {
        return Err(format!("found from {from} until {until}; accepted: a later one after an earlier, up to 1h"));
    }
    Ok(Fault::While { fault: transient(fault)?, from, until })
}

/// A fault of a kind that can be intermittent.
fn transient(fault: &str) -> std::result::Result<Box<Fault>, String> {
    let (kind, rest) =
        fault.split_once(':').ok_or_else(|| format!("found `{fault}`; expected a fault such as node:1:rate=0.5"))?;
    if ["intermittent", "while", "corrupt", "neighbour"].contains(&kind) {
        return Err(format!("`{kind}` cannot come and go"));
    }
    let (which, how) = rest.split_once(':').ok_or_else(|| format!("`{rest}` needs a severity, such as rate=0.6"))?;
    one(kind, which, how).map(Box::new)
}

fn index(text: &str) -> std::result::Result<u32, String> {
    text.parse().map_err(|_| format!("found `{text}` where a number counted from 0 is"))
}

fn value<'a>(how: &'a str, key: &str) -> std::result::Result<&'a str, String> {
    match how.split_once('=') {
        Some((found, value)) if found == key => Ok(value),
        _ => Err(format!("found `{how}` where {key}=... is")),
    }
}

fn rate(how: &str) -> std::result::Result<f64, String> {
    let text = value(how, "rate")?;
    match text.parse::<f64>() {
        Ok(factor) if is_rate_factor(factor) => Ok(factor),
        _ => Err(format!("found a rate of `{text}`; it is the share that is left, above 0 and up to 1")),
    }
}

fn delay(how: &str) -> std::result::Result<Seconds, String> {
    let seconds = parse_seconds(value(how, "delay")?)?;
    match seconds.0 {
        1e-9..=1.0 => Ok(seconds),
        _ => Err(format!("found a delay of {seconds}; from 1ns to 1s")),
    }
}

fn probability(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err(format!("found a probability of `{text}`; from 0 to 1")),
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Rank { rank, delay } => write!(f, "rank:{rank}:delay={}us", delay.0 * 1e6),
            Fault::Node { node, rate_factor } => write!(f, "node:{node}:rate={rate_factor}"),
            Fault::Link { nodes: [a, b], rate_factor } => write!(f, "link:{a}-{b}:rate={rate_factor}"),
            Fault::Corrupt { rank, probability } => write!(f, "corrupt:{rank}:probability={probability}"),
            Fault::Rail { rail, rate_factor } => write!(f, "rail:{rail}:rate={rate_factor}"),
            Fault::Adapter { node, adapter, rate_factor } => write!(f, "adapter:{node}.{adapter}:rate={rate_factor}"),
            Fault::Cable { node, adapter, direction, rate_factor } => {
                write!(f, "cable:{node}.{adapter}.{}:rate={rate_factor}", direction.name())
            }
            Fault::Device { node, device, rate_factor } => write!(f, "device:{node}.{device}:rate={rate_factor}"),
            Fault::NvLink { node, device, peer: None, rate_factor } => {
                write!(f, "nvlink:{node}.{device}:rate={rate_factor}")
            }
            Fault::NvLink { node, device, peer: Some(peer), rate_factor } => {
                write!(f, "nvlink:{node}.{device}-{peer}:rate={rate_factor}")
            }
            Fault::Neighbour { node, rate_factor } => write!(f, "neighbour:{node}:rate={rate_factor}"),
            Fault::Leaf { leaf, rate_factor } => write!(f, "leaf:{leaf}:rate={rate_factor}"),
            Fault::Scale { from_nodes, rate_factor } => write!(f, "scale:{from_nodes}:rate={rate_factor}"),
            Fault::Intermittent { fault, probability, window: None } => write!(f, "intermittent:{probability}:{fault}"),
            Fault::Intermittent { fault, probability, window: Some(window) } => {
                write!(f, "intermittent:{probability}/{}s:{fault}", window.0)
            }
            Fault::While { fault, from, until } => write!(f, "while:{}s-{}s:{fault}", from.0, until.0),
        }
    }
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

    #[test]
    fn invalid_fault_texts_are_refused_with_all_accepted_forms() {
        for (words, problem) in [
            ("node", "found no `:`"),
            ("node:17", "`17` needs a severity"),
            ("noode:17:rate=0.5", "there is no kind `noode`"),
            ("node:x:rate=0.5", "found `x` where a number counted from 0 is"),
            ("node:1:rate=1.5", "found a rate of `1.5`"),
            ("node:1:rate=0", "found a rate of `0`"),
            ("node:1:delay=2ms", "found `delay=2ms` where rate=... is"),
            ("link:3:rate=0.5", "found `3` where A-B is two nodes"),
            ("link:3-3:rate=0.5", "a link joins two different nodes"),
            ("adapter:3:rate=0.5", "NODE.ADAPTER"),
            ("cable:3:rate=0.5", "NODE.ADAPTER.send"),
            ("cable:3.1.out:rate=0.5", "found `3.1.out` where"),
            ("device:3:rate=0.5", "NODE.DEVICE is one device"),
            ("nvlink:3.1-1:rate=0.5", "a link joins two different devices"),
            ("while:1s-2s:neighbour:1:rate=0.5", "`neighbour` cannot come and go"),
            ("scale:1:rate=0.5", "at least 2 work together"),
            ("rank:5:delay=2", "found `2`"),
            ("rank:5:delay=2s", "found a delay of 2.00 s"),
            ("corrupt:5:probability=2", "found a probability of `2`"),
            ("intermittent:0.2", "lacks the fault"),
            ("intermittent:2:node:1:rate=0.5", "found a probability of `2`"),
            ("intermittent:0.2/2h:node:1:rate=0.5", ""),
            ("intermittent:0.2:corrupt:1:probability=0.5", "`corrupt` cannot come and go"),
            ("while:2s:node:1:rate=0.5", "found `2s`; expected a period"),
            ("while:2s-1s:node:1:rate=0.5", "found from 2.00 s until 1.00 s"),
            ("while:1s-2s:while:1s-2s:node:1:rate=0.5", "`while` cannot come and go"),
        ] {
            let message = words.parse::<Fault>().unwrap_err();
            assert!(message.starts_with(&format!("fault `{words}`: ")), "{message}");
            assert!(message.contains(problem) && message.contains("accepted: node:17:rate=0.6"), "{message}");
        }
    }

    #[test]
    fn the_written_form_reads_back_as_the_same_fault() {
        for words in [
            "node:17:rate=0.6",
            "link:3-9:rate=0.5",
            "rail:2:rate=0.5",
            "adapter:17.2:rate=0.5",
            "cable:17.2.receive:rate=0.5",
            "device:17.2:rate=0.5",
            "nvlink:17.2:rate=0.5",
            "nvlink:17.2-5:rate=0.5",
            "neighbour:17:rate=0.5",
            "leaf:1:rate=0.5",
            "scale:32:rate=0.5",
            "rank:5:delay=2000us",
            "corrupt:5:probability=0.1",
            "intermittent:0.2:node:17:rate=0.6",
            "intermittent:0.2/5s:link:3-9:rate=0.6",
            "while:0.5s-2s:link:3-9:rate=0.6",
        ] {
            let fault: Fault = words.parse().unwrap();
            assert_eq!(fault.to_string(), words);
        }
        assert_eq!("rank:5:delay=2ms".parse(), Ok(Fault::Rank { rank: 5, delay: Seconds(2e-3) }));
    }
}
