//! One group alone compared with all groups at once: cases that show contention between the groups of an axis.

use super::case::MOST_CASES;
use super::{Case, WorkPlan};
use crate::layout::Groups;
use commgauge_base::error::{Error, Result};
use std::collections::{BTreeSet, HashMap};

/// Label that distinguishes the groups of these cases from the whole axis.
const LABEL: &str = "solo";

impl WorkPlan {
    /// The same plan with one addition: for every axis of several groups each of its cases once more on the first
    /// group alone, with the ranks of the others idle.
    ///
    /// # Errors
    /// If no axis has several groups, or if there are too many cases.
    pub fn with_solo(mut self) -> Result<WorkPlan> {
        let all: Vec<usize> = (0..self.cases.len()).collect();
        let added = self.add_solo(&all);
        if self.cases.len() > MOST_CASES {
            return Err(Error::usage(format!("--solo brings the run above {MOST_CASES} cases; name fewer styles")));
        }
        if added == 0 {
            let layout = self.layout.as_deref().unwrap_or("this layout");
            return Err(Error::usage(format!(
                "--solo: in {layout} every axis has a single group, so there is nothing to compare; start more ranks, or divide \
                 them by a further axis"
            )));
        }
        Ok(self)
    }

    /// Adds some cases once more on the first group alone, where there are several. Returns how many were added.
    pub(super) fn add_solo(&mut self, cases: &[usize]) -> usize {
        let used: BTreeSet<usize> = cases.iter().map(|index| self.cases[*index].groups).collect();
        let alone: HashMap<usize, usize> =
            used.into_iter().filter_map(|groups| Some((groups, self.add_solo_groups(groups)?))).collect();
        let before = self.cases.len();
        for &index in cases {
            let case = &self.cases[index];
            let Some(&groups) = alone.get(&case.groups) else { continue };
            let groups_label = match case.groups_label.as_str() {
                "" => LABEL.to_owned(),
                label => format!("{label}-{LABEL}"),
            };
            let solo = Case { groups, groups_label, uses: Vec::new(), solo_of: Some(index), ..case.clone() };
            self.cases.push(solo);
        }
        self.cases.len() - before
    }

    /// Adds the first of several groups as groups of their own.
    fn add_solo_groups(&mut self, index: usize) -> Option<usize> {
        let Groups { axis, groups } = &self.groups[index];
        let [first, _, ..] = groups.as_slice() else { return None };
        let alone = Groups { axis: *axis, groups: vec![first.clone()] };
        self.groups.push(alone);
        Some(self.groups.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::collections::HashSet;
    use std::path::Path;

    fn plan(layout: &str, ranks: u32) -> WorkPlan {
        let text = format!(
            "[model]\npreset = 'llama-2-7b'\nlayers = 4\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\n{layout}\n"
        );
        let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        WorkPlan::from_suite(&Suite::parse(&suites, &text).unwrap(), ranks).unwrap()
    }

    #[test]
    fn a_layout_of_single_groups_is_refused() {
        let error = plan("tp = 4", 4).with_solo().unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("in tp 4 every axis has a single group"), "{error}");
    }

    #[test]
    fn every_case_of_several_groups_comes_once_more_on_the_first_alone() {
        let all = plan("tp = 2\npp = 2", 4);
        let several = all.cases.iter().filter(|case| all.groups_of(case).groups.len() > 1).count();
        assert!(several > 0);
        let with_solo = all.clone().with_solo().unwrap();
        assert_eq!(with_solo.cases.len(), all.cases.len() + several);
        assert_eq!(with_solo.cases[..all.cases.len()], all.cases, "what was there stays");
        let names: HashSet<String> = with_solo.cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), with_solo.cases.len(), "names are unique");
        for solo in &with_solo.cases[all.cases.len()..] {
            let whole = &with_solo.cases[solo.solo_of.unwrap()];
            assert_eq!((&solo.op, solo.cadence, solo.placement), (&whole.op, whole.cadence, whole.placement));
            assert_eq!(with_solo.groups_of(solo).groups, with_solo.groups_of(whole).groups[..1]);
            assert!(solo.uses.is_empty(), "the step performs the call once, on all groups");
            assert!(solo.name().contains("/solo/"), "{}", solo.name());
        }
    }
}
