//! Ranks that have something in common.

use std::collections::HashMap;
use std::hash::Hash;

/// The ranks that have the same of something: a host, the hash or the text of a fact.
pub(super) struct RankGroup<K> {
    pub key: K,
    /// In ascending order.
    pub ranks: Vec<u32>,
}

/// Groups ranks by their keys, in the order of their first rank. A rank without a key belongs to none.
pub(super) fn group_ranks<K: Hash + Eq + Copy>(keys: impl IntoIterator<Item = Option<K>>) -> Vec<RankGroup<K>> {
    let mut groups: Vec<RankGroup<K>> = Vec::new();
    let mut known: HashMap<K, usize> = HashMap::new();
    for (rank, key) in (0u32..).zip(keys) {
        let Some(key) = key else { continue };
        let group = *known.entry(key).or_insert_with(|| {
            groups.push(RankGroup { key, ranks: Vec::new() });
            groups.len() - 1
        });
        groups[group].ranks.push(rank);
    }
    groups
}
