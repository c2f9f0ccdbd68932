//! Reads a suite's `[pairs]` table: what is measured between every two nodes, or every two ranks.

use super::document::{Item, Place, Table};
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;

/// The largest message: MPI counts elements in 32 bits.
pub const LARGEST_MESSAGE: Bytes = Bytes(i32::MAX as u64);

/// Measurement of all pairs, in rounds of disjoint pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct PairsTable {
    /// Where it was requested.
    pub place: Place,
    /// What the pairs consist of.
    pub between: Between,
    /// Every two ranks of each node too, all nodes at once.
    pub inside_nodes: bool,
    /// Message whose one-way time is the latency.
    pub latency_bytes: Bytes,
    /// Message whose rate is the bandwidth.
    pub bandwidth_bytes: Bytes,
    /// Each pair alone, instead of all pairs of a round at once.
    pub one_at_a_time: bool,
}

/// What the pairs consist of: ranks or nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Every two nodes: each rank with the rank of the same place on the other node, all at once.
    Nodes,
    /// Every two ranks.
    Ranks,
}

impl PairsTable {
    /// Reads and checks the table.
    pub(super) fn read(mut table: Table) -> Result<PairsTable> {
        let between = table.take("between").map_or(Ok(Between::Nodes), |item| item.parsed(between))?;
        let latency = table.take("latency_bytes");
        let bandwidth = table.take("bandwidth_bytes");
        let bytes = |item: &Option<Item>, default: u64| item.as_ref().map_or(Ok(Bytes(default)), message);
        let (latency_bytes, bandwidth_bytes) = (bytes(&latency, 8)?, bytes(&bandwidth, 4 << 20)?);
        if let Some(item) = bandwidth.or(latency)
            && latency_bytes >= bandwidth_bytes
        {
            return Err(item.wrong(format!(
                "a latency message of {latency_bytes} is not below a bandwidth message of {bandwidth_bytes}"
            )));
        }
        let one_at_a_time = table.take("one_at_a_time").map_or(Ok(false), |item| item.truth())?;
        let inside = table.take("inside_nodes");
        let inside_nodes = inside.as_ref().map_or(Ok(false), Item::truth)?;
        if let Some(item) = inside.filter(|_| inside_nodes && (one_at_a_time || between == Between::Ranks)) {
            return Err(
                item.wrong("pairs of all ranks include those inside nodes, and those inside nodes meet all at once")
            );
        }
        let place = table.place.clone();
        table.finish()?;
        Ok(PairsTable { place, between, inside_nodes, latency_bytes, bandwidth_bytes, one_at_a_time })
    }
}

fn message(item: &Item) -> Result<Bytes> {
    let bytes = match item.is_whole() {
        true => Bytes(item.whole(0..=u64::MAX)?),
        false => item.parsed(Bytes::parse)?,
    };
    match bytes.0 {
        0 => Err(item.wrong("found a size of 0; accepted: 1 B and more")),
        _ if bytes > LARGEST_MESSAGE => Err(item.wrong(format!("found {bytes}; accepted: up to {LARGEST_MESSAGE}"))),
        _ => Ok(bytes),
    }
}

fn between(text: &str) -> std::result::Result<Between, String> {
    match text {
        "nodes" => Ok(Between::Nodes),
        "ranks" => Ok(Between::Ranks),
        other => Err(format!("found `{other}`; accepted: nodes, ranks")),
    }
}
