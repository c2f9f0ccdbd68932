//! A sweep: collectives over sizes, from a suite's `[[sweep]]` table or, built by hand, from flags.

use super::document::{Item, Place, Table};
use commgauge_base::collective::{Collective, Collectives, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Result, named};
use commgauge_base::geometry::{MOST_EXPERTS, Routed, Routing, Splits};
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
        table.set("solo", &mut sweep.solo, |item| item.truth())?;
        table.set("axis", &mut sweep.axis, |item| item.parsed(parse_axis))?;
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
            sweep.placements = item.each_parsed(parse_placement)?;
            sweep.refuse_missing_placements(&place)?;
        }
        table.set("cadences", &mut sweep.cadences, read_cadences)?;
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
    // As scripts for nccl-tests have it: `-f 1` or `-i 0` for one size.
    if from == to {
        return Ok(vec![from]);
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
    table.set("buffers", &mut variants.buffers, |item| item.each_parsed(str::parse))?;
    table.set("submit", &mut variants.submit, |item| item.each_parsed(str::parse))?;
    let aggregated = |item: &Item| item.count_within(1..=MOST_AGGREGATED);
    table.set("aggregate", &mut variants.aggregate, |item| item.each(aggregated))?;
    let most_blocks = |item: &Item| match item.is_whole() {
        true => item.count_within(1..=MOST_CTAS).map(Some),
        false => item.parsed(parse_max_ctas),
    };
    table.set("max_ctas", &mut variants.max_ctas, |item| item.each(most_blocks))?;
    Ok(variants)
}

pub(super) fn read_sizes(item: Item) -> Result<Vec<Bytes>> {
    if !item.is_table() {
        let items = item.items()?;
        if let Some(beyond) = items.get(MOST_SIZES) {
            return Err(beyond.wrong(format!("more than {MOST_SIZES} sizes in one sweep")));
        }
        return items.iter().map(|item| read_size(item, MOST_BYTES)).collect();
    }
    let place = item.place.clone();
    let mut table = item.table()?;
    let from = read_size(&table.require("from", "the smallest size, such as \"8B\"")?, MOST_BYTES)?;
    let to = read_size(&table.require("to", "the largest size, such as \"64MiB\"")?, MOST_BYTES)?;
    let growth = match (table.take("factor"), table.take("step")) {
        (Some(factor), None) => Growth::Factor(factor.whole(2..=u64::from(u32::MAX))?),
        (None, Some(step)) => Growth::Step(read_size(&step, MOST_BYTES)?),
        (None, None) => Growth::Factor(2),
        (Some(_), Some(step)) => return Err(step.wrong("cannot be combined with `factor`; give one of the two")),
    };
    table.finish()?;
    growing_sizes(from, to, growth).map_err(|problem| place.wrong(problem))
}

/// A size from 1 byte to `most`.
pub(super) fn read_size(item: &Item, most: Bytes) -> Result<Bytes> {
    let bytes = if item.is_whole() { Bytes(item.whole(0..=u64::MAX)?) } else { item.parsed(Bytes::parse)? };
    match bytes {
        Bytes(0) => Err(item.wrong("found a size of 0; accepted: 1 B and more")),
        _ if bytes > most => Err(item.wrong(format!("found {bytes}; accepted: up to {most}"))),
        _ => Ok(bytes),
    }
}

/// The named ones of a list, or all of them where the text is `all`.
fn all_or<T: Copy + PartialEq + std::str::FromStr<Err = String>>(item: Item, all: &[T]) -> Result<Vec<T>> {
    if item.is_text("all") {
        return Ok(all.to_vec());
    }
    item.each_parsed(str::parse)
}

