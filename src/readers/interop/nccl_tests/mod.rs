//! nccl-tests (and rccl-tests, which prints the same): text of versions 2.0 to 2.20, and the JSON of `-J`.
//! <https://github.com/NVIDIA/nccl-tests>
//!
//! Its size argument equals `bytes_total`, so sizes need no conversion. Times are means over back-to-back calls, and over ranks unless it
//! ran with `-a`.

mod collective;
mod devices;

use super::imported::Imported;
use super::log_text;
use crate::interop::imported::{BadLine, RunFault, RunFaultKind};
use crate::interop::log_text::{local_time, microseconds};
use collective::Named;
use commgauge_base::collective::Placement;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use devices::{Device, Facts, Fields, Group, Half, MEANS, Printed, hosts, nccl_version};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;

/// Parses the content of a file, text or JSON; `path` is for the messages and the names of the rows, `ranks` are those of a log that
/// does not list them. Unreadable lines are returned with their number.
///
/// # Errors
/// A usage error if the file is truncated JSON, or was written by another tool.
pub fn parse(bytes: &[u8], path: &Path, ranks: Option<u32>) -> Result<Imported> {
    let text = log_text::text_of(bytes, path)?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if text.trim_start().starts_with('{') && !text.contains("\"commgauge-record\"") {
        if ranks.is_some() {
            return Err(Error::usage(format!("--ranks: {} says them itself", path.shown())));
        }
        return parse_json(&text, &name, path);
    }
    log_text::expect_writer(path, &text, "nccl-tests")?;
    Ok(devices::parse(&text, &name, ranks))
}

// The JSON that nccl-tests writes with `-J` (versions 1 and 2 of the format, from 2.17 on).
//
// It lists one device per process even if a process drives several, writes booleans as strings and the root with leading blanks.

/// The newest supported version of the format.
const NEWEST: u64 = 2;

#[derive(Deserialize)]
struct Document {
    version: Option<u64>,
    start_time: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<String>,
    nccl_version: Option<u64>,
    config: Config,
    results: Vec<Value>,
    out_of_bounds: Option<Checked>,
    average_bus_bandwidth: Option<Checked>,
    #[serde(default)]
    errors: Vec<Value>,
}

#[derive(Deserialize)]
struct Checked {
    count: Option<Value>,
    #[serde(default)]
    okay: Value,
}

#[derive(Deserialize)]
struct Config {
    nthreads: u32,
    ngpus: u32,
    aggregated_iterations: Option<u64>,
    graph: Option<u64>,
    blocking_collectives: Option<Value>,
    devices: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    rank: u32,
    #[serde(default)]
    group: i64,
    #[serde(default)]
    pid: i64,
    hostname: String,
    device_info: Option<String>,
}

#[derive(Deserialize)]
struct ResultRow {
    size: u64,
    count: u64,
    #[serde(rename = "type")]
    element_type: String,
    redop: String,
    root: Value,
    out_of_place: Option<Measured>,
    in_place: Option<Measured>,
}

#[derive(Deserialize)]
struct Measured {
    time: Option<f64>,
    alg_bw: Option<f64>,
    bus_bw: Option<f64>,
    nwrong: Option<f64>,
}

fn parse_json(text: &str, file: &str, path: &Path) -> Result<Imported> {
    let document: Document = serde_json::from_str(text).map_err(|cause| {
        let corrupted = if cause.is_eof() { "it ends too early: the run is truncated; " } else { "" };
        Error::usage(format!("{}: {corrupted}not JSON of nccl-tests: {cause}", path.shown()))
    })?;
    let mut imported = Imported::default();
    if let Some(version) = document.version.filter(|version| *version > NEWEST) {
        let note = format!("version {version} of nccl-tests' JSON is newer than the newest known, {NEWEST}");
        imported.facts.notes.push(note);
    }
    imported.facts.started = document.start_time.as_deref().and_then(|text| local_time(text, "%Y-%m-%d %H:%M:%S"));
    let devices = devices(&document.config);
    imported.facts.ranks = devices.iter().flatten().map(Device::as_rank).collect();
    let mut facts = facts(&document, file);
    devices.iter().for_each(|devices| facts.label("hosts", hosts(devices)));
    let group = devices.and_then(|devices| Group::of(&devices));
    let has_several = group.as_ref().is_ok_and(|group| group.groups > 1);
    imported.facts.warnings.extend(has_several.then(|| MEANS.to_owned()));
    imported.facts.faults = faults(&document);
    for (index, result) in document.results.into_iter().enumerate() {
        let rows = fields(result).and_then(|fields| facts.rows(&group, &fields));
        match rows {
            // Where nothing is moved, nothing was measured.
            Ok(rows) => imported.rows.extend(rows.into_iter().filter(|row| row.bytes_total.0 > 0)),
            Err(problem) => {
                imported.bad_lines.push(BadLine { number: 1, problem: format!("results[{index}]: {problem}") });
            }
        }
    }
    Ok(imported)
}

