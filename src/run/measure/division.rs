//! Divides the remaining time of a run among its cases by the widths of their intervals. Computes on plain numbers,
//! without I/O.
//!
//! Only widths and costs decide which case gets more time, never whether a value is large or small, and what is then
//! measured is a new, independent replicate. So the division does not bias any median.

use commgauge_base::stats::MIN_FOR_INTERVAL;
use commgauge_base::units::Seconds;

/// A further replicate of a wide case has at least this multiple of the samples of the previous one: fewer would hardly narrow the
/// interval.
const MIN_SAMPLES_FACTOR: f64 = 2.0;
/// A second replicate of a precise case may take this multiple of the time of the first.
const MAX_REPEAT_TIME_FACTOR: f64 = 2.0;
/// Second replicates of precise cases get at most this share of the time while others are not precise.
const SHARE_TO_REPEAT: f64 = 0.5;
/// Bisection steps of the search for the common width.
const STEPS: u32 = 50;

/// Results of a case after a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaseState {
    /// Whether sampling ended because the requested precision was reached.
    pub reached: bool,
    /// Half width of the median's 95 % interval, relative to the median; an estimate if there are too few samples for
    /// an interval.
    pub half_width: f64,
    /// Number of valid samples.
    pub samples: u32,
    /// Duration of sampling.
    pub sampling_seconds: f64,
    /// Time of the visit besides sampling: buffers, checks, warm-up.
    pub overhead_seconds: f64,
}

impl CaseState {
    fn seconds_per_sample(&self) -> f64 {
        self.sampling_seconds / f64::from(self.samples.max(1))
    }

    /// Duration of sampling until the interval is this narrow: the width is inversely proportional to the root of the
    /// number of samples.
    fn sampling_to(&self, half_width: f64) -> f64 {
        let times = (self.half_width / half_width).powi(2).max(MIN_SAMPLES_FACTOR);
        self.seconds_per_sample() * (f64::from(self.samples) * times).max(MIN_FOR_INTERVAL as f64)
    }

    fn minimum_cost(&self) -> f64 {
        self.overhead_seconds + self.sampling_to(f64::INFINITY)
    }

    fn repeat_cost(&self) -> f64 {
        self.overhead_seconds + self.sampling_seconds
    }
}

/// The time for sampling that each case gets in its next replicate; `None` if it gets none.
///
/// Cases that have the requested precision get a second replicate, the cheapest first, for at most half of the time. With the rest, all
/// wider ones are brought to one common width, as narrow as the time allows and no narrower than requested; the remaining time goes to
/// further second replicates. A case whose shortest visit takes longer than the remaining time is left out. Leftover time lengthens second
/// replicates of precise cases by one factor: they end once they are precise, and the first replicate may have been precise early by
/// chance. Replicates of wider cases are not lengthened; their number of samples is fixed in advance, because an interval whose narrowness
/// ended sampling covers the median a little less often.
pub fn divide(left: Seconds, requested: f64, cases: &[CaseState]) -> Vec<Option<Seconds>> {
    let mut budgets = vec![None; cases.len()];
    let mut left = left.0.max(0.0);
    let mut precise: Vec<usize> = (0..cases.len()).filter(|index| cases[*index].reached).collect();
    precise.sort_by(|a, b| cases[*a].repeat_cost().total_cmp(&cases[*b].repeat_cost()));
    let mut precise = precise.into_iter().peekable();
    let mut repeat = |left: &mut f64, share: f64, budgets: &mut [Option<Seconds>]| {
        let mut for_these = *left * share;
        while let Some(index) = precise.next_if(|index| cases[*index].repeat_cost() <= for_these) {
            for_these -= cases[index].repeat_cost();
            *left -= cases[index].repeat_cost();
            budgets[index] = Some(Seconds(cases[index].sampling_seconds * MAX_REPEAT_TIME_FACTOR));
        }
    };
    repeat(&mut left, SHARE_TO_REPEAT, &mut budgets);
    let wide: Vec<usize> =
        (0..cases.len()).filter(|index| !cases[*index].reached && cases[*index].minimum_cost() <= left).collect();
    let width_of = |index: usize| cases[index].half_width.max(requested);
    let cost = |width: f64| -> f64 {
        let visited = wide.iter().filter(|index| is_wider(width_of(**index), width, requested));
        visited.map(|index| cases[*index].overhead_seconds + cases[*index].sampling_to(width)).sum()
    };
    let widest = wide.iter().map(|index| width_of(*index)).fold(requested, f64::max);
    let width = narrowest(requested, widest, |width| cost(width) <= left);
    left -= cost(width);
    for index in wide.iter().copied().filter(|index| is_wider(width_of(*index), width, requested)) {
        budgets[index] = Some(Seconds(cases[index].sampling_to(width)));
    }
    repeat(&mut left, 1.0, &mut budgets);
    let mut repeats: Vec<&mut Seconds> = budgets
        .iter_mut()
        .zip(cases)
        .filter(|(_, case)| case.reached)
        .filter_map(|(budget, _)| budget.as_mut())
        .collect();
    let expected: f64 = repeats.iter().map(|budget| budget.0 / MAX_REPEAT_TIME_FACTOR).sum();
    if expected > 0.0 && left > 0.0 {
        repeats.iter_mut().for_each(|budget| budget.0 *= 1.0 + left / expected);
    }
    budgets
}

