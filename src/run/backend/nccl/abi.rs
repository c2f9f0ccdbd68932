//! The public C interface of NCCL: types, constants and their names, written by hand after `nccl.h`.
//!
//! Results, element types and operations are plain `c_int`: newer libraries return values that an enum would not have.

use commgauge_base::collective::ReduceOp;
use commgauge_base::element::ElementType;
use commgauge_base::embedded::rows;
use commgauge_base::error::{Error, Result};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// `ncclResult_t`.
pub type Code = c_int;

/// `ncclComm_t`.
pub type RawCommunicator = *mut c_void;

/// `cudaStream_t`, which is the driver's `CUstream`.
pub type RawStream = *mut c_void;

/// `ncclSuccess`.
pub const SUCCESS: Code = 0;

/// `ncclInProgress`: a non-blocking call has not finished.
pub const IN_PROGRESS: Code = 7;

/// `NCCL_WIN_COLL_SYMMETRIC`.
pub const SYMMETRIC: c_int = 1;

/// `NCCL_SPLIT_NOCOLOR`: the rank takes part in the split and gets no communicator.
pub const NO_COLOR: c_int = -1;

/// `ncclUniqueId`: identifies the communicator that a set of ranks creates together.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

/// `ncclConfig_t` as of version 2.28, the first with all members used here. A library reads as many bytes as both
/// sides know and fills in the rest by `version`, which must therefore be the version of this layout and not the
/// library's.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    least_ctas: c_int,
    most_ctas: c_int,
    network: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    name: *const c_char,
    /// `collnetEnable`, `CTAPolicy`, `shrinkShare` and `nvlsCTAs`.
    choices: [c_int; 4],
    channels_per_net_peer: c_int,
    nvlink_centric_scheduling: c_int,
}

/// `NCCL_CONFIG_UNDEF_INT`: the library's own choice.
pub const UNDEFINED: c_int = c_int::MIN;

const CONFIG_MAGIC: c_uint = 0xcafe_beef;

const CONFIG_VERSION: c_uint = 2_28_00;

/// Limits on the thread blocks of NCCL's kernels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtaLimits {
    /// Minimum, if limited.
    pub least: Option<u32>,
    pub most: Option<u32>,
}

impl Config {
    /// A communicator whose calls return when the work is on the stream.
    ///
    /// Blocking on purpose. From 2.27 on `ncclGroupEnd` starts a thread for every call of a communicator that does not block
    /// (`src/group.cc`, `ncclGroupEndInternal`), and every time would include the start of that thread.
    ///
    /// With limits on the thread blocks of its kernels (`minCTAs`, `maxCTAs`). To NCCL an absent maximum is less than any minimum
    /// (`src/init.cc`, `parseCommConfig`), so the maximum is set; NCCL lowers it to what it has.
    ///
    /// `channels`: for a message to a rank of another node (`nChannelsPerNetPeer`); without it NCCL chooses.
    pub fn blocking(limits: CtaLimits, channels: Option<u32>) -> Config {
        let number = |blocks: u32| c_int::try_from(blocks).unwrap_or(c_int::MAX);
        let (least_ctas, most_ctas) = (limits.least.map(number), limits.most.map(number));
        let all = if least_ctas.is_some() { c_int::MAX } else { UNDEFINED };
        Config {
            size: size_of::<Config>(),
            magic: CONFIG_MAGIC,
            version: CONFIG_VERSION,
            blocking: 1,
            cga_cluster_size: UNDEFINED,
            least_ctas: least_ctas.unwrap_or(UNDEFINED),
            most_ctas: most_ctas.unwrap_or(all),
            network: std::ptr::null(),
            split_share: UNDEFINED,
            traffic_class: UNDEFINED,
            name: std::ptr::null(),
            choices: [UNDEFINED; 4],
            channels_per_net_peer: channels.map_or(UNDEFINED, number),
            nvlink_centric_scheduling: UNDEFINED,
        }
    }
}

/// `ncclSimInfo_t`: NCCL's estimate for a group that it does not execute. Layout of 2.22, the first version with it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SimulationInfo {
    size: usize,
    magic: c_uint,
    version: c_uint,
    /// Microseconds; negative if there is no estimate.
    pub estimated_microseconds: f32,
}

