//! The pairs as a part of the report's JSON document: base units in the names, `null` where there is no number.

use super::view::{LocalityStatistics, Measure, Pair, PairLocality, PairsView, SlowPair, Standing};
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::Serialize;

/// The part.
#[derive(JsonSchema, Serialize)]
pub(in crate::report) struct JsonPairs<'a> {
    ranks: usize,
    hosts: usize,
    rounds: usize,
    pairs_at_once: u32,
    pairs_planned: u64,
    latency_bytes: Bytes,
    bandwidth_bytes: Bytes,
    values_compared: usize,
    localities: Vec<JsonLocality>,
    pairs: Vec<JsonPair<'a>>,
    slow: Vec<JsonSlow>,
    host_standings: Vec<JsonStanding<'a>>,
    rank_standings: Vec<JsonStanding<'a>>,
}

#[derive(JsonSchema, Serialize)]
struct JsonLocality {
    locality: &'static str,
    latency_seconds: Option<JsonMiddle>,
    bandwidth_bytes_per_second: Option<JsonMiddle>,
    bidirectional_bandwidth_bytes_per_second: Option<JsonMiddle>,
}

#[derive(JsonSchema, Serialize)]
struct JsonMiddle {
    pairs: usize,
    minimum: f64,
    median: f64,
    maximum: f64,
}

#[derive(JsonSchema, Serialize)]
struct JsonPair<'a> {
    rank_a: u32,
    rank_b: u32,
    host_a: &'a str,
    host_b: &'a str,
    locality: &'static str,
    latency_seconds: Option<f64>,
    latency_percent_of_locality_median: Option<f64>,
    bandwidth_bytes_per_second: Option<f64>,
    bandwidth_percent_of_locality_median: Option<f64>,
    bidirectional_bandwidth_bytes_per_second: Option<f64>,
    bidirectional_bandwidth_percent_of_locality_median: Option<f64>,
    samples: u64,
    replicates: u32,
}

#[derive(JsonSchema, Serialize)]
struct JsonSlow {
    rank_a: u32,
    rank_b: u32,
    measure: &'static str,
    percent_of_locality_median: Option<f64>,
    deviations: f64,
    deviations_allowed: f64,
}

#[derive(JsonSchema, Serialize)]
struct JsonStanding<'a> {
    name: &'a str,
    pairs: usize,
    latency_percent_mean: Option<f64>,
    bandwidth_percent_mean: Option<f64>,
    bidirectional_bandwidth_percent_mean: Option<f64>,
}

impl JsonPairs<'_> {
    /// The part for a view.
    pub(in crate::report) fn of(view: &PairsView) -> JsonPairs<'_> {
        JsonPairs {
            ranks: view.ranks.len(),
            hosts: view.host_count(),
            rounds: view.rounds,
            pairs_at_once: view.pairs_at_once,
            pairs_planned: view.pairs_planned,
            latency_bytes: view.latency_bytes,
            bandwidth_bytes: view.bandwidth_bytes,
            values_compared: view.compared,
            localities: PairLocality::ALL.iter().map(|locality| json_locality(view, *locality)).collect(),
            pairs: json_pairs(view),
            slow: json_slow(view),
            host_standings: view.hosts.iter().map(json_standing).collect(),
            rank_standings: view.standings.iter().map(json_standing).collect(),
        }
    }
}

fn json_locality(view: &PairsView, locality: PairLocality) -> JsonLocality {
    let middle = |LocalityStatistics { pairs, minimum, median, maximum }: LocalityStatistics| JsonMiddle {
        pairs,
        minimum,
        median,
        maximum,
    };
    let [latency, one_way, both_ways] = view.middles[locality as usize].map(|found| found.map(middle));
    JsonLocality {
        locality: locality.name(),
        latency_seconds: latency,
        bandwidth_bytes_per_second: one_way,
        bidirectional_bandwidth_bytes_per_second: both_ways,
    }
}

fn json_pairs(view: &PairsView) -> Vec<JsonPair<'_>> {
    view.pairs.iter().map(|pair| json_pair(view, pair)).collect()
}

fn json_pair<'a>(view: &'a PairsView, pair: &Pair) -> JsonPair<'a> {
    let (a, b) = (&view.ranks[pair.a], &view.ranks[pair.b]);
    let values = pair.values.map(|value| value.map(|value| value.value));
    let percents = pair.values.map(|value| value.map(|value| value.percent));
    JsonPair {
        rank_a: a.rank,
        rank_b: b.rank,
        host_a: &a.host,
        host_b: &b.host,
        locality: pair.locality.name(),
        latency_seconds: values[0],
        latency_percent_of_locality_median: percents[0],
        bandwidth_bytes_per_second: values[1],
        bandwidth_percent_of_locality_median: percents[1],
        bidirectional_bandwidth_bytes_per_second: values[2],
        bidirectional_bandwidth_percent_of_locality_median: percents[2],
        samples: pair.values.iter().flatten().map(|value| value.samples).sum(),
        replicates: pair.values.iter().flatten().map(|value| value.replicates).min().unwrap_or(0),
    }
}

fn json_slow(view: &PairsView) -> Vec<JsonSlow> {
    let one = |slow: &SlowPair| {
        let pair = &view.pairs[slow.pair];
        JsonSlow {
            rank_a: view.ranks[pair.a].rank,
            rank_b: view.ranks[pair.b].rank,
            measure: measure_name(slow.measure),
            percent_of_locality_median: pair.values[slow.measure as usize].map(|value| value.percent),
            deviations: slow.deviations,
            deviations_allowed: slow.allowed,
        }
    };
    view.slow.iter().map(one).collect()
}

/// As the fields of a pair call it.
fn measure_name(measure: Measure) -> &'static str {
    match measure {
        Measure::Latency => "latency",
        Measure::OneWay => "bandwidth",
        Measure::BothWays => "bidirectional_bandwidth",
    }
}

fn json_standing(standing: &Standing) -> JsonStanding<'_> {
    let [latency, one_way, both_ways] = standing.percent;
    JsonStanding {
        name: &standing.name,
        pairs: standing.pairs,
        latency_percent_mean: latency,
        bandwidth_percent_mean: one_way,
        bidirectional_bandwidth_percent_mean: both_ways,
    }
}
