//! The user's files, read and checked once; lower layers do not read files, flags or environment.

mod document;
pub mod machine;
mod model;
mod recipe;
mod shipped;
pub mod step;
mod suite;
mod suite_sweep;
mod suite_work;
mod typed;

pub use document::{Place, Table, likeliest, likely_key, toml_string};
pub use machine::{Expectation, Limit, Machine};
pub use model::{
    Blocks, Family, FeedForward, Indexer, Inferred, LatentAttention, LayerParts, LinearAttention,
    LinearAttentionParameters, LinearRule, Mixer, Mixture, Model, QueryKeyNorm, SlidingWindow,
};
pub use recipe::Recipe;
pub use shipped::{Shipped, is_embedded, published, read_text};
pub use step::{LayoutTable, ModelWork, Serving, Training};
pub use suite::{Calibrate, MOST_REPLICATES, ROUNDS_WITHIN, RunSettings, Suite};
pub use suite_sweep::{
    AXES, BOTH_CADENCES, EVERY_PLACE, Growth, MOST_SIZES, Roots, Sweep, growing_sizes, parse_splits,
};
pub use suite_work::{
    Between, ComputeTable, CopyDirection, CopyKind, CopyParts, CopyTable, Each, HostMemory, LARGEST_MESSAGE, Mover,
    OtherEnd, PairsTable, Selection,
};
pub use typed::{Text, Written, rounded_rate, rounded_time};

use commgauge_base::units::Bytes;

// Other tools that measure the same calls, and how each does it by default: data for `--like`.

/// A tool whose defaults can be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// NVIDIA's nccl-tests
    NcclTests,
    /// The OSU micro-benchmarks
    Osu,
    /// The Intel MPI benchmarks
    Imb,
}

/// How often a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Before timing.
    pub warm_up: u32,
    /// Timed.
    pub timed: u32,
}

/// Above this OSU makes fewer calls: LARGE_MESSAGE_SIZE of its `util/osu_util.h`.
const LARGE_OF_OSU: Bytes = Bytes(8192);

/// IMB's most calls, the maximum of their total bytes, and the minimum of its warm-up, from its
/// `src_c/IMB_settings.h`: MSGSPERSAMPLE, OVERALL_VOL, MIN_WARMUP_ITERS.
const MOST_OF_IMB: u64 = 1000;

const VOLUME_OF_IMB: u64 = 40 << 20;

const LEAST_WARM_UP_OF_IMB: u64 = 10;

impl Peer {
    /// As flags and records name it.
    pub fn name(self) -> &'static str {
        match self {
            Peer::NcclTests => "nccl-tests",
            Peer::Osu => "osu",
            Peer::Imb => "imb",
        }
    }

    /// The calls that the tool makes of a size by default: COLL_LOOP_SMALL, COLL_SKIP_LARGE and so on of OSU, `-n` and `-w` of
    /// nccl-tests, WARMUP_PERCENT of IMB.
    pub fn calls(self, bytes: Bytes) -> Calls {
        match self {
            Peer::NcclTests => Calls { warm_up: 1, timed: 20 },
            Peer::Osu if bytes > LARGE_OF_OSU => Calls { warm_up: 10, timed: 100 },
            Peer::Osu => Calls { warm_up: 100, timed: 1000 },
            Peer::Imb => {
                let timed = (VOLUME_OF_IMB / bytes.0.max(1)).clamp(1, MOST_OF_IMB);
                let warm_up = (timed / 10).max(LEAST_WARM_UP_OF_IMB).min(timed);
                Calls { warm_up: warm_up as u32, timed: timed as u32 }
            }
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_number_of_calls_matches_each_tool_at_each_size() {
        for (peer, bytes, warm_up, timed) in [
            (Peer::NcclTests, 8, 1, 20),
            (Peer::NcclTests, 1 << 30, 1, 20),
            (Peer::Osu, 8192, 100, 1000),
            (Peer::Osu, 8193, 10, 100),
            (Peer::Imb, 0, 100, 1000),
            (Peer::Imb, 32 << 10, 100, 1000),
            (Peer::Imb, 1 << 20, 10, 40),
            (Peer::Imb, 4 << 20, 10, 10),
            (Peer::Imb, 64 << 20, 1, 1),
        ] {
            assert_eq!(peer.calls(Bytes(bytes)), Calls { warm_up, timed }, "{peer:?} {bytes}");
        }
    }
}
