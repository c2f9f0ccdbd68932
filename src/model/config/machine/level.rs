//! Levels: what share of its peak a kind of GPU reaches in whole training steps, and how far steps are from what follows from it.
//!
//! Those of `suites/published/levels.toml` were fitted by `commgauge plan validate --levels` on the runs of that folder; a machine file may
//! have its own.

use crate::config::document::{Item, Table};
use crate::config::shipped::published;
use crate::config::typed::{Found, accepting, count, number};
use commgauge_base::error::Result;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::Path;

/// The shipped levels.
const FILE: &str = "levels.toml";

/// The kind of GPU of the levels that hold where none of a GPU's own does: those of all GPUs together.
pub const ANY_GPU: &str = "any";

/// GPUs with the chip of another, whose level is nearer than that of any.
const KIN: [(&str, &str); 4] = [("H200", "H100"), ("H800", "H100"), ("B200", "GB200"), ("GB200", "B200")];

/// Whoever writes less does not mean a share of the peak.
const LEAST_SHARE: f64 = 0.01;

/// An interval that is wider says nothing.
const WIDEST: f64 = 100.0;

/// What a GPU reaches in training steps of one precision, with or without experts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Level {
    /// The kind of GPU; `any` for those of which no run is known.
    pub gpu: String,
    /// Bits of the operands of linear layers; absent where the level holds for all.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "bits")]
    pub bits: Option<u8>,
    /// Whether the models had experts.
    pub layers: LayerKind,
    /// Share of the peak that the largest matrix products reach.
    #[serde(deserialize_with = "share")]
    pub share_of_peak: f64,
    /// Share of the memory's rate that kernels reach which only move data.
    #[serde(deserialize_with = "share")]
    pub share_of_memory_rate: f64,
    /// 95 of 100 steps of sources that the level was not fitted on took at least this part of what was predicted ...
    #[serde(deserialize_with = "low")]
    pub low: f64,
    /// ... and at most this multiple.
    #[serde(deserialize_with = "high")]
    pub high: f64,
    /// Runs that it was fitted on.
    #[serde(deserialize_with = "count::<_, _, 1, { u32::MAX }>")]
    pub runs: u32,
    /// Who published them.
    pub sources: Vec<String>,
}

/// The kind of a model's feed-forward layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
// Its name in files and in output.
#[derive(Serialize, Deserialize, JsonSchema, strum::IntoStaticStr, strum::Display, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// Every token passes every weight.
    Dense,
    /// Some have experts.
    Experts,
}

impl LayerKind {
    /// The word for it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Level {
    /// The shipped ones.
    ///
    /// # Errors
    /// A program that was built without them, or with wrong ones.
    pub fn shipped() -> Result<Vec<Level>> {
        let file = Table::parse(&Path::new("suites/published").join(FILE), published(FILE)?)?;
        Ok(Item::from(file).read::<Levels>()?.level)
    }

    /// The level for a GPU, of some levels: its own, else that of the same GPU in the nearest precision or of one with the same chip, else that
    /// of any GPU. All but the first have the interval of any GPU.
    pub fn of(levels: &[Level], gpu: Option<&str>, bits: u8, layers: LayerKind) -> Option<Level> {
        let of_gpu = |gpu: &str, exact: bool| {
            let alike = |level: &&Level| {
                level.gpu == gpu && level.layers == layers && (!exact || level.bits.is_none_or(|own| own == bits))
            };
            levels.iter().filter(alike).min_by_key(|level| level.bits.map_or(0, |own| own.abs_diff(bits)))
        };
        if let Some(own) = gpu.and_then(|gpu| of_gpu(gpu, true)) {
            return Some(own.clone());
        }
        let any = of_gpu(ANY_GPU, false)?;
        let kin = KIN.iter().find(|(of, _)| Some(*of) == gpu).map(|(_, kin)| *kin);
        let of_kin = || kin.and_then(|kin| of_gpu(kin, true).or_else(|| of_gpu(kin, false)));
        let nearest = gpu.and_then(|gpu| of_gpu(gpu, false)).or_else(of_kin).unwrap_or(any);
        Some(Level { low: any.low, high: any.high, ..nearest.clone() })
    }

