//! What the programs that MPI launches share: their flags, their beginning and their end.

use super::launched_arguments::LaunchedArguments;
use super::places;
use super::programs::Work;
use super::run::Backend;
use super::step::replays_of;
use crate::backend;
use crate::backend::mpi::MpiBackend;
use crate::backend::nccl::{Buffers, Environment, Opened, Options, Placing};
use crate::config::Machine;
use crate::error::{Error, Result};
use crate::layout::Nodes;
use crate::mpi_call;
use crate::record::{Record, provenance};
use crate::report::View;
use crate::session::{self, Request, Signals};
use crate::workload::step::Step;
use crate::world::{MpiWorld, World, agree};
use clap::Parser;

/// The whole of a launched program: flags, launch, run, result. Does not return where the launch must be aborted.
pub fn run<W: Work + Parser>(program: &'static str) -> i32 {
    let work = match W::try_parse() {
        Ok(work) => work,
        Err(message) => return tell_usage(&message),
    };
    if let Err(error) = unrelated_copies(&|name| std::env::var(name).ok()) {
        // Once for all copies.
        if std::env::var("SLURM_PROCID").is_ok_and(|rank| rank == "0") {
            eprintln!("commgauge: {error}");
        }
        return error.exit_code();
    }
    if let Err(error) = prepare(work.launched()) {
        return tell_once(&error);
    }
    let started = mpi_call::initialize().and_then(|mpi| Ok((mpi, MpiWorld::new()?)));
    let (mpi, world) = match started {
        Ok(started) => started,
        Err(error) => abort(&error),
    };
    let exit_code = match measure(&work, program, &world) {
        Ok(exit_code) => exit_code,
        Err(error) if error.is_shared() => {
            if world.process() == 0 {
                eprintln!("commgauge: {error}");
            }
            error.exit_code()
        }
        Err(error) => abort(&error),
    };
    drop(mpi);
    exit_code
}

/// What must stand in the environment before any library has started threads.
fn prepare(arguments: &LaunchedArguments) -> Result<()> {
    let nccl = &arguments.nccl;
    let is_nccl = arguments.backend == Backend::Nccl;
    nccl.check(is_nccl)?;
    let environment = Environment {
        share_gpu: nccl.share_gpu,
        algorithm: nccl.algorithm.map(|algorithm| algorithm.name()),
        protocol: nccl.protocol.map(|protocol| protocol.name()),
    };
    if is_nccl { environment.prepare() } else { Ok(()) }
}

/// Whether this copy is the one that speaks for all before MPI says who is who.
fn speaks() -> bool {
    let ranks = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"];
    ranks.iter().find_map(|name| std::env::var(name).ok()).is_none_or(|rank| rank == "0")
}

/// An error that every copy of the program has found before MPI started.
fn tell_once(error: &Error) -> i32 {
    if speaks() {
        eprintln!("commgauge: {error}");
    }
    error.exit_code()
}

/// Help and version, or a usage error; said by one rank only.
fn tell_usage(message: &clap::Error) -> i32 {
    if speaks() {
        // A closed pipe is no reason to fail.
        let _ = message.print();
    }
    message.exit_code()
}

/// Ends the whole launch for an error that only this rank knows of.
fn abort(error: &Error) -> ! {
    let host = provenance::rank_facts(0).host;
    eprintln!("commgauge: {}host {host}: {error}", mpi_call::rank_of_this_process());
    mpi_call::abort(error.exit_code())
}

fn measure<W: Work>(work: &W, program: &'static str, world: &MpiWorld) -> Result<i32> {
    let arguments = work.launched();
    agree(world, expected_launch(arguments, world.processes()))?;
    agree(world, launched(arguments.backend))?;
    let hosts = hosts(world)?;
    let request = agree(world, request(work, program, &Nodes::of_hosts(&hosts)))?;
    let signals = agree(world, Signals::catch())?;
    let mut backend = backend(arguments, world, &hosts)?;
    let backend = backend.as_mut();
    let replay = agree(world, work.replay(world.processes()))?;
    let end = match &replay {
        None => session::run(world, backend, &request, &signals),
        Some((table, options)) => {
            let steps = agree(world, Step::all_of(table, request.world_size))?;
            session::run_with_replays(world, backend, &request, &replays_of(&steps, *options), &signals)
        }
    };
    let mine = if world.process() == 0 { show(arguments, &request) } else { Ok(()) };
    end.and_then(|end| agree(world, mine).map(|()| end.exit_code))
}