fn read_roots(item: Item) -> Result<Roots> {
    if item.is_text("all") {
        return Ok(Roots::All);
    }
    item.each(|item| item.count_within(0..=u32::MAX)).map(Roots::These)
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

// Reads how a vector form divides its elements, from a suite's `splits` or the flag of that name.

const ACCEPTED: &str = "accepted: equal, skewed:EXPONENT (above 0, up to 8), given:3,1,1 or, for all_to_all_v, \
                        routed:ROUTING,experts=COUNT,k=COUNT[,hidden=COUNT][,capacity=FACTOR][,seed=NUMBER][,back] with ROUTING \
                        uniform, random, zipf:EXPONENT or hot:SHARE";

/// More elements than a token has anywhere.
const MOST_HIDDEN: u64 = 1 << 24;

/// Reads one item of a suite's `splits`.
pub(super) fn read_splits(item: Item) -> Result<Splits> {
    if !item.is_table() {
        return item.parsed(parse_splits);
    }
    let mut table = item.table()?;
    let splits = match (table.take("given"), table.take("skewed"), table.take("routed")) {
        (Some(given), None, None) => Splits::Given(given.each(|item| item.whole(0..=u64::MAX))?),
        (None, Some(skewed), None) => Splits::Skewed { exponent: skewed.fraction(0.0, 8.0)? },
        (None, None, Some(routed)) => read_routed(routed.table()?)?,
        _ => {
            let routed = "{ routed = { routing = \"zipf:1.2\", experts = 8, experts_per_token = 2 } }";
            let accepted = format!("accepted: {{ given = [3, 1, 1] }}, {{ skewed = 1.0 }} or {routed}");
            return Err(table.place.wrong(accepted));
        }
    };
    table.finish()?;
    Ok(splits)
}

fn read_routed(mut table: Table) -> Result<Splits> {
    let place = table.place.clone();
    let routing: Routing = table.require("routing", "how tokens choose, such as \"zipf:1.2\"")?.parsed(str::parse)?;
    let most = 1..=MOST_EXPERTS;
    let routed = Routed {
        routing,
        experts: table.require("experts", "the experts of a layer, such as 8")?.whole(most.clone())?,
        experts_per_token: table.require("experts_per_token", "how many a token goes to, such as 2")?.whole(most)?,
        elements_per_token: table.take("hidden").map(|item| item.whole(1..=MOST_HIDDEN)).transpose()?.unwrap_or(1),
        capacity_factor: table.take("capacity_factor").map(|item| item.fraction(0.0, 1e6)).transpose()?,
        seed: table.take("seed").map(|item| item.whole(0..=u64::MAX)).transpose()?.unwrap_or(1),
        back: table.take("back").map(|item| item.truth()).transpose()?.unwrap_or(false),
    };
    table.finish()?;
    // Whether the experts can be divided evenly is checked for the groups that run the case.
    routed.check(1).map_err(|problem| place.wrong(problem))?;
    Ok(Splits::Routed(routed))
}

/// Reads `equal`, `skewed:1.5`, `given:3,1,1` or `routed:zipf:1.2,experts=8,k=2`.
pub fn parse_splits(text: &str) -> std::result::Result<Splits, String> {
    let wrong = || format!("found `{text}`; {ACCEPTED}");
    match text.split_once(':') {
        None if text == "equal" => Ok(Splits::Equal),
        Some(("skewed", exponent)) => match exponent.parse() {
            Ok(exponent) if exponent > 0.0 && exponent <= 8.0 => Ok(Splits::Skewed { exponent }),
            _ => Err(wrong()),
        },
        Some(("given", weights)) => {
            let weights = weights.split(',').map(str::trim).map(str::parse);
            weights.collect::<std::result::Result<_, _>>().map(Splits::Given).map_err(|_| wrong())
        }
        Some(("routed", rest)) => parse_routed(rest).map_err(|problem| format!("{problem}, in `{text}`; {ACCEPTED}")),
        _ => Err(wrong()),
    }
}

/// The words of `routed:` and their keys in a suite.
const ROUTED_WORDS: [(&str, &str); 6] = [
    ("experts", "experts"),
    ("k", "experts_per_token"),
    ("hidden", "hidden"),
    ("capacity", "capacity_factor"),
    ("seed", "seed"),
    ("back", "back"),
];

fn parse_routed(text: &str) -> std::result::Result<Splits, String> {
    let (routing, rest) = text.split_once(',').unwrap_or((text, ""));
    let mut words = vec![("routing", "routing", routing.trim().to_owned())];
    for word in rest.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (name, value) = word.split_once('=').unwrap_or((word, "true"));
        let known = ROUTED_WORDS.iter().find(|(known, _)| *known == name);
        let (name, key) = known.ok_or_else(|| format!("found `{word}`"))?;
        words.push((name, key, value.to_owned()));
    }
    read_routed(Table::of_flags(words)).map_err(|problem| problem.to_string())
}

