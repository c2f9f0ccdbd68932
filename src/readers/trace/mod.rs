//! The calls of a real job: traces from PyTorch's profiler, its flight recorder, NCCL's log and others, as calls of known size on known
//! groups; their comparison with the list of a step; and the late ranks.
//!
//! Start with `read`; each format has its own file in `format`. `call` also finds the ranks of processes that only give their
//! communicators. Here calls are counted and late ranks found, `compare` compares the counts with a list of `commgauge ops`, `replay`
//! orders the work of the ranks.

mod call;
mod compare;
mod format;
mod read;
mod replay;

pub use call::{CallDetail, CallKind, ComputingSpan, TracedCall, TracedGroup};
pub use compare::{Compared, Difference, ExpectedOp, ExpectedStep, GroupPlace, OneSide, TracedPlaces, compare};
pub use format::TraceFormat;
pub use read::{Trace, read_traces};
pub use replay::traced_replay;

use commgauge_base::element::ElementType;
use commgauge_base::stats::{median, percentile, sorted};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::writing::ranges;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

// The calls of a trace by place, call, type and size: number per step, and duration.

/// What identifies a call of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct CallKey {
    pub place: GroupPlace,
    pub kind: CallKind,
    pub element: Option<ElementType>,
    pub bytes_total: Bytes,
}

/// A call of a step, with all its times.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct CountedCall {
    /// The axis of the layout whose groups these are, or their shape.
    #[schemars(with = "String")]
    pub place: GroupPlace,
    /// The call: a collective, `send` or `receive`.
    #[serde(rename = "call")]
    #[schemars(with = "String")]
    pub kind: CallKind,
    /// Type of the elements; absent for a barrier, and if the trace lacks it.
    #[serde(rename = "element_type")]
    pub element: Option<ElementType>,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Ranks of a group, if known.
    pub group_size: Option<u32>,
    /// Groups with this call.
    pub groups: u64,
    /// Ranks with this call.
    pub ranks: u64,
    /// Calls per step of the rank with the most.
    pub calls_per_step: f64,
    /// Median time, if the trace has times; includes the wait for late ranks.
    pub seconds_median: Option<Seconds>,
    /// 95th percentile.
    pub seconds_p95: Option<Seconds>,
}

#[derive(Default)]
struct Counts {
    per_rank: BTreeMap<u32, u64>,
    groups: BTreeSet<usize>,
    group_size: Option<u32>,
    seconds: Vec<f64>,
}

/// Counts the calls of a trace of this many steps, ordered by place, call, type and size.
pub fn counted_calls(trace: &Trace, places: &TracedPlaces, steps: u64) -> Vec<CountedCall> {
    let mut all: BTreeMap<CallKey, Counts> = BTreeMap::new();
    for call in &trace.calls {
        let (kind, element, bytes_total) = (places.kind_of(call), call.element, call.bytes_total);
        let key = CallKey { place: places.of(call.group).clone(), kind, element, bytes_total };
        let counts = all.entry(key).or_default();
        *counts.per_rank.entry(call.rank).or_default() += 1;
        counts.groups.insert(call.group);
        counts.group_size = counts.group_size.or(trace.group_size(call.group));
        counts.seconds.extend(call.duration.map(|seconds| seconds.0));
    }
    all.into_iter().map(|(key, counts)| counted(key, counts, steps)).collect()
}

fn counted(key: CallKey, counts: Counts, steps: u64) -> CountedCall {
    let seconds = sorted(counts.seconds);
    let most = counts.per_rank.values().copied().max().unwrap_or(0);
    CountedCall {
        place: key.place,
        kind: key.kind,
        element: key.element,
        bytes_total: key.bytes_total,
        group_size: counts.group_size,
        groups: counts.groups.len() as u64,
        ranks: counts.per_rank.len() as u64,
        calls_per_step: most as f64 / steps as f64,
        seconds_median: median(&seconds).map(Seconds),
        seconds_p95: percentile(&seconds, 95.0).map(Seconds),
    }
}

