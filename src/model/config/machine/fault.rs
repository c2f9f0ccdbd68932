//! Injected faults of a simulated machine, in one grammar: a `[[faults]]` of a machine file, and the same in words for the command line,
//! which are read as the values of that table. The simulated backend applies them to times.

use crate::config::document::{Item, Table};
use crate::config::typed::{SECOND, count, time};
use commgauge_base::error::Result;
use commgauge_base::units::Seconds;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::fmt::{self, Display};
use std::str::FromStr;

/// An injected fault, to rehearse finding it. Indices are checked once the number of ranks is known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// A rank that is late for every agreed start.
    Rank {
        /// World rank.
        rank: u32,
        /// How late.
        #[serde(deserialize_with = "time::<_, _, 1, SECOND>")]
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
        #[serde(deserialize_with = "ends")]
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
        #[serde(deserialize_with = "count::<_, _, 2, { u32::MAX }>")]
        from_nodes: u32,
        /// Share of the rate between nodes that is left.
        rate_factor: f64,
    },
    /// Any of the others but `Corrupt` and `Neighbour`, with a probability.
    #[serde(skip)]
    Intermittent {
        /// The fault while it is active.
        fault: Box<Fault>,
        /// Probability that it is active.
        probability: f64,
        /// Length of the windows in which the state is constant; it changes from call to call if absent.
        window: Option<Seconds>,
    },
    /// Any of the others but `Corrupt` and `Neighbour`, for a limited time.
    #[serde(skip)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Out of the node.
    Send,
    /// Into the node.
    Receive,
}

impl Direction {
    /// Both.
    pub const ALL: [Direction; 2] = [Direction::Send, Direction::Receive];
}

/// How the faults of a kind are named in words: `KIND:PLACE:SEVERITY`.
struct Form {
    kind: &'static str,
    /// What is before each value of the place, and its key. A key that is named twice is a list of two; `peer` may be absent.
    place: &'static [(&'static str, &'static str)],
    example: &'static str,
    /// The key in words, and in files, with an example.
    severity: (&'static str, &'static str, &'static str),
}

const RATE: (&str, &str, &str) = ("rate", "rate_factor", "0.5");

const NODE: (&str, &str) = ("", "node");

const FORMS: [Form; 12] = [
    Form { kind: "node", place: &[NODE], example: "17", severity: ("rate", "rate_factor", "0.6") },
    Form { kind: "link", place: &[("", "nodes"), ("-", "nodes")], example: "3-9", severity: RATE },
    Form { kind: "rail", place: &[("", "rail")], example: "2", severity: RATE },
    Form { kind: "adapter", place: &[NODE, (".", "adapter")], example: "17.2", severity: RATE },
    Form { kind: "leaf", place: &[("", "leaf")], example: "1", severity: RATE },
    Form { kind: "scale", place: &[("", "from_nodes")], example: "32", severity: RATE },
    Form { kind: "cable", place: &[NODE, (".", "adapter"), (".", "direction")], example: "17.2.send", severity: RATE },
    Form { kind: "device", place: &[NODE, (".", "device")], example: "17.2", severity: RATE },
    Form { kind: "nvlink", place: &[NODE, (".", "device"), ("-", "peer")], example: "17.2[-5]", severity: RATE },
    Form { kind: "rank", place: &[("", "rank")], example: "5", severity: ("delay", "delay", "2ms") },
    Form { kind: "neighbour", place: &[NODE], example: "17", severity: RATE },
    Form { kind: "corrupt", place: &[("", "rank")], example: "5", severity: ("probability", "probability", "0.1") },
];

/// Kinds that are always there.
const PERMANENT: [&str; 2] = ["neighbour", "corrupt"];

/// A rate of nothing would be a call without end.
const SMALLEST_RATE_FACTOR: f64 = 1e-6;

/// The longest window and the last moment, in nanoseconds.
const HOUR: u64 = 3600 * SECOND;

/// When a fault is there.
#[derive(Deserialize)]
struct Timing {
    probability: Option<f64>,
    #[serde(default, deserialize_with = "time::<_, _, 1000, HOUR>")]
    window: Option<Seconds>,
    #[serde(default, deserialize_with = "time::<_, _, 0, HOUR>")]
    from: Option<Seconds>,
    #[serde(default, deserialize_with = "time::<_, _, 0, HOUR>")]
    until: Option<Seconds>,
}

const TIMING: [&str; 4] = ["probability", "window", "from", "until"];

fn ends<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<[u32; 2], D::Error> {
    match <[u32; 2]>::deserialize(from)? {
        [one, other] if one == other => {
            Err(D::Error::custom(format!("found [{one}, {other}]; a link joins two different nodes")))
        }
        ends => Ok(ends),
    }
}

/// Reads one `[[faults]]`. Two steps, since the keys depend on the kind.
pub(super) fn fault(mut table: Table) -> Result<Fault> {
    let keys = |form: &Form| form.place.iter().map(|(_, key)| *key).chain([form.severity.1]).collect::<Vec<_>>();
    table.only(&[&["kind"], &*FORMS.iter().flat_map(keys).collect::<Vec<_>>(), &TIMING].concat())?;
    let kinds = FORMS.map(|form| form.kind).join(", ");
    let kind = table.require("kind", &kinds)?;
    let name = kind.text()?;
    let form = FORMS.iter().find(|form| form.kind == name);
    let form = form.ok_or_else(|| kind.wrong(format!("found `{name}`; accepted: {kinds}")))?;
    let timing: &[&str] = if PERMANENT.contains(&name) { &[] } else { &TIMING };
    table.only(&[&["kind"], &*keys(form), timing].concat())?;
    for (key, least) in [("rate_factor", SMALLEST_RATE_FACTOR), ("probability", 0.0)] {
        table.peek(key).map(|item| item.number_within(least..=1.0)).transpose()?;
    }
    let timing: Timing = Item::from(table.part(timing)).read()?;
    let (place, peer_place) = (table.place.clone(), table.place_of("peer").clone());
    let fault: Fault = table.under(name).read()?;
    if let Fault::NvLink { device, peer: Some(peer), .. } = fault
        && device == peer
    {
        return Err(peer_place.wrong(format!("found {peer}; a link joins two different devices")));
    }
    match timing {
        Timing { probability: None, window: None, from: None, until: None } => Ok(fault),
        Timing { probability: Some(probability), window, from: None, until: None } => {
            Ok(Fault::Intermittent { fault: Box::new(fault), probability, window })
        }
        Timing { probability: None, window: None, from: Some(from), until: Some(until) } if from < until => {
            Ok(Fault::While { fault: Box::new(fault), from, until })
        }
        _ => Err(place.wrong(
            "a fault comes and goes by `probability`, with or without `window`, or is there `from` one time `until` a later one",
        )),
    }
}

/// A flag for each value of a fault in words, with its key in files.
type Flags = Vec<(&'static str, &'static str, String)>;

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Fault, String> {
        let read = flags(text).and_then(|flags| fault(Table::of_flags(flags)).map_err(|error| error.to_string()));
        read.map_err(|problem| {
            let form = |Form { kind, example, severity: (key, _, severity), .. }: Form| {
                format!("{kind}:{example}:{key}={severity}")
            };
            format!(
                "fault `{text}`: {problem}; accepted: {}, and any but the last two now and then: \
                 intermittent:0.2:node:17:rate=0.6 from call to call, intermittent:0.2/5s:node:17:rate=0.6 for 5 s each time; \
                 or once: while:10s-25s:node:17:rate=0.6",
                FORMS.map(form).join(", ")
            )
        })
    }
}

