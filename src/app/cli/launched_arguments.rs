//! The flags of every program that MPI launches. They do not depend on MPI, so that `commgauge run` can check the
//! arguments that it passes on.

use super::output::OutputArguments;
use clap::{Args, ValueEnum};
use commgauge_base::error::{Error, Result};
use commgauge_base::progress::Fault;
use commgauge_base::units::{Seconds, parse_seconds};
use commgauge_base::variant::{Buffers, Submit, Variants, parse_aggregate, parse_max_ctas};
use commgauge_model::config::Machine;
use commgauge_model::workload::Communicators;
use commgauge_run::backend::Setting;
use commgauge_run::device_probe::Version;
use commgauge_run::measure::InjectedDelay;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Flags of every launched program.
#[derive(Clone, Debug, Args)]
pub struct LaunchedArguments {
    /// Backend
    #[arg(long, value_enum, default_value = "mpi")]
    pub backend: Backend,
    /// Machine file, or a name (`commgauge show machines`), whose link rates bound the bus bandwidth
    #[arg(long, value_name = "FILE")]
    pub machine: Option<PathBuf>,
    /// Record to write; must not exist. Without it: reports/runs/RUN_ID.jsonl
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Record of a run that ended early, to resume; everything else must be given as it was then
    #[arg(long, value_name = "FILE", conflicts_with = "record", hide_short_help = true)]
    pub resume: Option<PathBuf>,
    /// Resume even if hosts, binary, versions or environment changed; the record then says so
    #[arg(long, requires = "resume", hide_short_help = true)]
    pub allow_changed: bool,
    /// Stop with exit code 75 before this time is over, such as 25m: no case starts that would not finish by then
    #[arg(long, value_name = "TIME", value_parser = parse_time_limit, hide_short_help = true)]
    pub time_limit: Option<Seconds>,
    /// Number of ranks that the launch must have; needed for a launch of one rank
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub expect_ranks: Option<u32>,
    /// Show what the ranks have in common and where they differ, and stop before anything is measured; exit code 7 if they
    /// do not belong together
    #[arg(long, hide_short_help = true)]
    pub check_launch: bool,
    /// Run even if ranks differ in environment, libraries or drivers; the record then says where
    #[arg(long, hide_short_help = true)]
    pub allow_mixed: bool,
    /// Where to write the launch check, as JSON; set by `commgauge run --check-launch`
    #[arg(long, hide = true, value_name = "FILE", requires = "check_launch")]
    pub launch_report: Option<PathBuf>,
    /// Test option: delay a rank in every isolated iteration, as RANK:TIME, such as 2:2ms
    #[arg(long, value_name = "RANK:TIME", value_parser = parse_delay, hide_short_help = true)]
    pub inject_delay: Option<InjectedDelay>,
    /// Test option: panic on a rank at its first case
    #[arg(long, value_name = "RANK", hide = true)]
    pub inject_panic: Option<u32>,
    /// How long a rank may stay in one place before the run counts as hung and is ended with code 5, in seconds or as 500ms, 2m
    /// [default: follows from each case]
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout, hide_short_help = true)]
    pub timeout: Option<Duration>,
    /// Run without the watchdog that ends and explains a run that hangs; GPU calls then time out by themselves, after --timeout
    #[arg(long, hide_short_help = true)]
    pub no_watchdog: bool,
    /// Test option: a rank that hangs, loops, stops, dies or leaves at a call, as RANK:KIND[:CALL]
    #[arg(long, value_name = "RANK:KIND[:CALL]", value_parser = Fault::parse, conflicts_with = "no_watchdog", hide = true)]
    pub inject_fault: Option<Fault>,
    /// Also write between the adapters of the first two hosts with perftest's `ib_write_bw`, in host memory and by GPUDirect where it can, so that
    /// `judge` tells a slow link from a slow library; over these adapters [default: those next to the ranks' GPUs]
    #[arg(long, value_name = "ADAPTERS", num_args = 0.., require_equals = true, value_delimiter = ',', hide_short_help = true)]
    pub perftest: Option<Vec<String>>,
    /// Print no result, only write the record
    #[arg(long, hide_short_help = true)]
    pub quiet: bool,
    /// How results are shown.
    #[command(flatten)]
    pub output: OutputArguments,
    /// What only NCCL understands.
    #[command(flatten)]
    pub nccl: NcclArguments,
    /// The launch command, as a JSON list; set by `commgauge run`
    #[arg(long, hide = true)]
    pub launch_command: Option<String>,
}