impl Trace {
    /// Ranks of a group, if known.
    pub fn group_size(&self, group: usize) -> Option<u32> {
        let group = &self.groups[group];
        group.ranks.as_ref().map(|ranks| ranks.len() as u32).or(group.size)
    }
}

// Finds late ranks in the calls of a trace.
//
// Clocks of hosts differ, so start times on different ranks cannot be compared. Durations can: a call ends on all ranks together and starts
// on each when it enters, so the rank with the shortest duration came last, and the longest is the wait.

/// Fewer calls say nothing about late ranks.
const FEWEST_CALLS: u64 = 10;

/// A rank is named if it came last in at least this share of calls; in a group of two chance gives half.
const LATE_SHARE: f64 = 0.7;

/// A call whose longest wait is below this share of its time has no late rank.
const WAIT_SHARE: f64 = 0.1;

/// A rank that came last into most calls of a group.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LateRank {
    /// The rank.
    pub rank: u32,
    /// The axis of the layout whose group this is, or its shape.
    #[schemars(with = "String")]
    pub place: GroupPlace,
    /// Ranks of the group.
    #[serde(rename = "group_ranks", serialize_with = "as_ranges")]
    #[schemars(with = "String")]
    pub group: Vec<u32>,
    /// Number of calls considered.
    pub calls: u64,
    /// Number of these in which it came last and others waited.
    pub late: u64,
    /// Median wait of the first rank in these.
    pub waited_seconds_median: Seconds,
}

fn as_ranges<S: Serializer>(ranks: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&ranges(ranks))
}

type CallsOfRank = BTreeMap<u32, Vec<f64>>;

/// The late ranks of all groups whose ranks are all in the trace, those with the longest waits first.
pub fn late_ranks(trace: &Trace, places: &TracedPlaces) -> Vec<LateRank> {
    let mut all: BTreeMap<usize, BTreeMap<(CallKind, Bytes), CallsOfRank>> = BTreeMap::new();
    for call in trace.calls.iter().filter(|call| matches!(call.kind, CallKind::Collective(_))) {
        let Some(duration) = call.duration else { continue };
        let calls = all.entry(call.group).or_default().entry((call.kind, call.bytes_total)).or_default();
        calls.entry(call.rank).or_default().push(duration.0);
    }
    let of_group = |(group, calls): (usize, BTreeMap<(CallKind, Bytes), CallsOfRank>)| {
        let ranks = trace.groups[group].ranks.as_ref().filter(|ranks| ranks.len() > 1)?;
        late_rank(ranks, places.of(group), calls.values())
    };
    let mut late: Vec<LateRank> = all.into_iter().filter_map(of_group).collect();
    let lost = |of: &LateRank| of.waited_seconds_median.0 * of.late as f64;
    late.sort_by(|one, other| lost(other).total_cmp(&lost(one)));
    late
}

fn late_rank<'a>(ranks: &[u32], place: &GroupPlace, calls: impl Iterator<Item = &'a CallsOfRank>) -> Option<LateRank> {
    let (mut looked_at, mut waits): (u64, BTreeMap<u32, Vec<f64>>) = (0, BTreeMap::new());
    // A trace that begins or ends within a call has it on some ranks only, and the calls cannot be matched.
    for calls in calls.filter(|calls| ranks.iter().all(|rank| calls.contains_key(rank)) && are_equally_many(calls)) {
        let count = calls.values().next().map_or(0, Vec::len);
        for at in 0..count {
            looked_at += 1;
            let durations = calls.iter().map(|(rank, durations)| (durations[at], *rank));
            let (shortest, rank) = durations.clone().min_by(|one, other| one.0.total_cmp(&other.0))?;
            let longest = durations.map(|(duration, _)| duration).fold(0.0, f64::max);
            if longest - shortest > WAIT_SHARE * longest {
                waits.entry(rank).or_default().push(longest - shortest);
            }
        }
    }
    let (rank, waits) = waits.into_iter().max_by_key(|(_, waits)| waits.len())?;
    let late = waits.len() as u64;
    if looked_at < FEWEST_CALLS || (late as f64) < LATE_SHARE * looked_at as f64 {
        return None;
    }
    let waited_seconds_median = Seconds(median(&sorted(waits))?);
    Some(LateRank { rank, place: place.clone(), group: ranks.to_vec(), calls: looked_at, late, waited_seconds_median })
}

