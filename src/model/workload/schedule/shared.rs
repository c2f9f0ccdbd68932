//! Schedules that many steps have in common: a search over layouts asks for few of them, thousands of times.

use super::event_lists::Schedule;
use super::kind::ScheduleKind;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Passes of all kept schedules together, of 12 bytes each; beyond that they are forgotten, and built again where they are asked for.
const MOST_PASSES: usize = 4_000_000;

/// Kind, stages, virtual stages and micro-batches: what a schedule depends on.
type Key = (ScheduleKind, u32, u32, u32);

#[derive(Default)]
struct Built {
    schedules: HashMap<Key, Arc<Schedule>>,
    passes: usize,
}

static BUILT: LazyLock<Mutex<Built>> = LazyLock::new(Mutex::default);

impl Schedule {
    /// As [`Schedule::new`], built once in a process.
    ///
    /// # Errors
    /// The rule that is broken.
    pub fn shared(
        kind: ScheduleKind,
        stages: u32,
        virtual_stages: u32,
        micro_batches: u32,
    ) -> Result<Arc<Schedule>, String> {
        let key = (kind, stages, virtual_stages, micro_batches);
        let built = || BUILT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = built().schedules.get(&key) {
            return Ok(Arc::clone(known));
        }
        let schedule = Arc::new(Schedule::new(kind, stages, virtual_stages, micro_batches)?);
        let passes: usize = (0..stages).map(|rank| schedule.events(rank).len()).sum();
        let mut built = built();
        if built.passes + passes > MOST_PASSES {
            *built = Built::default();
        }
        if built.schedules.insert(key, Arc::clone(&schedule)).is_none() {
            built.passes += passes;
        }
        Ok(schedule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_built_once_and_a_broken_rule_is_named_each_time() {
        let ask = || Schedule::shared(ScheduleKind::ZbH1, 3, 1, 7).unwrap();
        assert!(Arc::ptr_eq(&ask(), &ask()));
        assert_eq!(*ask(), Schedule::new(ScheduleKind::ZbH1, 3, 1, 7).unwrap());
        for _ in 0..2 {
            assert!(Schedule::shared(ScheduleKind::Interleaved, 4, 2, 7).is_err());
        }
    }
}
