//! A fit as the calibration files of other planners, each in the units that it expects.
//!
//! Values missing in the fit are never invented: each is a gap, reported with the measurement that would fill it. One
//! file for each foreign format; docs/guide/export.md describes how each is used.

mod aiconfigurator;
mod alpa;
mod astra_sim;
mod calculon;
mod comma_separated;
mod galvatron;
mod pick;
mod simai;
#[cfg(test)]
mod tests;

use crate::cost::{Fit, Place, PlaceQuery};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use pick::Curves;
use serde_json::Value;

/// The planner that reads the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Hetu-Galvatron: the folder `hardware_configs`.
    Galvatron,
    /// Calculon: a system file, of which the networks are replaced.
    Calculon,
    /// ASTRA-sim: `network.yml` and `system.json` of the analytical backends.
    AstraSim,
    /// SimAI: `busbw.yaml` of SimAI-Analytical.
    SimAi,
    /// Alpa: a profiling database as JSON, with a loader in the docs.
    Alpa,
    /// aiconfigurator: `nccl_perf.txt`.
    AiConfigurator,
    /// The columns that `commgauge import --from csv` reads.
    Csv,
}

/// Information that a planner needs and the fit does not contain.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Nodes of the machine that is planned on.
    pub nodes: u32,
    /// Ranks on each.
    pub ranks_per_node: Option<u32>,
    /// Placement of groups whose records do not contain it.
    pub unknown: Option<PlaceQuery>,
    /// Type of the elements of calls that reduce, if several were fitted.
    pub element_type: Option<ElementType>,
    /// The planner's own system file, whose other parts are copied unchanged.
    pub base: Option<Value>,
    /// Ranks and place of the groups of the axes `tp`, `dp`, `ep` and `pp`.
    pub axes: Vec<AxisPlace>,
}

/// The groups of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPlace {
    /// `tp`, `dp`, `ep` or `pp`.
    pub axis: String,
    /// Ranks of a group.
    pub ranks: u32,
    /// Placement of the groups.
    pub place: Place,
}

/// The files, and what is not in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Export {
    /// Name and text of each.
    pub files: Vec<(String, String)>,
    /// Values that the planner needs and the fit does not contain, as sentences.
    pub gaps: Vec<String>,
    /// Remarks on the numbers, as sentences.
    pub notes: Vec<String>,
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

/// Ranks of a node, which formats that build a machine need.
fn ranks_per_node(options: &ExportOptions) -> Result<u32> {
    let missing =
        "--ranks-per-node is missing; the format describes a machine, and a fit does not say how many ranks a node has";
    options.ranks_per_node.filter(|ranks| *ranks > 0).ok_or_else(|| Error::usage(missing))
}

/// A JSON text with four spaces, a line feed at its end.
fn pretty(value: &Value) -> Result<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|cause| Error::environment(format!("cannot write the export as JSON: {cause}")))?;
    Ok(text + "\n")
}
