//! Launches whose times count wait until no other launch of the tests is in progress, in whatever test program.

use std::cell::Cell;
use std::fs::File;
use std::marker::PhantomData;
use std::path::Path;

/// Locks out other launches of the tests, or those that must run alone, until it is dropped.
pub struct Launches {
    _lock: File,
    /// What a test has is counted by thread.
    _stays_on_its_thread: PhantomData<*const ()>,
}

thread_local! {
    /// The locks that this test has.
    static TAKEN: Cell<u32> = const { Cell::new(0) };
}

/// Locks out other launches of the tests for as long as the value exists: ranks that share their cores measure
/// nothing.
///
/// [`super::Ran::alone`] takes the lock itself, so a caller that has it must release it first.
pub fn alone() -> Launches {
    let _turn = turn();
    let lock = opened("launches.lock");
    lock.lock().expect("the folder of the tests has locks");
    Launches::of(lock)
}

/// Locks out only tests that must run [`alone`]: for launches whose times do not count.
pub fn concurrent() -> Launches {
    // A test that waits to be alone has the turn, so that overlapping launches do not block it forever. It also waits for the lock that
    // this test has, if any.
    if TAKEN.get() == 0 {
        drop(turn());
    }
    let lock = opened("launches.lock");
    lock.lock_shared().expect("the folder of the tests has locks");
    Launches::of(lock)
}

fn turn() -> File {
    let turn = opened("turn.lock");
    turn.lock().expect("the folder of the tests has locks");
    turn
}

fn opened(name: &str) -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    File::create(path).expect("the folder of the tests is writable")
}

impl Launches {
    fn of(lock: File) -> Launches {
        TAKEN.set(TAKEN.get() + 1);
        Launches { _lock: lock, _stays_on_its_thread: PhantomData }
    }
}

impl Drop for Launches {
    fn drop(&mut self) {
        TAKEN.set(TAKEN.get() - 1);
    }
}
