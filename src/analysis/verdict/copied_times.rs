//! Replicates that hold the very same times: one log imported under two names, or lines that were copied. They say no more than one.

use super::loaded_record::LoadedRecord;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::line::Outcome;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// In fewer rows two measurements may agree to the last digit by chance, as other tools print few.
pub(super) const FEWEST_ROWS: u32 = 4;

/// The times of a replicate, whatever the order of its rows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
struct Times {
    rows: u32,
    sum_of_hashes: u64,
}

/// A sentence for the first two replicates of the records that are copies of each other. A simulation without noise repeats itself.
pub(super) fn copies<'a>(records: impl IntoIterator<Item = &'a LoadedRecord>) -> Option<String> {
    let mut seen: HashMap<Times, String> = HashMap::new();
    for LoadedRecord { path, record } in records.into_iter().filter(|loaded| !loaded.record.header.backend.synthetic) {
        let mut times_of: HashMap<u32, Times> = HashMap::new();
        let cases = record.cases.iter().map(|line| {
            (Cow::Borrowed(&*line.name), line.replicate, &line.outcome, line.samples.slowest_nanoseconds.as_slice())
        });
        let copies = record.copies.iter().map(|line| {
            (Cow::Owned(line.copy.name()), line.replicate, &line.outcome, line.slowest_nanoseconds.as_slice())
        });
        let products = record.products.iter().map(|line| {
            (Cow::Owned(line.product.name()), line.replicate, &line.outcome, line.slowest_nanoseconds.as_slice())
        });
        let all = cases.chain(copies).chain(products);
        for (name, replicate, _, nanoseconds) in
            all.filter(|(_, _, outcome, _)| matches!(outcome, Outcome::Measured { .. }))
        {
            let mut hasher = DefaultHasher::new();
            (name, nanoseconds).hash(&mut hasher);
            let times = times_of.entry(replicate).or_default();
            times.rows += 1;
            times.sum_of_hashes = times.sum_of_hashes.wrapping_add(hasher.finish());
        }
        let mut of_record: Vec<(u32, Times)> =
            times_of.into_iter().filter(|(_, times)| times.rows >= FEWEST_ROWS).collect();
        of_record.sort_unstable_by_key(|(replicate, _)| *replicate);
        for (replicate, times) in of_record {
            let place = format!("replicate {replicate} of {}", path.shown());
            if let Some(twin) = seen.get(&times) {
                return Some(format!(
                    "{twin} and {place} hold the same times in all {} rows: a copy is no replicate",
                    times.rows
                ));
            }
            seen.insert(times, place);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, loaded};
    use super::*;

    #[test]
    fn copies_are_named_within_a_record_and_between_two_and_chance_is_none() {
        let rows = |more: f64, count: usize| {
            (0..count)
                .map(|row| (0..5).map(|replicate| 100.0 + more + (row * 7 + replicate) as f64).collect())
                .collect::<Vec<Vec<f64>>>()
        };
        let record = |id: &str, rows: &[Vec<f64>]| loaded(&format!("{id}.jsonl"), lines(id, rows));
        assert_eq!(copies(&[record("a", &rows(0.0, 4)), record("b", &rows(0.5, 4))]), None);
        let text = copies(&[record("a", &rows(0.0, 4)), record("b", &rows(0.0, 4))]).expect("a copy");
        assert_eq!(
            text,
            "replicate 0 of a.jsonl and replicate 0 of b.jsonl hold the same times in all 4 rows: a copy is no replicate"
        );
        let mut twice = rows(0.0, 4);
        twice.iter_mut().for_each(|row| row[3] = row[1]);
        assert!(
            copies(&[record("a", &twice)]).expect("a copy").starts_with("replicate 1 of a.jsonl and replicate 3 of")
        );
        twice.truncate(3);
        assert_eq!(copies(&[record("a", &twice)]), None);
    }
}
