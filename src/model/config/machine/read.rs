//! From the text of a machine file to a checked machine.

use super::description::{Computing, Machine, Network, NodeLinks, Noise};
use super::description::{judged_runs, required_coverage};
use super::expect::{expectations, network_expectations};
use super::fault::fault;
use super::level::Level;
use super::level::{count, positive, rate, short};
use super::own_work::{expected_copy, expected_product};
use crate::config::document::{Item, Table};
use crate::config::shipped::{Shipped, read_text};
use commgauge_base::error::Result;
use std::path::Path;

const FILE_KEYS: [&str; 17] = [
    "name",
    "cloud",
    "ranks_per_node",
    "hosts_per_node",
    "within_node",
    "between_nodes",
    "computing",
    "noise",
    "faults",
    "applies_to",
    "coverage",
    "expect",
    "expect_copy",
    "expect_product",
    "expect_network",
    "node_like",
    "level",
];
const NODE_KEYS: [&str; 4] = ["latency", "rate", "rate_per_peer", "assumed"];
const NETWORK_KEYS: [&str; 5] = ["latency", "adapters_per_node", "rate_per_adapter", "assumed", "nodes_per_leaf"];
const COMPUTING_KEYS: [&str; 4] = ["gpu", "peak_tflops", "peak_tflops_fp8", "memory_rate"];
/// More than any GPU computes, in 10^12 operations a second.
const MOST_TFLOPS: f64 = 1e6;
const NOISE_KEYS: [&str; 4] = ["relative_sigma", "outlier_probability", "outlier_factor", "arrival_jitter"];

/// More than any node has, of ranks or of adapters.
const MOST_PER_NODE: u32 = 4096;
/// More ports than any switch has.
const MOST_NODES_PER_LEAF: u32 = 65_536;

pub(super) fn parse(text: &str, path: &Path) -> Result<Machine> {
    let (mut file, mut machine) = links(text, path)?;
    if let Some(item) = file.take("node_like") {
        add_node_of(&item, &mut machine)?;
    }
    if let Some(item) = file.take("coverage") {
        machine.required_coverage = Some(required_coverage(item.table()?, machine.thresholds())?);
    }
    Ok(machine)
}

/// Adds what another file expects of one node alone, of calls and of what each rank does by itself.
fn add_node_of(item: &Item, machine: &mut Machine) -> Result<()> {
    let requested = Path::new(item.text_such_as("h100-nvswitch-ndr")?);
    let path = Shipped::Machine.find(requested).ok_or_else(|| item.wrong(Shipped::Machine.unknown(requested)))?;
    let (mut file, like) = links(&read_text(&path, &item.place)?, &path)?;
    if let Some(next) = file.take("node_like") {
        return Err(
            next.wrong(format!("{} takes its node from here; name the file that has the figures", machine.name))
        );
    }
    if (like.ranks_per_node, like.hosts_per_node) != (machine.ranks_per_node, machine.hosts_per_node) {
        return Err(item.wrong(format!(
            "a node of {} has {} ranks on {} hosts, one of this file {} on {}",
            like.name, like.ranks_per_node, like.hosts_per_node, machine.ranks_per_node, machine.hosts_per_node
        )));
    }
    machine.expectations.extend(like.expectations.into_iter().filter(|one| one.group.nodes <= like.hosts_per_node));
    machine.own_work.extend(like.own_work);
    Ok(())
}

