//! Times of matrix products, merged over the replicates of each.

use super::Record;
use super::outcome::Outcome;
use super::product_line::ProductFacts;
use commgauge_base::stats::{Interval, median, median_interval, sorted};
use commgauge_base::units::Seconds;

/// A product over all replicates.
#[derive(Clone, Debug, PartialEq)]
pub struct ProductTime {
    /// The product.
    pub product: ProductFacts,
    /// Library that computed it.
    pub library: String,
    /// Ranks of a host that computed at the same time.
    pub ranks_per_host: u32,
    /// Median of the slowest rank in each replicate; replicates without a time are left out, and all of them where one
    /// was wrong.
    pub seconds: Vec<Seconds>,
    /// Hull of the replicates' own 95 % intervals of the median; `None` where a replicate has fewer than 6 repetitions.
    pub interval: Option<Interval<Seconds>>,
    /// Repetitions over all replicates.
    pub repetitions: u64,
    /// The most severe outcome of a replicate without a time.
    pub trouble: Option<Outcome>,
}

impl ProductTime {
    /// The median over the replicates.
    pub fn median(&self) -> Option<Seconds> {
        median(&sorted(self.seconds.iter().map(|seconds| seconds.0))).map(Seconds)
    }

    /// Floating-point operations per second of one rank.
    pub fn flops_per_second(&self) -> Option<f64> {
        self.median().filter(|seconds| seconds.0 > 0.0).map(|seconds| self.product.flops() / seconds.0)
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
        let wrong = lines().map(|line| &line.outcome).find(|outcome| matches!(outcome, Outcome::Corrupt { .. }));
        let trouble =
            wrong.or_else(|| lines().map(|line| &line.outcome).find(|outcome| !is_measured(outcome))).cloned();
        let measured = lines().filter(|line| wrong.is_none() && is_measured(&line.outcome));
        let ascending: Vec<Vec<f64>> = measured
            .map(|line| sorted(line.slowest_nanoseconds.iter().map(|time| *time as f64 * 1e-9)))
            .filter(|times| !times.is_empty())
            .collect();
        let intervals: Option<Vec<Interval>> = ascending.iter().map(|times| median_interval(times, 0.95)).collect();
        let hull = intervals.and_then(|intervals| {
            let low = intervals.iter().map(|interval| interval.low).reduce(f64::min)?;
            let high = intervals.iter().map(|interval| interval.high).reduce(f64::max)?;
            Some(Interval { low: Seconds(low), high: Seconds(high) })
        });
        let first = lines().next()?;
        Some(ProductTime {
            library: first.library.clone(),
            ranks_per_host: first.ranks_per_host,
            seconds: ascending.iter().filter_map(|times| median(times)).map(Seconds).collect(),
            interval: hull,
            repetitions: ascending.iter().map(|times| times.len() as u64).sum(),
            trouble,
            product,
        })
    }
}

fn is_measured(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Measured { .. })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::product_line::ProductLine;
    use commgauge_base::element::ElementType;

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
        assert_eq!((time.seconds.len(), time.repetitions), (3, 24));
        assert!((time.median().unwrap().0 - 0.011).abs() < 1e-12);
        // 2 x 1000 x 500 x 2000 = 2e9 operations in 11 ms.
        assert!((time.flops_per_second().unwrap() - 2e9 / 0.011).abs() < 1.0);
        let Interval { low, high } = time.interval.unwrap();
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
        };
        let corrupt = record(|replicate, line| {
            if replicate == 1 {
                line.outcome = wrong.clone();
            }
        });
        let time = &corrupt.product_times()[0];
        assert_eq!((time.median(), time.trouble.clone()), (None, Some(wrong.clone())));
        let failed = record(|replicate, line| {
            if replicate == 1 {
                line.outcome = Outcome::Failed { reason: "no memory".to_owned() };
            }
        });
        let time = &failed.product_times()[0];
        assert_eq!(time.seconds.len(), 2);
        assert!(matches!(time.trouble, Some(Outcome::Failed { .. })));
    }
}
