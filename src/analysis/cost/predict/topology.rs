//! Whether group sizes between two measured ones follow from them, or lie on other links.
//!
//! Within a switch a larger group reaches the bandwidth of a smaller one, or more: on machines with NVSwitch groups of two have 0.59 to
//! 0.96 of the bus bandwidth of groups of eight (`tests/data/nccl`). Where bandwidth falls as groups grow, the larger ones cross a
//! slower link, such as that between the sockets of a PCIe machine, and at which size they begin to cross it the measurements do not
//! say.

use super::families::Family;

/// Fall of bus bandwidth from which on a larger group must be on slower links.
const FALLS: f64 = 1.25;
/// Fall from which on a time between the two would be a guess.
const TOO_FAR: f64 = 2.0;
/// Below this share of bandwidth in the largest calls their latency decides, and bandwidth is not known.
const BANDWIDTH_DECIDES: f64 = 0.5;

/// What two measured group sizes say of those that were not measured.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Links {
    /// Nothing against a common scale.
    Alike,
    /// The larger group has less bandwidth.
    Slower(String),
    /// So much less that nothing between them follows.
    Other(String),
}

impl Family<'_> {
    /// The links of two of its group sizes, by index.
    pub(super) fn links(&self, smaller: usize, larger: usize, ranks: u32) -> Links {
        let Some(fall) = self.fall(smaller, larger).filter(|fall| *fall > FALLS) else { return Links::Alike };
        let (a, b) = (self.ranks[smaller], self.ranks[larger]);
        let between = a < ranks && ranks < b;
        let reason = format!(
            "bus bandwidth falls to 1/{fall:.1} from {a} to {b} ranks, so that larger groups are on slower links and it is not known \
             from which size on: measure groups of {ranks}"
        );
        if fall > TOO_FAR && between { Links::Other(reason) } else { Links::Slower(reason) }
    }

    /// Bus bandwidth of the largest calls of the smaller group over that of the larger one; `None` where their latency decides.
    fn fall(&self, smaller: usize, larger: usize) -> Option<f64> {
        let seconds_per_bus_byte = |index: usize| {
            let curve = &self.curves[index];
            let factor = self.fit.key.collective.bus_factor(self.ranks[index]).filter(|factor| *factor > 0.0)?;
            (curve.tail_share() >= BANDWIDTH_DECIDES).then(|| curve.tail_slope() / factor)
        };
        Some(seconds_per_bus_byte(larger)? / seconds_per_bus_byte(smaller)?)
    }
}
