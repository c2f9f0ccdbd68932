//! A sweep: collectives over sizes, from a suite's `[[sweep]]` table or, built by hand, from flags.

use super::document::{Item, Place, Table};
use super::suite_cadences::read_cadences;
use super::suite_splits::read_splits;
use commgauge_base::collective::{Collective, Collectives, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::Splits;
use commgauge_base::sample::Cadence;
use commgauge_base::units::Bytes;
use commgauge_base::variant::{MOST_AGGREGATED, MOST_CTAS, Variants, parse_max_ctas};

/// Most sizes in one sweep.
pub const MOST_SIZES: usize = 1000;
/// Largest size argument: more than any memory has, and small enough that the total bytes of all ranks fit 64 bits.
pub const MOST_BYTES: Bytes = Bytes(1 << 46);
/// The axes that a sweep can run on, as written in files.
pub const AXES: [&str; 14] = [
    "world",
    "tp",
    "cp",
    "ep",
    "dp",
    "pp",
    "mp",
    "dp_cp",
    "edp",
    "dp_shard",
    "dp_replicate",
    "node",
    "nodes",
    EVERY_PLACE,
];
/// Instead of an axis: groups of every size inside the nodes, and across them with every number of ranks of a node.
pub const EVERY_PLACE: &str = "places";
const BOTH_PLACEMENTS: [Placement; 2] = [Placement::OutOfPlace, Placement::InPlace];

/// Collectives over sizes; every combination of the lists that exists is a case.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Where it was requested.
    pub place: Place,
    /// Where the roots were given.
    pub roots_place: Place,
    /// One of [`AXES`]: the groups of the calls.
    pub axis: &'static str,
    /// The calls.
    pub collectives: Vec<Collective>,
    /// Types of the elements.
    pub element_types: Vec<ElementType>,
    /// How elements are combined, if a collective reduces.
    pub reduce_ops: Vec<ReduceOp>,
    /// Special ranks, where a collective has one.
    pub roots: Roots,
    /// The size arguments, none of them 0.
    pub bytes: Vec<Bytes>,
    /// Placements, where a collective offers them.
    pub placements: Vec<Placement>,
    /// Divisions of the elements, where a collective has them.
    pub splits: Vec<Splits>,
    /// Cadences of the calls.
    pub cadences: Vec<Cadence>,
    /// How calls are submitted.
    pub variants: Variants,
    /// Whether every case of several groups comes once more on the first group alone.
    pub solo: bool,
}

/// Which ranks of the group are root in turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roots {
    /// Every rank.
    All,
    /// These.
    These(Vec<u32>),
}

/// How sizes grow from the smallest to the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Each size is this many times the one before.
    Factor(u64),
    /// Each size is this much more than the one before.
    Step(Bytes),
}