fn are_equally_many(calls: &CallsOfRank) -> bool {
    let mut counts = calls.values().map(Vec::len);
    let first = counts.next();
    counts.all(|count| Some(count) == first)
}

#[cfg(test)]
mod figures_tests {
    // Cost of reading a trace of a million events, as from a large job: processor time, and peak memory of the process.
    use super::pickled_dump;
    use super::{TracedPlaces, counted_calls, read_traces};
    use std::fmt::Write as _;
    use std::io::{BufWriter, Write};
    use std::path::{Path, PathBuf};

    const EVENTS: u64 = 1_000_000;
    /// Number of ranks, each with its own dump.
    const PICKLES: u64 = 50;
    const MOST_SECONDS: f64 = 5.0;
    const MOST_BYTES: u64 = 500_000_000;
    /// Unit of `utime` and `stime` in `/proc/self/stat`; Linux has no other.
    const TICKS_PER_SECOND: f64 = 100.0;

    /// Processor seconds of this process.
    fn processor_seconds() -> f64 {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_ascii_whitespace().collect();
        let ticks = |field: usize| fields[field].parse::<f64>().unwrap();
        (ticks(11) + ticks(12)) / TICKS_PER_SECOND
    }

    fn most_bytes() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    }

    /// The profiler's fields of the call with a number.
    fn call(number: u64) -> String {
        let (name, received) = match number % 3 {
            0 => ("_allgather_base", 8),
            _ => ("allreduce", 1),
        };
        let elements = 1 << (12 + number % 12);
        format!(
            "\"External id\": {number}, \"Collective name\": \"{name}\", \"In msg nelems\": {elements}, \"Out msg nelems\": {}, \"Group size\": 8, \
         \"dtype\": \"BFloat16\", \"In split size\": \"[]\", \"Process Group Name\": \"{}\", \"Process Group Ranks\": \"[0, 1, 2, 3, 4, 5, 6, 7]\", \
         \"Seq\": {number}",
            elements * received,
            number % 4
        )
    }

    /// A profile in which every `period`-th operation is a call.
    fn profile(path: &Path, period: u64) {
        let mut file = BufWriter::new(std::fs::File::create(path).unwrap());
        writeln!(file, "{{\"schemaVersion\": 1, \"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": 0, \"world_size\": 8}}, \"traceEvents\": [")
        .unwrap();
        let (mut events, mut number) = (0, 0);
        while events < EVENTS {
            number += 1;
            let mut text = String::new();
            let mut event = |head: &str, arguments: &str| {
                let comma = if events == 0 { "" } else { ",\n" };
                let time = 7 * number;
                writeln!(text, "{comma}{{\"ph\": \"X\", {head}, \"pid\": 1, \"tid\": 1, \"ts\": {time}.25, \"dur\": 5.5, \"args\": {{{arguments}}}}}")
                .unwrap();
                events += 1;
            };
            if number % period == 0 {
                let described = call(number);
                event(
                    "\"cat\": \"cpu_op\", \"name\": \"record_param_comms\"",
                    &format!("{described}, \"Input Dims\": [[4096], [], []]"),
                );
                let kernel = "\"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)\"";
                event(kernel, &format!("{described}, \"device\": 0, \"stream\": 24, \"grid\": [24, 1, 1]"));
            } else {
                let shapes = "\"Input Dims\": [[8192, 4096], [4096, 4096], []], \"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\", \"Scalar\"]";
                event("\"cat\": \"cpu_op\", \"name\": \"aten::mm\"", &format!("\"External id\": {number}, {shapes}"));
                let occupied = "\"registers per thread\": 168, \"blocks per SM\": 7.75, \"grid\": [16, 64, 1], \"block\": [384, 1, 1]";
                event("\"cat\": \"kernel\", \"name\": \"sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n\"", occupied);
            }
            file.write_all(text.as_bytes()).unwrap();
        }
        write!(file, "]}}").unwrap();
    }

    /// A dump of the flight recorder with a million calls.
    fn dump(path: &Path) {
        let mut file = BufWriter::new(std::fs::File::create(path).unwrap());
        write!(file, "{{\"entries\": [").unwrap();
        for number in 0..EVENTS {
            let comma = if number == 0 { "" } else { ",\n" };
            write!(
            file,
            "{comma}{{\"frames\": [{{\"name\": \"all_reduce\", \"filename\": \"/usr/lib/python3/torch/distributed/distributed_c10d.py\", \
             \"line\": 3800}}], \"record_id\": {number}, \"pg_id\": 1, \"process_group\": [\"{}\", \"mesh_tp\"], \"collective_seq_id\": {number}, \
             \"profiling_name\": \"nccl:all_reduce\", \"time_created_ns\": {}, \"duration_ms\": 0.25, \"input_sizes\": [[{}, 64]], \"input_dtypes\": \
             [\"BFloat16\"], \"output_sizes\": [[64]], \"output_dtypes\": [\"BFloat16\"], \"state\": \"completed\", \"is_p2p\": false}}",
            number % 4,
            1_743_521_598_000_000_000 + 100_000 * number,
            1 << (number % 12),
        )
        .unwrap();
        }
        write!(file, "], \"pg_config\": {{\"0\": {{\"name\": \"0\", \"desc\": \"tp\", \"ranks\": \"[0, 1]\"}}}}}}")
            .unwrap();
    }

    #[test]
    #[ignore = "a minute: cargo test --release -p commgauge-readers --lib -- --ignored million_events --nocapture"]
    #[expect(clippy::print_stderr, reason = "the harness catches it")]
    fn a_trace_of_a_million_events_reads_in_five_seconds_and_half_a_gigabyte() {
        let folder = tempfile::tempdir().unwrap();
        let usual = folder.path().join("usual-rank0.json");
        let calls_alone = folder.path().join("calls-rank0.json");
        let recorder = folder.path().join("recorder-rank0.json");
        profile(&usual, 20);
        profile(&calls_alone, 1);
        dump(&recorder);
        // Dumps of a hanging job of fifty ranks.
        let pickles: Vec<PathBuf> =
            (0..PICKLES).map(|rank| folder.path().join(format!("fr_trace_rank_{rank}"))).collect();
        pickles.iter().for_each(|path| pickled_dump::write(path, PICKLES, EVENTS / PICKLES));
        for (paths, calls) in
            [(vec![usual], EVENTS / 40), (vec![calls_alone], EVENTS / 2), (vec![recorder], EVENTS), (pickles, EVENTS)]
        {
            let (before, path) = (processor_seconds(), &paths[0]);
            let trace = read_traces(&paths).unwrap();
            let counted = counted_calls(&trace, &TracedPlaces::new(&trace, None), 1);
            let (seconds, bytes) = (processor_seconds() - before, most_bytes());
            eprintln!("{}: {} calls, {seconds:.2} s, {} MB", path.display(), trace.calls.len(), bytes / 1_000_000);
            assert!(trace.calls.len() as u64 >= calls && !counted.is_empty(), "{}", trace.calls.len());
            assert!(seconds <= MOST_SECONDS, "{}: {seconds:.2} s", path.display());
            assert!(bytes <= MOST_BYTES, "{}: {} MB", path.display(), bytes / 1_000_000);
        }
    }
}

