//! Facts by which ranks are compared, and the severity of a difference.

use super::launcher_env;
use super::launcher_env::{Allowances, Difference, LaunchReport, LauncherEnv, Severity, Shared, Value};
use super::place::{RankGroup, group_ranks, short_hash};
use commgauge_base::host::online_processors;
use commgauge_base::writing::{self, named};
use commgauge_model::record::header::{Variable, variables_of_this_process};
use commgauge_model::record::line::RankFacts;
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// A fact that every rank determines about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, strum::VariantArray)]
pub enum Fact {
    Program,
    /// SHA-256 of the suite and of every file that it names.
    Suite,
    /// Sampling settings, one per line.
    Settings,
    /// The loaded MPI library, with its version.
    MpiLibrary,
    /// Version of the loaded NCCL.
    NcclVersion,
    /// File of the loaded NCCL.
    NcclFile,
    /// Version of the GPU driver.
    GpuDriver,
    /// Variables that configure MPI, NCCL, their transports and the threads, one per line.
    Environment,
    DeviceModel,
    /// UUID of the rank's device; no two ranks may have the same.
    DeviceUuid,
    Processor,
    Kernel,
}

impl Fact {
    /// All facts, in the order in which they are reported.
    pub const ALL: [Fact; 12] = *<Fact as strum::VariantArray>::VARIANTS.as_array().expect("all of them");

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
            Fact::Environment => super::launcher_env::severity(line),
            Fact::DeviceModel | Fact::Processor => Severity::Warning,
            Fact::DeviceUuid | Fact::Kernel => Severity::Info,
        }
    }
}

// Description of one rank: texts that are compared by hash, and a few numbers that are checked individually.

/// Longer texts are cut; the hash covers the whole text.
const MAX_TEXT_BYTES: usize = 16 * 1024;

/// A longer list of cores counts as unknown.
const MAX_CORES_BYTES: usize = 512;

/// Everything that one rank contributes to the comparison.
#[derive(Clone, Debug, Default)]
pub struct RankProfile {
    pub(super) texts: BTreeMap<Fact, String>,
    pub(super) launcher_env: LauncherEnv,
    /// What is sent of it as it is; the hashes and contradictions are not filled in yet.
    pub(super) own: Compact,
}

/// The part of a profile that is sent to rank 0.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Compact {
    /// Hashes of the texts, in the order of [`Fact::ALL`]; 0 if missing.
    pub hashes: Vec<u64>,
    /// Cores as a list of ranges.
    pub cores: String,
    /// Cores usable at the same time.
    pub usable: u32,
    /// Cores online on the host.
    pub online: u32,
    pub memory_lock_bytes: Option<u64>,
    pub open_files: Option<u64>,
    pub has_rdma: bool,
    /// Ranks of the launch, if the launcher contradicts MPI.
    pub wrong_ranks: Option<u32>,
    /// This rank's number, if the launcher contradicts MPI.
    pub wrong_rank: Option<u32>,
    /// Ranks on this host, according to the launcher.
    pub ranks_here: Option<u32>,
    /// Hosts, according to the launcher.
    pub hosts: Option<u32>,
}

impl RankProfile {
    /// Profile of this process, as the operating system describes it.
    pub fn of_this_process(facts: &RankFacts) -> RankProfile {
        let environment = variables_of_this_process().map(|(name, value)| Variable { name, value });
        let cores = if facts.cores.len() <= MAX_CORES_BYTES { facts.cores.clone() } else { String::new() };
        let mut profile = RankProfile {
            launcher_env: launcher_env(&|name| std::env::var(name).ok()),
            own: Compact {
                cores,
                usable: std::thread::available_parallelism().map_or(0, |count| count.get() as u32),
                online: online_processors(),
                memory_lock_bytes: getrlimit(Resource::Memlock).current,
                open_files: getrlimit(Resource::Nofile).current,
                has_rdma: std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some()),
                ..Compact::default()
            },
            ..RankProfile::default()
        };
        profile.set(Fact::Environment, launcher_env::relevant(environment));
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
        let launcher = &self.launcher_env;
        Compact {
            hashes: Fact::ALL.iter().map(|fact| self.text(*fact).map_or(0, short_hash)).collect(),
            wrong_ranks: launcher.contradiction(ranks).map(|variable| variable.number),
            wrong_rank: launcher.wrong_rank(rank).map(|variable| variable.number),
            ranks_here: launcher.ranks_here.first().map(|variable| variable.number),
            hosts: launcher.hosts.first().map(|variable| variable.number),
            ..self.own.clone()
        }
    }
}

