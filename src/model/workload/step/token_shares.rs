//! How many tokens have an expert on a rank or a node, where every token takes experts that are all alike.

use crate::config::Mixture;

/// Why the expected bytes on such nodes are not known; none where they are.
pub(super) fn trouble(mixture: &Mixture, nodes: u64, ranks: u64) -> Option<String> {
    let per_node = mixture.experts / nodes;
    [per_node, per_node / ranks].into_iter().find_map(|block| share_of_tokens(mixture, block).err())
}

/// The share of tokens that have at least one of `block` experts among their K, where each takes K different ones of those that its
/// groups hold, all alike: one less the chance to miss, which is hypergeometric.
///
/// # Errors
/// Where groups of experts lie across such blocks.
pub fn share_of_tokens(mixture: &Mixture, block: u64) -> std::result::Result<f64, String> {
    let (experts, k) = (mixture.experts, mixture.experts_per_token);
    let Some((groups, chosen)) = mixture.router_groups.filter(|(groups, chosen)| chosen < groups) else {
        return Ok(1.0 - miss(experts, block, k));
    };
    let in_group = experts / groups;
    if in_group.is_multiple_of(block) {
        // A part of one group: reached only where that group is kept.
        let kept = chosen as f64 / groups as f64;
        return Ok(kept * (1.0 - miss(chosen * in_group, block, k)));
    }
    if !block.is_multiple_of(in_group) {
        return Err(format!(
            "{block} experts of a rank or node are no whole number of the router's {groups} groups of {in_group} experts, nor a part of one"
        ));
    }
    // Whole groups, of which `here` are kept.
    let of_block = block / in_group;
    let all = binomial(groups, chosen);
    let missed = (0..=of_block.min(chosen)).map(|here| {
        let ways = binomial(of_block, here) * binomial(groups - of_block, chosen - here) / all;
        ways * miss(chosen * in_group, here * in_group, k)
    });
    Ok(1.0 - missed.sum::<f64>())
}

/// The chance that K different ones of `all` are none of `block`.
fn miss(all: u64, block: u64, k: u64) -> f64 {
    (0..k).map(|drawn| all.saturating_sub(block + drawn) as f64 / all.saturating_sub(drawn).max(1) as f64).product()
}

fn binomial(n: u64, k: u64) -> f64 {
    if k > n { 0.0 } else { (0..k).map(|at| (n - at) as f64 / (at + 1) as f64).product() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Model;

    fn mixture(preset: &str) -> Mixture {
        Model::load(preset).unwrap().mixture.unwrap()
    }

    #[test]
    fn a_token_of_deepseek_v3_goes_to_less_than_four_of_eight_nodes() {
        let mixture = mixture("deepseek-v3");
        // Half of the 8 groups are kept, each of them a node: 1 - 96/128 x 95/127 x ... x 89/121 of the tokens that may take one do.
        let missed: f64 = (0..8).map(|drawn| f64::from(96 - drawn) / f64::from(128 - drawn)).product();
        let share = share_of_tokens(&mixture, 32).unwrap();
        assert!((share - 0.5 * (1.0 - missed)).abs() < 1e-12, "{share}");
        assert!((8.0 * share - 3.629).abs() < 1e-3, "nodes of a token: {}", 8.0 * share);
        // Without groups 1 - 224/256 x ... x 217/249 of all have one of 32 of 256.
        let free = Mixture { router_groups: None, ..mixture.clone() };
        let missed: f64 = (0..8).map(|drawn| f64::from(224 - drawn) / f64::from(256 - drawn)).product();
        assert!((share_of_tokens(&free, 32).unwrap() - (1.0 - missed)).abs() < 1e-12);
        // All experts are on one node, and all tokens come there.
        assert!((share_of_tokens(&mixture, 256).unwrap() - 1.0).abs() < 1e-12);
        let error = share_of_tokens(&mixture, 48).unwrap_err();
        assert!(error.contains("no whole number of the router's 8 groups of 32 experts"), "{error}");
        assert!(trouble(&mixture, 8, 8).is_none() && trouble(&Mixture { experts: 240, ..mixture }, 5, 8).is_some());
    }

    #[test]
    fn shares_are_those_of_all_choices_counted_one_by_one() {
        // 16 experts in 4 groups of which 2 are kept, 3 of each token; blocks of half a group, a group, and two groups.
        let mixture =
            Mixture { experts: 16, experts_per_token: 3, router_groups: Some((4, 2)), ..mixture("mixtral-8x7b") };
        for block in [2_u32, 4, 8, 16] {
            let (mut hits, mut all) = (0, 0);
            for groups in (0_u32..16).filter(|groups| groups.count_ones() == 2) {
                // The experts of the kept groups, as bits.
                let may: u32 = (0..16).filter(|expert| groups >> (expert / 4) & 1 == 1).map(|expert| 1 << expert).sum();
                for chosen in (0_u32..1 << 16).filter(|chosen| chosen & may == *chosen && chosen.count_ones() == 3) {
                    all += 1;
                    hits += u32::from(chosen & ((1_u32 << block) - 1) != 0);
                }
            }
            assert_eq!(all, 6 * 56);
            let share = share_of_tokens(&mixture, u64::from(block)).unwrap();
            assert!((share - f64::from(hits) / f64::from(all)).abs() < 1e-12, "{block}: {share}, {hits} of {all}");
        }
    }
}