#[cfg(test)]
mod pickled_dump {
    // A dump of the flight recorder as PyTorch writes it (torch/csrc/jit/serialization/pickler.cpp): each text once, and shared values
    // memoized after their last item.
    use std::collections::HashMap;
    use std::path::Path;

    /// Frames of a call's stack, some of which all calls share.
    const FRAMES_OF_A_CALL: u64 = 12;
    const DIFFERENT_FRAMES: u64 = 40;

    /// Writes a dump of this many calls of a group of ranks.
    pub(super) fn write(path: &Path, ranks: u64, calls: u64) {
        let group = format!("{:?}", (0..ranks).collect::<Vec<_>>());
        let mut pickler = Pickler::default();
        pickler.out.extend(b"\x80\x02}(");
        pickler.text("pg_config");
        pickler.out.extend(b"}(");
        pickler.text("0");
        pickler.out.extend(b"}(");
        for (key, value) in [("name", "0"), ("desc", "tp"), ("ranks", group.as_str())] {
            pickler.text(key);
            pickler.text(value);
        }
        pickler.out.extend(b"uu");
        pickler.text("entries");
        pickler.out.extend(b"](");
        for number in 0..calls {
            pickler.entry(number);
        }
        pickler.out.extend(b"eu.");
        std::fs::write(path, pickler.out).unwrap();
    }

