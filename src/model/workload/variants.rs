//! A whole plan in several variants, from flags that apply to every case of a launch.

use super::case::MOST_CASES;
use super::{Case, WorkPlan};
use commgauge_base::error::{Error, Result};
use commgauge_base::variant::{Variant, Variants};

impl WorkPlan {
    /// The same plan with every case once in each variant.
    ///
    /// # Errors
    /// Usage errors: if a suite varies the same property itself, and if there are too many cases.
    pub fn in_variants(mut self, variants: &Variants) -> Result<WorkPlan> {
        let named = variants.named();
        let varies = |what: &str| self.cases.iter().any(|case| case.variant.labels().contains_key(what));
        if let Some(twice) = named.iter().find(|what| varies(what)) {
            let flag = twice.replace('_', "-");
            return Err(Error::usage(format!("--{flag}: the suite varies `{twice}` itself; leave one of the two out")));
        }
        let all = variants.all();
        if self.cases.len().saturating_mul(variants.count()) > MOST_CASES {
            return Err(Error::usage(format!(
                "{} cases in {} variants are more than {MOST_CASES}; name fewer",
                self.cases.len(),
                all.len()
            )));
        }
        let each = all.len();
        let varied = |(number, variant): (usize, &Variant), case: &Case| Case {
            variant: combined(case.variant, *variant).resolved(case.cadence),
            solo_of: case.solo_of.map(|index| index * each + number),
            ..case.clone()
        };
        self.cases = (self.cases.iter())
            .flat_map(|case| all.iter().enumerate().map(move |numbered| varied(numbered, case)))
            .collect();
        Ok(self)
    }
}

/// The variant of a case: the settings of the suite, and the flags for the rest.
fn combined(of_suite: Variant, of_flags: Variant) -> Variant {
    let usual = Variant::default();
    Variant {
        buffers: if of_suite.buffers == usual.buffers { of_flags.buffers } else { of_suite.buffers },
        submit: if of_suite.submit == usual.submit { of_flags.submit } else { of_suite.submit },
        aggregate: if of_suite.aggregate == usual.aggregate { of_flags.aggregate } else { of_suite.aggregate },
        max_ctas: of_suite.max_ctas.or(of_flags.max_ctas),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use commgauge_base::variant::{Buffers, Submit};
    use std::collections::HashSet;
    use std::path::Path;

    const SWEEP: &str = "[[sweep]]\ncollectives = 'all_reduce'\nbytes = '1KiB'\nplacements = 'in-place'\n";

    fn plan(more: &str) -> Result<WorkPlan> {
        WorkPlan::from_suite(&Suite::parse(Path::new("test.toml"), &format!("{SWEEP}{more}"))?, 4)
    }

    fn flags() -> Variants {
        Variants { buffers: vec![Buffers::Plain, Buffers::Symmetric], ..Variants::default() }
    }

    #[test]
    fn contradictory_suite_settings_are_refused_with_their_place() {
        for (more, words) in [
            ("buffers = 'pinned'", "test.toml:5: sweep[0].buffers"),
            ("submit = ['graph:5000']", "graph:CALLS with 1 to 1024"),
            ("aggregate = [0]", "1 to 64"),
            ("max_ctas = 'most'", "1 to 64 thread blocks, or any"),
            ("buffers = []", "found an empty list"),
        ] {
            let error = plan(more).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
        let error = plan("buffers = ['plain', 'registered']").unwrap().in_variants(&flags()).unwrap_err();
        assert!(error.to_string().contains("--buffers: the suite varies `buffers` itself"), "{error}");
    }

    #[test]
    fn lists_of_a_suite_and_of_flags_multiply_and_case_names_are_unique() {
        let usual = plan("").unwrap();
        assert_eq!(usual.clone().in_variants(&Variants::default()).unwrap(), usual);
        let varied = plan("submit = ['stream', 'graph']\naggregate = [1, 8]\nmax_ctas = ['any', 2]").unwrap();
        assert_eq!(varied.cases.len(), 2 * 8, "both cadences");
        let all = varied.in_variants(&flags()).unwrap();
        let names: HashSet<String> = all.cases.iter().map(Case::name).collect();
        assert_eq!((all.cases.len(), names.len()), (32, 32));
        for name in [
            "world/all_reduce/sum/float32/1024/in-place/streaming",
            "world/all_reduce/sum/float32/1024/in-place/streaming/symmetric/graph-20/aggregate-8/max-ctas-2",
            "world/all_reduce/sum/float32/1024/in-place/isolated/graph-1",
        ] {
            assert!(names.contains(name), "{name} in {names:?}");
        }
        assert!(all.cases.iter().all(|case| case.variant.submit != Submit::Graph(None)));
    }

    #[test]
    fn a_single_group_is_compared_with_all_groups_in_the_same_variant() {
        let text = "[model]\npreset = 'llama-2-7b'\nlayers = 4\n[training]\nsequence = 512\nmicro_batches = 2\n[layout]\ntp = 2\n";
        let suites = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/test.toml");
        let plan = WorkPlan::from_suite(&Suite::parse(&suites, text).unwrap(), 4).unwrap().with_solo().unwrap();
        let varied = plan.in_variants(&flags()).unwrap();
        let solo: Vec<&Case> = varied.cases.iter().filter(|case| case.solo_of.is_some()).collect();
        assert!(!solo.is_empty());
        for case in solo {
            let whole = &varied.cases[case.solo_of.unwrap()];
            assert_eq!((case.variant, &case.op), (whole.variant, &whole.op));
        }
    }
}
