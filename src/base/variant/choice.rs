//! The algorithm, protocol and channels that a library chose for a call when none was forced, and their form in NCCL's
//! log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Names of NCCL's algorithms, as its flags here have them, by the numbers that its log used before 2.25.
const ALGORITHMS: [&str; 7] = ["tree", "ring", "collnet-direct", "collnet-chain", "nvls", "nvls-tree", "pat"];
/// Names of its protocols, likewise.
const PROTOCOLS: [&str; 3] = ["ll", "ll128", "simple"];

/// What a library chose for a call by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LibraryChoice {
    /// As `--algorithm` has it, such as `ring`; or `symmetric`, where a kernel for symmetric buffers carries the call out, or
    /// `copy-engine`.
    pub algorithm: String,
    /// As `--protocol` has it, such as `simple`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The kernel, where it has a name of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Channels, which are thread blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channels: Option<u32>,
}

impl LibraryChoice {
    /// Parses a line of NCCL's log; none if it does not describe a choice (`src/enqueue.cc` and
    /// `src/scheduler/symmetric_sched.cc` of NCCL, subsystem TUNING).
    pub fn of_log_line(line: &str) -> Option<LibraryChoice> {
        let (before, chosen) = line.split_once(" Bytes -> ")?;
        let after = |word: &str| {
            let mut words = chosen.split_whitespace().skip_while(|one| *one != word);
            words.nth(1)
        };
        let only = |algorithm: &str| LibraryChoice {
            algorithm: algorithm.to_owned(),
            protocol: None,
            kernel: None,
            channels: None,
        };
        if before.contains("[Symmetric]") {
            let kernel = Some(after("Kernel")?.to_owned());
            let channels = after("nchannels").and_then(|count| count.parse().ok());
            return Some(LibraryChoice { kernel, channels, ..only("symmetric") });
        }
        if before.contains("[Copy Engine]") || before.contains(" CE]") {
            return Some(only("copy-engine"));
        }
        Some(LibraryChoice {
            protocol: Some(named(after("proto")?, &PROTOCOLS)),
            channels: chosen.split_once("channel{Lo..Hi}={").and_then(|(_, ends)| channels(ends)),
            ..only(&named(after("Algo")?, &ALGORITHMS))
        })
    }
}

/// By its number, or by its name in any case; an unknown name is returned in small letters.
fn named(word: &str, names: &[&str]) -> String {
    let plain = |text: &str| text.replace(['-', '_'], "").to_lowercase();
    let by_number = word.parse::<usize>().ok().and_then(|number| names.get(number));
    let known = by_number.or_else(|| names.iter().find(|name| plain(name) == plain(word)));
    known.map_or_else(|| word.to_lowercase(), |name| (*name).to_owned())
}

/// `0..15}` is 16 of them.
fn channels(ends: &str) -> Option<u32> {
    let (low, high) = ends.split_once('}')?.0.split_once("..")?;
    let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
    high.checked_sub(low)?.checked_add(1)
}

impl fmt::Display for LibraryChoice {
    /// `ring simple x16`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.algorithm)?;
        for part in self.protocol.iter().chain(&self.kernel) {
            write!(f, " {part}")?;
        }
        self.channels.map_or(Ok(()), |channels| write!(f, " x{channels}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_version_of_the_log_are_understood_and_others_passed_over() {
        for (line, expected) in [
            (
                "a:7:7 [0] NCCL INFO AllReduce: 1048576 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..15}",
                Some("ring simple x16"),
            ),
            (
                "a:7:7 [0] NCCL INFO AllReduce: 64 Bytes -> Algo Tree proto LL channel{Lo..Hi}={3..3}",
                Some("tree ll x1"),
            ),
            ("NCCL INFO AllGather: 64 Bytes -> Algo COLLNET_DIRECT proto LL128 time 1.0", Some("collnet-direct ll128")),
            ("NCCL INFO AllGather: 37756928 Bytes -> Algo 1 proto 2 time 2860.208008", Some("ring simple")),
            ("NCCL INFO 37756928 Bytes -> Algo 4 proto 2 time 2860.2", Some("nvls simple")),
            ("NCCL INFO Broadcast: 8 Bytes -> Algo NOVEL proto 9 channel{Lo..Hi}={5..2}", Some("novel 9")),
            (
                "NCCL INFO AllReduce [Symmetric]: 8 Bytes -> Kernel AllReduce_AGxLL_R nchannels 4 nthreads 512 nWorks 1",
                Some("symmetric AllReduce_AGxLL_R x4"),
            ),
            ("NCCL INFO AllGather [Copy Engine]: 8 Bytes -> cudaMemcpyAsync", Some("copy-engine")),
            ("NCCL INFO AllGather [Hierarchical CE]: 8 Bytes -> RMA proxy + CE", Some("copy-engine")),
            ("NCCL INFO   Broadcast |     0.0/   0.0 |", None),
            ("NCCL INFO 8 Bytes -> Algo", None),
            ("", None),
        ] {
            let found = LibraryChoice::of_log_line(line).map(|choice| choice.to_string());
            assert_eq!(found.as_deref(), expected, "{line}");
        }
    }
}
