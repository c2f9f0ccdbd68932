//! Properties of a ranking: ties are reported, orders have the probability known beforehand, orders flip at the
//! published threshold, and moves have the price computed by hand.

use super::*;
use crate::cost::{Prediction, Status};
use crate::planner::rates::Published;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Seconds;
use commgauge_model::config::{LayoutTable, Machine, Suite};
use commgauge_model::workload::Style;
use commgauge_model::workload::when::{Moment, Overlap};
use std::path::Path;

const OPTIONS: RankOptions = RankOptions { resamples: 20_000, seed: 7 };

/// Rates for tests: seconds inside a node and outside, and the half width of the interval as a factor.
struct FixedRates {
    inside: f64,
    outside: f64,
    factor: Option<f64>,
    refuses: Option<Collective>,
}

impl Rates for FixedRates {
    fn price(&self, call: &RatedCall) -> Prediction {
        if self.refuses == Some(call.collective) {
            return Prediction::refused(format!("{} was not measured", call.collective));
        }
        let seconds = if call.locality.nodes_spanned == 1 { self.inside } else { self.outside };
        Prediction {
            seconds: Some(Seconds(seconds)),
            low: self.factor.map(|factor| Seconds(seconds / factor)),
            high: self.factor.map(|factor| Seconds(seconds * factor)),
            status: Status::Interpolated,
            reason: None,
            untrusted: false,
        }
    }

    fn ground(&self, _: &RatedCall) -> String {
        "told".to_owned()
    }

    fn calibrated(&self) -> bool {
        true
    }

    fn synthetic(&self) -> bool {
        false
    }

    fn name(&self) -> String {
        "told".to_owned()
    }
}

/// One call of an axis in a step.
fn op(axis: Axis, overlap: Overlap) -> Op {
    Op {
        when: When::Step { moment: Moment::Optimizer, calls: 1 },
        overlap,
        ..Op::new(Style::Data, axis, Collective::AllReduce, ElementType::Bfloat16, 1000)
    }
}

fn order(measure: Measure, ops: &[(Op, f64)], factor: Option<f64>) -> Order {
    let priced: Vec<Priced> = ops
        .iter()
        .map(|(op, seconds)| {
            let rates = FixedRates { inside: *seconds, outside: *seconds, factor, refuses: None };
            let cost = OpCost::of(op, 2, &Locality::UNKNOWN, 1, &rates).unwrap();
            Priced { op, cost, locality: Locality::UNKNOWN }
        })
        .collect();
    Order::of(measure, &priced, &mut Draws::new(OPTIONS))
}

fn table(preset: &str, training: &str, layout: &str) -> LayoutTable {
    let text = format!("[model]\npreset = '{preset}'\n[training]\n{training}\n[layout]\n{layout}\n");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
    Suite::parse(&path, &text).unwrap_or_else(|error| panic!("{error}")).layouts.remove(0)
}

fn ranked(table: &LayoutTable, ranks: u32, ranks_per_node: u32, rates: &dyn Rates) -> Ranked {
    let steps = Step::all_of(table, ranks).unwrap();
    rank(&steps[0], ranks_per_node, rates, OPTIONS).unwrap()
}

fn crossing_of(ranked: &Ranked, families: (Family, Family), measure: Measure) -> Crossing {
    let flip = ranked.flips.iter().find(|flip| flip.families == families && flip.measure == measure);
    flip.expect("a pair of the rule").crossing
}

const SIXTEEN: (&str, &str) = ("sequence = 2048\nglobal_batch = 64", "tp = 2\npp = 4\ndp = 2");

#[test]
fn calls_without_a_time_leave_the_rule_undecided_and_are_named() {
    let rates = FixedRates { inside: 1e-3, outside: 1e-3, factor: Some(1.1), refuses: Some(Collective::SendRecvChain) };
    let ranked = ranked(&table("gpt-7.5b", SIXTEEN.0, SIXTEEN.1), 16, 8, &rates);
    let by = |measure: Measure| ranked.orders.iter().find(|order| order.measure == measure).unwrap();
    assert_eq!((by(Measure::Time).rule, by(Measure::Time).probability), (Rule::NotKnown, None));
    assert_eq!(by(Measure::Time).incomplete, ["PP: 4 of 5 ops without a time: send_recv_chain was not measured"]);
    assert_eq!(by(Measure::WireBytes).probability, Some(1.0), "bytes need no times");
    assert_eq!(crossing_of(&ranked, (Family::Data, Family::Pipeline), Measure::Time), Crossing::Unknown);
    assert!(ranked.moves.moves.is_empty() && ranked.moves.reason.is_some());
}

#[test]
fn without_intervals_an_order_has_no_probability() {
    let order =
        order(Measure::Time, &[(op(Axis::Tp, Overlap::Exposed), 2.0), (op(Axis::Dp, Overlap::Exposed), 1.0)], None);
    assert_eq!((order.text().as_str(), order.probability, order.rule), ("TP ? DP", None, Rule::Holds));
}

