//! Ranks of one host in namespaces of their own, as where each has a container of its own.

use super::location::{Node, RankLocation};
use commgauge_base::rank_list::named;

/// Warnings about ranks of one host that may not reach each other.
pub(super) fn network_warnings(nodes: &[Node], all: &[RankLocation]) -> Vec<String> {
    let text = |node: &&Node| {
        format!(
            "ranks of host {} are in different network namespaces ({}): they may not reach each other by its addresses",
            node.facts.host,
            named(&node.ranks)
        )
    };
    divided(nodes, all, |facts| facts.network).map(|node| text(&node)).collect()
}

/// A note about hosts whose ranks may not read each other's memory. Seen with Open MPI 4.1.4: ranks in containers of their own waited for
/// ever in `MPI_Send` of large messages, and not with this variable.
pub(super) fn user_note(nodes: &[Node], all: &[RankLocation]) -> Option<String> {
    let mut hosts = divided(nodes, all, |facts| facts.user);
    let first = hosts.next()?;
    let more = match hosts.count() {
        0 => String::new(),
        others => format!(", and so on {others} hosts more"),
    };
    Some(format!(
        "ranks of host {} are in different user namespaces ({}{more}), as where each has a container of its own: none may read \
         another's memory, so MPI copies twice, and Open MPI 4 may wait for ever in large messages; start one container for all \
         ranks of a host, or set OMPI_MCA_btl_vader_single_copy_mechanism=none",
        first.facts.host,
        named(&first.ranks)
    ))
}

/// Hosts whose ranks are not all in one namespace.
fn divided<'a, 'n>(
    nodes: &'a [Node<'n>],
    all: &'a [RankLocation],
    namespace: fn(&RankLocation) -> u64,
) -> impl Iterator<Item = &'a Node<'n>> {
    nodes.iter().filter(move |node| {
        let of = |rank: &u32| namespace(&all[*rank as usize]);
        node.ranks.iter().any(|rank| of(rank) != namespace(node.facts))
    })
}
