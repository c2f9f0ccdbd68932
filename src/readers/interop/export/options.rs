//! What a planner needs and a fit does not contain.

use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_cost::cost::{CurveFit, FamilyFit, Fit, Place, PlaceQuery, Predictor, Status};
use parquet::basic::{Compression, Type};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::Result as Written;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Information that a planner needs and the fit does not contain.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Nodes of the target machine.
    pub nodes: u32,
    pub ranks_per_node: Option<u32>,
    /// Placement of groups whose records lack it.
    pub unknown: Option<PlaceQuery>,
    /// Element type of reducing calls, if several were fitted.
    pub element_type: Option<ElementType>,
    /// The planner's own system file, whose other parts are copied unchanged.
    pub base: Option<Value>,
    /// Ranks and place of the groups of the axes `tp`, `dp`, `ep` and `pp`.
    pub axes: Vec<AxisPlace>,
}

/// The groups of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AxisPlace {
    pub axis: String,
    pub ranks: u32,
    pub place: Place,
}

/// Ranks per node, for formats that describe a machine.
pub(super) fn ranks_per_node(options: &ExportOptions) -> Result<u32> {
    let missing =
        "--ranks-per-node is missing; the format describes a machine, and a fit does not contain the ranks per node";
    options.ranks_per_node.filter(|ranks| *ranks > 0).ok_or_else(|| Error::usage(missing))
}

// Selects curves of a fit for an export: by call, group size and place, exactly or not at all.

/// Size at which the bus bandwidth of large calls is read; the largest measured size if that is smaller.
pub(super) const LARGE: u64 = 256 << 20;

/// The curves of a fit, with the user's statements on unknown places and types.
pub(super) struct Curves<'a> {
    pub fit: &'a Fit,
    predictor: Predictor<'a>,
    unknown: Option<PlaceQuery>,
    element_type: Option<ElementType>,
}

/// Required placement of groups.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted {
    /// Exactly this place.
    At(Place),
    /// On this many hosts, with any number of concurrent groups; the smallest measured number.
    OnHosts(u32),
}

#[derive(Clone, Copy)]
pub(super) struct Found<'a> {
    pub family: &'a FamilyFit,
    pub curve: &'a CurveFit,
    index: usize,
}

impl<'a> Curves<'a> {
    pub fn new(fit: &'a Fit, options: &ExportOptions) -> Curves<'a> {
        Curves { fit, predictor: Predictor::new(fit), unknown: options.unknown, element_type: options.element_type }
    }

    /// The source of the files, as one line for their headers; begins with SYNTHETIC if the fit is.
    pub fn source(&self) -> String {
        let synthetic = if self.fit.synthetic { "SYNTHETIC, not measured: " } else { "" };
        let plain = |text: &str| text.replace(|c: char| c.is_control(), " ");
        let files: Vec<String> = self.fit.sources.iter().map(|source| plain(&source.file)).collect();
        let library = self.fit.sources.first().map_or_else(String::new, |source| plain(&source.library));
        format!("{synthetic}commgauge {} fit of {} ({library})", env!("CARGO_PKG_VERSION"), files.join(", "))
    }

    /// Every family of streaming calls, with its index; of isolated calls if there are no streaming ones.
    pub fn families(&self) -> impl Iterator<Item = &'a FamilyFit> {
        let streamed = self.fit.families.iter().any(|family| family.key.cadence == Cadence::Streaming);
        let wanted = if streamed { Cadence::Streaming } else { Cadence::Isolated };
        self.fit.families.iter().filter(move |family| family.key.cadence == wanted)
    }

    /// Whether a family can represent groups at this place.
    pub fn matches(&self, family: &FamilyFit, wanted: Wanted) -> bool {
        let place = family.key.place;
        let user_stated = |at: Place| {
            place.nodes_spanned == 0 && self.unknown.as_ref().is_some_and(|stated| at.matches_query(stated))
        };
        match wanted {
            Wanted::At(at) => place == at || user_stated(at),
            Wanted::OnHosts(hosts) => {
                let at = Place { nodes_spanned: hosts, concurrent_groups_per_node: 1, stride: 1 };
                place.nodes_spanned == hosts || user_stated(at)
            }
        }
    }

