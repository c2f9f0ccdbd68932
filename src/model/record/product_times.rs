//! Times of matrix products, merged over the replicates of each.

use super::Record;
use super::merged_times::MergedTimes;
use super::product_line::ProductFacts;

/// A product over all replicates.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductTime {
    /// The product.
    pub product: ProductFacts,
    /// Library that computed it.
    pub library: String,
    /// Ranks of a host that computed at the same time.
    pub ranks_per_host: u32,
    /// What came of it, and the times of the slowest rank.
    pub times: MergedTimes,
}

impl ProductTime {
    /// Floating-point operations per second of one rank.
    pub fn flops_per_second(&self) -> Option<f64> {
        self.times.median().filter(|seconds| seconds.0 > 0.0).map(|seconds| self.product.flops() / seconds.0)
    }
}

impl Record {
    /// Every product of the record, in the order of first appearance.
    pub fn product_times(&self) -> Vec<ProductTime> {
        let mut products: Vec<ProductFacts> = Vec::new();
        for line in &self.products {
            if !products.contains(&line.product) {
                products.push(line.product.clone());
            }
        }
        products.into_iter().filter_map(|product| self.product_time(product)).collect()
    }

    fn product_time(&self, product: ProductFacts) -> Option<ProductTime> {
        let lines = || self.products.iter().filter(|line| line.product == product);
        let times = MergedTimes::of(lines().map(|line| (&line.outcome, line.slowest_nanoseconds.as_slice())));
        let first = lines().next()?;
        let (library, ranks_per_host) = (first.library.clone(), first.ranks_per_host);
        Some(ProductTime { product, library, ranks_per_host, times })
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Outcome;
    use super::*;
    use crate::record::product_line::ProductLine;
    use commgauge_base::element::ElementType;
    use commgauge_base::stats::Interval;

    fn record(change: impl Fn(u32, &mut ProductLine)) -> Record {
        let lines = include_str!("../../../tests/data/sample-record.jsonl").lines();
        let mut record = Record::from_lines(lines.map(|line| serde_json::from_str(line).unwrap())).unwrap();
        for replicate in 0..3 {
            let product = ProductFacts {
                m: 1000,
                n: 500,
                k: 2000,
                element_type: ElementType::Float32,
                uses: vec!["qkv".to_owned()],
            };
            let mut line = ProductLine {
                product,
                replicate,
                library: "test".to_owned(),
                ranks_per_host: 4,
                threads_per_rank: 1,
                outcome: Outcome::Measured { verified: true },
                warm_up_products: 2,
                slowest_nanoseconds: vec![10_000_000 + u64::from(replicate) * 1_000_000; 8],
                slowest_rank: vec![0; 8],
            };
            change(replicate, &mut line);
            record.products.push(line);
        }
        record
    }

    #[test]
    fn the_rate_is_that_of_the_median_over_the_replicates() {
        let times = record(|_, _| {}).product_times();
        let [time] = times.as_slice() else { panic!("{times:?}") };
        assert_eq!((time.times.medians().len(), time.times.samples()), (3, 24));
        assert!((time.times.median().unwrap().0 - 0.011).abs() < 1e-12);
        // 2 x 1000 x 500 x 2000 = 2e9 operations in 11 ms.
        assert!((time.flops_per_second().unwrap() - 2e9 / 0.011).abs() < 1.0);
        let Interval { low, high } = time.times.interval().unwrap();
        assert!((low.0 - 0.010).abs() < 1e-9 && (high.0 - 0.012).abs() < 1e-9);
    }

    #[test]
    fn a_wrong_product_has_no_time_and_a_failed_replicate_is_reported() {
        let wrong = Outcome::Corrupt {
            when: "after".into(),
            rank: 1,
            element: 7,
            expected: "3".into(),
            got: "4".into(),
            count: 1,
            call: None,
        };
        let corrupt = record(|replicate, line| {
            if replicate == 1 {
                line.outcome = wrong.clone();
            }
        });
        let time = &corrupt.product_times()[0];
        assert_eq!((time.times.median(), time.times.trouble()), (None, Some(&wrong)));
        let failed = record(|replicate, line| {
            if replicate == 1 {
                line.outcome = Outcome::Failed { reason: "no memory".to_owned() };
            }
        });
        let time = &failed.product_times()[0];
        assert_eq!(time.times.medians().len(), 2);
        assert!(matches!(time.times.outcome, Outcome::Failed { .. }));
    }
}
