//! Expected performance of a machine: checks the tables of [`expect_tables`](super::expect_tables) together with the links. `verdict`
//! decides which rows of a record an expectation covers, and whether they satisfy it.

use super::description::{Expectation, ExpectedGroup, Limit, Machine, NetworkExpectation};
use super::expect_tables::{
    CurvePoint, ExpectCopyTable, ExpectNetworkTable, ExpectTable, ExpectedWork, Figure, OwnWorkExpectation, Rows, Sizes,
};
use crate::config::OtherEnd;
use crate::config::document::{Place, Table};
use crate::config::typed::Text;
use commgauge_base::collective::Collective;
use commgauge_base::error::Result;
use commgauge_base::units::{Bytes, Rate, Seconds};

/// The expectations of one `[[expect]]`, checked; the links of the machine bound what may be required. A curve is an expectation for
/// each of its sizes.
pub(super) fn expectations(table: &ExpectTable, mut read: Table, machine: &Machine) -> Result<Vec<Expectation>> {
    let place = read.place.clone();
    let figures = match (&table.curve, &table.bytes) {
        (None, bytes) => vec![single(table, &read, *bytes)?],
        (Some(curve), None) => curve_figures(table, curve, &mut read)?,
        (Some(_), Some(_)) => {
            return Err(read.place_of("bytes").wrong("a curve has a size for each of its figures; remove `bytes`"));
        }
    };
    check_rows(table, &read, &figures)?;
    let group = group(table, &mut read, machine)?;
    let rule = table.rows.map(|_| table.rule.clone().unwrap_or_else(|| read.place.to_string()));
    let table = ExpectTable { curve: None, rule, ..table.clone() };
    let of_figure = |figure: FigureAt| {
        let (bytes, at) = match figure.bytes {
            Some(Sizes(low, high)) => ((low, high), figure.of_curve.then(|| figure.place.to_string())),
            None if table.collective == Collective::Barrier => ((Bytes(0), Bytes(0)), None),
            None => {
                return Err(place.wrong(
                    "`bytes` is missing; accepted: a size such as \"1GiB\", or a range [\"512MiB\", \"16GiB\"]",
                ));
            }
        };
        let place = at.unwrap_or_else(|| place.to_string());
        let expected = Expectation { place, table: table.clone(), bytes, group, limit: figure.limit };
        check_bound(&expected, &figure.place, machine)?;
        Ok(expected)
    };
    figures.into_iter().map(of_figure).collect()
}

/// The expectations of one `[[expect_network]]`, checked: one for each of its calls.
pub(super) fn network_expectations(table: &ExpectNetworkTable, read: &Table) -> Result<Vec<NetworkExpectation>> {
    if table.collectives.contains(&Text(Collective::Barrier)) {
        let place = read.place_of("collectives");
        return Err(place.wrong("a barrier moves no bytes, so no share of a rate can be expected of it"));
    }
    let of = |collective: &Text<Collective>| NetworkExpectation {
        share: table.share,
        tolerance: table.tolerance,
        of_call: Expectation {
            place: read.place.to_string(),
            table: ExpectTable {
                collective: collective.0,
                bytes: Some(table.bytes),
                cadence: table.cadence,
                placement: table.placement,
                element_type: table.element_type,
                tolerance: Some(table.tolerance),
                source: table.source.clone(),
                date: table.date.clone(),
                algorithm: table.algorithm.clone(),
                version: table.version.clone(),
                note: table.note.clone(),
                ..ExpectTable::default()
            },
            bytes: (table.bytes.0, table.bytes.1),
            group: ExpectedGroup { ranks: 0, ranks_per_node: 0, nodes: 0, groups_per_node: 0 },
            limit: Limit::LatencyCeiling(Seconds(0.0)),
        },
    };
    Ok(table.collectives.iter().map(of).collect())
}

/// Only bus bandwidths of one table have a mean; rows that reach their own figures are counted over several tables.
fn check_rows(table: &ExpectTable, read: &Table, figures: &[FigureAt]) -> Result<()> {
    let is_rate = |one: &FigureAt| !one.of_curve && matches!(one.limit, Limit::BusBandwidthFloor(_));
    match (table.rows, &table.rule) {
        (Some(Rows::Mean), _) if !figures.iter().all(is_rate) => {
            Err(read.place_of("rows").wrong("only bus bandwidths have a mean; give a floor, or a value that is a rate"))
        }
        (None | Some(Rows::Mean), Some(_)) => Err(read
            .place_of("rule")
            .wrong("the tables of a rule count their rows together; say how many must reach it, such as rows = 7")),
        _ => Ok(()),
    }
}