/// Parses the time limit of any measuring program.
pub(super) fn parse_time_limit(text: &str) -> std::result::Result<Seconds, String> {
    match parse_seconds(text)? {
        time if time.0 > 0.0 => Ok(time),
        _ => Err(format!("found `{text}`; accepted: more than 0 s, such as 25m or 1.5h")),
    }
}

fn parse_delay(text: &str) -> std::result::Result<InjectedDelay, String> {
    let accepted = || format!("found `{text}`; accepted: RANK:TIME, such as 2:2ms");
    let (rank, delay) = text.split_once(':').ok_or_else(accepted)?;
    Ok(InjectedDelay { rank: rank.parse().map_err(|_| accepted())?, delay: parse_seconds(delay)? })
}

/// Parses seconds, or a time with its unit.
pub fn parse_timeout(text: &str) -> std::result::Result<Duration, String> {
    let seconds = text.trim().parse().map(Seconds).or_else(|_| parse_seconds(text))?.0;
    if (1e-3..=1e6).contains(&seconds) {
        return Ok(Duration::from_secs_f64(seconds));
    }
    Err(format!("found `{text}`; accepted: from 1ms to 1000000 seconds"))
}

// The flags of `--backend nccl`. They do not depend on NCCL, so that `commgauge run` can check the arguments that it
// passes on.

/// Flags of every launched program that apply only to `--backend nccl`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "With --backend nccl")]
pub struct NcclArguments {
    /// NCCL's file; without it libnccl.so.2 from where the system looks for libraries (LD_LIBRARY_PATH), of NCCL_HOME, of Python packages,
    /// conda and the HPC SDK; `commgauge doctor` says which one that is, and why
    #[arg(long, value_name = "FILE", env = "COMMGAUGE_NCCL_LIBRARY", hide_short_help = true)]
    pub nccl_library: Option<PathBuf>,
    /// The file of cuBLAS for [[compute]]; without it libcublas.so.13 or .12, whichever the driver supports, from the system's library
    /// path
    #[arg(long, value_name = "FILE", env = "COMMGAUGE_CUBLAS_LIBRARY", hide_short_help = true)]
    pub cublas_library: Option<PathBuf>,
    /// Device of each rank of a host, in order, such as 0,2,4,6; without it rank i of a host takes device i
    #[arg(long, value_name = "DEVICES", value_delimiter = ',', hide_short_help = true)]
    pub device_map: Option<Vec<u32>>,
    /// Let ranks share a GPU (NCCL 2.30 or newer): data is moved for real, but times say nothing about a network; the record says so
    #[arg(long, hide_short_help = true)]
    pub share_gpu: bool,
    /// Leave ranks on the processors on which they were started; without it a rank that may run on several NUMA nodes stays on that
    /// of its GPU
    #[arg(long, hide_short_help = true)]
    pub no_numa_binding: bool,
    /// Force one algorithm for every call that has it (NCCL_ALGO); any leaves it to NCCL
    #[arg(long, value_enum, value_name = "NAME", hide_short_help = true)]
    pub algorithm: Option<Algorithm>,
    /// Force one protocol for every call that has it (NCCL_PROTO); any leaves it to NCCL
    #[arg(long, value_enum, value_name = "NAME", hide_short_help = true)]
    pub protocol: Option<Protocol>,
    /// Record the algorithm and protocol that NCCL logs for each case. Logging slows short calls, so the times of such a
    /// launch count as unreliable
    #[arg(long, hide_short_help = true)]
    pub record_algorithm: bool,
    /// Kinds of buffers, a list with commas: plain (cuMemAlloc), allocated (ncclMemAlloc, as nccl-tests has them), registered (the same,
    /// and ncclCommRegister), symmetric (the same as windows alike on all ranks: ncclCommWindowRegister; NCCL 2.27) [default: plain]
    #[arg(long, value_name = "KINDS", value_delimiter = ',', hide_short_help = true)]
    pub buffers: Vec<Buffers>,
    /// How calls are submitted to the device, a list with commas: stream, graph (captured in a CUDA graph of 20 calls when streaming, of one when
    /// isolated), graph:CALLS [default: stream]
    #[arg(long, value_name = "WAYS", value_delimiter = ',', hide_short_help = true)]
    pub submit: Vec<Submit>,
    /// Calls in one ncclGroupStart and ncclGroupEnd, each on buffers of its own, a list with commas [default: 1]
    #[arg(short = 'm', long, visible_alias = "agg-iters", value_name = "CALLS", value_delimiter = ',', value_parser = parse_aggregate, hide_short_help = true)]
    pub aggregate: Vec<u32>,
    /// Fewest thread blocks that NCCL's kernels take
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..=64), hide_short_help = true)]
    pub min_ctas: Option<u32>,
    /// Most thread blocks that NCCL's kernels take, a list with commas; any leaves the choice to NCCL
    #[arg(long, value_name = "BLOCKS", value_delimiter = ',', value_parser = parse_max_ctas, hide_short_help = true)]
    pub max_ctas: Vec<MostBlocks>,
    /// How NCCL deals with thread blocks (NCCL_CTA_POLICY, NCCL 2.27): default, efficiency, or zero, which lets the copy engines carry
    /// all_gather, all_to_all, gather and scatter of symmetric buffers within a host (2.28)
    #[arg(short = 'x', long, visible_alias = "cta_policy", value_enum, value_name = "POLICY", hide_short_help = true)]
    pub cta_policy: Option<CtaPolicy>,
    /// Multicast by NVSwitch: on or off (NCCL_NVLS_ENABLE)
    #[arg(long, value_enum, value_name = "SWITCH", hide_short_help = true)]
    pub nvls: Option<Switch>,
    /// GPUDirect RDMA: on, however far adapter and GPU are apart, or off (NCCL_NET_GDR_LEVEL)
    #[arg(long, value_enum, value_name = "SWITCH", hide_short_help = true)]
    pub gpudirect: Option<Switch>,
    /// Ranks for each unique id by which a communicator of all ranks is made, where NCCL takes several (2.23)
    #[arg(long, value_name = "RANKS", default_value_t = RANKS_PER_ID, value_parser = clap::value_parser!(u32).range(1..), hide_short_help = true)]
    pub ranks_per_id: u32,
}

