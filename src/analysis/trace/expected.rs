//! The list of a step that a trace is compared with.

use super::places::{GroupPlace, TracedPlaces};
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::input_file;
use commgauge_base::units::Bytes;
use commgauge_base::visible::ShownPath;
use commgauge_model::layout::{Axis, Layout, LayoutDescription};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A step as `commgauge ops --format json` lists it, as far as it is compared.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedStep {
    /// Always `commgauge-ops`.
    pub format: String,
    /// Name of the model.
    pub model: String,
    /// The layout.
    #[serde(flatten)]
    pub layout: LayoutDescription,
    /// The calls.
    pub ops: Vec<ExpectedOp>,
}

impl ExpectedStep {
    /// Reads what `commgauge ops --format json` printed.
    ///
    /// # Errors
    /// Usage errors: a file that cannot be read, and one that is no such list.
    pub fn read(path: &Path) -> Result<ExpectedStep> {
        let text = input_file::read_to_string(path)
            .map_err(|cause| Error::usage(format!("cannot read {}: {cause}", path.shown())))?;
        let wrong = |problem: String| {
            Error::usage(format!(
                "{} is no list of a step: {problem}; accepted: what `commgauge ops --format json` prints",
                path.shown()
            ))
        };
        let step: ExpectedStep = serde_json::from_str(&text).map_err(|cause| wrong(cause.to_string()))?;
        match step.format.as_str() {
            "commgauge-ops" => Ok(step),
            other => Err(wrong(format!("its format is `{other}`"))),
        }
    }

    /// Which stages of a pipeline the list is of, where that is not all of them: the calls of ranks of others are not compared.
    pub fn stages_note(&self, layout: &Layout) -> Option<String> {
        let stages = layout.group_size(Axis::Pp);
        let mut axes_of: BTreeMap<u32, BTreeSet<&str>> = BTreeMap::new();
        for op in &self.ops {
            axes_of.entry(op.stage).or_default().insert(op.axis.name());
        }
        let listed = axes_of.iter().map(|(stage, axes)| {
            let axes: Vec<&str> = axes.iter().copied().collect();
            format!("stage {stage} ({})", axes.join(", "))
        });
        let listed: Vec<String> = listed.collect();
        (stages > 1).then(|| {
            format!(
                "of {stages} pipeline stages the list is of {}; ranks of others are not compared there: `commgauge ops --stage N` lists theirs",
                listed.join(" and ")
            )
        })
    }
}

/// A call of a listed step.
#[derive(Clone, Debug, Deserialize)]
pub struct ExpectedOp {
    /// The axis whose groups carry it out.
    pub axis: Axis,
    /// The call.
    pub collective: Collective,
    /// Type of the elements.
    pub element_type: ElementType,
    /// The pipeline stage whose ranks it is counted on.
    pub stage: u32,
    /// The size argument in the sense of nccl-tests.
    pub bytes_total: Bytes,
    /// Calls of a rank in a step.
    pub count_per_step: u64,
}

/// The pipeline stages whose ranks a list is of.
pub(super) struct ListedStages {
    on_place: BTreeMap<GroupPlace, BTreeSet<u32>>,
    anywhere: BTreeSet<u32>,
}

impl ListedStages {
    pub(super) fn of(expected: &ExpectedStep, places: &TracedPlaces) -> ListedStages {
        let mut on_place: BTreeMap<GroupPlace, BTreeSet<u32>> = BTreeMap::new();
        for op in &expected.ops {
            on_place.entry(GroupPlace::Axis(places.named(op.axis))).or_default().insert(op.stage);
        }
        let anywhere = on_place.values().flatten().copied().collect();
        ListedStages { on_place, anywhere }
    }

    /// Whether the list is of the ranks of a stage on a place; on one of which it has nothing, of those of any.
    pub(super) fn has(&self, place: &GroupPlace, stage: u32) -> bool {
        self.on_place.get(place).unwrap_or(&self.anywhere).contains(&stage)
    }
}
