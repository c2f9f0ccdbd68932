//! Sums of what every rank multiplies first: operations that a communicator makes and forgets.

use super::abi::{self, SCALAR_ON_HOST};
use super::communicator::Communicator;
use super::library::Library;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::pattern::encode;
use std::ffi::c_int;
use std::rc::Rc;

/// An operation of `ncclRedOpCreatePreMulSum`, until it is dropped.
pub(super) struct Multiplied {
    library: &'static Library,
    communicator: Rc<Communicator>,
    raw: c_int,
}

impl Multiplied {
    /// Of a number, on elements of a type.
    pub fn new(
        library: &'static Library,
        communicator: Rc<Communicator>,
        element: ElementType,
        number: u32,
    ) -> Result<Multiplied> {
        let create = library.newer(library.call.create_pre_mul_sum, "ncclRedOpCreatePreMulSum")?;
        let mut bits = encode::bits(element, f64::from(number)).to_le_bytes();
        let (mut raw, datatype) = (0, abi::datatype(element, abi::ElementUse::Reduced));
        // SAFETY: the number has at least the bytes of the type and is read before the call returns; the handle is ours, the
        // communicator lives.
        let code = unsafe { create(&mut raw, bits.as_mut_ptr().cast(), datatype, SCALAR_ON_HOST, communicator.raw()) };
        library.check(code, "ncclRedOpCreatePreMulSum")?;
        Ok(Multiplied { library, communicator, raw })
    }

    /// `ncclRedOp_t`.
    pub fn raw(&self) -> c_int {
        self.raw
    }
}

impl Drop for Multiplied {
    fn drop(&mut self) {
        if let (Some(destroy), false) = (self.library.call.destroy_operation, self.communicator.raw().is_null()) {
            // SAFETY: created by this communicator, which still exists, and not used again; enqueued calls keep what
            // they need (nccl.h).
            let _ = unsafe { destroy(self.raw, self.communicator.raw()) };
        }
    }
}