impl Sweep {
    /// Reads a `[[sweep]]` table; `cadences` are the suite's.
    pub(super) fn read(mut table: Table, cadences: &[Cadence]) -> Result<Sweep> {
        let place = table.place.clone();
        let mut sweep = Sweep {
            roots_place: place.clone(),
            place,
            axis: AXES[0],
            collectives: Vec::new(),
            element_types: vec![ElementType::Float32],
            reduce_ops: vec![ReduceOp::Sum],
            roots: Roots::These(vec![0]),
            bytes: Vec::new(),
            placements: BOTH_PLACEMENTS.to_vec(),
            splits: vec![Splits::Equal],
            cadences: cadences.to_vec(),
            variants: Variants::default(),
            solo: false,
        };
        if let Some(item) = table.take("solo") {
            sweep.solo = item.truth()?;
        }
        if let Some(item) = table.take("axis") {
            sweep.axis = item.parsed(parse_axis)?;
        }
        let collectives = table.require("collectives", "a list such as [\"all_reduce\", \"all_gather\"]")?;
        for item in collectives.items()? {
            sweep.collectives.extend(item.parsed(str::parse::<Collectives>)?.0);
        }
        if let Some(item) = table.take("element_types") {
            sweep.element_types = all_or(item, &ElementType::ALL)?;
        }
        if let Some(item) = table.take("reduce_ops") {
            sweep.refuse_useless(&item, "reduces", Collective::reduces)?;
            sweep.reduce_ops = all_or(item, &ReduceOp::ALL)?;
        }
        if let Some(item) = table.take("roots") {
            sweep.refuse_useless(&item, "has a root", Collective::has_root)?;
            sweep.roots_place = item.place.clone();
            sweep.roots = read_roots(item)?;
        }
        if let Some(item) = table.take("splits") {
            sweep.refuse_useless(&item, "has splits", Collective::has_splits)?;
            sweep.splits = item.items()?.into_iter().map(read_splits).collect::<Result<_>>()?;
        }
        if let Some(item) = table.take("placements") {
            let place = item.place.clone();
            let items = item.items()?;
            sweep.placements = items.iter().map(|item| item.parsed(parse_placement)).collect::<Result<_>>()?;
            sweep.refuse_missing_placements(&place)?;
        }
        if let Some(item) = table.take("cadences") {
            sweep.cadences = read_cadences(item)?;
        }
        sweep.variants = read_variants(&mut table)?;
        sweep.bytes = match table.take("bytes") {
            Some(item) => read_sizes(item)?,
            None if sweep.collectives == [Collective::Barrier] => Vec::new(),
            None => return Err(table.place.wrong("`bytes` is missing; accepted: \"1MiB\", a list, or a range")),
        };
        table.finish()?;
        Ok(sweep)
    }

    /// Refuses placements that one of the collectives has none of.
    pub fn refuse_missing_placements(&self, place: &Place) -> Result<()> {
        let lacks = |c: &&Collective| !self.placements.iter().any(|placement| c.placements().contains(placement));
        match self.collectives.iter().find(lacks) {
            Some(collective) => {
                let offered: Vec<_> = collective.placements().iter().map(|placement| placement.name()).collect();
                Err(place.wrong(format!("{collective} exists {} only", offered.join(" and "))))
            }
            None => Ok(()),
        }
    }

    fn refuse_useless(&self, item: &Item, what: &str, matters: fn(Collective) -> bool) -> Result<()> {
        if self.collectives.iter().any(|collective| matters(*collective)) {
            return Ok(());
        }
        Err(item.wrong(format!("none of the collectives {what}; leave this out")))
    }
}

/// The sizes from the smallest to the largest, or what is wrong with them.
pub fn growing_sizes(from: Bytes, to: Bytes, growth: Growth) -> std::result::Result<Vec<Bytes>, String> {
    if from.0 == 0 {
        return Err("found a smallest size of 0; accepted: 1 B and more".to_owned());
    }
    if from > to {
        return Err(format!("the smallest size, {from}, is above the largest, {to}"));
    }
    if to > MOST_BYTES {
        return Err(format!("found a largest size of {to}; accepted: up to {MOST_BYTES}"));
    }
    let next = |bytes: &Bytes| match growth {
        Growth::Factor(factor) => bytes.0.checked_mul(factor).map(Bytes),
        Growth::Step(step) => bytes.0.checked_add(step.0).map(Bytes),
    };
    match growth {
        Growth::Factor(factor) if factor < 2 => {
            return Err(format!("found a factor of {factor}; accepted: 2 and more"));
        }
        Growth::Step(Bytes(0)) => return Err("found a step of 0; accepted: 1 B and more".to_owned()),
        _ => {}
    }
    let growing = std::iter::successors(Some(from), next).take_while(|bytes| *bytes <= to);
    let sizes: Vec<Bytes> = growing.take(MOST_SIZES + 1).collect();
    if sizes.len() > MOST_SIZES {
        return Err(format!("gives more than {MOST_SIZES} sizes; take larger steps or a smaller range"));
    }
    Ok(sizes)
}

