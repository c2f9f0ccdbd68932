//! What tells the curves of a fit from one another.

use super::Place;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Values by column name; ordered, so that keys are canonical.
pub type Labels = BTreeMap<String, String>;

/// Curves that differ only in the size of the group.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct FamilyKey {
    /// The call.
    pub collective: Collective,
    /// Type of the elements; absent where the call only moves bytes, of whatever type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element_type: Option<ElementType>,
    /// What was timed.
    pub cadence: Cadence,
    /// How the groups lie on the hosts.
    pub place: Place,
    /// What else tells it from other curves of the same call (`algorithm`, `statistic`, `placement` ...), where the records
    /// hold several of a kind.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
}

/// One curve: time against bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CurveKey {
    /// Everything but the group size.
    pub family: FamilyKey,
    /// Ranks of a group.
    pub ranks: u32,
}

/// The measurements of one curve: for every `bytes_total`, the seconds of a call in each replicate.
pub type Measured = BTreeMap<u64, Vec<f64>>;