/// One root serves this many ranks at the start within about a second; NCCL's user guide recommends one for each 128.
const RANKS_PER_ID: u32 = 128;

/// What NCCL does about thread blocks, by the numbers of its header and of nccl-tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CtaPolicy {
    #[value(alias = "0")]
    Default,
    #[value(alias = "1")]
    Efficiency,
    #[value(alias = "2")]
    Zero,
}

/// Whether something is to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// A flag of this group: whether it was given, and what it means to the record and to NCCL.
struct NcclFlag {
    flag: &'static str,
    given: bool,
    /// Its value in the record, where it distinguishes cases from the same ones without; the key is the flag's name.
    label: Option<String>,
    /// The variable that it sets. What is without one goes into the configuration of the communicators, or decides what is measured.
    setting: Option<Setting>,
}

impl NcclFlag {
    fn new(flag: &'static str, given: bool) -> NcclFlag {
        NcclFlag { flag, given, label: None, setting: None }
    }

    fn labelled(flag: &'static str, label: Option<String>) -> NcclFlag {
        NcclFlag { label, ..NcclFlag::new(flag, false) }
    }

    fn sets(self, variable: &'static str, value: Option<&'static str>, since_minor: u32) -> NcclFlag {
        let since = Version(2, since_minor, 0);
        let setting = value.map(|value| Setting { flag: self.flag, variable, value, since });
        NcclFlag { setting, ..self }
    }
}

/// Most thread blocks, or any number.
type MostBlocks = Option<u32>;

/// NCCL's algorithms, with its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, strum::IntoStaticStr)]
#[expect(clippy::upper_case_acronyms, reason = "NCCL's spelling")]
pub enum Algorithm {
    Any,
    Ring,
    Tree,
    CollnetDirect,
    CollnetChain,
    NVLS,
    NVLSTree,
    PAT,
}

/// NCCL's protocols, with its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, strum::IntoStaticStr)]
pub enum Protocol {
    Any,
    LL,
    LL128,
    Simple,
}

impl Algorithm {
    /// The value of NCCL_ALGO, if an algorithm is forced.
    pub fn name(self) -> Option<&'static str> {
        (self != Algorithm::Any).then(|| self.into())
    }
}

impl Protocol {
    /// The value of NCCL_PROTO, if a protocol is forced.
    pub fn name(self) -> Option<&'static str> {
        (self != Protocol::Any).then(|| self.into())
    }
}

impl NcclArguments {
    /// Labels that distinguish the cases of a run with these flags from the same cases without.
    pub fn labels(&self) -> BTreeMap<String, String> {
        let key = |flag: &str| flag.trim_start_matches('-').replace('-', "_");
        self.flags().into_iter().filter_map(|flag| Some((key(flag.flag), flag.label?))).collect()
    }

