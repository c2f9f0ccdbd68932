//! Handles of the driver's objects: numbers that can be looked up, so that a stale one is an error and not a crash.

use crate::answer::INVALID_HANDLE;
use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, RwLock};

/// Objects of one kind by their handles.
pub struct Handles<T>(LazyLock<RwLock<HashMap<usize, Arc<T>>>>);

/// Handles are unlike addresses and unlike one another, whatever they name.
static NEXT: AtomicUsize = AtomicUsize::new(0x1000);

impl<T> Handles<T> {
    pub const fn new() -> Handles<T> {
        Handles(LazyLock::new(Default::default))
    }

    pub fn add(&self, object: Arc<T>) -> usize {
        let handle = NEXT.fetch_add(0x10, Ordering::Relaxed);
        self.0.write().unwrap().insert(handle, object);
        handle
    }

    pub fn get(&self, handle: usize) -> Result<Arc<T>, c_int> {
        self.0.read().unwrap().get(&handle).cloned().ok_or(INVALID_HANDLE)
    }

    pub fn remove(&self, handle: usize) -> Result<Arc<T>, c_int> {
        self.0.write().unwrap().remove(&handle).ok_or(INVALID_HANDLE)
    }

    pub fn all(&self) -> Vec<Arc<T>> {
        self.0.read().unwrap().values().cloned().collect()
    }
}