/// Whether a value is this one; booleans are strings in some versions.
fn says(value: &Value, wanted: bool) -> bool {
    value.as_bool() == Some(wanted) || value.as_str() == Some(if wanted { "true" } else { "false" })
}

/// How the run failed, if it did.
fn faults(document: &Document) -> Vec<RunFault> {
    let bounds = match &document.out_of_bounds {
        None => Some((RunFaultKind::CutOff, "the run is truncated: `out_of_bounds` is missing".to_owned())),
        Some(found) if found.count.as_ref().and_then(Value::as_f64) == Some(0.0) && says(&found.okay, true) => None,
        Some(found) => {
            let count = found.count.clone().unwrap_or_default();
            Some((
                RunFaultKind::WrongData,
                format!("nccl-tests found wrong data: out_of_bounds: {count}, okay: {}", found.okay),
            ))
        }
    };
    let is_slow = document.average_bus_bandwidth.as_ref().is_some_and(|average| says(&average.okay, false));
    let slow = is_slow.then(|| (RunFaultKind::Failed, "nccl-tests failed by its average bus bandwidth".to_owned()));
    let error =
        document.errors.first().map(|error| (RunFaultKind::Failed, format!("nccl-tests ended with errors: {error}")));
    bounds.into_iter().chain(slow).chain(error).map(|(kind, text)| RunFault { kind, text }).collect()
}

fn facts(document: &Document, file: &str) -> Facts {
    let program = document.args.first().map(|program| program.rsplit('/').next().unwrap_or(program));
    let named = program.and_then(Named::of_program).unwrap_or_else(|| Named::of_file(file));
    let config = &document.config;
    let blocking = config.blocking_collectives.as_ref().is_some_and(|blocking| says(blocking, true));
    let mut facts = Facts { named, blocking, ..Facts::default() };
    if blocking {
        facts.label("blocking", "wait");
    }
    if let Some(code) = document.nccl_version {
        facts.label("nccl_version", nccl_version(code));
    }
    let variables = document.env.iter().filter_map(|variable| variable.split_once('='));
    variables.filter(|(name, _)| name.starts_with("NCCL_")).for_each(|(name, value)| facts.label(name, value));
    facts.unusual("agg_iters", config.aggregated_iterations, 1);
    facts.unusual("graph", config.graph, 0);
    facts
}

/// All ranks: if an entry describes a whole process, its other ranks follow it on the same host and in its group.
fn devices(config: &Config) -> std::result::Result<Vec<Device>, String> {
    let per_process = config.nthreads.checked_mul(config.ngpus).filter(|ranks| (1..=4096).contains(ranks));
    let per_process = per_process.ok_or("config: nthreads x ngpus: accepted: from 1 to 4096")?;
    let processes: BTreeSet<(&str, i64)> = config.devices.iter().map(|entry| (&*entry.hostname, entry.pid)).collect();
    let is_process = processes.len() == config.devices.len();
    let ranks = if is_process { per_process } else { 1 };
    let mut devices = Vec::new();
    for entry in &config.devices {
        for offset in 0..ranks {
            devices.push(Device {
                rank: entry.rank.checked_add(offset).ok_or("config: devices: a rank is too large")?,
                group: entry.group,
                host: entry.hostname.clone(),
                model: entry.device_info.clone().unwrap_or_default(),
                slot: None,
            });
        }
    }
    Ok(devices)
}

fn fields(result: Value) -> std::result::Result<Fields, String> {
    let row: ResultRow = serde_json::from_value(result).map_err(|cause| cause.to_string())?;
    let mut halves = Vec::new();
    for (placement, measured) in [(Placement::OutOfPlace, &row.out_of_place), (Placement::InPlace, &row.in_place)] {
        let Some(measured) = measured else { continue };
        let time = measured.time.ok_or("no `time` (with -C it is a processor time, not that of the call)")?;
        let wrong_elements = measured.nwrong.filter(|count| *count >= 0.0).map(|count| count.ceil() as u64);
        let printed = |column: &str, value: f64| Printed::of(column, &value.to_string());
        halves.push(Half {
            placement,
            latency: microseconds("time", &time.to_string())?,
            time: printed("time", time)?,
            algbw: measured.alg_bw.map(|rate| printed("alg_bw", rate)).transpose()?,
            busbw: measured.bus_bw.map(|rate| printed("bus_bw", rate)).transpose()?,
            wrong_elements,
        });
    }
    if halves.is_empty() {
        return Err("holds no time: neither out_of_place nor in_place".to_owned());
    }
    let root = match &row.root {
        Value::String(text) => text.trim().parse::<i64>().ok(),
        other => other.as_i64(),
    };
    Ok(Fields {
        bytes: Bytes(row.size),
        count: row.count,
        element_type: row.element_type.parse().map_err(|problem| format!("type: {problem}"))?,
        reduce_op: Some(row.redop).filter(|op| op != "none"),
        root: root.and_then(|root| u32::try_from(root).ok()),
        halves,
    })
}

