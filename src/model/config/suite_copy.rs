//! Reads a suite's `[[copy]]` tables: copies between the memory of hosts and GPUs, within a GPU, and between the GPUs of a host.

use super::document::Table;
use super::suite_sweep::read_sizes;
use commgauge_base::error::Result;
use commgauge_base::units::Bytes;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// From where to where, by the copy engines of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CopyKind {
    /// From the memory of the host to that of a rank's GPU.
    HostToDevice,
    /// The way back.
    DeviceToHost,
    /// Both at once.
    HostBothWays,
    /// From one buffer of a GPU to another.
    WithinDevice,
    /// From a rank's GPU to that of another rank of the host.
    ToPeer,
    /// To it and from it at once.
    PeerBothWays,
}

impl CopyKind {
    /// All kinds, in the order in which they are measured.
    pub const ALL: [CopyKind; 6] = [
        CopyKind::HostToDevice,
        CopyKind::DeviceToHost,
        CopyKind::HostBothWays,
        CopyKind::WithinDevice,
        CopyKind::ToPeer,
        CopyKind::PeerBothWays,
    ];

    /// The name in a suite.
    pub fn name(self) -> &'static str {
        match self {
            CopyKind::HostToDevice => "host-to-device",
            CopyKind::DeviceToHost => "device-to-host",
            CopyKind::HostBothWays => "host-both-ways",
            CopyKind::WithinDevice => "within-device",
            CopyKind::ToPeer => "to-peer",
            CopyKind::PeerBothWays => "peer-both-ways",
        }
    }

    /// The kind of that name.
    ///
    /// # Errors
    /// What is accepted.
    pub fn parse(text: &str) -> std::result::Result<CopyKind, String> {
        named(text, &CopyKind::ALL, CopyKind::name)
    }

    /// Whether one end is memory of the host.
    pub fn is_of_host(self) -> bool {
        matches!(self, CopyKind::HostToDevice | CopyKind::DeviceToHost | CopyKind::HostBothWays)
    }

    /// Whether one end is another rank's GPU.
    pub fn is_of_peers(self) -> bool {
        matches!(self, CopyKind::ToPeer | CopyKind::PeerBothWays)
    }

    /// Whether both directions are busy at once.
    pub fn is_both_ways(self) -> bool {
        matches!(self, CopyKind::HostBothWays | CopyKind::PeerBothWays)
    }
}

/// Kind of the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostMemory {
    /// Locked, so that the GPU reaches it by itself.
    Pinned,
    /// As programs have it; the driver copies it through locked memory of its own.
    Pageable,
}

impl HostMemory {
    /// All kinds.
    pub const ALL: [HostMemory; 2] = [HostMemory::Pinned, HostMemory::Pageable];

    /// The kind of that name.
    ///
    /// # Errors
    /// What is accepted.
    pub fn parse(text: &str) -> std::result::Result<HostMemory, String> {
        named(text, &HostMemory::ALL, HostMemory::name)
    }

    /// The name in a suite.
    pub fn name(self) -> &'static str {
        match self {
            HostMemory::Pinned => "pinned",
            HostMemory::Pageable => "pageable",
        }
    }
}

/// Copies to be measured: every kind, with every kind of host memory that it has, at every size, alone and together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyTable {
    /// From where to where.
    pub kinds: Vec<CopyKind>,
    /// Of the host's end, where there is one. Both ways at once are of pinned memory only: of pageable memory one call waits for the other.
    pub host_memory: Vec<HostMemory>,
    /// Bytes of each copy, in each direction.
    pub bytes: Vec<Bytes>,
    /// Whether one rank of each host copies at a time; false: all at once.
    pub alone: Vec<bool>,
}

impl CopyTable {
    /// Reads every table.
    pub(super) fn all_of(root: &mut Table) -> Result<Vec<CopyTable>> {
        root.tables("copy")?.into_iter().map(CopyTable::read).collect()
    }

    fn read(mut table: Table) -> Result<CopyTable> {
        let kinds = table.take("kinds").map_or(Ok(CopyKind::ALL.to_vec()), |item| {
            item.items()?.iter().map(|item| item.parsed(CopyKind::parse)).collect()
        })?;
        let host_memory = table.take("host_memory").map_or(Ok(vec![HostMemory::Pinned]), |item| {
            item.items()?.iter().map(|item| item.parsed(HostMemory::parse)).collect()
        })?;
        let alone = table.take("each").map_or(Ok(vec![true, false]), |item| {
            let names = |alone| if alone { "alone" } else { "together" };
            item.items()?.iter().map(|item| item.parsed(|text| named(text, &[true, false], names))).collect()
        })?;
        let bytes = read_sizes(table.require("bytes", "a size such as \"256MiB\", a list, or a range")?)?;
        table.finish()?;
        Ok(CopyTable { kinds, host_memory, bytes, alone })
    }
}

/// The value of that name.
fn named<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> std::result::Result<T, String> {
    all.iter().copied().find(|one| name(*one) == text).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
        format!("found `{text}`; accepted: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Suite;
    use std::path::Path;

    fn read(text: &str) -> Result<Vec<CopyTable>> {
        Suite::parse(Path::new("suites/test.toml"), text).map(|suite| suite.copies)
    }

    #[test]
    fn mistakes_are_refused_with_what_would_be_right() {
        for (text, expected) in [
            (
                "[[copy]]\nkinds = 'up'\nbytes = '1MiB'",
                "copy[0].kinds: found `up`; accepted: host-to-device, device-to-host",
            ),
            ("[[copy]]\nhost_memory = 'locked'\nbytes = '1MiB'", "found `locked`; accepted: pinned, pageable"),
            ("[[copy]]\neach = 'both'\nbytes = '1MiB'", "found `both`; accepted: alone, together"),
            ("[[copy]]\nkinds = 'to-peer'", "`bytes` is missing"),
            ("[[copy]]\nbytes = '1MiB'\npeer = 1", "copy[0].peer: unknown key"),
        ] {
            let error = read(text).expect_err(text);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn unless_said_every_kind_is_measured_alone_and_together_on_pinned_memory() {
        let tables = read("[[copy]]\nbytes = ['1MiB', '64MiB']").unwrap();
        let expected = CopyTable {
            kinds: CopyKind::ALL.to_vec(),
            host_memory: vec![HostMemory::Pinned],
            bytes: vec![Bytes(1 << 20), Bytes(64 << 20)],
            alone: vec![true, false],
        };
        assert_eq!(tables, [expected]);
    }
}
