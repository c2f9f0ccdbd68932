//! Whether the cost model finds the parameters of synthetic measurements, within the intervals that it reports.

use commgauge::collective::Collective;
use commgauge::cost::{
    Breakpoint, CurveKey, FamilyKey, FitOptions, Labels, Measured, Measurements, Place, contention, fit,
};
use commgauge::sample::Cadence;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const RUNS: u32 = 500;
const REPLICATES: usize = 7;

fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let mut uniform = || 1.0 - random.random::<f64>();
    (-2.0 * uniform().ln()).sqrt() * (2.0 * std::f64::consts::PI * uniform()).cos()
}

/// One measurement of a time: 3 % noise, and one in twenty two to five times too slow.
fn measured_once(time: f64, random: &mut Xoshiro256PlusPlus) -> f64 {
    let slow = if random.random::<f64>() < 0.05 { 2.0 + 3.0 * random.random::<f64>() } else { 1.0 };
    time * slow * (0.03 * normal(random)).exp()
}

fn family(groups: u32) -> FamilyKey {
    FamilyKey {
        collective: Collective::AllGather,
        element_type: None,
        cadence: Cadence::Streaming,
        place: Place { nodes_spanned: 2, concurrent_groups_per_node: groups, stride: 1 },
        labels: Labels::new(),
    }
}

/// Two lines that intersect between 256 KiB and 4 MiB.
struct Truth {
    alpha: f64,
    steep: f64,
    flat: f64,
    meet: f64,
}

impl Truth {
    fn drawn(random: &mut Xoshiro256PlusPlus) -> Truth {
        let alpha = 5e-6 * (1.5 * random.random::<f64>()).exp();
        let steep = (1.0 / 10e9) * (random.random::<f64>()).exp();
        let flat = steep / (3.0 + 5.0 * random.random::<f64>());
        Truth { alpha, steep, flat, meet: 262_144.0 * 16f64.powf(random.random::<f64>()) }
    }

    /// Latency and bandwidth part of a time.
    fn parts(&self, bytes: f64) -> (f64, f64) {
        let second = self.alpha + (self.steep - self.flat) * self.meet;
        if bytes < self.meet { (self.alpha, self.steep * bytes) } else { (second, self.flat * bytes) }
    }
}

fn measured(random: &mut Xoshiro256PlusPlus, seconds: impl Fn(f64) -> f64) -> Measured {
    let sizes = (9..30).map(|power| 1u64 << power);
    sizes
        .map(|bytes| (bytes, (0..REPLICATES).map(|_| measured_once(seconds(bytes as f64), random)).collect()))
        .collect()
}

fn is_in(low: f64, high: f64, truth: f64) -> u32 {
    u32::from((low..=high).contains(&truth))
}

#[test]
fn alpha_bandwidth_and_breakpoint_lie_in_their_intervals_in_93_of_100_runs() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2026);
    let mut all = Measurements::default();
    let mut truths = Vec::new();
    for run in 0..RUNS {
        let truth = Truth::drawn(&mut random);
        let curve = measured(&mut random, |bytes| truth.parts(bytes).0 + truth.parts(bytes).1);
        all.curves.insert(CurveKey { family: family(1), ranks: run + 2 }, curve);
        truths.push(truth);
    }
    let fitted = fit(&all, FitOptions { resamples: 200, ..FitOptions::default() }).expect("a fit");
    let (mut alphas, mut bandwidths, mut breakpoints) = (0, 0, 0);
    for (curve, truth) in fitted.families[0].curves.iter().zip(&truths) {
        let (low, high) = (curve.alpha_seconds_low.unwrap().0, curve.alpha_seconds_high.unwrap().0);
        alphas += is_in(low, high, truth.alpha);
        let (low, high) = (curve.bytes_per_second_low.unwrap().0, curve.bytes_per_second_high.unwrap().0);
        bandwidths += is_in(low, high, 1.0 / truth.flat);
        let found = |point: &Breakpoint| is_in(point.low.unwrap_or(0.0), point.high.unwrap_or(0.0), truth.meet);
        breakpoints += curve.breakpoints.iter().map(found).max().unwrap_or(0);
    }
    eprintln!("alpha in {alphas}, bandwidth in {bandwidths}, breakpoint in {breakpoints} of {RUNS} runs");
    let enough = RUNS * 93 / 100;
    assert!(alphas >= enough && bandwidths >= enough && breakpoints >= enough);
}

#[test]
fn contention_is_within_its_intervals_in_93_of_100_runs() {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2027);
    let (mut latencies, mut bandwidths) = (0, 0);
    for _ in 0..RUNS {
        let truth = Truth::drawn(&mut random);
        let (of_latency, of_bandwidth) = (0.3 * random.random::<f64>(), 0.3 + 0.7 * random.random::<f64>());
        let mut all = Measurements::default();
        for groups in [1, 2, 8] {
            let times = |bytes: f64| {
                let ((latency, bandwidth), more) = (truth.parts(bytes), f64::from(groups));
                latency * more.powf(of_latency) + bandwidth * more.powf(of_bandwidth)
            };
            let curve = measured(&mut random, times);
            all.curves.insert(CurveKey { family: family(groups), ranks: 4 }, curve);
        }
        let fitted = contention(&all, FitOptions { resamples: 200, ..FitOptions::default() });
        let [found] = fitted.as_slice() else { panic!("{fitted:?}") };
        let (latency, bandwidth) = (found.latency_exponent.unwrap(), found.bandwidth_exponent.unwrap());
        latencies += is_in(latency.low.unwrap(), latency.high.unwrap(), of_latency);
        bandwidths += is_in(bandwidth.low.unwrap(), bandwidth.high.unwrap(), of_bandwidth);
    }
    eprintln!("exponent of latency in {latencies}, of bandwidth in {bandwidths} of {RUNS} runs");
    let enough = RUNS * 93 / 100;
    assert!(latencies >= enough && bandwidths >= enough);
}
