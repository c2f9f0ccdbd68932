//! Who is to blame: node, link, adapter, rail, leaf, only at scale, or a late rank, from pairs, groups and arrivals.

mod document;

pub use document::{Culprit, Examined, SUSPECTS_FORMAT, SUSPECTS_VERSION, Suspect, Suspects};