#[cfg(test)]
mod tests {
    // Reading of nccl-tests' output, and refusals.
    use crate::interop::corrupt_input;
    use crate::interop::imported::{DataCheck, RunsFacts};
    use crate::interop::{Imported, Origin, Row, RunFaultKind, record_lines};
    use commgauge_base::collective::{Collective, Placement, ReduceOp};
    use commgauge_base::element::ElementType;
    use commgauge_base::sample::Cadence;
    use commgauge_model::layout::Locality;
    use commgauge_model::record::Record;
    use commgauge_model::record::library_use::LibraryUse;
    use commgauge_model::record::line::ForeignTool;
    use std::collections::BTreeSet;
    use std::path::Path;

    const OLD: &str = include_str!("../../../../tests/data/foreign/nccl-tests-2.11-all_reduce.txt");
    const TWO_HOSTS: &str = include_str!("../../../../tests/data/foreign/nccl-tests-2.13-two-hosts.txt");
    const LOG: &str = include_str!("../../../../tests/data/foreign/nccl-tests-2.17-log.txt");
    const PER_ITERATION: &str = include_str!("../../../../tests/data/foreign/nccl-tests-2.20-per-iteration.txt");
    const JSON: &str = include_str!("../../../../tests/data/foreign/nccl-tests.json");

    fn parse(text: &str, file: &str) -> Imported {
        super::devices::parse(text, file, None)
    }

    fn json(text: &str, file: &str) -> commgauge_base::error::Result<Imported> {
        super::parse_json(text, file, Path::new("out.json"))
    }

    fn microseconds(row: &Row) -> f64 {
        (row.latency.0 * 1e12).round() / 1e6
    }

    fn locality_of(nodes_spanned: u32, ranks_per_node: u32, stride: u32, concurrent_groups_per_node: u32) -> Locality {
        Locality { nodes_spanned, ranks_per_node, stride, concurrent_groups_per_node }
    }

    #[test]
    fn the_old_layout_has_its_collective_from_the_command_and_its_ranks_from_the_devices() {
        let imported = parse(OLD, "x.txt");
        assert_eq!((imported.bad_lines.len(), imported.rows.len()), (0, 10));
        let row = &imported.rows[1];
        assert_eq!((row.collective, row.ranks, row.bytes_total.0), (Collective::AllReduce, 8, 1024));
        assert_eq!((row.element_type, microseconds(row)), (ElementType::Float32, 40.9));
        assert_eq!(row.locality, locality_of(2, 4, 1, 1));
        assert_eq!(row.labels["device"], "Tesla V100-SXM2-32GB");
        assert_eq!((row.known.placement, row.known.reduce_op), (Some(Placement::InPlace), Some(ReduceOp::Sum)));
        assert_eq!(row.known.data_check, None, "a deviation is not a number of wrong elements");
    }

    #[test]
    fn wrong_elements_and_log_lines_within_a_table_are_reported() {
        let imported = parse(TWO_HOSTS, "x.txt");
        assert!(imported.bad_lines.is_empty(), "{:?}", imported.bad_lines);
        let wrong: Vec<_> = imported.rows.iter().map(|row| row.known.data_check).collect();
        let [right, wrong_12] = [0, 12].map(|count| Some(DataCheck::of_count(count)));
        assert_eq!(wrong, [right, right, right, None, right, wrong_12]);
        // Without a name: sum, no root, and a sixteenth of the bytes counted.
        assert!(imported.rows.iter().all(|row| row.collective == Collective::ReduceScatter && row.ranks == 16));
        assert_eq!(imported.rows[0].locality, locality_of(2, 8, 1, 1));
        assert!(
            imported.facts.notes.iter().any(|note| note.contains("1 log line of NCCL within")),
            "{:?}",
            imported.facts.notes
        );
        let [fault] = imported.facts.faults.as_slice() else { panic!("{:?}", imported.facts.faults) };
        assert!(fault.kind == RunFaultKind::WrongData && fault.text.contains("wrong data in this run"), "{fault:?}");
        let versioned =
            parse(&TWO_HOSTS.replacen("# Using devices", "NCCL version 2.26.5+cuda12.9\n# Using devices", 1), "x.txt");
        let is_read = |row: &Row| row.labels["nccl_version"] == "2.26.5";
        assert!(versioned.rows.iter().all(is_read), "{:?}", versioned.rows[0].labels);
    }

