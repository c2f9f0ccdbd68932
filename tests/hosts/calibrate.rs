//! The cost model on two hosts at a known link rate: its rate is that of the link, and steps that no fit has seen take as long
//! as it predicts. Needs the launcher of the MPI that was built with, and the right to make namespaces; skipped without.

use crate::common;

use commgauge::collective::Collective;
use commgauge::config::Suite;
use commgauge::cost::{Fit, FitOptions, Measurements, fit};
use commgauge::planner::compute::Compute;
use commgauge::planner::price::{Pricing, price};
use commgauge::planner::rates::Fitted;
use commgauge::record::Record;
use commgauge::report::replay_time;
use commgauge::workload::step::Step;
use common::hosts::VirtualCluster;
use common::{Ran, STEP, SUITE, words};
use std::process::Command;
use std::time::Duration;

/// Sampling of curves. Data is not checked, since in a build without optimization that takes longer than the rest.
const MEASURE: &str = "[measure]\nprecision = 0.05\nminimum_samples = 5\nmaximum_samples = 40\ncase_budget = '200ms'\nreplicates = 2\n\
    warm_buffers = true\nverify = false\ncadences = 'streaming'\n";

/// Messages there and back.
const PING_PONGS: &str = "[[sweep]]\ncollectives = 'ping_pong'\nelement_types = 'bfloat16'\n\
    bytes = ['64KiB', '1MiB', '4MiB', '8MiB', '16MiB']\n";

/// Messages, and the small sums at the end of any step.
const CALLS: &str = "[[sweep]]\ncollectives = ['send_recv_chain', 'send_recv']\nelement_types = 'bfloat16'\n\
    bytes = ['64KiB', '1MiB', '4MiB', '8MiB', '16MiB']\n\
    [[sweep]]\ncollectives = ['all_reduce', 'broadcast']\nelement_types = ['float32', 'int32']\nreduce_ops = 'sum'\nplacements = 'in-place'\n\
    bytes = ['4B', '64B', '1KiB', '8KiB']\n";

/// Sums of activations, and the small ones. The length of those in the step, 2 MiB, is not among them.
const SUMS: &str = "[[sweep]]\ncollectives = 'all_reduce'\nelement_types = 'float32'\nreduce_ops = 'sum'\nplacements = 'in-place'\n\
    bytes = ['4B', '64B', '1KiB', '8KiB', '512KiB', '1536KiB', '3MiB', '6MiB']\n\
    [[sweep]]\ncollectives = ['all_reduce', 'broadcast']\nelement_types = 'int32'\nreduce_ops = 'sum'\nplacements = 'in-place'\n\
    bytes = ['4B', '64B', '1KiB', '8KiB']\n";

/// Sums of gradients, and the small ones. The length of those in the step is not among them.
const GRADIENTS: &str = "[[sweep]]\ncollectives = 'all_reduce'\nelement_types = 'float32'\nreduce_ops = 'sum'\nplacements = 'in-place'\n\
    bytes = ['4B', '64B', '1KiB', '8KiB', '4MiB', '8MiB', '16MiB']\n\
    [[sweep]]\ncollectives = ['all_reduce', 'broadcast']\nelement_types = 'int32'\nreduce_ops = 'sum'\nplacements = 'in-place'\n\
    bytes = ['4B', '64B', '1KiB', '8KiB']\n";

/// A step whose ranks compute nothing: all that they do is to wait for each other.
struct Known {
    model: &'static str,
    layers: u32,
    training: &'static str,
    layout: &'static str,
    flags: &'static str,
    sends_at_once: bool,
}

/// Eight micro-batches of 4 MiB through two stages.
const PIPELINE: Known = Known {
    model: "llama-2-7b",
    layers: 2,
    training: "sequence = 512\nmicro_batches = 8",
    layout: "pp = 2",
    flags: "--pp 2 --sequence 512 --micro-batches 8",
    sends_at_once: false,
};

