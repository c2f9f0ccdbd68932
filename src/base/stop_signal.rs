//! The signals that ask a run to stop in order, with what was measured kept.

use rustix::process::Signal;

/// A signal to catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal {
    /// Its number.
    pub number: i32,
    /// The number under which it is reported: schedulers and launchers send SIGUSR1 where they mean SIGTERM.
    pub counts_as: i32,
}

/// SIGINT, SIGTERM and SIGUSR1; SIGHUP and SIGQUIT as well, unless this process was started to ignore them, as by
/// `nohup`.
pub fn stop_signals() -> Vec<StopSignal> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    stop_signals_of(&status)
}

fn stop_signals_of(status: &str) -> Vec<StopSignal> {
    let always = [(Signal::INT, Signal::INT), (Signal::TERM, Signal::TERM), (Signal::USR1, Signal::TERM)];
    let unless_ignored = [Signal::HUP, Signal::QUIT].into_iter().filter(|signal| !is_ignored(*signal, status));
    let all = always.into_iter().chain(unless_ignored.map(|signal| (signal, signal)));
    all.map(|(signal, as_which)| StopSignal { number: signal.as_raw(), counts_as: as_which.as_raw() }).collect()
}

/// From the mask of ignored signals in `/proc/PID/status`, where the lowest bit is signal 1 (proc(5)).
fn is_ignored(signal: Signal, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal.as_raw() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hang_up_stops_a_run_unless_it_was_started_to_ignore_hang_ups() {
        let numbers = |status: &str| stop_signals_of(status).iter().map(|signal| signal.number).collect::<Vec<_>>();
        for (status, expected) in [
            ("", vec![2, 15, 10, 1, 3]),
            ("Name:\tx\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n", vec![2, 15, 10, 1, 3]),
            ("SigIgn:\t0000000000000001\n", vec![2, 15, 10, 3]),
            ("SigIgn:\t0000000000001005\n", vec![2, 15, 10]),
        ] {
            assert_eq!(numbers(status), expected, "{status}");
        }
    }
}