    #[test]
    fn consecutive_runs_have_separate_facts() {
        let imported = parse(LOG, "x.txt");
        let gathers = &imported.rows[..6];
        assert!(gathers.iter().all(|row| row.collective == Collective::AllGather && row.ranks == 8));
        assert_eq!((gathers[0].element_type, gathers[0].known.reduce_op), (ElementType::Bfloat16, None));
        assert_eq!(gathers[0].labels["nccl_version"], "2.27.3");
        assert_eq!(gathers[0].known.cadence, Some(Cadence::Streaming));
        let split = &imported.rows[6..];
        assert_eq!(split.len(), 4);
        for row in split {
            assert_eq!((row.collective, row.ranks, &*row.labels["groups"]), (Collective::AllToAll, 4, "2"));
            assert_eq!((row.locality.clone(), row.known.cadence), (locality_of(1, 4, 2, 2), Some(Cadence::Isolated)));
        }
        let [hypercube] = imported.bad_lines.as_slice() else { panic!("{:?}", imported.bad_lines) };
        assert!(hypercube.problem.contains("no call for `hypercube`"), "{hypercube:?}");
        assert!(
            imported.facts.warnings.iter().any(|note| note.contains("means over the groups")),
            "{:?}",
            imported.facts.warnings
        );
    }

    #[test]
    fn further_columns_and_rows_that_are_in_place_only_are_read() {
        let imported = parse(PER_ITERATION, "x.txt");
        assert!(imported.bad_lines.is_empty(), "{:?}", imported.bad_lines);
        let read: Vec<_> =
            imported.rows.iter().map(|row| (row.known.root, row.known.placement, microseconds(row))).collect();
        let (out, within) = (Some(Placement::OutOfPlace), Some(Placement::InPlace));
        assert_eq!(read, [(Some(0), out, 6.21), (Some(0), within, 6.11), (Some(1), within, 6.02)]);
        let labels = &imported.rows[0].labels;
        assert_eq!((&*labels["agg_iters"], &*labels["graph"], &*labels["nccl_version"]), ("4", "1", "2.29.1"));
    }

    #[test]
    fn marks_of_launchers_and_foreign_lines_leave_the_rows_of_a_log() {
        let expected = parse(OLD, "x.txt").rows;
        let marked = |mark: &str| OLD.lines().map(|line| format!("{mark}{line}\n")).collect::<String>();
        let row = OLD.lines().find(|line| line.contains("2710.0")).unwrap();
        let (begin, end) = row.split_at(row.find("2710.0").unwrap());
        let broken = format!("{begin}gpu-a:49:49 [0] NCCL INFO 8 Bytes -> Algo 0 proto 0 time 26.5\n{end}");
        for text in [
            marked("[0] "),
            marked("        [1,0]<stdout>:"),
            marked("[default0]:"),
            marked("12: "),
            marked("2026-07-10T09:37:10.123456789Z "),
            format!("\u{feff}{OLD}"),
            OLD.replace(row, &format!("{row}\n[1,3]<stderr>:a warning")),
            OLD.replace(row, &format!("{row}\nlibibverbs: a warning of one library")),
            OLD.replace(row, &broken),
        ] {
            let imported = super::parse(text.as_bytes(), Path::new("x.txt"), None).unwrap();
            assert_eq!(imported.bad_lines, [], "{text:.200}");
            assert_eq!(imported.rows, expected, "{text:.200}");
        }
    }

    #[test]
    fn a_blank_reduction_and_sizes_of_nothing_are_read() {
        let row = |text: &str| OLD.lines().find(|line| line.contains(text)).unwrap();
        let all_to_all =
            "# nThread 1 nGpus 2 minBytes 65536 maxBytes 65536 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
            #   Rank  0 Pid  110 on     node-a device  0 [0x1a] Tesla V100
            #   Rank  1 Pid  110 on     node-a device  1 [0x2a] Tesla V100
            #       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
                   65536          8192   float             52.01    1.26    0.63  0e+00    50.09    1.31    0.65    N/A
            # Out of bounds values : 0 OK
            # Avg bus bandwidth    : 0.6
            ";
        let imported = parse(all_to_all, "alltoall.txt");
        let calls: Vec<_> = imported.rows.iter().map(|row| (row.collective, row.bytes_total.0)).collect();
        assert_eq!((calls, imported.bad_lines), (vec![(Collective::AllToAll, 65_536); 2], vec![]));
        let nothing = "           0             0     float     sum    30.10    0.00    0.00  0e+00    30.08    0.00    0.00  0e+00";
        let imported = parse(&OLD.replace(row("2710.0"), &format!("{nothing}\n{}", row("2710.0"))), "x.txt");
        assert_eq!((imported.rows.len(), imported.bad_lines.len()), (parse(OLD, "x.txt").rows.len(), 0));
        assert!(
            imported.facts.notes.iter().any(|note| note.contains("line 1, 21; the first is `$ mpirun")),
            "{:?}",
            imported.facts.notes
        );
    }

