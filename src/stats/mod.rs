//! Pure numbers: order statistics, intervals, histograms. Too few samples give `None`.

mod histogram;
mod interval;
mod percentile;
#[cfg(test)]
pub(crate) mod shapes;
mod trend;

pub use histogram::Histogram;
pub use interval::{FEWEST_FOR_INTERVAL, Interval, median_interval};
pub use percentile::{fewest_samples, median, percentile, sorted};
pub use trend::{Evidence, falls};
