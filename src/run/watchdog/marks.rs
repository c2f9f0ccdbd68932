//! Distinguishes the processes of a launch and their messages from others: variables, phrases, and a secret.

use commgauge_base::writing::eprintln;

/// Set in the environment of a collector process, to the marker of the launch if there is one.
pub const COLLECTOR_VARIABLE: &str = "COMMGAUGE_COLLECTOR";

/// Marks every process of a launch in its environment, except for the collectors.
pub const LAUNCH_MARK: &str = "COMMGAUGE_LAUNCH";

/// Phrase printed by a rank that lost its collector; a reader of its output recognises it.
pub const LOST_COLLECTOR: &str = ": the watchdog of this host ";

/// Phrase printed by a rank that ends the launch because no other process will.
pub const OWN_DEADLINE: &str = " ends the launch by its own deadline";

pub const TOKEN_BYTES: usize = 32;
/// The secret that keeps out unknown peers and other runs.
pub type Token = [u8; TOKEN_BYTES];

/// Prints to standard error, which may be closed already.
pub(super) fn print_message(text: &str) {
    eprintln!("commgauge: {text}");
}
