//! The calls of a real job: traces from PyTorch's profiler, its flight recorder, NCCL's log and others, as calls of known size on known
//! groups; their comparison with the list of a step; and the late ranks.
//!
//! Start with `read`; each format has its own file in `format`. `call` also finds the ranks of processes that only give their
//! communicators. `summary` counts calls and finds late ranks, `compare` compares the counts with a list of `commgauge ops`, `replay`
//! orders the work of the ranks.

mod call;
mod compare;
mod format;
mod read;
mod replay;
mod summary;

pub use call::{CallDetail, CallKind, ComputingSpan, TraceFormat, TracedCall, TracedGroup};
pub use compare::{Compared, Difference, ExpectedOp, ExpectedStep, GroupPlace, OneSide, TracedPlaces, compare};
pub use read::{Trace, read_traces};
pub use replay::traced_replay;
pub use summary::{CountedCall, LateRank, counted_calls, late_ranks};

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