/// The groups that an expectation is about.
fn group(table: &ExpectTable, read: &mut Table, machine: &Machine) -> Result<ExpectedGroup> {
    let ranks = table.ranks;
    let mut within = |key, range, otherwise| read.take(key).map_or(Ok(otherwise), |item| item.count_within(range));
    let ranks_per_node = within("ranks_per_node", 1..=ranks, ranks.min(machine.ranks_per_node))?;
    let fewest_nodes = ranks.div_ceil(ranks_per_node);
    let nodes = within("nodes", fewest_nodes..=ranks, fewest_nodes)?;
    Ok(ExpectedGroup { ranks, ranks_per_node, nodes, groups_per_node: within("groups_per_node", 1..=u32::MAX, 1)? })
}

fn check_bound(expected: &Expectation, place: &Place, machine: &Machine) -> Result<()> {
    let Limit::BusBandwidthFloor(floor) = expected.limit else { return Ok(()) };
    if expected.table.collective == Collective::Barrier {
        return Err(place.wrong("a barrier moves no bytes; give a time instead, such as ceiling = \"20us\""));
    }
    let bound = machine.bound_of(expected);
    match bound.filter(|bound| floor.0 > bound.0 && !expected.table.in_network) {
        Some(bound) => Err(place.wrong(format!(
            "a floor of {floor} is above the {bound} that the links of this file allow; correct one of them, or say \
             in_network = true where the switches themselves reduce or copy"
        ))),
        None => Ok(()),
    }
}

/// The least bus bandwidth, or the longest time.
fn limit(figure: Figure, tolerance: f64) -> Limit {
    match figure {
        Figure::Rate(rate) => Limit::BusBandwidthFloor(Rate(rate.0 * (1.0 - tolerance))),
        Figure::Time(time) => Limit::LatencyCeiling(Seconds(time.0 * (1.0 + tolerance))),
    }
}

/// A limit with its place, and its size where it has one.
struct FigureAt {
    limit: Limit,
    bytes: Option<Sizes>,
    of_curve: bool,
    place: Place,
}

/// Exactly one of: a value with its tolerance, a floor, a ceiling.
fn single(table: &ExpectTable, read: &Table, bytes: Option<Sizes>) -> Result<FigureAt> {
    let accepted = "accepted: value with tolerance, or floor (of bus bandwidth), or ceiling (of the latency), or curve";
    let at = |key, limit| Ok(FigureAt { limit, bytes, of_curve: false, place: read.place_of(key).clone() });
    match (table.value, table.floor, table.ceiling, table.tolerance) {
        (Some(value), None, None, Some(tolerance)) => at("value", limit(value.0, tolerance)),
        (Some(_), None, None, None) => {
            Err(read.place_of("value").wrong("a value needs a tolerance too, such as tolerance = 0.05 for 5 % worse"))
        }
        (None, Some(floor), None, None) => at("floor", Limit::BusBandwidthFloor(floor.0)),
        (None, None, Some(ceiling), None) if ceiling.0.0 > 0.0 => at("ceiling", Limit::LatencyCeiling(ceiling.0)),
        (None, None, Some(ceiling), None) => {
            Err(read.place_of("ceiling").wrong(format!("found {}; accepted: a time above 0", ceiling.0)))
        }
        (None, Some(_), None, Some(_)) | (None, None, Some(_), Some(_)) => Err(read
            .place_of("tolerance")
            .wrong("a tolerance belongs to a value; a floor and a ceiling are met or not")),
        (None, None, None, _) => Err(read.place.wrong(format!("nothing is expected; {accepted}"))),
        _ => Err(read.place.wrong(format!("more than one of value, floor and ceiling; {accepted}"))),
    }
}

/// Pairs of a size and a value, all with the tolerance of the curve.
fn curve_figures(table: &ExpectTable, curve: &[CurvePoint], read: &mut Table) -> Result<Vec<FigureAt>> {
    if let Some(other) = ["value", "floor", "ceiling"].into_iter().find_map(|key| read.take(key)) {
        return Err(other.wrong("a curve holds all figures; give one or the other"));
    }
    let accepted = "the share by which the values of the curve may be missed, such as 0.05";
    read.require("tolerance", accepted)?;
    let item = read.require("curve", "")?;
    let place = item.place.clone();
    let mut figures: Vec<FigureAt> = Vec::new();
    for (CurvePoint(bytes, figure), pair) in curve.iter().zip(item.items()?) {
        let parts = pair.items()?;
        if figures.last().and_then(|last| last.bytes).is_some_and(|last| last.0 >= bytes.0) {
            let bytes = bytes.0;
            return Err(parts[0]
                .wrong(format!("{bytes} does not come after the size before it; give sizes in ascending order")));
        }
        let (limit, bytes) = (limit(figure.0, table.tolerance.unwrap_or(0.0)), Some(Sizes(bytes.0, bytes.0)));
        figures.push(FigureAt { limit, bytes, of_curve: true, place: parts[1].place.clone() });
    }
    let rates = figures.iter().filter(|figure| matches!(figure.limit, Limit::BusBandwidthFloor(_))).count();
    if rates != 0 && rates != figures.len() {
        return Err(place.wrong("some values are rates and some are times; accepted: one kind"));
    }
    Ok(figures)
}

