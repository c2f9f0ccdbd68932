//! Checks before the first measurement that the ranks of a launch belong together: the launcher's variables against
//! MPI, and differences between ranks in program, suite, settings, environment, devices, limits and cores.
//!
//! Every rank sends only short hashes; the text of each distinct value is sent by one rank. The result is data
//! ([`LaunchReport`]); it is formatted for the terminal elsewhere.

mod cores;
mod fact;
mod launcher_env;
mod place;

pub use fact::{Fact, RankProfile};
pub use launcher_env::{
    Allowances, Difference, HostRow, LAUNCH_FORMAT, LAUNCH_VERSION, LaunchReport, LauncherEnv, NumberVariable, Shared,
    Value, ensure_joined, launcher_env,
};
pub use place::{LaunchFacts, RankLocation, fabric_warnings, locate_ranks};

use crate::world::{World, from_first, gather_all};
use commgauge_base::error::Result;
use commgauge_base::host::processors;
use commgauge_base::writing::{named, shortened};
use cores::{HostLimits, RankCores};
use fact::{Compact, Compared, MAX_VALUES, Texts, compare, ranks_by_hash};
use place::{RankGroup, group_ranks};
use std::collections::BTreeMap;

/// Compares all ranks. Collective; the report is process 0's.
///
/// # Errors
/// If ranks cannot communicate.
pub fn inspect(
    world: &dyn World,
    profile: &RankProfile,
    rank_hosts: &LaunchFacts,
    allowed: Allowances,
) -> Result<Option<LaunchReport>> {
    let compact = profile.compact(world.process(), world.processes());
    let all: Vec<Compact> = gather_all(world, &compact)?;
    let texts = texts(world, profile, &all)?;
    let report = || report(&all, &texts, rank_hosts, allowed, &profile.launcher_env);
    Ok((world.process() == 0).then(report))
}

/// Gathers the texts behind the hashes, from the first rank that has each, on process 0. Collective.
fn texts(world: &dyn World, profile: &RankProfile, all: &[Compact]) -> Result<Texts> {
    let wanted: Vec<(u32, Fact)> = Fact::ALL
        .iter()
        .flat_map(|fact| {
            let groups = ranks_by_hash(all, *fact).into_iter().filter(|group| group.key != 0);
            groups.take(MAX_VALUES).map(|group| (group.ranks[0], *fact)).collect::<Vec<_>>()
        })
        .collect();
    let wanted: Vec<(u32, Fact)> = from_first(world, &wanted)?;
    let mine = wanted.iter().filter(|(rank, _)| *rank == world.process());
    let mine: Vec<(Fact, &str)> = mine.map(|(_, fact)| (*fact, profile.text(*fact).unwrap_or_default())).collect();
    let mut texts = Texts::new();
    for (profile, answer) in all.iter().zip(gather_all::<Vec<(Fact, String)>>(world, &mine)?) {
        texts.extend(answer.into_iter().map(|(fact, text)| ((fact, profile.hash(fact)), text)));
    }
    Ok(texts)
}

