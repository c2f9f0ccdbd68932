//! Whether a rank was asked to end before it was killed: a launcher that ends the others after a death asks them first.
//!
//! The rank's own report comes too late if it gets no processor, so the mark is kept where the system shows it even for a dying process:
//! until it is handled the signal is pending, in its handler it is blocked, and after that it is ignored.

use signal_hook::consts::SIGTERM;

/// Bit of SIGTERM in a signal mask, whose lowest bit is signal 1.
const TERM: u64 = 1 << (SIGTERM - 1);

/// Makes this process ignore every SIGTERM after the first. Must be called after other handlers of it are installed, which then see the
/// first.
///
/// # Errors
/// If the handler cannot be installed.
pub fn keep_mark_when_asked_to_end() -> std::io::Result<()> {
    let ignore_further_ones = || {
        // SAFETY: signal(2) may be called in a handler (signal-safety(7)), and a second SIGTERM means nothing that the first did not.
        unsafe { libc::signal(SIGTERM, libc::SIG_IGN) };
    };
    // SAFETY: the action only makes a call that is safe in a handler.
    unsafe { signal_hook::low_level::register(SIGTERM, ignore_further_ones) }.map(drop)
}

/// Whether a process was asked to end, from its `/proc/PID/status` (proc_pid_status(5)). It shows the main thread, which the system prefers
/// for a signal and which blocks none itself.
pub(super) fn was_asked_to_end(status: &str) -> bool {
    ["SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:"].iter().any(|mask| signals(status, mask) & TERM != 0)
}

/// A mask of signals by its name; empty if missing.
pub(super) fn signals(status: &str, name: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix(name));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_waits_or_was_handled_shows_in_the_masks_of_a_process() {
        let none = "Name:\ta\nSigQ:\t5/1\nSigPnd:\t0000000000000100\nShdPnd:\t0\nSigBlk:\t2000\nSigIgn:\t1000\nSigCgt:\t4000\n";
        assert!(!was_asked_to_end(none) && !was_asked_to_end(""));
        for (before, after) in [
            ("SigPnd:\t0000000000000100", "SigPnd:\t4100"),
            ("ShdPnd:\t0", "ShdPnd:\t4000"),
            ("SigBlk:\t2000", "SigBlk:\t6000"),
            ("SigIgn:\t1000", "SigIgn:\t5000"),
        ] {
            assert!(was_asked_to_end(&none.replace(before, after)), "{after}");
        }
        assert_eq!(signals(none, "SigPnd:"), 0x100);
    }
}