fn flags(text: &str) -> std::result::Result<Flags, String> {
    let (kind, rest) = text.split_once(':').ok_or("found no `:`")?;
    let after = |what: &str| rest.split_once(':').ok_or_else(|| format!("missing fault after the {what}"));
    let flag = |key: &'static str, value: &str| (key, key, value.to_owned());
    let (timing, fault) = match kind {
        "intermittent" => {
            let (often, fault) = after("probability")?;
            let timing = match often.split_once('/') {
                Some((probability, window)) => vec![flag("probability", probability), flag("window", window)],
                None => vec![flag("probability", often)],
            };
            (timing, fault)
        }
        "while" => {
            let (times, fault) = after("time range")?;
            let range = times.split_once('-');
            let (from, until) =
                range.ok_or_else(|| format!("found `{times}`, expected a time range such as 10s-25s"))?;
            (vec![flag("from", from), flag("until", until)], fault)
        }
        _ => return simple(text),
    };
    let kind = fault.split(':').next().unwrap_or_default();
    if PERMANENT.contains(&kind) || ["intermittent", "while"].contains(&kind) {
        return Err(format!("`{kind}` cannot come and go"));
    }
    Ok([simple(fault)?, timing].concat())
}

fn simple(text: &str) -> std::result::Result<Flags, String> {
    let mut parts = text.splitn(3, ':');
    let (kind, place) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let form = FORMS.iter().find(|form| form.kind == kind).ok_or_else(|| format!("there is no kind `{kind}`"))?;
    let (key, file_key, example) = form.severity;
    let severity = parts.next().ok_or_else(|| format!("missing severity, e.g. {key}={example}"))?;
    let value = severity.strip_prefix(key).and_then(|rest| rest.strip_prefix('='));
    let value = value.ok_or_else(|| format!("found `{severity}`, expected {key}={example}"))?;
    let mut flags = vec![("kind", "kind", kind.to_owned()), (key, file_key, value.to_owned())];
    let mut rest = place;
    for (index, (_, key)) in form.place.iter().enumerate() {
        let (value, more) = match form.place.get(index + 1) {
            None => (rest, ""),
            Some((between, next)) => match rest.split_once(between) {
                Some(parts) => parts,
                None if *next == "peer" => (rest, ""),
                None => return Err(format!("found `{place}`, expected a place such as {}", form.example)),
            },
        };
        match flags.last_mut() {
            Some((last, _, both)) if last == key => *both = format!("{both},{value}"),
            _ => flags.push((*key, *key, value.to_owned())),
        }
        rest = more;
        if rest.is_empty() {
            break;
        }
    }
    Ok(flags)
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Intermittent { fault, probability, window: None } => write!(f, "intermittent:{probability}:{fault}"),
            Fault::Intermittent { fault, probability, window: Some(window) } => {
                write!(f, "intermittent:{probability}/{}s:{fault}", window.0)
            }
            Fault::While { fault, from, until } => write!(f, "while:{}s-{}s:{fault}", from.0, until.0),
            simple => {
                let values = serde_json::to_value(simple).map_err(|_| fmt::Error)?;
                let form = FORMS.iter().find(|form| values.get(form.kind).is_some()).ok_or(fmt::Error)?;
                let values = &values[form.kind];
                write!(f, "{}:", form.kind)?;
                for (index, (before, key)) in form.place.iter().enumerate() {
                    match &values[*key] {
                        Value::Null => {}
                        Value::String(name) => write!(f, "{before}{name}")?,
                        Value::Array(both) => write!(f, "{before}{}", both[index])?,
                        number => write!(f, "{before}{number}")?,
                    }
                }
                let (key, file_key, _) = form.severity;
                let severity = values[file_key].as_f64().ok_or(fmt::Error)?;
                match key {
                    "delay" => write!(f, ":{key}={}us", severity * 1e6),
                    _ => write!(f, ":{key}={severity}"),
                }
            }
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
                "found `rial`; accepted: node, link, rail, adapter, leaf, scale, cable, device, nvlink, rank, neighbour, corrupt",
            ),
            ("kind = 'rail'\nnode = 1", "faults[0].node: unknown key. Known here: kind, rail, rate_factor"),
            ("kind = 'rail'\nrail = 1\nrate_factor = 0", "faults[0].rate_factor: found 0"),
            ("kind = 'scale'\nfrom_nodes = 1\nrate_factor = 0.5", "faults[0].from_nodes: found 1; accepted"),
            (
                "kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nwindow = '1s'",
                "faults[0]: a fault comes and goes by `probability`",
            ),
            (
                "kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nprobability = 0.5\nwindow = '120m'",
                "faults[0].window: found `120m`; accepted: from 1us to 3600s",
            ),
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
            ("kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nfrom = '2s'", "faults[0]: a fault comes and goes"),
            (
                "kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nuntil = '2s'",
                "is there `from` one time `until` a later one",
            ),
            ("kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nfrom = '2s'\nuntil = '1s'", "faults[0]: a fault comes"),
            (
                "kind = 'leaf'\nleaf = 1\nrate_factor = 0.5\nfrom = '1s'\nuntil = '2s'\nprobability = 0.1",
                "faults[0]: a fault comes",
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
            ("node:17", "missing severity, e.g. rate=0.6"),
            ("noode:17:rate=0.5", "there is no kind `noode`"),
            ("node:x:rate=0.5", "node: found the text \"x\"; accepted: a whole number from 0"),
            ("node:1:rate=1.5", "rate: found 1.5; accepted: a number from 0.000001 to 1"),
            ("node:1:rate=0", "rate: found 0; accepted: a number from 0.000001 to 1"),
            ("node:1:delay=2ms", "found `delay=2ms`, expected rate=0.6"),
            ("link:3:rate=0.5", "found `3`, expected a place such as 3-9"),
            ("link:3-3:rate=0.5", "a link joins two different nodes"),
            ("adapter:3:rate=0.5", "found `3`, expected a place such as 17.2;"),
            ("cable:3:rate=0.5", "found `3`, expected a place such as 17.2.send"),
            ("cable:3.1.out:rate=0.5", "direction: found `out`; accepted: send, receive"),
            ("device:3:rate=0.5", "found `3`, expected a place such as 17.2"),
            ("nvlink:3.1-1:rate=0.5", "a link joins two different devices"),
            ("while:1s-2s:neighbour:1:rate=0.5", "`neighbour` cannot come and go"),
            ("scale:1:rate=0.5", "from_nodes: found 1; accepted: a whole number from 2"),
            ("rank:5:delay=2", "delay: found 2; accepted: a time such as \"2us\", from 1ns to 1s"),
            ("rank:5:delay=2s", "delay: found `2s`; accepted: from 1ns to 1s"),
            ("corrupt:5:probability=2", "probability: found 2; accepted: a number from 0 to 1"),
            ("intermittent:0.2", "missing fault after the probability"),
            ("intermittent:2:node:1:rate=0.5", "probability: found 2; accepted: a number from 0 to 1"),
            ("intermittent:0.2/2h:node:1:rate=0.5", "window: found `2h`; accepted: from 1us to 3600s"),
            ("intermittent:0.2:corrupt:1:probability=0.5", "`corrupt` cannot come and go"),
            ("while:2s:node:1:rate=0.5", "found `2s`, expected a time range such as 10s-25s"),
            ("while:2s-1s:node:1:rate=0.5", "`from` one time `until` a later one"),
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
