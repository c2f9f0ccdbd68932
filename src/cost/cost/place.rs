//! The placement of a curve: the part of a group's locality that does not depend on its size.

use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::embedded::rows;
use commgauge_base::sample::Cadence;
use commgauge_model::layout::Locality;
use commgauge_model::record::line::CaseFacts;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Placement of groups on the hosts, whatever their size; all zeros if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// Hosts that a group touches.
    pub nodes_spanned: u32,
    /// Maximum concurrent groups with a rank on the same host.
    pub concurrent_groups_per_node: u32,
    /// Distance between neighbouring ranks of a group, 0 where it is not constant.
    pub stride: u32,
}

impl Place {
    pub fn of(locality: &Locality) -> Place {
        Place {
            nodes_spanned: locality.nodes_spanned,
            concurrent_groups_per_node: locality.concurrent_groups_per_node,
            stride: locality.stride,
        }
    }

    /// Whether a query matches this place: the same number of hosts, and equal other values if given.
    pub fn matches_query(&self, query: &PlaceQuery) -> bool {
        let same = |wanted: Option<u32>, own: u32| wanted.is_none_or(|wanted| wanted == own);
        query.nodes_spanned == self.nodes_spanned
            && same(query.concurrent_groups_per_node, self.concurrent_groups_per_node)
            && same(query.stride, self.stride)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes_spanned {
            0 => f.pad("unknown"),
            nodes => f.pad(&format!("{nodes}n/{}g/s{}", self.concurrent_groups_per_node, self.stride)),
        }
    }
}

/// A place as given by a user: `1n`, `2n/4g`, `2n/4g/s8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlaceQuery {
    nodes_spanned: u32,
    concurrent_groups_per_node: Option<u32>,
    stride: Option<u32>,
}

impl From<Locality> for PlaceQuery {
    fn from(of: Locality) -> PlaceQuery {
        PlaceQuery {
            nodes_spanned: of.nodes_spanned,
            concurrent_groups_per_node: Some(of.concurrent_groups_per_node),
            stride: Some(of.stride),
        }
    }
}

impl FromStr for PlaceQuery {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "found locality `{text}`; accepted: unknown, or hosts, concurrent groups per host and stride such as \
                 1n, 2n/4g or 2n/4g/s8"
            )
        };
        if text == "unknown" {
            return Ok(PlaceQuery { nodes_spanned: 0, concurrent_groups_per_node: None, stride: None });
        }
        let mut query = PlaceQuery { nodes_spanned: 0, concurrent_groups_per_node: None, stride: None };
        for part in text.split('/') {
            if let Some(nodes) = part.strip_suffix('n') {
                query.nodes_spanned = nodes.parse().map_err(|_| wrong())?;
            } else if let Some(groups) = part.strip_suffix('g') {
                query.concurrent_groups_per_node = Some(groups.parse().map_err(|_| wrong())?);
            } else {
                let stride = part.strip_prefix('s').and_then(|stride| stride.parse().ok());
                query.stride = Some(stride.ok_or_else(wrong)?);
            }
        }
        if query.nodes_spanned == 0 { Err(wrong()) } else { Ok(query) }
    }
}

impl PlaceQuery {
    /// Hosts that the group spans, 0 where unknown.
    pub fn nodes_spanned(&self) -> u32 {
        self.nodes_spanned
    }

    /// Concurrent groups on a host, where given.
    pub fn concurrent_groups_per_node(&self) -> Option<u32> {
        self.concurrent_groups_per_node
    }

    /// Distance between neighbouring ranks, where given.
    pub fn stride(&self) -> Option<u32> {
        self.stride
    }

    /// The locality of a group of `ranks` ranks at this place. Defaults: one group per host, and neighbouring ranks.
    pub fn locality(&self, ranks: u32) -> Locality {
        match self.nodes_spanned {
            0 => Locality::UNKNOWN,
            nodes => Locality {
                nodes_spanned: nodes,
                ranks_per_node: ranks.div_ceil(nodes),
                stride: self.stride.unwrap_or(1),
                concurrent_groups_per_node: self.concurrent_groups_per_node.unwrap_or(1),
            },
        }
    }
}

// Distinguishes the curves of a fit.

/// Values by column name; ordered, so that keys are canonical.
pub type Labels = BTreeMap<String, String>;

