//! Ranks to groups: degrees of parallelism and an axis order become named process groups.

mod axes;
mod locality;
mod plan;

pub use axes::{Axis, DEFAULT_ORDER, Degrees, Division, Groups, Membership, either, nearest_divisors};
pub use locality::{Locality, Nodes};
pub use plan::{Layout, LayoutDescription, MOST_RANKS};
