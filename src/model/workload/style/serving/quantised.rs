//! An all_reduce of few bits: each rank quantises its part for every other one and sends it there, adds up what it gets, and sends the
//! quantised sum to all (vLLM csrc/quickreduce/quick_reduce_impl.cuh, `AllReduceTwoshot` and its codecs; arXiv 2306.10209 section 3.3).
//! Blocks of 32 numbers have one scale of two bytes. The kernels write straight to the other ranks' memory; as calls they are an
//! all_to_all and an all_gather.

use crate::workload::Op;
use crate::workload::step::ServingStep;
use crate::workload::style::product::product;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;

/// Numbers with one scale.
const BLOCK: u64 = 32;
/// Bytes of a scale.
const SCALE_BYTES: u64 = 2;

/// The call as it is, or what stands for it where sums have few bits.
pub(super) fn reduced(step: &ServingStep, call: Op) -> Result<Vec<Op>> {
    let Some(bits) = step.serving.reduction_bits else { return Ok(vec![call]) };
    let t = u64::from(step.layout.degrees.tp);
    let blocks = (call.bytes_total.0 / call.element.size()).div_ceil(BLOCK).div_ceil(t);
    let block = BLOCK * u64::from(bits) / 8 + SCALE_BYTES;
    let bytes = product("quantised sums", &[t, blocks, block])?;
    let formula = format!(
        "t*blocks*(32*{bits}/8 + 2) = {t}*{blocks}*{block} = {bytes} B, blocks of 32 numbers of each rank's part"
    );
    let source = "vLLM csrc/quickreduce/quick_reduce_impl.cuh AllReduceTwoshot";
    let of = |collective, what: &str| Op {
        collective,
        element: ElementType::Uint8,
        reduce_op: None,
        bytes_total: Bytes(bytes),
        why: format!("{formula}: {what} in {bits} bits ({source}); in place of {}", call.why),
        ..call.clone()
    };
    Ok(vec![of(Collective::AllToAll, "parts to be added up"), of(Collective::AllGather, "sums")])
}