#[test]
fn how_sure_an_order_is_agrees_with_the_normal_distribution() {
    // 95 of 100 within a factor of 1.2 on both sides: the log differs by ln(1.1) with sigma sqrt(2) ln(1.2)/1.96.
    // P = Phi(0.09531 / (1.41421 * 0.18232 / 1.95996)) = Phi(0.7245) = 0.7656.
    let ops = [(op(Axis::Tp, Overlap::Exposed), 1.1), (op(Axis::Dp, Overlap::Exposed), 1.0)];
    let found = order(Measure::Time, &ops, Some(1.2));
    let probability = found.probability.unwrap();
    assert!((probability - 0.7656).abs() < 0.01, "{probability}");
    assert_eq!((found.text().as_str(), found.rule, found.rule_probability), ("TP = DP", Rule::Tie, Some(probability)));
    assert_eq!(found, order(Measure::Time, &ops, Some(1.2)), "the same seed gives the same answer");
    // P = Phi(ln 2 / 0.13155) = Phi(5.27).
    let sure = order(
        Measure::Time,
        &[(op(Axis::Dp, Overlap::Exposed), 2.0), (op(Axis::Tp, Overlap::Exposed), 1.0)],
        Some(1.2),
    );
    assert_eq!((sure.text().as_str(), sure.rule, sure.rule_probability), ("DP > TP", Rule::DoesNotHold, Some(0.0)));
}

#[test]
fn equal_bytes_are_a_tie_and_a_single_axis_is_not_compared() {
    let both = [(op(Axis::Tp, Overlap::Exposed), 1.0), (op(Axis::Dp, Overlap::Exposed), 1.0)];
    let tied = order(Measure::WireBytes, &both, None);
    assert_eq!((tied.text().as_str(), tied.rule), ("TP = DP", Rule::Tie));
    assert_eq!(order(Measure::Time, &both[..1], None).rule, Rule::NothingToCompare);
}

#[test]
fn what_is_hidden_counts_in_time_and_not_in_exposed_time() {
    let ops = [(op(Axis::Tp, Overlap::WeightGradient), 9.0), (op(Axis::Dp, Overlap::Exposed), 1.0)];
    assert_eq!(order(Measure::Time, &ops, Some(1.1)).text(), "TP > DP");
    assert_eq!(order(Measure::ExposedTime, &ops, Some(1.1)).text(), "DP > TP");
}

#[test]
fn tensor_and_data_cross_over_where_the_closed_form_says() {
    // Per rank and step: TP sends 16 (t-1)/t T h L/p, DP G (d-1)/d P_l L/(p t) bytes with G = 8 for fp32 gradients and
    // 12 h^2 + 13 h parameters in a layer; equal at T* = G P_l (d-1)/d / (16 h (t-1)). The embedding, which both have
    // in addition, is 2 % here.
    let (h, t, d) = (12288.0, 8.0, 16.0);
    let expected = 8.0 * (12.0 * h + 13.0) * (d - 1.0) / d / (16.0 * (t - 1.0));
    let table = table(
        "gpt3-175b",
        "sequence = 2048\nglobal_batch = 1536\ndata_style = 'ddp'\ngradient_element_type = 'float32'",
        "tp = 8\npp = 4\ndp = 16",
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines/h100-nvswitch-ndr.toml");
    let machine = Machine::load(&path).unwrap();
    let ranked = ranked(&table, 512, 8, &Published::new(&machine));
    let Crossing::At { tokens, larger_above } =
        crossing_of(&ranked, (Family::Tensor, Family::Data), Measure::WireBytes)
    else {
        panic!("{:?}", ranked.flips)
    };
    assert!((tokens.middle / expected - 1.0).abs() < 0.03, "{} tokens, the closed form says {expected}", tokens.middle);
    assert_eq!(larger_above, Family::Tensor);
    // A byte over NVLink is cheaper than one over the network, so in time DP is the larger for longer.
    let Crossing::At { tokens: in_time, .. } = crossing_of(&ranked, (Family::Tensor, Family::Data), Measure::Time)
    else {
        panic!("{:?}", ranked.flips)
    };
    assert!(in_time.middle > 3.0 * tokens.middle, "{} {}", in_time.middle, tokens.middle);
}

#[test]
fn moving_an_axis_changes_times_as_computed_by_hand() {
    let table = table("gpt-7.5b", SIXTEEN.0, SIXTEEN.1);
    let rates = FixedRates { inside: 1e-3, outside: 4e-3, factor: Some(1.01), refuses: None };
    let ranked = ranked(&table, 16, 8, &rates);
    let calls = |axis: Axis| {
        let of_axis = ranked.axes.iter().find(|ranked| ranked.cost.axis == axis).unwrap();
        let seconds = if of_axis.cost.locality.nodes_spanned == 1 { 1e-3 } else { 4e-3 };
        of_axis.cost.time.middle / seconds
    };
    let moves = &ranked.moves;
    assert_eq!((moves.order.as_str(), moves.unpriced), ("tp-cp-ep-dp-pp", 0));
    let of = |axis| moves.moves.iter().find(|moved| moved.axis == axis).unwrap();
    // tp and dp are inside now, pp and mp span both nodes. With dp outermost pp and mp move inside and dp outside.
    let outside = of(Axis::Dp);
    let expected = 3e-3 * (calls(Axis::Dp) - calls(Axis::Pp) - calls(Axis::Mp) + embedding(&ranked));
    let change = outside.time.unwrap();
    assert!(outside.inside_now && !of(Axis::Pp).inside_now, "{moves:?}");
    assert!((change.seconds.middle - expected).abs() < 1e-9, "{change:?}, {expected}");
    let interval = change.seconds.interval.unwrap();
    assert!(interval.low <= change.seconds.middle && change.seconds.middle <= interval.high);
    assert_eq!(change.probability_faster, Some(if expected < 0.0 { 1.0 } else { 0.0 }));
}

/// The ends of the pipeline are on both nodes now and on one then.
fn embedding(ranked: &Ranked) -> f64 {
    let of_axis = ranked.axes.iter().find(|ranked| ranked.cost.axis == Axis::Embedding);
    of_axis.map_or(0.0, |ends| -ends.cost.time.middle / 4e-3)
}
