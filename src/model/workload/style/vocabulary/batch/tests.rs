//! Known answers: what Megatron-LM's get_batch_on_this_tp_rank broadcasts, counted by hand.

use crate::layout::Axis;
use crate::workload::Style;
use crate::workload::style::testing::{Row, rows, training, with_steps};
use commgauge_base::collective::Collective::Broadcast;

const STEP: &str = "sequence = 8192\nmicro_batches = 8\nmicro_batch = 2\nbatch_broadcast";
/// Two samples of 8192 words of 8 bytes, of numbers of 4, and of a byte for each pair of positions.
const WORDS: u64 = 131_072;
const NUMBERS: u64 = 65_536;
const PAIRS: u64 = 134_217_728;

/// The broadcasts on a stage.
fn broadcasts(written: &str, layout: &str, stage: u32) -> Vec<Row> {
    let mut found = Vec::new();
    with_steps(&training("llama-3-8b", &format!("{STEP} = {written}"), layout), 8, |step| {
        found = rows(step, stage, Style::Vocabulary);
        found.retain(|row| row.collective == Broadcast);
        assert!(found.iter().all(|row| row.axis == Axis::Tp && row.overlap.is_exposed()), "{found:?}");
    });
    found
}

/// Bytes and calls of a micro-batch on a stage.
fn of(written: &str, layout: &str, stage: u32) -> Vec<(u64, u64)> {
    let rows = broadcasts(written, layout, stage);
    assert!(rows.iter().all(|row| row.calls_per_step == 8 * row.calls), "{rows:?}");
    rows.iter().map(|row| (row.bytes, row.calls)).collect()
}

#[test]
fn one_stage_gets_all_fields_and_the_mask_of_attention() {
    let fields = [(WORDS, 3), (NUMBERS, 1)];
    assert_eq!(of("'none'", "tp = 8", 0), []);
    assert_eq!(of("'fields'", "dp = 8", 0), []);
    assert_eq!(of("'fields'", "tp = 8", 0), fields);
    assert_eq!(of("'fields_and_mask'", "tp = 8", 0), [&fields[..], &[(PAIRS, 1)]].concat());
    // Each rank of cp cuts its part out of the whole sequences.
    assert_eq!(of("'fields'", "tp = 2\ncp = 4", 0), fields);
}

#[test]
fn of_a_pipeline_the_first_stage_gets_what_goes_in_and_the_last_what_is_compared() {
    let layout = "tp = 2\npp = 4";
    let stages = |written: &str| (0..4).map(|stage| of(written, layout, stage)).collect::<Vec<_>>();
    let last = vec![(WORDS, 1), (NUMBERS, 1)];
    assert_eq!(stages("'fields'"), [vec![(WORDS, 2)], vec![], vec![], last]);
    let [first, last] = [vec![(WORDS, 2), (PAIRS, 1)], vec![(WORDS, 1), (NUMBERS, 1), (PAIRS, 1)]];
    assert_eq!(stages("'fields_and_mask'"), [first, vec![], vec![], last]);
    // Layers that predict further tokens embed them on the last stage.
    let last = vec![(WORDS, 3), (NUMBERS, 1)];
    assert_eq!(stages("'fields'\nprediction_layers = 1"), [vec![(WORDS, 2)], vec![], vec![], last]);
}

#[test]
fn chunks_change_nothing_and_mirrored_stages_get_every_second_micro_batch() {
    let chunks = of("'fields'\nvirtual_stages = 2", "tp = 2\npp = 4", 0);
    assert_eq!(chunks, [(WORDS, 2)]);
    let mirrored = broadcasts("'fields'\nschedule = 'dualpipe'", "tp = 2\npp = 4", 0);
    let found: Vec<_> = mirrored.iter().map(|row| (row.bytes, row.calls_per_step)).collect();
    assert_eq!(found, [(WORDS, 2 * 4), (WORDS, 4), (NUMBERS, 4)]);
}
