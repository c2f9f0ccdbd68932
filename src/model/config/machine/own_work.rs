//! What is expected of the work that each rank does by itself, copies and matrix products: one `[[expect_copy]]` or `[[expect_product]]` of
//! a machine file, with the source of the figure. `verdict` decides whether a record satisfies it.

use crate::config::document::{Item, Table};
use crate::config::{CopyKind, HostMemory};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;

/// More rows, columns or terms than any product has.
const MOST_ELEMENTS: u64 = 1 << 40;

/// More than any GPU computes, in 10^12 operations a second.
const MOST_TFLOPS: f64 = 1e6;

/// Required performance of one kind of work.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnWorkExpectation {
    /// File, line and key of the expectation, for messages and reports.
    pub place: String,
    /// What it is about.
    pub work: ExpectedWork,
    /// The least that the slowest rank must reach: bytes per second in each direction, or floating-point operations per second.
    pub floor_per_second: f64,
    /// Value and tolerance from which the floor was computed, if given so.
    pub tolerance: Option<f64>,
    /// Origin of the figure: a publication or a measurement.
    pub source: String,
    /// When: `2026`, `2026-03` or `2026-03-14`.
    pub date: String,
    /// Library or driver, and version, that the figure was reached with.
    pub version: Option<String>,
    /// Further remarks.
    pub note: Option<String>,
}

/// The work that an expectation is about.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpectedWork {
    /// A copy by the copy engines of a GPU.
    Copy {
        /// From where to where.
        kind: CopyKind,
        /// Smallest and largest number of bytes, ends included.
        bytes: (Bytes, Bytes),
        /// Memory of the host's end; any if absent.
        host_memory: Option<HostMemory>,
        /// How far the other rank is in the order of the ranks of its host; any if absent.
        peer_distance: Option<u32>,
        /// Whether one rank of each host copies at a time; both if absent.
        alone: Option<bool>,
    },
    /// A matrix product of m x k by k x n.
    Product {
        /// Rows of the result.
        m: u64,
        /// Columns of the result.
        n: u64,
        /// Terms of each sum.
        k: u64,
        /// Type of the elements; any if absent.
        element_type: Option<ElementType>,
    },
}

impl OwnWorkExpectation {
    /// The figure itself: the floor without the tolerance, where it has one.
    pub fn figure_per_second(&self) -> f64 {
        self.floor_per_second / (1.0 - self.tolerance.unwrap_or(0.0))
    }
}

/// Reads and checks one `[[expect_copy]]`.
pub(super) fn expected_copy(mut table: Table) -> Result<OwnWorkExpectation> {
    let kind: CopyKind = table.require("kind", "a kind of copy such as \"host-to-device\"")?.parsed(CopyKind::parse)?;
    let bytes = table.require("bytes", "a size such as \"256MiB\", or the smallest and the largest")?;
    let bytes = range(bytes)?;
    let host_memory = table.take("host_memory");
    if let Some(item) = host_memory.as_ref().filter(|_| !kind.is_of_host()) {
        return Err(item.wrong(format!("a copy {} has no end in the host's memory", kind.name())));
    }
    let host_memory = host_memory.map(|item| item.parsed(HostMemory::parse)).transpose()?;
    let peer_distance = table.take("peer_distance");
    if let Some(item) = peer_distance.as_ref().filter(|_| !kind.is_of_peers()) {
        return Err(item.wrong(format!("a copy {} has no end at another rank", kind.name())));
    }
    let peer_distance = peer_distance.map(|item| item.count_within(1..=4096)).transpose()?;
    let alone = table.take("each").map(|item| item.parsed(each)).transpose()?;
    let value = table.require("value", "the rate in each direction of the slowest rank, such as \"55GB/s\"")?.rate()?;
    let work = ExpectedWork::Copy { kind, bytes, host_memory, peer_distance, alone };
    common(table, work, value.0)
}

/// Reads and checks one `[[expect_product]]`.
pub(super) fn expected_product(mut table: Table) -> Result<OwnWorkExpectation> {
    let mut side = |key, what: &str| table.require(key, what)?.whole(1..=MOST_ELEMENTS);
    let (m, n) = (side("m", "the rows of the result")?, side("n", "the columns of the result")?);
    let k = side("k", "the terms of each sum")?;
    let element_type = table.take("element_type").map(|item| item.parsed(str::parse)).transpose()?;
    let value = table.require("tflops", "10^12 floating-point operations a second of the slowest rank, such as 700")?;
    let value = 1e12 * value.number_within(1e-9..=MOST_TFLOPS)?;
    common(table, ExpectedWork::Product { m, n, k, element_type }, value)
}

/// What both have; `figure` is the value, in bytes or operations per second.
fn common(mut table: Table, work: ExpectedWork, figure: f64) -> Result<OwnWorkExpectation> {
    let tolerance = table.take("tolerance").map(|item| item.number_within(0.0..=MOST_TOLERANCE)).transpose()?;
    let expected = OwnWorkExpectation {
        work,
        floor_per_second: figure * (1.0 - tolerance.unwrap_or(0.0)),
        tolerance,
        source: source(&mut table)?,
        date: date(&mut table)?,
        version: optional_text(&mut table, "version", "CUDA 13.0")?,
        note: optional_text(&mut table, "note", "cloud variant")?,
        place: table.place.to_string(),
    };
    table.finish()?;
    Ok(expected)
}

fn each(text: &str) -> std::result::Result<bool, String> {
    match text {
        "alone" => Ok(true),
        "together" => Ok(false),
        _ => Err(format!("found `{text}`; accepted: alone, together")),
    }
}

