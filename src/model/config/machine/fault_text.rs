//! A fault in the words of the command line, such as `node:17:rate=0.6`.

use super::fault::{Direction, FEWEST_TOGETHER, Fault, LONGEST_WINDOW, is_rate_factor, is_while};
use commgauge_base::units::{Seconds, parse_seconds};
use std::fmt::{self, Display};
use std::str::FromStr;

/// The accepted forms, with an example of each.
const ACCEPTED: &str = "accepted: node:17:rate=0.6, link:3-9:rate=0.5, rail:2:rate=0.5, adapter:17.2:rate=0.5, \
     leaf:1:rate=0.5, scale:32:rate=0.5, cable:17.2.send:rate=0.5, device:17.2:rate=0.5, nvlink:17.2:rate=0.5, \
     nvlink:17.2-5:rate=0.5, rank:5:delay=2ms, neighbour:17:rate=0.5, corrupt:5:probability=0.1, and any but the last two now and then: \
     intermittent:0.2:node:17:rate=0.6 from call to call, intermittent:0.2/5s:node:17:rate=0.6 for 5 s each time; \
     or once: while:10s-25s:node:17:rate=0.6";

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Fault, String> {
        let wrong = |problem: String| format!("fault `{text}`: {problem}; {ACCEPTED}");
        let (kind, rest) = text.split_once(':').ok_or_else(|| wrong("found no `:`".to_owned()))?;
        if kind == "intermittent" {
            return intermittent(rest).map_err(wrong);
        }
        if kind == "while" {
            return for_a_while(rest).map_err(wrong);
        }
        let (which, how) =
            rest.split_once(':').ok_or_else(|| wrong(format!("`{rest}` lacks how bad it is, after a second `:`")))?;
        one(kind, which, how).map_err(wrong)
    }
}

fn one(kind: &str, which: &str, how: &str) -> Result<Fault, String> {
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
fn split<'a>(text: &'a str, letter: char, form: &str) -> Result<[&'a str; 2], String> {
    let parts = text.split_once(letter).ok_or_else(|| format!("found `{text}` where {form}"))?;
    Ok([parts.0, parts.1])
}

fn intermittent(text: &str) -> Result<Fault, String> {
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

fn for_a_while(text: &str) -> Result<Fault, String> {
    let (moments, fault) = text.split_once(':').ok_or("`while` lacks the fault after its two moments")?;
    let (from, until) =
        moments.split_once('-').ok_or_else(|| format!("found `{moments}` where two moments such as 10s-25s are"))?;
    let (from, until) = (parse_seconds(from)?, parse_seconds(until)?);
    if !is_while(from, until) {
        return Err(format!("found from {from} until {until}; accepted: a later one after an earlier, up to 1h"));
    }
    Ok(Fault::While { fault: transient(fault)?, from, until })
}

/// A fault of a kind that can be intermittent.
fn transient(fault: &str) -> Result<Box<Fault>, String> {
    let (kind, rest) = fault.split_once(':').ok_or_else(|| format!("found `{fault}` where a fault is"))?;
    if ["intermittent", "while", "corrupt", "neighbour"].contains(&kind) {
        return Err(format!("`{kind}` cannot come and go"));
    }
    let (which, how) = rest.split_once(':').ok_or_else(|| format!("`{rest}` lacks how bad it is"))?;
    one(kind, which, how).map(Box::new)
}

fn index(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("found `{text}` where a number counted from 0 is"))
}

fn value<'a>(how: &'a str, key: &str) -> Result<&'a str, String> {
    match how.split_once('=') {
        Some((found, value)) if found == key => Ok(value),
        _ => Err(format!("found `{how}` where {key}=... is")),
    }
}

fn rate(how: &str) -> Result<f64, String> {
    let text = value(how, "rate")?;
    match text.parse::<f64>() {
        Ok(factor) if is_rate_factor(factor) => Ok(factor),
        _ => Err(format!("found a rate of `{text}`; it is the share that is left, above 0 and up to 1")),
    }
}

fn delay(how: &str) -> Result<Seconds, String> {
    let seconds = parse_seconds(value(how, "delay")?)?;
    match seconds.0 {
        1e-9..=1.0 => Ok(seconds),
        _ => Err(format!("found a delay of {seconds}; from 1ns to 1s")),
    }
}

fn probability(text: &str) -> Result<f64, String> {
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

    #[test]
    fn invalid_fault_texts_are_refused_with_all_accepted_forms() {
        for (words, problem) in [
            ("node", "found no `:`"),
            ("node:17", "`17` lacks how bad it is"),
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
            ("while:2s:node:1:rate=0.5", "found `2s` where two moments"),
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
