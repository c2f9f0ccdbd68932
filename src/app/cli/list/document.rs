//! The document of `commgauge list --format json`: stable, versioned, with a published JSON Schema.

use super::facts::{FormatFacts, KeyFacts, MachineFacts, ModelFacts, Named, SuiteFacts};
use super::gather;
use super::kind::Kind;
use crate::cli::published::published;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// Name of the format.
const FORMAT: &str = "commgauge-list";
/// Incremented when a field is removed or changes its meaning.
const VERSION: u32 = 1;

/// What there is. A kind that was not requested is absent; without a question all are there.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub struct ListDocument {
    /// Always `commgauge-list`.
    pub format: String,
    /// Version of the format.
    pub version: u32,
    /// Communication calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collectives: Option<Vec<Named>>,
    /// Dimensions of a layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub axes: Option<Vec<Named>>,
    /// Parallel styles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub styles: Option<Vec<Named>>,
    /// Pipeline schedules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedules: Option<Vec<Named>>,
    /// Keys of a step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<KeyFacts>>,
    /// Shipped suites.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suites: Option<Vec<SuiteFacts>>,
    /// Shipped models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<ModelFacts>>,
    /// Shipped machine files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machines: Option<Vec<MachineFacts>>,
    /// Formats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub formats: Option<Vec<FormatFacts>>,
    /// Who can carry calls out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backends: Option<Vec<Named>>,
}

impl ListDocument {
    /// The entries of a kind, or of all kinds; formats are those of the flags of these programs.
    pub(super) fn of(kind: Option<Kind>, programs: &[clap::Command]) -> ListDocument {
        let wanted = |this: Kind| kind.is_none_or(|kind| kind == this);
        ListDocument {
            format: FORMAT.to_owned(),
            version: VERSION,
            collectives: wanted(Kind::Collectives).then(gather::collectives),
            axes: wanted(Kind::Axes).then(gather::axes),
            styles: wanted(Kind::Styles).then(gather::styles),
            schedules: wanted(Kind::Schedules).then(gather::schedules),
            keys: wanted(Kind::Keys).then(gather::keys),
            suites: wanted(Kind::Suites).then(gather::suites),
            models: wanted(Kind::Models).then(gather::models),
            machines: wanted(Kind::Machines).then(gather::machines),
            formats: wanted(Kind::Formats).then(|| gather::formats(programs)),
            backends: wanted(Kind::Backends).then(gather::backends),
        }
    }
}

/// The JSON Schema of [`ListDocument`].
pub fn schema() -> Value {
    published(schemars::schema_for!(ListDocument).to_value(), FORMAT, VERSION, "What there is, by commgauge")
}