    #[test]
    fn runs_of_other_hosts_and_settings_in_one_log_are_other_rows() {
        let hosts: BTreeSet<&str> =
            OLD.lines().filter_map(|line| line.split_once(" on ")?.1.split_whitespace().next()).collect();
        let other = hosts.iter().fold(OLD.to_owned(), |text, host| text.replace(*host, "elsewhere"));
        let imported = parse(&(OLD.to_owned() + &other), "x.txt");
        let named: BTreeSet<&String> = imported.rows.iter().map(|row| &row.labels["hosts"]).collect();
        assert_eq!((named.len(), imported.bad_lines.len()), (2, 0));
        let longer = OLD.replacen("iters: 20", "iters: 100", 1);
        assert_ne!(longer, OLD);
        let imported = parse(&(OLD.to_owned() + &longer), "x.txt");
        let iterations: BTreeSet<&str> = imported.rows.iter().map(|row| &*row.labels["iters"]).collect();
        assert_eq!(iterations, BTreeSet::from(["100", "20"]));
    }

    #[test]
    fn ranks_and_collective_are_those_of_both_bandwidths_where_lines_lack_or_mislead() {
        let line = |rank: usize| {
            format!("#  Rank {rank:>2} Group  0 Pid   1887 on   gpu-a device {rank:>2} [0x10] NVIDIA H100\n")
        };
        let log = |before: &str, listed: usize| {
            format!(
                "{before}# nThread 1 nGpus 16 minBytes 536870912 maxBytes 1073741824 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1\n\
                 # Using devices\n{}#       size         count      type   redop    root     time   algbw   busbw #wrong\n   \
                 536870912     134217728     float     sum      -1  2379.17  225.65  423.10      0\n  \
                 1073741824     268435456     float     sum      -1  4708.27  228.05  427.60      0\n# Out of bounds values : 0 OK\n\
                 # Avg bus bandwidth    : 425.4\n",
                (0..listed).map(line).collect::<String>()
            )
        };
        let command = "$ ./build/all_reduce_perf -g 16\n";
        let made = "Linking  > ../build/all_reduce_perf\nLinking  > ../build/reduce_perf\n";
        for (before, listed) in [(command, 0), (command, 8), (command, 16), (made, 16)] {
            let imported = parse(&log(before, listed), "x.txt");
            let found: Vec<_> = imported.rows.iter().map(|row| (row.collective, row.ranks)).collect();
            assert_eq!(found, [(Collective::AllReduce, 16); 2], "{before}{listed}: {:?}", imported.bad_lines);
            let is_noted = imported.facts.notes.iter().any(|note| note.contains("tells 16 ranks"));
            assert_eq!(is_noted, listed < 16, "{before}{listed}: {:?}", imported.facts.notes);
        }
        let more = parse(&log(command, 32), "x.txt");
        assert!(more.rows.is_empty() && more.bad_lines[0].problem.contains("contradict each other"), "{more:?}");
    }

    #[test]
    fn ranks_that_neither_lines_nor_bandwidths_tell_are_those_of_the_command_line_or_of_the_user() {
        let log = |command: &str, per_process: &str| {
            format!(
                "{command}\n# nThread 1 nGpus {per_process} minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 1 iters: 20 agg iters: 1\n\
                 # Using devices\n#       size         count      type   redop    root     time   algbw   busbw #wrong\n   \
                 1048576        262144     float    none       0    10.00  104.86  104.86      0\n# Out of bounds values : 0 OK\n\
                 # Avg bus bandwidth    : 104.9\n"
            )
        };
        for (command, per_process, ranks) in [
            ("$ mpirun -np 16 -H a:8,b:8 ./build/broadcast_perf -b 1M -n 5", "1", Some(16)),
            ("mpirun --np=4 -x NCCL_DEBUG=WARN broadcast_perf -g 2", "2", Some(8)),
            ("mpirun -H a:8,b:8 broadcast_perf", "1", Some(16)),
            ("srun -N 2 --ntasks-per-node=8 --mpi=pmix broadcast_perf", "1", Some(16)),
            ("srun --ntasks 12 broadcast_perf", "1", Some(12)),
            ("./build/broadcast_perf -g 8", "8", Some(8)),
            ("mpirun broadcast_perf", "1", None),
            ("mpirun -np 4000000000 broadcast_perf", "8", None),
            ("mpirun -np 4 ./sweep.sh", "1", Some(4)),
        ] {
            let named = "# Collective test starting: broadcast_perf\n# ";
            let text = log(command, per_process).replacen("# ", named, 1);
            let imported = parse(&text, "x.txt");
            let found = imported.rows.first().map(|row| (row.collective, row.ranks));
            assert_eq!(found, ranks.map(|ranks| (Collective::Broadcast, ranks)), "{command}: {:?}", imported.bad_lines);
            let is_said = imported.facts.notes.iter().any(|note| note.contains("the command line tells"));
            assert_eq!(is_said, ranks.is_some(), "{command}: {:?}", imported.facts.notes);
            let given = super::devices::parse(&text, "x.txt", Some(6));
            assert_eq!(given.rows.first().map(|row| row.ranks), Some(6), "{command}");
        }
        // Bandwidths that contradict --ranks are an error that names both.
        let contradicted = super::devices::parse(OLD, "x.txt", Some(6)).bad_lines;
        assert!(contradicted.len() == 4 && contradicted[0].problem.contains("on 6 ranks"), "{contradicted:?}");
        let both = parse(&("$ mpirun -np 2 all_reduce_perf\n".to_owned() + OLD), "x.txt");
        assert!(both.rows.iter().all(|row| row.ranks == 8), "{:?}", both.facts.notes);
    }

