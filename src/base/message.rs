//! Messages on standard error that never panic: the reader of a pipe may be gone (`2>&1 | head -1`), a disk full.
//!
//! What follows from it is up to the program: `commgauge run` ends its launch, everything else goes on in silence.
//! Control characters of names from elsewhere are written out, so that no file or host acts on the reader's terminal.

use crate::visible::visible_lines;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt::Arguments;
use std::io::Write;

pub use crate::eprintln;

/// Prints a line on standard error with one write, so that lines of several ranks do not mix. Called by [`eprintln!`].
pub fn print_line(text: Arguments<'_>) {
    let line = format!("{}\n", visible_lines(&text.to_string()));
    // There is nobody to tell.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

/// Whether standard error is a pipe whose reader is gone.
pub fn is_unread() -> bool {
    let stderr = std::io::stderr();
    let mut asked = [PollFd::new(&stderr, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // A terminal that hung up says so as well; its signal decides what follows.
    poll(&mut asked, Some(&at_once)).is_ok()
        && asked[0].revents().contains(PollFlags::ERR)
        && !asked[0].revents().contains(PollFlags::HUP)
}

/// As that of the standard library, which panics where standard error is closed.
#[macro_export]
macro_rules! eprintln {
    ($($text:tt)*) => {
        $crate::message::print_line(::std::format_args!($($text)*))
    };
}
