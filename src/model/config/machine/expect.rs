//! Expected performance of a machine: one `[[expect]]` or `[[expect_network]]` of a machine file, with the source of the figure.
//!
//! `verdict` decides which rows of a record an expectation covers, and whether they satisfy it.

use super::description::Machine;
use super::description::{Expectation, ExpectedGroup, Limit, NetworkExpectation, Reached};
use super::own_work::{MOST_TOLERANCE, date, optional_text, range, source};
use crate::config::document::{Item, Place, Table};
use commgauge_base::collective::{Collective, Placement};
use commgauge_base::error::Result;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Rate, Seconds, parse_rate};
use commgauge_base::variant::LABELS;
use std::collections::BTreeMap;

const KEYS: [&str; 22] = [
    "collective",
    "bytes",
    "ranks",
    "ranks_per_node",
    "nodes",
    "groups_per_node",
    "cadence",
    "placement",
    "element_type",
    "variant",
    "value",
    "curve",
    "tolerance",
    "floor",
    "ceiling",
    "in_network",
    "source",
    "date",
    "algorithm",
    "version",
    "one_process",
    "note",
];
const NETWORK_KEYS: [&str; 12] = [
    "collectives",
    "bytes",
    "share",
    "tolerance",
    "cadence",
    "placement",
    "element_type",
    "source",
    "date",
    "algorithm",
    "version",
    "note",
];
/// More ranks than any group has.
const MOST_RANKS: u32 = 1 << 24;

/// Reads and checks one `[[expect]]`; the links of the machine bound what may be required. A curve is an expectation for
/// each of its sizes.
pub(super) fn expectations(mut table: Table, machine: &Machine) -> Result<Vec<Expectation>> {
    table.only(&KEYS)?;
    let place = table.place.clone();
    let (curve, bytes) = (table.take("curve"), table.take("bytes"));
    let figures = match (curve, &bytes) {
        (None, _) => vec![single(&mut table)?],
        (Some(curve), None) => curve_figures(&mut table, curve)?,
        (Some(_), Some(bytes)) => {
            return Err(bytes.wrong("a curve has a size for each of its figures; remove `bytes`"));
        }
    };
    let collective = table.require("collective", "a collective such as \"all_reduce\"")?.parsed(str::parse)?;
    let group = group(&mut table, machine)?;
    let mut common = common(table, collective, group)?;
    let of_curve = figures.iter().all(|figure| figure.bytes.is_some());
    match bytes {
        Some(item) => common.bytes = range(item)?,
        None if of_curve || common.collective == Collective::Barrier => {}
        None => {
            return Err(place
                .wrong("`bytes` is missing; accepted: a size such as \"1GiB\", or a range [\"512MiB\", \"16GiB\"]"));
        }
    }
    let mut read = Vec::new();
    for figure in figures {
        let mut expected = Expectation { limit: figure.limit, tolerance: figure.tolerance, ..common.clone() };
        if let Some(bytes) = figure.bytes {
            (expected.bytes, expected.place) = ((bytes, bytes), figure.place.to_string());
        }
        check_bound(&expected, &figure.place, machine)?;
        read.push(expected);
    }
    Ok(read)
}

/// Reads and checks one `[[expect_network]]`: an expectation for each of its calls.
pub(super) fn network_expectations(mut table: Table) -> Result<Vec<NetworkExpectation>> {
    table.only(&NETWORK_KEYS)?;
    let called = table.require("collectives", "calls such as [\"ping_pong\", \"bidirectional\"]")?;
    let place = called.place.clone();
    let collectives: Vec<Collective> =
        called.items()?.iter().map(|item| item.parsed(str::parse)).collect::<Result<_>>()?;
    if collectives.contains(&Collective::Barrier) {
        return Err(place.wrong("a barrier moves no bytes, so no share of a rate can be expected of it"));
    }
    let bytes = range(table.require("bytes", "a size such as \"1GiB\", or a range [\"64MiB\", \"8GiB\"]")?)?;
    let share = table.require("share", "the part of the adapters' rate that is reached, such as 0.92")?;
    let share = share.number_within(0.01..=1.0)?;
    let tolerance = table.require("tolerance", "the share by which that may be missed, such as 0.1")?;
    let tolerance = tolerance.number_within(0.0..=MOST_TOLERANCE)?;
    let any = ExpectedGroup { ranks: 0, ranks_per_node: 0, nodes: 0, groups_per_node: 0 };
    let of_call = Expectation { bytes, ..common(table, collectives[0], any)? };
    let of =
        |collective| NetworkExpectation { share, tolerance, of_call: Expectation { collective, ..of_call.clone() } };
    Ok(collectives.into_iter().map(of).collect())
}