fn report(
    all: &[Compact],
    texts: &Texts,
    rank_hosts: &LaunchFacts,
    allowed: Allowances,
    launcher: &LauncherEnv,
) -> LaunchReport {
    let Compared { report: compared, could_be_allowed, .. } = compare(all, texts, allowed);
    let hosts = by_host(rank_hosts);
    let mut refusals = launcher_contradictions(all, launcher);
    refusals.extend(compared.refusals);
    let mut warnings = rank_hosts.warnings.clone();
    warnings.extend(host_contradictions(all, &hosts, launcher));
    let devices = shared_devices(all, texts, &rank_hosts.hosts, allowed);
    if allowed.shared_devices { &mut warnings } else { &mut refusals }.extend(devices);
    if could_be_allowed {
        refusals.push(
            "start all ranks with the same environment and libraries (mpirun -x NAME passes a variable on), or continue with --allow-mixed, which the record notes"
                .to_owned(),
        );
    }
    warnings.extend(compared.warnings);
    let limits: Vec<HostLimits> = hosts.iter().map(|on| lowest(on.key, &on.ranks, all)).collect();
    warnings.extend(cores::warnings(&limits, all.len() as u32));
    warnings.extend(uneven_devices(all, &hosts));
    let mut rows = Vec::new();
    let (mut unreliable, mut unbound) = (Vec::new(), Vec::new());
    for (RankGroup { key: host, ranks }, limits) in hosts.iter().zip(&limits) {
        let cores = cores_of(ranks, all);
        let binding = cores::binding(host, &cores);
        let lists: Vec<&str> = cores.iter().map(|one| one.list).collect();
        rows.push(HostRow {
            host: (*host).to_owned(),
            ranks: shortened(ranks),
            rank_count: ranks.len() as u32,
            processors: processors(&lists.join(",")).len() as u32,
            binding: binding.label,
            ranks_share_processors: binding.warning.is_some(),
            memory_lock_bytes: limits.memory_lock_bytes,
            open_files: limits.open_files,
        });
        unreliable.extend(binding.warning.map(|text| (*host, text)));
        unbound.extend(binding.note.map(|text| (*host, text)));
    }
    warnings.extend(merge_similar(&unreliable));
    let mut notes = compared.notes;
    notes.extend(rank_hosts.notes.clone());
    notes.extend(merge_similar(&unbound));
    LaunchReport {
        format: LAUNCH_FORMAT.to_owned(),
        version: LAUNCH_VERSION,
        ranks: all.len() as u32,
        launcher_says: Some(launcher.describe_ranks()).filter(|text| !text.is_empty()),
        hosts: rows,
        refusals,
        warnings,
        notes,
        ..compared
    }
}

type RanksOfHost<'a> = RankGroup<&'a str>;

/// Warns of unequal numbers of GPUs per host. NCCL's NVLS then blocks forever in its first call (nccl#2385, 7 and 8 GPUs), and the host
/// with the fewest adapters limits calls over all hosts.
fn uneven_devices(all: &[Compact], hosts: &[RanksOfHost]) -> Option<String> {
    let devices = |on: &RanksOfHost| of(&on.ranks, all).filter(|rank| rank.hash(Fact::DeviceUuid) != 0).count();
    let fewest = hosts.iter().min_by_key(|on| devices(on))?;
    let most = hosts.iter().max_by_key(|on| devices(on))?;
    let (few, many) = (devices(fewest), devices(most));
    (few > 0 && few < many).then(|| {
        format!(
            "host {} has {few} ranks with a GPU and host {} has {many}: NCCL may hang over unequal nodes if it uses NVLS (NCCL_NVLS_ENABLE=0 avoids it), and no machine file judges such a run; start the same number of ranks on every host",
            fewest.key, most.key
        )
    })
}

/// A sentence about a host.
type Remark<'a> = (&'a str, String);

/// The ranks of each host, in the order of the first rank.
fn by_host(rank_hosts: &LaunchFacts) -> Vec<RanksOfHost<'_>> {
    group_ranks(rank_hosts.hosts.iter().map(|host| Some(host.as_str())))
}

fn of<'a>(ranks: &'a [u32], all: &'a [Compact]) -> impl Iterator<Item = &'a Compact> {
    ranks.iter().filter_map(|rank| all.get(*rank as usize))
}

fn lowest<'a>(host: &'a str, ranks: &[u32], all: &[Compact]) -> HostLimits<'a> {
    HostLimits {
        host,
        ranks: ranks.len() as u32,
        memory_lock_bytes: of(ranks, all).filter_map(|profile| profile.memory_lock_bytes).min(),
        open_files: of(ranks, all).filter_map(|profile| profile.open_files).min(),
        has_rdma: of(ranks, all).any(|profile| profile.has_rdma),
    }
}

