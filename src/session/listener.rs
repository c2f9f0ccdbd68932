//! Whoever wants to hear every line of the record as it is written, such as a table that shows rows as they are done.

use crate::record::Line;
use std::fmt;
use std::sync::{Arc, Mutex};

type Hear = dyn FnMut(&Line) + Send;

/// Hears the lines of process 0, between the cases; nobody by default.
#[derive(Clone, Default)]
pub struct Listener(Option<Arc<Mutex<Hear>>>);

impl Listener {
    /// Hands every line over as soon as it is in the record.
    pub fn new(hear: impl FnMut(&Line) + Send + 'static) -> Listener {
        Listener(Some(Arc::new(Mutex::new(hear))))
    }

    pub(super) fn hear(&self, line: &Line) {
        // One that panicked before hears no more.
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
