//! A dump of the flight recorder as PyTorch writes it (torch/csrc/jit/serialization/pickler.cpp): each text once, and what is used more than
//! once remembered behind its last item.

use std::collections::HashMap;
use std::path::Path;

/// Frames of a call's stack, of which all calls share some.
const FRAMES_OF_A_CALL: u64 = 12;
const DIFFERENT_FRAMES: u64 = 40;

/// Writes a dump of so many calls of a group of ranks.
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