    #[test]
    fn json_counts_the_ranks_behind_each_process() {
        let imported = json(JSON, "out.json").unwrap();
        let read: Vec<_> = imported
            .rows
            .iter()
            .map(|row| (row.bytes_total.0, row.ranks, microseconds(row), row.known.data_check))
            .collect();
        let expected = [
            (1_048_576, 4, 33.125, Some(DataCheck::Right)),
            (1_048_576, 4, 32.5, Some(DataCheck::Right)),
            (8_388_608, 4, 101.25, None),
            (8_388_608, 4, 100.5, None),
        ];
        assert_eq!(read, expected);
        assert_eq!(imported.rows[0].locality, locality_of(2, 2, 1, 1));
        assert_eq!(
            (imported.rows[0].collective, imported.rows[0].element_type),
            (Collective::AllReduce, ElementType::Float16)
        );
        assert!(imported.bad_lines[0].problem.contains("results[2]: no `time`"), "{:?}", imported.bad_lines);
        assert!(imported.rows.iter().all(|row| row.labels.values().all(|label| !label.contains("HOME"))));
    }

    #[test]
    fn torn_and_foreign_json_is_refused_with_its_place() {
        for (text, words) in [
            (&JSON[..JSON.len() / 2], "it ends too early"),
            ("{}", "missing field `config`"),
            ("{\"traceEvents\":[]}", "not JSON of nccl-tests"),
        ] {
            let error = json(text, "out.json").unwrap_err().to_string();
            assert!(error.contains("out.json") && error.contains(words), "{error}");
        }
        let huge = JSON.replace("\"nthreads\":1", "\"nthreads\":4000000000");
        assert!(json(&huge, "out.json").unwrap().bad_lines[0].problem.contains("from 1 to 4096"));
    }

    /// The sample with one change, and the problem of its first bad line.
    fn problem(change: impl Fn(&str) -> String) -> (u64, String) {
        let imported = parse(&change(TWO_HOSTS), "x.txt");
        imported.bad_lines.first().map(|line| (line.number, line.problem.clone())).unwrap_or_default()
    }

