//! What the simulated backend costs at 16,384 ranks: one isolated iteration of all of them, and one call in a stream.

use commgauge::backend::simulated::SimulatedBackend;
use commgauge::backend::{Backend, Binding, Call, Marks};
use commgauge::collective::{Collective, Placement};
use commgauge::config::Machine;
use commgauge::element::ElementType;
use commgauge::layout::{Axis, Groups};
use commgauge::sample::Cadence;
use commgauge::workload::{Op, Style};
use criterion::Criterion;
use std::path::Path;
use std::time::Duration;

const WORLD: u32 = 16_384;
const LEAD_NANOSECONDS: u64 = 1_000_000_000;

/// Groups of ranks that lie `stride` apart, as the axes of a layout are.
fn groups(ranks: u32, stride: u32) -> Groups {
    let firsts = (0..WORLD).filter(|rank| (rank / stride).is_multiple_of(ranks));
    Groups { axis: Axis::Tp, groups: firsts.map(|first| (0..ranks).map(|i| first + i * stride).collect()).collect() }
}

fn isolated(call: &mut dyn Call, start: u64, marks: &mut Marks) -> u64 {
    call.reserve_marks(2);
    assert!(call.hold_until(start), "a start in the future is in time");
    call.mark();
    call.enqueue().expect("it is simulated");
    call.mark();
    call.complete(Duration::from_secs(1)).expect("it is simulated");
    call.read_marks(marks);
    marks.nanoseconds.iter().max().expect("every rank has marks") + LEAD_NANOSECONDS
}

fn main() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites/machines/h100-nvswitch-ndr.toml");
    let machine = Machine::load(&file).expect("a shipped machine");
    let op = Op::new(Style::Sweep, Axis::Tp, Collective::AllReduce, ElementType::Uint8, 1 << 20);
    let mut criterion = Criterion::default().configure_from_args();
    for (ranks, stride) in [(2, 1), (8, 1), (8, 2048), (WORLD, 1)] {
        let mut backend = SimulatedBackend::new(&machine, WORLD, 1).expect("a machine of any size");
        let groups = groups(ranks, stride);
        let geometry = op.geometry(groups.group_size()).expect("it is divisible");
        backend.connect(0, &groups).expect("it is simulated");
        let mut start = backend.now_nanoseconds() + LEAD_NANOSECONDS;
        let binding = Binding {
            variant: Default::default(),
            op: &op,
            placement: Placement::OutOfPlace,
            groups: &groups,
            groups_number: 0,
            geometry: &geometry,
            seed: 1,
            warm_buffers: true,
            cadence: Cadence::Streaming,
            rotation_within: None,
        };
        let mut call = backend.bind(&binding).expect("it is simulated");
        let mut marks = Marks::default();
        let name = format!("simulated/isolated/16384_ranks_in_groups_of_{ranks}_stride_{stride}");
        criterion.bench_function(&name, |bencher| {
            bencher.iter(|| start = isolated(&mut *call, start, &mut marks));
        });
        let name = format!("simulated/streaming/16384_ranks_in_groups_of_{ranks}_stride_{stride}");
        criterion.bench_function(&name, |bencher| bencher.iter(|| call.enqueue().expect("it is simulated")));
    }
    criterion.final_summary();
}
