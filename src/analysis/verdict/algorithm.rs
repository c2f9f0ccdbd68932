//! Whether the environment variables of a run allow the algorithm that an expected value was reached with.
//!
//! NCCL and RCCL choose the algorithm themselves unless restricted: `NCCL_ALGO` names the algorithms that may be used,
//! or after `^` those that may not, for all calls or call by call (`allreduce:tree,ring;broadcast:ring`), and
//! `NCCL_NVLS_ENABLE=0` disables those that need the switch (NCCL user guide, "Environment Variables"). Other libraries
//! are not covered.

use commgauge_base::collective::Collective;
use std::collections::BTreeMap;

/// False where the variables of a run prevent the library from using the algorithm (its first word, in any case of letters).
pub(super) fn may_use(environment: &BTreeMap<String, String>, collective: Collective, algorithm: &str) -> bool {
    let wanted = first_word(algorithm);
    if environment.get("NCCL_NVLS_ENABLE").is_some_and(|value| value.trim() == "0") && wanted.starts_with("nvls") {
        return false;
    }
    let Some(list) = environment.get("NCCL_ALGO").and_then(|value| list_for(value, collective)) else { return true };
    let (excluded, names) = match list.strip_prefix('^') {
        Some(names) => (true, names),
        None => (false, list),
    };
    let named = names.split(',').map(first_word).any(|name| is_same(&name, &wanted));
    named != excluded
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
    named == wanted
        || (named.starts_with("collnet") && wanted == "collnet")
        || (named == "collnet" && wanted.starts_with("collnet"))
}

fn first_word(text: &str) -> String {
    text.trim().chars().take_while(|c| c.is_ascii_alphanumeric()).collect::<String>().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_compared_only_with_algorithms_that_it_may_use() {
        for (name, value, algorithm, may) in [
            ("NCCL_DEBUG", "INFO", "NVLS", true),
            ("NCCL_ALGO", "Ring", "NVLS", false),
            ("NCCL_ALGO", "RING", "ring", true),
            ("NCCL_ALGO", "tree,NVLS", "NVLS", true),
            ("NCCL_ALGO", "^nvls,nvlstree", "NVLS", false),
            ("NCCL_ALGO", "^nvls", "Ring", true),
            ("NCCL_ALGO", "allreduce:tree;broadcast:ring", "Ring", false),
            ("NCCL_ALGO", "allgather:ring", "NVLS", true),
            ("NCCL_ALGO", "ring;allreduce:nvls", "NVLS", true),
            ("NCCL_ALGO", "collnetdirect", "CollNet (SHARP)", true),
            ("NCCL_ALGO", "", "NVLS", true),
            ("NCCL_NVLS_ENABLE", "0", "NVLSTree", false),
            ("NCCL_NVLS_ENABLE", "1", "NVLS", true),
        ] {
            let environment = BTreeMap::from([(name.to_owned(), value.to_owned())]);
            assert_eq!(may_use(&environment, Collective::AllReduce, algorithm), may, "{name}={value}, {algorithm}");
        }
    }
}