    #[test]
    fn unreadable_lines_are_reported_with_their_number() {
        let without = |word: &'static str| {
            move |text: &str| {
                text.lines().filter(|line| !line.contains(word)).map(|line| format!("{line}\n")).collect::<String>()
            }
        };
        let twice = |text: &str| {
            text.replace("# Using devices\n", "# Using devices\n#  Rank  0 Pid 1 on a device  0 [0x01] X\n")
        };
        let line = 24;
        for (found, expected_line, words) in [
            (problem(without("Rank ")), line - 16, "number of ranks is unknown"),
            (problem(without("Rank  7")), line - 1, "ranks are missing"),
            (problem(twice), line + 1, "listed twice"),
            (problem(|text| text.replace(" device  3 ", " devise  3 ")), line - 17, "host and device cannot be read"),
            (
                problem(|text| format!("{}{text}", text.lines().next().unwrap_or_default().to_owned() + "\n")),
                line + 1,
                "copies",
            ),
            (problem(without("algbw")), line - 1, "no heading above it"),
            (problem(|text| text.replace("38.10", "-38.1")), line, "time: found `-38.1`"),
            (problem(|text| text.replace("38.10", "")), line, "has 12 fields, the heading 13"),
            (problem(|text| text.replace("float", "poem")), line, "found element type `poem`"),
            (problem(|text| text.replace("     0    37.60", "     x    37.60")), line, "#wrong: found `x`"),
            (problem(|text| text.replace(" time ", " cputime ")), line - 2, "processor times"),
            (
                problem(|text| text.replace("       65536          1024", "       65536          1000")),
                line,
                "several fit",
            ),
            (problem(|text| text.replace("Group  0 Pid   6900", "Group  1 Pid   6900")), line, "differ in size"),
        ] {
            assert_eq!(found.0, expected_line, "{found:?} instead of {words}");
            assert!(found.1.contains(words), "{} instead of {words}", found.1);
        }
    }

    #[test]
    fn a_collective_name_that_contradicts_the_rows_is_rejected() {
        let text = format!("# Collective test starting: all_reduce_perf\n{TWO_HOSTS}");
        let imported = parse(&text, "x.txt");
        assert!(imported.rows.is_empty());
        assert!(imported.bad_lines[0].problem.contains("do not make up 65536 bytes in all_reduce of 16 ranks"));
    }

    #[test]
    fn a_run_without_its_footer_is_reported_as_cut_off() {
        let cut = &OLD[..OLD.find("# Out of bounds").unwrap() - 20];
        let imported = parse(cut, "x.txt");
        assert_eq!((imported.rows.len(), imported.bad_lines.len()), (8, 1));
        let [fault] = imported.facts.faults.as_slice() else { panic!("{:?}", imported.facts.faults) };
        assert_eq!(fault.kind, RunFaultKind::CutOff);
        assert!(fault.text.contains("its table has no foot, and the file ends within a line"), "{fault:?}");
    }

    #[test]
    fn what_nccl_logs_between_the_lines_of_a_run_is_what_it_carried_data_over() {
        let info = "alpha:2200:2210 [0] NCCL INFO";
        let routes =
            format!("{info} Using network Socket\n{info} Channel 00/0 : 0[0] -> 4[0] [send] via NET/Socket/0\n");
        let imported = parse(&OLD.replacen("# Using devices\n", &format!("# Using devices\n{routes}"), 1), "x.txt");
        assert_eq!(imported.rows, parse(OLD, "x.txt").rows);
        let of = |library_use: &LibraryUse| {
            let origin = {
                let facts = RunsFacts { library_use: library_use.clone(), ..RunsFacts::default() };
                Origin { facts, ..Origin::of(ForeignTool::NcclTests, &[]) }
            };
            let record = Record::from_lines(record_lines("r", &origin, &imported.rows)).unwrap();
            record.meanwhile.library_use.map(|line| (line.uses[0].ranks.clone(), line.phrases()))
        };
        let said = ("0-7".to_owned(), vec!["network Socket; routes NET/Socket".to_owned()]);
        assert_eq!(of(&imported.facts.library_use), Some(said));
        assert_eq!(of(&parse(OLD, "x.txt").facts.library_use), None, "nothing is known without NCCL's log");
    }

    #[test]
    fn every_foot_but_a_whole_and_good_one_is_a_fault_of_the_run() {
        use RunFaultKind::{CutOff, Failed, WrongData};
        let foot = OLD.find("# Out of bounds").unwrap();
        let (table, foot) = (&OLD[..foot], &OLD[foot..]);
        assert_eq!(parse(OLD, "x.txt").facts.faults, []);
        for (changed, expected) in [
            (String::new(), vec![CutOff]),
            ("# Out of bounds values : 0 OK\n".to_owned(), vec![CutOff]),
            ("# Out of bounds values : 0 OK\n# Collective test concluded: all_reduce_perf\n".to_owned(), vec![CutOff]),
            ("# Avg bus bandwidth    : 5.2301 \n".to_owned(), vec![CutOff]),
            (foot.replace("0 OK", "3 FAILED"), vec![WrongData]),
            (foot.replace("0 OK", "3 OK"), vec![WrongData]),
            (foot.replace("0 OK", "0 FAILED"), vec![WrongData]),
            (foot.replace("0 OK", ""), vec![WrongData]),
            (foot.replace("0 OK", "many"), vec![WrongData]),
            (foot.replace("5.2301", "5.2301 FAILED"), vec![Failed]),
            (foot.replace("0 OK", "1 FAILED").replace("5.2301", "5.2301 FAILED"), vec![WrongData, Failed]),
            // The run that follows is whole.
            (OLD.to_owned(), vec![CutOff]),
            (foot.replace("0 OK", "3 FAILED") + OLD, vec![WrongData]),
        ] {
            let found: Vec<RunFaultKind> =
                parse(&format!("{table}{changed}"), "x.txt").facts.faults.iter().map(|fault| fault.kind).collect();
            assert_eq!(found, expected, "{changed}");
        }
        let untimed = parse(&OLD.replacen("iters: 20", "iters: 0", 1), "x.txt").facts.faults;
        assert!(untimed[0].kind == Failed && untimed[0].text.contains("line 2: `iters: 0`"), "{untimed:?}");
        for (from, to, expected) in [
            ("\"okay\":\"true\"", "\"okay\":true", vec![]),
            ("\"count\":0", "\"count\":3", vec![WrongData]),
            ("\"okay\":\"true\"", "\"okay\":\"false\"", vec![WrongData]),
            ("\"out_of_bounds\":{\"count\":0,\"okay\":\"true\"},", "", vec![CutOff]),
            ("\"okay\":\"unchecked\"", "\"okay\":\"false\"", vec![Failed]),
            ("\"okay\":\"unchecked\"", "\"okay\":false", vec![Failed]),
            ("\"errors\":[]", "\"errors\":[\"unhandled cuda error\"]", vec![Failed]),
        ] {
            assert!(JSON.contains(from), "{from}");
            let found = json(&JSON.replace(from, to), "out.json").unwrap().facts.faults;
            assert_eq!(found.iter().map(|fault| fault.kind).collect::<Vec<_>>(), expected, "{to}");
        }
    }

    #[test]
    fn time_algbw_and_busbw_that_contradict_each_other_are_named_in_either_placement_and_every_version() {
        let (old, new) = ("nccl-tests 2.11", "nccl-tests 2.20");
        for (version, text, from, to, words) in [
            (
                old,
                OLD,
                "  2710.0    6.19   10.83",
                "  1897.0    6.19   10.83",
                "time 1897 us and algbw 6.19 GB/s (out of place)",
            ),
            (
                old,
                OLD,
                "  2698.0    6.22   10.88",
                "  1897.0    6.22   10.88",
                "time 1897 us and algbw 6.22 GB/s (in place)",
            ),
            (old, OLD, "  2710.0    6.19   10.83", "  2710.0    8.84   10.83", "algbw 8.84 GB/s (out of place)"),
            (
                old,
                OLD,
                "  2698.0    6.22   10.88",
                "  2698.0    6.22   15.50",
                "time 2698 us and busbw 15.5 GB/s (in place)",
            ),
            (
                old,
                OLD,
                "  2698.0    6.22   10.88",
                "  2698.0    6.22    6.22",
                "16777216 bytes of all_reduce on 8 ranks in that time are 10.88 GB/s",
            ),
            (
                new,
                PER_ITERATION,
                "    6.11    0.67    0.67",
                "    4.11    0.67    0.67",
                "time 4.11 us and algbw 0.67 GB/s (in place)",
            ),
            (new, PER_ITERATION, "    6.02    0.68    0.68", "    6.02    0.68    1.68", "busbw 1.68 GB/s (in place)"),
        ] {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            let imported = parse(&text.replace(from, to), "x.txt");
            let [bad] = imported.bad_lines.as_slice() else { panic!("{version}, {to}: {:?}", imported.bad_lines) };
            assert!(bad.problem.contains(words) && bad.problem.contains("contradict each other"), "{version}: {bad:?}");
        }
        for (from, to, words) in [
            ("\"time\":33.125", "\"time\":23.125", "time 23.125 us and algbw"),
            ("\"bus_bw\":125.203104", "\"bus_bw\":83.468736", "busbw 83.468736 GB/s (in place)"),
        ] {
            let bad = json(&JSON.replace(from, to), "out.json").unwrap().bad_lines;
            assert!(bad[0].problem.contains(words), "{bad:?}");
        }
        // About half the versions truncate the last digit instead of rounding, or print fewer.
        let cut = OLD.replace("  2710.0    6.19   10.83", "    2710     6.1    10.8");
        assert_eq!(parse(&cut, "x.txt").bad_lines, []);
    }

    #[test]
    fn a_run_of_which_only_the_head_is_there_is_reported_as_cut_off() {
        let head = &LOG[..LOG.rfind("Using devices").unwrap()];
        let imported = parse(head, "x.txt");
        assert!(!imported.rows.is_empty());
        assert!(
            imported.facts.faults.iter().any(|fault| fault.text.contains("it has no table")),
            "{:?}",
            imported.facts.faults
        );
    }

    #[test]
    fn a_file_may_name_the_collective() {
        let gather = TWO_HOSTS.replace("sum", "none");
        assert!(parse(&gather, "run7.txt").bad_lines[0].problem.contains("name the file after it"));
        assert!(parse(&gather, "h100-all_gather.txt").rows.iter().all(|row| row.collective == Collective::AllGather));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in corrupt_input::corrupted(&[OLD, TWO_HOSTS, LOG, PER_ITERATION])) {
            corrupt_input::assert_consistent(&parse(&text, "x.txt"));
        }

        #[test]
        fn no_json_panics(text in corrupt_input::corrupted(&[JSON])) {
            if let Ok(imported) = json(&text, "x.json") {
                corrupt_input::assert_consistent(&imported);
            }
        }
    }
}