// Reads the cadences of a suite: streaming, isolated, or both.

/// Both cadences: the default everywhere.
pub const BOTH_CADENCES: [Cadence; 2] = [Cadence::Streaming, Cadence::Isolated];

/// Reads one cadence or a list of them.
pub(super) fn read_cadences(item: Item) -> Result<Vec<Cadence>> {
    item.each_parsed(named)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn invalid_routings_are_refused_with_the_valid_ones() {
        for (text, expected) in [
            ("routed:zipf:1", "`experts` is missing; accepted: the experts of a layer"),
            ("routed:zipf:1,experts=8", "`experts_per_token` is missing; accepted: how many a token goes to"),
            ("routed:zipf:9,experts=8,k=2", "found routing `zipf:9`"),
            ("routed:even,experts=8,k=2", "found routing `even`"),
            ("routed:uniform,experts=8,k=9", "found 9 experts for each token; accepted: 1 to 8, all of them"),
            ("routed:uniform,experts=0,k=1", "experts: found 0; accepted: a whole number from 1 to 65536"),
            ("routed:uniform,experts=70000,k=1", "experts: found 70000; accepted"),
            ("routed:hot:0.6,experts=8,k=2", "up to 1/2 of all choices"),
            ("routed:hot:0.6,experts=1,k=1", "a hot expert needs other experts"),
            ("routed:uniform,experts=8,k=2,hidden=0", "hidden: found 0; accepted: a whole number from 1"),
            ("routed:uniform,experts=8,k=2,capacity=0", "capacity: found 0; accepted: a number above 0"),
            ("routed:uniform,experts=8,k=2,capacity=nan", "capacity: found NaN; accepted"),
            ("routed:uniform,experts=8,k=2,bak", "found `bak`"),
            ("routed:uniform,experts=8,k=2,back=1", "back: found 1; accepted: true or false"),
            ("routed:random,experts=2048,k=2", "random routing of 2048 experts on 1 ranks; accepted: up to 1024"),
            ("uneven", "found `uneven`"),
        ] {
            let problem = parse_splits(text).unwrap_err();
            assert!(problem.contains(expected) && problem.contains("accepted: equal, skewed"), "{text}: {problem}");
        }
    }

    #[test]
    fn text_and_table_forms_are_equivalent() {
        let text = "routed:hot:0.25,experts=8,k=2,hidden=16,capacity=1.25,seed=7,back";
        let table = "{ routed = { routing = 'hot:0.25', experts = 8, experts_per_token = 2, hidden = 16, \
                     capacity_factor = 1.25, seed = 7, back = true } }";
        let sweep = |splits: &str| {
            let text = format!("[[sweep]]\ncollectives = 'all_to_all_v'\nbytes = '1KiB'\nsplits = [{splits}]\n");
            crate::config::Suite::parse(std::path::Path::new("s.toml"), &text)
                .map(|suite| suite.sweeps[0].splits.clone())
        };
        let read = sweep(table).unwrap();
        assert_eq!(read, [parse_splits(text).unwrap()]);
        assert_eq!(read, sweep(&format!("'{text}'")).unwrap());
        for (splits, expected) in [
            ("{ routed = { experts = 8 } }", "`routing` is missing"),
            ("{ routed = { routing = 'random', experts = 8, experts_per_token = 9 } }", "accepted: 1 to 8"),
            ("{ routed = { routing = 'random', experts = 8, experts_per_token = 2, k = 1 } }", "k"),
            ("{ skewed = 1, routed = {} }", "accepted: { given = [3, 1, 1] }, { skewed = 1.0 } or { routed ="),
        ] {
            let message = sweep(splits).unwrap_err().to_string();
            assert!(message.contains(expected) && message.contains("s.toml"), "{message}");
        }
    }
}