/// The lists of variants; the usual way where a list is not there.
fn read_variants(table: &mut Table) -> Result<Variants> {
    let mut variants = Variants::default();
    if let Some(item) = table.take("buffers") {
        variants.buffers = item.items()?.iter().map(|item| item.parsed(str::parse)).collect::<Result<_>>()?;
    }
    if let Some(item) = table.take("submit") {
        variants.submit = item.items()?.iter().map(|item| item.parsed(str::parse)).collect::<Result<_>>()?;
    }
    if let Some(item) = table.take("aggregate") {
        let read = |item: &Item| item.count_within(1..=MOST_AGGREGATED);
        variants.aggregate = item.items()?.iter().map(read).collect::<Result<_>>()?;
    }
    if let Some(item) = table.take("max_ctas") {
        let read = |item: &Item| match item.is_whole() {
            true => item.count_within(1..=MOST_CTAS).map(Some),
            false => item.parsed(parse_max_ctas),
        };
        variants.max_ctas = item.items()?.iter().map(read).collect::<Result<_>>()?;
    }
    Ok(variants)
}

pub(super) fn read_sizes(item: Item) -> Result<Vec<Bytes>> {
    if !item.is_table() {
        let items = item.items()?;
        if let Some(beyond) = items.get(MOST_SIZES) {
            return Err(beyond.wrong(format!("more than {MOST_SIZES} sizes in one sweep")));
        }
        return items.iter().map(read_size).collect();
    }
    let place = item.place.clone();
    let mut table = item.table()?;
    let from = read_size(&table.require("from", "the smallest size, such as \"8B\"")?)?;
    let to = read_size(&table.require("to", "the largest size, such as \"64MiB\"")?)?;
    let growth = match (table.take("factor"), table.take("step")) {
        (Some(factor), None) => Growth::Factor(factor.whole(2..=u64::from(u32::MAX))?),
        (None, Some(step)) => Growth::Step(read_size(&step)?),
        (None, None) => Growth::Factor(2),
        (Some(_), Some(step)) => return Err(step.wrong("cannot be combined with `factor`; give one of the two")),
    };
    table.finish()?;
    growing_sizes(from, to, growth).map_err(|problem| place.wrong(problem))
}

fn read_size(item: &Item) -> Result<Bytes> {
    let bytes = if item.is_whole() { Bytes(item.whole(0..=u64::MAX)?) } else { item.parsed(Bytes::parse)? };
    match bytes {
        Bytes(0) => Err(item.wrong("found a size of 0; accepted: 1 B and more")),
        _ if bytes > MOST_BYTES => Err(item.wrong(format!("found {bytes}; accepted: up to {MOST_BYTES}"))),
        _ => Ok(bytes),
    }
}

/// The named ones of a list, or all of them where the text is `all`.
fn all_or<T: Copy + PartialEq + std::str::FromStr<Err = String>>(item: Item, all: &[T]) -> Result<Vec<T>> {
    if item.is_text("all") {
        return Ok(all.to_vec());
    }
    item.items()?.iter().map(|item| item.parsed(str::parse::<T>)).collect()
}

fn read_roots(item: Item) -> Result<Roots> {
    if item.is_text("all") {
        return Ok(Roots::All);
    }
    Ok(Roots::These(item.items()?.iter().map(|item| item.count_within(0..=u32::MAX)).collect::<Result<_>>()?))
}

/// Reads `in-place` or `out-of-place`.
pub(super) fn parse_placement(text: &str) -> std::result::Result<Placement, String> {
    let found = BOTH_PLACEMENTS.into_iter().find(|placement| placement.name() == text);
    found.ok_or_else(|| format!("found `{text}`; accepted: in-place, out-of-place"))
}

fn parse_axis(text: &str) -> std::result::Result<&'static str, String> {
    let found = AXES.into_iter().find(|axis| *axis == text);
    found.ok_or_else(|| format!("found axis `{text}`; accepted: {}", AXES.join(", ")))
}
