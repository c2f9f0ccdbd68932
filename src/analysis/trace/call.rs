//! Names of calls and element types in PyTorch and NCCL.

use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::units::Bytes;
use std::fmt;

/// A call of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CallKind {
    /// All ranks of the group call it.
    Collective(Collective),
    /// A message to one rank.
    Send,
    /// A message from one rank.
    Receive,
}

impl CallKind {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::Collective(collective) => collective.name(),
            CallKind::Send => "send",
            CallKind::Receive => "receive",
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a name of a trace stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    Call(CallKind),
    /// It moves nothing, such as a wait or the bounds of a coalesced group.
    NoCall,
    Unknown,
}

/// The call of a name: as `record_param_comms` has it (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp), with the backend in
/// front as in the flight recorder (`nccl:all_reduce`, `nccl:send 0->1`), or as NCCL logs it (`AllReduce`).
pub(super) fn named(name: &str) -> Named {
    let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
    let word = name.split_ascii_whitespace().next().unwrap_or_default();
    let word: String = word.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect();
    let collective = |collective| Named::Call(CallKind::Collective(collective));
    match word.as_str() {
        "allreduce" | "allreducecoalesced" | "allreducesparse" => collective(Collective::AllReduce),
        "allgather"
        | "allgatherbase"
        | "allgatherintotensor"
        | "allgatherintotensorcoalesced"
        | "allgathercoalesced" => collective(Collective::AllGather),
        "reducescatter" | "reducescatterbase" | "reducescattertensor" | "reducescattertensorcoalesced" => {
            collective(Collective::ReduceScatter)
        }
        "broadcast" | "broadcastoop" => collective(Collective::Broadcast),
        "reduce" | "reduceoop" => collective(Collective::Reduce),
        "gather" => collective(Collective::Gather),
        "scatter" => collective(Collective::Scatter),
        "alltoall" | "alltoallbase" | "alltoallv" => collective(Collective::AllToAll),
        "barrier" | "allreducebarrier" => collective(Collective::Barrier),
        "send" => Named::Call(CallKind::Send),
        "recv" | "receive" => Named::Call(CallKind::Receive),
        "wait" | "init" | "coalesced" | "startcoalescing" | "endcoalescing" | "pointtopoint" => Named::NoCall,
        _ => Named::Unknown,
    }
}

/// The type of a name: of PyTorch's scalar types (`BFloat16`, `c10::BFloat16`, `Float`, `long int`).
pub(super) fn element_of_torch(name: &str) -> Option<ElementType> {
    Some(match name.trim_start_matches("c10::") {
        "Float" | "float" => ElementType::Float32,
        "Double" | "double" => ElementType::Float64,
        "Half" => ElementType::Float16,
        "BFloat16" => ElementType::Bfloat16,
        "Float8_e4m3fn" | "Float8_e4m3fnuz" => ElementType::Fp8E4m3,
        "Float8_e5m2" | "Float8_e5m2fnuz" => ElementType::Fp8E5m2,
        "Char" | "signed char" => ElementType::Int8,
        "Byte" | "unsigned char" | "Bool" | "bool" => ElementType::Uint8,
        "Int" | "int" => ElementType::Int32,
        "Long" | "long" | "long int" => ElementType::Int64,
        "UInt32" => ElementType::Uint32,
        "UInt64" => ElementType::Uint64,
        _ => return None,
    })
}

/// The type in `Tensor(float)`, also within lists: `GenericList[Tensor(c10::BFloat16)]`.
pub(super) fn element_of_tensor(text: &str) -> Option<ElementType> {
    let (_, behind) = text.split_once("Tensor(")?;
    element_of_torch(behind.split_once(')')?.0)
}

/// The type of a number of NCCL's `ncclDataType_t` (src/nccl.h.in).
pub(super) fn element_of_nccl(number: u32) -> Option<ElementType> {
    use ElementType::*;
    let all = [Int8, Uint8, Int32, Uint32, Int64, Uint64, Float16, Float32, Float64, Bfloat16, Fp8E4m3, Fp8E5m2];
    all.get(number as usize).copied()
}

/// Elements that one rank passes in and gets out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Elements {
    pub sent: u64,
    pub received: u64,
}

impl Elements {
    /// The size argument in the sense of nccl-tests: the whole buffer of calls that collect or share out blocks.
    pub(super) fn bytes_total(self, kind: CallKind, element: ElementType) -> Option<Bytes> {
        let elements = match kind {
            CallKind::Collective(Collective::Barrier) => 0,
            CallKind::Collective(Collective::AllGather | Collective::Gather) => self.received,
            CallKind::Receive => self.received,
            _ => self.sent,
        };
        elements.checked_mul(element.size()).map(Bytes)
    }
}

/// The size argument in the sense of nccl-tests of a call whose count argument is this many bytes, which NCCL takes of one rank's
/// block where there are blocks (src/collectives.cc).
pub(super) fn bytes_of_count(kind: CallKind, count: Bytes, ranks: u32) -> Option<Bytes> {
    use Collective::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
    let blocks = match kind {
        CallKind::Collective(AllGather | Gather | ReduceScatter | Scatter | AllToAll) => u64::from(ranks),
        _ => 1,
    };
    count.0.checked_mul(blocks).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_pytorch_and_nccl_are_known() {
        for (name, kind) in [
            ("nccl:all_reduce", Some(CallKind::Collective(Collective::AllReduce))),
            ("_allgather_base", Some(CallKind::Collective(Collective::AllGather))),
            ("nccl:_reduce_scatter_base", Some(CallKind::Collective(Collective::ReduceScatter))),
            ("reduce_scatter_tensor_coalesced", Some(CallKind::Collective(Collective::ReduceScatter))),
            ("all_to_allv", Some(CallKind::Collective(Collective::AllToAll))),
            ("AllReduce", Some(CallKind::Collective(Collective::AllReduce))),
            ("nccl:send 0->1", Some(CallKind::Send)),
            ("nccl:recv 1<-0", Some(CallKind::Receive)),
            ("nccl:all_reduce_barrier", Some(CallKind::Collective(Collective::Barrier))),
        ] {
            assert_eq!(named(name), kind.map_or(Named::NoCall, Named::Call), "{name}");
        }
        assert_eq!(named("wait"), Named::NoCall);
        assert_eq!(named("nccl:ring_of_dreams"), Named::Unknown);
        assert_eq!(element_of_torch("c10::BFloat16"), Some(ElementType::Bfloat16));
        assert_eq!(element_of_torch("ComplexFloat"), None);
        assert_eq!((element_of_nccl(9), element_of_nccl(12)), (Some(ElementType::Bfloat16), None));
    }

    #[test]
    fn sizes_are_those_of_nccl_tests() {
        let elements = Elements { sent: 100, received: 400 };
        for (collective, bytes) in [
            (Collective::AllReduce, 200),
            (Collective::AllGather, 800),
            (Collective::ReduceScatter, 200),
            (Collective::Barrier, 0),
        ] {
            let found = elements.bytes_total(CallKind::Collective(collective), ElementType::Bfloat16);
            assert_eq!(found, Some(Bytes(bytes)), "{collective}");
        }
        assert_eq!(elements.bytes_total(CallKind::Receive, ElementType::Float32), Some(Bytes(1600)));
    }
}
