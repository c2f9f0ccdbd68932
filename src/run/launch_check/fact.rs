//! Facts by which ranks are compared, and the severity of a difference.

use super::severity::Severity;
use serde::{Deserialize, Serialize};

/// A fact that every rank determines about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Fact {
    /// SHA-256 of the running binary.
    Program,
    /// SHA-256 of the suite and of every file that it names.
    Suite,
    /// How samples are taken, one setting on each line.
    Settings,
    /// The MPI library that was loaded, with its version.
    MpiLibrary,
    /// Version of the NCCL that was loaded.
    NcclVersion,
    /// File of the NCCL that was loaded.
    NcclFile,
    /// Version of the GPU driver.
    GpuDriver,
    /// Variables that configure MPI, NCCL, their transports and the threads, one on each line.
    Environment,
    /// Name of the rank's device.
    DeviceModel,
    /// UUID of the rank's device; no two ranks may have the same.
    DeviceUuid,
    /// Name of the processor.
    Processor,
    /// Operating system kernel.
    Kernel,
}

impl Fact {
    /// All facts, in the order in which they are reported.
    pub const ALL: [Fact; 12] = [
        Fact::Program,
        Fact::Suite,
        Fact::Settings,
        Fact::MpiLibrary,
        Fact::NcclVersion,
        Fact::NcclFile,
        Fact::GpuDriver,
        Fact::Environment,
        Fact::DeviceModel,
        Fact::DeviceUuid,
        Fact::Processor,
        Fact::Kernel,
    ];

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Fact::Program => "program (SHA-256 of its binary)",
            Fact::Suite => "suite (SHA-256 of it and the files it names)",
            Fact::Settings => "settings",
            Fact::MpiLibrary => "MPI library",
            Fact::NcclVersion => "version of NCCL",
            Fact::NcclFile => "file of NCCL",
            Fact::GpuDriver => "GPU driver",
            Fact::Environment => "environment",
            Fact::DeviceModel => "device",
            Fact::DeviceUuid => "device UUID",
            Fact::Processor => "processor",
            Fact::Kernel => "kernel",
        }
    }

    /// The name in the first column of a table.
    pub(super) fn short_name(self) -> &'static str {
        match self {
            Fact::Program => "program",
            Fact::Suite => "suite",
            other => other.name(),
        }
    }

    /// Whether the value is a list of `name=value` lines, of which only the differing ones are reported.
    pub(super) fn is_list(self) -> bool {
        matches!(self, Fact::Settings | Fact::Environment)
    }

    /// Severity of a difference in this fact; for lists, of a difference in the line of this name.
    pub(super) fn severity(self, line: &str) -> Severity {
        match self {
            // NCCL cannot connect ranks of different versions (`src/init.cc`, "Mismatched NCCL version detected").
            Fact::Program | Fact::Suite | Fact::Settings | Fact::NcclVersion => Severity::Refusal,
            Fact::MpiLibrary | Fact::NcclFile | Fact::GpuDriver => Severity::Mixed,
            Fact::Environment => super::variables::severity(line),
            Fact::DeviceModel | Fact::Processor => Severity::Warning,
            Fact::DeviceUuid | Fact::Kernel => Severity::Info,
        }
    }
}
