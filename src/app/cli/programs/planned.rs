//! What a launched program measures by its flags: for the program itself, and for `commgauge run` before it starts one.

use super::super::backend_name::Backend;
use super::super::suite::SuiteWork;
use super::work::Work;
use commgauge_base::error::{Error, Result};
use commgauge_model::layout::Nodes;
use commgauge_run::session::{AfterPlan, ReplaySource};

/// The work to be measured.
pub struct PlannedWork {
    /// The cases, in every variant that the flags ask for.
    pub work: SuiteWork,
    /// What is measured after them.
    pub after_plan: AfterPlan,
}

/// The work on these nodes.
///
/// # Errors
/// Usage errors that name the flag or the file.
pub fn planned(program: &impl Work, backend: Backend, nodes: &Nodes) -> Result<PlannedWork> {
    let nccl = &program.launched().nccl;
    let mut work = program.plan_on(nodes)?;
    work.plan = work.plan.in_variants(&nccl.variants())?;
    if backend != Backend::Nccl {
        work.plan.ensure_portable()?;
    }
    let interference = program.interference(nodes.ranks())?;
    if interference.is_some() {
        nccl.check_without_variants("--interfere")?;
    }
    let replay = program.replay(nodes.ranks())?;
    if let Some(replay) = &replay {
        nccl.check_without_variants("--replay")?;
        if backend == Backend::Nccl && matches!(replay.source, ReplaySource::Trace(_)) {
            return Err(Error::usage("--trace: a trace is replayed on host memory; accepted: --backend mpi"));
        }
    }
    Ok(PlannedWork { work, after_plan: AfterPlan { interference, replay } })
}