fn cores_of<'a>(ranks: &[u32], all: &'a [Compact]) -> Vec<RankCores<'a>> {
    let cores = |rank: &u32| {
        let compact = all.get(*rank as usize)?;
        let has_device = compact.hash(Fact::DeviceUuid) != 0;
        Some(RankCores {
            rank: *rank,
            list: &compact.cores,
            usable: compact.usable,
            online: compact.online,
            has_device,
        })
    };
    ranks.iter().filter_map(cores).collect()
}

/// A problem shared by many hosts is reported for the first three of them.
fn merge_similar(remarks: &[Remark]) -> Vec<String> {
    let mut kinds: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (host, text) in remarks {
        let kind = text.replace(host, "").chars().filter(|c| !c.is_ascii_digit()).collect();
        kinds.entry(kind).or_default().push(text.clone());
    }
    kinds.into_values().flat_map(|texts| first_three(texts, "hosts")).collect()
}

/// The first three texts, the last with the number of the others.
fn first_three(mut texts: Vec<String>, what: &str) -> Vec<String> {
    let more = texts.len().saturating_sub(3);
    texts.truncate(3);
    if let (Some(last), true) = (texts.last_mut(), more > 0) {
        *last += &format!("; and so on for {more} more {what}");
    }
    texts
}

/// The variable of a number that the launcher reports, if any.
fn variable(found: &[NumberVariable]) -> String {
    found.first().map_or_else(String::new, |variable| format!(" ({})", variable.name))
}

/// Reports contradictions between the launcher and MPI about the size of the launch.
fn launcher_contradictions(all: &[Compact], launcher: &LauncherEnv) -> Vec<String> {
    let mut refusals = Vec::new();
    if let Some(reported) = all.iter().find_map(|profile| profile.wrong_ranks) {
        refusals.push(format!(
            "the launcher reports {reported} ranks{}, MPI reports {}: does the launcher belong to the MPI that commgauge was built with?",
            variable(&launcher.ranks),
            all.len()
        ));
    }
    let wrong: Vec<(usize, u32)> =
        all.iter().enumerate().filter_map(|(rank, profile)| Some((rank, profile.wrong_rank?))).collect();
    if let Some((rank, reported)) = wrong.first() {
        refusals.push(format!(
            "{} ranks have a different number from the one that their launcher gave them; the first: rank {rank} was started as rank {reported}{}",
            wrong.len(),
            variable(&launcher.rank)
        ));
    }
    refusals
}

fn host_contradictions(all: &[Compact], hosts: &[RanksOfHost], launcher: &LauncherEnv) -> Vec<String> {
    let name = variable(&launcher.ranks_here);
    let mut warnings = Vec::new();
    if let Some(reported) =
        all.iter().find_map(|profile| profile.hosts).filter(|reported| *reported as usize != hosts.len())
    {
        warnings.push(format!("the launcher reports {reported} hosts, {} were found", hosts.len()));
    }
    let differing: Vec<(&str, usize, u32)> = hosts
        .iter()
        .filter_map(|RankGroup { key: host, ranks }| {
            let reported = of(ranks, all)
                .find_map(|profile| profile.ranks_here.filter(|reported| *reported as usize != ranks.len()))?;
            Some((*host, ranks.len(), reported))
        })
        .collect();
    if let Some((host, found, reported)) = differing.first() {
        let more = if differing.len() > 1 {
            format!(", and so on for {} more hosts", differing.len() - 1)
        } else {
            String::new()
        };
        warnings.push(format!(
            "the launcher reports {reported} ranks on the host of {host}{name}, {found} were found there{more}: it counts hosts \
             differently"
        ));
    }
    warnings
}

/// Devices used by several ranks; with a fix if that is not allowed.
fn shared_devices(all: &[Compact], texts: &Texts, hosts: &[String], allowed: Allowances) -> Vec<String> {
    let several = ranks_by_hash(all, Fact::DeviceUuid).into_iter().filter(|group| group.ranks.len() > 1);
    let shared = several
        .map(|RankGroup { key: hash, ranks }| {
            let uuid = texts.get(&(Fact::DeviceUuid, hash)).map_or("the same", String::as_str);
            let host = hosts.get(ranks[0] as usize).map_or("", String::as_str);
            format!("{} of host {host} are on one device ({uuid})", named(&ranks))
        })
        .collect();
    let mut shared: Vec<String> = first_three(shared, "devices");
    if let (Some(last), false) = (shared.last_mut(), allowed.shared_devices) {
        *last += "; give each rank its own device (is CUDA_VISIBLE_DEVICES the same for all?), or use --share-gpu";
    }
    shared
}

