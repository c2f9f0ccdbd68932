//! The counters of hosts that are read while cases are measured, and the limits of a machine file.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;

/// What a rising counter means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// It never rises on a healthy host.
    Errors,
    /// It rises with load.
    Retries,
}

/// A kind of counter that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCounter {
    pub kind: CounterKind,
    /// Path below the root, with `*` for any device or port.
    pub path: &'static str,
    /// Protocol whose line has it, in a file of several.
    pub protocol: Option<&'static str>,
    /// Name of the counter, without its device.
    pub name: &'static str,
}

/// All counters that are read.
pub fn known_counters() -> impl Iterator<Item = KnownCounter> {
    let lines = include_str!("counters.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let kind = if words.next()? == "errors" { CounterKind::Errors } else { CounterKind::Retries };
        let path = words.next()?;
        let protocol = words.next();
        let name = words.next().or_else(|| path.rsplit('/').next())?;
        Some(KnownCounter { kind, path, protocol, name })
    })
}

/// Limits by name: the table `[counters]`.
pub(super) fn counter_limits<'de, D: Deserializer<'de>>(
    from: D,
) -> std::result::Result<BTreeMap<String, u64>, D::Error> {
    let limits = BTreeMap::<String, u64>::deserialize(from)?;
    let is_known = |name: &String| known_counters().any(|counter| counter.name == name);
    match limits.keys().find(|name| !is_known(name)) {
        Some(name) => {
            let known: Vec<&str> = known_counters().map(|counter| counter.name).collect();
            Err(D::Error::custom(format!("found the counter `{name}`; accepted: {}", known.join(", "))))
        }
        None => Ok(limits),
    }
}
