//! The counters of hosts that are read while cases are measured, and the limits of a machine file.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What a counter means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::EnumString)]
#[strum(serialize_all = "snake_case")]
pub enum CounterKind {
    /// Zero on a healthy host.
    States,
    /// It never rises on a healthy host.
    Errors,
    /// It rises with load.
    Retries,
    /// A share in per cent, which rises with load.
    Levels,
}

/// A kind of counter that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCounter {
    pub kind: CounterKind,
    /// Path below the root, with `*` for any device or port.
    pub path: &'static str,
    /// Which number of a file with several: its protocol, or what NVML calls it.
    pub part: Option<&'static str>,
    /// Name of the counter, without its device.
    pub name: &'static str,
    /// Smaller values are not recorded.
    pub least: u64,
    /// The value at which it stays.
    pub full: u64,
}

impl KnownCounter {
    /// Whether it is one of a device, each of which its rank reads.
    pub fn is_of_device(&self) -> bool {
        self.path == "nvml"
    }
}

/// All counters that are read.
pub fn known_counters() -> impl Iterator<Item = &'static KnownCounter> {
    static KNOWN: LazyLock<Vec<KnownCounter>> =
        LazyLock::new(|| include_str!("counters.txt").lines().filter_map(known).collect());
    KNOWN.iter()
}

/// The kind of a counter that is named with its device, as in `symbol_error of mlx5_4 port 1`.
pub fn known_counter(full_name: &str) -> Option<&'static KnownCounter> {
    let name = full_name.split(' ').next()?;
    known_counters().find(|counter| counter.name == name)
}

fn known(line: &'static str) -> Option<KnownCounter> {
    let mut words = line.split_whitespace();
    let kind = words.next()?.parse().ok()?;
    let path = words.next()?;
    let further: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
    let number = |key: &str| further.get(key).and_then(|text| text.parse().ok());
    Some(KnownCounter {
        kind,
        path,
        part: further.get("part").copied(),
        name: further.get("name").copied().or_else(|| path.rsplit('/').next())?,
        least: number("least").unwrap_or(0),
        full: number("full").unwrap_or(u64::MAX),
    })
}

/// Limits by name: the table `[counters]`.
pub(super) fn counter_limits<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<BTreeMap<String, u64>, D::Error> {
    let limits = BTreeMap::<String, u64>::deserialize(from)?;
    for (name, limit) in &limits {
        let Some(counter) = known_counters().find(|counter| counter.name == name) else {
            let known: Vec<&str> = known_counters().map(|counter| counter.name).collect();
            return Err(D::Error::custom(format!("found the counter `{name}`; accepted: {}", known.join(", "))));
        };
        if *limit < counter.least {
            let least = counter.least;
            return Err(D::Error::custom(format!("found `{name} = {limit}`; less than {least} is not recorded")));
        }
    }
    Ok(limits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_of_the_table_is_a_counter_with_a_name_of_its_own() {
        let lines = include_str!("counters.txt").lines().filter(|line| !line.starts_with('#'));
        let names: BTreeSet<&str> = known_counters().map(|counter| counter.name).collect();
        assert_eq!((known_counters().count(), names.len()), (lines.clone().count(), lines.count()));
        let symbols = known_counter("symbol_error of mlx5_4 port 1").unwrap();
        assert_eq!((symbols.kind, symbols.full, symbols.is_of_device()), (CounterKind::Errors, 65_535, false));
        let xid = known_counter("xid 79 of GPU 5").unwrap();
        assert_eq!((xid.kind, xid.part, xid.is_of_device()), (CounterKind::Errors, Some("event"), true));
        assert_eq!(known_counter("cpu_pressure of host").map(|known| known.least), Some(10));
        assert_eq!(known_counter("symbol of mlx5_4 port 1"), None);
    }
}
