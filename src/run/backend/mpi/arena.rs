//! Page-aligned buffers, already touched, that grow and are reused between cases, and the rotation through copies of
//! them.

use commgauge_base::error::{Error, Result};

const PAGE: usize = 4096;
const CACHE_LINE: u64 = 64;

/// A stretch of page-aligned memory, every page of which was written.
#[derive(Debug, Default)]
pub struct Arena {
    storage: Vec<u8>,
    start: usize,
}

impl Arena {
    /// At least `bytes` bytes. Their content is left over from earlier use, or zero.
    ///
    /// # Errors
    /// If the system has not enough memory.
    pub fn reserve(&mut self, bytes: usize) -> Result<()> {
        // Never empty: the address that Rust gives an empty vector of bytes is 1, and to Open MPI that is
        // `MPI_IN_PLACE`.
        let bytes = bytes.max(1);
        if self.bytes().len() >= bytes {
            return Ok(());
        }
        self.storage = Vec::new();
        let with_alignment = bytes + PAGE;
        let refused = |_| Error::environment(format!("cannot reserve {with_alignment} bytes for buffers on this host"));
        self.storage.try_reserve_exact(with_alignment).map_err(refused)?;
        // Written with something else than zero: pages of zeroes may be shared by the system and read too fast.
        self.storage.resize(with_alignment, 0x5a);
        self.start = self.storage.as_ptr().align_offset(PAGE);
        Ok(())
    }

    /// The memory.
    pub fn bytes(&self) -> &[u8] {
        &self.storage[self.start.min(self.storage.len())..]
    }

    /// Address of the memory, for calls into C; valid until the arena grows.
    #[inline(always)]
    pub fn address(&self) -> *const u8 {
        self.storage.as_ptr().wrapping_add(self.start)
    }

    /// Address of the memory, for calls into C that write; valid until the arena grows.
    #[inline(always)]
    pub fn address_mut(&mut self) -> *mut u8 {
        self.storage.as_mut_ptr().wrapping_add(self.start)
    }

    /// The memory, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let start = self.start.min(self.storage.len());
        &mut self.storage[start..]
    }
}

/// Which copy of the buffers each call uses. Laid out as in C, so that a loop in C can turn it on in our place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Rotation {
    /// Number of copies.
    pub copies: u64,
    /// Bytes from one copy to the next.
    pub stride_bytes: u64,
    /// Step from one copy to the next: coprime to `copies` and about 0.618 of them, so that no prefetcher can follow.
    step: u64,
    current: u64,
}

impl Rotation {
    /// Copies of `buffer_bytes` bytes that together fill at least `cold_bytes`, or a single one.
    ///
    /// The distance between copies is a whole number of cache lines, or of pages if a copy has at least a page, so
    /// that neighbours share no line.
    pub fn new(buffer_bytes: u64, cold_bytes: u64) -> Rotation {
        let grain = if buffer_bytes >= PAGE as u64 { PAGE as u64 } else { CACHE_LINE };
        let stride_bytes = buffer_bytes.max(1).next_multiple_of(grain);
        let copies = cold_bytes.div_ceil(stride_bytes).max(1);
        let golden = (copies as f64 * 0.618_033_988_75) as u64;
        let step = (golden.max(1)..=copies).find(|step| greatest_common_divisor(*step, copies) == 1).unwrap_or(1);
        Rotation { copies, stride_bytes, step, current: 0 }
    }

    /// Copies of `buffer_bytes` bytes, one after another, of which as many as fit into `within_bytes` are used in turn, or one; not more
    /// than some thousand, which no case goes through.
    pub fn within(buffer_bytes: u64, within_bytes: u64) -> Rotation {
        let Rotation { stride_bytes, .. } = Rotation::new(buffer_bytes, 0);
        let copies = (within_bytes / buffer_bytes.max(1)).clamp(1, MOST_COPIES_WITHIN);
        Rotation { copies, stride_bytes, step: 1 % copies, current: 0 }
    }

    /// Bytes of all copies together.
    pub fn bytes(&self) -> u64 {
        self.copies * self.stride_bytes
    }

    /// The copy that the next call will use.
    pub fn upcoming(&self) -> u64 {
        let next = self.current + self.step;
        if next >= self.copies { next - self.copies } else { next }
    }

    /// The copies that consecutive calls use, beginning with `first`, in order.
    pub fn copies_from(&self, first: u64, calls: u64) -> impl Iterator<Item = u64> + use<> {
        let Rotation { copies, step, .. } = *self;
        (0..calls).scan(first, move |next, _| {
            let copy = *next;
            *next = (copy + step) % copies;
            Some(copy)
        })
    }

    /// The step from the copy of a call to that of the next, modulo all copies.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// The copy that the last call used.
    pub fn last_used(&self) -> u64 {
        self.current
    }

    /// Moves on and returns the offset in bytes of the copy to use now.
    #[inline(always)]
    pub fn advance(&mut self) -> usize {
        self.current = self.upcoming();
        (self.current * self.stride_bytes) as usize
    }
}

const MOST_COPIES_WITHIN: u64 = 4096;

/// The calls through a rotation since it was last checked: whose results are there to be compared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Turns {
    before: u64,
    since: u64,
    /// The copy of the first call since then.
    first_copy: u64,
}

impl Turns {
    /// The results so far count no more; a copy is used next.
    pub fn restart(&mut self, first_copy: u64) {
        *self = Turns { before: self.made(), since: 0, first_copy };
    }

    /// Calls are made.
    #[inline(always)]
    pub fn count(&mut self, calls: u64) {
        self.since += calls;
    }

    /// All calls.
    pub fn made(&self) -> u64 {
        self.before + self.since
    }

    /// The first copy that was used, and how many were, of `copies` through which the calls go.
    pub fn used(&self, copies: u64) -> (u64, u64) {
        (self.first_copy, self.since.min(copies))
    }

    /// The number, from 1 on, of the last call that used the `index`-th of these copies; the calls repeat themselves after `period`.
    pub fn last_call(&self, index: u64, copies: u64, period: u64) -> u64 {
        let uses = |call: &u64| (call % period) % copies == index;
        self.before + 1 + (0..self.since).rev().find(uses).unwrap_or(index)
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_page_aligned_and_reused_when_large_enough() {
        let mut arena = Arena::default();
        arena.reserve(10_000).unwrap();
        let first = arena.bytes().as_ptr();
        assert!(first.addr().is_multiple_of(PAGE));
        assert!(arena.bytes().len() >= 10_000);
        arena.reserve(5_000).unwrap();
        assert_eq!(arena.bytes().as_ptr(), first);
    }

    #[test]
    fn memory_that_nobody_has_is_an_error() {
        assert!(Arena::default().reserve(1 << 55).is_err());
    }

    #[test]
    fn the_rotation_visits_every_copy_once_before_repeating() {
        for (bytes, cold) in [(8, 1000), (64, 6400), (5000, 100_000), (1, 0), (4096, 3 * 4096)] {
            let mut rotation = Rotation::new(bytes, cold);
            let mut offsets: Vec<usize> = (0..rotation.copies).map(|_| rotation.advance()).collect();
            offsets.sort_unstable();
            offsets.dedup();
            assert_eq!(offsets.len() as u64, rotation.copies, "{bytes} of {cold}");
            assert!(offsets.iter().all(|offset| *offset as u64 + bytes <= rotation.bytes()));
            assert!(rotation.bytes() >= cold);
        }
    }
}
