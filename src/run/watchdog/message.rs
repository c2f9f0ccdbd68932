//! Messages of a watchdog to whoever looks.

use std::io::Write;

/// Prints to standard error, which may be closed already.
pub(super) fn print_message(text: &str) {
    let _ = writeln!(std::io::stderr(), "commgauge: {text}");
}
