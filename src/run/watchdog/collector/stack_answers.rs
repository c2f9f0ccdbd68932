//! The stacks of ranks that a collector has heard of so far. Who asks for them, and what follows, is in `stacks`.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The stacks that are known so far, by rank.
pub(super) struct Stacks {
    pub(super) found: BTreeMap<u32, String>,
    pub(super) sender: Sender<(u32, String)>,
    pub(super) waiting: Receiver<(u32, String)>,
}

impl Default for Stacks {
    fn default() -> Stacks {
        let (sender, waiting) = channel();
        Stacks { found: BTreeMap::new(), sender, waiting }
    }
}

impl Stacks {
    pub(super) fn keep(&mut self, rank: u32, text: String) {
        // A host may speak of its own ranks alone, so that there cannot be more than ranks.
        self.found.insert(rank, text);
    }

    pub(super) fn has_all(&self, wanted: &[u32]) -> bool {
        wanted.iter().all(|rank| self.found.contains_key(rank))
    }
}
