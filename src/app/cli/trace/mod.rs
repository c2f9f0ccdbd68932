//! `commgauge trace`: what a job really called, by axis, compared with the list of a step and with a fit, and as a suite.

mod document;
mod suite;
#[cfg(test)]
mod tests;
mod text;

pub use document::{TraceDocument, schema};

use document::FitOnNodes;

use super::degrees::DegreeFlags;
use super::table_or_json::AnswerArguments;
use super::text_output::{check_only_format, replace};
use commgauge_analysis::cost::Fit;
use commgauge_analysis::trace::{
    CallKind, ExpectedStep, Trace, TracedCall, TracedPlaces, compare, counted_calls, late_ranks, read_traces,
};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::Layout;
use std::path::PathBuf;

/// Exit code where the trace is not what the list of the step says.
const DIFFERS: i32 = 1;

/// Show what a job really called: from traces of PyTorch, Chakra or NCCL
///
/// commgauge trace trace-rank*.json.gz --tp 8 --dp 4
///
/// commgauge ops --model llama-3-8b --tp 8 --dp 4 ... --format json > step.json; commgauge trace trace-rank*.json.gz --ops step.json
///
/// With --ops every call is compared with the list of a step: what is missing, extra, or of another size or count, and the exit
/// code is then 1 where anything differs. With --fit times are compared with what the fit predicts.
#[derive(Clone, Debug, clap::Args)]
pub struct TraceCommand {
    /// Files of one job, one of each rank, also gzipped: Chrome traces of PyTorch's profiler, its execution traces or Chakra's, dumps
    /// of its flight recorder (JSON or pickle); logs of NCCL's inspector, or of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL (of
    /// any number of ranks)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// How the job divides the model, by which groups are named; with --ops its degrees
    #[command(flatten)]
    degrees: DegreeFlags,

    /// Steps that the trace holds [default: those that the job marked (ProfilerStep), else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,

    /// Type of the elements of calls whose type the trace does not say, as NCCL's inspector does not
    #[arg(long, value_name = "TYPE")]
    element_type: Option<ElementType>,

    /// Hold the calls against this list of a step, from `commgauge ops --format json`
    #[arg(long, value_name = "FILE")]
    ops: Option<PathBuf>,

    /// Hold the times against this fit, from `commgauge fit -o`
    #[arg(long, value_name = "FILE")]
    fit: Option<PathBuf>,

    /// Ranks on each node, which say where the groups of the layout are, as the fit has a curve for each placement
    #[arg(long, value_name = "N", requires = "fit", value_parser = clap::value_parser!(u32).range(1..))]
    ranks_per_node: Option<u32>,

    /// Write a suite that measures exactly these calls
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// How the answer is shown.
    #[command(flatten)]
    shown: AnswerArguments,
}

impl TraceCommand {
    /// Reads the files and prints what is in them.
    pub fn execute(&self) -> Result<i32> {
        if let Some(path) = &self.output {
            let inputs = self.files.iter().chain(&self.ops).chain(&self.fit);
            check_only_format(path, "toml", &inputs.map(PathBuf::as_path).collect::<Vec<_>>())?;
        }
        let expected = self.ops.as_deref().map(ExpectedStep::read).transpose()?;
        let fit = self.fit.as_deref().map(Fit::read).transpose()?;
        let mut trace = read_traces(&self.files)?;
        if let Some(element) = self.element_type {
            give_type(&mut trace, element)?;
        }
        if trace.calls.is_empty() {
            let notes = trace.notes.iter().map(|note| format!("\n  {note}")).collect::<String>();
            return Err(Error::usage(format!("the files hold no call that is known{notes}")));
        }
        let layout = self.layout(&trace, expected.as_ref())?;
        if let Some(layout) = &layout {
            trace.complete(layout);
        }
        let document = self.document(&trace, layout.as_ref(), expected.as_ref(), fit.as_ref())?;
        self.shown.show(&document, |width| text::text(&document, width))?;
        Ok(if document.differs() { DIFFERS } else { 0 })
    }

