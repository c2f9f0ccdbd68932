//! A layout as documents hold it: all that its groups follow from.

use super::division::Division;
use super::{Axis, DEFAULT_ORDER, Degrees, Layout};
use commgauge_base::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Degrees, order and divisions of a layout, and where its ranks were placed by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LayoutDescription {
    /// The degrees.
    pub degrees: Degrees,
    /// The axes, the fastest varying over consecutive ranks first, such as `tp-cp-ep-dp-pp`.
    #[serde(default = "default_order")]
    pub order: String,
    /// Groups that are divided once more, and into how many ranks each, or copies; absent where none is.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub divisions: BTreeMap<Division, u32>,
    /// The rank at each position of the grid, where ranks were placed by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank_at: Option<Vec<u32>>,
}

fn default_order() -> String {
    DEFAULT_ORDER.map(Axis::name).join("-")
}

impl LayoutDescription {
    /// The layout.
    ///
    /// # Errors
    /// A usage error that says what does not fit together.
    pub fn layout(&self) -> Result<Layout> {
        let axis = |name| {
            Axis::named(name).ok_or_else(|| Error::usage(format!("order: `{}` names no axis `{name}`", self.order)))
        };
        let order = self.order.split('-').map(axis).collect::<Result<Vec<Axis>>>()?;
        let mut layout = Layout::new(self.degrees, &order)?;
        if let Some(ranks) = &self.rank_at {
            layout =
                layout.with_ranks_at(ranks.clone()).map_err(|problem| Error::usage(format!("rank_at {problem}")))?;
        }
        // Those of shards come after those that make the shards, as in the enumeration.
        for (division, parts) in &self.divisions {
            layout = layout.divided(*division, *parts).map_err(Error::usage)?;
        }
        Ok(layout)
    }
}

impl From<&Layout> for LayoutDescription {
    fn from(layout: &Layout) -> LayoutDescription {
        let parts = Division::ALL.into_iter().map(|division| (division, layout.parts_of(division)));
        LayoutDescription {
            degrees: layout.degrees,
            order: layout.order_name(),
            divisions: parts.filter(|(_, parts)| *parts > 1).collect(),
            rank_at: layout.ranks_placed_by_hand().map(<[u32]>::to_vec),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn degrees(tp: u32, cp: u32, dp: u32, pp: u32) -> Degrees {
        Degrees { tp, cp, dp, pp, ep: 1, etp: tp }
    }

    #[test]
    fn a_layout_is_the_same_after_a_document() {
        let divided = |layout: Layout| {
            let layout = layout.divided(Division::ReplicasOfShards, 2).unwrap();
            layout.divided(Division::InnerShards, 2).unwrap().divided(Division::InnerContext, 2).unwrap()
        };
        let plain = Layout::new(degrees(2, 2, 4, 2), &DEFAULT_ORDER).unwrap();
        let turned = Layout::new(degrees(2, 2, 4, 2), &[Axis::Dp, Axis::Tp, Axis::Cp, Axis::Pp, Axis::Ep]).unwrap();
        let by_hand = plain.clone().with_ranks_at((0..32).rev().collect()).unwrap();
        for layout in
            [plain.clone(), turned.clone(), by_hand.clone(), divided(plain), divided(turned), divided(by_hand)]
        {
            let text = serde_json::to_string(&LayoutDescription::from(&layout)).unwrap();
            let read: LayoutDescription = serde_json::from_str(&text).unwrap();
            assert_eq!(read.layout().unwrap(), layout, "{text}");
        }
    }

    #[test]
    fn degrees_alone_are_in_the_default_order_and_what_does_not_fit_is_refused() {
        let read = |text: &str| serde_json::from_str::<LayoutDescription>(text).unwrap().layout();
        let degrees = r#""degrees": {"tp": 2, "cp": 1, "dp": 3, "pp": 1, "ep": 1, "etp": 2}"#;
        assert_eq!(read(&format!("{{{degrees}}}")).unwrap().order_name(), "tp-cp-ep-dp-pp");
        for (more, problem) in [
            (r#""order": "tp-xp""#, "names no axis `xp`"),
            (r#""divisions": {"replicas_of_shards": 2}"#, "do not divide the 3 ranks"),
            (r#""rank_at": [0, 1]"#, "names 2 ranks"),
        ] {
            let said = read(&format!("{{{degrees}, {more}}}")).unwrap_err();
            assert!(said.exit_code() == 2 && said.to_string().contains(problem), "{more}: {said}");
        }
    }
}
