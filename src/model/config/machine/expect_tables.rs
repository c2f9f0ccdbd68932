//! The tables `[[expect]]`, `[[expect_network]]`, `[[expect_copy]]` and `[[expect_product]]` as files have them, read and written by
//! these types. `expect` checks them together with the links.

use crate::config::typed::{Found, Text, Written, accepting, count, number, to_toml, whole};
use crate::config::{CopyKind, Each, HostMemory};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Result, named};
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Rate, Seconds, parse_rate};
use commgauge_base::variant::LABELS;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;

/// More ranks than any group has.
const MOST_RANKS: u32 = 1 << 24;

/// More rows, columns or terms than any product has.
const MOST_ELEMENTS: u64 = 1 << 40;

/// More than any GPU computes, in 10^12 operations a second.
const MOST_TFLOPS: f64 = 1e6;

/// A tolerance above this would set a floor of less than a tenth of the figure, which checks nothing.
const MOST_TOLERANCE: f64 = 0.9;

/// One `[[expect]]`: the performance of one kind of call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExpectTable {
    /// The call.
    #[serde(with = "crate::config::typed::text")]
    pub collective: Collective,
    /// Sizes, where the figure is not a curve.
    pub bytes: Option<Sizes>,
    /// Ranks in each group.
    #[serde(deserialize_with = "count::<_, _, 2, MOST_RANKS>")]
    pub ranks: u32,
    /// Most ranks of a group on one node; as many as fit if absent.
    pub ranks_per_node: Option<u32>,
    /// Nodes that a group spans; the fewest if absent.
    pub nodes: Option<u32>,
    /// Groups with ranks on the same node that call at the same time; one if absent.
    pub groups_per_node: Option<u32>,
    /// What is timed.
    #[serde(default)]
    pub cadence: Cadence,
    /// Whether the result replaces the input; both if absent.
    pub placement: Option<Placement>,
    /// Type of the elements; any if absent.
    pub element_type: Option<Text<ElementType>>,
    /// The figure, from which the tolerance is taken.
    pub value: Option<Text<Figure>>,
    /// Figures of several sizes.
    pub curve: Option<Vec<CurvePoint>>,
    /// The share by which a value may be missed.
    #[serde(default, deserialize_with = "tolerance")]
    pub tolerance: Option<f64>,
    /// The least bus bandwidth.
    pub floor: Option<Text<Rate>>,
    /// The longest time of a call.
    pub ceiling: Option<Text<Seconds>>,
    /// What of several rows must reach it; each by itself if absent.
    #[serde(default, deserialize_with = "rows")]
    pub rows: Option<Rows>,
    /// Tables of the same rule count their rows together; each table by itself if absent.
    pub rule: Option<String>,
    /// True if switches reduce or copy by themselves, so that the links are no bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_network: bool,
    /// Origin of the figure: a publication or a measurement.
    #[serde(deserialize_with = "source")]
    pub source: String,
    /// When: `2026`, `2026-03` or `2026-03-14`.
    #[serde(deserialize_with = "date")]
    pub date: String,
    /// Algorithm. Only calls of which the record says that they had it are compared with the figure.
    pub algorithm: Option<String>,
    /// Library and version that the figure was reached with.
    pub version: Option<String>,
    /// True if one process drove all devices of a host with a thread for each: small messages then take another time than those of
    /// processes, which are not compared with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_process: bool,
    /// Further remarks.
    pub note: Option<String>,
    /// How the calls are handed over, by the labels of records (`buffers`, `submit`, `aggregate` ...); empty for plain calls.
    #[serde(default, deserialize_with = "variant", skip_serializing_if = "BTreeMap::is_empty")]
    pub variant: BTreeMap<String, String>,
}

/// One `[[expect_network]]`: calls between nodes, as a share of what the adapters carry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectNetworkTable {
    pub(super) collectives: Vec<Text<Collective>>,
    pub(super) bytes: Sizes,
    #[serde(deserialize_with = "share")]
    pub(super) share: f64,
    #[serde(deserialize_with = "tolerance")]
    pub(super) tolerance: f64,
    #[serde(default)]
    pub(super) cadence: Cadence,
    pub(super) placement: Option<Placement>,
    pub(super) element_type: Option<Text<ElementType>>,
    #[serde(deserialize_with = "source")]
    pub(super) source: String,
    #[serde(deserialize_with = "date")]
    pub(super) date: String,
    pub(super) algorithm: Option<String>,
    pub(super) version: Option<String>,
    pub(super) note: Option<String>,
}

