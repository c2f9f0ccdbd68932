//! Ranks to groups: degrees of parallelism and an axis order become named process groups.

mod axes;
mod locality;

pub use axes::{Axis, Degrees, Groups};
pub use locality::Locality;