impl Compact {
    /// The hash of a fact; 0 where the rank has none.
    pub(super) fn hash(&self, fact: Fact) -> u64 {
        let at = Fact::ALL.iter().position(|one| *one == fact);
        at.and_then(|at| self.hashes.get(at)).copied().unwrap_or(0)
    }
}

// Finds the differences between ranks from the hashes of all and the texts of one rank for each value.

/// Values of one fact whose texts are gathered; any further values are reported together.
pub(super) const MAX_VALUES: usize = 32;

/// Placeholder for a line that a rank lacks.
const NOT_SET: &str = "not set";

/// Placeholder for values whose texts were not gathered.
const OTHERS: &str = "(other values)";

/// The ranks with each value of a fact or a line, in the order of the first rank.
type RanksByValue = Vec<RankGroup<String>>;

/// The ranks with one hash of a fact; the hash is 0 where they have no text.
pub(super) type RanksOfHash = RankGroup<u64>;

/// The lines of a list, by name; none if its text was not gathered.
type Lines<'a> = Option<BTreeMap<&'a str, &'a str>>;

pub(super) type Texts = HashMap<(Fact, u64), String>;

/// Ranks grouped by the value of a fact, in the order of their first rank. Ranks without a value are left out, except
/// for the environment, where a missing value means an empty one.
pub(super) fn ranks_by_hash(all: &[Compact], fact: Fact) -> Vec<RanksOfHash> {
    let counts = |hash: &u64| *hash != 0 || fact == Fact::Environment;
    group_ranks(all.iter().map(|profile| Some(profile.hash(fact)).filter(counts)))
}

/// Result of comparing all facts.
#[derive(Default)]
pub(super) struct Compared {
    /// What is shared and what differs.
    pub report: LaunchReport,
    /// Whether all refusals could be overridden by a flag.
    pub could_be_allowed: bool,
    /// Number of refusals that could be overridden.
    mixed: usize,
}

/// Compares all ranks.
pub(super) fn compare(all: &[Compact], texts: &Texts, allowed: Allowances) -> Compared {
    let mut compared = Compared::default();
    for fact in Fact::ALL {
        let groups = ranks_by_hash(all, fact);
        match (fact, &groups[..]) {
            (Fact::DeviceUuid, _) | (_, []) => {}
            (_, [RankGroup { key: hash, .. }]) => {
                let text = texts.get(&(fact, *hash)).map_or("", String::as_str);
                let value = match fact.is_list() {
                    true if text.is_empty() => "no relevant variable is set".to_owned(),
                    true if fact == Fact::Environment => text.replace('\n', " "),
                    true => continue,
                    false => text.to_owned(),
                };
                compared.report.shared.push(Shared { what: fact.short_name().to_owned(), value });
            }
            (_, groups) if fact.is_list() => {
                for (name, values) in by_line(fact, groups, texts) {
                    compared.add(fact, &name, values, allowed);
                }
            }
            (_, groups) => {
                let mut values = RanksByValue::new();
                for RankGroup { key: hash, ranks } in groups {
                    merge(&mut values, texts.get(&(fact, *hash)).map_or(OTHERS, String::as_str), ranks);
                }
                compared.add(fact, "", values, allowed);
            }
        }
    }
    compared.could_be_allowed = compared.mixed > 0 && compared.mixed == compared.report.refusals.len();
    compared
}

