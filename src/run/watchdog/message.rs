//! Messages of a watchdog to whoever looks.

use commgauge_base::writing::eprintln;

/// Prints to standard error, which may be closed already.
pub(super) fn print_message(text: &str) {
    eprintln!("commgauge: {text}");
}
