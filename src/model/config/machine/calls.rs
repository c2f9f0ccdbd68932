//! Times of calls within a node as libraries reach them, by kind of links: measured tables, which a machine file names.

use crate::config::shipped::published;
use crate::config::typed::{Found, accepting};
use commgauge_base::collective::Collective;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::writing::ascending;
use serde::Deserializer;
use serde::de::Error as _;
use std::sync::LazyLock;

/// The shipped tables; `suites/published/README.md` names their sources.
const FILE: &str = "calls.csv";

/// The library of calls that no framework replaces by its own.
const NCCL: &str = "NCCL";

/// One call of a library on some links, in groups of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredCall {
    /// Kind of GPU and of its links, such as `h100-nvswitch`.
    pub links: String,
    /// Library and version.
    pub library: String,
    pub collective: Collective,
    /// Ranks of the group.
    pub ranks: u32,
    /// Logarithms of sizes, in the sense of nccl-tests, and of seconds; sizes ascend.
    points: Vec<[f64; 2]>,
}

static CALLS: LazyLock<std::result::Result<Vec<MeasuredCall>, String>> =
    LazyLock::new(|| published(FILE).and_then(read).map_err(|error| error.to_string()));

/// Columns: links, library, collective, ranks, then a size each with microseconds.
fn read(text: &str) -> Result<Vec<MeasuredCall>> {
    let wrong = |cause: String| Error::usage(format!("suites/published/{FILE}: {cause}"));
    let mut lines = csv::Reader::from_reader(text.as_bytes());
    let names = lines.headers().map_err(|cause| wrong(cause.to_string()))?.clone();
    let sizes: Vec<Bytes> =
        names.iter().skip(4).map(Bytes::parse).collect::<std::result::Result<_, _>>().map_err(wrong)?;
    let row = |line: csv::Result<csv::StringRecord>| {
        let line = line.map_err(|cause| cause.to_string())?;
        let number = |cell: &str| cell.parse::<f64>().map_err(|cause| format!("{cell}: {cause}"));
        let measured = sizes.iter().zip(line.iter().skip(4)).filter(|(_, cell)| !cell.is_empty());
        let point = |(size, cell): (&Bytes, &str)| Ok([(size.0 as f64).ln(), (number(cell)? * 1e-6).ln()]);
        Ok::<_, String>(MeasuredCall {
            links: line[0].to_owned(),
            library: line[1].to_owned(),
            collective: line[2].parse()?,
            ranks: number(&line[3])? as u32,
            points: measured.map(point).collect::<std::result::Result<_, String>>()?,
        })
    };
    lines.records().map(|line| row(line).map_err(wrong)).collect()
}

impl MeasuredCall {
    /// The calls on some links: those that a framework replaces by its own, then NCCL's.
    pub fn on(links: &str, framework: Option<&str>) -> Vec<&'static MeasuredCall> {
        let of = |library: &str| {
            let is_of = |call: &&MeasuredCall| call.links == links && call.is_of(library);
            CALLS.iter().flatten().filter(is_of).collect::<Vec<_>>()
        };
        let mut calls = framework.map_or_else(Vec::new, of);
        calls.extend(of(NCCL));
        calls
    }

    fn is_of(&self, library: &str) -> bool {
        self.library.split(' ').next().is_some_and(|name| name.eq_ignore_ascii_case(library))
    }

    /// Seconds of a call of this size: on the line between its neighbours in logarithms, outside of what was measured on that of the
    /// last two larger sizes, and as the smallest one below.
    pub fn seconds(&self, bytes_total: Bytes) -> Seconds {
        let at = (bytes_total.0.max(1) as f64).ln().max(self.points[0][0]);
        let above = self.points.partition_point(|[size, _]| *size < at).clamp(1, self.points.len() - 1);
        let ([low, before], [high, after]) = (self.points[above - 1], self.points[above]);
        Seconds((before + (after - before) * (at - low) / (high - low)).exp())
    }
}

/// The name of links on which calls were measured.
pub(super) fn known_links<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<String>, D::Error> {
    let calls = CALLS.as_ref().map_err(D::Error::custom)?;
    let known = ascending(calls.iter().map(|call| call.links.as_str()));
    accepting(from, known.join(", "), |value| match value {
        Found::Text(links) => known.contains(&links).then(|| Ok(Some(links.to_string()))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Machine;
    use super::*;
    use std::path::Path;

    #[test]
    fn every_measured_call_takes_longer_for_more_bytes_once_bytes_matter() {
        let calls = CALLS.as_ref().unwrap();
        assert!(calls.len() > 100);
        for call in calls {
            let sizes: Vec<f64> = call.points.iter().map(|[size, _]| *size).collect();
            assert!(sizes.is_sorted() && sizes.len() >= 20, "{call:?}");
            let large = call.points.iter().filter(|[size, _]| *size > 22.0 * 2f64.ln());
            assert!(large.map(|[_, seconds]| *seconds).is_sorted(), "{call:?}");
        }
    }

    #[test]
    fn a_size_between_two_takes_a_time_between_theirs_and_a_larger_one_follows_the_last_two() {
        let calls = MeasuredCall::on("h100-nvswitch", None);
        let of =
            |ranks| calls.iter().find(|call| call.ranks == ranks && call.collective == Collective::AllReduce).unwrap();
        // (ranks, bytes, microseconds)
        for (ranks, bytes, expected) in [
            (8, 1, 15.59),
            (8, 512, 15.59),
            (8, 1 << 20, 25.4),
            (2, 3 << 19, 21.39),
            (8, 512 << 20, 2111.0),
            (8, 1024 << 20, 4081.0),
        ] {
            let found = of(ranks).seconds(Bytes(bytes)).0 * 1e6;
            assert!((found / expected - 1.0).abs() < 2e-3, "{ranks} ranks, {bytes} B: {found}");
        }
    }

    #[test]
    fn calls_that_a_framework_replaces_come_before_nccls() {
        let libraries = |framework| {
            let calls = MeasuredCall::on("h100-nvswitch", framework).into_iter();
            ascending(calls.filter(|call| call.collective == Collective::AllReduce).map(|call| call.library.as_str()))
        };
        assert_eq!(libraries(None), ["NCCL 2.29.2"]);
        assert_eq!(libraries(Some("vllm")), ["NCCL 2.29.2", "vLLM 0.24.0"]);
        assert_eq!(MeasuredCall::on("h100-nvswitch", Some("sglang"))[0].library, "SGLang 0.5.14");
        assert_eq!(MeasuredCall::on("no-such-links", None), Vec::<&MeasuredCall>::new());
    }

    #[test]
    fn links_without_measured_calls_are_refused_by_name() {
        let machine = |links: &str| {
            let text = format!(
                "name = 'm'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n\
                 measured_calls = {links}\n[between_nodes]\nlatency = '9us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n"
            );
            Machine::parse(&text, Path::new("m.toml"))
        };
        assert_eq!(machine("'h100-nvswitch'").unwrap().within_node.measured_calls.as_deref(), Some("h100-nvswitch"));
        for (links, found) in [("'h100'", "found the text \"h100\""), ("8", "found 8")] {
            let error = machine(links).expect_err(links).to_string();
            let expected =
                format!("m.toml:6: within_node.measured_calls: {found}; accepted: a100-nvswitch, b200-nvswitch");
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
