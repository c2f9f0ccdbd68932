//! Axes: unit, spacing and ticks. Ticks are round in the unit: powers of two for bytes, powers of ten for times and rates.

use commgauge_base::units::{Bytes, Rate, Seconds, three_digits};

/// Unit of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes, in binary units.
    Bytes,
    /// Seconds.
    Seconds,
    /// Bytes per second, in decimal units.
    BytesPerSecond,
    /// Per cent.
    Percent,
    /// A bare number.
    Count,
}

/// Spacing of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    /// Equal differences have equal distances.
    Linear,
    /// Equal factors have equal distances.
    Log,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Quantity along the axis; the unit is added where ticks do not have it.
    pub title: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Spacing of the values.
    pub spacing: Spacing,
    /// Shown range; values beyond it are left out. `None` fits the axis to the values.
    pub range: Option<(f64, f64)>,
    /// Custom ticks, which replace the computed ones.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(title: impl Into<String>, unit: Unit) -> Axis {
        Axis { title: title.into(), unit, spacing: Spacing::Linear, range: None, ticks: Vec::new() }
    }

    /// A logarithmic axis.
    pub fn log(title: impl Into<String>, unit: Unit) -> Axis {
        Axis { spacing: Spacing::Log, ..Axis::linear(title, unit) }
    }

    pub(super) fn takes(&self, value: f64) -> bool {
        let inside = self.range.is_none_or(|(low, high)| (low..=high).contains(&value));
        value.is_finite() && inside && (self.spacing == Spacing::Linear || value > 0.0)
    }

    /// The scale that maps the values to `from` .. `to`, with at most `most` ticks. A linear axis begins at zero unless
    /// some value is below, or a range is given.
    pub(super) fn scale(&self, values: impl Iterator<Item = f64>, from: f64, to: f64, most: usize) -> Scale {
        let mut bounds = self.range;
        if bounds.is_none() {
            for value in values.filter(|value| self.takes(*value)) {
                let (low, high) = bounds.unwrap_or((value, value));
                bounds = Some((low.min(value), high.max(value)));
            }
        }
        let (low, high) = bounds.unwrap_or((1.0, 10.0));
        let (low, high) = match (self.spacing, self.range) {
            (_, Some(_)) => (low, high),
            (Spacing::Log, None) => padded_log(low, high),
            (Spacing::Linear, None) if self.ticks.is_empty() => (low.min(0.0) * 1.08, high.max(0.0) * 1.08),
            (Spacing::Linear, None) => (low - 0.03 * (high - low).max(1.0), high + 0.03 * (high - low).max(1.0)),
        };
        let high = if high > low { high } else { low + 1.0 };
        let mut scale = Scale { spacing: self.spacing, low, high, from, to, ticks: Vec::new(), unit_shown: None };
        if self.ticks.is_empty() {
            self.place_ticks(&mut scale, most.max(2));
        } else {
            scale.ticks.clone_from(&self.ticks);
        }
        scale
    }

    fn place_ticks(&self, scale: &mut Scale, most: usize) {
        match self.spacing {
            Spacing::Log if self.unit == Unit::Bytes => {
                let ticks = powers(2.0, scale.low, scale.high, most);
                scale.ticks = ticks.into_iter().map(|value| (value, Bytes(value.round() as u64).to_string())).collect();
                // Less than a factor of two holds no two powers of two: round steps of the unit.
                if scale.ticks.len() < 2 {
                    let (unit, name) = self.largest_unit(scale.high);
                    let values = steps(scale.low / unit, scale.high / unit, most.min(4));
                    let ticks = values.into_iter().filter(|value| *value > 0.0);
                    scale.ticks = ticks.map(|value| (value * unit, format!("{} {name}", plain(value)))).collect();
                }
            }
            Spacing::Log => {
                let ticks = decades(scale.low, scale.high, most);
                scale.ticks = ticks.into_iter().map(|value| (value, self.shown(value))).collect();
            }
            Spacing::Linear => {
                let (unit, name) = self.largest_unit(scale.low.abs().max(scale.high.abs()));
                scale.unit_shown = Some(name);
                for value in steps(scale.low / unit, scale.high / unit, most) {
                    scale.ticks.push((value * unit, plain(value)));
                }
            }
        }
    }

    /// The unit that suits the largest value of a linear axis best.
    fn largest_unit(&self, largest: f64) -> (f64, &'static str) {
        let units: &[(f64, &str)] = match self.unit {
            Unit::Bytes => &[
                (1_099_511_627_776.0, "TiB"),
                (1_073_741_824.0, "GiB"),
                (1_048_576.0, "MiB"),
                (1024.0, "KiB"),
                (1.0, "B"),
            ],
            Unit::Seconds => &[(1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns")],
            Unit::BytesPerSecond => &[(1e12, "TB/s"), (1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
            Unit::Percent => &[(1.0, "%")],
            Unit::Count => &[(1.0, "")],
        };
        // Values slightly below one still use the unit: 0.5 GB/s, not 500 MB/s, next to 0.9.
        units.iter().copied().find(|(unit, _)| largest >= *unit).unwrap_or(units[units.len() - 1])
    }

    /// A value as a sentence has it: by its custom tick, or its place among them counted from one; else with its unit.
    pub(super) fn named(&self, value: f64) -> String {
        match self.ticks.iter().find(|(at, _)| *at == value) {
            Some((_, name)) => name.clone(),
            None if !self.ticks.is_empty() => format!("{} {}", self.title, plain(value + 1.0)),
            None => self.shown(value),
        }
    }

    /// A value with its unit.
    pub(super) fn shown(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => Bytes(value.round().max(0.0) as u64).to_string(),
            Unit::Seconds => short(Seconds(value).to_string()),
            Unit::BytesPerSecond => short(Rate(value).to_string()),
            Unit::Percent => format!("{} %", three_digits(value)),
            Unit::Count => three_digits(value),
        }
    }
}

/// Removes trailing zeros: `10.0 us` becomes `10 us`.
fn short(text: String) -> String {
    let Some((number, unit)) = text.split_once(' ') else { return text };
    if !number.contains('.') {
        return text;
    }
    format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
}

/// Maps values to positions in the picture.
#[derive(Clone, Debug)]
pub(super) struct Scale {
    spacing: Spacing,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    pub ticks: Vec<(f64, String)>,
    /// Unit of bare numbers at the ticks.
    pub unit_shown: Option<&'static str>,
}

impl Scale {
    pub fn place(&self, value: f64) -> f64 {
        let share = match self.spacing {
            Spacing::Linear => (value - self.low) / (self.high - self.low),
            Spacing::Log => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }
}

fn padded_log(low: f64, high: f64) -> (f64, f64) {
    let padding = ((high / low).ln() * 0.04).max(0.1).exp();
    (low / padding, high * padding)
}

/// Powers of a base within the range, thinned to every n-th so that there are at most `most`.
fn powers(base: f64, low: f64, high: f64, most: usize) -> Vec<f64> {
    let first = (low.ln() / base.ln()).ceil() as i32;
    let last = (high.ln() / base.ln()).floor() as i32;
    let step = [1, 2, 4, 5, 10, 20].into_iter().find(|step| (last - first) / step < most as i32).unwrap_or(40);
    (first..=last).filter(|exponent| exponent.rem_euclid(step) == 0).map(|exponent| base.powi(exponent)).collect()
}

/// Powers of ten, with 2 and 5 between them where there is room, and round steps where the span is small.
fn decades(low: f64, high: f64, most: usize) -> Vec<f64> {
    let first = low.log10().floor() as i32;
    let last = high.log10().ceil() as i32;
    for digits in [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]] {
        let all = (first..=last).flat_map(|exponent| digits.iter().map(move |digit| ten_to(exponent, *digit)));
        let inside: Vec<f64> = all.filter(|value| (low..=high).contains(value)).collect();
        if inside.len() < 2 && digits.len() == 3 {
            return steps(low, high, most.min(4)).into_iter().filter(|value| *value > 0.0).collect();
        }
        if inside.len() <= most {
            return inside;
        }
    }
    powers(10.0, low, high, most)
}

/// Exact powers of ten: 1e-6 and not 9.999e-7.
fn ten_to(exponent: i32, digit: f64) -> f64 {
    if exponent < 0 { digit / 10f64.powi(-exponent) } else { digit * 10f64.powi(exponent) }
}

/// Multiples of 1, 2 or 5 times a power of ten within the range.
fn steps(low: f64, high: f64, most: usize) -> Vec<f64> {
    let rough = (high - low) / most as f64;
    if rough <= 0.0 || !rough.is_finite() {
        return vec![low];
    }
    let exponent = rough.log10().floor() as i32;
    let step = [(1.0, 0), (2.0, 0), (5.0, 0), (1.0, 1)]
        .into_iter()
        .map(|(digit, more)| ten_to(exponent + more, digit))
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(rough);
    let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
    (first..=last).map(|index| index as f64 * step).collect()
}

/// The number of a tick, with the fewest digits.
fn plain(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}
