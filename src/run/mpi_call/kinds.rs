//! Element types and reduce operations as MPI knows them, and our own operations for what it lacks.

use super::check;
use commgauge_base::collective::ReduceOp;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::pattern::encode;
use mpi::ffi;
use std::ffi::{c_int, c_void};

/// An MPI datatype with the size of an element type. 16-bit and 8-bit floats, which MPI does not know, travel as whole
/// numbers of their size.
#[derive(Clone, Copy, Debug)]
pub struct Datatype(pub(super) ffi::MPI_Datatype);

impl Datatype {
    /// The handle.
    pub fn raw(self) -> ffi::MPI_Datatype {
        self.0
    }

    /// The datatype of an element type.
    pub fn of(element: ElementType) -> Datatype {
        // SAFETY: reading constants of the initialised library.
        Datatype(unsafe {
            match element {
                ElementType::Int8 => ffi::RSMPI_INT8_T,
                ElementType::Uint8 | ElementType::Fp8E4m3 | ElementType::Fp8E5m2 => ffi::RSMPI_UINT8_T,
                ElementType::Int32 => ffi::RSMPI_INT32_T,
                ElementType::Uint32 => ffi::RSMPI_UINT32_T,
                ElementType::Int64 => ffi::RSMPI_INT64_T,
                ElementType::Uint64 => ffi::RSMPI_UINT64_T,
                ElementType::Float16 | ElementType::Bfloat16 => ffi::RSMPI_UINT16_T,
                ElementType::Float32 => ffi::RSMPI_FLOAT,
                ElementType::Float64 => ffi::RSMPI_DOUBLE,
            }
        })
    }
}

/// A reduce operation: MPI's own, or one of ours that is freed with it.
#[derive(Debug)]
pub struct Operation {
    pub(super) raw: ffi::MPI_Op,
    ours: bool,
}

impl Operation {
    /// The operation on an element type. `avg` is a sum here; the caller divides afterwards. 16-bit floats are
    /// combined by our own function on one core, as no MPI standard has them.
    pub fn of(op: ReduceOp, element: ElementType) -> Result<Operation> {
        if op == ReduceOp::PreMulSum {
            return Err(Error::usage("mulsum is an operation of NCCL's, which MPI does not have"));
        }
        if let Some(function) = user_function(op, element) {
            // SAFETY: reading a constant only to have something to overwrite.
            let mut raw = unsafe { ffi::RSMPI_SUM };
            // SAFETY: the function has the signature of MPI-3.1 5.9.5 and lives as long as the program.
            check(unsafe { ffi::MPI_Op_create(Some(function), 1, &mut raw) }, "MPI_Op_create")?;
            return Ok(Operation { raw, ours: true });
        }
        // SAFETY: reading constants of the initialised library.
        let raw = unsafe {
            match op {
                ReduceOp::Sum | ReduceOp::Avg | ReduceOp::PreMulSum => ffi::RSMPI_SUM,
                ReduceOp::Prod => ffi::RSMPI_PROD,
                ReduceOp::Min => ffi::RSMPI_MIN,
                ReduceOp::Max => ffi::RSMPI_MAX,
            }
        };
        Ok(Operation { raw, ours: false })
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.ours && !mpi::environment::is_finalized() {
            // SAFETY: the handle is ours; freeing is local (MPI-3.1 5.9.5).
            unsafe { ffi::MPI_Op_free(&mut self.raw) };
        }
    }
}

type UserFunction = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut ffi::MPI_Datatype);

fn user_function(op: ReduceOp, element: ElementType) -> Option<UserFunction> {
    const HALF: bool = false;
    const BRAIN: bool = true;
    match (element, op) {
        (ElementType::Float16, ReduceOp::Sum | ReduceOp::Avg) => Some(reduce_16_bit::<HALF, 0>),
        (ElementType::Float16, ReduceOp::Prod) => Some(reduce_16_bit::<HALF, 1>),
        (ElementType::Float16, ReduceOp::Min) => Some(reduce_16_bit::<HALF, 2>),
        (ElementType::Float16, ReduceOp::Max) => Some(reduce_16_bit::<HALF, 3>),
        (ElementType::Bfloat16, ReduceOp::Sum | ReduceOp::Avg) => Some(reduce_16_bit::<BRAIN, 0>),
        (ElementType::Bfloat16, ReduceOp::Prod) => Some(reduce_16_bit::<BRAIN, 1>),
        (ElementType::Bfloat16, ReduceOp::Min) => Some(reduce_16_bit::<BRAIN, 2>),
        (ElementType::Bfloat16, ReduceOp::Max) => Some(reduce_16_bit::<BRAIN, 3>),
        _ => None,
    }
}

/// `inout = op(in, inout)` over `length` elements.
///
/// # Safety
/// As MPI calls it: both buffers hold `*length` 16-bit elements and do not overlap.
unsafe extern "C" fn reduce_16_bit<const BRAIN: bool, const OP: u8>(
    input: *mut c_void,
    inout: *mut c_void,
    length: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    // SAFETY: promised by the caller.
    let (input, inout) = unsafe {
        let bytes = 2 * *length as usize;
        (
            std::slice::from_raw_parts(input.cast::<u8>(), bytes),
            std::slice::from_raw_parts_mut(inout.cast::<u8>(), bytes),
        )
    };
    let element = if BRAIN { ElementType::Bfloat16 } else { ElementType::Float16 };
    let op = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max][OP as usize];
    encode::reduce_into(element, op, input, inout);
}
