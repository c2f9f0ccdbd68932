//! The command of a further run on the ranks of a record. One function builds all of them, so that none uses another backend, launcher or
//! host file than the record.

use commgauge_base::visible::quote;
use commgauge_base::writing::grouped;
use commgauge_model::record::line::{ForeignTool, Header, RankFacts};
use std::path::Path;

/// Maximum number of hosts named in a command; more belong in a file.
const MAX_HOSTS: usize = 16;
/// Launcher flags for a host file, and the ranks.
const HOST_FILE: [&str; 3] = ["--hostfile", "-f", "-machinefile"];
const SLURM_HOST_FILE: &str = "SLURM_HOSTFILE=";
/// Flags that NCCL's ranks need to start or to find the same library, and whether a value follows.
const NCCL_FLAGS: [(&str, bool); 3] = [("--share-gpu", false), ("--device-map", true), ("--nccl-library", true)];

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRun {
    /// All pairs of ranks, in rounds of disjoint pairs.
    Pairs,
    /// All pairs of ranks, one pair after another.
    PairsOneAtATime,
    /// The suite whose rows machine files judge.
    Qualify,
}

/// The command of a run on these hosts, each with its ranks, or on all ranks of the record.
pub fn next_run(header: &Header, what: NextRun, on: Option<&[(String, u32)]>) -> String {
    let launch = Launch::of(header);
    let mut words = vec!["commgauge".to_owned(), "run".to_owned()];
    let mut push = |part: &[&str]| words.extend(part.iter().map(|word| (*word).to_owned()));
    match what {
        NextRun::Pairs | NextRun::PairsOneAtATime => push(&["--pairs"]),
        NextRun::Qualify => push(&[judged_suite(header)]),
    }
    push(&["--backend", backend(header)]);
    let ranks = on.map_or(header.world_size, |hosts| hosts.iter().map(|(_, ranks)| ranks).sum());
    push(&["-n", &ranks.to_string()]);
    if backend(header) == SIMULATED {
        // The hosts are the machine file's.
        header.backend.machine.iter().for_each(|machine| push(&["--machine", machine]));
    } else {
        let all = hosts(&header.ranks);
        match (on, &launch.host_file) {
            (None, Some(file)) => push(&["--hostfile", file]),
            (None, None) if all.len() > MAX_HOSTS => push(&["--hostfile", "HOSTS"]),
            // Ranks of one host are started there without naming it, unless it was named.
            (None, None) if all.len() < 2 && !launch.names_hosts => {}
            (on, _) => {
                let host = |(name, ranks): &(String, u32)| format!("{name}:{ranks}");
                let named: Vec<String> = on.unwrap_or(&all).iter().map(host).collect();
                push(&["--hosts", &named.join(",")]);
            }
        }
        launch.program.iter().for_each(|program| push(&["--launcher", program]));
        launch.components.iter().for_each(|word| push(&[&format!("--launcher-arg={word}")]));
    }
    let mut flags = nccl_flags(header);
    if what == NextRun::PairsOneAtATime {
        flags.insert(0, "--one-at-a-time".to_owned());
    }
    let hosts = on.filter(|hosts| what != NextRun::Qualify && hosts.len() > 1);
    if hosts.is_some() && header.ranks.iter().any(|facts| facts.active_adapter().is_some()) {
        flags.push("--perftest".to_owned());
    }
    if !flags.is_empty() {
        push(&["--"]);
        flags.iter().for_each(|word| push(&[word]));
    }
    words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")
}

/// The suite of a record's backend whose rows machine files judge.
pub fn judged_suite(header: &Header) -> &'static str {
    if backend(header) == "mpi" { "qualify-host" } else { "qualify-gpu" }
}

const SIMULATED: &str = "simulated";

fn backend(header: &Header) -> &'static str {
    match (header.backend.name.as_str(), header.backend.measured_by) {
        ("nccl", _) | (_, Some(ForeignTool::NcclTests)) => "nccl",
        _ if header.backend.synthetic => SIMULATED,
        _ => "mpi",
    }
}

fn hosts(ranks: &[RankFacts]) -> Vec<(String, u32)> {
    let hosts = grouped(ranks.iter().map(|entry| (entry.host.clone(), entry.ranks)));
    hosts.into_iter().map(|(host, ranks)| (host, ranks.into_iter().sum())).collect()
}

/// Content of the recorded launch command.
#[derive(Default)]
struct Launch {
    program: Option<String>,
    host_file: Option<String>,
    names_hosts: bool,
    /// Components of Open MPI chosen by hand, such as the network of TCP.
    components: Vec<String>,
}

