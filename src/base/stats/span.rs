//! Interval arithmetic on a number and its interval: sums, multiples, quotients and comparisons.
//!
//! Intervals are added end by end, so that results are conservative: possibly too wide, never too narrow.

use super::Interval;
use std::cmp::Ordering;

/// A number and its interval; `None` where there are too few samples for one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The estimate.
    pub middle: f64,
    /// The interval that contains it.
    pub interval: Option<Interval>,
}

impl Span {
    /// An exactly known number, such as a number of bytes.
    pub fn exact(value: f64) -> Span {
        Span { middle: value, interval: Some(Interval { low: value, high: value }) }
    }

    /// The number and both ends through an ascending function.
    pub fn map(self, ascending: impl Fn(f64) -> f64) -> Span {
        Span { middle: ascending(self.middle), interval: self.interval.map(|interval| interval.map(&ascending)) }
    }

    /// The product with a factor.
    pub fn times(self, factor: f64) -> Span {
        let interval = self.interval.map(|i| Interval { low: i.low * factor, high: i.high * factor });
        Span { middle: self.middle * factor, interval }
    }

    /// The sum.
    pub fn plus(self, other: Span) -> Span {
        let interval = self.interval.zip(other.interval);
        let interval = interval.map(|(a, b)| Interval { low: a.low + b.low, high: a.high + b.high });
        Span { middle: self.middle + other.middle, interval }
    }

    /// The difference.
    pub fn minus(self, other: Span) -> Span {
        let interval = self.interval.zip(other.interval);
        let interval = interval.map(|(a, b)| Interval { low: a.low - b.high, high: a.high - b.low });
        Span { middle: self.middle - other.middle, interval }
    }

    /// The quotient of two positive numbers; `None` where one of them is not. Without an interval where one of them may be
    /// zero or less.
    pub fn over(self, other: Span) -> Option<Span> {
        if self.middle <= 0.0 || other.middle <= 0.0 {
            return None;
        }
        let positive = |interval: &Interval| interval.low > 0.0;
        let interval = self.interval.filter(positive).zip(other.interval.filter(positive));
        let interval = interval.map(|(a, b)| Interval { low: a.low / b.high, high: a.high / b.low });
        Some(Span { middle: self.middle / other.middle, interval })
    }

    /// Which is larger: equal where the intervals overlap, `None` where one of them is not known.
    pub fn compared(self, other: Span) -> Option<Ordering> {
        let (a, b) = self.interval.zip(other.interval)?;
        Some(match () {
            () if a.low > b.high => Ordering::Greater,
            () if a.high < b.low => Ordering::Less,
            () => Ordering::Equal,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(low: f64, middle: f64, high: f64) -> Span {
        Span { middle, interval: Some(Interval { low, high }) }
    }

    #[test]
    fn unknown_numbers_are_neither_compared_nor_divided_by() {
        let unknown = Span { middle: 9.0, interval: None };
        assert_eq!(unknown.compared(Span::exact(1.0)), None);
        assert_eq!(unknown.plus(Span::exact(1.0)), Span { middle: 10.0, interval: None });
        assert_eq!(Span::exact(1.0).over(Span::exact(0.0)), None);
        assert_eq!(Span::exact(1.0).over(span(-1.0, 2.0, 3.0)), Some(Span { middle: 0.5, interval: None }));
    }

    #[test]
    fn intervals_propagate_to_the_worst_end() {
        let (a, b) = (span(8.0, 10.0, 12.0), span(1.0, 2.0, 4.0));
        assert_eq!(a.plus(b), span(9.0, 12.0, 16.0));
        assert_eq!(a.minus(b), span(4.0, 8.0, 11.0));
        assert_eq!(a.over(b), Some(span(2.0, 5.0, 12.0)));
        assert_eq!(a.times(2.0), span(16.0, 20.0, 24.0));
    }

    #[test]
    fn numbers_whose_intervals_overlap_are_a_tie() {
        assert_eq!(span(1.0, 2.0, 3.0).compared(span(3.0, 4.0, 5.0)), Some(Ordering::Equal));
        assert_eq!(span(1.0, 2.0, 2.9).compared(span(3.0, 4.0, 5.0)), Some(Ordering::Less));
        assert_eq!(Span::exact(3.0).compared(Span::exact(2.0)), Some(Ordering::Greater));
        assert_eq!(Span::exact(3.0).compared(Span::exact(3.0)), Some(Ordering::Equal));
    }
}
