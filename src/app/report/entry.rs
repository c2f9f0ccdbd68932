//! What formats for programs have a line for: every call, every copy and every matrix product, in one form.

use super::row::{Counts, Latency, Row, latency_of, replicates_planned};
use super::status::Status;
use commgauge_analysis::verdict::{RowSubject, Subject};
use commgauge_base::units::Rate;
use commgauge_model::record::line::Header;
use commgauge_model::record::merged_times::MergedTimes;
use std::borrow::Cow;

/// A call, a copy or a matrix product over all replicates.
pub(crate) struct Entry<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// What it is.
    pub subject: RowSubject,
    /// The row of a call.
    pub row: Option<&'a Row>,
    /// Its status.
    pub status: Cow<'a, Status>,
    /// How often it was measured.
    pub counts: Counts,
    /// Time on the slowest rank; absent where wrong data was received.
    pub latency: Option<Latency>,
}

impl<'a> Entry<'a> {
    /// A call.
    pub fn of_call(row: &'a Row) -> Entry<'a> {
        Entry {
            name: Cow::Borrowed(&row.facts.name),
            subject: Subject::Call(&row.facts).of_row(),
            row: Some(row),
            status: Cow::Borrowed(&row.status),
            counts: row.counts,
            latency: row.latency,
        }
    }

    /// What each rank does by itself.
    pub fn of_own_work(subject: Subject<'a>, times: &MergedTimes, header: &Header) -> Entry<'a> {
        let replicates = times.seconds_of_replicate.len();
        Entry {
            name: subject.name(),
            subject: subject.of_row(),
            row: None,
            status: Cow::Owned(Status::of(std::iter::once(&times.outcome), header)),
            counts: Counts {
                samples: times.samples(),
                repetitions: times.samples(),
                replicates: replicates as u32,
                replicates_planned: replicates_planned(header, replicates),
                ..Counts::default()
            },
            latency: latency_of(&times.seconds_of_replicate),
        }
    }

    /// True where fewer replicates were measured than planned, and nothing else is wrong.
    pub fn is_incomplete(&self) -> bool {
        self.latency.is_some() && self.counts.lacks_replicates()
    }

    /// Bytes over the median time: of a call the size argument, of a copy those of each direction.
    pub fn algbw(&self) -> Option<Rate> {
        match &self.subject {
            RowSubject::Call(_) => self.row?.algbw,
            RowSubject::Copy { .. } => self.copy_rate(),
            RowSubject::Product { .. } => None,
        }
    }

    /// Bus bandwidth of a call.
    pub fn busbw(&self) -> Option<Rate> {
        self.row?.busbw
    }

    /// Bytes per second of a copy in each direction, on the slowest rank.
    pub fn copy_rate(&self) -> Option<Rate> {
        let RowSubject::Copy { copy } = &self.subject else { return None };
        Rate::of(copy.bytes.0 as f64, self.latency?.median)
    }

    /// Floating-point operations per second of a product, on the slowest rank.
    pub fn flops_per_second(&self) -> Option<f64> {
        let RowSubject::Product { product } = &self.subject else { return None };
        Some(product.flops() / self.latency?.median.0).filter(|rate| rate.is_finite())
    }
}
