//! Ranks to groups: degrees of parallelism and an axis order become named process groups.

mod axes;
mod check;
mod degrees;
mod locality;
mod nodes;
mod plan;
mod regular;

pub use axes::{Axis, Groups};
pub use degrees::{Degrees, either, nearest_divisors};
pub use locality::Locality;
pub use nodes::Nodes;
pub use plan::{DEFAULT_ORDER, Layout, MOST_RANKS};
