//! Callback for every line of the record as it is written, for example for a table that shows finished rows.

use crate::record::Line;
use std::fmt;
use std::sync::{Arc, Mutex};

type Hear = dyn FnMut(&Line) + Send;

/// Receives the lines of process 0, between cases; empty by default.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Mutex<Hear>>>);

impl Listener {
    /// Calls `callback` with every line after it is written to the record.
    pub fn new(hear: impl FnMut(&Line) + Send + 'static) -> Listener {
        Listener(Some(Arc::new(Mutex::new(hear))))
    }

    pub(super) fn hear(&self, line: &Line) {
        // A callback that has panicked is not called again.
        if let Some(Ok(mut hear)) = self.0.as_ref().map(|hear| hear.lock()) {
            hear(line);
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Listener" } else { "Listener of nobody" })
    }
}
