//! The matrix products of a record, in the form of the planner. `record::product_times` extracts them.

use super::MeasuredProduct;
use commgauge_model::record::Record;

impl MeasuredProduct {
    /// Every product of a record that has a time; without those that were wrong, skipped or failed in all replicates.
    pub fn all_of(record: &Record) -> Vec<MeasuredProduct> {
        let measured = |time: commgauge_model::record::product_times::ProductTime| {
            let seconds = time.times.median()?.0;
            let product = time.product;
            Some(MeasuredProduct { m: product.m, n: product.n, k: product.k, element: product.element_type, seconds })
        };
        record.product_times().into_iter().filter_map(measured).collect()
    }
}
