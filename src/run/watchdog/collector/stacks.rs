//! The stacks of the ranks that hold the others up, looked at on their hosts before they are ended: whether a rank that does
//! not come spins in its own code, waits in a library, or in a driver.

use super::super::message::print_message;
use super::super::wire::{Frame, PeerKind};
use super::serve::Serving;
use super::stack;
use super::stage::{Outcome, Stage};
use super::table::RankStatus;
use commgauge_base::output_file::write_own;
use commgauge_base::rank_list;
use commgauge_base::visible::visible;
use commgauge_model::record::hang_line::{HangLine, HangReason, HangState, RankPlace};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// How long the stacks of all ranks together may take.
pub(super) const STACKS_TIMEOUT: Duration = Duration::from_secs(4);
/// A host that looks at a stack ends so long before that.
const MARGIN: Duration = Duration::from_millis(500);
/// Ranks whose stack is looked at.
const MAX_STACKS: usize = 4;

impl Serving {
    /// Has the hosts of the suspects look at their stacks; returns the ranks.
    pub(super) fn ask_for_stacks(&mut self, outcome: &Outcome) -> Vec<u32> {
        let wanted = outcome.line.as_deref().map_or_else(Vec::new, |line| self.of_interest(line));
        let (here, elsewhere): (Vec<u32>, Vec<u32>) = wanted
            .iter()
            .copied()
            .partition(|rank| self.table.get_mut(*rank).is_some_and(|entry| entry.process.is_here()));
        self.look_at_stacks(&here);
        for rank in elsewhere {
            let host = self.config.node_of_rank.get(rank as usize).copied();
            let peer = self.peers.iter_mut().find(|peer| peer.peer_kind == host.map(PeerKind::Host));
            peer.map(|peer| peer.connection.queue(&Frame::ShowStack(rank)));
        }
        wanted
    }

    /// The suspects of a hang that have a process which is not stopped; where nobody stands out, some of those inside. A stopped one
    /// is left alone, because a tool may wake it.
    fn of_interest(&mut self, line: &HangLine) -> Vec<u32> {
        if line.reason == HangReason::Death || !line.unreachable_hosts.is_empty() {
            return Vec::new();
        }
        let inside = line.ranks.iter().find(|of| of.state == HangState::EnteredNotFinished);
        let list = match line.suspects.as_str() {
            "" => inside.map_or("", |of| of.ranks.as_str()),
            suspects => suspects,
        };
        let is_at_work = |rank: &u32| {
            self.table.get_mut(*rank).is_some_and(|entry| entry.status == RankStatus::Live && !entry.state.stopped)
        };
        rank_list::parse(list).filter(is_at_work).take(MAX_STACKS).collect()
    }

    /// Looks at the stacks of ranks of this host, in a thread of its own.
    pub(super) fn look_at_stacks(&mut self, ranks: &[u32]) {
        let pid_of = |rank: &u32| Some(self.table.get_mut(*rank)?.process.pid).filter(|pid| *pid != 0);
        let ranks: Vec<u32> = ranks.to_vec();
        let pids: Vec<u32> = ranks.iter().filter_map(pid_of).collect();
        if pids.is_empty() || pids.len() < ranks.len() {
            return;
        }
        let (sender, deadline) = (self.stacks.sender.clone(), Instant::now() + STACKS_TIMEOUT - MARGIN);
        std::thread::spawn(move || {
            for (rank, stack) in ranks.into_iter().zip(stack::functions_of(&pids, deadline)) {
                // The receiver lives as long as the process.
                let _ = sender.send((rank, stack.unwrap_or_else(|problem| format!("not known: {problem}"))));
            }
        });
    }

    /// Keeps the stacks that were found on this host, or hands them to the collector that asked.
    pub(super) fn pass_stacks_on(&mut self) {
        while let Ok((rank, text)) = self.stacks.waiting.try_recv() {
            self.send_up(&Frame::Stack(rank, text.clone()));
            self.stacks.keep(rank, text);
        }
    }

    /// Adds the stacks to the report, where there are any, and begins to end the run.
    pub(super) fn report_stacks(&mut self, now: Instant) {
        if !matches!(self.stage, Stage::Stacks { .. }) {
            return;
        }
        let before = std::mem::replace(&mut self.stage, Stage::Watching);
        let Stage::Stacks { mut outcome, wanted, report, .. } = before else { return };
        let mut text = String::new();
        for rank in wanted {
            let Some(stack) = self.stacks.found.remove(&rank) else { continue };
            let _ = writeln!(text, "  stack of rank {rank}: {}", visible(&stack));
            let host = self.host_of(rank);
            if let Some(line) = &mut outcome.line {
                note(&mut line.places, rank, host, stack);
            }
        }
        if !text.is_empty() {
            let whole = format!("{report}\nFunctions of the measuring thread, innermost first\n{text}");
            if let Err(cause) = write_own(&self.report_path(), whole.as_bytes()) {
                let _ = writeln!(text, "  the stacks could not be added to the report: {cause}");
            }
            self.print_behind(format!("where it is, innermost function first\n{}", text.trim_end()));
        }
        self.begin_ending(outcome, now);
    }

    fn host_of(&self, rank: u32) -> String {
        let node = self.config.node_of_rank.get(rank as usize).copied().unwrap_or(0);
        self.config.hosts.get(node as usize).cloned().unwrap_or_else(|| "?".to_owned())
    }

    /// Prints behind what is being printed.
    fn print_behind(&mut self, text: String) {
        let before = self.printing.take();
        self.printing = Some(std::thread::spawn(move || {
            // A thread that could not print has said all that it can.
            let _ = before.map(std::thread::JoinHandle::join);
            print_message(&text);
        }));
    }
}

fn note(places: &mut Vec<RankPlace>, rank: u32, host: String, stack: String) {
    match places.iter_mut().find(|place| place.rank == rank) {
        Some(place) => place.stack = Some(stack),
        None => places.push(RankPlace { rank, host, device: None, stack: Some(stack) }),
    }
}
