//! The kernels against the host reference, on the CPU.

use crate::doubles_in_use::api::{Cuda, Kernels};
use commgauge::collective::ReduceOp;
use commgauge::element::ElementType;
use commgauge::pattern::{Pattern, Source};

/// Elements of a tested buffer: no multiple of the threads.
const ELEMENTS: usize = 1003;
const SEED: u64 = 0x1234_5678_9abc_def1;

/// A buffer of device memory with the data of a source, filled by the kernels.
pub struct Filled<'a> {
    pub cuda: &'a Cuda,
    pub kernels: &'a Kernels<'a>,
    pub element: ElementType,
    pub seed: u64,
}

impl Filled<'_> {
    /// Writes the data of a source, or their complement, from an address on.
    pub fn fill(&self, pattern: &Pattern, source: Source, address: usize, elements: u64, complement: bool) {
        let complement = if complement { u64::MAX } else { 0 };
        self.run(pattern, source, "fill", address, elements, complement);
    }

    /// How many elements are wrong, and which is the first.
    pub fn verify(&self, pattern: &Pattern, source: Source, address: usize, elements: u64) -> (u64, u64) {
        let found = self.cuda.allocate(16);
        self.cuda.upload(found, &[[0; 8], [0xff; 8]].concat());
        self.run(pattern, source, "verify", address, elements, found as u64);
        self.cuda.synchronize();
        let bytes = self.cuda.download(found, 16);
        self.cuda.free(found);
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        (number(0), number(8))
    }

    fn run(&self, pattern: &Pattern, source: Source, what: &str, address: usize, elements: u64, last: u64) {
        let bytes = self.element.size();
        let address = address as u64;
        let Some(column) = pattern.column(source) else {
            let Source::Moved { rank, first } = source else { panic!("{source:?} has no column") };
            let parameters = [address, elements, self.seed, rank.into(), first, last];
            return self.kernels.launch_on_one_copy(&format!("{what}_moved_{bytes}"), 4, 32, &parameters);
        };
        let (Source::Contribution { first, .. } | Source::Reduced { first } | Source::Moved { first, .. }) = source;
        let flat: Vec<u8> = column.iter().flat_map(|bits| bits.to_le_bytes()).collect();
        let there = self.cuda.allocate(flat.len());
        self.cuda.upload(there, &flat);
        let parameters = [address, elements, self.seed, there as u64, column.len() as u64, first, last];
        self.kernels.launch_on_one_copy(&format!("{what}_column_{bytes}"), 4, 32, &parameters);
        self.cuda.free(there);
    }
}

/// Every type and every source of data, with their pattern.
fn cases() -> Vec<(ElementType, Pattern, Source)> {
    let mut cases = Vec::new();
    for element in ElementType::ALL {
        for first in [0, 77, u64::from(u32::MAX) + 5] {
            let pattern = Pattern::new(element, None, 4, SEED);
            cases.push((element, pattern, Source::Moved { rank: 3, first }));
        }
        for op in ReduceOp::ALL {
            for ranks in [1, 2, 3, 300] {
                let pattern = Pattern::new(element, Some(op), ranks, SEED);
                cases.push((element, pattern.clone(), Source::Contribution { group_rank: ranks - 1, first: 5 }));
                cases.push((element, pattern, Source::Reduced { first: 1 << 40 }));
            }
        }
    }
    cases
}

