//! Slow pairs: those further from the median of their locality than the scatter of all its pairs explains.
//!
//! A value counts as slow where both conditions are met in every replicate, so that a passing disturbance is ignored:
//! * it is worse than the median by more than 10 % (a rate below 90 %, a time above 111 %), and
//! * in logarithms it is more than k robust standard deviations from the median. The deviation is 1.4826 times the
//!   median of the absolute distances from the median (F. R. Hampel, "The influence curve and its role in robust
//!   estimation", Journal of the American Statistical Association 69 (1974)), and at least 1 %, which is the
//!   repeatability of measurements. k = z (1 + 12 / (n - 1)) for n pairs, where z is the normal quantile that c
//!   comparisons together pass by chance with 1 % (Bonferroni: 0.01 / c each). The last factor corrects for the
//!   uncertainty of the scatter of few pairs; tuned by simulation, checked by a test.

use super::view::{Measure, PairLocality, PairValue, PairsView, SlowPair};
use commgauge_base::stats::{median, sorted, upper_normal_quantile};
use commgauge_base::units::counted;

/// False-alarm probability over all comparisons of a record with healthy pairs.
const CHANCE: f64 = 0.01;
/// Values nearer to the median than this are ignored.
const MIN_SHARE: f64 = 0.9;
/// Lower bound on the standard deviation of a logarithm.
const MIN_DEVIATION: f64 = 0.01;
/// Growth of k where the scatter is estimated from few pairs.
const FEW_PAIRS: f64 = 12.0;
/// Minimum number of pairs of a locality for one of them to be an outlier.
pub(super) const MIN_PAIRS: usize = 3;
/// From the median of absolute distances to the standard deviation of a normal distribution.
const MEDIAN_DISTANCE_TO_DEVIATION: f64 = 1.4826;
/// Maximum number of findings that name a pair.
const MAX_NAMED: usize = 20;

/// How many values were compared, and those that are slow, the worst first.
pub(super) fn slow_pairs(view: &PairsView) -> (usize, Vec<SlowPair>) {
    let classes: Vec<(Measure, Vec<Member>)> = PairLocality::ALL
        .into_iter()
        .flat_map(|locality| Measure::ALL.map(|measure| (measure, goodness_of(view, locality, measure))))
        .filter(|(_, members)| members.len() >= MIN_PAIRS)
        .collect();
    let compared = classes.iter().map(|(_, members)| members.len()).sum();
    let mut slow: Vec<SlowPair> = Vec::new();
    for (measure, members) in &classes {
        let (deviations, allowed) = deviations(members, compared);
        let found = members.iter().zip(deviations).filter_map(|(member, deviations)| {
            Some(SlowPair { pair: member.pair, measure: *measure, deviations: deviations?, allowed })
        });
        slow.extend(found);
    }
    let share = |slow: &SlowPair| {
        view.pairs[slow.pair].values[slow.measure as usize].map_or(0.0, |value| slow.measure.goodness(value.percent))
    };
    slow.sort_by(|one, other| share(one).total_cmp(&share(other)));
    (compared, slow)
}

/// A pair of a class: logarithms, the larger the better.
struct Member {
    pair: usize,
    middle: f64,
    best: f64,
}

fn goodness_of(view: &PairsView, locality: PairLocality, measure: Measure) -> Vec<Member> {
    let pairs = view.pairs.iter().enumerate().filter(|(_, pair)| pair.locality == locality && !pair.shares_device);
    let member = |(pair, value): (usize, PairValue)| {
        let goodness = |of: f64| if measure == Measure::Latency { -of.ln() } else { of.ln() };
        Member { pair, middle: goodness(value.value), best: goodness(value.best) }
    };
    pairs.filter_map(|(index, pair)| Some((index, pair.values[measure as usize]?))).map(member).collect()
}

/// For each slow member its distance below the median in standard deviations; and the allowed distance.
fn deviations(members: &[Member], compared: usize) -> (Vec<Option<f64>>, f64) {
    let pairs = members.len() as f64;
    let allowed = upper_normal_quantile(CHANCE / compared.max(1) as f64) * (1.0 + FEW_PAIRS / (pairs - 1.0).max(1.0));
    let Some(middle) = median(&sorted(members.iter().map(|member| member.middle))) else {
        return (Vec::new(), allowed);
    };
    let distances = sorted(members.iter().map(|member| (member.middle - middle).abs()));
    let deviation = median(&distances).map_or(0.0, |distance| distance * MEDIAN_DISTANCE_TO_DEVIATION);
    let deviation = deviation.max(MIN_DEVIATION);
    let slow = |member: &Member| {
        let below = middle - member.best;
        (below > -MIN_SHARE.ln() && below > allowed * deviation).then_some(below / deviation)
    };
    (members.iter().map(slow).collect(), allowed)
}