// Common keys of all expectations besides their value: sizes, tolerance, source.

/// A tolerance above this would set a floor of less than a tenth of the figure, which checks nothing.
pub(super) const MOST_TOLERANCE: f64 = 0.9;

/// One size, or the smallest and the largest.
pub(super) fn range(item: Item) -> Result<(Bytes, Bytes)> {
    let place = item.place.clone();
    let sizes = item.items()?.iter().map(|item| item.parsed(Bytes::parse)).collect::<Result<Vec<Bytes>>>()?;
    match sizes.as_slice() {
        [one] => Ok((*one, *one)),
        [low, high] if low <= high => Ok((*low, *high)),
        _ => Err(place.wrong("accepted: one size, or the smallest and the largest of a range")),
    }
}

/// A text that may be left out.
pub(super) fn optional_text(table: &mut Table, key: &'static str, example: &str) -> Result<Option<String>> {
    table.take(key).map(|item| item.text_such_as(example).map(str::to_owned)).transpose()
}

/// Origin of a figure.
pub(super) fn source(table: &mut Table) -> Result<String> {
    let item = table.require("source", "who published or measured it, and where")?;
    Ok(item.text_such_as("measured here")?.to_owned())
}

/// When a figure was published or measured.
pub(super) fn date(table: &mut Table) -> Result<String> {
    table.require("date", "when, such as \"2026-03\"")?.parsed(day)
}

/// A year, a month or a day, as written.
fn day(text: &str) -> std::result::Result<String, String> {
    let day = match text.len() {
        4 => format!("{text}-01-01"),
        7 => format!("{text}-01"),
        _ => text.to_owned(),
    };
    match day.parse::<jiff::civil::Date>() {
        Ok(_) if day.len() == 10 => Ok(text.to_owned()),
        _ => Err(format!("found `{text}`; accepted: a year, month or day such as 2026, 2026-03 or 2026-03-14")),
    }
}

#[cfg(test)]
mod tests {

    use super::super::Machine;
    use super::*;
    use std::path::Path;

    const LINKS: &str = "name = 'm'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n\
        [between_nodes]\nlatency = '14us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n";
    const COPY: &str = "[[expect_copy]]\nkind = 'host-to-device'\nbytes = '256MiB'\nhost_memory = 'pinned'\n\
        each = 'alone'\nvalue = '50GB/s'\ntolerance = 0.1\nsource = 's'\ndate = '2026'\n";
    const PRODUCT: &str = "[[expect_product]]\nm = 8192\nn = 4096\nk = 1024\nelement_type = 'bfloat16'\ntflops = 700\n\
        source = 's'\ndate = '2026'\n";

    fn read(tables: &str) -> Result<Vec<OwnWorkExpectation>> {
        Machine::parse(&format!("{LINKS}{tables}"), Path::new("m.toml")).map(|machine| machine.own_work)
    }

    #[test]
    fn a_wrong_expectation_names_line_key_and_what_is_accepted() {
        for (table, from, to, words) in [
            (
                COPY,
                "'host-to-device'",
                "'host-to-devise'",
                "expect_copy[0].kind: found `host-to-devise`; accepted: host",
            ),
            (COPY, "kind = 'host-to-device'", "", "`kind` is missing"),
            (COPY, "'host-to-device'", "'within-device'", "host_memory: a copy within-device has no end in the host's"),
            (COPY, "each = 'alone'", "each = 'both'", "expect_copy[0].each: found `both`; accepted: alone, together"),
            (COPY, "each = 'alone'", "peer_distance = 1", "peer_distance: a copy host-to-device has no end at another"),
            (COPY, "'50GB/s'", "'50'", "expect_copy[0].value: found `50`"),
            (COPY, "tolerance = 0.1", "tolerance = 1", "expect_copy[0].tolerance: found 1; accepted: a number from 0"),
            (COPY, "tolerance", "tolerence", "expect_copy[0].tolerence: unknown key"),
            (PRODUCT, "m = 8192", "m = 0", "expect_product[0].m: found 0; accepted: a whole number from 1"),
            (PRODUCT, "k = 1024\n", "", "`k` is missing; accepted: the terms of each sum"),
            (PRODUCT, "tflops = 700", "tflops = 0", "expect_product[0].tflops: found 0"),
            (PRODUCT, "date = '2026'", "date = 'spring'", "expect_product[0].date: found `spring`"),
        ] {
            assert!(table.contains(from), "{from}");
            let error = read(&table.replacen(from, to, 1)).expect_err(to);
            assert!(error.to_string().contains(words), "{to}: {error}");
            assert_eq!(error.exit_code(), 2, "{to}");
        }
    }

    #[test]
    fn floors_are_values_less_their_tolerance() {
        let all = read(&format!("{COPY}{PRODUCT}")).expect("it is right");
        let [copy, product] = all.as_slice() else { panic!("{all:?}") };
        assert!((copy.floor_per_second - 45e9).abs() < 1.0 && (copy.figure_per_second() - 50e9).abs() < 1.0);
        let ExpectedWork::Copy { bytes, alone, peer_distance, .. } = &copy.work else { panic!("{copy:?}") };
        assert_eq!((*bytes, *alone, *peer_distance), ((Bytes(256 << 20), Bytes(256 << 20)), Some(true), None));
        assert!((product.floor_per_second - 7e14).abs() < 1.0, "{product:?}");
        assert!(product.place.contains("m.toml:") && product.place.contains("expect_product[0]"), "{}", product.place);
    }
}
