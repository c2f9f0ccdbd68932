//! Bytes and times of a step as bars, for pages.

use super::{StepView, Totals};
use crate::chart::{Axis, Bar, Bars, Unit};
use crate::report::document::{Block, Figure};
use commgauge_base::units::Seconds;

/// Bytes by axis, time by axis, time by style.
pub(super) fn of(step: &StepView) -> Block {
    Block::Charts(vec![
        Figure::new("Wire bytes by axis", bytes("Bytes that a rank sends in a step, by axis", &step.axes).draw()),
        Figure::new("Time by axis", time("Time of all calls in a step, by axis", &step.axes).draw()),
        Figure::new("Time by style", time("Time of all calls in a step, by style", &step.styles).draw()),
    ])
}

fn bytes(title: &str, totals: &[Totals]) -> Bars {
    let mut bars = Bars::new(title, Axis::linear("", Unit::Bytes));
    bars.description = "The numbers are in the table below.".into();
    bars.bars = totals
        .iter()
        .map(|totals| Bar {
            label: totals.name.to_owned(),
            parts: vec![totals.wire_bytes_per_step.0 as f64],
            interval: None,
            note: totals.wire_bytes_per_step.to_string(),
        })
        .collect();
    bars
}

fn time(title: &str, totals: &[Totals]) -> Bars {
    let mut bars = Bars::new(title, Axis::linear("", Unit::Seconds));
    bars.description =
        "Stacked: what nothing hides, and what may be hidden. The numbers are in the table below.".into();
    bars.parts = vec!["exposed".into(), "may be hidden".into()];
    bars.bars = totals
        .iter()
        .map(|totals| {
            let (all, exposed) = (totals.time.known_seconds, totals.exposed_time.known_seconds);
            let note = match totals.time.without_a_time {
                0 => Seconds(all.middle).to_string(),
                without if without == totals.time.ops => "not measured".to_owned(),
                _ => format!("{}, incomplete", Seconds(all.middle)),
            };
            Bar {
                label: totals.name.to_owned(),
                parts: vec![exposed.middle, (all.middle - exposed.middle).max(0.0)],
                interval: all.interval,
                note,
            }
        })
        .collect();
    bars
}
