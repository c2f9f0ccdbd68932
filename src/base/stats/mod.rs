//! Pure numbers: order statistics, intervals, histograms. Too few samples give `None`.

mod histogram;
mod interval;
mod normal;
mod odd;
mod percentile;
mod proportion;
mod rank_sum;
#[cfg(any(test, feature = "test-support"))]
pub mod shapes;
mod sign;
mod span;
mod stretch;
mod trend;

pub use histogram::Histogram;
pub use interval::{Interval, MIN_FOR_INTERVAL, median_interval};
pub use normal::{normal_below, student_quantile};
pub use odd::{OddRule, Usual, upper_normal_quantile};
pub use percentile::{fewest_samples, low_median, median, percentile, sorted};
pub use proportion::proportion_interval;
pub use rank_sum::RankSums;
pub use sign::{depth_of_bound, fewest_for_bound, half_binomial_tail, median_bounds, values_to_decide};
pub use span::Span;
pub use stretch::{Stretch, densest_stretch};
pub use trend::{Evidence, falls};