/// The groups that an expectation is about.
fn group(table: &mut Table, machine: &Machine) -> Result<ExpectedGroup> {
    let ranks = table.require("ranks", "the number of ranks in a group, such as 8")?.count_within(2..=MOST_RANKS)?;
    let per_node = match table.take("ranks_per_node") {
        Some(item) => item.count_within(1..=ranks)?,
        None => ranks.min(machine.ranks_per_node),
    };
    let fewest_nodes = ranks.div_ceil(per_node);
    let nodes = table.take("nodes").map_or(Ok(fewest_nodes), |item| item.count_within(fewest_nodes..=ranks))?;
    let groups_per_node = table.take("groups_per_node").map_or(Ok(1), |item| item.count())?;
    Ok(ExpectedGroup { ranks, ranks_per_node: per_node, nodes, groups_per_node })
}

/// Everything but the figures themselves.
fn common(mut table: Table, collective: Collective, group: ExpectedGroup) -> Result<Expectation> {
    Ok(Expectation {
        collective,
        bytes: (Bytes(0), Bytes(0)),
        group,
        cadence: table.take("cadence").map_or(Ok(Cadence::Streaming), |item| item.parsed(cadence))?,
        placement: table.take("placement").map(|item| item.parsed(placement)).transpose()?,
        element_type: table.take("element_type").map(|item| item.parsed(str::parse)).transpose()?,
        variant: table.take("variant").map_or(Ok(BTreeMap::new()), variant)?,
        limit: Limit::LatencyCeiling(Seconds(0.0)),
        tolerance: None,
        in_network: table.take("in_network").map_or(Ok(false), |item| item.truth())?,
        source: source(&mut table)?,
        date: date(&mut table)?,
        reached: Reached {
            algorithm: optional_text(&mut table, "algorithm", "ring")?,
            version: optional_text(&mut table, "version", "NCCL 2.29.2")?,
            one_process: table.take("one_process").map_or(Ok(false), |item| item.truth())?,
        },
        note: optional_text(&mut table, "note", "cloud variant")?,
        place: table.place.to_string(),
    })
}

fn check_bound(expected: &Expectation, place: &Place, machine: &Machine) -> Result<()> {
    let Limit::BusBandwidthFloor(floor) = expected.limit else { return Ok(()) };
    let collective = expected.collective;
    if collective == Collective::Barrier {
        return Err(place.wrong("a barrier moves no bytes; give a time instead, such as ceiling = \"20us\""));
    }
    let bound = machine.bound_of(expected);
    match bound.filter(|bound| floor.0 > bound.0 && !expected.in_network) {
        Some(bound) => Err(place.wrong(format!(
            "a floor of {floor} is above the {bound} that the links of this file allow; correct one of them, or say \
             in_network = true where the switches themselves reduce or copy"
        ))),
        None => Ok(()),
    }
}

/// A limit with its place. A figure of a curve has a separate size.
struct Figure {
    limit: Limit,
    tolerance: Option<f64>,
    bytes: Option<Bytes>,
    place: Place,
}

/// Exactly one of: a value with its tolerance, a floor, a ceiling.
fn single(table: &mut Table) -> Result<Figure> {
    let accepted = "accepted: value with tolerance, or floor (of bus bandwidth), or ceiling (of the latency), or curve";
    let tolerance = table.take("tolerance");
    let whole = |limit, item: Item| Ok(Figure { limit, tolerance: None, bytes: None, place: item.place });
    match (table.take("value"), table.take("floor"), table.take("ceiling"), tolerance) {
        (Some(value), None, None, Some(tolerance)) => {
            let share = tolerance.number_within(0.0..=MOST_TOLERANCE)?;
            Ok(Figure { limit: limit(&value, share)?, tolerance: Some(share), bytes: None, place: value.place })
        }
        (Some(value), None, None, None) => {
            Err(value.wrong("a value also needs a tolerance, such as tolerance = 0.05 for 5 % worse"))
        }
        (None, Some(floor), None, None) => whole(Limit::BusBandwidthFloor(floor.rate()?), floor),
        (None, None, Some(ceiling), None) => whole(Limit::LatencyCeiling(positive(&ceiling)?), ceiling),
        (None, Some(_), None, Some(tolerance)) | (None, None, Some(_), Some(tolerance)) => {
            Err(tolerance.wrong("a tolerance belongs to a value; a floor and a ceiling are met or not"))
        }
        (None, None, None, _) => Err(table.place.wrong(format!("nothing is expected; {accepted}"))),
        _ => Err(table.place.wrong(format!("more than one of value, floor and ceiling; {accepted}"))),
    }
}

