//! Matrix products in device memory by cuBLAS: known matrices, a time from two events on the stream, and a check of a
//! few elements.

use super::cublas::{self, Arithmetic, Cublas, Handle, Matrices};
use super::driver::Arena;
use super::driver::{self, CUevent, CUstream};
use super::kernels::Hold;
use super::kernels::{Bits, Content, Kernels, Stretch};
use super::open::OwnWork;
use crate::backend::{LocalWork, Mismatch};
use commgauge_base::error::{Error, Kind, Result};
use commgauge_base::host;
use commgauge_base::pattern::encode::Notation;
use commgauge_base::pattern::{self, encode};
use commgauge_model::workload::ProductShape;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::rc::Rc;
use std::time::Duration;

/// Number of distinct values of a matrix: enough that its rows look random, since power and clocks of a device depend on its data.
const NUMBERS: usize = 4096;
/// Seeds of the left matrix and the right one.
const SEEDS: [u64; 2] = [11, 23];
/// Elements of a result that are checked.
const CHECKED: u64 = 64;
/// Default time limit: twice that of the watchdog.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const CAUTIOUS_OPERATIONS_PER_SECOND: f64 = 0.5e9;

/// A product whose matrices are in device memory.
pub(super) struct DeviceProduct {
    /// Present until drop.
    handle: Option<Handle>,
    matrices: Matrices,
    arithmetic: Arithmetic,
    shape: ProductShape,
    stream: CUstream,
    events: [CUevent; 2],
    kernels: Kernels,
    hold: Rc<RefCell<Hold>>,
    /// Whether the first product has run, in which cuBLAS loads kernels and reserves memory.
    is_loaded: bool,
    /// Small whole numbers from which the elements of each matrix are drawn.
    numbers: [Vec<i8>; 2],
    deadline: Duration,
    rank: u32,
    place: String,
    /// Memory of the matrices and the numbers.
    memory: [Arena; 4],
    given_up: Cell<bool>,
}

impl DeviceProduct {
    /// Reserves and fills the matrices.
    ///
    /// # Errors
    /// If cuBLAS does not support the type or size, or the memory cannot be allocated.
    pub fn new(shape: &ProductShape, library: &'static Cublas, context: &OwnWork) -> Result<DeviceProduct> {
        let arithmetic = cublas::arithmetic(shape.element_type)?;
        let (m, n, k) = (length(shape.m)?, length(shape.n)?, length(shape.k)?);
        let mut memory: [Arena; 4] = Default::default();
        let elements = [(shape.m, shape.k), (shape.n, shape.k), (shape.m, shape.n)].map(|(a, b)| a.saturating_mul(b));
        for (arena, elements) in memory.iter_mut().zip(elements) {
            arena.reserve(elements.saturating_mul(shape.element_type.size()))?;
        }
        memory[3].reserve((2 * NUMBERS * 8) as u64)?;
        let numbers = SEEDS.map(numbers);
        let bits = numbers.iter().flatten().map(|number| encode::bits(shape.element_type, f64::from(*number)));
        let bits: Vec<u8> = bits.flat_map(u64::to_le_bytes).collect();
        // SAFETY: room was reserved for all of them.
        unsafe { driver::copy_to_device(memory[3].address(), &bits, context.stream)? };
        for (index, elements) in elements.into_iter().enumerate() {
            let stretch =
                Stretch { address: memory[index].address(), elements, element_bytes: shape.element_type.size() };
            // An element that no product overwrites must be detected: the result is initialised with a large number.
            let (which, written) = (index % 2, if index == 2 { Bits::TurnedOver } else { Bits::AsTheyAre });
            let address = memory[3].address() + (which * NUMBERS * 8) as u64;
            let content = Content::Column { address, length: NUMBERS as u32, first: 0 };
            // SAFETY: room was reserved for all elements, and the numbers are there.
            unsafe { context.kernels.fill(stretch, SEEDS[which], content, written, context.stream)? };
        }
        let [left, right, result] = [0, 1, 2].map(|index: usize| memory[index].address());
        let cautious = Duration::from_secs_f64((operations(shape) / CAUTIOUS_OPERATIONS_PER_SECOND).min(1e6));
        let product = DeviceProduct {
            handle: Some(Handle::new(library, context.stream)?),
            matrices: Matrices { left, right, result, m, n, k },
            arithmetic,
            shape: shape.clone(),
            stream: context.stream,
            events: [driver::create_event()?, driver::create_event()?],
            kernels: *context.kernels,
            hold: context.hold.clone(),
            is_loaded: false,
            numbers,
            deadline: context.deadline.unwrap_or(DEFAULT_TIMEOUT + cautious),
            rank: context.rank,
            place: context.place.to_owned(),
            memory,
            given_up: Cell::new(false),
        };
        product.wait()?;
        Ok(product)
    }