#[cfg(test)]
mod tests {
    // Tests of the complete check on synthetic profiles: launchers, hosts, devices, limits, and thousands of ranks.
    use super::*;
    use crate::launch_check::launcher_env::launcher_env;
    use crate::world::SoloWorld;

    fn rank_hosts(hosts: &[&str]) -> LaunchFacts {
        LaunchFacts { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..LaunchFacts::default() }
    }

    fn checked(profiles: &[RankProfile], hosts: &[&str], allowed: Allowances) -> LaunchReport {
        let ranks = profiles.len() as u32;
        let all: Vec<Compact> = (0..).zip(profiles).map(|(rank, profile)| profile.compact(rank, ranks)).collect();
        let mut texts = Texts::new();
        for (profile, compact) in profiles.iter().zip(&all) {
            for fact in Fact::ALL {
                if let Some(text) = profile.text(fact) {
                    texts.insert((fact, compact.hash(fact)), text.to_owned());
                }
            }
        }
        report(&all, &texts, &rank_hosts(hosts), allowed, &profiles[0].launcher_env)
    }

    /// A rank with its own core and the given launcher variables.
    fn profile(core: u32, messages: &[(&'static str, String)]) -> RankProfile {
        let environment = |name: &str| messages.iter().find(|one| one.0 == name).map(|one| one.1.clone());
        let mut profile = RankProfile {
            launcher_env: launcher_env(&environment),
            own: Compact { cores: core.to_string(), usable: 1, online: 8, ..Compact::default() },
            ..RankProfile::default()
        };
        profile.set(Fact::Program, "aa");
        profile
    }

    #[test]
    fn a_correct_launch_has_no_messages() {
        let rank = |rank: u32| {
            profile(rank, &[("OMPI_COMM_WORLD_SIZE", "2".into()), ("OMPI_COMM_WORLD_RANK", rank.to_string())])
        };
        let report = checked(&[rank(0), rank(1)], &["a", "a"], Allowances::default());
        assert_eq!((report.refusals.len(), report.warnings.len()), (0, 0), "{report:?}");
        assert_eq!((report.hosts.len(), report.hosts[0].binding.as_str()), (1, "own cores"));
    }

    #[test]
    fn hosts_with_unequal_numbers_of_gpus_are_warned_of_and_those_without_gpus_are_not() {
        let launched = |gpus: bool| {
            let ranks: Vec<RankProfile> = (0..3)
                .map(|rank| {
                    let mut profile = profile(rank, &[]);
                    if gpus {
                        profile.set(Fact::DeviceUuid, format!("GPU-{rank}"));
                    }
                    profile
                })
                .collect();
            checked(&ranks, &["a", "a", "b"], Allowances::default()).warnings
        };
        let [warning] = launched(true).try_into().unwrap();
        assert!(warning.starts_with("host b has 1 ranks with a GPU and host a has 2: NCCL may hang"), "{warning}");
        assert_eq!(launched(false), Vec::<String>::new());
    }

    #[test]
    fn a_launcher_that_counts_other_ranks_is_refused_by_its_variable() {
        let rank = |core| profile(core, &[("OMPI_COMM_WORLD_SIZE", "8".into())]);
        let report = checked(&[rank(0), rank(1)], &["a", "a"], Allowances::default());
        assert!(
            report.refusals[0].contains("the launcher reports 8 ranks (OMPI_COMM_WORLD_SIZE), MPI reports 2"),
            "{report:?}"
        );
        let swapped = |rank: u32| profile(rank, &[("PMI_RANK", (1 - rank).to_string())]);
        let report = checked(&[swapped(0), swapped(1)], &["a", "a"], Allowances::default());
        assert!(report.refusals[0].contains("2 ranks have a different number"), "{report:?}");
    }

    #[test]
    fn a_launcher_that_counts_hosts_differently_is_reported() {
        let rank = |core| profile(core, &[("OMPI_COMM_WORLD_LOCAL_SIZE", "2".into())]);
        let report = checked(&[rank(0), rank(1)], &["a#1", "a#2"], Allowances::default());
        assert!(
            report.warnings[0]
                .contains("the launcher reports 2 ranks on the host of a#1 (OMPI_COMM_WORLD_LOCAL_SIZE), 1 were found"),
            "{report:?}"
        );
    }

    #[test]
    fn ranks_on_one_device_are_refused_unless_they_may_share_it() {
        let on = |core, uuid: &str| {
            let mut profile = profile(core, &[]);
            profile.set(Fact::DeviceUuid, uuid);
            profile
        };
        let ranks = [on(0, "GPU-1"), on(1, "GPU-2"), on(2, "GPU-1")];
        let report = checked(&ranks, &["a", "a", "a"], Allowances::default());
        assert!(report.refusals[0].contains("ranks 0, 2 of host a are on one device (GPU-1)"), "{report:?}");
        let report = checked(&ranks, &["a", "a", "a"], Allowances { shared_devices: true, ..Allowances::default() });
        assert_eq!((report.refusals.len(), report.warnings.len()), (0, 1));
    }

    #[test]
    fn a_refusal_that_can_be_overridden_names_the_flag() {
        let with = |text: &str| {
            let mut profile = profile(0, &[]);
            profile.set(Fact::Environment, text);
            profile
        };
        let ranks = [with("NCCL_ALGO=Ring"), with("NCCL_ALGO=Tree")];
        let refused = checked(&ranks, &["a", "b"], Allowances::default());
        assert!(refused.refusals.last().unwrap().contains("--allow-mixed"), "{refused:?}");
        let allowed = checked(&ranks, &["a", "b"], Allowances { mixed: true, ..Allowances::default() });
        assert_eq!(allowed.refusals, Vec::<String>::new());
        assert!(allowed.warnings.iter().any(|text| text.contains("NCCL_ALGO")));
    }

    #[test]
    fn sixteen_thousand_ranks_are_reported_in_a_few_lines() {
        let ranks = 16_384u32;
        let profiles: Vec<RankProfile> = (0..ranks)
            .map(|rank| {
                let mut profile = profile(rank % 8, &[]);
                profile.set(Fact::Environment, format!("NCCL_ALGO={}", rank % 2));
                profile.own.memory_lock_bytes = (rank >= 8).then_some(1 << 16);
                profile.own.cores = "0-63".into();
                profile
            })
            .collect();
        let hosts: Vec<String> = (0..ranks).map(|rank| format!("node{}", rank / 8)).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let report = checked(&profiles, &hosts, Allowances::default());
        assert_eq!((report.hosts.len(), report.differences.len()), (2048, 1));
        let messages = report.refusals.join("\n") + &report.warnings.join("\n");
        assert!(messages.len() < 4000, "{} characters: {messages}", messages.len());
        assert!(messages.contains("64 KiB on node1, node2, node3, node4 and 2043 more"), "{messages}");
        assert!(messages.contains("so on for 2045 more hosts"), "{messages}");
    }

    #[test]
    fn a_single_process_is_checked_against_itself() {
        let mut profile = profile(0, &[]);
        profile.set(Fact::Environment, "NCCL_ALGO=Ring");
        let report = inspect(&SoloWorld, &profile, &rank_hosts(&["a"]), Allowances::default()).unwrap().unwrap();
        assert_eq!(report.refusals, Vec::<String>::new());
        assert!(
            report.shared.iter().any(|one| one.what == "environment" && one.value == "NCCL_ALGO=Ring"),
            "{report:?}"
        );
    }
}
