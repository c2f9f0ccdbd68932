//! The placement that a curve holds for: as much of a group's locality as does not change with its size.

use crate::layout::Locality;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How groups lie on the hosts, whatever their size; all zeros where that is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// Hosts that a group touches.
    pub nodes_spanned: u32,
    /// Most groups with a rank on the same host, all at work at the same time.
    pub concurrent_groups_per_node: u32,
    /// Distance between neighbouring ranks of a group, 0 where it is not constant.
    pub stride: u32,
}

impl Place {
    /// Of a group's locality.
    pub fn of(locality: &Locality) -> Place {
        Place {
            nodes_spanned: locality.nodes_spanned,
            concurrent_groups_per_node: locality.concurrent_groups_per_node,
            stride: locality.stride,
        }
    }

    /// Whether a place that a user asks for means this one: hosts the same, and the others where they were given.
    pub fn is_meant_by(&self, asked: &Asked) -> bool {
        let same = |asked: Option<u32>, own: u32| asked.is_none_or(|asked| asked == own);
        asked.nodes_spanned == self.nodes_spanned
            && same(asked.concurrent_groups_per_node, self.concurrent_groups_per_node)
            && same(asked.stride, self.stride)
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

/// A place as a user asks for it: `1n`, `2n/4g`, `2n/4g/s8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    nodes_spanned: u32,
    concurrent_groups_per_node: Option<u32>,
    stride: Option<u32>,
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "found locality `{text}`; accepted: unknown, or hosts, concurrent groups per host and stride such as \
                 1n, 2n/4g or 2n/4g/s8"
            )
        };
        if text == "unknown" {
            return Ok(Asked { nodes_spanned: 0, concurrent_groups_per_node: None, stride: None });
        }
        let mut asked = Asked { nodes_spanned: 0, concurrent_groups_per_node: None, stride: None };
        for part in text.split('/') {
            if let Some(nodes) = part.strip_suffix('n') {
                asked.nodes_spanned = nodes.parse().map_err(|_| wrong())?;
            } else if let Some(groups) = part.strip_suffix('g') {
                asked.concurrent_groups_per_node = Some(groups.parse().map_err(|_| wrong())?);
            } else {
                let stride = part.strip_prefix('s').and_then(|stride| stride.parse().ok());
                asked.stride = Some(stride.ok_or_else(wrong)?);
            }
        }
        if asked.nodes_spanned == 0 { Err(wrong()) } else { Ok(asked) }
    }
}

impl Asked {
    /// Hosts that the group touches, 0 where unknown.
    pub fn nodes_spanned(&self) -> u32 {
        self.nodes_spanned
    }

    /// Groups at once on a host, where it was said.
    pub fn concurrent_groups_per_node(&self) -> Option<u32> {
        self.concurrent_groups_per_node
    }

    /// Distance between neighbouring ranks, where it was said.
    pub fn stride(&self) -> Option<u32> {
        self.stride
    }

    /// The locality of a group of `ranks` ranks of which this is said. What was not said: one group per host, and
    /// neighbouring ranks.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_place_is_refused_with_what_would_be() {
        for text in ["", "8", "0n", "n", "2n/4", "2n/g", "4g"] {
            assert!(text.parse::<Asked>().unwrap_err().contains("2n/4g"), "{text}");
        }
    }

    #[test]
    fn a_place_is_found_by_as_much_as_is_said_of_it() {
        let place = Place { nodes_spanned: 2, concurrent_groups_per_node: 4, stride: 8 };
        for (text, meant) in [("2n", true), ("2n/4g", true), ("2n/4g/s8", true), ("2n/8g", false), ("1n", false)] {
            assert_eq!(place.is_meant_by(&text.parse().unwrap()), meant, "{text}");
        }
        assert_eq!(place.to_string(), "2n/4g/s8");
        assert!(Place::of(&Locality::UNKNOWN).is_meant_by(&"unknown".parse().unwrap()));
    }
}
