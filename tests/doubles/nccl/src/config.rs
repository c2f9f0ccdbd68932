//! The configuration of a communicator, as far as NCCL itself refuses wrong ones.

use crate::result::{Answer, INVALID_ARGUMENT, failure};
use std::ffi::{c_char, c_int};
use std::sync::LazyLock;

/// The part of `ncclConfig_t` that every version since 2.28 has; older ones read less.
#[repr(C)]
pub struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    cga_cluster_size: c_int,
    fewest_ctas: c_int,
    most_ctas: c_int,
    network: *const c_char,
    split_share: c_int,
    traffic_class: c_int,
    name: *const c_char,
    collnet: c_int,
    cta_policy: c_int,
    shrink_share: c_int,
    nvls_ctas: c_int,
    channels_per_net_peer: c_int,
}

/// Bytes up to and with `split_share`, which every version since 2.18 has.
const BYTES_OF_2_18: usize = 48;

/// The setting of the environment that is above every configuration.
static FORCED_CHANNELS: LazyLock<Option<u32>> =
    LazyLock::new(|| std::env::var("NCCL_NCHANNELS_PER_NET_PEER").ok()?.trim().parse().ok());

/// The setting of the environment that overrides every configuration.
static FORCED: LazyLock<Option<bool>> = LazyLock::new(|| match std::env::var("NCCL_COMM_BLOCKING").ok()?.as_str() {
    "0" => Some(false),
    "1" => Some(true),
    _ => None,
});

const MAGIC: u32 = 0xcafe_beef;
const UNDEFINED: c_int = c_int::MIN;

/// What is asked of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Whether its calls block.
    pub blocking: bool,
    /// Most thread blocks of its kernels.
    pub most_ctas: Option<u32>,
    /// Channels of a message to another host.
    pub channels_per_net_peer: Option<u32>,
}

/// What a configuration asks for; without one, that calls block, or as the parent's.
pub unsafe fn read(config: *const Config, otherwise: bool) -> Answer<Asked> {
    let Some(config) = config.as_ref() else {
        return Ok(Asked { blocking: otherwise, most_ctas: None, channels_per_net_peer: *FORCED_CHANNELS });
    };
    let mut most_ctas = None;
    if config.magic != MAGIC || config.size < size_of::<usize>() + 12 || config.version < 21400 {
        return failure(INVALID_ARGUMENT, "the configuration was not initialised");
    }
    // As many bytes are read as both sides know (`parseCommConfig`): structures of newer versions are accepted and their additions ignored,
    // which before 2.17 is all but whether calls block.
    if cfg!(since_2_17) && config.size >= BYTES_OF_2_18 {
        let given = |value: c_int| value != UNDEFINED;
        if given(config.cga_cluster_size) && !(0..=8).contains(&config.cga_cluster_size) {
            return failure(INVALID_ARGUMENT, format!("cgaClusterSize is {}", config.cga_cluster_size));
        }
        for (name, value) in [("minCTAs", config.fewest_ctas), ("maxCTAs", config.most_ctas)] {
            if given(value) && value <= 0 {
                return failure(INVALID_ARGUMENT, format!("{name} is {value}"));
            }
        }
        most_ctas = u32::try_from(config.most_ctas).ok();
        // As NCCL compares them (`parseCommConfig` in its src/init.cc): what is not given is the least number there is.
        if config.fewest_ctas > config.most_ctas {
            return failure(
                INVALID_ARGUMENT,
                format!("minCTAs {} is more than maxCTAs {}", config.fewest_ctas, config.most_ctas),
            );
        }
    }
    let mut channels = None;
    if cfg!(since_2_28) && config.size >= size_of::<Config>() && config.channels_per_net_peer != UNDEFINED {
        let asked = u32::try_from(config.channels_per_net_peer).ok().filter(|channels| (1..=64).contains(channels));
        let Some(asked) = asked else {
            return failure(INVALID_ARGUMENT, format!("nChannelsPerNetPeer is {}", config.channels_per_net_peer));
        };
        channels = Some(asked);
    }
    let asked = match config.blocking {
        UNDEFINED => otherwise,
        0 => false,
        1 => true,
        other => return failure(INVALID_ARGUMENT, format!("blocking is {other}")),
    };
    Ok(Asked { blocking: FORCED.unwrap_or(asked), most_ctas, channels_per_net_peer: (*FORCED_CHANNELS).or(channels) })
}
