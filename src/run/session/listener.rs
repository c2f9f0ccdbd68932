//! Callback for every line of the record as it is written, for example for a table that shows finished rows.

use commgauge_model::record::Line;
use std::fmt;
use std::sync::{Arc, Mutex};

type LineCallback = dyn FnMut(&Line) + Send;

/// Receives the lines of process 0, between cases; empty by default.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Mutex<LineCallback>>>);

impl Listener {
    /// Calls `callback` with every line after it is written to the record.
    pub fn new(notify: impl FnMut(&Line) + Send + 'static) -> Listener {
        Listener(Some(Arc::new(Mutex::new(notify))))
    }

    pub(super) fn notify(&self, line: &Line) {
        // A callback that has panicked is not called again.
        if let Some(Ok(mut notify)) = self.0.as_ref().map(|notify| notify.lock()) {
            notify(line);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "Listener without callback" })
    }
}