/// Other pipelines, whose replays measure the slowdown of messages in both directions: of 2 MiB and of 8 MiB.
const OTHER_PIPELINES: [&str; 2] =
    ["--pp 2 --sequence 256 --micro-batches 6", "--pp 2 --sequence 1024 --micro-batches 4"];

/// Sums of 2 MiB between two ranks.
const TENSOR: Known = Known {
    model: "llama-2-7b",
    layers: 2,
    training: "sequence = 128\nmicro_batches = 2\nactivation_element_type = 'float32'",
    layout: "tp = 2",
    flags: "--tp 2 --sequence 128 --micro-batches 2 --activation-type float32",
    sends_at_once: true,
};

/// Gradients of a small model in buckets of 12 MB, summed on all ranks.
const DATA: Known = Known {
    model: "gpt2",
    layers: 1,
    training: "sequence = 128\nmicro_batches = 1\ndata_style = 'ddp'\nbucket_parameters = 3_000_000",
    layout: "dp = 2",
    flags: "--dp 2 --data-style ddp --sequence 128 --micro-batches 1 --bucket-parameters 3000000",
    sends_at_once: true,
};

/// Whole messages are sent at once. With a rendezvous the reply waits over TCP behind data in the same direction: a
/// call of 2 MiB then takes 90, 135 or 180 ms at 200 Mbit/s, depending on the arrival times of the two ranks.
const AT_ONCE: [&str; 3] = ["eager_limit", "rndv_eager_limit", "max_send_size"];

/// The launch of a program on a rank of each host.
fn launch(cluster: &VirtualCluster, program: &str, sends_at_once: bool) -> Command {
    let mut command = cluster.command(2, 1, program);
    for limit in AT_ONCE.iter().filter(|_| sends_at_once) {
        command.env(format!("OMPI_MCA_btl_tcp_{limit}"), (64 << 20).to_string());
    }
    command
}

/// Measured again where other work on this machine made a link look slower than it is, with growing pauses.
const PAUSES_SECONDS: [u64; 5] = [0, 1, 2, 4, 8];

fn measured(cluster: &VirtualCluster, folder: &tempfile::TempDir, calls: &str, sends_at_once: bool) -> Record {
    let (suite, record) = (folder.path().join("calls.toml"), folder.path().join("calls.jsonl"));
    std::fs::write(&suite, format!("{MEASURE}{calls}")).unwrap();
    let mut command = launch(cluster, SUITE, sends_at_once);
    Ran::alone(command.arg(&suite).arg("--record").arg(&record), 240).ended_with(0);
    Record::read(&record).expect("a record")
}

fn fitted(records: &[Record]) -> Fit {
    let measurements = Measurements::of(records.iter().map(|record| ("calls", record))).expect("of one machine");
    fit(&measurements, FitOptions::default()).expect("a fit")
}

/// 1/beta of messages between hosts.
fn of_fit(fit: &Fit) -> f64 {
    let family = fit.families.iter().find(|family| family.key.collective == Collective::PingPong).expect("a family");
    assert_eq!(family.key.place.nodes_spanned, 2);
    family.curves[0].bytes_per_second.expect("more bytes take longer").0
}

/// What a link of 1 Gbit/s carries: 1448 bytes in each frame of 1514, with TCP's time stamps.
const LINK_BYTES_PER_SECOND: f64 = 1e9 / 8.0 * 1448.0 / 1514.0;

#[test]
fn the_rate_between_hosts_is_that_of_their_link() {
    let Some(cluster) = VirtualCluster::up_for_ranks("calibrate", 2, "1gbit", &[]) else { return };
    let mut found = Vec::new();
    for pause in PAUSES_SECONDS {
        std::thread::sleep(Duration::from_secs(pause));
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let rate = of_fit(&fitted(&[measured(&cluster, &folder, PING_PONGS, false)]));
        let off = rate / LINK_BYTES_PER_SECOND - 1.0;
        eprintln!(
            "1/beta {:.4} GB/s, the link {:.4} GB/s ({:+.1} %)",
            rate / 1e9,
            LINK_BYTES_PER_SECOND / 1e9,
            100.0 * off
        );
        if off.abs() <= 0.06 {
            return;
        }
        found.push(rate);
    }
    panic!("1/beta: {found:?}, the link carries {LINK_BYTES_PER_SECOND}");
}

