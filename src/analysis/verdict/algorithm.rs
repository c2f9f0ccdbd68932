//! Whether a call is known to have had the algorithm that an expected value was reached with.
//!
//! NCCL and RCCL choose the algorithm themselves, by version, size and nodes, and figures of two algorithms for one call differ by 20 %
//! (ring and NVLSTree on four nodes). So an algorithm counts only where the record says it: as the choice that the library logged, or
//! as the one that `--algorithm` or `NCCL_ALGO` left it, for all calls or call by call (`allreduce:tree,ring;broadcast:ring`; NCCL user
//! guide, "Environment Variables"). Of other libraries nothing is known.

use commgauge_base::collective::Collective;
use commgauge_model::record::line::CaseFacts;
use std::collections::{BTreeMap, BTreeSet};

/// What a record says of the algorithm of a call.
#[derive(Clone, Copy)]
pub(super) struct Algorithms<'a> {
    /// Variables of the run, where there is one.
    pub environment: Option<&'a BTreeMap<String, String>>,
    /// What the library chose in the replicates.
    pub chosen: &'a BTreeSet<String>,
}

impl Algorithms<'_> {
    /// Whether all replicates of a call had the algorithm (its first word, in any case of letters).
    pub fn were(&self, algorithm: &str, facts: &CaseFacts) -> bool {
        let wanted = first_word(algorithm);
        if !self.chosen.is_empty() {
            return self.chosen.iter().all(|chosen| is_same(&first_word(chosen), &wanted));
        }
        let list = match facts.labels.get("algorithm") {
            Some(forced) => Some(forced.as_str()),
            None => {
                self.environment.and_then(|all| all.get("NCCL_ALGO")).and_then(|all| list_for(all, facts.collective))
            }
        };
        let mut names = list.into_iter().flat_map(|list| list.split(',')).map(first_word).peekable();
        let excludes = list.is_some_and(|list| list.starts_with('^'));
        !excludes && names.peek().is_some() && names.all(|name| is_same(&name, &wanted))
    }
}

/// The list that applies to a collective: the one after its name, or the one without a name.
fn list_for(value: &str, collective: Collective) -> Option<&str> {
    let function = match collective {
        Collective::AllReduce => "allreduce",
        Collective::AllGather => "allgather",
        Collective::ReduceScatter => "reducescatter",
        Collective::Broadcast => "broadcast",
        Collective::Reduce => "reduce",
        _ => return None,
    };
    let parts = || value.split(';').map(str::trim).filter(|part| !part.is_empty());
    let own = parts().find_map(|part| part.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case(function)));
    own.map(|(_, list)| list).or_else(|| parts().find(|part| !part.contains(':')))
}

/// `CollNet` stands for its two kinds.
fn is_same(named: &str, wanted: &str) -> bool {
    named == wanted || (named.starts_with("collnet") && wanted == "collnet")
}

/// `NVLSTree`, `nvls-tree` and `NVLS_TREE` are one.
fn first_word(text: &str) -> String {
    let is_of_word = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let word = text.trim().chars().take_while(is_of_word).filter(char::is_ascii_alphanumeric);
    word.collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::super::testing::lines;
    use super::*;
    use commgauge_model::record::Line;

    fn facts(collective: Collective, label: Option<&str>) -> CaseFacts {
        let plan = lines("a", &[vec![1.0]]).into_iter().find_map(|line| match line {
            Line::Plan(plan) => Some(plan),
            _ => None,
        });
        let facts = plan.expect("a plan").cases.remove(0);
        let labels = label.map(|name| ("algorithm".to_owned(), name.to_owned())).into_iter().collect();
        CaseFacts { collective, labels, ..facts }
    }

    #[test]
    fn a_call_has_an_algorithm_only_where_the_record_says_so() {
        use Collective::{AllReduce, Broadcast};
        for (collective, variable, label, chosen, algorithm, had) in [
            (AllReduce, None, None, &[][..], "Ring", false),
            (AllReduce, Some("Ring"), None, &[], "ring", true),
            (AllReduce, Some("Ring"), None, &[], "NVLS", false),
            (AllReduce, Some("tree,ring"), None, &[], "Ring", false),
            (AllReduce, Some("^nvls"), None, &[], "Ring", false),
            (AllReduce, Some("allreduce:tree;broadcast:ring"), None, &[], "Ring", false),
            (Broadcast, Some("allreduce:tree;broadcast:ring"), None, &[], "Ring", true),
            (AllReduce, Some("collnetdirect"), None, &[], "CollNet (SHARP)", true),
            (AllReduce, Some(""), None, &[], "Ring", false),
            (AllReduce, None, Some("NVLSTree"), &[], "NVLSTree", true),
            (AllReduce, None, Some("NVLSTree"), &[], "NVLS", false),
            (AllReduce, None, None, &["nvls-tree"], "NVLSTree", true),
            (AllReduce, None, None, &["ring"], "NVLSTree", false),
            (AllReduce, None, None, &["ring", "nvls-tree"], "Ring", false),
            (AllReduce, Some("Ring"), None, &["symmetric"], "Ring", false),
        ] {
            let environment = variable.map(|value| BTreeMap::from([("NCCL_ALGO".to_owned(), value.to_owned())]));
            let chosen = chosen.iter().map(|name| (*name).to_owned()).collect();
            let known = Algorithms { environment: environment.as_ref(), chosen: &chosen };
            assert_eq!(
                known.were(algorithm, &facts(collective, label)),
                had,
                "{collective}, {variable:?}, {label:?}, {chosen:?}: {algorithm}"
            );
        }
    }
}