impl Compared {
    fn add(&mut self, fact: Fact, line: &str, values: RanksByValue, allowed: Allowances) {
        let severity = match fact.severity(line) {
            Severity::Mixed if allowed.mixed => Severity::Warning,
            other => other,
        };
        let each: Vec<String> =
            values.iter().map(|of| format!("{} on {}", shortened(&of.key), named(&of.ranks))).collect();
        let each = each.join("; ");
        let what = match fact {
            Fact::Program | Fact::Suite => format!("run the same {}", fact.name()),
            Fact::Settings => format!("run with the same setting of {line}"),
            Fact::Environment => format!("have the same {line}"),
            other => format!("have the same {}", other.name()),
        };
        let problem = format!("the ranks do not {what}: {each}");
        match severity {
            Severity::Info => {}
            Severity::Note => self.report.notes.push(problem),
            Severity::Warning => self.report.warnings.push(problem),
            Severity::Mixed | Severity::Refusal => {
                self.mixed += usize::from(severity == Severity::Mixed);
                self.report.refusals.push(problem);
            }
        }
        let value = |RankGroup { key: value, ranks }| Value {
            value,
            ranks: writing::shortened(&ranks),
            rank_count: ranks.len() as u32,
        };
        let what = if line.is_empty() { fact.short_name().to_owned() } else { line.to_owned() };
        let values = values.into_iter().map(value).collect();
        self.report.differences.push(Difference { what, refused: severity >= Severity::Mixed, values });
    }
}

/// The lines of lists that differ: name, then each value with its ranks.
fn by_line(fact: Fact, groups: &[RanksOfHash], texts: &Texts) -> Vec<(String, RanksByValue)> {
    let lists: Vec<(Lines, &[u32])> = groups
        .iter()
        .map(|RankGroup { key: hash, ranks }| {
            let text = if *hash == 0 { Some("") } else { texts.get(&(fact, *hash)).map(String::as_str) };
            (text.map(lines), ranks.as_slice())
        })
        .collect();
    let names: BTreeMap<&str, ()> =
        lists.iter().flat_map(|(list, _)| list.iter().flatten()).map(|(name, _)| (*name, ())).collect();
    let mut differing = Vec::new();
    for name in names.into_keys() {
        let mut values = RanksByValue::new();
        for (list, ranks) in &lists {
            let value = list.as_ref().map_or(OTHERS, |list| list.get(name).copied().unwrap_or(NOT_SET));
            merge(&mut values, value, ranks);
        }
        if values.iter().filter(|of| of.key != OTHERS).count() > 1 {
            differing.push((name.to_owned(), values));
        }
    }
    differing
}

fn merge(values: &mut RanksByValue, value: &str, ranks: &[u32]) {
    match values.iter_mut().find(|known| known.key == value) {
        Some(known) => {
            known.ranks.extend_from_slice(ranks);
            known.ranks.sort_unstable();
        }
        None => values.push(RankGroup { key: value.to_owned(), ranks: ranks.to_vec() }),
    }
}

fn lines(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.split_once('=')).collect()
}

fn shortened(text: &str) -> String {
    if text.chars().count() > 80 { text.chars().take(77).chain("...".chars()).collect() } else { text.to_owned() }
}

// Ranks that have something in common.

#[cfg(test)]
mod rank_profile_tests {

    use super::*;
    use commgauge_model::record::header;