impl SimulationInfo {
    /// Initialised like `NCCL_SIM_INFO_INITIALIZER`.
    pub fn empty() -> SimulationInfo {
        SimulationInfo {
            size: size_of::<SimulationInfo>(),
            magic: 0x7468_5283,
            version: 2_22_03,
            estimated_microseconds: -1.0,
        }
    }
}

pub fn name_of(code: Code) -> String {
    let name = usize::try_from(code).ok().and_then(|code| rows(include_str!("result_codes.txt")).nth(code));
    name.map_or_else(|| format!("ncclResult_t {code}"), str::to_owned)
}

/// What a call does with its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementUse {
    /// It reduces them.
    Reduced,
    Moved,
}

/// `ncclDataType_t`. Eight-bit floats that are only moved are sent as bytes: 2.24 to 2.27 refuse the type on devices
/// before compute capability 9.0 even without a reduction.
pub fn datatype(element: ElementType, element_use: ElementUse) -> c_int {
    match element {
        ElementType::Int8 => 0,
        ElementType::Uint8 => 1,
        ElementType::Int32 => 2,
        ElementType::Uint32 => 3,
        ElementType::Int64 => 4,
        ElementType::Uint64 => 5,
        ElementType::Float16 => 6,
        ElementType::Float32 => 7,
        ElementType::Float64 => 8,
        ElementType::Bfloat16 => 9,
        ElementType::Fp8E4m3 | ElementType::Fp8E5m2 if element_use == ElementUse::Moved => 1,
        ElementType::Fp8E4m3 => 10,
        ElementType::Fp8E5m2 => 11,
    }
}

/// `ncclScalarHostImmediate`: a number in host memory, read before the call returns.
pub const SCALAR_ON_HOST: c_int = 1;

/// `ncclRedOp_t`; `None` if the operation must be created first.
pub fn operation(op: ReduceOp) -> Option<c_int> {
    Some(match op {
        ReduceOp::Sum => 0,
        ReduceOp::Prod => 1,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Avg => 4,
        ReduceOp::PreMulSum => return None,
    })
}

// Unique ids of communicators, as sent over MPI.

pub(super) const UNIQUE_ID_BYTES: usize = 128;

/// Decodes an id received over MPI.
pub(super) fn read_id(bytes: &[u8]) -> Result<UniqueId> {
    let broken = |_| Error::environment(format!("a unique id of NCCL came with {} bytes instead of 128", bytes.len()));
    bytes.try_into().map(UniqueId).map_err(broken)
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_configuration_is_laid_out_as_in_the_header_of_2_28() {
        let config = Config::blocking(CtaLimits::default(), Some(8));
        assert_eq!((size_of::<Config>(), config.size), (80, 80));
        assert_eq!(std::mem::offset_of!(Config, network), 32);
        assert_eq!(std::mem::offset_of!(Config, name), 48);
        assert_eq!((std::mem::offset_of!(Config, channels_per_net_peer), config.channels_per_net_peer), (72, 8));
        assert_eq!((config.magic, config.version), (0xcafe_beef, 22_800));
    }

    #[test]
    fn a_least_number_of_blocks_alone_is_not_more_than_the_most() {
        let blocks = |least, most| {
            let config = Config::blocking(CtaLimits { least, most }, None);
            (config.least_ctas, config.most_ctas)
        };
        assert_eq!(blocks(None, None), (UNDEFINED, UNDEFINED));
        assert_eq!(blocks(Some(8), None), (8, c_int::MAX));
        assert_eq!(blocks(None, Some(4)), (UNDEFINED, 4));
    }

    #[test]
    fn the_estimate_is_laid_out_as_in_the_header_of_2_22() {
        assert_eq!(size_of::<SimulationInfo>(), 24);
        assert_eq!(std::mem::offset_of!(SimulationInfo, estimated_microseconds), 16);
    }

    #[test]
    fn unknown_result_codes_have_a_name_too() {
        assert_eq!(name_of(2), "ncclSystemError");
        assert_eq!(name_of(99), "ncclResult_t 99");
        assert_eq!(name_of(-1), "ncclResult_t -1");
    }

    #[test]
    fn eight_bit_floats_are_moved_as_bytes_and_reduced_in_their_own_type() {
        let datatypes = [ElementUse::Moved, ElementUse::Reduced].map(|of| datatype(ElementType::Fp8E5m2, of));
        assert_eq!(datatypes, [1, 11]);
    }
}
