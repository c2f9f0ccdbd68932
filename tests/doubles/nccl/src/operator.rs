//! Reduction operators: NCCL's own, and sums of data that are multiplied first.

use crate::communicator;
use crate::element::Element;
use crate::result::{Answer, INVALID_ARGUMENT, code_of, failure};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// How elements are combined. A scalar is in the bytes of the element type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operator {
    Sum,
    Prod,
    Max,
    Min,
    Avg,
    PreMulSum([u8; 8]),
}

/// An operator as a call names it; a scalar in device memory is read when the call is carried out.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    Now(Operator),
    Later(usize),
}

/// The first number that is not one of NCCL's own operators.
const FIRST_MADE: c_int = 5;

/// An operator that a communicator made.
pub struct Made {
    element: Element,
    named: Named,
}

impl Named {
    pub fn of(number: c_int, element: Element, communicator: &communicator::Communicator) -> Answer<Named> {
        let own = [Operator::Sum, Operator::Prod, Operator::Max, Operator::Min, Operator::Avg];
        if let Some(operator) = usize::try_from(number).ok().and_then(|number| own.get(number)) {
            return Ok(Named::Now(*operator));
        }
        let operators = communicator.operators.lock().unwrap();
        let made = usize::try_from(number - FIRST_MADE).ok().and_then(|index| operators.get(index)?.as_ref());
        match made {
            Some(made) if made.element == element => Ok(made.named),
            Some(made) => failure(
                INVALID_ARGUMENT,
                format!("operator {number} was made for {:?}, not for {element:?}", made.element),
            ),
            None => failure(INVALID_ARGUMENT, format!("operator {number} is not known")),
        }
    }

    /// The operator itself; the scalar of a later one is there by now.
    pub fn read(self, element: Element) -> Operator {
        match self {
            Named::Now(operator) => operator,
            Named::Later(address) => Operator::PreMulSum(unsafe { scalar_at(address, element) }),
        }
    }
}

unsafe fn scalar_at(address: usize, element: Element) -> [u8; 8] {
    let mut scalar = [0; 8];
    scalar.as_mut_ptr().copy_from_nonoverlapping(address as *const u8, element.bytes());
    scalar
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(
    number: *mut c_int,
    scalar: *mut c_void,
    element: c_int,
    residence: c_int,
    communicator: usize,
) -> c_int {
    code_of((|| {
        let communicator: Arc<_> = communicator::ready(communicator)?;
        let element = Element::of(element)?;
        let named = match residence {
            // ncclScalarDevice, ncclScalarHostImmediate.
            0 => Named::Later(scalar as usize),
            1 => Named::Now(Operator::PreMulSum(scalar_at(scalar as usize, element))),
            other => return failure(INVALID_ARGUMENT, format!("scalar residence {other} is not known")),
        };
        let mut operators = communicator.operators.lock().unwrap();
        operators.push(Some(Made { element, named }));
        *number = FIRST_MADE + operators.len() as c_int - 1;
        Ok(())
    })())
}

#[unsafe(no_mangle)]
pub extern "C" fn ncclRedOpDestroy(number: c_int, communicator: usize) -> c_int {
    code_of((|| {
        let communicator = communicator::find(communicator)?;
        let mut operators = communicator.operators.lock().unwrap();
        let place = usize::try_from(number - FIRST_MADE).ok().and_then(|index| operators.get_mut(index));
        match place.and_then(Option::take) {
            Some(_) => Ok(()),
            None => failure(INVALID_ARGUMENT, format!("operator {number} was not made by this communicator")),
        }
    })())
}