impl Launch {
    fn of(header: &Header) -> Launch {
        let words = header.launch_command.as_deref().unwrap_or_default();
        let is_ranks = |word: &String| Path::new(word).file_name().is_some_and(|name| name == &*header.program);
        let words = &words[..words.iter().position(is_ranks).unwrap_or(0)];
        let is_assignment = |word: &&String| *word == "env" || word.contains('=');
        let (before, rest) = words.split_at(words.iter().take_while(is_assignment).count());
        let Some((program, arguments)) = rest.split_first() else { return Launch::default() };
        let mut launch = Launch { program: Some(program.clone()), ..Launch::default() };
        launch.host_file = before.iter().find_map(|word| word.strip_prefix(SLURM_HOST_FILE)).map(str::to_owned);
        for (index, word) in arguments.iter().enumerate() {
            match (word.as_str(), &arguments[index + 1..]) {
                (flag, [file, ..]) if HOST_FILE.contains(&flag) => launch.host_file = Some(file.clone()),
                ("--host" | "-host" | "-hosts" | "-w" | "--nodelist", _) => launch.names_hosts = true,
                // `commgauge run` sets this one by itself.
                ("--mca", [name, value, ..]) if name != "mpi_yield_when_idle" => {
                    launch.components.extend([word.clone(), name.clone(), value.clone()]);
                }
                _ => {}
            }
        }
        launch
    }
}

fn nccl_flags(header: &Header) -> Vec<String> {
    let mut flags = Vec::new();
    for (index, word) in header.command_line.iter().enumerate() {
        let is_flag = |(flag, _): &&(&str, bool)| word.split_once('=').map_or(word.as_str(), |(name, _)| name) == *flag;
        let Some((flag, has_value)) = NCCL_FLAGS.iter().find(is_flag) else { continue };
        flags.push(word.clone());
        flags.extend(header.command_line.get(index + 1).filter(|_| *has_value && word == flag).cloned());
    }
    flags
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, loaded};
    use super::*;

    fn header(change: impl FnOnce(&mut Header)) -> Header {
        let mut header = loaded("r.jsonl", lines("r", &[vec![1.0; 3]])).record.header;
        header.world_size = 4;
        header.program = "commgauge-suite".to_owned();
        header.ranks.truncate(1);
        let first = header.ranks[0].clone();
        let rank = |host: &str| RankFacts { host: host.to_owned(), ranks: 2, ..first.clone() };
        header.ranks = vec![rank("a"), rank("b 1")];
        change(&mut header);
        header
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_further_run_repeats_backend_launcher_and_hosts_of_the_record() {
        let launched = |backend: &'static str, launch: &'static str, command: &'static str| {
            header(|header| {
                header.backend.name = backend.to_owned();
                header.backend.synthetic = backend == SIMULATED;
                header.backend.machine = Some("m.toml".to_owned()).filter(|_| backend == SIMULATED);
                header.launch_command = Some(words(launch)).filter(|words| !words.is_empty());
                header.command_line = words(command);
            })
        };
        let one = [("a".to_owned(), 2)];
        for (header, what, on, expected) in [
            (
                launched(
                    "nccl",
                    "mpirun -n 4 --hostfile /h --bind-to none /x/commgauge-suite s",
                    "commgauge-suite s --share-gpu",
                ),
                NextRun::Pairs,
                None,
                "--pairs --backend nccl -n 4 --hostfile /h --launcher mpirun -- --share-gpu",
            ),
            (
                launched(
                    "nccl",
                    "/opt/mpirun -n 4 --mca btl_tcp_if_include eth0 commgauge-suite",
                    "c --nccl-library /l --check 1",
                ),
                NextRun::PairsOneAtATime,
                Some(&one[..]),
                "--pairs --backend nccl -n 2 --hosts a:2 --launcher /opt/mpirun --launcher-arg=--mca \
                 --launcher-arg=btl_tcp_if_include --launcher-arg=eth0 -- --one-at-a-time --nccl-library /l",
            ),
            (
                launched("mpi", "env A=b SLURM_HOSTFILE=/s srun --ntasks=4 commgauge-suite", ""),
                NextRun::Qualify,
                None,
                "qualify-host --backend mpi -n 4 --hostfile /s --launcher srun",
            ),
            (launched("mpi", "", ""), NextRun::Pairs, None, "--pairs --backend mpi -n 4 --hosts 'a:2,b 1:2'"),
            (launched("nccl", "", ""), NextRun::Qualify, Some(&one[..]), "qualify-gpu --backend nccl -n 2 --hosts a:2"),
            (launched(SIMULATED, "", ""), NextRun::Pairs, None, "--pairs --backend simulated -n 4 --machine m.toml"),
        ] {
            assert_eq!(next_run(&header, what, on), format!("commgauge run {expected}"));
        }
        let near = header(|header| {
            header.backend.name = "nccl".to_owned();
            header.ranks[1].adapters = vec!["mlx5_0 (same PCIe switch, 400 Gb/sec (4X NDR))".to_owned()];
        });
        let two = ["a", "b"].map(|host| (host.to_owned(), 1));
        assert!(next_run(&near, NextRun::PairsOneAtATime, Some(&two)).ends_with(" -- --one-at-a-time --perftest"));
        assert!(
            !next_run(&near, NextRun::PairsOneAtATime, Some(&two[..1])).contains("--perftest"),
            "one host has no link"
        );
        let many = header(|header| {
            let first = header.ranks[0].clone();
            header.ranks = (0..17).map(|host| RankFacts { host: format!("n{host}"), ..first.clone() }).collect();
        });
        assert!(next_run(&many, NextRun::Pairs, None).contains("--hostfile HOSTS"));
    }
}
