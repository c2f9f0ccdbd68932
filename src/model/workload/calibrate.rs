//! The curves of a plan: cases that differ only in size, and further cases of the same curve. The next size is chosen
//! elsewhere.

use super::{Case, Style, WorkPlan};
use commgauge_base::geometry::Splits;
use commgauge_base::units::Bytes;

impl WorkPlan {
    /// The cases of sweeps by curve, each as indices in the plan, in the order of first appearance. Barriers have no size, and of
    /// uneven shares the time does not follow the size alone, so neither is a curve; nor is a single size.
    pub fn curves(&self) -> Vec<Vec<usize>> {
        let mut curves: Vec<Vec<usize>> = Vec::new();
        for (index, case) in self.cases.iter().enumerate().filter(|(_, case)| has_curve(case)) {
            match curves.iter_mut().find(|curve| is_same_curve(&self.cases[curve[0]], case)) {
                Some(curve) => curve.push(index),
                None => curves.push(vec![index]),
            }
        }
        curves.retain(|curve| curve.len() >= 2);
        curves
    }
}

impl Case {
    /// The same call at another size.
    pub fn with_bytes(&self, bytes_total: Bytes) -> Case {
        let mut case = self.clone();
        case.op.bytes_total = bytes_total;
        case
    }
}

fn has_curve(case: &Case) -> bool {
    case.op.style == Style::Sweep
        && case.op.bytes_total.0 > 0
        && case.op.splits == Splits::Equal
        && case.uses.is_empty()
}

fn is_same_curve(one: &Case, other: &Case) -> bool {
    one.with_bytes(other.op.bytes_total) == *other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    #[test]
    fn cases_that_differ_in_their_size_only_are_a_curve() {
        let text = "[[sweep]]\ncollectives = ['all_reduce', 'barrier', 'all_to_all_v']\nbytes = ['1KiB', '1MiB', '64MiB']\n\
                    splits = { skewed = 1.0 }\nplacements = 'out-of-place'\n\
                    [[sweep]]\ncollectives = 'broadcast'\nbytes = '1KiB'\n";
        let suite = Suite::parse(Path::new("test.toml"), text).unwrap();
        let plan = WorkPlan::from_suite(&suite, 4).unwrap();
        let curves = plan.curves();
        let names: Vec<Vec<String>> =
            curves.iter().map(|curve| curve.iter().map(|index| plan.cases[*index].name()).collect()).collect();
        assert_eq!(names.len(), 2, "all_reduce in both cadences: {names:?}");
        assert_eq!(
            names[0],
            [1024, 1 << 20, 64 << 20]
                .map(|bytes| format!("world/all_reduce/sum/float32/{bytes}/out-of-place/streaming"))
        );
        let further = plan.cases[curves[1][0]].with_bytes(Bytes(4096));
        assert_eq!(further.name(), "world/all_reduce/sum/float32/4096/out-of-place/isolated");
    }
}
