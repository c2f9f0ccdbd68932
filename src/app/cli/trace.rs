//! `commgauge trace`: what a job really called, by axis, compared with the list of a step and with a fit, and as a suite.

use super::layout::DegreeFlags;
use super::output::{AnswerArguments, check_only_format, replace};
use crate::report::prose;
use crate::report::trace::{self as report, FitOnNodes, TraceDocument};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_cost::cost::Fit;
use commgauge_model::config::{AXES, Suite};
use commgauge_model::layout::{Axis, Degrees, Layout};
use commgauge_readers::trace::{
    CallKind, CountedCall, ExpectedStep, GroupPlace, Trace, TracedCall, TracedPlaces, compare, counted_calls,
    late_ranks, read_traces,
};
use minijinja::context;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

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
    /// of its flight recorder (JSON or pickle); of any number of ranks: SQLite exports of Nsight Systems, logs of NCCL's inspector, or
    /// of NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=INIT,COLL
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// How the job divides the model, by which groups are named; with --ops its degrees
    #[command(flatten)]
    degrees: DegreeFlags,

    /// Steps that the trace holds [default: those that the job marked (ProfilerStep), else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,

    /// Type of the elements of calls whose type the trace does not say, as NCCL's inspector and Nsight Systems do not
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    element_type: Option<ElementType>,

    /// Compare calls with this list of a step (from `commgauge ops --format json`)
    #[arg(long, value_name = "FILE")]
    ops: Option<PathBuf>,

    /// Compare times with this fit
    #[arg(long, value_name = "FILE")]
    fit: Option<PathBuf>,

    /// Ranks on each node, which say where the groups of the layout are, as the fit has a curve for each placement
    #[arg(long, value_name = "N", requires = "fit", value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
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
        self.shown.show(&document, |width| report::text(&document, width))?;
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
            let written = suite(&calls, layout, self.files.len())?;
            written.left_out.iter().for_each(|note| eprintln!("left out of the suite: {note}"));
            replace(path, &written.text)?;
            eprintln!("{} cases in {}", written.cases, path.shown());
        }
        let against = expected.zip(layout);
        let compared = against.map(|(expected, layout)| compare(trace, &places, steps, expected, layout));
        let late = late_ranks(trace, &places);
        let fit = fit.map(|fit| FitOnNodes { fit, layout, ranks_per_node: self.ranks_per_node });
        let mut document = TraceDocument::new(trace, steps, calls, compared, late, fit);
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
                    "the flags say {flags}, and the list of --ops {list}; accepted: the same, or no such flags"
                )));
            }
        }
        let layout = listed.or(of_flags);
        if let (Some(layout), Some(world)) = (&layout, trace.world)
            && layout.degrees.world() != u64::from(world)
        {
            return Err(Error::usage(format!(
                "{} has {} ranks, and the job had {world}; accepted: the degrees of the job",
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

// A suite that measures the calls of a job.

/// A suite as text.
struct WrittenSuite {
    pub text: String,
    /// Calls that it measures.
    pub cases: usize,
    /// Calls that it does not, and why.
    pub left_out: Vec<String>,
}

/// Sizes by axis, call and type: one sweep each.
type Sweeps = BTreeMap<(Axis, Collective, Option<ElementType>), Vec<u64>>;

/// The suite of these calls on this layout.
///
/// # Errors
/// If none of them can be measured.
fn suite(calls: &[CountedCall], layout: Option<&Layout>, files: usize) -> Result<WrittenSuite> {
    if layout.is_some_and(Layout::is_placed_by_hand) {
        return Err(Error::usage("-o: a suite holds no --rank-list; accepted: ranks in the order of --order"));
    }
    let mut left_out = Vec::new();
    let mut sweeps: Sweeps = BTreeMap::new();
    for call in calls {
        match measured(call) {
            Ok((axis, collective)) => {
                let sizes = sweeps.entry((axis, collective, call.element)).or_default();
                if call.bytes_total.0 > 0 {
                    sizes.push(call.bytes_total.0);
                }
            }
            Err(why) => left_out.push(format!("{} of {} on {}: {why}", call.kind, call.bytes_total, call.place.name())),
        }
    }
    if sweeps.is_empty() {
        let why = left_out.first().map_or("", String::as_str);
        return Err(Error::usage(format!("-o: none of the calls can be measured, such as {why}")));
    }
    let cases = sweeps.values().map(|sizes| sizes.len().max(1)).sum();
    let text = text(&sweeps, layout, files);
    // Whoever writes a suite that cannot be read says so at once.
    Suite::parse(Path::new("suite of the trace"), &text)?;
    Ok(WrittenSuite { text, cases, left_out })
}

fn measured(call: &CountedCall) -> std::result::Result<(Axis, Collective), String> {
    if call.element.is_none() && call.kind != CallKind::Collective(Collective::Barrier) {
        return Err("the trace does not say the type of its elements (--element-type)".to_owned());
    }
    let GroupPlace::Axis(axis) = &call.place else {
        return match call.place.name() == Axis::World.name() {
            true => collective_of(call.kind).map(|collective| (Axis::World, collective)),
            false => Err("its group matches no axis of the layout (--tp, --dp, ...)".to_owned()),
        };
    };
    if !AXES.contains(&axis.name()) {
        return Err("sweeps have no such axis".to_owned());
    }
    collective_of(call.kind).map(|collective| (*axis, collective))
}

/// Messages are measured along the chain of their group, as a pipeline sends them.
fn collective_of(kind: CallKind) -> std::result::Result<Collective, String> {
    match kind {
        CallKind::Collective(collective) => Ok(collective),
        CallKind::Send => Ok(Collective::SendRecvChain),
        CallKind::Receive => Err("it is measured with the send".to_owned()),
    }
}

fn text(sweeps: &Sweeps, layout: Option<&Layout>, files: usize) -> String {
    let layout = layout.map(|layout| {
        let Degrees { tp, cp, dp, pp, ep, .. } = layout.degrees;
        let degrees = [("tp", tp), ("cp", cp), ("dp", dp), ("pp", pp), ("ep", ep)];
        context! { degrees, copies => layout.group_size(Axis::DpReplicate), order => layout.order_name() }
    });
    let sweep = |((axis, collective, element), sizes): (&(Axis, Collective, Option<ElementType>), &Vec<u64>)| {
        let (axis, collective, element_type) = (axis.name(), collective, element.map(ElementType::name));
        let has_placements = collective.placements().len() > 1;
        context! { axis, collective => collective.name(), element_type, sizes, has_placements }
    };
    let sweeps: Vec<_> = sweeps.iter().map(sweep).collect();
    prose("trace_suite.toml", include_str!("trace_suite.toml"), context! { files, layout, sweeps })
}

#[cfg(test)]
mod tests {
    // Traces of a job that calls what a list says, as PyTorch's flight recorder leaves them on GPUs, and what is planted in them.
    use super::*;
    use crate::cli::rank::OpsCommand;
    use crate::report::pretty_json;
    use clap::Parser;
    use commgauge_base::collective::Collective;
    use commgauge_base::element::ElementType;
    use commgauge_model::config::Suite;
    use commgauge_model::layout::{Axis, DEFAULT_ORDER, Degrees};
    use serde_json::{Value, json as value};

    #[derive(Parser)]
    struct Ops {
        #[command(flatten)]
        command: OpsCommand,
    }

    #[derive(Parser)]
    struct Traced {
        #[command(flatten)]
        command: TraceCommand,
    }

    const FLAGS: [&str; 14] = [
        "ops",
        "--model",
        "llama-3-8b",
        "--layers",
        "2",
        "--tp",
        "2",
        "--dp",
        "2",
        "--sequence",
        "4096",
        "--global-batch",
        "4",
        "--sequence-parallel",
    ];
    const DEGREES: Degrees = Degrees { tp: 2, cp: 1, dp: 2, pp: 1, ep: 1, etp: 2 };

    /// A folder with the list of a step, and with a dump of each rank of a job that called what `change` makes of it.
    fn job(change: impl Fn(u32, &mut Vec<Value>)) -> (tempfile::TempDir, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let step = pretty_json(&Ops::parse_from(FLAGS).command.document().unwrap()).unwrap();
        std::fs::write(folder.path().join("step.json"), &step).unwrap();
        let step: ExpectedStep = serde_json::from_str(&step).unwrap();
        let layout = Layout::new(DEGREES, &DEFAULT_ORDER).unwrap();
        let mut arguments = vec!["trace".to_owned()];
        for rank in 0..4 {
            let mut groups = serde_json::Map::new();
            let mut calls = Vec::new();
            for op in &step.ops {
                let group = layout.groups(op.axis).groups.into_iter().find(|group| group.contains(&rank)).unwrap();
                let name = format!("{}-{}", op.axis.name(), group[0]);
                groups.insert(name.clone(), value!({"name": name, "desc": "", "ranks": format!("{group:?}")}));
                let repeated = (0..op.count_per_step)
                    .map(|_| entry(&name, op.collective, op.element_type, op.bytes_total.0, group.len()));
                calls.extend(repeated);
            }
            change(rank, &mut calls);
            (0..).zip(&mut calls).for_each(|(number, call): (u64, &mut Value)| call["record_id"] = number.into());
            let dump = value!({"version": "2.10", "pg_config": groups, "pg_status": {}, "entries": calls});
            let path = folder.path().join(format!("nccl_trace_rank_{rank}"));
            std::fs::write(&path, dump.to_string()).unwrap();
            arguments.push(path.display().to_string());
        }
        (folder, arguments)
    }

    fn entry(group: &str, collective: Collective, element: ElementType, bytes: u64, ranks: usize) -> Value {
        let elements = bytes / element.size();
        let block = elements / ranks as u64;
        let (name, sent, received) = match collective {
            Collective::AllReduce => ("nccl:all_reduce", elements, elements),
            Collective::AllGather => ("nccl:_all_gather_base", block, elements),
            Collective::ReduceScatter => ("nccl:_reduce_scatter_base", elements, block),
            other => panic!("the step of the test has no {other}"),
        };
        let dtype = match element {
            ElementType::Bfloat16 => "BFloat16",
            ElementType::Float32 => "Float",
            ElementType::Int32 => "Int",
            ElementType::Int64 => "Long",
            other => panic!("the step of the test has no {other}"),
        };
        value!({"record_id": 0, "pg_id": 1, "process_group": [group, ""], "profiling_name": name, "input_sizes": [[sent]],
        "input_dtypes": [dtype], "output_sizes": [[received]], "output_dtypes": [dtype], "duration_ms": 2.0, "is_p2p": false,
        "time_created_ns": 5, "state": "completed"})
    }

    /// The document of a job compared with its list.
    fn traced(change: impl Fn(u32, &mut Vec<Value>)) -> Value {
        let (folder, mut arguments) = job(change);
        let out = folder.path().join("suite.toml");
        arguments.extend(["--ops".to_owned(), folder.path().join("step.json").display().to_string()]);
        arguments.extend(["-o".to_owned(), out.display().to_string()]);
        let command = Traced::parse_from(&arguments).command;
        let trace = read_traces(&command.files).unwrap();
        let expected = ExpectedStep::read(command.ops.as_deref().unwrap()).unwrap();
        let layout = command.layout(&trace, Some(&expected)).unwrap().unwrap();
        let document = command.document(&trace, Some(&layout), Some(&expected), None).unwrap();
        let text = report::text(&document, 100);
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert!(Suite::parse(&out, &std::fs::read_to_string(&out).unwrap()).is_ok());
        serde_json::to_value(&document).unwrap()
    }

    fn of_difference<'a>(document: &'a Value, difference: &str) -> Vec<&'a Value> {
        document["comparison"].as_array().unwrap().iter().filter(|line| line["difference"] == difference).collect()
    }

    #[test]
    fn a_job_that_calls_what_its_list_says_has_no_difference_and_its_groups_are_named() {
        let document = traced(|_, _| {});
        let comparison = document["comparison"].as_array().unwrap();
        assert!(comparison.len() >= 5 && of_difference(&document, "same").len() == comparison.len(), "{document:#}");
        let places: Vec<&Value> = comparison.iter().map(|line| &line["place"]).collect();
        assert!(places.contains(&&value!("tp")) && places.contains(&&value!("dp")), "{places:?}");
        assert_eq!(document["ranks"], "0-3");
    }

    #[test]
    fn calls_that_are_missing_extra_or_of_another_size_or_count_are_each_said() {
        let is = |call: &Value, name: &str| call["profiling_name"] == name;
        let tp = |call: &Value| call["process_group"][0].as_str().unwrap().starts_with("tp");
        let gather = "nccl:_all_gather_base";
        let document = traced(|_, calls| calls.retain(|call| !(is(call, gather) && tp(call))));
        let missing = of_difference(&document, "missing");
        assert!(
            missing.len() == 1 && missing[0]["call"] == "all_gather" && missing[0]["traced"].is_null(),
            "{missing:?}"
        );

        let document = traced(|_, calls| {
            calls.iter_mut().filter(|call| is(call, gather) && tp(call)).for_each(|call| {
                call["output_sizes"] = value!([[64]]);
            });
        });
        let size = of_difference(&document, "other size");
        assert!(size.len() == 1 && size[0]["traced"]["bytes_total"] == 128, "{size:?}");

        let document = traced(|_, calls| {
            let first = calls.iter().find(|call| is(call, gather) && tp(call)).cloned().unwrap();
            calls.push(first);
        });
        assert_eq!(of_difference(&document, "other count").len(), 1);

        let document = traced(|_, calls| {
            let mut call = calls[0].clone();
            call["profiling_name"] = "nccl:broadcast".into();
            calls.push(call);
        });
        let extra = of_difference(&document, "extra");
        assert!(extra.len() == 1 && extra[0]["call"] == "broadcast" && extra[0]["expected"].is_null(), "{extra:?}");
    }

    #[test]
    fn a_rank_that_the_others_wait_for_is_named_with_its_group() {
        let document = traced(|rank, calls| {
            let tp = calls.iter_mut().filter(|call| call["process_group"][0].as_str().unwrap().starts_with("tp"));
            tp.for_each(|call| call["duration_ms"] = if rank == 3 { 0.5 } else { 2.0 }.into());
        });
        let late = document["late_ranks"].as_array().unwrap();
        assert_eq!(late.len(), 1, "{late:?}");
        assert_eq!((&late[0]["rank"], &late[0]["group_ranks"]), (&value!(3), &value!("2-3")));
        assert!((late[0]["waited_seconds_median"].as_f64().unwrap() - 0.0015).abs() < 1e-9);
    }

    #[test]
    fn ranks_that_are_not_among_the_files_are_said_though_only_the_layout_says_how_many_there_are() {
        let (_folder, arguments) = job(|_, _| {});
        for (flags, expected) in [
            (&["--tp", "2", "--dp", "2"][..], "the files lack 2 of 4 ranks: 1,3"),
            (&["--tp", "2", "--dp", "4"], "the files lack 6 of 8 ranks: 1,3-7"),
        ] {
            let given = arguments[..2].iter().chain([&arguments[3]]).map(String::as_str).chain(flags.iter().copied());
            let command = Traced::parse_from(given).command;
            let mut trace = read_traces(&command.files).unwrap();
            let layout = command.layout(&trace, None).unwrap().unwrap();
            trace.complete(&layout);
            assert_eq!(trace.notes, [expected]);
        }
    }

    #[test]
    fn ranks_that_never_work_at_the_same_time_are_noted() {
        let notes = |begin: u64| {
            let document = traced(|rank, calls| {
                calls.iter_mut().filter(|_| rank == 3).for_each(|call| call["time_created_ns"] = begin.into());
            });
            document["notes"]
                .as_array()
                .unwrap()
                .iter()
                .map(|note| note.as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(notes(600_000_000), Vec::<String>::new(), "half a second: it came late to the only calls");
        let apart = notes(10_000_000_005);
        assert!(
            apart[0].starts_with("the calls of rank 3 begin 10.0 s after the last of rank 0: their clocks disagree"),
            "{apart:?}"
        );
    }

    #[test]
    fn files_that_do_not_belong_together_or_say_nothing_are_refused_with_the_reason() {
        let (folder, arguments) = job(|_, _| {});
        let file = |name: &str, content: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let twice =
            [PathBuf::from(&arguments[1]), file("rank0.json", &std::fs::read_to_string(&arguments[1]).unwrap())];
        let world = |rank: u32, world: u32| {
            file(
            &format!("of-{world}-{rank}.json"),
            &value!({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": []})
                .to_string(),
        )
        };
        for (what, paths, words) in [
            ("one rank twice", twice.to_vec(), "both belong to rank 0"),
            ("two jobs", vec![world(0, 4), world(1, 8)], "comes from a job of 4 ranks"),
            ("no trace", vec![file("rank1.txt", "hello\n")], "is not a supported trace"),
            (
                "half a dump",
                vec![file("rank2.json", "{\"version\": \"2.10\", \"entries\": [")],
                "is not a complete dump",
            ),
            (
                "no rank",
                vec![file("trace.json", "{\"schemaVersion\": 1, \"traceEvents\": []}")],
                "gives its rank neither in",
            ),
        ] {
            let error = read_traces(&paths).unwrap_err();
            assert!(error.to_string().contains(words), "{what}: {error}");
        }
        let trace = read_traces(&[PathBuf::from(&arguments[2])]).unwrap();
        assert_eq!(trace.ranks.iter().copied().collect::<Vec<u32>>(), [1]);
        assert_eq!(trace.notes, ["a group has 2 ranks, but the files cover 1: part of the job is missing"]);
        let mut eight = arguments.clone();
        eight.extend(["--tp".to_owned(), "3".to_owned()]);
        let command = Traced::parse_from(&eight).command;
        assert!(
            command.layout(&read_traces(&command.files).unwrap(), None).is_err(),
            "4 ranks are not 3 times anything"
        );
        assert_eq!(Axis::Tp.name(), "tp");
    }
}
