//! What is odd about the times at which runs began: gaps, clocks that were set wrong, and texts that are no times. The order of the
//! runs is theirs, so that a reader of a change has to know of it.

use super::run_medians::RunMedians;
use commgauge_base::stats::low_median;
use jiff::Timestamp;

/// A gap is longer than this, ...
const MIN_GAP_SECONDS: f64 = 7.0 * 86_400.0;
/// ... and than so many usual intervals.
const MIN_USUAL_INTERVALS: f64 = 10.0;

/// The time at which a run began; none where the record's text is no time.
pub(super) fn time(started_at: &str) -> Option<Timestamp> {
    started_at.parse().ok()
}

/// What is odd about the times of runs in their order, as sentences.
pub(super) fn oddities(runs: &[RunMedians]) -> Vec<String> {
    let mut said: Vec<String> =
        runs.windows(2).zip(intervals(runs)).filter_map(gap(low_median(intervals(runs)))).collect();
    let without_time = runs.iter().filter(|run| time(&run.started_at).is_none());
    said.extend(without_time.map(|run| {
        format!(
            "run {} began at no time (`{}`): it stands last, and when it was is unknown",
            run.run_id, run.started_at
        )
    }));
    said
}

/// Seconds from each run to the next, as far as both have a time.
fn intervals(runs: &[RunMedians]) -> impl Iterator<Item = f64> {
    runs.windows(2).filter_map(|two| {
        let (before, after) = (time(&two[0].started_at)?, time(&two[1].started_at)?);
        Some((after.as_second() - before.as_second()) as f64)
    })
}

fn gap(usual: Option<f64>) -> impl Fn((&[RunMedians], f64)) -> Option<String> {
    move |(two, seconds)| {
        let usual = usual?;
        (seconds > MIN_GAP_SECONDS && seconds > MIN_USUAL_INTERVALS * usual).then(|| {
            format!(
                "no run for {:.0} days, between {} of {} and {} of {} (usually {:.1} days): a gap, or a clock that was set wrong",
                seconds / 86_400.0,
                two[0].run_id,
                two[0].started_at,
                two[1].run_id,
                two[1].started_at,
                usual / 86_400.0
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HistoryInput, HistoryRule, history};
    use crate::verdict::testing::{lines, loaded};

    fn of(started_at: &[&str]) -> (i32, Vec<String>) {
        let mut input = HistoryInput::default();
        for (run, started_at) in started_at.iter().enumerate() {
            let mut loaded = loaded(
                &format!("{run}.jsonl"),
                lines(&format!("run-{run}"), &[vec![100.0 + 0.1 * (run % 2) as f64; 3]]),
            );
            loaded.record.header.started_at = (*started_at).to_owned();
            input.add(&loaded.path.clone(), Ok(loaded));
        }
        let history = history(input, HistoryRule { false_alarm_level: 0.05, relevant: 0.03 });
        assert_eq!(history.lineages[0].runs.len(), started_at.len(), "nothing is lost");
        (history.exit_code, history.lineages[0].odd_times.clone())
    }

    #[test]
    fn gaps_jumps_of_the_clock_and_texts_that_are_no_time_are_named() {
        let nights: Vec<String> = (1..=8).map(|day| format!("2026-03-{day:02}T03:00:00Z")).collect();
        let nights: Vec<&str> = nights.iter().map(String::as_str).collect();
        assert_eq!(of(&nights), (0, Vec::new()));
        let (code, said) = of(&[&nights[..], &["2026-06-20T03:00:00Z", "2099-01-01T00:00:00Z"]].concat());
        assert!(code == 0 && said.len() == 2, "{said:?}");
        assert!(said[0].contains("no run for 104 days, between run-7 of 2026-03-08"), "{said:?}");
        assert!(said[1].contains("run-9 of 2099-01-01T00:00:00Z (usually 1.0 days)"), "{said:?}");
        let (code, said) = of(&[&["yesterday"], &nights[..]].concat());
        assert_eq!(
            (code, said),
            (
                3,
                vec!["run run-0 began at no time (`yesterday`): it stands last, and when it was is unknown".to_owned()]
            )
        );
    }
}