    /// The curve of a call on this many ranks, or what is missing.
    pub fn find(
        &self,
        collectives: &[Collective],
        ranks: u32,
        wanted: Wanted,
    ) -> std::result::Result<Found<'a>, String> {
        let mut found: Vec<Found<'a>> = Vec::new();
        for family in self.families().filter(|family| collectives.contains(&family.key.collective)) {
            let curve = family.curves.iter().find(|curve| curve.ranks == ranks && !curve.points.is_empty());
            let index = self.fit.families.iter().position(|other| std::ptr::eq(other, family));
            if let (Some(curve), Some(index), true) = (curve, index, self.matches(family, wanted)) {
                found.push(Found { family, curve, index });
            }
        }
        let best = found.into_iter().min_by_key(|found| {
            let key = &found.family.key;
            (self.preference(key.element_type), key.place.concurrent_groups_per_node, key.place.stride)
        });
        best.filter(|found| {
            self.element_type.is_none() || found.family.key.element_type.is_none_or(|e| Some(e) == self.element_type)
        })
        .ok_or_else(|| {
            let names: Vec<&str> = collectives.iter().map(|collective| collective.name()).collect();
            let element = self.element_type.map_or_else(String::new, |element| format!(" of {element}"));
            let hint = self.hint_at_places(collectives);
            format!("{}{element} on {ranks} ranks {wanted} was not measured{hint}", names.join(" or "))
        })
    }

    /// The flag that gives the place of groups whose records lack it.
    pub fn hint_at_places(&self, collectives: &[Collective]) -> &'static str {
        let of_call =
            |family: &&FamilyFit| collectives.contains(&family.key.collective) && family.key.place.nodes_spanned == 0;
        match self.families().find(of_call) {
            Some(_) if self.unknown.is_none() => {
                "; the records lack the place of its groups: give it with --unknown-locality PLACE, such as 1n"
            }
            Some(_) => "; --unknown-locality gives a different place",
            None => "",
        }
    }

    /// The requested type first, then the types that models are trained in.
    fn preference(&self, element: Option<ElementType>) -> u32 {
        match element {
            None => 0,
            same if same == self.element_type => 0,
            Some(ElementType::Bfloat16) => 1,
            Some(ElementType::Float16) => 2,
            Some(ElementType::Float32) => 3,
            Some(_) => 4,
        }
    }

    /// Seconds of a call of a size inside the measured ones.
    pub fn seconds(&self, found: &Found, bytes: u64) -> Option<f64> {
        let answer = self.predictor.predict_by(found.index, found.curve.ranks, Bytes(bytes));
        answer
            .seconds
            .filter(|_| matches!(answer.status, Status::Measured | Status::Interpolated))
            .map(|seconds| seconds.0)
    }

    /// Bus bandwidth of large calls in bytes per second, and the size at which it was read.
    pub fn bus_bandwidth(&self, found: &Found) -> Option<(f64, u64)> {
        let largest = found.curve.points.iter().rev().find(|point| point.curve_seconds.is_some())?.bytes_total.0;
        let bytes = largest.min(LARGE);
        let factor = found.family.key.collective.bus_factor(found.curve.ranks)?;
        Some((bytes as f64 * factor / self.seconds(found, bytes)?, bytes))
    }

    /// The bus bandwidth of one of these calls at a place, and the bytes at which it is that.
    pub fn rate(
        &self,
        collectives: &[Collective],
        ranks: u32,
        place: Place,
    ) -> std::result::Result<(f64, u64), String> {
        let found = self.find(collectives, ranks, Wanted::At(place))?;
        self.bus_bandwidth(&found).ok_or_else(|| "no usable curve".to_owned())
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wanted::At(place) => write!(f, "at {place}"),
            Wanted::OnHosts(1) => write!(f, "inside a host"),
            Wanted::OnHosts(hosts) => write!(f, "on {hosts} hosts"),
        }
    }
}

// Parquet files from rows of JSON: the dataset of a store, and planners' files.

/// A file with one group of rows. The schema is a message of Parquet; each column has the name of its key in a row, and is a text, an int64
/// or a double.
///
/// # Errors
/// A row without a required column, or an invalid schema; `what` names the file.
pub fn parquet_file(what: &str, schema: &str, rows: &[Map<String, Value>]) -> Result<Vec<u8>> {
    written(schema, rows).map_err(|cause| Error::environment(format!("cannot write {what}: {cause}")))
}

fn written(schema: &str, rows: &[Map<String, Value>]) -> Written<Vec<u8>> {
    let schema = Arc::new(parse_message_type(schema)?);
    let properties = Arc::new(WriterProperties::builder().set_compression(Compression::SNAPPY).build());
    let mut writer = SerializedFileWriter::new(Vec::new(), schema.clone(), properties)?;
    let mut group = writer.next_row_group()?;
    for field in schema.get_fields() {
        let Some(mut column) = group.next_column()? else { continue };
        let values = || rows.iter().map(|row| row.get(field.name()).unwrap_or(&Value::Null));
        match field.get_physical_type() {
            Type::INT64 => write::<Int64Type>(&mut column, values().map(Value::as_i64))?,
            Type::DOUBLE => write::<DoubleType>(&mut column, values().map(Value::as_f64))?,
            _ => write::<ByteArrayType>(&mut column, values().map(|value| value.as_str().map(ByteArray::from)))?,
        }
        column.close()?;
    }
    group.close()?;
    writer.into_inner()
}

/// Writes the values of a column. Parquet's definition level is 1 for a present value.
fn write<T: DataType>(column: &mut SerializedColumnWriter, values: impl Iterator<Item = Option<T::T>>) -> Written<()> {
    let values: Vec<Option<T::T>> = values.collect();
    let levels: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let known: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&known, Some(&levels), None).map(drop)
}
