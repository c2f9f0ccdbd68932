//! The user's files, read and checked once; lower layers do not read files, flags or environment.

mod document;
pub mod machine;
mod model;
mod peer;
mod settings;
mod shipped;
pub mod step;
mod suite;
mod suite_cadences;
mod suite_calibrate;
mod suite_compute;
mod suite_copy;
mod suite_hash;
mod suite_measure;
mod suite_pairs;
mod suite_splits;
mod suite_sweep;
mod suite_work;

pub use document::{Place, Table, likely_key, toml_string};
pub use machine::{Expectation, Limit, Machine};
pub use model::{
    Blocks, Family, FeedForward, Indexer, Inferred, LatentAttention, LayerParts, LinearAttention,
    LinearAttentionParameters, LinearRule, Mixer, Mixture, Model, QueryKeyNorm, SlidingWindow,
};
pub use peer::Peer;
pub use settings::{ROUNDS_WITHIN, Rounds, RunSettings};
pub use shipped::{Shipped, is_embedded, published, read_text};
pub use step::{Batch, LayoutTable, ModelWork, Serving, Training};
pub use suite::Suite;
pub use suite_cadences::BOTH_CADENCES;
pub use suite_calibrate::Calibrate;
pub use suite_compute::ComputeTable;
pub use suite_copy::{CopyKind, CopyTable, HostMemory};
pub use suite_measure::MOST_REPLICATES;
pub use suite_pairs::{Between, LARGEST_MESSAGE, PairsTable};
pub use suite_splits::parse_splits;
pub use suite_sweep::{AXES, EVERY_PLACE, Growth, MOST_SIZES, Roots, Sweep, growing_sizes};
