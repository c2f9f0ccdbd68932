//! What the cost model itself costs: one prediction, and the fit of 100,000 cases. Ends with exit code 1 where either
//! takes longer than it may.

use commgauge::collective::Collective;
use commgauge::cost::{CurveKey, FamilyKey, FitOptions, Labels, Measured, Measurements, Place, Predictor, Query, fit};
use commgauge::sample::Cadence;
use commgauge::units::Bytes;
use criterion::Criterion;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

const MOST_SECONDS_PREDICT: f64 = 1e-6;
const MOST_SECONDS_FIT: f64 = 10.0;
const CASES: u64 = 100_000;

/// `curves` curves of 20 sizes each, over five group sizes and many places, with a little deterministic noise.
fn measurements(curves: u32) -> Measurements {
    let mut all = Measurements::default();
    for index in 0..curves {
        let ranks = 2 << (index % 5);
        let place = Place { nodes_spanned: 1, concurrent_groups_per_node: 1 + index / 5, stride: 1 };
        let family = FamilyKey {
            collective: Collective::AllGather,
            element_type: None,
            cadence: Cadence::Streaming,
            place,
            labels: Labels::new(),
        };
        let measured: Measured = (9..29u32)
            .map(|power| {
                let bytes = 1u64 << power;
                let small = 5e-6 * f64::from(ranks) + bytes as f64 / 20e9;
                let large = 4e-5 * f64::from(ranks) + bytes as f64 / 150e9;
                let noise = 1.0 + 0.02 * f64::from((index * 31 + power * 17) % 7) / 7.0;
                (bytes, vec![small.min(large) * noise])
            })
            .collect();
        all.curves.insert(CurveKey { family, ranks }, measured);
    }
    all
}

fn main() -> ExitCode {
    let fitted = fit(&measurements(5), FitOptions { resamples: 0, ..FitOptions::default() }).expect("a fit");
    let predictor = Predictor::new(&fitted);
    let mut criterion = Criterion::default().configure_from_args();
    let mut seconds = |name: &str, ranks: u32, bytes: u64| {
        let query = Query {
            collective: Collective::AllGather,
            ranks,
            bytes_total: Bytes(bytes),
            element_type: None,
            locality: None,
            cadence: None,
        };
        let mut per_call = f64::INFINITY;
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|calls| {
                let start = Instant::now();
                (0..calls).for_each(|_| {
                    black_box(predictor.predict(black_box(&query)));
                });
                let took = start.elapsed();
                per_call = per_call.min(took.as_secs_f64() / calls as f64);
                took
            });
        });
        per_call
    };
    let slowest = [
        seconds("predict, interpolated", 8, 3_000_000),
        seconds("predict, extrapolated", 8, 1 << 30),
        seconds("predict, transferred", 12, 3_000_000),
    ];
    let cases = measurements((CASES / 20) as u32);
    let start = Instant::now();
    black_box(fit(&cases, FitOptions::default()).expect("a fit"));
    let took = start.elapsed().as_secs_f64();
    eprintln!("fit of {CASES} cases: {took:.1} s");
    let slow = slowest.iter().any(|seconds| *seconds > MOST_SECONDS_PREDICT) || took > MOST_SECONDS_FIT;
    if slow { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