/// Catches copies that srun started without anything to join them by, before MPI does: some MPIs let each go on alone, others
/// end with a page of advice and code 1. Said by one copy only.
fn unrelated_copies(environment: &dyn Fn(&str) -> Option<String>) -> Result<()> {
    let tasks = environment("SLURM_STEP_NUM_TASKS").and_then(|text| text.parse::<u32>().ok()).unwrap_or(1);
    // What PMIx, PMI-1 and PMI-2, mpirun and mpiexec leave with the ranks that they join.
    let joined = ["PMIX_RANK", "PMIX_NAMESPACE", "PMI_RANK", "PMI_FD", "PMI_PORT", "OMPI_COMM_WORLD_SIZE"];
    if tasks < 2 || joined.iter().any(|name| environment(name).is_some()) {
        return Ok(());
    }
    let kind = environment("SLURM_MPI_TYPE").unwrap_or_else(|| "none".to_owned());
    Err(Error::usage(format!(
        "srun started {tasks} copies with nothing to join them by (--mpi={kind}): each would believe that it is alone; start \
         them with srun --mpi=pmix (Open MPI) or --mpi=pmi2 (MPICH), or through `commgauge run`, which asks for the right one"
    )))
}

/// Catches the launch that was none: a binary started N times, each thinking that it is alone.
fn expected_launch(arguments: &LaunchedArguments, ranks: u32) -> Result<()> {
    let launched_by =
        |name: &str| std::env::var(name).ok()?.parse::<u32>().ok().filter(|n| *n > 1).map(|n| (name.to_owned(), n));
    let told = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"].into_iter().find_map(launched_by);
    match (arguments.expect_ranks, told) {
        (Some(expected), _) if expected == ranks => Ok(()),
        (Some(expected), _) => Err(Error::usage(format!(
            "--expect-ranks {expected}: this launch has {ranks} ranks; start it with the launcher of the MPI that commgauge was built with ({})",
            mpi_call::library_version()
        ))),
        (None, Some((name, told))) if ranks == 1 => Err(Error::usage(format!(
            "the launcher says {told} ranks ({name}), MPI says 1: the launcher is not that of the MPI that commgauge was built with ({})",
            mpi_call::library_version()
        ))),
        (None, _) if ranks == 1 => Err(Error::usage(
            "this launch has a single rank: start it as `mpirun -np 4 ...` or through `commgauge run`, or say --expect-ranks 1 if one rank is meant",
        )),
        _ => Ok(()),
    }
}

/// Who carries the calls out, once all ranks have what it needs.
fn backend(arguments: &LaunchedArguments, world: &MpiWorld, hosts: &[String]) -> Result<Box<dyn backend::Backend>> {
    let me = world.process() as usize;
    let ranks_on_host = hosts.iter().filter(|host| **host == hosts[me]).count() as u32;
    if arguments.backend != Backend::Nccl {
        return Ok(Box::new(MpiBackend::new(ranks_on_host)?));
    }
    let nccl = &arguments.nccl;
    let options = Options {
        library: nccl.nccl_library.clone(),
        ctas: (nccl.min_ctas, nccl.max_ctas),
        buffers: buffers(nccl.buffers),
    };
    let placing = Placing {
        local_rank: hosts[..me].iter().filter(|host| **host == hosts[me]).count() as u32,
        ranks_on_host,
        host: hosts[me].clone(),
        device_map: nccl.device_map.clone(),
        share_gpu: nccl.share_gpu,
    };
    let opened = agree(world, Opened::find(&options, &placing))?;
    Ok(Box::new(opened.into_backend(&options, &placing)?))
}

