//! Logs as people have them, whole and harmed: uneven, overlapping, merged, cut off, of a slow night. Every reader and every verdict gets
//! records of them, as commands; none ends with a code that is not documented for it, and none passes what must not.

use crate::nccl_log::NcclLog;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What readers and verdicts may end with: nothing is launched here, so nothing hangs (5) and no rank dies (6), but for a run of another
/// tool that says of itself that it failed.
pub const CODES: [i32; 7] = [0, 1, 2, 3, 4, 6, 7];
const TOOLS: [&str; 4] = ["nccl-tests", "csv", "osu", "imb"];
/// What a healthy run takes: a time for every call, and 100 GB/s.
const LATENCY_MICROSECONDS: f64 = 20.0;
const BYTES_PER_MICROSECOND: f64 = 1e5;

const MACHINE: &str = "name = 'm'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n[between_nodes]\nlatency = '5us'\n\
                       adapters_per_node = 8\nrate_per_adapter = '400GB/s'\n[coverage]\nexpectations = 1\n";

/// How a record must be taken.
#[derive(Clone, Copy, Debug, Default)]
struct Truth {
    /// Its log was cut off, or says that it failed.
    is_harmed: bool,
    /// A run of it takes three times as long.
    is_slow: bool,
}

/// One situation: records of logs, in a folder.
struct Scene<'a> {
    folder: &'a Path,
    records: Vec<(String, Truth)>,
}

/// How far all threads have come.
#[derive(Default)]
pub struct Progress {
    scenes: AtomicU64,
    commands: AtomicU64,
}

/// Runs the commands of one scene after another until this many have run, and returns how many ended with each code.
pub fn run(seed: u64, commands: u64, progress: &Progress) -> [u64; CODES.len()] {
    let mut all = [0; CODES.len()];
    while progress.commands.load(Relaxed) < commands {
        let number = progress.scenes.fetch_add(1, Relaxed);
        let which = format!("seed {seed}, scene {number}");
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed.rotate_left(40) ^ number);
        let folder = tempfile::tempdir().expect("a folder");
        let mut counts = [0; CODES.len()];
        let scene = scene(folder.path(), &mut random, &mut counts, &which);
        for line in lines(&scene, &mut random) {
            let code = ended(folder.path(), &line, &mut counts, &which);
            check(&scene, &line, code, &which);
        }
        progress.commands.fetch_add(counts.iter().sum(), Relaxed);
        all = std::array::from_fn(|code| all[code] + counts[code]);
    }
    all
}

