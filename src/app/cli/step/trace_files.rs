//! `commgauge-step --trace`: the files of a job's trace instead of a model and its step.

use super::StepFlags;
use crate::cli::degrees::DegreeFlags;
use clap::{Arg, Args};
use commgauge_analysis::trace::{ExpectedStep, TracedReplay, read_traces};
use commgauge_base::digest;
use commgauge_base::error::{Error, Result};
use commgauge_base::input_file;
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::{Axis, Layout, LayoutDescription};
use commgauge_model::record::line::SuiteFacts;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The files of a trace.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct TraceFiles {
    /// Replay the trace of a job instead of a model's step: files as for `commgauge trace`, one of every rank, with the degrees of the
    /// job's layout. Its calls come in their order, with its gaps of computing
    #[arg(
        long,
        value_name = "FILE",
        num_args = 1..,
        group = "replayed",
        conflicts_with_all = ["model", "style", "cadence", "solo", "interfere", "forward_per_layer", "iterations", "warm_up_iterations",
            "replicates", "precision", "budget", "warm_buffers", "start"],
        help_heading = "Replay"
    )]
    trace: Vec<PathBuf>,

    /// The layout of the job is that of this list of its step, from `commgauge ops --format json`: also where shards have copies, or cp
    /// and ep an inner part
    #[arg(long, value_name = "FILE", requires = "trace", help_heading = "Replay")]
    ops: Option<PathBuf>,

    /// What was read of them.
    #[arg(skip)]
    traced: OnceLock<Arc<TracedReplay>>,
}

/// A model is needed unless there is a trace.
pub fn without_trace(model: Arg) -> Arg {
    model.required(false).required_unless_present("trace")
}

impl TraceFiles {
    /// Whether there are any.
    pub(super) fn are_given(&self) -> bool {
        !self.trace.is_empty()
    }

    /// Refuses flags of a model's step.
    ///
    /// # Errors
    /// All of them, named.
    pub(super) fn ensure_alone(&self, step: &StepFlags) -> Result<()> {
        let given = step.given_of_model();
        if given.is_empty() {
            return Ok(());
        }
        let list = given.join(", ");
        Err(Error::usage(format!("--trace: a trace says itself what is called, and takes no {list}; leave that out")))
    }

    /// What the ranks of the job did, on a launch of that many. Read once.
    ///
    /// # Errors
    /// Files that are no whole trace of such a launch.
    pub(super) fn read(&self, degrees: &DegreeFlags, world: u32) -> Result<Arc<TracedReplay>> {
        if let Some(read) = self.traced.get() {
            return Ok(read.clone());
        }
        let layout = self.layout(degrees, world)?;
        let mut trace = read_traces(&self.trace)?;
        if let Some(layout) = &layout {
            trace.complete(layout);
        }
        let read = Arc::new(TracedReplay::new(&trace, layout.as_ref(), world)?);
        // Calls that do not fit together are refused before anything is started.
        read.plan(|_| false)?;
        Ok(self.traced.get_or_init(|| read).clone())
    }

    /// The layout of the flags or of the list; none where neither is given.
    fn layout(&self, degrees: &DegreeFlags, world: u32) -> Result<Option<Layout>> {
        let Some(path) = &self.ops else {
            return degrees.are_given().then(|| degrees.layout(Some(world))).transpose();
        };
        if degrees.are_given() {
            return Err(Error::usage("--ops: the list says the layout; accepted: no --tp, --dp and the like with it"));
        }
        let layout = ExpectedStep::read(path)?.layout.layout()?;
        let ranks = layout.group_size(Axis::World);
        if ranks != world {
            return Err(Error::usage(format!(
                "--ops: {} is of {ranks} ranks, and this launch has {world}; accepted: a launch of {ranks} ranks",
                path.shown()
            )));
        }
        Ok(Some(layout))
    }

    /// What is replayed, for the record: its hash is over the files and the settings.
    ///
    /// # Errors
    /// As [`TraceFiles::read`].
    pub(super) fn facts(&self, settings: &str, degrees: &DegreeFlags, world: u32) -> Result<SuiteFacts> {
        self.read(degrees, world)?;
        let layout = self.layout(degrees, world)?;
        let description = layout.as_ref().map(LayoutDescription::from);
        let layout = layout.map(|layout| format!("{} {}", layout.degrees.name(), layout.order_name()));
        let digests = self.trace.iter().map(|path| digest_of(path)).collect::<Result<Vec<String>>>()?;
        Ok(SuiteFacts {
            name: format!("trace of {}", counted(self.trace.len(), "file")),
            path: None,
            sha256: digest::sha256(format!("{digests:?} {description:?} {settings}")),
            model: None,
            layout,
        })
    }
}

fn digest_of(path: &Path) -> Result<String> {
    let digest = input_file::open(path).and_then(digest::sha256_of);
    digest.map_err(|cause| Error::usage(format!("cannot read {}: {cause}", path.shown())))
}
