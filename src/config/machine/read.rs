//! From the text of a machine file to a checked machine.

use super::table::Table;
use super::{Fault, Machine, Network, NodeLinks, Noise};
use crate::error::{Error, Result};
use crate::units::Seconds;
use std::path::Path;

const FILE_KEYS: [&str; 6] = ["name", "ranks_per_node", "within_node", "between_nodes", "noise", "faults"];
const NODE_KEYS: [&str; 3] = ["latency", "rate", "assumed"];
const NETWORK_KEYS: [&str; 4] = ["latency", "adapters_per_node", "rate_per_adapter", "assumed"];
const NOISE_KEYS: [&str; 4] = ["relative_sigma", "outlier_probability", "outlier_factor", "arrival_jitter"];

/// Beyond a second it is no latency, delay or jitter of a machine that works, and virtual clocks could run over.
const LONGEST: Seconds = Seconds(1.0);
/// A rate of nothing would be a call without end.
const SMALLEST_RATE_FACTOR: f64 = 1e-6;

pub(super) fn parse(text: &str, path: &Path) -> Result<Machine> {
    let entries: toml::Table =
        text.parse().map_err(|cause| Error::usage(format!("{}: not valid TOML: {cause}", path.display())))?;
    let file = Table::open(path, "", &entries, &FILE_KEYS)?;
    Ok(Machine {
        path: path.to_owned(),
        name: file.text("name", "two-hosts")?.to_owned(),
        ranks_per_node: file.count("ranks_per_node", 1..=4096)?,
        within_node: node_links(&file.table("within_node", &NODE_KEYS)?)?,
        between_nodes: network(&file.table("between_nodes", &NETWORK_KEYS)?)?,
        noise: match file.optional_table("noise", &NOISE_KEYS)? {
            Some(table) => noise(&table)?,
            None => Noise::default(),
        },
        faults: file
            .tables("faults")?
            .iter()
            .map(|(name, entries)| fault(path, name, entries))
            .collect::<Result<_>>()?,
    })
}

fn node_links(table: &Table) -> Result<NodeLinks> {
    Ok(NodeLinks { latency: positive(table, "latency")?, rate: table.rate("rate")?, assumed: table.flag("assumed")? })
}

fn network(table: &Table) -> Result<Network> {
    Ok(Network {
        latency: positive(table, "latency")?,
        adapters_per_node: table.count("adapters_per_node", 1..=4096)?,
        rate_per_adapter: table.rate("rate_per_adapter")?,
        assumed: table.flag("assumed")?,
    })
}

fn noise(table: &Table) -> Result<Noise> {
    Ok(Noise {
        relative_sigma: table.number_or("relative_sigma", 0.0..=1.0, 0.0)?,
        outlier_probability: table.number_or("outlier_probability", 0.0..=1.0, 0.0)?,
        outlier_factor: table.number_or("outlier_factor", 1.0..=1000.0, 1.0)?,
        arrival_jitter: short(table, "arrival_jitter", table.seconds_or_zero("arrival_jitter")?)?,
    })
}

/// Two steps, since the accepted keys depend on the kind.
fn fault(path: &Path, name: &str, entries: &toml::Table) -> Result<Fault> {
    let any =
        Table::open(path, name, entries, &["kind", "rank", "node", "nodes", "delay", "rate_factor", "probability"])?;
    let kind = any.text("kind", "rank, node, link or corrupt")?;
    let only = |keys: &[&str]| Table::open(path, name, entries, keys);
    let index = 0..=u32::MAX;
    match kind {
        "rank" => {
            let table = only(&["kind", "rank", "delay"])?;
            Ok(Fault::Rank { rank: table.count("rank", index)?, delay: positive(&table, "delay")? })
        }
        "node" => {
            let table = only(&["kind", "node", "rate_factor"])?;
            Ok(Fault::Node { node: table.count("node", index)?, rate_factor: rate_factor(&table)? })
        }
        "link" => {
            let table = only(&["kind", "nodes", "rate_factor"])?;
            let nodes = table.pair_of_counts("nodes", index)?;
            if nodes[0] == nodes[1] {
                return Err(table.error("nodes", format!("found {nodes:?}; a link joins two different nodes")));
            }
            Ok(Fault::Link { nodes, rate_factor: rate_factor(&table)? })
        }
        "corrupt" => {
            let table = only(&["kind", "rank", "probability"])?;
            let probability = table.number("probability", 0.0..=1.0)?;
            Ok(Fault::Corrupt { rank: table.count("rank", index)?, probability })
        }
        other => Err(any.error("kind", format!("found `{other}`; accepted: rank, node, link, corrupt"))),
    }
}

fn rate_factor(table: &Table) -> Result<f64> {
    table.number("rate_factor", SMALLEST_RATE_FACTOR..=1.0)
}

fn positive(table: &Table, key: &str) -> Result<Seconds> {
    let seconds = short(table, key, table.seconds(key)?)?;
    if seconds.0 >= 1e-9 {
        Ok(seconds)
    } else {
        Err(table.error(key, format!("found {seconds}; accepted: at least 1ns")))
    }
}

