//! Matrix products on host memory, one thread in each rank.

use crate::backend::{LocalWork, Mismatch, product_bytes};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::host::now_nanoseconds;
use commgauge_base::units::Bytes;
use commgauge_model::workload::ProductShape;
use ndarray::Array2;
use ndarray::linalg::general_mat_mul;

/// The library for host memory, for the record; a test compares it with Cargo.lock.
pub const HOST_PRODUCT_LIBRARY: &str = "matrixmultiply 0.3.11 through ndarray 0.17.2, one thread in each rank";

/// Elements of a result that are checked.
const CHECKED: u64 = 64;

/// The product on host memory, for one rank.
///
/// # Errors
/// If the element type is not supported, or the matrices cannot be allocated.
pub(super) fn on_host(shape: &ProductShape, rank: u32, available: Bytes) -> Result<Box<dyn LocalWork>> {
    let needed = product_bytes(shape);
    if needed > available {
        return Err(Error::usage(format!(
            "the product of {} needs {needed} of matrices on each rank, but {available} is available; choose a smaller micro-batch, or a higher tensor-parallel degree",
            shape.uses.join("; ")
        )));
    }
    match shape.element_type {
        ElementType::Float32 => Ok(Box::new(HostProduct::<f32>::new(shape, rank)?)),
        ElementType::Float64 => Ok(Box::new(HostProduct::<f64>::new(shape, rank)?)),
        other => Err(not_multiplied(other)),
    }
}

fn not_multiplied(element: ElementType) -> Error {
    Error::usage(format!("[[compute]]: ranks on host memory multiply float32 and float64, not {element}"))
}

/// Refuses element types that are not supported here.
pub(super) fn check_types(shapes: &[ProductShape]) -> Result<()> {
    let other = shapes
        .iter()
        .map(|shape| shape.element_type)
        .find(|element| !matches!(element, ElementType::Float32 | ElementType::Float64));
    other.map_or(Ok(()), |element| Err(not_multiplied(element)))
}

struct HostProduct<T> {
    rank: u32,
    left: Array2<T>,
    right: Array2<T>,
    result: Array2<T>,
}

trait Float: ndarray::LinalgScalar + From<i8> + Into<f64> {}
impl Float for f32 {}
impl Float for f64 {}

impl<T: Float> HostProduct<T> {
    fn new(shape: &ProductShape, rank: u32) -> Result<Self> {
        let length = |value: u64| {
            usize::try_from(value)
                .map_err(|_| Error::usage(format!("a matrix of {value} rows does not fit this machine")))
        };
        let (m, n, k) = (length(shape.m)?, length(shape.n)?, length(shape.k)?);
        let left = Array2::from_shape_fn((m, k), |(row, column)| T::from(left(row, column)));
        let right = Array2::from_shape_fn((k, n), |(row, column)| T::from(right(row, column)));
        // Every page is written before timing.
        Ok(HostProduct { rank, left, right, result: Array2::from_elem((m, n), T::from(-1)) })
    }
}

/// Small integers: sums of their products are exact in either type up to 1.8 million terms.
fn left(row: usize, column: usize) -> i8 {
    ((row.wrapping_mul(5).wrapping_add(column.wrapping_mul(3)) % 7) as i8) - 3
}

fn right(row: usize, column: usize) -> i8 {
    ((row.wrapping_mul(2).wrapping_add(column.wrapping_mul(11)) % 7) as i8) - 3
}

impl<T: Float> LocalWork for HostProduct<T> {
    fn run(&mut self) -> Result<u64> {
        let begun = now_nanoseconds();
        general_mat_mul(T::one(), &self.left, &self.right, T::zero(), &mut self.result);
        Ok(now_nanoseconds().saturating_sub(begun))
    }

    fn check(&self) -> Result<Option<Mismatch>> {
        let (m, n) = self.result.dim();
        let elements = (m as u64).saturating_mul(n as u64);
        // Spread over the whole result, including the first and the last.
        let looked_at =
            (0..CHECKED).map(|index| (u128::from(elements - 1) * u128::from(index) / u128::from(CHECKED - 1)) as u64);
        let wrong = |element: &u64| {
            let (row, column) = ((*element / n as u64) as usize, (*element % n as u64) as usize);
            let terms = 0..self.left.dim().1;
            let expected: i64 = terms.map(|term| i64::from(left(row, term)) * i64::from(right(term, column))).sum();
            let got: f64 = self.result[(row, column)].into();
            (got != expected as f64).then_some((*element, expected, got))
        };
        let found: Vec<(u64, i64, f64)> = looked_at.filter_map(|element| wrong(&element)).collect();
        let Some((element, expected, got)) = found.first() else { return Ok(None) };
        let (expected, got) = (expected.to_string(), got.to_string());
        Ok(Some(Mismatch { rank: self.rank, element: *element, expected, got, count: found.len() as u64, call: None }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(m: u64, n: u64, k: u64, element: ElementType) -> ProductShape {
        ProductShape { m, n, k, element_type: element, uses: vec!["test".to_owned()] }
    }

    #[test]
    fn a_product_is_right_and_a_wrong_element_is_found() {
        for element in [ElementType::Float32, ElementType::Float64] {
            for (m, n, k) in [(1, 1, 1), (7, 5, 3), (33, 65, 129)] {
                let mut product = on_host(&shape(m, n, k, element), 3, Bytes(1 << 30)).unwrap();
                let unset = product.check().unwrap().expect("nothing computed yet");
                assert_eq!((unset.rank, unset.got.as_str()), (3, "-1"));
                product.run().unwrap();
                assert_eq!(product.check().unwrap(), None, "{element} {m} x {n} x {k}");
            }
        }
    }

    #[test]
    fn unsupported_products_are_refused() {
        for (shape, available, expected) in [
            (shape(1 << 20, 1 << 20, 8, ElementType::Float32), 1 << 30, "needs 4.0 TiB of matrices on each rank"),
            (shape(u64::MAX, u64::MAX, 8, ElementType::Float32), 1 << 30, "of matrices on each rank"),
            (shape(8, 8, 8, ElementType::Bfloat16), 1 << 30, "not bfloat16"),
        ] {
            let Err(error) = on_host(&shape, 0, Bytes(available)) else { panic!("{expected}: accepted") };
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_library_that_records_name_is_the_one_that_is_linked() {
        let lock = include_str!("../../../../Cargo.lock");
        for (name, version) in [("matrixmultiply", "0.3.11"), ("ndarray", "0.17.2")] {
            assert!(lock.contains(&format!("name = \"{name}\"\nversion = \"{version}\"")), "{name}");
            assert!(HOST_PRODUCT_LIBRARY.contains(&format!("{name} {version}")), "{name}");
        }
    }
}