/// One `[[expect_copy]]`: a copy by the copy engines of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectCopyTable {
    /// From where to where.
    #[serde(with = "crate::config::typed::text")]
    pub kind: CopyKind,
    /// Smallest and largest number of bytes, ends included.
    pub bytes: Sizes,
    /// Memory of the host's end; any if absent.
    pub host_memory: Option<HostMemory>,
    /// How far the other rank is in the order of the ranks of its host; any if absent.
    #[serde(default, deserialize_with = "count::<_, _, 1, 4096>")]
    pub peer_distance: Option<u32>,
    /// Whether one rank of each host copies at a time; both if absent.
    pub each: Option<Each>,
    /// What the slowest rank reaches in each direction.
    #[serde(with = "crate::config::typed::text")]
    pub value: Rate,
    /// The share by which it may be missed.
    #[serde(default, deserialize_with = "tolerance")]
    pub tolerance: Option<f64>,
    /// Origin of the figure.
    #[serde(deserialize_with = "source")]
    pub source: String,
    /// When.
    #[serde(deserialize_with = "date")]
    pub date: String,
    /// Library or driver, and version, that the figure was reached with.
    pub version: Option<String>,
    /// Further remarks.
    pub note: Option<String>,
}

/// One `[[expect_product]]`: a matrix product of m x k by k x n.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectProductTable {
    /// Rows of the result.
    #[serde(deserialize_with = "side")]
    pub m: u64,
    /// Columns of the result.
    #[serde(deserialize_with = "side")]
    pub n: u64,
    /// Terms of each sum.
    #[serde(deserialize_with = "side")]
    pub k: u64,
    /// Type of the elements; any if absent.
    pub element_type: Option<Text<ElementType>>,
    /// 10^12 floating-point operations a second of the slowest rank.
    #[serde(deserialize_with = "tflops")]
    pub tflops: f64,
    /// The share by which it may be missed.
    #[serde(default, deserialize_with = "tolerance")]
    pub tolerance: Option<f64>,
    /// Origin of the figure.
    #[serde(deserialize_with = "source")]
    pub source: String,
    /// When.
    #[serde(deserialize_with = "date")]
    pub date: String,
    /// Library or driver, and version, that the figure was reached with.
    pub version: Option<String>,
    /// Further remarks.
    pub note: Option<String>,
}

/// Tables of a machine file that say what is expected of what was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ExpectTables {
    /// Of calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expect: Vec<ExpectTable>,
    /// Of copies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expect_copy: Vec<ExpectCopyTable>,
    /// Of matrix products.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expect_product: Vec<ExpectProductTable>,
}

impl ExpectTables {
    /// Their text.
    ///
    /// # Errors
    /// As [`to_toml`].
    pub fn to_toml(&self) -> Result<String> {
        to_toml(self)
    }
}

/// One size, or the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sizes(pub Bytes, pub Bytes);

/// What of several rows must reach a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rows {
    /// Their mean, as nccl-tests prints it under a table (`# Avg bus bandwidth`).
    Mean,
    /// At least this many of them: the best one if 1.
    #[serde(untagged)]
    AtLeast(u32),
}

/// A size and its figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(expecting = "a size and a value such as [\"1MiB\", \"40GB/s\"]")]
pub struct CurvePoint(pub Text<Bytes>, pub Text<Figure>);

/// What was reached: a rate is a bus bandwidth, a time that of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figure {
    /// A bus bandwidth.
    Rate(Rate),
    /// A time.
    Time(Seconds),
}

impl Written for Figure {
    const ACCEPTED: &'static str = "a rate or a time such as \"445GB/s\" or \"20us\"";

    fn from_text(text: &str) -> std::result::Result<Figure, String> {
        if parse_rate(text).is_ok() {
            return Rate::from_text(text).map(Figure::Rate);
        }
        match Seconds::from_text(text)? {
            time if time.0 > 0.0 => Ok(Figure::Time(time)),
            time => Err(format!("found {time}; accepted: a time above 0")),
        }
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&match self {
            Figure::Rate(rate) => rate.to_text(),
            Figure::Time(time) => time.to_text(),
        })
    }
}

impl Written for CopyKind {
    const ACCEPTED: &'static str = "a kind of copy such as \"host-to-device\"";

    fn from_text(text: &str) -> std::result::Result<CopyKind, String> {
        named::<CopyKind>(text)
    }
}

impl Serialize for Sizes {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        if self.0 == self.1 { Text(self.0).serialize(to) } else { [Text(self.0), Text(self.1)].serialize(to) }
    }
}

impl<'de> Deserialize<'de> for Sizes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Sizes, D::Error> {
        match Vec::<Text<Bytes>>::deserialize(from)?.as_slice() {
            [one] => Ok(Sizes(one.0, one.0)),
            [low, high] if low <= high => Ok(Sizes(low.0, high.0)),
            _ => Err(D::Error::custom("accepted: one size, or the smallest and the largest of a range")),
        }
    }
}

