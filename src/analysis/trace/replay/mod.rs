//! A trace as what its ranks did, to be replayed: every call in order, and the computing between and beside them.
//!
//! A replay is of the whole job: a trace of some ranks, with calls of unknown kinds or on groups that nothing says is refused.

mod groups;
mod order;
#[cfg(test)]
mod tests;

use super::call::CallKind;
use super::read::Trace;
use super::trace_file::TracedCall;
use commgauge_base::collective::Collective;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::rank_list::ranges;
use commgauge_model::layout::{Groups, Layout};
use commgauge_model::workload::replay::{RecordedCall, RecordedKind, RecordedRank, ReplayPlan};
use groups::{CallPlace, CallPlaces};

/// What the ranks of a trace did.
#[derive(Clone, Debug, PartialEq)]
pub struct TracedReplay {
    /// The groups of every axis that any rank uses.
    pub groups: Vec<Groups>,
    /// What each rank did.
    pub ranks: Vec<RecordedRank>,
    /// From a rank's first call to the end of its last, on the rank that took longest; absent where the trace has no times.
    pub job_nanoseconds: Option<u64>,
    /// What of the trace the replay leaves out.
    pub notes: Vec<String>,
}

impl TracedReplay {
    /// What the ranks did, on a launch of `world` ranks.
    ///
    /// # Errors
    /// A trace that is not of all ranks of such a launch, with calls that are not known, or that says too little of them.
    pub fn new(trace: &Trace, layout: Option<&Layout>, world: u32) -> Result<TracedReplay> {
        ensure_whole(trace, world)?;
        let places = CallPlaces::new(trace, layout)?;
        let mut calls_of: Vec<Vec<&TracedCall>> = vec![Vec::new(); world as usize];
        let mut idle = 0_u64;
        for call in &trace.calls {
            if places.is_alone(call.group) || is_empty(call) {
                idle += 1;
                continue;
            }
            calls_of[call.rank as usize].push(call);
        }
        let mut replay = TracedReplay {
            groups: places.groups().to_vec(),
            ranks: Vec::with_capacity(world as usize),
            job_nanoseconds: None,
            notes: trace.notes.clone(),
        };
        let mut without_times = Vec::new();
        for (rank, calls) in (0u32..).zip(&mut calls_of) {
            let ordered = order::of(calls, trace.computing.get(&rank).map_or(&[], Vec::as_slice));
            let recorded = calls.iter().map(|call| recorded(call, &places)).collect::<Result<_>>()?;
            if ordered.span_nanoseconds.is_none() {
                without_times.push(rank);
            }
            replay.job_nanoseconds = replay.job_nanoseconds.max(ordered.span_nanoseconds);
            replay.ranks.push(RecordedRank { calls: recorded, actions: ordered.actions });
        }
        if replay.ranks.iter().all(|rank| rank.calls.is_empty()) {
            return Err(Error::usage("the trace has no call between ranks; there is nothing to be replayed"));
        }
        if idle > 0 {
            replay.notes.push(format!("{idle} calls of one rank alone or of no bytes are not replayed"));
        }
        if !without_times.is_empty() {
            let ranks = ranges(&without_times);
            replay.notes.push(format!(
                "the trace does not say how long the calls of ranks {ranks} took: they are replayed in order, without computing between them"
            ));
        }
        Ok(replay)
    }

    /// The plan of it, with the programs of the ranks that this process plays.
    ///
    /// # Errors
    /// Calls that do not fit together, and those that cannot be carried out.
    pub fn plan(&self, plays: impl Fn(u32) -> bool) -> Result<ReplayPlan> {
        let plan = ReplayPlan::of_recorded(self.groups.clone(), &self.ranks, plays)?;
        Ok(ReplayPlan { job_nanoseconds: self.job_nanoseconds, ..plan })
    }
}

/// Whether the trace is of all ranks of the launch, and every call in it is known.
fn ensure_whole(trace: &Trace, world: u32) -> Result<()> {
    let ranks_of_job = trace.world.or(trace.ranks.last().map(|last| last + 1)).unwrap_or(0);
    if ranks_of_job != world {
        return Err(Error::usage(format!(
            "--trace: the job had {ranks_of_job} ranks, and this launch has {world}; accepted: a launch of {ranks_of_job} ranks"
        )));
    }
    let missing: Vec<u32> = (0..world).filter(|rank| !trace.ranks.contains(rank)).collect();
    if !missing.is_empty() {
        return Err(Error::usage(format!(
            "--trace: of {world} ranks {} are not in the files: {}; accepted: a file of every rank",
            missing.len(),
            ranges(&missing)
        )));
    }
    if let Some((name, count)) = trace.unknown.first_key_value() {
        let all: u64 = trace.unknown.values().sum();
        return Err(Error::usage(format!(
            "--trace: {all} calls are of a kind that is not known, such as {name} ({count} times); without them it would be another job. \
             Accepted: collectives and messages of PyTorch and NCCL"
        )));
    }
    Ok(())
}

/// Whether a call moves nothing and waits for nobody.
fn is_empty(call: &TracedCall) -> bool {
    call.bytes_total.0 == 0
        && call.kind != CallKind::Collective(Collective::Barrier)
        && call.detail.elements_to_each.is_none()
}

fn recorded(call: &TracedCall, places: &CallPlaces) -> Result<RecordedCall> {
    let CallPlace { groups, peers } = places.of(call.group, call.rank)?;
    let untyped = || {
        Error::usage(format!(
            "--trace: the trace does not say the type of {} of {} on rank {}; accepted: traces of PyTorch or NCCL's log",
            call.kind, call.bytes_total, call.rank
        ))
    };
    let peer = || {
        peers.of(call.detail.peer).ok_or_else(|| {
            Error::usage(format!(
                "--trace: the trace does not say the other end of {} of {} on rank {}, whose group has more than two ranks",
                call.kind, call.bytes_total, call.rank
            ))
        })
    };
    let kind = match call.kind {
        CallKind::Collective(collective) => RecordedKind::Together(collective),
        CallKind::Send => RecordedKind::Send { to: peer()? },
        CallKind::Receive => RecordedKind::Receive { from: peer()? },
    };
    let element = match (call.element, kind) {
        (Some(element), _) => element,
        (None, RecordedKind::Together(Collective::Barrier)) => ElementType::Uint8,
        (None, _) => return Err(untyped()),
    };
    Ok(RecordedCall {
        groups,
        kind,
        element,
        bytes_total: call.bytes_total,
        elements_to_each: call.detail.elements_to_each.as_ref().map(|counts| peers.in_order(counts)),
        sequence: call.detail.sequence,
    })
}