/// Checks one `[[expect_copy]]`.
pub(super) fn expected_copy(table: &ExpectCopyTable, read: &Table) -> Result<OwnWorkExpectation> {
    let kind = table.kind;
    if table.host_memory.is_some() && kind.parts().other_end != OtherEnd::Host {
        let problem = format!("a copy {} has no end in the host's memory", kind.name());
        return Err(read.place_of("host_memory").wrong(problem));
    }
    if table.peer_distance.is_some() && kind.parts().other_end != OtherEnd::Peer {
        return Err(read.place_of("peer_distance").wrong(format!("a copy {} has no end at another rank", kind.name())));
    }
    Ok(OwnWorkExpectation { place: read.place.to_string(), work: ExpectedWork::Copy(table.clone()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_base::collective::Placement;
    use commgauge_base::sample::Cadence;
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
            (
                "date = '2026-03'",
                "date = '2026'\nvariant = { aggregate = 8 }",
                "variant.aggregate: found 8; accepted: a text",
            ),
            ("date = '2026-03'", "date = '2026'\nvariant = 'graph'", "accepted: a table"),
            ("'all_reduce'", "'all_reduse'", "m.toml:11: expect[0].collective: found collective `all_reduse`"),
            ("tolerance = 0.05", "", "m.toml:14: expect[0].value: a value needs a tolerance too"),
            ("tolerance = 0.05", "tolerance = nan", "expect[0].tolerance: found NaN; accepted: a share from 0 to 0.9"),
            ("tolerance = 0.05", "tolerance = 5", "found 5; accepted: a share from 0 to 0.9"),
            (
                "tolerance = 0.05",
                "tolerance = -0.05",
                "found -0.05; accepted: a share from 0 to 0.9 without a sign: 0.05 lets pass what is 5 % worse",
            ),
            (
                "ranks = 8",
                "ranks = 8\nrows = 'median'",
                "expect[0].rows: found the text \"median\"; accepted: \"each\", \"mean\"",
            ),
            ("ranks = 8", "ranks = 8\nrows = 0", "expect[0].rows: found 0; accepted: \"each\""),
            (
                "ranks = 8",
                "ranks = 8\nrule = 'x'",
                "expect[0].rule: the tables of a rule count their rows together; say how",
            ),
            ("ranks = 8", "ranks = 8\nrule = 'x'\nrows = 'mean'", "expect[0].rule: the tables of a rule count"),
            (
                "value = '400GB/s'",
                "rows = 'mean'\nvalue = '4ms'",
                "expect[0].rows: only bus bandwidths have a mean; give a floor",
            ),
            (
                "bytes = ['512MiB', '16GiB']\nvalue = '400GB/s'",
                "rows = 'mean'\ncurve = [['1MiB', '1GB/s'], ['2MiB', '2GB/s']]",
                "only bus bandwidths have a mean",
            ),
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
            ("source = 's'", "", "expect[0]: `source` is missing; accepted: who published or measured it"),
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
        let other = ROW.replace("ranks = 8", "ranks = 4\nrule = 'x'\nrows = 2");
        let error =
            read(&(ROW.replace("ranks = 8", "ranks = 8\nrule = 'x'\nrows = 3") + &other)).unwrap_err().to_string();
        assert!(error.contains("rows: the tables of rule `x` have several; accepted: the same in each"), "{error}");
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
        assert_eq!(
            (row.group.ranks_per_node, row.group.groups_per_node, row.table.cadence),
            (8, 1, Cadence::Streaming)
        );
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

#[cfg(test)]
mod own_work_tests {

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
            (COPY, "tolerance = 0.1", "tolerance = 1", "expect_copy[0].tolerance: found 1; accepted: a share from 0"),
            (COPY, "tolerance", "tolerence", "expect_copy[0].tolerence: unknown key"),
            (PRODUCT, "m = 8192", "m = 0", "expect_product[0].m: found 0; accepted: a whole number from 1"),
            (PRODUCT, "k = 1024\n", "", "expect_product[0]: `k` is missing; accepted: a whole number from 1 to"),
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
        assert!((copy.floor_per_second() - 45e9).abs() < 1.0 && (copy.figure_per_second() - 50e9).abs() < 1.0);
        let ExpectedWork::Copy(table) = &copy.work else { panic!("{copy:?}") };
        let size = Bytes(256 << 20);
        assert_eq!(
            (table.bytes, table.each, table.peer_distance),
            (Sizes(size, size), Some(crate::config::Each::Alone), None)
        );
        assert!((product.floor_per_second() - 7e14).abs() < 1.0, "{product:?}");
        assert!(product.place.contains("m.toml:") && product.place.contains("expect_product[0]"), "{}", product.place);
    }
}
