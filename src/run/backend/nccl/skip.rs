//! Cases that NCCL, its version, the driver or the device cannot execute, with the reason as a sentence.

use super::abi::CtaLimits;
use super::environment::ForcedCtas;
use super::graph;
use super::library::{LIMITS_FROM, Library, Version};
use crate::backend::Binding;
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::variant::{Buffers, Variant};

/// Properties that decide whether a case can run.
pub(super) struct Capabilities {
    pub library: &'static Library,
    /// The newest CUDA version that the driver supports.
    pub driver: (i32, i32),
    /// Compute capability of the device.
    pub capability: (u32, u32),
    /// The fewest thread blocks of all cases, where limited.
    pub least_ctas: Option<u32>,
    pub forced_ctas: ForcedCtas,
}

impl Capabilities {
    /// Why a case is skipped; none if it can run.
    pub fn skip_reason(&self, binding: &Binding) -> Option<String> {
        self.call_skip_reason(binding).or_else(|| self.variant_skip_reason(binding.op.collective, binding.variant))
    }

    fn call_skip_reason(&self, binding: &Binding) -> Option<String> {
        let (op, found) = (binding.op, self.library.version);
        if op.collective == Collective::AllToAll && binding.placement == Placement::InPlace {
            return Some(
                "NCCL has no all_to_all in place: blocks would be overwritten before they are sent".to_owned(),
            );
        }
        if !op.collective.reduces() || !op.element.moves_only() {
            return None;
        }
        if found < Version(2, 24, 0) {
            return Some(format!("reducing {} needs NCCL 2.24, found {found}", op.element));
        }
        let (major, minor) = self.capability;
        if self.capability < (9, 0) {
            return Some(format!("NCCL reduces {} from compute capability 9.0 on, found {major}.{minor}", op.element));
        }
        // It has the kernels, and does not choose them: what would is compiled for the host, and asks for the device's architecture
        // (`ncclLaunchOneRank` in its src/device/onerank.cu, 2.24 to 2.30; ncclInvalidArgument, seen on an H100).
        let multiplies = matches!(op.reduce_op, Some(ReduceOp::Avg | ReduceOp::PreMulSum));
        (multiplies && binding.groups.group_size() == 1)
            .then(|| format!("NCCL multiplies no {} in a group of one rank, as avg and mulsum do", op.element))
    }

    fn variant_skip_reason(&self, collective: Collective, variant: Variant) -> Option<String> {
        let (call, found) = (&self.library.call, self.library.version);
        let needs = |what: &str, symbol: &str, since: &str| {
            Some(format!("{what} buffers need NCCL {since} ({symbol}), found {found}"))
        };
        match variant.buffers {
            Buffers::Plain => {}
            _ if collective == Collective::Barrier => return Some("a barrier has no buffers".to_owned()),
            Buffers::Allocated if call.memory_allocate.is_none() => return needs("allocated", "ncclMemAlloc", "2.19"),
            Buffers::Registered if call.register.is_none() || call.memory_allocate.is_none() => {
                return needs("registered", "ncclCommRegister", "2.19");
            }
            Buffers::Symmetric if call.window_register.is_none() => {
                return needs("symmetric", "ncclCommWindowRegister", "2.27");
            }
            Buffers::Allocated | Buffers::Registered | Buffers::Symmetric => {}
        }
        if variant.max_ctas.is_some() && found < LIMITS_FROM {
            return Some(self.library.limits_refusal());
        }
        if let Some(reason) = self.forced_ctas.conflict_with(CtaLimits { least: None, most: variant.max_ctas }) {
            return Some(format!("of thread blocks at most {reason}"));
        }
        if let (Some(most), Some(least)) =
            (variant.max_ctas, self.least_ctas.filter(|least| variant.max_ctas < Some(*least)))
        {
            return Some(format!("at most {most} thread blocks are fewer than --min-ctas {least}"));
        }
        if variant.aggregate > 1 && collective == Collective::PingPong {
            return Some(
                "ping_pong cannot be aggregated: in a group its answer would not wait for its question".to_owned(),
            );
        }
        if variant.calls_in_a_graph().is_some() && self.driver < graph::FIRST_DRIVER {
            let ((major, minor), (least, lesser)) = (self.driver, graph::FIRST_DRIVER);
            return Some(format!("graphs need a driver for CUDA {least}.{lesser}, found one for {major}.{minor}"));
        }
        None
    }
}