/// The division after the last planned round: all of the time goes to cases that are not precise yet.
pub fn divide_rest(left: Seconds, requested: f64, cases: &[CaseState]) -> Vec<Option<Seconds>> {
    let wide: Vec<usize> = (0..cases.len()).filter(|index| !cases[*index].reached).collect();
    let states: Vec<CaseState> = wide.iter().map(|index| cases[*index]).collect();
    let mut budgets = vec![None; cases.len()];
    for (index, budget) in wide.into_iter().zip(divide(left, requested, &states)) {
        budgets[index] = budget;
    }
    budgets
}

/// Whether a case that is not precise gets a visit at a common width. At the requested width all do: an interval from too few samples may
/// be narrow by chance, which is not a reason to stop.
fn is_wider(half_width: f64, common: f64, requested: f64) -> bool {
    half_width > common || common <= requested
}

/// The narrowest width that fits, found by bisection.
fn narrowest(requested: f64, widest: f64, fits: impl Fn(f64) -> bool) -> f64 {
    if fits(requested) {
        return requested;
    }
    let (mut too_narrow, mut wide) = (requested, widest.max(requested * (1.0 + f64::EPSILON)));
    for _ in 0..STEPS {
        let middle = (too_narrow * wide).sqrt();
        if fits(middle) {
            wide = middle;
        } else {
            too_narrow = middle;
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::super::stop::{Decision, Progress, StopRule, precision_reached};
    use super::*;
    use commgauge_base::sample::Cadence;
    use commgauge_base::stats::{median_interval, sorted};
    use commgauge_base::testing::{Shape, draw};
    use commgauge_model::config::RunSettings;
    use commgauge_model::record::line::StopReason;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// 10 samples in 0.1 s, and the same time besides sampling.
    fn state(half_width: f64) -> CaseState {
        CaseState { reached: false, half_width, samples: 10, sampling_seconds: 0.1, overhead_seconds: 0.1 }
    }

    fn precise() -> CaseState {
        CaseState { reached: true, ..state(0.01) }
    }

    fn budgets(left: f64, cases: &[CaseState]) -> Vec<Option<f64>> {
        divide(Seconds(left), 0.02, cases).into_iter().map(|budget| budget.map(|budget| budget.0)).collect()
    }

    #[test]
    fn without_time_no_case_gets_any_and_with_plenty_all_reach_the_requested_precision() {
        let cases = [state(0.04), precise(), state(0.2)];
        for left in [-1.0, 0.0, 0.05] {
            assert_eq!(budgets(left, &cases), [None, None, None], "{left} s");
        }
        // Half the width takes four times the samples, a tenth a hundred times; and three visits cost 0.3 s besides sampling.
        let just_enough = 0.4 + 0.1 + 10.0 + 0.3 + 1e-9;
        for (left, repeat) in
            [(just_enough, 0.2), (just_enough + 0.4, 0.2 * 5.0), (just_enough + 1e4, 0.2 * (1.0 + 1e5))]
        {
            for (budget, expected) in budgets(left, &cases).into_iter().zip([0.4, repeat, 10.0]) {
                assert!((budget.unwrap() / expected - 1.0).abs() < 1e-6, "{left} s: {budget:?} is not {expected}");
            }
        }
    }

    #[test]
    fn the_widest_come_first_and_all_that_get_time_reach_one_width() {
        let cases = [state(0.05), state(0.4), state(0.1), state(0.8)];
        let given = budgets(3.0, &cases);
        assert_eq!(given[0], None, "narrower than what the time allows for the others");
        let width = |case: usize| cases[case].half_width / (given[case].unwrap() / 0.1).sqrt();
        assert!((width(1) - width(3)).abs() < 1e-6, "{given:?}");
        assert!(given[3] > given[1]);
    }

    #[test]
    fn one_case_that_would_take_all_the_time_starves_no_other() {
        let endless = CaseState { sampling_seconds: 50.0, overhead_seconds: 30.0, ..state(0.9) };
        let given = budgets(5.0, &[endless, state(0.1), precise()]);
        assert!(given[0].is_none() && given[1].is_some() && given[2].is_some(), "{given:?}");
    }

    #[test]
    fn second_replicates_of_precise_cases_take_half_of_the_time_while_others_are_wide() {
        let given = budgets(2.0, &[&[precise(); 20][..], &[state(0.5)]].concat());
        // 1 s is 5 visits of 0.2 s; the wide one gets the rest.
        assert_eq!(given[..20].iter().flatten().count(), 5);
        assert!(given[20].unwrap() > 0.8, "{given:?}");
        assert_eq!(budgets(2.1, &[precise(); 20]).iter().flatten().count(), 10, "and all of it if none is");
    }

    #[test]
    fn what_is_left_after_the_last_round_is_for_cases_that_are_not_precise_as_long_as_a_visit_fits() {
        let rest = |left: f64, cases: &[CaseState]| -> Vec<Option<f64>> {
            divide_rest(Seconds(left), 0.02, cases).into_iter().map(|budget| budget.map(|budget| budget.0)).collect()
        };
        for left in [0.0, 5.9, 1e4] {
            assert_eq!(rest(left, &[precise(), precise()]), [None, None], "{left} s");
        }
        assert_eq!(rest(0.29, &[state(0.04), precise()]), [None, None], "twice the samples do not fit");
        // Half the width takes four times the samples.
        let given = rest(5.9, &[precise(), state(0.04), precise()]);
        assert!(given[0].is_none() && given[2].is_none() && (given[1].unwrap() - 0.4).abs() < 1e-6, "{given:?}");
        let given = rest(0.35, &[state(0.4), state(0.04)]);
        assert!(given[0].is_some() && given[1].is_none(), "the widest first: {given:?}");
    }

    #[test]
    fn an_interval_that_is_narrow_by_luck_is_no_reason_to_stop() {
        let lucky = state(0.001);
        assert!(budgets(10.0, &[lucky])[0].is_some());
    }

    proptest! {
        #[test]
        fn what_is_given_out_is_never_more_than_there_is_and_does_not_hang_on_the_order(
            left in 0.0..100.0f64,
            cases in proptest::collection::vec((any::<bool>(), 1e-4..2.0f64, 0u32..200, 1e-6..3.0f64, 0.0..1.0f64), 0..40),
        ) {
            let cases: Vec<CaseState> = cases
                .into_iter()
                .map(|(reached, half_width, samples, sampling_seconds, overhead_seconds)| CaseState {
                    reached, half_width, samples, sampling_seconds, overhead_seconds,
                })
                .collect();
            let given = budgets(left, &cases);
            let planned: f64 = given.iter().zip(&cases).filter_map(|(budget, case)| {
                let sampling = budget.as_ref()? / if case.reached { MAX_REPEAT_TIME_FACTOR } else { 1.0 };
                Some(case.overhead_seconds + sampling)
            }).sum();
            prop_assert!(planned <= left * (1.0 + 1e-9), "{planned} of {left}");
            let backwards: Vec<CaseState> = cases.iter().rev().copied().collect();
            let mut again = budgets(left, &backwards);
            again.reverse();
            let distinct = cases.iter().all(|a| cases.iter().filter(|b| *b == a).count() == 1);
            for (one, other) in given.iter().zip(&again).filter(|_| distinct) {
                let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * a.abs().max(*b);
                prop_assert!(one.as_ref().zip(other.as_ref()).map_or(one.is_none() && other.is_none(), close));
            }
        }
    }

    /// Samples until the stop rule ends, at a second each.
    fn sampled(budget: Seconds, shape: Shape, random: &mut Xoshiro256PlusPlus) -> (Vec<f64>, StopReason) {
        let settings = RunSettings { case_budget: budget, ..RunSettings::default() };
        let mut rule = StopRule::new(&settings, None, Cadence::Isolated);
        let mut samples = Vec::new();
        loop {
            let progress = Progress {
                valid: &samples,
                taken: samples.len() as u32,
                elapsed_seconds: samples.len() as f64,
                seconds_per_sample: 1.0,
                interrupted: false,
            };
            match rule.decide(&progress) {
                Decision::Continue(count) => samples.extend((0..count).map(|_| draw(shape, random))),
                Decision::Stop(reason) => return (samples, reason),
            }
        }
    }

    #[test]
    fn the_interval_that_is_reported_covers_the_true_median_in_93_to_97_per_cent_of_2000_divisions() {
        for (shape, first, left) in [
            (Shape::LogNormal(0.2), 12.0, 100.0),
            (Shape::LogNormal(0.05), 40.0, 300.0),
            (Shape::Exponential(1.0), 8.0, 60.0),
            (Shape::ThreeHumps(0.2), 20.0, 200.0),
        ] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
            let mut covered = 0u32;
            for _ in 0..2000 {
                let (samples, stop) = sampled(Seconds(first), shape, &mut random);
                let state = CaseState {
                    reached: stop == StopReason::Precision,
                    half_width: precision_reached(&samples).unwrap(),
                    samples: samples.len() as u32,
                    sampling_seconds: samples.len() as f64,
                    overhead_seconds: 0.0,
                };
                // A case that was not precise is measured again, and the longer replicate replaces the short one.
                let counted = match divide(Seconds(left), 0.02, &[state])[0] {
                    Some(budget) if !state.reached => sampled(budget, shape, &mut random).0,
                    _ => samples,
                };
                let interval = median_interval(&sorted(counted), 0.95).unwrap();
                covered += u32::from(interval.low <= 1.0 && 1.0 <= interval.high);
            }
            let share = f64::from(covered) / 2000.0;
            assert!((0.93..=0.97).contains(&share), "{shape:?} after {first} samples: covered in {share}");
        }
    }
}
