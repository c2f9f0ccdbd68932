//! Traces of a job that calls what a list says, as PyTorch's flight recorder leaves them on GPUs, and what is planted in them.

use super::*;
use crate::cli::ops::OpsCommand;
use crate::cli::table_or_json::json;
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
    let step = json(&Ops::parse_from(FLAGS).command.document().unwrap()).unwrap();
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
    let text = text::text(&document, 100);
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
    assert!(missing.len() == 1 && missing[0]["call"] == "all_gather" && missing[0]["traced"].is_null(), "{missing:?}");

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
        (&["--tp", "2", "--dp", "2"][..], "of 4 ranks 2 are not in the files: 1,3"),
        (&["--tp", "2", "--dp", "4"], "of 8 ranks 6 are not in the files: 1,3-7"),
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
        document["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(notes(600_000_000), Vec::<String>::new(), "half a second: it came late to the only calls");
    let apart = notes(10_000_000_005);
    assert!(
        apart[0].starts_with("the calls of rank 3 begin 10.0 s after the last of rank 0: their clocks are apart"),
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
    let twice = [PathBuf::from(&arguments[1]), file("rank0.json", &std::fs::read_to_string(&arguments[1]).unwrap())];
    let world = |rank: u32, world: u32| {
        file(
            &format!("of-{world}-{rank}.json"),
            &value!({"schemaVersion": 1, "distributedInfo": {"rank": rank, "world_size": world}, "traceEvents": []})
                .to_string(),
        )
    };
    for (what, paths, words) in [
        ("one rank twice", twice.to_vec(), "are both of rank 0"),
        ("two jobs", vec![world(0, 4), world(1, 8)], "is of a job of 4 ranks"),
        ("no trace", vec![file("rank1.txt", "hello\n")], "is none of the traces that are read"),
        ("half a dump", vec![file("rank2.json", "{\"version\": \"2.10\", \"entries\": [")], "is no whole dump"),
        (
            "no rank",
            vec![file("trace.json", "{\"schemaVersion\": 1, \"traceEvents\": []}")],
            "does not say of which rank it is",
        ),
    ] {
        let error = read_traces(&paths).unwrap_err();
        assert!(error.to_string().contains(words), "{what}: {error}");
    }
    let trace = read_traces(&[PathBuf::from(&arguments[2])]).unwrap();
    assert_eq!(trace.ranks.iter().copied().collect::<Vec<u32>>(), [1]);
    assert_eq!(trace.notes, ["a group has 2 ranks, and the files are of 1: not all of the job is among them"]);
    let mut eight = arguments.clone();
    eight.extend(["--tp".to_owned(), "3".to_owned()]);
    let command = Traced::parse_from(&eight).command;
    assert!(command.layout(&read_traces(&command.files).unwrap(), None).is_err(), "4 ranks are not 3 times anything");
    assert_eq!(Axis::Tp.name(), "tp");
}