    #[test]
    fn a_compact_profile_is_short_and_round_trips() {
        let mut profile = RankProfile::of_this_process(&header::rank_facts(0));
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

#[cfg(test)]
mod tests {
    // Tests of the messages about differences between ranks.
    use super::*;
    use crate::launch_check::RankProfile;

    const MIXED: Allowances = Allowances { mixed: true, shared_devices: false };

    /// Compares ranks with these texts.
    fn compared(ranks: &[&[(Fact, &str)]], allowed: Allowances) -> Compared {
        let mut texts = Texts::new();
        let mut all = Vec::new();
        for facts in ranks {
            let mut profile = RankProfile::default();
            facts.iter().for_each(|(fact, text)| profile.set(*fact, *text));
            let compact = profile.compact(0, ranks.len() as u32);
            facts.iter().for_each(|(fact, text)| drop(texts.insert((*fact, compact.hash(*fact)), (*text).to_owned())));
            all.push(compact);
        }
        compare(&all, &texts, allowed)
    }

    #[test]
    fn differences_are_refused_warned_of_or_noted_by_fact() {
        use Fact::{DeviceModel, Environment, Kernel, MpiLibrary, Program, Suite};
        for (first, second, refused, warned, expected) in [
            (
                (Program, "aa"),
                (Program, "bb"),
                true,
                false,
                "do not run the same program (SHA-256 of its binary): aa on rank 0; bb on rank 1",
            ),
            ((Suite, "aa"), (Suite, "bb"), true, false, "do not run the same suite"),
            ((MpiLibrary, "Open MPI 4.1.4"), (MpiLibrary, "Open MPI 4.1.6"), true, false, "have the same MPI library"),
            (
                (Environment, "NCCL_ALGO=Ring\nUCX_TLS=tcp"),
                (Environment, "UCX_TLS=tcp"),
                true,
                false,
                "have the same NCCL_ALGO: Ring on rank 0; not set on rank 1",
            ),
            ((Environment, "OMP_NUM_THREADS=1"), (Environment, ""), true, false, "not set on rank 1"),
            (
                (Environment, "UCX_NET_DEVICES=mlx5_0"),
                (Environment, "UCX_NET_DEVICES=mlx5_1"),
                false,
                false,
                "have the same UCX_NET_DEVICES",
            ),
            ((Environment, "CUDA_VISIBLE_DEVICES=0"), (Environment, "CUDA_VISIBLE_DEVICES=1"), false, false, ""),
            (
                (DeviceModel, "H100"),
                (DeviceModel, "H200"),
                false,
                true,
                "have the same device: H100 on rank 0; H200 on rank 1",
            ),
            ((Kernel, "5.10"), (Kernel, "6.1"), false, false, ""),
        ] {
            let compared = compared(&[&[first], &[second]], Allowances::default());
            assert_eq!(
                (compared.report.refusals.len(), compared.report.warnings.len()),
                (usize::from(refused), usize::from(warned)),
                "{first:?}"
            );
            assert_eq!(compared.report.differences.len(), 1);
            assert_eq!(compared.report.differences[0].refused, refused);
            let messages =
                [compared.report.refusals, compared.report.warnings, compared.report.notes].concat().concat();
            assert!(messages.contains(expected), "{messages}");
        }
    }

    #[test]
    fn mixed_environments_may_be_allowed_but_never_mixed_programs() {
        let ranks: [&[(Fact, &str)]; 2] =
            [&[(Fact::Environment, "NCCL_ALGO=Ring")], &[(Fact::Environment, "NCCL_ALGO=Tree")]];
        assert!(compared(&ranks, Allowances::default()).could_be_allowed);
        let allowed = compared(&ranks, MIXED);
        assert_eq!((allowed.report.refusals.len(), allowed.report.warnings.len()), (0, 1));
        for never in [Fact::Program, Fact::NcclVersion] {
            let refused = compared(&[&[(never, "a")], &[(never, "b")]], MIXED);
            assert_eq!((refused.report.refusals.len(), refused.could_be_allowed), (1, false));
        }
        // A flag that would not help is not suggested.
        let both: [&[(Fact, &str)]; 2] = [
            &[(Fact::NcclVersion, "2.30.7"), (Fact::NcclFile, "/a")],
            &[(Fact::NcclVersion, "2.27.3"), (Fact::NcclFile, "/b")],
        ];
        let refused = compared(&both, Allowances::default());
        assert_eq!((refused.report.refusals.len(), refused.could_be_allowed), (2, false));
    }

    #[test]
    fn ranks_with_the_same_value_are_grouped_even_if_other_lines_differ() {
        let environment = |text| [(Fact::Environment, text)];
        let [a, b, c] = ["A=1\nNCCL_ALGO=Ring", "NCCL_ALGO=Ring", "NCCL_ALGO=Tree"].map(environment);
        let compared = compared(&[&a, &b, &c, &a], Allowances::default());
        let algorithm = compared.report.differences.iter().find(|one| one.what == "NCCL_ALGO").unwrap();
        let values: Vec<(&str, &str)> =
            algorithm.values.iter().map(|one| (one.value.as_str(), one.ranks.as_str())).collect();
        assert_eq!(values, [("Ring", "0, 1, 3"), ("Tree", "2")]);
    }

    #[test]
    fn a_fact_that_a_rank_does_not_have_is_not_compared() {
        let compared = compared(
            &[&[(Fact::Suite, "aa"), (Fact::Processor, "x")], &[(Fact::Processor, "x")]],
            Allowances::default(),
        );
        assert_eq!((compared.report.refusals.len(), compared.report.differences.len()), (0, 0));
        assert!(compared.report.shared.iter().any(|one| one.what == "processor" && one.value == "x"));
    }
}
