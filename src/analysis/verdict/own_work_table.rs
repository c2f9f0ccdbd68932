//! The keys of `[[expect_copy]]` and `[[expect_product]]` that say what such an expectation is about, as a machine file has them.

use commgauge_model::record::copy_line::CopyFacts;

/// Of a copy.
pub(super) fn head_of_copy(copy: &CopyFacts) -> String {
    let CopyFacts { kind, host_memory, peer_distance, bytes, alone } = copy;
    let memory = host_memory.map_or(String::new(), |memory| format!("host_memory = \"{}\"\n", memory.name()));
    let peer = peer_distance.map_or(String::new(), |distance| format!("peer_distance = {distance}\n"));
    let each = if *alone { "alone" } else { "together" };
    format!("[[expect_copy]]\nkind = \"{}\"\nbytes = \"{}B\"\n{memory}{peer}each = \"{each}\"\n", kind.name(), bytes.0)
}

/// Of a matrix product.
pub(super) fn head_of_product([m, n, k]: [u64; 3], element_type: &str) -> String {
    format!("[[expect_product]]\nm = {m}\nn = {n}\nk = {k}\nelement_type = \"{element_type}\"\n")
}
