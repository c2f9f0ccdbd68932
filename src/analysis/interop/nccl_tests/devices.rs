//! The ranks of a run of nccl-tests, from the lines under `# Using devices`: how many, in which groups, on which hosts.

use crate::interop::imported::ForeignRank;
use commgauge_model::layout::{Axis, Groups, Locality};
use std::collections::{BTreeMap, BTreeSet};

/// One rank, as described by its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) rank: u32,
    pub(super) group: i64,
    pub(super) host: String,
    pub(super) model: String,
    /// Its number on the host and its bus address, as `0 [0x8d]`; absent where the tool does not say.
    pub(super) slot: Option<String>,
}

/// The group that measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) ranks: u32,
    pub(super) groups: u32,
    pub(super) locality: Locality,
    pub(super) device: Option<String>,
}

impl Device {
    /// `#  Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3`; old versions have no group.
    pub(super) fn of_line(text: &str) -> Option<Device> {
        let words: Vec<&str> = text.trim_start_matches('#').split_whitespace().collect();
        let ("Rank", rank) = (*words.first()?, words.get(1)?.parse().ok()?) else { return None };
        let after = |name: &str| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1).copied());
        let (on, device) = (after("on")?, words.iter().position(|word| *word == "device")?);
        let group = after("Group").and_then(|group| group.parse().ok()).unwrap_or(0);
        let model = words.get(device + 3..).unwrap_or_default().join(" ");
        let slot = words.get(device + 1..device + 3).map(|words| words.join(" "));
        Some(Device { rank, group, host: on.to_owned(), model, slot })
    }
}

impl Device {
    /// Whether a comment begins as a line of a rank does.
    pub(super) fn is_meant_by(comment: &str) -> bool {
        let mut words = comment.split_whitespace();
        words.next() == Some("Rank") && words.next().is_some_and(|rank| rank.parse::<u32>().is_ok())
    }

    /// The rank as records name it.
    pub(super) fn as_rank(&self) -> ForeignRank {
        ForeignRank { rank: self.rank, host: self.host.clone(), device: self.model.clone() }
    }
}

/// That a host has one device twice: two hosts of one name, or two ranks that share a device.
pub(super) fn shared_device(devices: &[Device]) -> Option<String> {
    let mut rank_in: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    devices.iter().find_map(|device| {
        let Device { rank, host, slot: Some(slot), .. } = device else { return None };
        let other = rank_in.insert((host, slot), *rank)?;
        Some(format!(
            "ranks {other} and {rank} are both on device {slot} of {host}: two hosts have one name, or the ranks share a device"
        ))
    })
}

impl Group {
    /// The group of all ranks of a run.
    ///
    /// # Errors
    /// A sentence, if the number of ranks of a group cannot be derived from the list.
    pub(super) fn of(devices: &[Device]) -> Result<Group, String> {
        if devices.is_empty() {
            return Err("the number of ranks is unknown: no line `# Rank ...` above".to_owned());
        }
        let ranks: BTreeSet<u32> = devices.iter().map(|device| device.rank).collect();
        if ranks.len() < devices.len() {
            return Err(
                "a rank is listed twice: these are copies that do not know each other (built without MPI?), so it \
                        is unknown how many ranks took part"
                    .to_owned(),
            );
        }
        if ranks.last().is_some_and(|last| *last as usize + 1 != ranks.len()) {
            return Err(format!("ranks are missing among the lines `# Rank ...`: {} are there", ranks.len()));
        }
        let mut members: BTreeMap<i64, Vec<u32>> = BTreeMap::new();
        let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut host_of_rank = vec![0; devices.len()];
        for device in devices {
            members.entry(device.group).or_default().push(device.rank);
            let next = hosts.len() as u32;
            host_of_rank[device.rank as usize] = *hosts.entry(&device.host).or_insert(next);
        }
        let groups = members.len() as u32;
        let members: Vec<Vec<u32>> = members.into_values().map(sorted).collect();
        let size = members.first().map_or(0, Vec::len);
        if members.iter().any(|group| group.len() != size) {
            return Err(
                "the groups (NCCL_TESTS_SPLIT) are of different size, and the times are averaged over them".to_owned()
            );
        }
        let locality = Locality::of(&Groups { axis: Axis::World, groups: members }, &host_of_rank);
        Ok(Group { ranks: size as u32, groups, locality, device: common_model(devices) })
    }
}

fn sorted(mut ranks: Vec<u32>) -> Vec<u32> {
    ranks.sort_unstable();
    ranks
}

fn common_model(devices: &[Device]) -> Option<String> {
    let first = &devices.first()?.model;
    (!first.is_empty() && devices.iter().all(|device| device.model == *first)).then(|| first.clone())
}