fn buffers(asked: Option<super::nccl_arguments::Buffers>) -> Buffers {
    use super::nccl_arguments::Buffers as Asked;
    match asked {
        None | Some(Asked::Plain) => Buffers::Plain,
        Some(Asked::Registered) => Buffers::Registered,
        Some(Asked::Symmetric) => Buffers::Symmetric,
    }
}

fn launched(backend: Backend) -> Result<()> {
    match backend {
        Backend::Mpi | Backend::Nccl => Ok(()),
        Backend::Simulated => Err(Error::usage(
            "--backend simulated plays all ranks in one process and needs no launcher: commgauge run SUITE --backend simulated -n RANKS",
        )),
    }
}

fn request<W: Work>(work: &W, program: &'static str, nodes: &Nodes) -> Result<Request> {
    let (arguments, world_size) = (work.launched(), nodes.ranks());
    let (plan, settings, suite) = work.plan_on(nodes)?;
    let injected = [
        ("--inject-delay", arguments.inject_delay.map(|delay| delay.rank)),
        ("--inject-panic", arguments.inject_panic),
    ];
    if let Some((flag, Some(rank))) = injected.iter().find(|(_, rank)| rank.is_some_and(|rank| rank >= world_size)) {
        let last = world_size - 1;
        return Err(Error::usage(format!("{flag}: rank {rank} is not in this launch; the last is {last}")));
    }
    let record = places::record_path(arguments.record.as_deref())?;
    let launch_command = arguments.launch_command.as_deref().map(serde_json::from_str).transpose();
    Ok(Request {
        program,
        run_id: places::run_id_of(&record),
        suite,
        plan,
        settings,
        machine: arguments.machine.as_deref().map(Machine::load).transpose()?,
        world_size,
        record,
        launch_command: launch_command
            .map_err(|cause| Error::usage(format!("--launch-command: not a JSON list of words: {cause}")))?,
        injected_delay: arguments.inject_delay,
        injected_panic: arguments.inject_panic,
        labels: arguments.nccl.labels(),
        interference: work.interference(world_size)?,
    })
}

/// The host of every rank.
fn hosts(world: &MpiWorld) -> Result<Vec<String>> {
    let mine = provenance::rank_facts(0).host;
    let mut hosts = world.gather(mine.as_bytes())?.join(&b'\n');
    world.broadcast(&mut hosts)?;
    let hosts: Vec<String> = String::from_utf8_lossy(&hosts).split('\n').map(str::to_owned).collect();
    if hosts.len() == world.processes() as usize {
        return Ok(hosts);
    }
    Err(Error::environment(format!("a host name has a line break: {hosts:?}")))
}

/// Shows the record that was just written, also where the run did not come to its end.
fn show(arguments: &LaunchedArguments, request: &Request) -> Result<()> {
    if arguments.quiet || !request.record.exists() {
        return Ok(());
    }
    // Never a terminal, whatever it looks like: some launchers give rank 0 a pseudo-terminal and copy what it gets.
    let view = View::new(&Record::read(&request.record)?);
    arguments.output.show_on(&view, false, &mut std::io::stdout().lock())?;
    eprintln!("record: {}", request.record.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_that_srun_did_not_join_are_caught_before_mpi_starts() {
        let step = |more: &'static [(&str, &str)]| {
            move |name: &str| {
                let all = [("SLURM_STEP_NUM_TASKS", "4")].into_iter().chain(more.iter().copied());
                all.clone().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned())
            }
        };
        let error = unrelated_copies(&step(&[("SLURM_MPI_TYPE", "none")])).expect_err("alone");
        assert_eq!(error.exit_code(), 2);
        let text = error.to_string();
        assert!(text.contains("srun started 4 copies") && text.contains("(--mpi=none)"), "{text}");
        for joined in [&[("PMIX_RANK", "0")], &[("PMI_FD", "9")], &[("OMPI_COMM_WORLD_SIZE", "4")]] {
            assert!(unrelated_copies(&step(joined)).is_ok(), "{joined:?}");
        }
        assert!(unrelated_copies(&|_| None).is_ok());
    }
}
