//! Description of one rank: texts that are compared by hash, and a few numbers that are checked individually.

use super::fact::Fact;
use super::launcher_env::{LauncherEnv, launcher_env};
use super::location::short_hash;
use super::variables;
use commgauge_model::record::line::RankFacts;
use commgauge_model::record::provenance::Variable;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Longer texts are cut; the hash covers the whole text.
const MAX_TEXT_BYTES: usize = 16 * 1024;
/// A longer list of cores counts as unknown.
const MAX_CORES_BYTES: usize = 512;

/// Everything that one rank contributes to the comparison.
#[derive(Clone, Debug, Default)]
pub struct RankProfile {
    pub(super) texts: BTreeMap<Fact, String>,
    pub(super) launcher_env: LauncherEnv,
    pub(super) cores: String,
    pub(super) cores_usable: u32,
    pub(super) cores_online: u32,
    pub(super) memory_lock_bytes: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) has_rdma: bool,
}

/// The part of a profile that is sent to rank 0. Fields are serialised in order, without their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Compact(
    /// Hashes of the texts, in the order of [`Fact::ALL`]; 0 where there is none.
    pub Vec<u64>,
    /// Cores: as a list of ranges, usable at the same time, online on the host.
    pub (String, u32, u32),
    /// Limits: locked memory, open files; absent where there is none.
    pub (Option<u64>, Option<u64>),
    /// Whether the host has RDMA adapters.
    pub bool,
    /// Launcher variables that contradict MPI: ranks of the launch, this rank's number.
    pub (Option<u32>, Option<u32>),
    /// Launcher variables for the ranks on this host and the number of hosts.
    pub (Option<u32>, Option<u32>),
);

impl RankProfile {
    /// Profile of this process, as the operating system describes it.
    pub fn of_this_process(facts: &RankFacts) -> RankProfile {
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some(Variable::new(name.into_string().ok()?, value.to_string_lossy())));
        let cores = if facts.cores.len() <= MAX_CORES_BYTES { facts.cores.clone() } else { String::new() };
        let mut profile = RankProfile {
            launcher_env: launcher_env(&|name| std::env::var(name).ok()),
            cores,
            cores_usable: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
            cores_online: online(),
            memory_lock_bytes: getrlimit(Resource::Memlock).current,
            open_files: getrlimit(Resource::Nofile).current,
            has_rdma: has_entries(Path::new("/sys/class/infiniband")),
            ..RankProfile::default()
        };
        profile.set(Fact::Environment, variables::relevant(environment));
        profile.set(Fact::Processor, facts.processor.clone());
        profile.set(Fact::Kernel, facts.kernel.clone());
        profile
    }

    /// Sets the text of a fact. A fact without text is not compared on this rank.
    pub fn set(&mut self, fact: Fact, text: impl Into<String>) {
        let mut text: String = text.into();
        if text.len() > MAX_TEXT_BYTES {
            let hash = short_hash(&text);
            let end = (0..=MAX_TEXT_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
            text.truncate(end);
            text += &format!("\n(cut here)={hash:016x}");
        }
        if text.is_empty() {
            self.texts.remove(&fact);
        } else {
            self.texts.insert(fact, text);
        }
    }

    /// Sets the settings, one line for each field.
    pub fn set_settings(&mut self, settings: &dyn std::fmt::Debug, cases: usize) {
        let mut lines = vec![format!("cases={cases}")];
        // Fields of the struct are indented once; nested values are indented further.
        for line in format!("{settings:#?}").lines().filter(|line| line.starts_with("    ")) {
            match (line.starts_with("     "), line.trim().split_once(": ")) {
                (false, Some((name, value))) => lines.push(format!("{name}={}", value.trim_end_matches(','))),
                _ => {
                    if let Some(last) = lines.last_mut() {
                        *last += " ";
                        *last += line.trim();
                    }
                }
            }
        }
        self.set(Fact::Settings, lines.join("\n"));
    }

    /// The text of a fact, if this rank has one.
    pub(super) fn text(&self, fact: Fact) -> Option<&str> {
        self.texts.get(&fact).map(String::as_str)
    }

    /// The part that is sent to rank 0.
    pub(super) fn compact(&self, rank: u32, ranks: u32) -> Compact {
        Compact(
            Fact::ALL.iter().map(|fact| self.text(*fact).map_or(0, short_hash)).collect(),
            (self.cores.clone(), self.cores_usable, self.cores_online),
            (self.memory_lock_bytes, self.open_files),
            self.has_rdma,
            (
                self.launcher_env.contradiction(ranks).map(|variable| variable.number),
                self.launcher_env.wrong_rank(rank).map(|variable| variable.number),
            ),
            (
                self.launcher_env.ranks_here.first().map(|variable| variable.number),
                self.launcher_env.hosts.first().map(|variable| variable.number),
            ),
        )
    }
}

impl Compact {
    /// The hash of a fact; 0 where the rank has none.
    pub(super) fn hash(&self, fact: Fact) -> u64 {
        let at = Fact::ALL.iter().position(|one| *one == fact);
        at.and_then(|at| self.0.get(at)).copied().unwrap_or(0)
    }
}

fn online() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    super::cores::count(text.trim()) as u32
}

fn has_entries(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_model::record::provenance;

    #[test]
    fn a_compact_profile_is_short_and_round_trips() {
        let mut profile = RankProfile::of_this_process(&provenance::rank_facts(0));
        profile.set(Fact::Settings, "x".repeat(100_000));
        let compact = profile.compact(0, 1);
        let bytes = serde_json::to_vec(&compact).unwrap();
        assert!(bytes.len() < 512, "{} bytes", bytes.len());
        assert_eq!(serde_json::from_slice::<Compact>(&bytes).unwrap(), compact);
        assert_ne!(compact.hash(Fact::Settings), 0);
        assert_eq!(compact.hash(Fact::DeviceUuid), 0, "no device, no hash");
        assert!(profile.text(Fact::Settings).unwrap().len() <= MAX_TEXT_BYTES + 40);
    }
}
