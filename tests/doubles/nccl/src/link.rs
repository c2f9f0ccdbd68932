//! How long a message takes where `COMMGAUGE_DOUBLE_NETWORK` says how fast a link between hosts is: as long as the slower of its link and the
//! channels of its communicator.
//!
//! The number represents a link of 50 GB/s (400 Gbit/s); NVLink, of 450 GB/s, is nine times as fast. A channel carries 14 GB/s between hosts
//! (`P2P_PER_CHANNEL_NET_BW` in NCCL's src/graph/paths.cc) and 20 GB/s within one (two for each of 18 links, of 40 GB/s together).

use crate::config::Asked;
use crate::result::VERSION;
use settings::{Fault, Kind, SETTINGS, channels_of_a_peer};
use std::time::Duration;

const NETWORK_GB: f64 = 50.0;
const NVLINK_GB: f64 = 450.0;
const CHANNEL_BETWEEN_HOSTS_GB: f64 = 14.0;
const CHANNEL_WITHIN_A_HOST_GB: f64 = 20.0;

/// What a rank tells the others of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Hash of its host's name.
    pub host: u64,
    /// Its rank in the launch.
    pub process: u64,
}

/// The links from one rank to all of a communicator.
pub struct Links {
    me: Seat,
    seats: Vec<Seat>,
    channels: u32,
}

impl Seat {
    /// This process, which has this rank of a communicator.
    pub fn of_this(rank: u32) -> Seat {
        let mut name = [0u8; 256];
        // SAFETY: the name is ours, and ends with a zero.
        unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
        // FNV-1a.
        let host = name
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
        Seat { host, process: u64::from(SETTINGS.process_rank.unwrap_or(rank)) }
    }
}

impl Links {
    /// The links of rank `me` among these.
    pub fn new(me: usize, seats: Vec<Seat>, asked: Asked) -> Links {
        let hosts = seats.iter().any(|seat| seat.host != seats[0].host);
        let is_alone = seats.iter().filter(|seat| seat.host == seats[me].host).count() == 1;
        let ranks = SETTINGS.counted_ranks.unwrap_or(seats.len() as u32);
        let channels = channels_of_a_peer(VERSION, ranks, hosts, is_alone, asked.channels_per_net_peer);
        Links { me: seats[me], seats, channels }
    }

    /// How long a message to or from a rank takes; nothing where no rate is set.
    pub fn duration(&self, peer: u32, bytes: usize) -> Duration {
        let (Some(network), seat) = (SETTINGS.network, self.seats[peer as usize]) else { return Duration::ZERO };
        let (link, channel) = match seat.host == self.me.host {
            true => (NVLINK_GB * self.share(seat, Kind::SlowNvlink), CHANNEL_WITHIN_A_HOST_GB),
            false => (NETWORK_GB * self.share(seat, Kind::SlowLink), CHANNEL_BETWEEN_HOSTS_GB),
        };
        let rate = link.min(f64::from(self.channels) * channel) / NETWORK_GB * network as f64;
        Duration::from_secs_f64(bytes as f64 / rate)
    }

    /// Whether a rank is on the same host.
    pub fn stay_on_the_host(&self, peer: u32) -> bool {
        self.seats[peer as usize].host == self.me.host
    }

    /// The share of a link's rate that faults leave.
    fn share(&self, other: Seat, kind: Kind) -> f64 {
        let is_end = |rank: u32| [self.me.process, other.process].contains(&u64::from(rank));
        let strikes =
            |fault: &&Fault| fault.kind == kind && fault.rank.is_none_or(is_end) && fault.peer.is_none_or(is_end);
        SETTINGS.faults.iter().filter(strikes).map(|fault| f64::from(fault.percent) / 100.0).fold(1.0, f64::min)
    }
}