    #[derive(Default)]
    struct Pickler {
        out: Vec<u8>,
        texts: HashMap<String, u32>,
        frames: HashMap<u64, u32>,
        remembered: u32,
    }

    impl Pickler {
        fn entry(&mut self, number: u64) {
            self.out.extend(b"}(");
            self.text("frames");
            self.out.extend(b"](");
            (0..FRAMES_OF_A_CALL).for_each(|frame| self.frame((number + frame) % DIFFERENT_FRAMES));
            self.out.push(b'e');
            self.text("process_group");
            self.text("0");
            self.text("mesh_tp");
            self.out.push(0x86);
            for (key, value) in [("profiling_name", "nccl:all_reduce"), ("state", "completed")] {
                self.text(key);
                self.text(value);
            }
            let time = 1_743_521_598_000_000_000 + 100_000 * number;
            for (key, value) in
                [("record_id", number), ("pg_id", 1), ("collective_seq_id", number), ("time_created_ns", time)]
            {
                self.text(key);
                self.number(value);
            }
            self.text("duration_ms");
            self.out.push(b'G');
            self.out.extend(0.25_f64.to_be_bytes());
            for (sizes, dtypes) in [("input_sizes", "input_dtypes"), ("output_sizes", "output_dtypes")] {
                self.text(sizes);
                self.out.extend(b"](](");
                self.number(1 << (number % 12));
                self.number(64);
                self.out.extend(b"ee");
                self.text(dtypes);
                self.out.extend(b"](");
                self.text("BFloat16");
                self.out.push(b'e');
            }
            self.text("is_p2p");
            self.out.extend(b"\x89u");
        }

        fn frame(&mut self, number: u64) {
            if let Some(known) = self.frames.get(&number) {
                return self.recall(*known);
            }
            self.out.extend(b"}(");
            for (key, value) in
                [("name", "all_reduce"), ("filename", "/usr/lib/python3/torch/distributed/distributed_c10d.py")]
            {
                self.text(key);
                self.text(value);
            }
            self.text("line");
            self.number(3800 + number);
            self.out.push(b'u');
            let known = self.remember();
            self.frames.insert(number, known);
        }

        fn text(&mut self, text: &str) {
            if let Some(known) = self.texts.get(text) {
                return self.recall(*known);
            }
            self.out.push(b'X');
            self.out.extend((text.len() as u32).to_le_bytes());
            self.out.extend(text.as_bytes());
            let known = self.remember();
            self.texts.insert(text.to_owned(), known);
        }

        fn number(&mut self, number: u64) {
            match (u8::try_from(number), i32::try_from(number)) {
                (Ok(small), _) => self.out.extend([b'K', small]),
                (_, Ok(number)) => {
                    self.out.push(b'J');
                    self.out.extend(number.to_le_bytes());
                }
                _ => {
                    self.out.extend([0x8a, 8]);
                    self.out.extend(number.to_le_bytes());
                }
            }
        }

        fn remember(&mut self) -> u32 {
            let at = self.remembered;
            self.remembered += 1;
            match u8::try_from(at) {
                Ok(at) => self.out.extend([b'q', at]),
                Err(_) => {
                    self.out.push(b'r');
                    self.out.extend(at.to_le_bytes());
                }
            }
            at
        }

        fn recall(&mut self, at: u32) {
            match u8::try_from(at) {
                Ok(at) => self.out.extend([b'h', at]),
                Err(_) => {
                    self.out.push(b'j');
                    self.out.extend(at.to_le_bytes());
                }
            }
        }
    }
}