/// Fills, poisons and verifies on both sides and compares bit for bit.
pub fn agree_with_the_host() {
    let cuda = Cuda::start(0);
    let kernels = Kernels::load(&cuda);
    let cases = cases();
    assert!(cases.len() > 500);
    for (element, pattern, source) in cases {
        let bytes = ELEMENTS * element.size() as usize;
        let filled = Filled { cuda: &cuda, kernels: &kernels, element, seed: SEED };
        let buffer = cuda.allocate(bytes);
        let mut expected = vec![0; bytes];
        for poison in [true, false] {
            filled.fill(&pattern, source, buffer, ELEMENTS as u64, poison);
            cuda.synchronize();
            if poison {
                pattern.poison(source, &mut expected)
            } else {
                pattern.write(source, &mut expected)
            }
            assert_eq!(cuda.download(buffer, bytes), expected, "{element} {source:?}");
            let wrong = if poison { (ELEMENTS as u64, 0) } else { (0, u64::MAX) };
            assert_eq!(filled.verify(&pattern, source, buffer, ELEMENTS as u64), wrong, "{element} {source:?}");
        }
        for (bit, element_index) in [(0, 1002), (6, 500), (3, 17)] {
            expected[element_index * element.size() as usize] ^= 1 << bit;
        }
        cuda.upload(buffer, &expected);
        assert_eq!(filled.verify(&pattern, source, buffer, ELEMENTS as u64), (3, 17), "{element} {source:?}");
        cuda.free(buffer);
    }
}

/// The kernels that pass time, and the one that walks over memory.
pub fn pass_time() {
    let cuda = Cuda::start(0);
    let kernels = Kernels::load(&cuda);
    let words = cuda.allocate(4096);
    cuda.upload(words, &[0; 4096]);
    let word = |at: usize| {
        cuda.synchronize();
        u64::from_le_bytes(cuda.download(words + 8 * at, 8).try_into().expect("8 bytes"))
    };
    kernels.launch("flush_cache", 2, 32, &[words as u64, 500]);
    assert_eq!([word(0), word(499), word(500)], [1, 1, 0]);

    let start = cuda.mark();
    // Three turns of a millisecond each: of 12 blocks, 4 run side by side.
    kernels.launch("occupy", 12, 8, &[1_000_000, 4 * 8, 0, 0, 0, 0, 0, 0]);
    let end = cuda.mark();
    cuda.synchronize();
    assert!(cuda.milliseconds(start, end) >= 3.0);
    // It reads what it is given: the first quads and, further on, all of them. What is not a number gets into the sum, and is told.
    let (data, quads, near) = (cuda.allocate(64 * 16), 64, 7);
    for (wrong, expected) in [(0, true), (6, true), (40, true), (64, false)] {
        let floats: Vec<u8> = (0..4 * quads)
            .flat_map(|number: u64| (if number / 4 == wrong { f32::NAN } else { 1.0 }).to_le_bytes())
            .collect();
        cuda.upload(data, &floats);
        cuda.upload(words, &[0; 16]);
        kernels.launch("occupy", 1, 8, &[100_000_000, 8, 0, 0, data as u64, quads, near, words as u64]);
        assert_eq!(word(0) != 0, expected, "quad {wrong}");
    }

    kernels.launch("read_clock", 1, 1, &[words as u64]);
    let now = word(0);
    // Far enough ahead that a busy machine is in time.
    for (until, late) in [(now + 500_000_000, 0), (now, 1)] {
        cuda.upload(words + 8, &[0; 8]);
        kernels.launch("hold_until", 1, 1, &[until, words as u64 + 8]);
        assert_eq!(word(1), late);
        kernels.launch("read_clock", 1, 1, &[words as u64]);
        assert!(word(0) >= until);
    }

    let mut flag = 0usize;
    crate::doubles_in_use::api::good!(cuda.library, "cuMemHostAlloc", &mut flag => *mut usize, 4 => usize, 0 => u32);
    // SAFETY: the driver gave 4 bytes there; the kernel reads them as volatile.
    let write = |value: u32| unsafe { (flag as *mut u32).write_volatile(value) };
    for (value, most, late) in [(7, 60_000_000_000, 0), (8, 1_000_000, 1)] {
        write(0);
        cuda.upload(words + 8, &[0; 8]);
        kernels.launch("hold_for_flag", 1, 1, &[flag as u64, value, most, words as u64 + 8]);
        write(7);
        assert_eq!(word(1), late);
    }
}