/// Pairs of a size and a value, all with the tolerance of the curve.
fn curve_figures(table: &mut Table, curve: Item) -> Result<Vec<Figure>> {
    if let Some(other) = ["value", "floor", "ceiling"].into_iter().find_map(|key| table.take(key)) {
        return Err(other.wrong("a curve holds all figures; give one or the other"));
    }
    let tolerance =
        table.require("tolerance", "the share by which the values of the curve may be missed, such as 0.05")?;
    let share = tolerance.number_within(0.0..=MOST_TOLERANCE)?;
    let place = curve.place.clone();
    let mut figures: Vec<Figure> = Vec::new();
    for pair in curve.items()? {
        let at = pair.place.clone();
        let parts = pair.items()?;
        let [size, value] = parts.as_slice() else {
            return Err(at.wrong("accepted: a size and a value such as [\"1MiB\", \"40GB/s\"]"));
        };
        let bytes = size.parsed(Bytes::parse)?;
        let limit = limit(value, share)?;
        if figures.last().is_some_and(|last| last.bytes >= Some(bytes)) {
            return Err(
                size.wrong(format!("{bytes} does not come after the size before it; give sizes in ascending order"))
            );
        }
        figures.push(Figure { limit, tolerance: Some(share), bytes: Some(bytes), place: value.place.clone() });
    }
    let rates = figures.iter().filter(|figure| matches!(figure.limit, Limit::BusBandwidthFloor(_))).count();
    if rates != 0 && rates != figures.len() {
        return Err(place.wrong("some values are rates and some are times; accepted: one kind"));
    }
    Ok(figures)
}

/// A value made a limit: a rate is the least bus bandwidth, a time the longest latency.
fn limit(value: &Item, tolerance: f64) -> Result<Limit> {
    match parse_rate(value.text_such_as("445GB/s")?) {
        Ok(_) => Ok(Limit::BusBandwidthFloor(Rate(value.rate()?.0 * (1.0 - tolerance)))),
        Err(_) => Ok(Limit::LatencyCeiling(Seconds(positive(value)?.0 * (1.0 + tolerance)))),
    }
}

fn positive(item: &Item) -> Result<Seconds> {
    let seconds = item.seconds()?;
    if seconds.0 > 0.0 { Ok(seconds) } else { Err(item.wrong(format!("found {seconds}; accepted: a time above 0"))) }
}

/// The labels of a variant, such as `{ aggregate = "8" }`.
fn variant(item: Item) -> Result<BTreeMap<String, String>> {
    let mut table = item.table()?;
    let mut labels = BTreeMap::new();
    for name in LABELS {
        if let Some(item) = table.take(name) {
            labels.insert(name.to_owned(), item.text_such_as("registered")?.to_owned());
        }
    }
    table.finish()?;
    Ok(labels)
}

fn cadence(text: &str) -> std::result::Result<Cadence, String> {
    [Cadence::Streaming, Cadence::Isolated]
        .into_iter()
        .find(|cadence| cadence.name() == text)
        .ok_or_else(|| format!("found `{text}`; accepted: streaming, isolated"))
}

