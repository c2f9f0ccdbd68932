//! Reports of replays and of interference, against answers computed by hand.

use super::*;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_model::layout::Axis;
use commgauge_model::record::interference_line::{InterferenceLine, InterferingCall};
use commgauge_model::record::line::Outcome;
use commgauge_model::record::replay_line::{ReplayAxis, ReplayLine};
use commgauge_model::record::{Line, Record};
use commgauge_model::workload::Style;

const SAMPLE: &str = include_str!("../../../tests/data/sample-record.jsonl");

/// A valid record, to which a test adds its own lines.
fn record() -> Record {
    let lines = SAMPLE.lines().map(|line| serde_json::from_str::<Line>(line).unwrap());
    let mut record = Record::from_lines(lines).unwrap();
    record.plan.cases.truncate(1);
    record.cases.retain(|case| case.case == 0);
    let end = record.end.as_mut().unwrap();
    (end.status, end.exit_code, end.error) = (commgauge_model::record::line::EndStatus::Complete, 0, None);
    record
}

fn call(axis: Axis, bytes: u64) -> InterferingCall {
    let (style, collective) = (Style::Tensor, Collective::AllReduce);
    InterferingCall { axis, style, collective, element_type: ElementType::Float32, bytes_total: Bytes(bytes) }
}

/// 100 us alone, 150 us together; in three of four repetitions the other was still waited for.
fn beside(replicate: u32) -> InterferenceLine {
    InterferenceLine {
        step: 0,
        replicate,
        timed: call(Axis::Tp, 1 << 20),
        beside: call(Axis::Dp, 4 << 20),
        outcome: Outcome::Measured { verified: true },
        calls_beside: 2,
        alone_nanoseconds: vec![100_000; 4],
        together_nanoseconds: vec![150_000; 4],
        still_waited_nanoseconds: vec![20_000, 20_000, 20_000, 1_500],
        beside_alone_nanoseconds: vec![60_000, 75_000, 90_000],
    }
}

fn replay() -> ReplayLine {
    ReplayLine {
        step: 0,
        schedule: "1f1b".to_owned(),
        forward_seconds_per_layer: Seconds(1e-3),
        outcome: Outcome::Measured { verified: true },
        warm_up_repetitions: 2,
        slowest_nanoseconds: vec![10_000_000, 11_000_000, 12_000_000],
        slowest_rank: vec![0; 3],
        computing_nanoseconds_median: 4_000_000,
        axes: vec![ReplayAxis {
            axis: Axis::Tp,
            waiting_nanoseconds_median: 3_000_000,
            under_way_nanoseconds_median: 4_000_000,
            overlap_efficiency: Some(0.25),
            calls_counted: 8,
            payload_bytes_counted: Bytes(1000),
            payload_bytes_listed: Bytes(1000),
            wire_bytes_counted: Bytes(500),
            wire_bytes_listed: Bytes(501),
            hidden_calls: Vec::new(),
        }],
        overlap_efficiency: Some(0.25),
        rank_nanoseconds_median: vec![11_000_000],
        job_nanoseconds: None,
        bytes_as_listed: false,
    }
}

fn table(record: &Record) -> String {
    let mut out = Vec::new();
    render(&View::new(record), Format::Table, 140, Paint::Plain, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_failed_replay_or_interference_measurement_decides_the_exit_code() {
    let failed = || Outcome::Failed { reason: "no memory".to_owned() };
    let corrupt = || Outcome::Corrupt {
        when: "before".to_owned(),
        rank: 1,
        element: 2,
        expected: "3".to_owned(),
        got: "4".to_owned(),
        count: 1,
        call: None,
    };
    assert_eq!(View::new(&record()).exit_code(), 0);
    for (outcome, code, said) in [(failed(), 6, "no memory"), (corrupt(), 4, "WRONG")] {
        let mut with_replay = record();
        with_replay.replays.push(ReplayLine { outcome: outcome.clone(), ..replay() });
        let mut with_pair = record();
        with_pair.interference.push(InterferenceLine { outcome, ..beside(0) });
        for record in [with_replay, with_pair] {
            assert_eq!(View::new(&record).exit_code(), code, "{said}");
            assert!(table(&record).contains(said), "{}", table(&record));
        }
    }
}

#[test]
fn interference_is_the_ratio_of_paired_medians_with_the_share_of_certain_overlap() {
    let mut record = record();
    record.interference.extend((0..6).map(beside));
    let view = View::new(&record);
    let [pair] = view.interference.as_slice() else { panic!("{:?}", view.interference) };
    assert_eq!((pair.factor, pair.replicates), (Some(1.5), 6));
    assert!(pair.interval.is_some());
    // Three repetitions wholly; in the fourth the wait is that for nothing, and one call takes 60 us of the 150 us.
    assert!((pair.certain_overlap.unwrap() - (3.0 + 0.4) / 4.0).abs() < 1e-9, "{pair:?}");
    assert!(table(&record).contains("slower beside the others"));
    record.interference.truncate(5);
    let pair = View::new(&record).interference.remove(0);
    assert_eq!((pair.factor, pair.interval), (Some(1.5), None), "five replicates give no interval");
}

#[test]
fn a_replay_says_its_time_and_whether_its_bytes_are_those_of_the_list() {
    let mut record = record();
    record.replays.push(replay());
    let time = replay_time(&record.replays[0]).unwrap();
    assert!((time.median.0 - 11e-3).abs() < 1e-12 && time.interval.is_none(), "{time:?}");
    let text = table(&record);
    insta::assert_snapshot!(&text[text.find("replay:").unwrap()..]);
}

#[test]
fn a_replayed_trace_is_compared_with_the_job_itself() {
    let mut record = record();
    let (schedule, job_nanoseconds) = ("trace".to_owned(), Some(5_500_000));
    record.replays.push(ReplayLine { schedule, job_nanoseconds, bytes_as_listed: true, ..replay() });
    let text = table(&record);
    for words in [
        "replay of a trace",
        "the whole trace: 11.0 ms",
        "the job itself took 5.50 ms from its first call to its last: the replay takes 2.00 times that",
        "every rank moved exactly the bytes of the trace",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}
