//! Scatters and gathers, of which the root alone passes in or gets out the whole: on other ranks PyTorch records nothing of it, and what the root
//! has is the size of the call.

use super::call::CallKind;
use super::trace_file::TracedCall;
use commgauge_base::collective::Collective;
use commgauge_base::units::Bytes;
use std::collections::HashMap;

/// A call on all ranks of its group: the group, what it is, and its number there.
type OneCall = (usize, Collective, u64);

/// Gives each scatter and gather the size that its root has. One whose root is not among the files is left out, which the note says.
pub(super) fn complete(calls: &mut Vec<TracedCall>) -> Option<String> {
    let ones = numbered(calls);
    let mut of_root: HashMap<OneCall, Bytes> = HashMap::new();
    for (at, one) in &ones {
        let size = of_root.entry(*one).or_insert(Bytes(0));
        *size = (*size).max(calls[*at].bytes_total);
    }
    for (at, one) in &ones {
        calls[*at].bytes_total = of_root[one];
    }
    let left_out = of_root.values().filter(|size| size.0 == 0).count();
    let is_known = |call: &TracedCall| with_root(call.kind).is_none() || call.bytes_total.0 > 0;
    calls.retain(is_known);
    (left_out > 0).then(|| {
        format!("calls of scatter or gather were skipped, {left_out} of them: no file is of their root, which alone has their size")
    })
}

/// Where the scatters and gathers are among the calls. Those without a number are taken in their order.
fn numbered(calls: &[TracedCall]) -> Vec<(usize, OneCall)> {
    let mut before: HashMap<(u32, usize, Collective), u64> = HashMap::new();
    let of_root = calls.iter().enumerate().filter_map(|(at, call)| Some((at, call, with_root(call.kind)?)));
    of_root
        .map(|(at, call, collective)| {
            let order = before.entry((call.rank, call.group, collective)).or_default();
            let number = call.detail.sequence.unwrap_or(*order);
            *order += 1;
            (at, (call.group, collective, number))
        })
        .collect()
}

/// The scatter or gather that it is.
fn with_root(kind: CallKind) -> Option<Collective> {
    match kind {
        CallKind::Collective(collective @ (Collective::Scatter | Collective::Gather)) => Some(collective),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::trace_file::CallDetail;

    fn call(rank: u32, collective: Collective, bytes: u64, sequence: Option<u64>) -> TracedCall {
        let kind = CallKind::Collective(collective);
        let detail = CallDetail { sequence, ..CallDetail::default() };
        TracedCall { rank, kind, element: None, bytes_total: Bytes(bytes), group: 0, duration: None, detail }
    }

    #[test]
    fn every_rank_has_the_size_that_the_root_has() {
        use Collective::{AllReduce, Gather, Scatter};
        for numbers in [[Some(7), Some(8)], [None, None]] {
            let of = |rank, first, second, gathered| {
                let [one, other] = numbers;
                [call(rank, Scatter, first, one), call(rank, Scatter, second, other), call(rank, Gather, gathered, one)]
            };
            let mut calls = [of(0, 64, 0, 32), of(1, 0, 128, 0)].concat();
            calls.push(call(1, AllReduce, 0, None));
            assert_eq!(complete(&mut calls), None);
            let sizes: Vec<u64> = calls.iter().map(|call| call.bytes_total.0).collect();
            assert_eq!(sizes, [64, 128, 32, 64, 128, 32, 0], "{numbers:?}");
        }
    }

    #[test]
    fn a_scatter_without_its_root_is_left_out_and_said() {
        let mut calls = vec![call(1, Collective::Scatter, 0, Some(3)), call(1, Collective::AllReduce, 8, None)];
        let note = complete(&mut calls).unwrap();
        assert_eq!(calls.len(), 1);
        assert_eq!(
            note,
            "calls of scatter or gather were skipped, 1 of them: no file is of their root, which alone has their size"
        );
    }
}
