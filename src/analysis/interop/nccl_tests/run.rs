//! Facts that apply to all rows of one run of nccl-tests, and the rows built from them and the fields of a line.

use super::collective::{Named, Shape};
use super::columns::{Fields, Half};
use super::devices::Group;
use crate::interop::imported::{DataCheck, Known, Row};
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::sample::Cadence;
use std::collections::BTreeMap;

/// Facts of a run that its rows do not repeat.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) named: Named,
    /// Each call was waited for (`-z`).
    pub(super) blocking: bool,
    pub(super) synthetic: bool,
    /// Further facts: version of NCCL, aggregated calls, graph launches.
    pub(super) labels: BTreeMap<String, String>,
}

impl Facts {
    pub(super) fn label(&mut self, name: &str, value: impl ToString) {
        self.labels.insert(name.to_owned(), value.to_string());
    }

    /// A number that becomes a label only if it is not the default.
    pub(super) fn unusual(&mut self, name: &str, value: Option<u64>, usual: u64) {
        if let Some(value) = value.filter(|value| *value != usual) {
            self.label(name, value);
        }
    }

    /// The rows of a line, one for each placement that it has a time of.
    pub(super) fn rows(&self, group: &Result<Group, String>, fields: &Fields) -> Result<Vec<Row>, String> {
        let group = group.as_ref().map_err(Clone::clone)?;
        let shape = Shape {
            bytes: fields.bytes.0,
            count: fields.count,
            element_type: fields.element_type,
            ranks: group.ranks,
            reduces: fields.reduce_op.is_some(),
            has_root: fields.root.is_some(),
        };
        let collective = shape.collective(&self.named)?;
        if let Some(contradiction) = fields.halves.iter().find_map(|half| contradiction(half, &shape, collective)) {
            return Err(contradiction);
        }
        let reduce_op = fields.reduce_op.as_deref().and_then(|op| op.parse::<ReduceOp>().ok());
        let mut labels = self.labels.clone();
        if let (Some(name), None) = (&fields.reduce_op, reduce_op) {
            labels.insert("redop".to_owned(), name.clone());
        }
        if group.groups > 1 {
            labels.insert("groups".to_owned(), group.groups.to_string());
        }
        labels.extend(group.device.iter().map(|device| ("device".to_owned(), device.clone())));
        let row = |half: &Half| Row {
            collective,
            element_type: fields.element_type,
            ranks: group.ranks,
            bytes_total: fields.bytes,
            latency: half.latency,
            locality: group.locality.clone(),
            known: Known {
                placement: Some(half.placement),
                cadence: Some(if self.blocking { Cadence::Isolated } else { Cadence::Streaming }),
                reduce_op: reduce_op.filter(|_| collective.reduces()),
                root: fields.root,
                data_check: half.wrong_elements.map(DataCheck::of_count),
                synthetic: self.synthetic,
            },
            labels: labels.clone(),
        };
        Ok(fields.halves.iter().map(row).collect())
    }
}

/// What a row says twice and not alike: nccl-tests prints the bandwidths that follow from the time, here within the last digits of both.
fn contradiction(half: &Half, shape: &Shape, collective: Collective) -> Option<String> {
    /// Of what is printed in few digits and calculated from more.
    const SLACK: f64 = 0.001;
    // Of blocks of different length the size says less than what was moved.
    if collective == Collective::AllToAllV {
        return None;
    }
    let rate = |microseconds: f64| shape.bytes as f64 / microseconds / 1e3;
    let (time, step) = (half.time.value, half.time.step);
    let factor = collective.bus_factor(shape.ranks)?;
    let within = if half.placement == Placement::InPlace { "in place" } else { "out of place" };
    [("algbw", half.algbw, 1.0), ("busbw", half.busbw, factor)].into_iter().find_map(|(name, printed, factor)| {
        let printed = printed?;
        let low = rate(time + step) * factor * (1.0 - SLACK) - printed.step;
        let high = if time > step { rate(time - step) * factor * (1.0 + SLACK) + printed.step } else { f64::INFINITY };
        (!(low..=high).contains(&printed.value)).then(|| {
            format!(
                "time {time} us and {name} {} GB/s ({within}) contradict each other: {} bytes of {collective} on {} ranks in that time \
                 are {:.2} GB/s",
                printed.value,
                shape.bytes,
                shape.ranks,
                rate(time) * factor
            )
        })
    })
}

/// `22703` is 2.27.3; before 2.9 a version was `2804`.
pub(super) fn nccl_version(code: u64) -> String {
    let thousands = if code >= 10_000 { 100 } else { 10 };
    let (major, minor) = (code / (100 * thousands), code / 100 % thousands);
    format!("{major}.{minor}.{}", code % 100)
}
