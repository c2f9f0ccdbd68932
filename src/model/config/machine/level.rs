//! Levels: what share of its peak a kind of GPU reaches in whole training steps, and how far steps are from what follows from it.
//!
//! Those of `suites/published/levels.toml` were fitted by `commgauge plan validate --levels` on the runs of that folder; a machine file may
//! have its own.

use crate::config::document::{Item, Table};
use crate::config::shipped::published;
use commgauge_base::error::Result;
use commgauge_base::units::{Rate, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use std::path::Path;

/// The shipped levels.
const FILE: &str = "levels.toml";

/// The kind of GPU of the levels that hold where none of a GPU's own does: those of all GPUs together.
pub const ANY_GPU: &str = "any";

/// GPUs with the chip of another, whose level is nearer than that of any.
const KIN: [(&str, &str); 3] = [("H200", "H100"), ("B200", "GB200"), ("GB200", "B200")];

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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bits: Option<u8>,
    /// Whether the models had experts.
    pub layers: LayerKind,
    /// Share of the peak that the largest matrix products reach.
    pub share_of_peak: f64,
    /// Share of the memory's rate that kernels reach which only move data.
    pub share_of_memory_rate: f64,
    /// 95 of 100 steps of sources that the level was not fitted on took at least this part of what was predicted ...
    pub low: f64,
    /// ... and at most this multiple.
    pub high: f64,
    /// Runs that it was fitted on.
    pub runs: u32,
    /// Who published them.
    pub sources: Vec<String>,
}

/// The kind of a model's feed-forward layers.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    strum::IntoStaticStr,
    strum::Display,
    strum::VariantArray,
)]
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
    /// Those of a file, each `[[level]]`.
    pub(super) fn read(file: &mut Table) -> Result<Vec<Level>> {
        file.tables("level")?.into_iter().map(level).collect()
    }

    /// The shipped ones.
    ///
    /// # Errors
    /// A program that was built without them, or with wrong ones.
    pub fn shipped() -> Result<Vec<Level>> {
        let mut file = Table::parse(&Path::new("suites/published").join(FILE), published(FILE)?)?;
        let levels = Level::read(&mut file)?;
        file.finish()?;
        Ok(levels)
    }

    /// The level for a GPU, of some levels: its own, else that of the same GPU in another precision or of one with the same chip, else that
    /// of any GPU. All but the first have the interval of any GPU.
    pub fn of(levels: &[Level], gpu: Option<&str>, bits: u8, layers: LayerKind) -> Option<Level> {
        let of_gpu = |gpu: &str, exact: bool| {
            let alike = |level: &&Level| {
                level.gpu == gpu && level.layers == layers && (!exact || level.bits.is_none_or(|own| own == bits))
            };
            levels.iter().find(alike)
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

const KEYS: [&str; 9] =
    ["gpu", "bits", "layers", "share_of_peak", "share_of_memory_rate", "low", "high", "runs", "sources"];

fn level(mut table: Table) -> Result<Level> {
    table.only(&KEYS)?;
    let bits = |item: Item| match item.count_within(1..=64)? {
        bits @ (4 | 8 | 16) => Ok(bits as u8),
        other => Err(item.wrong(format!("found {other}; accepted: 16, 8, 4"))),
    };
    let sources = table.require("sources", "a list such as [\"MLPerf Training 5.0\"]")?;
    Ok(Level {
        gpu: table.require("gpu", "a kind of GPU such as \"H100\"")?.text_such_as("H100")?.to_owned(),
        layers: table.require("layers", "dense or experts")?.parsed(commgauge_base::named)?,
        share_of_peak: number(&mut table, "share_of_peak", LEAST_SHARE..=1.0)?,
        share_of_memory_rate: number(&mut table, "share_of_memory_rate", LEAST_SHARE..=1.0)?,
        low: number(&mut table, "low", 1.0 / WIDEST..=1.0)?,
        high: number(&mut table, "high", 1.0..=WIDEST)?,
        runs: table.require("runs", "how many runs it was fitted on")?.count_within(1..=u32::MAX)?,
        bits: table.take("bits").map(bits).transpose()?,
        sources: sources
            .items()?
            .iter()
            .map(|source| source.text_such_as("MLPerf").map(str::to_owned))
            .collect::<Result<_>>()?,
    })
}

// Numbers of a machine file: counts, factors, times and rates, each with what is accepted.

/// Beyond a second it is no latency, delay or jitter of a machine that works, and virtual clocks could run over.
const LONGEST: Seconds = Seconds(1.0);

/// A rate of nothing would be a call without end.
pub(super) const SMALLEST_RATE_FACTOR: f64 = 1e-6;

/// Whether a rank or node exists is checked once the number of ranks is known.
pub(super) const ANY_INDEX: RangeInclusive<u32> = 0..=u32::MAX;

pub(super) fn count(table: &mut Table, key: &'static str, range: RangeInclusive<u32>) -> Result<u32> {
    let accepted = format!("a whole number from {} to {}", range.start(), range.end());
    table.require(key, &accepted)?.count_within(range)
}

pub(super) fn number(table: &mut Table, key: &'static str, range: RangeInclusive<f64>) -> Result<f64> {
    let accepted = format!("a number from {} to {}", range.start(), range.end());
    table.require(key, &accepted)?.number_within(range)
}

pub(super) fn rate_factor(table: &mut Table) -> Result<f64> {
    number(table, "rate_factor", SMALLEST_RATE_FACTOR..=1.0)
}

pub(super) fn rate(table: &mut Table, key: &'static str) -> Result<Rate> {
    table.require(key, "a rate such as \"25GB/s\"")?.rate()
}

pub(super) fn positive(table: &mut Table, key: &'static str) -> Result<Seconds> {
    let item = table.require(key, "a time such as \"2us\"")?;
    let seconds = short(&item)?;
    if seconds.0 >= 1e-9 { Ok(seconds) } else { Err(item.wrong(format!("found {seconds}; accepted: at least 1ns"))) }
}

pub(super) fn short(item: &Item) -> Result<Seconds> {
    let seconds = item.seconds()?;
    if seconds.0 <= LONGEST.0 { Ok(seconds) } else { Err(item.wrong(format!("found {seconds}; accepted: at most 1s"))) }
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
            ("runs = 12\n", "", "`runs` is missing; accepted: how many runs"),
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
        assert_eq!(of(Some("B200"), 8, experts), ("B200".to_owned(), None, true));
        let any = Level::of(&levels, Some("MI300X"), 16, dense).unwrap();
        assert_eq!((any.gpu.as_str(), any.is_of(Some("MI300X"), 16)), (ANY_GPU, false));
        let other = Level::of(&levels, Some("X1"), 8, dense).unwrap();
        assert_eq!((other.low, other.high), (any.low, any.high), "what was not validated has the interval of any GPU");
    }
}