#[test]
fn a_pipeline_that_no_fit_has_seen_takes_as_long_as_predicted() {
    holds("calibrate-pipeline", CALLS, &OTHER_PIPELINES, &PIPELINE);
}

#[test]
fn tensor_parallelism_that_no_fit_has_seen_takes_as_long_as_predicted() {
    holds("calibrate-tensor", SUMS, &[], &TENSOR);
}

#[test]
fn data_parallelism_that_no_fit_has_seen_takes_as_long_as_predicted() {
    holds("calibrate-data", GRADIENTS, &[], &DATA);
}

/// Calls and replays of other steps are measured and fitted, the step is predicted by that alone and then replayed: within 15 %.
fn holds(name: &str, calls: &str, others: &[&str], step: &Known) {
    let Some(cluster) = VirtualCluster::up_for_ranks(name, 2, "1gbit", &[]) else { return };
    let mut found = Vec::new();
    for pause in PAUSES_SECONDS {
        std::thread::sleep(Duration::from_secs(pause));
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let mut records = vec![measured(&cluster, &folder, calls, step.sends_at_once)];
        records.extend(others.iter().map(|flags| replayed(&cluster, &folder, step, flags)));
        let predicted = predicted(&folder, &fitted(&records), step);
        let record = replayed(&cluster, &folder, step, step.flags);
        let taken = replay_time(&record.replays[0]).expect("a time").median.0;
        let off = predicted / taken - 1.0;
        eprintln!(
            "{}: predicted {:.1} ms, replayed {:.1} ms ({:+.1} %)",
            step.layout,
            1e3 * predicted,
            1e3 * taken,
            100.0 * off
        );
        if off.abs() <= 0.15 {
            return;
        }
        found.push((predicted, taken));
    }
    panic!("seconds predicted and replayed, {} times: {found:?}", found.len());
}

/// The step by the fit alone, which has seen none of it.
fn predicted(folder: &tempfile::TempDir, fit: &Fit, step: &Known) -> f64 {
    let Known { model, layers, training, layout, .. } = step;
    let text = format!("[model]\npreset = '{model}'\nlayers = {layers}\n[training]\n{training}\n[layout]\n{layout}\n");
    let suite = Suite::parse(&folder.path().join("step.toml"), &text).expect("a suite");
    let steps = Step::all_of(&suite.layouts[0], 2).expect("a step");
    let [Step::Training(step)] = steps.as_slice() else { panic!("one training step") };
    // A machine that computes in no time, as the replay does.
    let compute = Compute::constant(f64::INFINITY, 1.0);
    let rates = Fitted::new(fit, "curves", None);
    let on = Pricing { compute: &compute, rates: &rates, ranks_per_node: 1 };
    price(step, on).unwrap_or_else(|lacking| panic!("{lacking}")).step_seconds
}

fn replayed(cluster: &VirtualCluster, folder: &tempfile::TempDir, step: &Known, flags: &str) -> Record {
    let path = folder.path().join("step.jsonl");
    let mut command = launch(cluster, STEP, step.sends_at_once);
    command.args(["--model", step.model, "--layers", &step.layers.to_string()]).args(words(flags));
    command.args(words("--replay --replay-repetitions 3 --replicates 2 --iters 1 --check 0"));
    Ran::alone(command.arg("--record").arg(&path), 240).ended_with(0);
    let record = Record::read(&path).expect("a record");
    std::fs::remove_file(&path).expect("the record is there");
    record
}
