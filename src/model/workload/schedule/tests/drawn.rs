//! The drawings: golden, and the same as in the documentation.

use super::*;
use crate::workload::schedule::{timeline_text, timeline_text_columns};

fn drawn(kind: ScheduleKind) -> String {
    // One at a time suffices, and would be a long line.
    let micro_batches = if kind == Naive { 2 } else { 8 };
    let timeline = run(&schedule(kind, 4, micro_batches));
    timeline_text(&timeline, timeline_text_columns(&timeline, 2))
}

#[test]
fn every_schedule_is_drawn_with_one_line_per_rank() {
    let text: Vec<String> = ScheduleKind::ALL.iter().copied().map(|kind| format!("{kind}\n{}", drawn(kind))).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn the_documentation_shows_schedules_as_they_are_drawn() {
    let page = include_str!("../../../../../docs/traffic.md");
    for kind in [OneForwardOneBackward, Interleaved, ZbH1] {
        assert!(page.contains(&drawn(kind)), "docs/traffic.md does not show {kind} as:\n{}", drawn(kind));
    }
}

#[test]
fn a_drawing_without_room_or_without_time_is_still_a_line() {
    let timeline = run(&schedule(GPipe, 2, 2));
    assert_eq!(timeline_text(&timeline, 0), "rank 0 ||\nrank 1 ||\n");
    assert_eq!(timeline_text(&timeline, 9), "rank 0 |FF...B0B1|\nrank 1 |.FFB0B1..|\n");
}