    fn wait(&self) -> Result<()> {
        let begun = host::now_nanoseconds();
        while !driver::is_done(self.stream)? {
            if u128::from(host::now_nanoseconds() - begun) > self.deadline.as_nanos() {
                self.given_up.set(true);
                let seconds = self.deadline.as_secs_f64();
                return Err(Kind::Hang(format!("not done within {seconds} s; aborted")).into());
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// The stream is held until the product is enqueued: otherwise the device would wait for the host between the first event
    /// and the product, which for small ones is as long as the product. Not for the first one: loading kernels and reserving
    /// memory may wait for the device.
    fn run_once(&mut self) -> Result<u64> {
        let [begin, end] = self.events;
        if self.is_loaded {
            self.hold.borrow_mut().until_released(&self.kernels, self.stream)?;
        }
        let enqueued = self.enqueue();
        // Also after an error: otherwise the device would stay blocked for a long time.
        self.hold.borrow_mut().release_now();
        enqueued?;
        self.wait()?;
        if self.is_loaded && self.hold.borrow().gave_up() {
            return Err(Error::environment(
                "the host did not enqueue it while the stream was held, so its time would include the launch; was this process stopped?",
            ));
        }
        self.is_loaded = true;
        Ok(driver::nanoseconds_between(begin, end)?.round() as u64)
    }

    fn enqueue(&self) -> Result<()> {
        let [begin, end] = self.events;
        driver::record(begin, self.stream)?;
        if let Some(handle) = &self.handle {
            // SAFETY: the matrices were reserved for this shape and live as long as this; the stream is waited for by the caller.
            unsafe { handle.multiply(&self.matrices, self.arithmetic)? };
        }
        driver::record(end, self.stream)
    }

    /// Compares one element; if it differs, the expected and the actual value.
    fn check_element(&self, element: u64) -> Result<Option<(String, String)>> {
        let ProductShape { n, k, element_type: of, .. } = self.shape;
        let (row, column) = (element / n, element % n);
        let number =
            |which: usize, at: u64| i64::from(self.numbers[which][pattern::entry_at(SEEDS[which], at, NUMBERS)]);
        // Exact in the accumulator, and rounded once when it is stored.
        let sum: i64 = (0..k).map(|term| number(0, row * k + term) * number(1, column * k + term)).sum();
        let expected = encode::bits(of, sum as f64);
        let mut bytes = [0u8; 8];
        let size = of.size() as usize;
        // SAFETY: the element is inside the result.
        unsafe { driver::copy_to_host(&mut bytes[..size], self.matrices.result + element * of.size(), self.stream)? };
        let got = u64::from_le_bytes(bytes);
        // A sum of 0 may have either sign.
        let same = got == expected || encode::value(of, got) == encode::value(of, expected);
        let show = |bits: u64| encode::show(of, Notation::Number, bits);
        Ok((!same).then(|| (show(expected), show(got))))
    }

    #[cold]
    fn with_place(&self, error: &Error) -> Error {
        let ProductShape { m, n, k, element_type: element, .. } = &self.shape;
        let text = format!("{}: product of {m} x {k} by {k} x {n} {element}: {error}", self.place);
        Error::from_exit_code(error.exit_code(), text)
    }
}

impl LocalWork for DeviceProduct {
    fn run(&mut self) -> Result<u64> {
        self.run_once().map_err(|error| self.with_place(&error))
    }

    fn check(&self) -> Result<Option<Mismatch>> {
        let elements = self.shape.m.saturating_mul(self.shape.n);
        let mut found: Option<Mismatch> = None;
        for index in 0..CHECKED {
            // Spread over the whole result, including the first and the last.
            let element = (u128::from(elements - 1) * u128::from(index) / u128::from(CHECKED - 1)) as u64;
            let wrong = self.check_element(element).map_err(|error| self.with_place(&error))?;
            match (wrong, &mut found) {
                (Some(_), Some(first)) => first.count += 1,
                (Some((expected, got)), None) => {
                    found = Some(Mismatch { rank: self.rank, element, expected, got, count: 1, call: None });
                }
                (None, _) => {}
            }
        }
        Ok(found)
    }
}

impl Drop for DeviceProduct {
    fn drop(&mut self) {
        if self.given_up.get() {
            // Destroying the handle and freeing memory would wait for the device, which does not respond. The process
            // ends soon.
            std::mem::forget(self.handle.take());
            return;
        }
        for arena in &mut self.memory {
            // This fails only if the device is lost, which the next call reports.
            let _ = arena.release();
        }
        self.events.into_iter().for_each(driver::destroy_event);
    }
}

/// From -3 to 3, evenly.
fn numbers(seed: u64) -> Vec<i8> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    (0..NUMBERS).map(|_| random.random_range(-3..=3)).collect()
}

fn length(value: u64) -> Result<c_int> {
    c_int::try_from(value).ok().filter(|length| *length > 0).ok_or_else(|| {
        Error::usage(format!(
            "cublasGemmEx takes matrices of up to {} rows, not of {value}; choose a shorter sequence",
            c_int::MAX
        ))
    })
}

/// A multiplication and an addition for each term of each sum.
fn operations(shape: &ProductShape) -> f64 {
    2.0 * shape.m as f64 * shape.n as f64 * shape.k as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::element::ElementType;

    #[test]
    fn sums_of_the_longest_layers_stay_exact_in_their_accumulator_and_finite_in_every_type() {
        let [left, right] = SEEDS.map(numbers);
        let at =
            |which: usize, numbers: &[i8], index| f64::from(numbers[pattern::entry_at(SEEDS[which], index, NUMBERS)]);
        // The longest sum of the shipped models is that of an undivided feed-forward layer.
        let k = 53_248;
        for (row, column) in [(0, 0), (1, 0), (511, 1023), (8191, 16_383)] {
            let mut largest = 0f64;
            let sum = (0..k).fold(0.0, |sum, term| {
                let next = sum + at(0, &left, row * k + term) * at(1, &right, column * k + term);
                largest = largest.max(f64::abs(next));
                next
            });
            assert!(largest < 16_777_216.0, "beyond 2^24 a float32 has gaps");
            for element in [ElementType::Float16, ElementType::Bfloat16, ElementType::Float32] {
                assert!(encode::value(element, encode::bits(element, sum)).is_finite(), "{element}: {sum}");
            }
        }
    }
}
