//! The queues between streams and device. There are more streams than queues: work of streams that share one runs in
//! the order in which it was enqueued, one piece after the other, which is the weakest guarantee of the driver.

use crate::answer::lost;
use crate::stream::LOOK_AGAIN;
use std::sync::{Condvar, LazyLock, Mutex};

/// The default number of queues, and the maximum.
const USUAL: usize = 8;
const MOST: usize = 32;

static CONNECTIONS: LazyLock<Vec<Connection>> = LazyLock::new(|| {
    let asked = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").ok().and_then(|text| text.trim().parse().ok());
    (0..asked.unwrap_or(USUAL).clamp(1, MOST)).map(|_| Connection::default()).collect()
});

#[derive(Default)]
pub struct Connection {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    streams: usize,
    given: u64,
    done: u64,
}

impl Connection {
    /// That with the fewest streams, which has one more from now on.
    pub fn take() -> &'static Connection {
        static TAKING: Mutex<()> = Mutex::new(());
        let _taking = TAKING.lock().unwrap();
        let fewest = CONNECTIONS.iter().min_by_key(|one| one.state.lock().unwrap().streams).expect("at least one");
        fewest.state.lock().unwrap().streams += 1;
        fewest
    }

    pub fn give_back(&self) {
        self.state.lock().unwrap().streams -= 1;
    }

    /// The place of a piece of work in the queue.
    pub fn place(&self) -> u64 {
        let mut state = self.state.lock().unwrap();
        state.given += 1;
        state.given - 1
    }

    /// Does it when all before it is done.
    pub fn in_turn(&self, place: u64, work: impl FnOnce()) {
        let mut state = self.state.lock().unwrap();
        while state.done < place && lost().is_none() {
            state = self.changed.wait_timeout(state, LOOK_AGAIN).unwrap().0;
        }
        drop(state);
        work();
        self.state.lock().unwrap().done = place + 1;
        self.changed.notify_all();
    }
}
