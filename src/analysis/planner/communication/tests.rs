//! The cost of axes against figures computed by hand.

use super::*;
use crate::planner::rates::Published;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_model::config::Machine;
use commgauge_model::layout::Degrees;
use commgauge_model::workload::Style;
use commgauge_model::workload::when::{End, Moment, Overlap, Pass, When};
use std::path::Path;

/// 1 us and 10 GB/s within; 5 us and 4 adapters of 1 GB/s between.
fn machine() -> Machine {
    let text = "name = 'm'\nranks_per_node = 4\n[within_node]\nlatency = '1us'\nrate = '10GB/s'\n\
                [between_nodes]\nlatency = '5us'\nadapters_per_node = 4\nrate_per_adapter = '1GB/s'\n";
    Machine::parse(text, Path::new("m.toml")).unwrap()
}

fn ops() -> Vec<Op> {
    let tensor = Op {
        when: When::MicroBatch { pass: Pass::Forward, end: End::Whole, calls: 2, one_in: 1 },
        ..Op::new(Style::Tensor, Axis::Tp, Collective::AllReduce, ElementType::Bfloat16, 8_000_000)
    };
    let data = Op {
        when: When::Step { moment: Moment::LastBackward, calls: 3 },
        overlap: Overlap::LastBackward,
        ..Op::new(Style::Data, Axis::Dp, Collective::ReduceScatter, ElementType::Float32, 4_000_000)
    };
    vec![tensor.clone(), data.clone(), Op { overlap: Overlap::WeightGradient, ..tensor }, data]
}

#[test]
fn bytes_that_pass_64_bits_are_refused() {
    let op = Op { bytes_total: Bytes(u64::MAX / 2), ..ops().remove(0) };
    let place = |_| Some((4, Locality::UNKNOWN));
    let error = axis_costs([&op], 8, place, &Published::new(&machine())).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("all_reduce on tp"), "{error}");
}

#[test]
fn refused_calls_are_counted_and_not_taken_as_zero() {
    let place = |_| Some((4, Locality::UNKNOWN));
    let machine = machine();
    let costs = axis_costs(&ops(), 8, place, &Published::new(&machine)).unwrap();
    assert_eq!(costs[0].grounds.refused, 2);
    assert!(
        !costs[0].grounds.complete()
            && costs[0].grounds.reason.as_ref().unwrap().contains("placement on the nodes is not known")
    );
    assert_eq!(costs[0].payload_bytes, Bytes(2 * 16 * 8_000_000));
}

#[test]
fn axes_cost_what_was_worked_out_by_hand() {
    let layout = Layout::new(Degrees::dense(4, 1, 2, 1), &commgauge_model::layout::DEFAULT_ORDER).unwrap();
    let localities = localities(&layout, &[Axis::Tp, Axis::Dp], 4);
    let place = |axis| Some((layout.group_size(axis), localities.get(&axis)?.clone()));
    let machine = machine();
    let costs = axis_costs(&ops(), 8, place, &Published::new(&machine)).unwrap();
    let [tensor, data] = costs.as_slice() else { panic!("{costs:?}") };
    // all_reduce of 8 MB on 4 ranks: 6 us + 12 MB at 10 GB/s, 2 calls in each of 8 micro-batches, of two ops.
    let call = 6e-6 + 1.2e-3;
    assert!((tensor.time.middle - 32.0 * call).abs() < 1e-12 && (tensor.exposed.middle - 16.0 * call).abs() < 1e-12);
    assert_eq!((tensor.wire_bytes, tensor.exposed_wire_bytes), (Bytes(32 * 12_000_000), Bytes(16 * 12_000_000)));
    // reduce_scatter of 4 MB on 2 ranks of 2 nodes: 5 us + 2 MB at 1 GB/s, 6 calls, all hidden.
    assert!((data.time.middle - 6.0 * 2.005e-3).abs() < 1e-12, "{data:?}");
    assert_eq!((data.exposed.middle, data.exposed_wire_bytes, data.wire_bytes), (0.0, Bytes(0), Bytes(12_000_000)));
    assert_eq!((data.time.interval, data.grounds.extrapolated, data.grounds.untrusted), (None, 2, 2));
    assert_eq!(
        data.locality,
        Locality { nodes_spanned: 2, ranks_per_node: 1, stride: 4, concurrent_groups_per_node: 4 }
    );
}