/// Curves that differ only in the size of the group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct FamilyKey {
    /// The call.
    pub collective: Collective,
    /// Type of the elements; absent if the call only moves bytes, of whatever type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_type: Option<ElementType>,
    pub cadence: Cadence,
    /// Placement of the groups on the hosts.
    pub place: Place,
    /// Further labels that distinguish curves of the same call (`algorithm`, `statistic`, `placement` ...), if the records contain several.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
}

/// One curve: time against bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CurveKey {
    /// Everything except the group size.
    pub family: FamilyKey,
    /// Ranks of a group.
    pub ranks: u32,
}

/// The measurements of one curve: for every `bytes_total`, the seconds of a call in each replicate.
pub type Measured = BTreeMap<u64, Vec<f64>>;

// Labels that distinguish measurements of the same call beyond its type, place and cadence: algorithm, protocol, statistic,
// placement of the buffers. Measurements with different labels never share a curve.

/// Label of the buffer placement.
const PLACEMENT: &str = "placement";

/// Label of the reduce operation.
const REDUCE_OP: &str = "reduce_op";

/// Defaults of a query without these labels: out-of-place buffers and sums, as in nccl-tests.
pub(super) const USUAL: [(&str, &str); 2] = [(PLACEMENT, "out-of-place"), (REDUCE_OP, "sum")];

/// Columns that do not affect the time of a call.
const IGNORED_COLUMNS: &str = include_str!("ignored_columns.txt");

/// All labels of a case that may separate its curve from others.
pub(super) fn of_case(facts: &CaseFacts) -> Labels {
    let is_ignored = |name: &str| rows(IGNORED_COLUMNS).any(|ignored| ignored.eq_ignore_ascii_case(name));
    let named = facts.labels.iter().filter(|(name, _)| !is_ignored(name));
    let mut labels: Labels = named.map(|(name, text)| (name.clone(), text.clone())).collect();
    labels.insert(PLACEMENT.to_owned(), facts.placement.name().to_owned());
    labels.extend(facts.reduce_op.map(|op| (REDUCE_OP.to_owned(), op.name().to_owned())));
    labels
}

/// Drops the labels that are the same in every curve of their collective, since they separate nothing.
pub(super) fn drop_constant_labels(curves: BTreeMap<CurveKey, Measured>) -> BTreeMap<CurveKey, Measured> {
    let mut values: BTreeMap<(Collective, &str), BTreeSet<Option<&str>>> = BTreeMap::new();
    for key in curves.keys() {
        for name in key.family.labels.keys() {
            values.entry((key.family.collective, name)).or_default();
        }
    }
    for key in curves.keys() {
        for ((_, name), seen) in values.iter_mut().filter(|((collective, _), _)| *collective == key.family.collective) {
            seen.insert(key.family.labels.get(*name).map(String::as_str));
        }
    }
    let differ: BTreeSet<(Collective, String)> = values
        .iter()
        .filter(|(_, seen)| seen.len() > 1)
        .map(|((collective, name), _)| (*collective, (*name).to_owned()))
        .collect();
    let mut reduced: BTreeMap<CurveKey, Measured> = BTreeMap::new();
    for (mut key, measured) in curves {
        let collective = key.family.collective;
        key.family.labels.retain(|name, _| differ.contains(&(collective, name.clone())));
        let all = reduced.entry(key).or_default();
        for (bytes, times) in measured {
            all.entry(bytes).or_default().extend(times);
        }
    }
    reduced
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn an_invalid_place_is_refused_with_an_example() {
        for text in ["", "8", "0n", "n", "2n/4", "2n/g", "4g"] {
            assert!(text.parse::<PlaceQuery>().unwrap_err().contains("2n/4g"), "{text}");
        }
    }

    #[test]
    fn a_place_query_matches_on_the_parts_that_it_gives() {
        let place = Place { nodes_spanned: 2, concurrent_groups_per_node: 4, stride: 8 };
        for (text, meant) in [("2n", true), ("2n/4g", true), ("2n/4g/s8", true), ("2n/8g", false), ("1n", false)] {
            assert_eq!(place.matches_query(&text.parse().unwrap()), meant, "{text}");
        }
        assert_eq!(place.to_string(), "2n/4g/s8");
        assert!(Place::of(&Locality::UNKNOWN).matches_query(&"unknown".parse().unwrap()));
    }
}