/// Runs a command: its exit code is one of those that are documented.
fn ended(folder: &Path, line: &str, counts: &mut [u64], which: &str) -> i32 {
    let output = Command::new(env!("CARGO_BIN_EXE_commgauge"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("commgauge starts");
    let message = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().unwrap_or(-1);
    let Some(known) = CODES.iter().position(|known| *known == code) else {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fuzz-plausible-logs");
        let _ = std::fs::remove_dir_all(&kept);
        let _ = Command::new("cp").arg("-r").args([folder, &kept]).status();
        panic!("commgauge {line}: ended with {code} ({which}); the folder is kept as {}\n{message}", kept.display());
    };
    counts[known] += 1;
    code
}

/// What was cut off, failed or is slow passes nowhere.
fn check(scene: &Scene, line: &str, code: i32, which: &str) {
    let named: Vec<&Truth> = scene
        .records
        .iter()
        .filter(|(name, _)| line.split(' ').any(|word| word == name))
        .map(|(_, truth)| truth)
        .collect();
    let command = line.split(' ').next().unwrap_or_default();
    let judges = ["judge", "--part", "thresholds", "judge", "compare", "report"].contains(&command);
    let is_harmed = judges && named.iter().any(|truth| truth.is_harmed);
    let is_slow =
        ["judge", "--part", "thresholds", "judge"].contains(&command) && named.iter().any(|truth| truth.is_slow);
    assert!(
        code != 0 || !(is_harmed || is_slow),
        "commgauge {line}: passes (harmed: {is_harmed}, slow: {is_slow}; {which})"
    );
}

fn one_of<T: Copy>(random: &mut Xoshiro256PlusPlus, all: &[T]) -> T {
    all[random.random_range(0..all.len())]
}

/// Logs, imported as two to four records, and a machine file that a healthy run meets.
fn scene<'a>(folder: &'a Path, random: &mut Xoshiro256PlusPlus, counts: &mut [u64], which: &str) -> Scene<'a> {
    let tool = if random.random_bool(0.7) { TOOLS[0] } else { one_of(random, &TOOLS) };
    let collective =
        one_of(random, &["all_reduce", "all_reduce", "all_gather", "alltoall", "broadcast", "reduce_scatter"]);
    let (first, last) = (random.random_range(10..24u32), random.random_range(1..12u32));
    let powers = first..=first + last;
    // In half of the scenes all logs have the same sizes and hosts.
    let kind = LogKind { tool, collective, is_like_the_others: random.random_bool(0.5) };
    let mut scene = Scene { folder, records: Vec::new() };
    for index in 0..random.random_range(2..5) {
        let name = format!("r{index}.jsonl");
        let (mut files, mut truth) = (Vec::<(String, String)>::new(), Truth::default());
        let slow_night = random.random_bool(0.15);
        for log in 0..one_of(random, &[1, 1, 2, 3, 6, 6, 8, 8]) {
            let is_slow = slow_night || random.random_bool(0.03);
            let (text, of_log) = log_of(kind, powers.clone(), is_slow, random);
            truth.is_harmed |= of_log.is_harmed;
            truth.is_slow |= of_log.is_slow;
            // Several runs in one file, or a file for each.
            match files.last_mut() {
                Some((_, merged)) if tool != "csv" && random.random_bool(0.2) => merged.push_str(&text),
                _ => files.push((format!("{index}-{log}.txt"), text)),
            }
        }
        files.iter().for_each(|(file, text)| std::fs::write(folder.join(file), text).expect("written"));
        let names: Vec<&str> = files.iter().map(|(file, _)| file.as_str()).collect();
        let flags = if ["osu", "imb"].contains(&tool) { " --ranks-per-node 8" } else { "" };
        let ranks = if tool == "osu" { " --ranks 8" } else { "" };
        let line = format!("import --from {tool} {} -o {name}{flags}{ranks}", names.join(" "));
        let skipping = format!("{line} --skip-bad-lines");
        if ended(folder, &line, counts, which) == 0 || ended(folder, &skipping, counts, which) == 0 {
            scene.records.push((name, truth));
        }
    }
    let name = if collective == "alltoall" { "all_to_all" } else { collective };
    let mut machine = MACHINE.to_owned();
    let backend = if ["osu", "imb"].contains(&tool) { "mpi" } else { "nccl" };
    let cadence = if ["osu", "imb"].contains(&tool) { "isolated" } else { "streaming" };
    let _ = write!(machine, "[applies_to]\nbackend = '{backend}'\n");
    for power in powers {
        let bytes = 1u64 << power;
        let _ = write!(
            machine,
            "[[expect]]\ncollective = '{name}'\nranks = 8\nbytes = '{bytes}B'\ncadence = '{cadence}'\nceiling = '{:.3}us'\nsource = 's'\ndate = '2026'\n",
            healthy_microseconds(bytes) * 1.5
        );
    }
    std::fs::write(folder.join("m.toml"), machine).expect("written");
    scene
}

fn healthy_microseconds(bytes: u64) -> f64 {
    LATENCY_MICROSECONDS + bytes as f64 / BYTES_PER_MICROSECOND
}

/// What the logs of a scene have in common.
#[derive(Clone, Copy)]
struct LogKind {
    tool: &'static str,
    collective: &'static str,
    is_like_the_others: bool,
}

