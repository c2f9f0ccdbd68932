//! Share of its peak that a GPU reaches in a matrix product: from a saturating formula, or from measured products.

use super::Product;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Source of the speed of products.
#[derive(Clone, Debug, PartialEq)]
pub enum Efficiency {
    /// Larger products reach more.
    Saturating(Saturation),
    /// Products measured on one machine.
    Measured(MeasuredProducts),
}

/// A share of the peak that grows with the product: best x m/(m + M) x n/(n + N) x k/(k + K), with one half size for all three.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Saturation {
    /// Share that the largest products reach.
    pub best: f64,
    /// The width at which a product reaches half of that if the other two widths are unbounded.
    pub half_width: f64,
}

/// A matrix product of m x k by k x n, measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredProduct {
    /// Rows of the result.
    pub m: u64,
    /// Columns of the result.
    pub n: u64,
    /// Terms of each sum.
    pub k: u64,
    /// Type of the elements.
    pub element: ElementType,
    /// Time of one product.
    pub seconds: f64,
}

/// Products of one element type, at least one, all with a time.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredProducts(Vec<MeasuredProduct>);

impl MeasuredProducts {
    /// The products of an element type.
    ///
    /// # Errors
    /// If none has that type (lists the available types), or a product lacks a size or a time.
    pub fn new(products: &[MeasuredProduct], element: ElementType) -> Result<MeasuredProducts> {
        if let Some(wrong) = products.iter().find(|product| product.flops_per_second().is_none()) {
            let MeasuredProduct { m, n, k, seconds, .. } = wrong;
            return Err(Error::usage(format!(
                "the matrix product {m} x {n} x {k} took {seconds} s; accepted: sizes from 1 on and a time above 0"
            )));
        }
        let own: Vec<_> = products.iter().copied().filter(|product| product.element == element).collect();
        if own.is_empty() {
            let mut types: Vec<&str> = products.iter().map(|product| product.element.name()).collect();
            types.sort_unstable();
            types.dedup();
            let found = if types.is_empty() { "none at all".to_owned() } else { format!("of {}", types.join(", ")) };
            return Err(Error::usage(format!(
                "no matrix product of {element} was measured, {found}; measure them in the type of the activations, or give the reached share of the peak"
            )));
        }
        Ok(MeasuredProducts(own))
    }

    /// The same shape at another level: the largest product reaches this share of the peak.
    pub fn at_level(&self, form: Saturation, peak_flops_per_second: f64) -> MeasuredProducts {
        let flops = |known: &&MeasuredProduct| known.m as f64 * known.n as f64 * known.k as f64;
        let largest = self.0.iter().max_by(|a, b| flops(a).total_cmp(&flops(b)));
        let factor = largest.map_or(1.0, |known| {
            let product = Product::linear(known.m, known.n, known.k);
            known.seconds * peak_flops_per_second * form.share(&product) / product.flops()
        });
        self.times(factor)
    }

    fn times(&self, factor: f64) -> MeasuredProducts {
        let faster = |known: &MeasuredProduct| MeasuredProduct { seconds: known.seconds / factor, ..*known };
        MeasuredProducts(self.0.iter().map(faster).collect())
    }

    pub fn products(&self) -> &[MeasuredProduct] {
        &self.0
    }
}

impl MeasuredProduct {
    /// Floating-point operations per second: 2 m n k over the time. `None` for an invalid time.
    pub fn flops_per_second(&self) -> Option<f64> {
        let flops = 2.0 * self.m as f64 * self.n as f64 * self.k as f64;
        (self.seconds > 0.0 && self.seconds.is_finite() && flops > 0.0).then(|| flops / self.seconds)
    }
}

impl Efficiency {
    /// Every product `factor` times as fast.
    pub fn times(&self, factor: f64) -> Efficiency {
        match self {
            Efficiency::Saturating(form) => Efficiency::Saturating(Saturation { best: factor * form.best, ..*form }),
            Efficiency::Measured(measured) => Efficiency::Measured(measured.times(factor)),
        }
    }

    pub(super) fn seconds(&self, product: &Product, peak_flops_per_second: f64) -> f64 {
        let flops = product.flops();
        match self {
            Efficiency::Saturating(form) => flops / (peak_flops_per_second * form.share(product)),
            Efficiency::Measured(measured) => flops / flops_per_second_at(measured.products(), product),
        }
    }
}

impl Saturation {
    fn share(&self, product: &Product) -> f64 {
        let of = |width: u64| width as f64 / (width as f64 + self.half_width);
        self.best * of(product.m) * of(product.n) * of(product.k)
    }
}

/// The speed for a product's shape: as measured if the same product was measured; else the mean of the logarithms of the speeds, each
/// weighted by the inverse fourth power of its distance in octaves of m, n and k, so that neighbours dominate. It stays within the measured
/// range.
fn flops_per_second_at(measured: &[MeasuredProduct], product: &Product) -> f64 {
    let (mut weights, mut sum) = (0.0, 0.0);
    for known in measured {
        let Some(speed) = known.flops_per_second() else { continue };
        let octaves = |a: u64, b: u64| (a.max(1) as f64 / b.max(1) as f64).log2().powi(2);
        let distance = octaves(known.m, product.m) + octaves(known.n, product.n) + octaves(known.k, product.k);
        if distance == 0.0 {
            return speed;
        }
        let weight = distance.powi(-2);
        weights += weight;
        sum += weight * speed.ln();
    }
    (sum / weights).exp()
}
