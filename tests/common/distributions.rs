//! For unit tests: the working directory as users have it, and distributions with a known median.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::Path;
use std::sync::Once;

/// Makes the checkout the working directory of this process. All tests of a process may call it: the directory is the same.
pub fn enter_checkout() {
    static ENTERED: Once = Once::new();
    ENTERED.call_once(|| {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        std::env::set_current_dir(&checkout).expect("the checkout exists");
    });
}

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