    /// Every flag that has an effect with NCCL alone.
    fn flags(&self) -> [NcclFlag; 15] {
        let (algorithm, protocol) = (self.algorithm.and_then(Algorithm::name), self.protocol.and_then(Protocol::name));
        let switched =
            |switch: Option<Switch>, on, off| switch.map(|switch| if switch == Switch::On { on } else { off });
        let (policy, since) = match self.cta_policy {
            None => (None, 0),
            Some(CtaPolicy::Default) => (Some("0"), 27),
            Some(CtaPolicy::Efficiency) => (Some("1"), 27),
            Some(CtaPolicy::Zero) => (Some("2"), 28),
        };
        let nvls = switched(self.nvls, "1", "0");
        let gpudirect = switched(self.gpudirect, "SYS", "LOC");
        let new = NcclFlag::new;
        let labelled = NcclFlag::labelled;
        [
            new("--device-map", self.device_map.is_some()),
            new("--share-gpu", self.share_gpu),
            new("--no-numa-binding", self.no_numa_binding),
            NcclFlag { given: self.algorithm.is_some(), ..labelled("--algorithm", algorithm.map(str::to_owned)) }.sets(
                "NCCL_ALGO",
                algorithm,
                0,
            ),
            NcclFlag { given: self.protocol.is_some(), ..labelled("--protocol", protocol.map(str::to_owned)) }.sets(
                "NCCL_PROTO",
                protocol,
                0,
            ),
            new("--record-algorithm", self.record_algorithm),
            new("--buffers", !self.buffers.is_empty()),
            new("--submit", !self.submit.is_empty()),
            new("--aggregate", !self.aggregate.is_empty()),
            labelled("--min-ctas", self.min_ctas.map(|blocks| blocks.to_string())),
            new("--max-ctas", !self.max_ctas.is_empty()),
            labelled("--cta-policy", self.cta_policy.map(value_of)).sets("NCCL_CTA_POLICY", policy, since),
            labelled("--nvls", self.nvls.map(value_of)).sets("NCCL_NVLS_ENABLE", nvls, 17),
            labelled("--gpudirect", self.gpudirect.map(value_of)).sets("NCCL_NET_GDR_LEVEL", gpudirect, 0),
            new("--ranks-per-id", self.ranks_per_id != RANKS_PER_ID),
        ]
    }

    /// The variables that flags set.
    pub fn settings(&self) -> Vec<Setting> {
        self.flags().into_iter().filter_map(|flag| flag.setting).collect()
    }

    /// The variants in which every case is measured.
    pub fn variants(&self) -> Variants {
        let usual = Variants::default();
        fn or<T: Clone>(given: &[T], usual: Vec<T>) -> Vec<T> {
            if given.is_empty() { usual } else { given.to_vec() }
        }
        Variants {
            buffers: or(&self.buffers, usual.buffers),
            submit: or(&self.submit, usual.submit),
            aggregate: or(&self.aggregate, usual.aggregate),
            max_ctas: or(&self.max_ctas, usual.max_ctas),
        }
    }

    /// The kind of buffers, if exactly one is requested; else plain.
    pub fn only_buffers(&self) -> Buffers {
        if let [only] = self.buffers[..] { only } else { Buffers::Plain }
    }

    /// The limit to thread blocks, if exactly one is given, which then applies to all launched calls.
    pub fn only_max_ctas(&self) -> Option<u32> {
        if let [only] = self.max_ctas[..] { only } else { None }
    }

    /// Rejects flags that request several variants where only one is possible.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn check_without_variants(&self, what: &str) -> Result<()> {
        let several_limits = self.max_ctas.len() > 1;
        let refused = self.variants().named().into_iter().find(|name| *name != "max_ctas" || several_limits);
        refused.map_or(Ok(()), |name| {
            let flag = name.replace('_', "-");
            Err(Error::usage(format!("--{flag}: {what} submits its calls one by one, on plain buffers; leave it out")))
        })
    }

    /// Rejects flags without effect on another backend, and limits that exclude everything.
    ///
    /// # Errors
    /// Usage errors that name the flag. NCCL's file may be set in the environment of a run that does not use it.
    pub fn check(&self, backend: Backend) -> Result<()> {
        let given = self.flags().into_iter().find(|flag| flag.given || flag.label.is_some());
        if let Some(NcclFlag { flag, .. }) = given.filter(|_| backend != Backend::Nccl) {
            return Err(Error::usage(format!("{flag} is for --backend nccl; leave it out")));
        }
        match (self.min_ctas, self.max_ctas.iter().flatten().min().copied()) {
            (Some(least), Some(most)) if least > most => {
                Err(Error::usage(format!("--min-ctas {least} is more than --max-ctas {most}")))
            }
            _ => Ok(()),
        }
    }
}