    /// What is printed; writes the suite as well.
    fn document(
        &self,
        trace: &Trace,
        layout: Option<&Layout>,
        expected: Option<&ExpectedStep>,
        fit: Option<&Fit>,
    ) -> Result<TraceDocument> {
        let steps = self.steps.or(trace.steps).unwrap_or(1);
        let places = TracedPlaces::new(trace, layout);
        let calls = counted_calls(trace, &places, steps);
        if let Some(path) = &self.output {
            let written = suite::suite(&calls, layout, self.files.len())?;
            written.left_out.iter().for_each(|note| eprintln!("left out of the suite: {note}"));
            replace(path, &written.text)?;
            eprintln!("{} cases in {}", written.cases, path.shown());
        }
        let against = expected.zip(layout);
        let compared = against.map(|(expected, layout)| compare(trace, &places, steps, expected, layout));
        let late = late_ranks(trace, &places);
        let fit = fit.map(|fit| FitOnNodes { fit, layout, ranks_per_node: self.ranks_per_node });
        let mut document = TraceDocument::new(trace, steps, &calls, compared.as_deref(), &late, fit);
        document.notes.extend(against.and_then(|(expected, layout)| expected.stages_note(layout)));
        Ok(document)
    }

    /// The layout of the flags on the ranks of the job; where the trace does not say them, on those that the flags say, of which the files
    /// may be some.
    fn layout_of_flags(&self, trace: &Trace) -> Result<Layout> {
        let seen = trace.ranks.last().map_or(1, |rank| rank + 1);
        match (trace.world, self.degrees.layout(None)) {
            (None, Ok(layout)) if layout.degrees.world() >= u64::from(seen) => Ok(layout),
            (world, _) => self.degrees.layout(Some(world.unwrap_or(seen))),
        }
    }

    /// The layout of the list of the step, which the flags may not contradict, or else of the flags.
    fn layout(&self, trace: &Trace, expected: Option<&ExpectedStep>) -> Result<Option<Layout>> {
        let of_flags = self.degrees.are_given().then(|| self.layout_of_flags(trace)).transpose()?;
        let listed = expected.map(|expected| expected.layout.layout()).transpose()?;
        if let (Some(of_flags), Some(listed)) = (&of_flags, &listed) {
            let in_words = |layout: &Layout| {
                let by_hand = if layout.is_placed_by_hand() { ", placed by hand" } else { "" };
                format!("{} in the order {}{by_hand}", layout.degrees.name(), layout.order_name())
            };
            let (flags, list) = (in_words(of_flags), in_words(listed));
            if flags != list {
                return Err(Error::usage(format!(
                    "the flags say {flags}, and the list of --ops is of {list}; accepted: the same, or no such flags"
                )));
            }
        }
        let layout = listed.or(of_flags);
        if let (Some(layout), Some(world)) = (&layout, trace.world)
            && layout.degrees.world() != u64::from(world)
        {
            return Err(Error::usage(format!(
                "{} is of {} ranks, and the job had {world}; accepted: the degrees of the job",
                layout.degrees.name(),
                layout.degrees.world()
            )));
        }
        Ok(layout)
    }
}

/// Gives the calls without a type this one.
fn give_type(trace: &mut Trace, element: ElementType) -> Result<()> {
    let barrier = CallKind::Collective(Collective::Barrier);
    let untyped = |call: &&mut TracedCall| call.element.is_none() && call.kind != barrier;
    let mut given = 0_usize;
    for call in trace.calls.iter_mut().filter(untyped) {
        call.element = Some(element);
        given += 1;
    }
    match given {
        0 => Err(Error::usage(
            "--element-type: the trace says the type of every call; accepted: no such flag".to_owned(),
        )),
        _ => Ok(()),
    }
}