fn placement(text: &str) -> std::result::Result<Placement, String> {
    match text {
        "in_place" => Ok(Placement::InPlace),
        "out_of_place" => Ok(Placement::OutOfPlace),
        _ => Err(format!("found `{text}`; accepted: in_place, out_of_place")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const MACHINE: &str = "name = 'm'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n\
        [between_nodes]\nlatency = '14us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n";
    const ROW: &str = "[[expect]]\ncollective = 'all_reduce'\nranks = 8\nbytes = ['512MiB', '16GiB']\n\
        value = '400GB/s'\ntolerance = 0.05\nsource = 's'\ndate = '2026-03'\n";

    fn read(row: &str) -> Result<Machine> {
        Machine::parse(&format!("{MACHINE}{row}"), Path::new("m.toml"))
    }

    #[test]
    fn a_wrong_expectation_names_line_key_and_what_is_accepted() {
        for (from, to, words) in [
            ("date = '2026-03'", "date = '2026'\nvariant = { agregate = '8' }", "did you mean `aggregate`"),
            ("date = '2026-03'", "date = '2026'\nvariant = { aggregate = 8 }", "accepted: a text such as"),
            ("date = '2026-03'", "date = '2026'\nvariant = 'graph'", "accepted: a table"),
            ("'all_reduce'", "'all_reduse'", "m.toml:11: expect[0].collective: found collective `all_reduse`"),
            ("tolerance = 0.05", "", "m.toml:14: expect[0].value: a value also needs a tolerance"),
            ("tolerance = 0.05", "tolerance = nan", "expect[0].tolerance: found NaN; accepted: a number from 0 to 0.9"),
            ("value = '400GB/s'", "floor = '400GB/s'", "expect[0].tolerance: a tolerance belongs to a value"),
            ("value = '400GB/s'\ntolerance = 0.05", "", "expect[0]: nothing is expected; accepted: value with"),
            ("value = '400GB/s'", "value = '400GB/s'\nfloor = '1GB/s'", "expect[0]: more than one of value, floor"),
            ("value = '400GB/s'", "value = '0GB/s'", "expect[0].value: found `0GB/s`"),
            ("value = '400GB/s'\ntolerance = 0.05", "floor = '460GB/s'", "a floor of 460 GB/s is above the 450 GB/s"),
            ("ranks = 8", "ranks = 12\nnodes = 1", "expect[0].nodes: found 1; accepted: a whole number from 2 to 12"),
            ("ranks = 8", "ranks = 1", "expect[0].ranks: found 1; accepted: a whole number from 2"),
            ("['512MiB', '16GiB']", "['16GiB', '512MiB']", "expect[0].bytes: accepted: one size, or the smallest"),
            ("'512MiB'", "'512MB'", "expect[0].bytes[0]: found `512MB`, which nccl-tests reads as"),
            ("date = '2026-03'", "date = 'spring'", "expect[0].date: found `spring`; accepted: a year, month or day"),
            ("source = 's'", "", "`source` is missing"),
            ("source", "sourec", "expect[0].sourec: unknown key; did you mean `source`?"),
            ("value = '400GB/s'", "curve = [['1MiB', '1GB/s']]", "expect[0].bytes: a curve has a size for each"),
            (
                "bytes = ['512MiB', '16GiB']\nvalue = '400GB/s'",
                "curve = [['1MiB', '1GB/s'], ['1MiB', '2GB/s']]",
                "ascending",
            ),
            (
                "bytes = ['512MiB', '16GiB']\nvalue = '400GB/s'",
                "curve = [['1MiB', '1GB/s'], ['2MiB', '2us']]",
                "one kind",
            ),
            ("bytes = ['512MiB', '16GiB']\nvalue = '400GB/s'", "curve = [['1MiB']]", "accepted: a size and a value"),
            ("bytes = ['512MiB', '16GiB']\nvalue = '400GB/s'", "curve = [['1GiB', '500GB/s']]", "above the 450 GB/s"),
            ("bytes = ['512MiB', '16GiB']", "", "expect[0]: `bytes` is missing"),
            ("ranks = 8", "ranks = 8\ncadence = 'fast'", "found `fast`; accepted: streaming, isolated"),
        ] {
            assert!(ROW.contains(from), "{from}");
            let error = read(&ROW.replacen(from, to, 1)).expect_err(to);
            assert!(error.to_string().contains(words), "{to}: {error}");
            assert_eq!(error.exit_code(), 2, "{to}");
        }
        let barrier = ROW.replace("all_reduce", "barrier");
        assert!(read(&barrier).unwrap_err().to_string().contains("a barrier moves no bytes"));
    }

    const NETWORK: &str = "[[expect_network]]\ncollectives = ['ping_pong', 'all_gather']\nbytes = ['64MiB', '1GiB']\nshare = 0.9\n\
        tolerance = 0.1\nsource = 's'\ndate = '2026'\n";

    #[test]
    fn a_wrong_share_of_the_network_names_line_key_and_what_is_accepted() {
        for (from, to, words) in [
            ("share = 0.9", "", "m.toml:10: expect_network[0]: `share` is missing"),
            ("share = 0.9", "share = 1.5", "expect_network[0].share: found 1.5; accepted: a number from 0.01 to 1"),
            ("tolerance = 0.1", "", "expect_network[0]: `tolerance` is missing"),
            ("'ping_pong', 'all_gather'", "", "expect_network[0].collectives: found an empty list"),
            ("'ping_pong'", "'barrier'", "expect_network[0].collectives: a barrier moves no bytes"),
            ("'ping_pong'", "'pingpang'", "collective `pingpang`"),
            ("share = 0.9", "share = 0.9\nranks = 16", "expect_network[0].ranks: unknown key"),
        ] {
            assert!(NETWORK.contains(from), "{from}");
            let error = read(&NETWORK.replacen(from, to, 1)).expect_err(to);
            assert!(error.to_string().contains(words), "{to}: {error}");
            assert_eq!(error.exit_code(), 2, "{to}");
        }
    }

    /// The floors that the network requires of calls on a number of nodes, in GB/s.
    fn floors(machine: &Machine, calls: &[(Collective, u32, u32)], most_of_a_pair: Option<Rate>) -> Vec<f64> {
        let call =
            |(collective, nodes, ranks_per_node): &(Collective, u32, u32)| crate::config::machine::ExpectedCall {
                collective: *collective,
                group: ExpectedGroup {
                    ranks: nodes * ranks_per_node,
                    ranks_per_node: *ranks_per_node,
                    nodes: *nodes,
                    groups_per_node: 8 / ranks_per_node,
                },
                cadence: Cadence::Streaming,
                placement: Placement::OutOfPlace,
                element_type: commgauge_base::element::ElementType::Uint8,
                bytes: Bytes(1 << 30),
            };
        let expecting = machine.expecting(calls.iter().map(call), most_of_a_pair);
        let floor = |one: &Expectation| match one.limit {
            Limit::BusBandwidthFloor(floor) => (floor.gigabytes_per_second() * 10.0).round() / 10.0,
            Limit::LatencyCeiling(_) => 0.0,
        };
        expecting.expectations.iter().map(floor).collect()
    }

    #[test]
    fn the_network_is_expected_to_reach_its_share_on_any_number_of_nodes_and_nothing_inside_one() {
        use Collective::{AllGather, AllReduce, PingPong};
        let machine = read(NETWORK).unwrap();
        assert_eq!(machine.thresholds(), 2);
        // Eight adapters of 50 GB/s, of which 0.9 are reached and 0.1 of that may be missed.
        let pair = 0.1 * (50.0_f64 * 0.9 * 0.9 * 10.0).round();
        for nodes in [2, 3, 64] {
            assert_eq!(floors(&machine, &[(PingPong, nodes, 1)], None), [pair], "{nodes}");
            assert_eq!(floors(&machine, &[(AllGather, nodes, 8)], None), [324.0], "{nodes}");
        }
        assert!(floors(&machine, &[(AllGather, 1, 8), (PingPong, 1, 2), (AllReduce, 2, 8)], None).is_empty());
        // One channel of NCCL is less than an adapter.
        assert_eq!(floors(&machine, &[(PingPong, 2, 1), (AllGather, 2, 8)], Some(Rate(14e9))), [12.6, 324.0]);
        let left = machine.expecting([], None);
        assert_eq!((left.thresholds(), left.network.len()), (2, 2));
    }

    #[test]
    fn an_expectation_is_read_with_what_it_leaves_out() {
        let machine = read(ROW).unwrap();
        let [row] = machine.expectations.as_slice() else { panic!("{:?}", machine.expectations) };
        assert_eq!(row.limit, Limit::BusBandwidthFloor(Rate(400e9 * 0.95)));
        assert_eq!((row.group.ranks_per_node, row.group.groups_per_node, row.cadence), (8, 1, Cadence::Streaming));
        assert_eq!(row.bytes, (Bytes(512 << 20), Bytes(16 << 30)));
        let switch = ROW.replacen("value = '400GB/s'\ntolerance = 0.05", "floor = '460GB/s'\nin_network = true", 1);
        assert_eq!(read(&switch).unwrap().expectations[0].limit, Limit::BusBandwidthFloor(Rate(460e9)));
        let time = ROW.replacen("'400GB/s'", "'20us'", 1);
        assert_eq!(read(&time).unwrap().expectations[0].limit, Limit::LatencyCeiling(Seconds(21e-6)));
        assert_eq!(read("").unwrap().expectations, [], "old files stay valid");
        assert!((row.figure() - 400e9).abs() < 1.0);
        let curve = "curve = [['1MiB', '40GB/s'], ['16MiB', '220GB/s']]";
        let curve =
            read(&ROW.replacen("bytes = ['512MiB', '16GiB']\nvalue = '400GB/s'", curve, 1)).unwrap().expectations;
        let [small, large] = curve.as_slice() else { panic!("{curve:?}") };
        assert_eq!((small.bytes, large.bytes), ((Bytes(1 << 20), Bytes(1 << 20)), (Bytes(16 << 20), Bytes(16 << 20))));
        assert!((large.figure() - 220e9).abs() < 1.0 && large.place.contains("expect[0].curve[1]"), "{}", large.place);
    }
}
