//! Whole steps replayed on real ranks: every call carries correct data, and the bytes are those of the list of ops, by
//! axis. Needs the launcher of the MPI that was built with. The launched program is this file itself, selected by its
//! environment.

mod common;

use commgauge::backend::mpi::MpiBackend;
use commgauge::config::{RunSettings, Suite};
use commgauge::error::Result;
use commgauge::mpi_call;
use commgauge::mpi_call::Communicator;
use commgauge::record::line::SuiteFacts;
use commgauge::session::{self, AfterPlan, ReplayRequest, ReplaySource, Request, Signals};
use commgauge::units::Seconds;
use commgauge::workload::replay::ReplayOptions;
use commgauge::workload::step::Step;
use commgauge::workload::{StepFacts, WorkPlan};
use commgauge::world::World;
use common::{Ran, launcher, lines, of_kind, record_in};
use std::path::{Path, PathBuf};

const SUITE: &str = "COMMGAUGE_TEST_REPLAY_SUITE";
const RECORD: &str = "COMMGAUGE_TEST_REPLAY_RECORD";
const REPETITIONS: u32 = 3;
const FORWARD_SECONDS_PER_LAYER: f64 = 0.5e-3;

const DENSE: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;
const TIED: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 4,
    "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512, "tie_word_embeddings": true}"#;
const EXPERTS: &str = r#"{"model_type": "mixtral", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 4, "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512,
    "num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": false, "sliding_window": null}"#;

/// Model, keys of the training, layout, axes that must be active.
const CASES: &[(&str, &str, &str, &[&str])] = &[
    (DENSE, "micro_batches = 4", "tp = 2\npp = 2", &["tp", "pp"]),
    (DENSE, "micro_batches = 2\nbucket_parameters = 20000", "tp = 2\ndp = 2", &["tp", "dp"]),
    (DENSE, "micro_batches = 4\nbucket_parameters = 20000", "dp = 2\npp = 2", &["dp", "pp"]),
    (DENSE, "micro_batches = 4\nvirtual_stages = 2", "tp = 2\npp = 2", &["tp", "pp"]),
    (DENSE, "micro_batches = 4\nschedule = 'zb-h1'\nsequence_parallel = true", "tp = 2\npp = 2", &["pp"]),
    (DENSE, "micro_batches = 4\nschedule = 'zb-v'\nrecompute = 'full'", "tp = 2\npp = 2", &["tp", "pp"]),
    (DENSE, "micro_batches = 2\ndata_style = 'fsdp'", "dp = 4", &["dp"]),
    (DENSE, "micro_batches = 2\ndata_style = 'zero1'\nbucket_parameters = 20000", "dp = 2\npp = 2", &["dp", "pp"]),
    (DENSE, "micro_batches = 2\ndata_style = 'zero2'\nbucket_parameters = 20000", "dp = 4", &["dp"]),
    (DENSE, "micro_batches = 2\ndata_style = 'hsdp'\nreplicas_of_shards = 2", "dp = 4", &["dp_shard", "dp_replicate"]),
    (
        DENSE,
        "micro_batches = 2\ndata_style = 'hsdp'\nunit_rule = 'buckets'\nreplicas_of_shards = 2\nouter_sharding = 'optim'",
        "dp = 4",
        &["dp_shard", "dp_replicate"],
    ),
    (DENSE, "micro_batches = 2\nmuon_tp_mode = 'distributed'", "tp = 2\ndp = 2", &["tp", "dp"]),
    (DENSE, "micro_batches = 2\nbatch_broadcast = 'fields_and_mask'", "cp = 2\ntp = 2", &["cp", "tp", "dp_cp"]),
    (DENSE, "micro_batches = 2\ncontext_style = 'all_to_all'", "cp = 2\npp = 2", &["cp", "pp"]),
    // Ranks of the inner stages are in no group of the embedding.
    (TIED, "micro_batches = 4", "pp = 4", &["pp", "embedding"]),
    (EXPERTS, "micro_batches = 2", "dp = 2\nep = 2\npp = 2", &["pp", "ep"]),
    (EXPERTS, "micro_batches = 2\nrouting = 'hot:0.45'", "dp = 4\nep = 4", &["ep"]),
    (
        EXPERTS,
        "micro_batches = 2\ndispatcher = 'all_gather'\nsequence_parallel = true",
        "tp = 2\ndp = 2\nep = 2\netp = 1",
        &["tp"],
    ),
];

fn main() {
    if let (Some(suite), Some(record)) = (std::env::var_os(SUITE), std::env::var_os(RECORD)) {
        std::process::exit(rank(Path::new(&suite), PathBuf::from(record)));
    }
    // As the harness of other tests does, run what was requested only, list on request, and print what scripts/test reads.
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(place) = words.iter().position(|word| word == "--test-threads") {
        words.drain(place..(place + 2).min(words.len()));
    }
    let name = "a_replay_on_four_ranks_moves_exactly_the_bytes_that_are_listed";
    if words.iter().any(|word| word == "--list") {
        println_line(&format!("{name}: test"));
        return;
    }
    if words.iter().filter(|word| !word.starts_with('-')).any(|word| !name.contains(word.as_str())) {
        return;
    }
    let ended = std::panic::catch_unwind(|| {
        too_large_is_refused();
        CASES.iter().for_each(replayed);
    });
    let Err(panic) = ended else {
        println_line(&format!("test {name} ... ok ({} steps)", CASES.len()));
        println_line("\ntest result: ok. 1 passed; 0 failed; 0 ignored");
        return;
    };
    let message = panic.downcast_ref::<String>().map_or("see above", String::as_str);
    println_line(&format!("test {name} ... FAILED\n\nfailures:\n\n---- {name} stdout ----\n{message}"));
    println_line(&format!("\nfailures:\n    {name}\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored"));
    std::process::exit(101);
}