/// One log: of all sizes or some, on the usual host or another, whole or not.
fn log_of(
    kind: LogKind,
    powers: std::ops::RangeInclusive<u32>,
    is_slow: bool,
    random: &mut Xoshiro256PlusPlus,
) -> (String, Truth) {
    let mut truth = Truth { is_slow, ..Truth::default() };
    let LogKind { tool, collective, is_like_the_others } = kind;
    let mut is_odd = |chance: f64| !is_like_the_others && random.random_bool(chance);
    let (twice, on_another_host, of_another_version) = (is_odd(0.15), is_odd(0.1), is_odd(0.1));
    let (low, high) = powers.into_inner();
    let (low, high) = match random.random_range(0..4) {
        _ if is_like_the_others => (low, high),
        0 => (random.random_range(low..=high), high),
        1 => (low, random.random_range(low..=high)),
        _ => (low, high),
    };
    let mut sizes: Vec<u64> = (low..=high).map(|power| 1 << power).collect();
    if twice {
        sizes.push(one_of(random, &sizes));
    }
    let slow = if truth.is_slow { 3.0 } else { 1.0 };
    let rows: Vec<(u64, [f64; 2])> = sizes
        .into_iter()
        .map(|bytes| (bytes, [(); 2].map(|()| healthy_microseconds(bytes) * slow * random.random_range(0.99..1.01))))
        .collect();
    let text = match tool {
        "nccl-tests" => {
            let mut log = NcclLog { collective, ..NcclLog::of(rows) };
            if on_another_host {
                log.hosts = vec!["worker-2".to_owned()];
            }
            if of_another_version {
                log.nccl = 22809;
            }
            if random.random_bool(0.03) {
                (log.wrong_values, truth.is_harmed) = ("3 FAILED".to_owned(), true);
            }
            match random.random_bool(0.03) {
                true => {
                    truth.is_harmed = true;
                    log.text().replace(" \n#\n# Collective test", " FAILED\n#\n# Collective test")
                }
                false => log.text(),
            }
        }
        "csv" => {
            rows.iter().fold("collective,dtype,ranks,bytes_total,latency_us\n".to_owned(), |text, (bytes, times)| {
                text + &format!("{collective},float32,8,{bytes},{:.2}\n", times[0])
            })
        }
        "osu" => {
            let title = match collective {
                "all_reduce" => "Allreduce",
                "all_gather" => "Allgather",
                "alltoall" => "All-to-All Personalized Exchange",
                "broadcast" => "Broadcast",
                _ => "Reduce_scatter",
            };
            rows.iter().fold(
                format!("# OSU MPI {title} Latency Test v7.5\n# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n"),
                |text, (bytes, [time, _])| text + &format!("{bytes} {:.2} {:.2} {time:.2} 1000\n", time * 0.95, time * 0.9),
            )
        }
        _ => {
            let name = match collective {
                "all_reduce" => "Allreduce",
                "all_gather" => "Allgather",
                "alltoall" => "Alltoall",
                "broadcast" => "Bcast",
                _ => "Reduce_scatter",
            };
            rows.iter().fold(
                format!(
                    "#    Intel(R) MPI Benchmarks 2021.10, MPI-1 part\n# Benchmarking {name}\n# #processes = 8\n\
                     #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]\n"
                ),
                |text, (bytes, [time, _])| {
                    text + &format!("{bytes} 640 {:.2} {time:.2} {:.2}\n", time * 0.9, time * 0.95)
                },
            ) + "# All processes entering MPI_Finalize\n"
        }
    };
    let has_foot = ["nccl-tests", "imb"].contains(&tool);
    if has_foot && random.random_bool(0.03) {
        truth.is_harmed = true;
        let lines: Vec<&str> = text.lines().collect();
        let foot =
            lines.iter().position(|line| line.contains("Out of bounds") || line.contains("Finalize")).unwrap_or(0);
        let kept = random.random_range(foot.saturating_sub(3)..=foot);
        return (lines[..kept].iter().map(|line| format!("{line}\n")).collect(), truth);
    }
    (text, truth)
}

/// The commands of a situation.
fn lines(scene: &Scene, random: &mut Xoshiro256PlusPlus) -> Vec<String> {
    let [(first, _), .., (last, _)] = &scene.records[..] else { return Vec::new() };
    let all = scene.records.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ");
    let others: String = scene.records[1..].iter().skip(1).map(|(name, _)| format!(" --more-new {name}")).collect();
    let second = &scene.records[1].0;
    let allow = " --allow hosts,versions,suite,settings,rank-map,labels";
    let some = |random: &mut Xoshiro256PlusPlus| if random.random_bool(0.7) { allow } else { "" };
    let format =
        one_of(random, &["table", "json", "csv", "markdown", "nccl-tests", "osu", "imb", "junit", "prometheus"]);
    let format_of_verdict = one_of(random, &["table", "json", "markdown", "junit", "prometheus", "github"]);
    let mut lines = vec![
        format!("report {first} --format {format}"),
        format!("report {last}"),
        format!("report {all} -o page.html --machine m.toml{allow}"),
        format!("report {last} -o page.html --base {first}{}", some(random)),
        format!("report {first} -o page.html --base {last}{}", some(random)),
        format!("judge --part thresholds {first} --machine m.toml --format {format_of_verdict}"),
        format!("judge --part thresholds {last} --machine m.toml"),
        format!("judge --part thresholds {all} --machine m.toml{}", some(random)),
        format!("judge {all} --machine m.toml{}", some(random)),
        format!("judge {last} --machine m.toml --page judged.html"),
        format!("compare {first} {last}{}", some(random)),
        format!("compare {last} {first} --format {format_of_verdict}{}", some(random)),
        format!("compare {first} {second}{others}{allow}"),
        format!("compare --consistency {first}"),
        format!("compare --consistency {first} --more-base {last}{allow}"),
        "history . --format json".to_owned(),
        "history . --all".to_owned(),
        format!("history add {all} --store store"),
        "history --store store".to_owned(),
        format!("judge --part suspects {last}"),
        format!("fit {all} -o fit.json"),
        format!("expect learn {all} -o learned.toml --name l --like m.toml{allow}"),
    ];
    // A record that was cut in two, as a disk or a copy does it.
    if random.random_bool(0.1) {
        let bytes = std::fs::read(scene.folder.join(first)).expect("a record");
        let kept = random.random_range(0..bytes.len());
        std::fs::write(scene.folder.join("torn.jsonl"), &bytes[..kept]).expect("written");
        lines.extend([
            "report torn.jsonl".to_owned(),
            format!("compare torn.jsonl {last}"),
            "judge --part thresholds torn.jsonl --machine m.toml".to_owned(),
        ]);
    }
    lines
}
