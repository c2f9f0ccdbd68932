//! What a communicator has registered by itself for calls in graphs. NCCL withdraws that neither with the graph nor with the next call, but
//! at every eleventh group, if the graph is gone by then (`GROUP_MAX_RECLAIM_STEPS` in its src/group.cc). It knows the memory by its
//! address: if it was freed and something else is there, calls in later graphs read and write the old memory of other ranks.

use std::collections::HashSet;
use std::sync::Mutex;

/// Groups between two looks.
const GROUPS: u32 = 10;

#[derive(Default)]
pub struct GraphRegistrations(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Where allocations begin.
    starts: HashSet<usize>,
    groups: u32,
}

impl GraphRegistrations {
    pub fn add(&self, start: usize) {
        self.0.lock().unwrap().starts.insert(start);
    }

    pub fn has(&self, start: usize) -> bool {
        self.0.lock().unwrap().starts.contains(&start)
    }

    /// A group of calls was made, while graphs are still there or not.
    pub fn note_group(&self, are_graphs_there: bool) {
        let mut kept = self.0.lock().unwrap();
        if kept.groups < GROUPS {
            kept.groups += 1;
            return;
        }
        kept.groups = 0;
        if !are_graphs_there {
            kept.starts.clear();
        }
    }
}
