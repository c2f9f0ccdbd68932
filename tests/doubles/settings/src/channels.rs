//! How many channels NCCL gives a message between two ranks of a communicator.

/// Two for each of 18 links of NVLink.
const CHANNELS_OF_NVLINK: u32 = 36;
/// Channels for messages of a communicator (`p2pnChannels`).
const CHANNELS: u32 = 32;
/// Of 14 GB/s each, for an adapter of 50 GB/s.
const CHANNELS_OF_A_LINK: u32 = 4;
/// `NCCL_MAX_DEV_WORK_P2P_PER_BATCH` in NCCL's src/include/device.h.
const MESSAGES_OF_A_BATCH: u32 = 8;

/// Channels of every peer of a rank: the fewest that one of them has (`ncclTopoGetNchannels`, `ncclTopoComputeP2pChannels` in NCCL's
/// src/graph/paths.cc).
pub fn channels_of_a_peer(version: i32, ranks: u32, hosts: bool, is_alone: bool, set: Option<u32>) -> u32 {
    let within = if is_alone { CHANNELS } else { CHANNELS_OF_NVLINK };
    if !hosts {
        return within.min(CHANNELS);
    }
    let between = match set {
        Some(set) => set,
        None if version < 22900 => {
            let mut most = 2;
            while most * ranks > CHANNELS * 4 && most > 1 {
                most /= 2;
            }
            most
        }
        None => CHANNELS_OF_A_LINK,
    };
    let mut channels = within.min(between).next_power_of_two();
    while set.is_none() && version >= 22900 && channels * ranks.div_ceil(MESSAGES_OF_A_BATCH) > CHANNELS && channels > 1
    {
        channels /= 2;
    }
    channels.min(CHANNELS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_has_fewer_channels_the_more_ranks_there_are_unless_they_are_set() {
        for (version, ranks, hosts, set, expected) in [
            (23007, 8, false, None, 32),
            (22703, 16, true, None, 2),
            (22703, 64, true, None, 2),
            (22703, 128, true, None, 1),
            (23007, 16, true, None, 4),
            (23007, 64, true, None, 4),
            (23007, 128, true, None, 2),
            (23007, 256, true, None, 1),
            (23007, 256, true, Some(8), 8),
            (22703, 256, true, Some(8), 8),
            (23007, 256, true, Some(99), 32),
        ] {
            let channels = channels_of_a_peer(version, ranks, hosts, false, set);
            assert_eq!(channels, expected, "{version}, {ranks} ranks, hosts {hosts}, set {set:?}");
        }
    }
}