/// The file without what refers to other files and what is asked of all expectations together.
fn links(text: &str, path: &Path) -> Result<(Table, Machine)> {
    let mut file = Table::parse(path, text)?;
    file.only(&FILE_KEYS)?;
    let mut machine = Machine {
        path: path.to_owned(),
        name: file.require("name", "a text such as \"two-hosts\"")?.text_such_as("two-hosts")?.to_owned(),
        cloud: match file.take("cloud") {
            Some(item) => Some(item.text_such_as("AWS p5.48xlarge")?.to_owned()),
            None => None,
        },
        ranks_per_node: count(&mut file, "ranks_per_node", 1..=MOST_PER_NODE)?,
        hosts_per_node: 1,
        within_node: node_links(table(&mut file, "within_node", &NODE_KEYS)?)?,
        between_nodes: network(table(&mut file, "between_nodes", &NETWORK_KEYS)?)?,
        computing: None,
        own_levels: Level::read(&mut file)?,
        noise: match file.take("noise") {
            Some(item) => noise(item.table()?)?,
            None => Noise::default(),
        },
        faults: file.tables("faults")?.into_iter().map(fault).collect::<Result<_>>()?,
        expectations: Vec::new(),
        network: Vec::new(),
        own_work: Vec::new(),
        judged_runs: file.take("applies_to").map(|item| judged_runs(item.table()?)).transpose()?,
        required_coverage: None,
    };
    if let Some(item) = file.take("computing") {
        machine.computing = Some(computing(item.table()?)?);
    }
    if let Some(item) = file.take("hosts_per_node") {
        machine.hosts_per_node = item.count_within(1..=machine.ranks_per_node)?;
        if !machine.ranks_per_node.is_multiple_of(machine.hosts_per_node) {
            let (hosts, ranks) = (machine.hosts_per_node, machine.ranks_per_node);
            return Err(item.wrong(format!("found {hosts}; the {ranks} ranks of a node cannot be divided evenly")));
        }
    }
    for table in file.tables("expect")? {
        let read = expectations(table, &machine)?;
        machine.expectations.extend(read);
    }
    for table in file.tables("expect_network")? {
        machine.network.extend(network_expectations(table)?);
    }
    let copies = file.tables("expect_copy")?.into_iter().map(expected_copy);
    let products = file.tables("expect_product")?.into_iter().map(expected_product);
    machine.own_work = copies.collect::<Result<Vec<_>>>()?;
    machine.own_work.extend(products.collect::<Result<Vec<_>>>()?);
    Ok((file, machine))
}

fn node_links(mut table: Table) -> Result<NodeLinks> {
    Ok(NodeLinks {
        latency: positive(&mut table, "latency")?,
        rate: rate(&mut table, "rate")?,
        rate_per_peer: table.take("rate_per_peer").map(|item| item.rate()).transpose()?,
        assumed: assumed(&mut table)?,
    })
}

fn network(mut table: Table) -> Result<Network> {
    Ok(Network {
        latency: positive(&mut table, "latency")?,
        adapters_per_node: count(&mut table, "adapters_per_node", 1..=MOST_PER_NODE)?,
        rate_per_adapter: rate(&mut table, "rate_per_adapter")?,
        nodes_per_leaf: match table.take("nodes_per_leaf") {
            Some(item) => Some(item.count_within(1..=MOST_NODES_PER_LEAF)?),
            None => None,
        },
        assumed: assumed(&mut table)?,
    })
}

/// What a GPU computes, and which kind it is.
fn computing(mut table: Table) -> Result<Computing> {
    table.only(&COMPUTING_KEYS)?;
    let flops = |item: Item| -> Result<f64> { Ok(1e12 * item.number_within(1e-3..=MOST_TFLOPS)?) };
    Ok(Computing {
        gpu: table.take("gpu").map(|item| item.text_such_as("H100").map(str::to_owned)).transpose()?,
        peak_flops_per_second: flops(table.require("peak_tflops", "10^12 operations a second, such as 989")?)?,
        peak_fp8_flops_per_second: table.take("peak_tflops_fp8").map(flops).transpose()?,
        memory_rate: rate(&mut table, "memory_rate")?,
    })
}

