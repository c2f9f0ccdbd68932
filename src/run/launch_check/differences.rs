//! Finds the differences between ranks from the hashes of all and the texts of one rank for each value.

use super::allowances::Allowances;
use super::fact::Fact;
use super::rank_group::{RankGroup, group_ranks};
use super::rank_profile::Compact;
use super::report::{Difference, Shared, Value};
use super::severity::Severity;
use commgauge_base::rank_list::{self, named};
use std::collections::{BTreeMap, HashMap};

/// Values of one fact whose texts are gathered; any further values are reported together.
pub(super) const MAX_VALUES: usize = 32;
/// Placeholder for a line that a rank does not have.
const NOT_SET: &str = "not set";
/// Placeholder for values whose texts were not gathered.
const OTHERS: &str = "(other values)";

/// The ranks with each value of a fact or a line, in the order of the first rank.
type RanksByValue = Vec<RankGroup<String>>;
/// The ranks with one hash of a fact; the hash is 0 where they have no text.
pub(super) type RanksOfHash = RankGroup<u64>;
/// The lines of a list, by name; none if its text was not gathered.
type Lines<'a> = Option<BTreeMap<&'a str, &'a str>>;
/// A text by fact and hash.
pub(super) type Texts = HashMap<(Fact, u64), String>;

/// Ranks grouped by the value of a fact, in the order of their first rank. Ranks without a value are left out, except
/// for the environment, where a missing value means an empty one.
pub(super) fn ranks_by_hash(all: &[Compact], fact: Fact) -> Vec<RanksOfHash> {
    let counts = |hash: &u64| *hash != 0 || fact == Fact::Environment;
    group_ranks(all.iter().map(|profile| Some(profile.hash(fact)).filter(counts)))
}

/// Result of comparing all facts.
#[derive(Default)]
pub(super) struct Compared {
    pub shared: Vec<Shared>,
    pub differences: Vec<Difference>,
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
    pub notes: Vec<String>,
    /// Whether all refusals could be overridden by a flag.
    pub could_be_allowed: bool,
    /// Number of refusals that could be overridden.
    mixed: usize,
}

/// Compares all ranks.
pub(super) fn compare(all: &[Compact], texts: &Texts, allowed: Allowances) -> Compared {
    let mut compared = Compared::default();
    for fact in Fact::ALL {
        let groups = ranks_by_hash(all, fact);
        match (fact, &groups[..]) {
            (Fact::DeviceUuid, _) | (_, []) => {}
            (_, [RankGroup { key: hash, .. }]) => {
                let text = texts.get(&(fact, *hash)).map_or("", String::as_str);
                let value = match fact.is_list() {
                    true if text.is_empty() => "no variable that matters is set".to_owned(),
                    true if fact == Fact::Environment => text.replace('\n', " "),
                    true => continue,
                    false => text.to_owned(),
                };
                compared.shared.push(Shared { what: fact.short_name().to_owned(), value });
            }
            (_, groups) if fact.is_list() => {
                for (name, values) in by_line(fact, groups, texts) {
                    compared.add(fact, &name, values, allowed);
                }
            }
            (_, groups) => {
                let mut values = RanksByValue::new();
                for RankGroup { key: hash, ranks } in groups {
                    merge(&mut values, texts.get(&(fact, *hash)).map_or(OTHERS, String::as_str), ranks);
                }
                compared.add(fact, "", values, allowed);
            }
        }
    }
    compared.could_be_allowed = compared.mixed > 0 && compared.mixed == compared.refusals.len();
    compared
}

impl Compared {
    fn add(&mut self, fact: Fact, line: &str, values: RanksByValue, allowed: Allowances) {
        let severity = match fact.severity(line) {
            Severity::Mixed if allowed.mixed => Severity::Warning,
            other => other,
        };
        let each: Vec<String> =
            values.iter().map(|of| format!("{} on {}", shortened(&of.key), named(&of.ranks))).collect();
        let each = each.join("; ");
        let what = match fact {
            Fact::Program | Fact::Suite => format!("run the same {}", fact.name()),
            Fact::Settings => format!("run with the same setting of {line}"),
            Fact::Environment => format!("have the same {line}"),
            other => format!("have the same {}", other.name()),
        };
        match severity {
            Severity::Info => {}
            Severity::Note => self.notes.push(format!("the ranks do not {what}: {each}")),
            Severity::Warning => self.warnings.push(format!("the ranks do not {what}: {each}")),
            Severity::Mixed | Severity::Refusal => {
                self.mixed += usize::from(severity == Severity::Mixed);
                self.refusals.push(format!("the ranks do not {what}: {each}"));
            }
        }
        let value = |RankGroup { key: value, ranks }| Value {
            value,
            ranks: rank_list::shortened(&ranks),
            rank_count: ranks.len() as u32,
        };
        let what = if line.is_empty() { fact.short_name().to_owned() } else { line.to_owned() };
        let values = values.into_iter().map(value).collect();
        self.differences.push(Difference { what, refused: severity >= Severity::Mixed, values });
    }
}

/// The lines of lists that differ: name, then each value with its ranks.
fn by_line(fact: Fact, groups: &[RanksOfHash], texts: &Texts) -> Vec<(String, RanksByValue)> {
    let lists: Vec<(Lines, &[u32])> = groups
        .iter()
        .map(|RankGroup { key: hash, ranks }| {
            let text = if *hash == 0 { Some("") } else { texts.get(&(fact, *hash)).map(String::as_str) };
            (text.map(lines), ranks.as_slice())
        })
        .collect();
    let names: BTreeMap<&str, ()> =
        lists.iter().flat_map(|(list, _)| list.iter().flatten()).map(|(name, _)| (*name, ())).collect();
    let mut differing = Vec::new();
    for name in names.into_keys() {
        let mut values = RanksByValue::new();
        for (list, ranks) in &lists {
            let value = list.as_ref().map_or(OTHERS, |list| list.get(name).copied().unwrap_or(NOT_SET));
            merge(&mut values, value, ranks);
        }
        if values.iter().filter(|of| of.key != OTHERS).count() > 1 {
            differing.push((name.to_owned(), values));
        }
    }
    differing
}

fn merge(values: &mut RanksByValue, value: &str, ranks: &[u32]) {
    match values.iter_mut().find(|known| known.key == value) {
        Some(known) => {
            known.ranks.extend_from_slice(ranks);
            known.ranks.sort_unstable();
        }
        None => values.push(RankGroup { key: value.to_owned(), ranks: ranks.to_vec() }),
    }
}

fn lines(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once('=')).collect()
}

fn shortened(text: &str) -> String {
    if text.chars().count() > 80 { text.chars().take(77).chain("...".chars()).collect() } else { text.to_owned() }
}

#[cfg(test)]
#[path = "differences_tests.rs"]
mod tests;
