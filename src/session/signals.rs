//! Signals that ask a run to stop: noticed between batches, agreed on between cases.

use crate::error::{Error, Result};
use crate::world::{Located, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What was raised in this process.
#[derive(Clone, Debug, Default)]
pub struct Signals {
    raised: Arc<AtomicBool>,
    number: Arc<AtomicUsize>,
}

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGUSR1 from now on: the first asks to stop, so that what was measured is kept in order.
    ///
    /// SIGUSR1 counts as SIGTERM: it is the one that srun hands on, and that schedulers send before the time is over.
    ///
    /// # Errors
    /// Where the system refuses the handlers.
    pub fn catch() -> Result<Signals> {
        use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
        let signals = Signals::default();
        for (signal, counts_as) in [(SIGINT, SIGINT), (SIGTERM, SIGTERM), (SIGUSR1, SIGTERM)] {
            signal_hook::flag::register(signal, Arc::clone(&signals.raised))
                .and_then(|_| {
                    signal_hook::flag::register_usize(signal, Arc::clone(&signals.number), counts_as as usize)
                })
                .map_err(|cause| Error::environment(format!("cannot catch signal {signal}: {cause}")))?;
        }
        Ok(signals)
    }

    /// The flag that ends sampling early.
    pub fn raised(&self) -> &AtomicBool {
        &self.raised
    }

    /// The number of the signal that reached this process, or 0, for whoever watches over it.
    pub fn number(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.number)
    }

    /// The signal that reached any process, or 0; the same everywhere.
    pub(super) fn agreed(&self, world: &dyn World) -> Result<i32> {
        let mine = self.number.load(Ordering::Relaxed) as f64;
        let mut highest = [Located { value: mine, rank: world.process() as i32 }];
        world.all_max(&mut highest)?;
        Ok(highest[0].value as i32)
    }
}