/// The sentences of the report.
pub(super) fn findings(view: &PairsView) -> Vec<String> {
    let sharing = view.pairs.iter().filter(|pair| pair.shares_device).count();
    let of_sharing = (sharing > 0).then(|| {
        format!("{} of ranks that share a GPU: not compared, as no link is between them", counted(sharing, "pair"))
    });
    if view.compared == 0 {
        let none = format!("no locality has {MIN_PAIRS} measured pairs, so no pair can be called slow");
        return of_sharing.into_iter().chain([none]).collect();
    }
    let mut named: Vec<usize> = Vec::new();
    for slow in &view.slow {
        if !named.contains(&slow.pair) {
            named.push(slow.pair);
        }
    }
    let rule = format!(
        "{} values of pairs were compared with those of the same locality; slow is what is in every replicate worse than \
         the median by more than 10 % and by more than the scatter of all explains (robust, 1 % chance of any false alarm)",
        view.compared
    );
    let mut findings = vec![match named.len() {
        0 => format!("no pair is slow: {rule}"),
        1 => format!("1 pair is slow: {rule}"),
        pairs => format!("{pairs} pairs are slow: {rule}"),
    }];
    findings.extend(of_sharing);
    findings.extend(named.iter().take(MAX_NAMED).map(|pair| sentence(view, *pair)));
    if named.len() > MAX_NAMED {
        findings.push(format!("{} more pairs are slow; --format json lists them all", named.len() - MAX_NAMED));
    }
    findings
}

fn sentence(view: &PairsView, index: usize) -> String {
    let pair = &view.pairs[index];
    let (a, b) = (&view.ranks[pair.a], &view.ranks[pair.b]);
    let hosts = match pair.locality {
        PairLocality::SameHost => format!("on {}", a.host),
        PairLocality::DifferentHosts => format!("on {} and {}", a.host, b.host),
    };
    let of_pair = view.slow.iter().filter(|slow| slow.pair == index);
    let measures: Vec<String> = of_pair
        .filter_map(|slow| {
            let value = pair.values[slow.measure as usize]?;
            let (name, shown) = (slow.measure.name(), slow.measure.shown(value.value));
            Some(format!("{name} {shown}, {:.0} % of the median", value.percent))
        })
        .collect();
    format!("ranks {} and {} {hosts} are slow: {}", a.rank, b.rank, measures.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::stats::shapes::{Shape, draw};
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Abramowitz and Stegun, table 26.5.
        for (probability, quantile) in [(0.01, 2.326_35), (0.001, 3.090_23), (1e-5, 4.264_89), (1e-7, 5.199_34)] {
            assert!((upper_normal_quantile(probability) - quantile).abs() < 4.5e-4, "{probability}");
        }
    }

    fn slow_members(values: &[f64]) -> Vec<usize> {
        let member = |(pair, value): (usize, &f64)| Member { pair, middle: *value, best: *value };
        let members: Vec<Member> = values.iter().enumerate().map(member).collect();
        let (deviations, _) = deviations(&members, 3 * values.len());
        (0..values.len()).filter(|index| deviations[*index].is_some()).collect()
    }

    fn noise(pairs: usize, deviation: f64, seed: u64) -> Vec<f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        (0..pairs).map(|_| draw(Shape::LogNormal(deviation), &mut random).ln()).collect()
    }

    #[test]
    fn healthy_pairs_are_called_slow_in_less_than_2_of_100_runs() {
        for pairs in [3usize, 6, 10, 28, 120] {
            for deviation in [0.02, 0.05, 0.1] {
                // Each of three measures as in a run.
                let runs_with_findings = (0..1000).filter(|run| {
                    (0..3).any(|measure| {
                        !slow_members(&noise(pairs, deviation, run * 7 + measure * 1_000_003)).is_empty()
                    })
                });
                let count = runs_with_findings.count();
                assert!(count <= 20, "{pairs} pairs, noise {deviation}: {count} of 1000");
            }
        }
    }

    #[test]
    fn a_link_at_a_quarter_is_found_and_nothing_else() {
        for pairs in [6usize, 15, 28, 120, 2016] {
            let mut others = 0;
            for run in 0..100 {
                let mut values = noise(pairs, 0.03, run);
                let slow_pair = run as usize % pairs;
                values[slow_pair] += 0.25f64.ln();
                let found = slow_members(&values);
                assert!(found.contains(&slow_pair), "{pairs} pairs, run {run}");
                others += usize::from(found.len() > 1);
            }
            assert!(others <= 2, "{pairs} pairs: others were suspected in {others} of 100 runs");
        }
    }

    #[test]
    fn a_deviation_within_10_per_cent_is_ignored_however_small_the_scatter() {
        let mut values = vec![0.0; 28];
        values[3] = 0.91f64.ln();
        assert_eq!(slow_members(&values), Vec::<usize>::new());
        values[3] = 0.8f64.ln();
        assert_eq!(slow_members(&values), [3]);
    }
}