fn println_line(text: &str) {
    use std::io::Write;
    writeln!(std::io::stdout(), "{text}").expect("stdout is open");
}

/// Gradients of 405e9 parameters on every rank: refused before anything is measured, and no record is left.
fn too_large_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("suite.toml");
    let text = "[model]\npreset = 'llama-3-405b'\n[training]\nsequence = 64\nmicro_batches = 1\n[[layout]]\ndp = 4\n";
    std::fs::write(&suite, text).unwrap();
    let record = record_in(&folder);
    let mut command = launcher(4);
    command.arg(std::env::current_exe().unwrap()).env(SUITE, &suite).env(RECORD, &record);
    Ran::of(&mut command, 90).ended_with(2).printed_error("replaying a step of llama-3-405b needs 1.");
    assert!(!record.exists());
}

fn replayed((model, training, layout, axes): &(&str, &str, &str, &[&str])) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tiny")).unwrap();
    std::fs::write(folder.path().join("tiny/config.json"), model).unwrap();
    let suite = folder.path().join("suite.toml");
    let text =
        format!("[model]\nconfig = 'tiny/config.json'\n[training]\nsequence = 64\n{training}\n[[layout]]\n{layout}\n");
    std::fs::write(&suite, text).unwrap();
    let record = record_in(&folder);
    let mut command = launcher(4);
    command.arg(std::env::current_exe().unwrap()).env(SUITE, &suite).env(RECORD, &record);
    Ran::of(&mut command, 90).ended_with(0);

    let lines = lines(&record);
    let replay = of_kind(&lines, "replay")[0];
    let said = format!("{training} {layout}: {replay}");
    assert_eq!(replay["outcome"]["status"], "measured", "{said}");
    assert_eq!(replay["outcome"]["verified"], true, "{said}");
    assert_eq!(replay["bytes_as_listed"], true, "{said}");
    let found: Vec<&str> =
        replay["axes"].as_array().unwrap().iter().map(|axis| axis["axis"].as_str().unwrap()).collect();
    assert!(!found.is_empty() && axes.iter().all(|axis| found.contains(axis)), "{said}");
    for axis in replay["axes"].as_array().unwrap() {
        for what in ["payload", "wire"] {
            assert_eq!(axis[format!("{what}_bytes_counted")], axis[format!("{what}_bytes_listed")], "{said}");
        }
        assert!(axis["payload_bytes_counted"].as_u64() > Some(0), "{said}");
    }
    let slowest = replay["slowest_nanoseconds"].as_array().unwrap();
    assert_eq!(slowest.len() as u32, REPETITIONS, "{said}");
    // No rank is faster than the forward and backward computing of a layer; how much slower depends on the machine.
    let least = (3.0 * FORWARD_SECONDS_PER_LAYER * 1e9) as u64;
    assert!(slowest.iter().all(|time| time.as_u64() >= Some(least)), "{said}");
    assert!(replay["computing_nanoseconds_median"].as_u64() >= Some(least), "{said}");
    assert_eq!(replay["rank_nanoseconds_median"].as_array().unwrap().len(), 4, "{said}");
}

/// One rank of a launch.
fn rank(suite: &Path, record: PathBuf) -> i32 {
    let mpi = mpi_call::initialize().unwrap();
    let code = run_rank(suite, record).unwrap_or_else(|error| {
        eprintln!("{error}");
        mpi_call::abort(error.exit_code())
    });
    drop(mpi);
    code
}

fn run_rank(suite: &Path, record: PathBuf) -> Result<i32> {
    let world = Communicator::world()?;
    let suite = Suite::load(suite)?;
    let steps = Step::all_of(&suite.layouts[0], world.processes())?;
    let plan = WorkPlan { steps: steps.iter().map(StepFacts::of).collect(), ..WorkPlan::default() };
    let options = ReplayOptions {
        repetitions: REPETITIONS,
        warm_up: 1,
        forward_seconds_per_layer: Seconds(FORWARD_SECONDS_PER_LAYER),
    };
    let request = Request {
        program: "launched_replay",
        run_id: "test".to_owned(),
        suite: SuiteFacts { name: "test".to_owned(), path: None, sha256: String::new(), model: None, layout: None },
        plan,
        settings: RunSettings::default(),
        machine: None,
        world_size: world.processes(),
        record,
        resume: None,
        launch: Default::default(),
        launch_command: None,
        injected: Default::default(),
        watch: Default::default(),
        listener: Default::default(),
        labels: std::collections::BTreeMap::new(),
        after_plan: AfterPlan {
            perftest: None,
            interference: None,
            replay: Some(ReplayRequest { source: ReplaySource::Steps(Box::new(suite.layouts[0].clone())), options }),
        },
    };
    let mut backend = MpiBackend::new(world.processes())?;
    Ok(session::run(&world, &mut backend, &request, &Signals::default())?.exit_code)
}
