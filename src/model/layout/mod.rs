//! Ranks to groups: degrees of parallelism and an axis order become named process groups.

mod axes;
mod check;
mod degrees;
mod description;
mod division;
mod grid;
mod locality;
mod nodes;
mod plan;
mod regular;

pub use axes::{Axis, Groups, Membership};
pub use degrees::{Degrees, either, nearest_divisors};
pub use description::LayoutDescription;
pub use division::Division;
pub use grid::DEFAULT_ORDER;
pub use locality::Locality;
pub use nodes::Nodes;
pub use plan::{Layout, MOST_RANKS};
