//! Synthetic distributions with known median, for the tests of intervals and of the stop rule.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A distribution with a known median of 1.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// exp(spread z).
    LogNormal(f64),
    /// 1 + spread (e - ln 2).
    Exponential(f64),
    /// 60 % around the median, log-normal with that spread; 20 % far below, 20 % far above.
    ThreeHumps(f64),
}

/// A number of the distribution.
pub fn draw(shape: Shape, random: &mut Xoshiro256PlusPlus) -> f64 {
    let mut uniform = || 1.0 - random.random::<f64>();
    let mut normal = || (-2.0 * uniform().ln()).sqrt() * (2.0 * std::f64::consts::PI * uniform()).cos();
    match shape {
        Shape::LogNormal(spread) => (spread * normal()).exp(),
        Shape::Exponential(spread) => 1.0 + spread * (-uniform().ln() - 2f64.ln()),
        Shape::ThreeHumps(spread) => {
            let value = (spread * normal()).exp();
            match uniform() {
                u if u < 0.2 => value * (-8.0 * spread).exp(),
                u if u < 0.4 => value * (12.0 * spread).exp(),
                _ => value,
            }
        }
    }
}
