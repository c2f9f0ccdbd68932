//! One product, carried out: sums in float32 from the first term to the last, of float64 in float64, rounded once.

use half::{bf16, f16};
use std::ffi::{c_int, c_void};
use std::time::Duration;

/// What is multiplied, with what its sums are of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Float16,
    Bfloat16,
    Float32,
    Float64,
}

impl Type {
    /// By the numbers of cudaDataType and cublasComputeType_t.
    pub fn of(data: c_int, compute: c_int) -> Option<Type> {
        match (data, compute) {
            (2, 68) => Some(Type::Float16),
            (14, 68) => Some(Type::Bfloat16),
            (0, 68) => Some(Type::Float32),
            (1, 70) => Some(Type::Float64),
            _ => None,
        }
    }

    pub fn bytes(self) -> usize {
        match self {
            Type::Float16 | Type::Bfloat16 => 2,
            Type::Float32 => 4,
            Type::Float64 => 8,
        }
    }

    /// # Safety
    /// Both point to a number of the type of the sums.
    pub unsafe fn scales(self, alpha: *const c_void, beta: *const c_void) -> (f64, f64) {
        let read = |of: *const c_void| match self {
            Type::Float64 => of.cast::<f64>().read_unaligned(),
            _ => f64::from(of.cast::<f32>().read_unaligned()),
        };
        (read(alpha), read(beta))
    }

    unsafe fn read(self, at: usize) -> f64 {
        match self {
            Type::Float16 => f64::from(*(at as *const f16)),
            Type::Bfloat16 => f64::from(*(at as *const bf16)),
            Type::Float32 => f64::from(*(at as *const f32)),
            Type::Float64 => *(at as *const f64),
        }
    }

    unsafe fn write(self, at: usize, value: f64) {
        match self {
            Type::Float16 => *(at as *mut f16) = f16::from_f64(value),
            Type::Bfloat16 => *(at as *mut bf16) = bf16::from_f64(value),
            Type::Float32 => *(at as *mut f32) = value as f32,
            Type::Float64 => *(at as *mut f64) = value,
        }
    }
}

/// A column-major matrix with columns of `stride` elements; row-major if `transposed`.
pub struct Matrix {
    pub address: usize,
    pub stride: usize,
    pub transposed: bool,
}

impl Matrix {
    fn at(&self, row: usize, column: usize, bytes: usize) -> usize {
        let (inner, outer) = if self.transposed { (column, row) } else { (row, column) };
        self.address + (inner + outer * self.stride) * bytes
    }
}

pub struct Product {
    pub kind: Type,
    pub sizes: (usize, usize, usize),
    pub left: Matrix,
    pub right: Matrix,
    pub result: Matrix,
    pub scales: (f64, f64),
    pub late_microseconds: Option<u64>,
    pub corrupt: bool,
    pub hangs: bool,
}

impl Product {
    /// # Safety
    /// The matrices are memory of the driver with room for them.
    pub unsafe fn carry_out(&self) {
        if self.hangs {
            loop {
                std::thread::sleep(Duration::from_secs(1));
            }
        }
        if let Some(late) = self.late_microseconds {
            std::thread::sleep(Duration::from_micros(late));
        }
        let (m, n, k) = self.sizes;
        let (kind, bytes, (alpha, beta)) = (self.kind, self.kind.bytes(), self.scales);
        for column in 0..n {
            for row in 0..m {
                let sum = (0..k).fold(0.0, |sum, term| {
                    let left = kind.read(self.left.at(row, term, bytes));
                    let next = sum + left * kind.read(self.right.at(term, column, bytes));
                    if kind == Type::Float64 { next } else { f64::from(next as f32) }
                });
                let at = self.result.at(row, column, bytes);
                let before = if beta == 0.0 { 0.0 } else { beta * kind.read(at) };
                kind.write(at, alpha * sum + before);
            }
        }
        if self.corrupt {
            // The last element, which every check looks at.
            *(self.result.at(m - 1, n - 1, bytes) as *mut u8) ^= 1;
        }
    }
}