fn short(table: &Table, key: &str, seconds: Seconds) -> Result<Seconds> {
    if seconds.0 <= LONGEST.0 {
        Ok(seconds)
    } else {
        Err(table.error(key, format!("found {seconds}; accepted: at most 1s")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Rate;
    use std::path::PathBuf;

    const GOOD: &str = r#"
name = "small"
ranks_per_node = 2
[within_node]
latency = "1us"
rate = "10GB/s"
[between_nodes]
latency = "5us"
adapters_per_node = 1
rate_per_adapter = "8Gbit/s"
[noise]
relative_sigma = 0.02
arrival_jitter = "3us"
[[faults]]
kind = "rank"
rank = 3
delay = "2ms"
[[faults]]
kind = "link"
nodes = [0, 1]
rate_factor = 0.25
"#;

    #[test]
    fn a_wrong_value_names_file_and_key_and_what_is_accepted() {
        for (from, to, words) in [
            (
                "adapters_per_node",
                "adapter_per_node",
                "between_nodes.adapter_per_node: unknown key; did you mean `adapters_per_node`?",
            ),
            ("name", "colour", "colour: unknown key; accepted: name, ranks_per_node"),
            ("\"10GB/s\"", "\"-10GB/s\"", "within_node.rate: found `-10GB/s`; accepted: a rate such as"),
            ("\"10GB/s\"", "\"10GB\"", "within_node.rate: found `10GB`"),
            ("\"10GB/s\"", "10", "within_node.rate: found `10`; accepted: a text such as \"25GB/s\""),
            ("\"1us\"", "\"1 parsec\"", "within_node.latency: found `1 parsec`; accepted: a time with its unit"),
            ("\"1us\"", "\"0us\"", "within_node.latency: found 0.000 ns; accepted: at least 1ns"),
            ("\"1us\"", "\"2s\"", "within_node.latency: found 2.00 s; accepted: at most 1s"),
            ("ranks_per_node = 2", "ranks_per_node = 0", "ranks_per_node: found `0`; accepted: a whole number from 1"),
            ("ranks_per_node = 2", "", "ranks_per_node: missing; accepted: a whole number from 1"),
            ("[within_node]", "[noise2]", "noise2: unknown key; did you mean `noise`?"),
            (
                "relative_sigma = 0.02",
                "relative_sigma = nan",
                "noise.relative_sigma: found `nan`; accepted: a number from 0",
            ),
            (
                "rate_factor = 0.25",
                "rate_factor = 1.5",
                "faults[1].rate_factor: found `1.5`; accepted: a number from 0.000001 to 1",
            ),
            ("rate_factor = 0.25", "rate_factor = 0", "faults[1].rate_factor: found `0`"),
            ("[0, 1]", "[1, 1]", "faults[1].nodes: found [1, 1]; a link joins two different nodes"),
            ("\"link\"", "\"lnk\"", "faults[1].kind: found `lnk`; accepted: rank, node, link, corrupt"),
            ("rank = 3", "node = 3", "faults[0].node: unknown key; accepted: kind, rank, delay"),
            ("rank = 3", "rank = -3", "faults[0].rank: found `-3`"),
            ("name = \"small\"", "name = ", "not valid TOML"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let error = Machine::parse(&text, Path::new("m.toml")).expect_err(to);
            let message = error.to_string();
            assert!(message.starts_with("m.toml: ") && message.contains(words), "{to}: {message}");
            assert_eq!(error.exit_code(), 2, "{to}");
        }
    }

    #[test]
    fn a_missing_table_is_named_with_its_keys() {
        let text = GOOD.split("[between_nodes]").next().unwrap_or_default();
        let message = Machine::parse(text, Path::new("m.toml")).unwrap_err().to_string();
        assert_eq!(
            message,
            "m.toml: between_nodes: missing; a table [between_nodes] with latency, adapters_per_node, rate_per_adapter, assumed"
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Machine::load(Path::new("/nowhere/m.toml")).unwrap_err();
        assert_eq!(error.exit_code(), 6);
        assert!(error.to_string().starts_with("cannot read machine file /nowhere/m.toml"), "{error}");
    }

    #[test]
    fn a_good_file_is_read_in_base_units() {
        let machine = Machine::parse(GOOD, Path::new("m.toml")).unwrap();
        assert_eq!((machine.name.as_str(), machine.ranks_per_node), ("small", 2));
        assert_eq!(machine.within_node, NodeLinks { latency: Seconds(1e-6), rate: Rate(1e10), assumed: false });
        assert_eq!(machine.between_nodes.rate_per_adapter, Rate(1e9));
        assert_eq!(machine.noise.outlier_factor, 1.0);
        assert_eq!(machine.faults[1], Fault::Link { nodes: [0, 1], rate_factor: 0.25 });
    }

    #[test]
    fn every_shipped_machine_loads_and_is_named_like_its_file() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("suites/machines");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let machine = Machine::load(&path).unwrap();
            assert_eq!(Some(machine.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
            assert_eq!(machine.faults, [], "{}: a shipped machine is a healthy one", machine.name);
            seen += 1;
        }
        assert!(seen >= 2, "found {seen} machine files");
    }

    #[test]
    fn the_faults_shown_in_the_shipped_file_are_read_once_they_are_taken_out_of_the_comment() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("suites/machines/two-hosts-1gbit.toml");
        let text = std::fs::read_to_string(&path).unwrap().replace("#:", "");
        let faults = Machine::parse(&text, &path).unwrap().faults;
        let expected = [
            Fault::Rank { rank: 3, delay: Seconds(2e-3) },
            Fault::Node { node: 1, rate_factor: 0.5 },
            Fault::Link { nodes: [0, 1], rate_factor: 0.25 },
            Fault::Corrupt { rank: 2, probability: 0.1 },
        ];
        assert_eq!(faults, expected);
    }
}
