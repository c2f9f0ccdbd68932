//! Computing beside calls: a stream of the least priority, whose kernel keeps every multiprocessor busy for a time, and the memory that it
//! reads meanwhile, as a matrix product does.

use super::driver::{self, CUstream};
use super::kernels::{Bits, Content, Kernels, Pressure, Stretch};
use super::memory::Arena;
use commgauge_base::error::Result;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// The memory read is this multiple of the cache, and the part that the cache is to keep this fraction of it.
const CACHES_READ: u64 = 2;
const NEAR_DIVISOR: u64 = 2;
const LEAST_BYTES: u64 = 1 << 20;
/// Numbers that look random, as power depends on them, and their seed.
const NUMBERS: usize = 4096;
const SEED: u64 = 29;
const QUAD_BYTES: u64 = 16;

/// What computing needs, for as long as the backend lives.
pub(super) struct Computing {
    pub stream: CUstream,
    /// Not read, but freed no earlier than the stream is done.
    _memory: [Arena; 3],
    pressure: Pressure,
}

impl Computing {
    /// Makes the stream, fills the memory, and launches the kernel once: its code comes to the device with the first launch, which waits
    /// for all that runs there (CUDA programming guide, "Lazy Loading"), and beside calls ranks would wait for one another.
    ///
    /// # Errors
    /// Those of the driver, as where memory is missing.
    pub fn new(kernels: &Kernels, cache_bytes: u64) -> Result<Computing> {
        let stream = driver::create_computing_stream()?;
        let mut memory: [Arena; 3] = Default::default();
        let bytes = bytes_read(cache_bytes);
        for (arena, bytes) in memory.iter_mut().zip([bytes, 8 * NUMBERS as u64, 16]) {
            arena.reserve(bytes)?;
        }
        let [data, column, begins] = [0, 1, 2].map(|index: usize| memory[index].address());
        let numbers: Vec<u8> = numbers().into_iter().flat_map(u64::to_le_bytes).collect();
        let stretch = Stretch { address: data, elements: bytes / 4, element_bytes: 4 };
        let content = Content::Column { address: column, length: NUMBERS as u32, first: 0 };
        // SAFETY: room was reserved for all of it.
        unsafe {
            driver::copy_to_device(column, &numbers, stream)?;
            driver::copy_to_device(begins, &[0; 16], stream)?;
            kernels.fill(stretch, SEED, content, Bits::AsTheyAre, stream)?;
        }
        let near = (cache_bytes / NEAR_DIVISOR).clamp(QUAD_BYTES, bytes) / QUAD_BYTES;
        let pressure = Pressure { begins, which: 0, data, quads: bytes / QUAD_BYTES, near };
        let mut computing = Computing { stream, _memory: memory, pressure };
        computing.occupy(0, kernels)?;
        driver::synchronize(stream)?;
        Ok(computing)
    }

    /// Bytes on the device.
    pub fn bytes(cache_bytes: u64) -> u64 {
        bytes_read(cache_bytes) + 8 * NUMBERS as u64 + 16
    }

    /// Occupies every multiprocessor for a time, as computing does; if other kernels use some of them, the rest take longer.
    pub fn occupy(&mut self, nanoseconds: u64, kernels: &Kernels) -> Result<()> {
        // SAFETY: the memory is this value's, filled, and no other stream uses it.
        unsafe { kernels.occupy(nanoseconds, &mut self.pressure, self.stream) }
    }
}

fn bytes_read(cache_bytes: u64) -> u64 {
    (CACHES_READ * cache_bytes).max(LEAST_BYTES).next_multiple_of(QUAD_BYTES)
}

/// Floats between -1 and 1, as the low halves of words.
fn numbers() -> Vec<u64> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(SEED);
    (0..NUMBERS).map(|_| u64::from(random.random_range(-1.0f32..1.0).to_bits())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_finite_and_looks_random() {
        let numbers: Vec<f32> = numbers().into_iter().map(|bits| f32::from_bits(bits as u32)).collect();
        assert!(numbers.iter().all(|number| number.abs() <= 1.0));
        let distinct: std::collections::HashSet<u32> = numbers.iter().map(|number| number.to_bits()).collect();
        assert!(distinct.len() > NUMBERS * 9 / 10);
    }
}