/// Missing keys have the values of a machine without noise.
fn noise(mut table: Table) -> Result<Noise> {
    table.only(&NOISE_KEYS)?;
    let none = Noise::default();
    let mut number_or = |key, otherwise, accepted| match table.take(key) {
        Some(item) => item.number_within(accepted),
        None => Ok(otherwise),
    };
    Ok(Noise {
        relative_sigma: number_or("relative_sigma", none.relative_sigma, 0.0..=1.0)?,
        outlier_probability: number_or("outlier_probability", none.outlier_probability, 0.0..=1.0)?,
        outlier_factor: number_or("outlier_factor", none.outlier_factor, 1.0..=1000.0)?,
        arrival_jitter: match table.take("arrival_jitter") {
            Some(item) => short(&item)?,
            None => none.arrival_jitter,
        },
    })
}

/// A required table with no other keys.
fn table(file: &mut Table, key: &'static str, keys: &[&str]) -> Result<Table> {
    let table = file.require(key, &format!("a table [{key}] with {}", keys.join(", ")))?.table()?;
    table.only(keys)?;
    Ok(table)
}

fn assumed(table: &mut Table) -> Result<bool> {
    table.take("assumed").map_or(Ok(false), |item| item.truth())
}

#[cfg(test)]
mod tests {
    use super::super::Fault;
    use super::*;
    use commgauge_base::units::Rate;
    use commgauge_base::units::Seconds;
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
    fn a_wrong_value_is_refused_with_file_key_and_accepted_values() {
        for (from, to, words) in [
            (
                "adapters_per_node",
                "adapter_per_node",
                "m.toml:9: between_nodes.adapter_per_node: unknown key; did you mean `adapters_per_node`?",
            ),
            ("name", "hue", "m.toml:2: hue: unknown key. Known here: name, cloud, ranks_per_node"),
            ("\"10GB/s\"", "\"-10GB/s\"", "within_node.rate: found `-10GB/s`; accepted: a rate such as"),
            ("\"10GB/s\"", "\"10GB\"", "within_node.rate: found `10GB`"),
            ("\"10GB/s\"", "10", "m.toml:6: within_node.rate: found 10; accepted: a text such as \"25GB/s\""),
            ("\"1us\"", "\"1 parsec\"", "within_node.latency: found `1 parsec`; accepted: a time with its unit"),
            ("\"1us\"", "\"0us\"", "within_node.latency: found 0.000 ns; accepted: at least 1ns"),
            ("\"1us\"", "\"2s\"", "within_node.latency: found 2.00 s; accepted: at most 1s"),
            (
                "ranks_per_node = 2",
                "ranks_per_node = 0",
                "m.toml:3: ranks_per_node: found 0; accepted: a whole number from 1",
            ),
            (
                "ranks_per_node = 2",
                "",
                "m.toml: the file: `ranks_per_node` is missing; accepted: a whole number from 1",
            ),
            ("[within_node]", "[noise2]", "noise2: unknown key; did you mean `noise`?"),
            (
                "relative_sigma = 0.02",
                "relative_sigma = nan",
                "noise.relative_sigma: found NaN; accepted: a number from 0",
            ),
            (
                "rate_factor = 0.25",
                "rate_factor = 1.5",
                "m.toml:21: faults[1].rate_factor: found 1.5; accepted: a number from 0.000001 to 1",
            ),
            ("rate_factor = 0.25", "rate_factor = 0", "faults[1].rate_factor: found 0;"),
            ("[0, 1]", "[1, 1]", "faults[1].nodes: found [1, 1]; a link joins two different nodes"),
            ("\"link\"", "\"lnk\"", "faults[1].kind: found `lnk`; accepted: rank, node, link, corrupt"),
            ("rank = 3", "node = 3", "m.toml:16: faults[0].node: unknown key. Known here: kind, rank, delay"),
            ("rank = 3", "rank = -3", "faults[0].rank: found -3;"),
            ("name = \"small\"", "name = \" \"", "m.toml:2: name: found the text \" \"; accepted: a text such as"),
            ("latency = \"1us\"", "", "m.toml:4: within_node: `latency` is missing; accepted: a time such as \"2us\""),
            ("kind = \"rank\"", "", "m.toml:14: faults[0]: `kind` is missing; accepted: rank, node, link, corrupt"),
            ("name = \"small\"", "name = ", "m.toml:2: not TOML: "),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let error = Machine::parse(&text, Path::new("m.toml")).expect_err(to);
            let message = error.to_string();
            assert!(message.starts_with("m.toml:") && message.contains(words), "{to}: {message}");
            assert_eq!(error.exit_code(), 2, "{to}");
        }
    }