/// A share without a sign: of rates and of times it says by how much worse they may be.
fn tolerance<'de, D: Deserializer<'de>, T: From<f64>>(from: D) -> std::result::Result<T, D::Error> {
    let accepted =
        format!("a share from 0 to {MOST_TOLERANCE} without a sign: 0.05 lets pass what is 5 % worse, rate or time");
    accepting(from, accepted, |value| match value {
        Found::Whole(0) => Some(Ok(T::from(0.0))),
        Found::Number(share) => (0.0..=MOST_TOLERANCE).contains(&share).then_some(Ok(T::from(share))),
        _ => None,
    })
}

fn rows<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<Rows>, D::Error> {
    let accepted = "\"each\", \"mean\", \"maximum\", or how many rows must reach it at least, such as 7";
    accepting(from, accepted.to_owned(), |value| match value {
        Found::Text("each") => Some(Ok(None)),
        Found::Text("mean") => Some(Ok(Some(Rows::Mean))),
        Found::Text("maximum") => Some(Ok(Some(Rows::AtLeast(1)))),
        Found::Whole(least) if least > 0 => u32::try_from(least).ok().map(|least| Ok(Some(Rows::AtLeast(least)))),
        _ => None,
    })
}

fn share<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    number(from, 0.01..=1.0)
}

fn tflops<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<f64, D::Error> {
    number(from, 1e-9..=MOST_TFLOPS)
}

fn side<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<u64, D::Error> {
    whole(from, 1..=MOST_ELEMENTS)
}

fn source<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    accepting(from, "who published or measured it, and where".to_owned(), |value| match value {
        Found::Text(text) if !text.trim().is_empty() => Some(Ok(text.to_owned())),
        _ => None,
    })
}

/// A year, a month or a day, as written.
fn date<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<String, D::Error> {
    let accepted = "a year, month or day such as 2026, 2026-03 or 2026-03-14";
    accepting(from, format!("{accepted}, in quotes"), |value| {
        let Found::Text(text) = value else { return None };
        let day = match text.len() {
            4 => format!("{text}-01-01"),
            7 => format!("{text}-01"),
            _ => text.to_owned(),
        };
        Some(match day.parse::<jiff::civil::Date>() {
            Ok(_) if day.len() == 10 => Ok(text.to_owned()),
            _ => Err(format!("found `{text}`; accepted: {accepted}")),
        })
    })
}

/// The labels of a variant, such as `{ aggregate = "8" }`.
fn variant<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<BTreeMap<String, String>, D::Error> {
    struct Labels;
    impl<'de> Visitor<'de> for Labels {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
            f.write_str("a table such as { aggregate = \"8\" }")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> std::result::Result<Self::Value, A::Error> {
            let mut labels = BTreeMap::new();
            while let Some((name, value)) = entries.next_entry()? {
                labels.insert(name, value);
            }
            Ok(labels)
        }
    }
    from.deserialize_struct("variant", &LABELS, Labels)
}

/// Required performance of the work that each rank does by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnWorkExpectation {
    /// File, line and key of the expectation, for messages and reports.
    pub place: String,
    /// What the file says of it.
    pub work: ExpectedWork,
}

/// The work that an expectation is about.
#[derive(Clone, Debug, PartialEq)]
pub enum ExpectedWork {
    /// A copy.
    Copy(ExpectCopyTable),
    /// A matrix product.
    Product(ExpectProductTable),
}

/// Who says what a figure is.
pub struct Origin<'a> {
    /// A publication or a measurement.
    pub source: &'a str,
    /// When.
    pub date: &'a str,
    /// Library or driver, and version.
    pub version: Option<&'a str>,
}

impl OwnWorkExpectation {
    /// The figure itself: bytes per second in each direction, or floating-point operations per second.
    pub fn figure_per_second(&self) -> f64 {
        match &self.work {
            ExpectedWork::Copy(copy) => copy.value.0,
            ExpectedWork::Product(product) => 1e12 * product.tflops,
        }
    }

    /// The least that the slowest rank must reach.
    pub fn floor_per_second(&self) -> f64 {
        let (ExpectedWork::Copy(ExpectCopyTable { tolerance, .. })
        | ExpectedWork::Product(ExpectProductTable { tolerance, .. })) = &self.work;
        self.figure_per_second() * (1.0 - tolerance.unwrap_or(0.0))
    }

    /// Who says so.
    pub fn origin(&self) -> Origin<'_> {
        let (ExpectedWork::Copy(ExpectCopyTable { source, date, version, .. })
        | ExpectedWork::Product(ExpectProductTable { source, date, version, .. })) = &self.work;
        Origin { source, date, version: version.as_deref() }
    }
}
