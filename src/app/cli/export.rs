//! `commgauge export`: converts a fit to the calibration files of another planner.

use super::output::{check_only_format, make_folder, replace};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_cost::cost::{Fit, Place, PlaceQuery};
use commgauge_model::layout::Locality;
use commgauge_readers::interop::export::{AxisPlace, Export, ExportOptions, Target, export};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Write a fit as the calibration files that another planner reads, in its units
///
/// What the fit does not hold is never made up: it is named, and nothing is written unless --partial is given. A synthetic fit
/// is refused unless --allow-synthetic is given, and marked in every file.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportCommand {
    /// Planner that reads it
    #[arg(long, value_enum)]
    pub to: Planner,

    /// The fit, from `commgauge calibrate -o`
    #[arg(long, value_name = "FILE")]
    pub fit: PathBuf,

    /// File to write (galvatron and astra-sim: folder); what is there is replaced
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,

    /// Ranks on each node (galvatron, calculon, astra-sim, alpa)
    #[arg(long, value_name = "N")]
    pub ranks_per_node: Option<u32>,

    /// Nodes of the machine (galvatron, calculon, astra-sim, alpa)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub nodes: u32,

    /// Group size and place of an axis (simai): tp=8@1n/1g/s1, dp=2@2n/8g/s8, ep=..., pp=...
    #[arg(long, value_name = "AXIS", value_parser = axis, hide_short_help = true)]
    pub axis: Vec<AxisPlace>,

    /// A system file of yours, whose networks are replaced (calculon)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub base: Option<PathBuf>,

    /// Element type of calls that reduce [default: bfloat16, float16 or float32, whichever was fitted first]
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    pub dtype: Option<ElementType>,

    /// Where the groups of the fit were placed whose records do not say it, as far as you know, such as 1n
    #[arg(long, value_name = "PLACE", hide_short_help = true)]
    pub unknown_locality: Option<PlaceQuery>,

    /// Write what there is, though the fit lacks something
    #[arg(long, hide_short_help = true)]
    pub partial: bool,

    /// Export a fit of records without real times, for rehearsals
    #[arg(long)]
    pub allow_synthetic: bool,
}

/// Planners whose files are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Planner {
    /// Hetu-Galvatron: hardware_configs/*.json (a folder)
    Galvatron,
    /// Calculon: a system file, from --base
    Calculon,
    /// ASTRA-sim: network.yml and system.json (a folder)
    AstraSim,
    /// SimAI-Analytical in earlier versions: busbw.yaml, from --axis
    Simai,
    /// Alpa: its profiling results as JSON; the docs have a loader
    Alpa,
    /// aiconfigurator: nccl_perf.parquet
    Aiconfigurator,
    /// The columns that `commgauge import --from csv` reads
    Csv,
}

impl Planner {
    fn target(self) -> Target {
        match self {
            Planner::Galvatron => Target::Galvatron,
            Planner::Calculon => Target::Calculon,
            Planner::AstraSim => Target::AstraSim,
            Planner::Simai => Target::SimAi,
            Planner::Alpa => Target::Alpa,
            Planner::Aiconfigurator => Target::AiConfigurator,
            Planner::Csv => Target::Csv,
        }
    }
}

/// Parses `tp=8@1n/1g/s1`.
fn axis(text: &str) -> std::result::Result<AxisPlace, String> {
    let wrong =
        || format!("found `{text}`; accepted: an axis (tp, dp, ep, pp), ranks and place, such as tp=8@1n/1g/s1");
    let (axis, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (ranks, place) = rest.split_once('@').ok_or_else(wrong)?;
    let ranks: u32 = ranks.parse().ok().filter(|ranks| *ranks > 1).ok_or_else(wrong)?;
    if !["tp", "dp", "ep", "pp"].contains(&axis) {
        return Err(wrong());
    }
    let locality: Locality = place.parse::<PlaceQuery>()?.locality(ranks);
    Ok(AxisPlace { axis: axis.to_owned(), ranks, place: Place::of(&locality) })
}

impl ExportCommand {
    /// Reads, converts and writes.
    pub fn execute(&self) -> Result<i32> {
        let target = self.to.target();
        self.check_output(target)?;
        let fit = Fit::read(&self.fit)?;
        if fit.synthetic && !self.allow_synthetic {
            return Err(Error::usage(format!(
                "{}: the fit is synthetic, of records without real times; --allow-synthetic exports it, marked, for a rehearsal",
                self.fit.shown()
            )));
        }
        let options = ExportOptions {
            nodes: self.nodes,
            ranks_per_node: self.ranks_per_node,
            unknown: self.unknown_locality,
            element_type: self.dtype,
            base: self.base.as_deref().map(read_base).transpose()?,
            axes: self.axis.clone(),
        };
        let done = export(&fit, target, &options)?;
        if !done.gaps.is_empty() && !self.partial {
            return Err(Error::mismatch(format!(
                "the fit lacks {} of what {} reads; measure it, or write what there is with --partial:\n{}",
                done.gaps.len(),
                self.planner_name(),
                done.gaps.join("\n")
            )));
        }
        self.write(target, &done)?;
        done.gaps.iter().for_each(|gap| eprintln!("left out: {gap}"));
        done.notes.iter().for_each(|note| eprintln!("note: {note}"));
        if fit.synthetic {
            eprintln!("SYNTHETIC: the fit comes from records without real times; every file says so");
        }
        Ok(0)
    }

    fn planner_name(&self) -> String {
        use clap::ValueEnum;
        self.to.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Checks the output path: a folder for formats of several files, a file for the others; never an input.
    fn check_output(&self, target: Target) -> Result<()> {
        let path = self.output.shown();
        if target.is_folder() && self.output.exists() && !self.output.is_dir() {
            return Err(Error::usage(format!("--output {path} is a file; {} writes a folder", self.planner_name())));
        }
        if !target.is_folder() && self.output.is_dir() {
            return Err(Error::usage(format!("--output {path} is a folder; {} writes one file", self.planner_name())));
        }
        let whole = |path: &Path| path.canonicalize().ok();
        let inputs = [Some(&self.fit), self.base.as_ref()];
        let is_input = |input: &PathBuf| whole(input).is_some() && whole(input) == whole(&self.output);
        if inputs.into_iter().flatten().any(is_input) {
            return Err(Error::usage(format!("--output {path} is one of the inputs; name another file")));
        }
        Ok(())
    }

    fn write(&self, target: Target, done: &Export) -> Result<()> {
        if target.is_folder() {
            make_folder("--output", &self.output)?;
        }
        if let (false, [file]) = (target.is_folder(), done.files.as_slice()) {
            let format = Path::new(&file.name).extension().unwrap_or_default().to_string_lossy();
            check_only_format(&self.output, &format, &[])?;
        }
        for file in &done.files {
            let path = if target.is_folder() { self.output.join(&file.name) } else { self.output.clone() };
            replace(&path, &file.content)?;
            eprintln!("{}", path.shown());
        }
        Ok(())
    }
}

fn read_base(path: &Path) -> Result<Value> {
    let wrong = |problem: String| Error::usage(format!("--base {}: {problem}", path.shown()));
    let text = commgauge_base::host::read_to_string(path).map_err(|cause| wrong(cause.to_string()))?;
    serde_json::from_str(&text).map_err(|cause| wrong(format!("is not JSON: {cause}")))
}