    #[test]
    fn a_missing_table_is_named_with_its_keys() {
        let text = GOOD.split("[between_nodes]").next().unwrap_or_default();
        let message = Machine::parse(text, Path::new("m.toml")).unwrap_err().to_string();
        assert_eq!(
            message,
            "m.toml: the file: `between_nodes` is missing; accepted: a table [between_nodes] with latency, adapters_per_node, rate_per_adapter, assumed, nodes_per_leaf"
        );
    }

    #[test]
    fn a_node_like_that_of_another_file_has_its_figures_and_what_cannot_be_like_it_is_refused() {
        let text = |like: &str, ranks: u32| {
            GOOD.replace("ranks_per_node = 2", &format!("ranks_per_node = {ranks}\nnode_like = \"{like}\""))
        };
        let like = Machine::load(Path::new("h100-nvswitch-ndr")).unwrap();
        let machine = Machine::parse(&text("h100-nvswitch-ndr", 8), Path::new("m.toml")).unwrap();
        let of_a_node = like.expectations.iter().filter(|one| one.group.nodes == 1).count();
        assert_eq!((machine.expectations.len(), machine.network.len()), (of_a_node, 0));
        for (like, ranks, words) in [
            ("h101", 8, "m.toml:4: node_like: there is no machine `h101`"),
            ("h100-nvswitch-ndr", 2, "a node of h100-nvswitch-ndr has 8 ranks on 1 hosts, one of this file 2 on 1"),
            ("aws-p5-h100", 8, "small takes its node from here; name the file that has the figures"),
        ] {
            let error = Machine::parse(&text(like, ranks), Path::new("m.toml")).unwrap_err();
            assert!(error.to_string().contains(words), "{like}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Machine::load(Path::new("/nowhere/m.toml")).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(
            error
                .to_string()
                .starts_with("there is no file `/nowhere/m.toml`; accepted: a path, or the name of a machine"),
            "{error}"
        );
    }

    #[test]
    fn a_good_file_is_read_in_base_units() {
        let machine = Machine::parse(GOOD, Path::new("m.toml")).unwrap();
        assert_eq!((machine.name.as_str(), machine.ranks_per_node), ("small", 2));
        assert_eq!(
            machine.within_node,
            NodeLinks { latency: Seconds(1e-6), rate: Rate(1e10), rate_per_peer: None, assumed: false }
        );
        assert_eq!(machine.between_nodes.rate_per_adapter, Rate(1e9));
        assert_eq!(machine.noise.outlier_factor, 1.0);
        assert_eq!(machine.faults[1], Fault::Link { nodes: [0, 1], rate_factor: 0.25 });
    }

    #[test]
    fn every_shipped_machine_loads_and_is_named_like_its_file() {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let machine = Machine::load(&path).unwrap();
            assert_eq!(Some(machine.name.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
            assert_eq!(machine.faults, [], "{}: a shipped machine is a healthy one", machine.name);
            seen += 1;
        }
        assert!(seen >= 20, "found {seen} machine files");
    }

    #[test]
    fn ranks_that_the_hosts_of_a_node_cannot_share_are_refused() {
        let text = GOOD.replace("ranks_per_node = 2", "ranks_per_node = 6\nhosts_per_node = 4");
        let error = Machine::parse(&text, Path::new("m.toml")).unwrap_err().to_string();
        assert!(error.contains("hosts_per_node: found 4; the 6 ranks of a node cannot be divided"), "{error}");
    }

    #[test]
    fn the_commented_example_faults_of_the_shipped_file_are_valid() {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines/two-hosts-1gbit.toml");
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
