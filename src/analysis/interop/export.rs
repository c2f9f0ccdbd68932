//! A fit as the calibration files of other planners, each in the units that it expects.
//!
//! Values missing in the fit are never invented: each is a gap, reported with the measurement that would fill it. One
//! file for each foreign format; docs/interop.md describes how each is used.

mod aiconfigurator;
mod alpa;
mod astra_sim;
mod calculon;
mod comma_separated;
mod files;
mod galvatron;
mod options;
mod pick;
mod simai;
#[cfg(test)]
mod tests;

use crate::cost::Fit;
use commgauge_base::error::{Error, Result};
pub use files::{Export, ExportedFile};
pub use options::{AxisPlace, ExportOptions};
use pick::Curves;

/// The planner that reads the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Hetu-Galvatron: the folder `hardware_configs`.
    Galvatron,
    /// Calculon: a system file, of which the networks are replaced.
    Calculon,
    /// ASTRA-sim: `network.yml` and `system.json` of the analytical backends.
    AstraSim,
    /// SimAI: `busbw.yaml` of earlier versions of SimAI-Analytical.
    SimAi,
    /// Alpa: a profiling database as JSON, with a loader in the docs.
    Alpa,
    /// aiconfigurator: `nccl_perf.parquet`.
    AiConfigurator,
    /// The columns that `commgauge import --from csv` reads.
    Csv,
}

impl Target {
    /// Whether the output is a folder, and not one file.
    pub fn is_folder(self) -> bool {
        matches!(self, Target::Galvatron | Target::AstraSim)
    }
}

/// The files for a planner.
///
/// # Errors
/// A usage error if an option that the format needs is missing, a mismatch if the fit contains nothing that it needs.
pub fn export(fit: &Fit, target: Target, options: &ExportOptions) -> Result<Export> {
    let curves = Curves::new(fit, options);
    let done = match target {
        Target::Galvatron => galvatron::files(&curves, options),
        Target::Calculon => calculon::files(&curves, options),
        Target::AstraSim => astra_sim::files(&curves, options),
        Target::SimAi => simai::files(&curves, options),
        Target::Alpa => alpa::files(&curves, options),
        Target::AiConfigurator => aiconfigurator::files(&curves),
        Target::Csv => comma_separated::files(&curves),
    }?;
    match (done.files.is_empty(), done.gaps.as_slice()) {
        (false, _) => Ok(done),
        (true, gaps) => Err(Error::mismatch(format!("the fit holds nothing of what is needed:\n{}", gaps.join("\n")))),
    }
}