    /// Whether runs of such a GPU in this precision are among those that it was fitted on.
    pub fn is_of(&self, gpu: Option<&str>, bits: u8) -> bool {
        gpu == Some(self.gpu.as_str()) && self.bits.is_none_or(|own| own == bits)
    }
}

/// The file of the shipped levels.
#[derive(Deserialize)]
struct Levels {
    level: Vec<Level>,
}

fn bits<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u8>, D::Error> {
    accepting(from, "16, 8, 4".to_owned(), |value| match value {
        Found::Whole(bits @ (4 | 8 | 16)) => Some(Ok(Some(bits as u8))),
        _ => None,
    })
}

fn share<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    number(from, LEAST_SHARE..=1.0)
}

fn low<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    number(from, 1.0 / WIDEST..=1.0)
}

fn high<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    number(from, 1.0..=WIDEST)
}

#[cfg(test)]
mod tests {

    use super::super::Machine;
    use super::*;

    const MACHINE: &str = "name = 'm'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n\
        [between_nodes]\nlatency = '14us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n\
        [computing]\ngpu = 'X1'\npeak_tflops = 500\nmemory_rate = '3TB/s'\n\
        [[level]]\ngpu = 'X1'\nbits = 16\nlayers = 'dense'\nshare_of_peak = 0.6\nshare_of_memory_rate = 0.7\n\
        low = 0.8\nhigh = 1.3\nruns = 12\nsources = ['us']\n";

    fn read(text: &str) -> Result<Machine> {
        Machine::parse(text, Path::new("m.toml"))
    }

    #[test]
    fn a_level_that_cannot_be_is_refused_with_line_and_key() {
        for (from, to, expected) in [
            (
                "share_of_peak = 0.6",
                "share_of_peak = 1.2",
                "m.toml:18: level[0].share_of_peak: found 1.2; accepted: a number from",
            ),
            ("bits = 16", "bits = 12", "level[0].bits: found 12; accepted: 16, 8, 4"),
            ("'dense'", "'sparse'", "level[0].layers: found `sparse`; accepted: dense, experts"),
            ("low = 0.8", "low = 1.1", "level[0].low: found 1.1; accepted: a number from"),
            ("runs = 12\n", "", "level[0]: `runs` is missing; accepted: a whole number from 1"),
            ("sources", "source", "level[0].source: unknown key"),
        ] {
            let error = read(&MACHINE.replacen(from, to, 1)).expect_err(to);
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{to}: {error}");
        }
    }

    #[test]
    fn a_machines_own_level_comes_first_then_that_of_its_gpu_of_the_same_chip_and_of_any() {
        let levels = read(MACHINE).unwrap().levels().unwrap();
        let of = |gpu: Option<&str>, bits, layers| {
            let level = Level::of(&levels, gpu, bits, layers).unwrap();
            (level.gpu.clone(), level.bits, level.is_of(gpu, bits))
        };
        let (dense, experts) = (LayerKind::Dense, LayerKind::Experts);
        assert_eq!(of(Some("X1"), 16, dense), ("X1".to_owned(), Some(16), true));
        assert_eq!(of(Some("X1"), 8, dense), ("X1".to_owned(), Some(16), false));
        assert_eq!(of(Some("H200"), 16, dense), ("H100".to_owned(), Some(16), false));
        assert_eq!(of(Some("B200"), 8, dense), ("GB200".to_owned(), Some(8), false));
        assert_eq!(of(Some("B200"), 16, dense), ("GB200".to_owned(), Some(8), false), "the nearest of 4 and 8 bits");
        assert_eq!(of(Some("B200"), 8, experts), ("B200".to_owned(), None, true));
        let any = Level::of(&levels, Some("MI300X"), 16, dense).unwrap();
        assert_eq!((any.gpu.as_str(), any.is_of(Some("MI300X"), 16)), (ANY_GPU, false));
        let other = Level::of(&levels, Some("X1"), 8, dense).unwrap();
        assert_eq!((other.low, other.high), (any.low, any.high), "what was not validated has the interval of any GPU");
    }
}