/// The value as the flag takes it.
pub(super) fn value_of(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

// The backends as flags name them.

/// The backends that can be requested by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Backend {
    /// Host memory over MPI.
    Mpi,
    /// No data, a virtual clock; runs in this process.
    Simulated,
    /// Device memory over NCCL, on GPUs.
    Nccl,
}

commgauge_base::error::names!(Backend);

impl Backend {
    /// Who creates the communicators; those of a machine are simulated.
    pub fn communicators(self, machine: Option<&Machine>) -> Communicators {
        match self {
            Backend::Mpi => Communicators::Mpi,
            Backend::Nccl => Communicators::Nccl,
            Backend::Simulated => machine.map_or(Communicators::Mpi, Communicators::of_machine),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn a_timeout_is_seconds_or_has_a_unit() {
        for text in ["", "0", "-1", "nan", "inf", "1e99", "2d", "0ns"] {
            assert!(parse_timeout(text).is_err(), "{text}");
        }
        for (text, milliseconds) in [("2", 2_000), ("0.5", 500), ("500ms", 500), ("2m", 120_000)] {
            assert_eq!(parse_timeout(text), Ok(Duration::from_millis(milliseconds)));
        }
    }

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        nccl: NcclArguments,
    }

    fn parse(line: &str) -> std::result::Result<NcclArguments, String> {
        let words = std::iter::once("program").chain(line.split_whitespace());
        Program::try_parse_from(words).map(|program| program.nccl).map_err(|error| error.to_string())
    }

    #[test]
    fn unknown_nccl_values_are_refused_with_the_known_ones() {
        for (line, words) in [
            ("--algorithm rign", "possible values: any, ring, tree, collnet-direct"),
            ("--protocol ll256", "possible values: any, ll, ll128, simple"),
            ("--device-map 0,x", "invalid digit"),
            ("--max-ctas 0", "1 to 64 thread blocks, or any"),
            ("--submit graphs", "stream, graph, or graph:CALLS"),
            ("--aggregate 1,65", "1 to 64 calls"),
            ("--buffers pinned", "plain, allocated, registered, symmetric"),
            ("--cta-policy none", "possible values: default, efficiency, zero"),
            ("--nvls yes", "possible values: on, off"),
            ("--ranks-per-id 0", "1.."),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_switched_for_a_launch_is_a_variable_of_nccl_and_a_label_of_its_cases() {
        for (line, variable, value, since_minor, label) in [
            ("--cta-policy zero", "NCCL_CTA_POLICY", "2", 28, ("cta_policy", "zero")),
            ("-x 1", "NCCL_CTA_POLICY", "1", 27, ("cta_policy", "efficiency")),
            ("--nvls off", "NCCL_NVLS_ENABLE", "0", 17, ("nvls", "off")),
            ("--nvls on", "NCCL_NVLS_ENABLE", "1", 17, ("nvls", "on")),
            ("--gpudirect on", "NCCL_NET_GDR_LEVEL", "SYS", 0, ("gpudirect", "on")),
            ("--gpudirect off", "NCCL_NET_GDR_LEVEL", "LOC", 0, ("gpudirect", "off")),
            ("--algorithm ring", "NCCL_ALGO", "Ring", 0, ("algorithm", "Ring")),
        ] {
            let arguments = parse(line).unwrap();
            let [setting] = arguments.settings()[..] else { panic!("{line}") };
            assert_eq!((setting.variable, setting.value, setting.since.1), (variable, value, since_minor), "{line}");
            assert_eq!(arguments.labels(), BTreeMap::from([(label.0.to_owned(), label.1.to_owned())]), "{line}");
            assert!(arguments.check(Backend::Mpi).is_err(), "{line}");
        }
        assert_eq!(parse("").unwrap().settings(), []);
    }

    #[test]
    fn flags_without_the_backend_and_limits_without_room_are_refused() {
        for (line, backend, words) in [
            ("--share-gpu", Backend::Mpi, "--share-gpu is for --backend nccl"),
            ("--device-map 0,1", Backend::Mpi, "--device-map is for --backend nccl"),
            ("--submit graph", Backend::Simulated, "--submit is for --backend nccl"),
            ("--min-ctas 8 --max-ctas 4", Backend::Nccl, "--min-ctas 8 is more than --max-ctas 4"),
        ] {
            let error = parse(line).unwrap().check(backend).expect_err(line);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(parse("--device-map 0,1 --share-gpu").unwrap().check(Backend::Nccl).is_ok());
        assert!(parse("--nccl-library /x").unwrap().check(Backend::Mpi).is_ok());
    }
}
