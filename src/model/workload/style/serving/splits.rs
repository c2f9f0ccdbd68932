//! How tokens are split over the ranks that have the experts.

use commgauge_base::geometry::Splits;

/// As even as whole tokens allow: the first ranks receive one more.
pub(super) fn splits(sent: u64, ranks: u64) -> Splits {
    if sent.is_multiple_of(ranks) {
        return Splits::Equal;
    }
    Splits::Given((0..ranks).map(|rank| sent / ranks + u64::from(rank < sent % ranks)).collect())
}
