//! What the measuring thread of this process does, according to the operating system.

use commgauge_base::host_clock;

/// CPU time of the measuring thread when its progress was first seen to stop.
pub(super) struct MainThread {
    ticks: u64,
    at_nanoseconds: u64,
}

impl MainThread {
    pub(super) fn now() -> MainThread {
        MainThread { ticks: read_stat().map_or(0, |stat| stat.1), at_nanoseconds: host_clock::now_nanoseconds() }
    }

    /// Whether it has slept since then, and a description of its activity.
    pub(super) fn since(&self) -> (bool, String) {
        let Some((state, ticks)) = read_stat() else { return (false, "its thread cannot be seen".to_owned()) };
        let elapsed = host_clock::now_nanoseconds().saturating_sub(self.at_nanoseconds).max(1) as f64;
        // The kernel counts in hundredths of a second.
        let busy = (ticks.saturating_sub(self.ticks) as f64 * 1e7 / elapsed * 100.0).min(100.0);
        let place = place_in_kernel();
        let words = match state {
            'D' => format!("its thread waits inside the kernel (state D){place}, {busy:.0} % busy"),
            'S' => format!("its thread sleeps{place}, {busy:.0} % busy"),
            'R' => format!("its thread runs, {busy:.0} % busy"),
            other => format!("its thread is in state {other}, {busy:.0} % busy"),
        };
        (matches!(state, 'S' | 'D') && busy < 5.0, words)
    }
}

/// State and CPU ticks of the main thread of this process.
fn read_stat() -> Option<(char, u64)> {
    let pid = std::process::id();
    parse_stat(&std::fs::read_to_string(format!("/proc/self/task/{pid}/stat")).ok()?)
}

/// Where the main thread of this process waits in the kernel, as ` in system call 230 (hrtimer_nanosleep)`; nothing where it runs, and
/// where the system does not tell.
fn place_in_kernel() -> String {
    let pid = std::process::id();
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/task/{pid}/{file}")).unwrap_or_default();
    describe_place(&read("syscall"), &read("wchan"))
}

/// From `/proc/PID/syscall`, which begins with the number of the call, and `/proc/PID/wchan`, the function of the kernel or 0.
fn describe_place(call: &str, function: &str) -> String {
    let number = call.split_ascii_whitespace().next().and_then(|word| word.parse::<u32>().ok());
    let is_name = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
    let function = Some(function.trim()).filter(|name| !matches!(*name, "" | "0") && name.len() < 100).filter(is_name);
    match (number, function) {
        (Some(number), Some(function)) => format!(" in system call {number} ({function})"),
        (Some(number), None) => format!(" in system call {number}"),
        (None, Some(function)) => format!(" in the kernel's {function}"),
        (None, None) => String::new(),
    }
}

/// The program name is in parentheses, and may contain any character.
fn parse_stat(text: &str) -> Option<(char, u64)> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let mut ticks = fields.skip(10).map_while(|field| field.parse::<u64>().ok());
    Some((state, ticks.next()? + ticks.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_ticks_are_read_behind_whatever_the_program_is_called() {
        let rest = "R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15";
        for name in ["(a)", "(a b)", "(a) b) R )"] {
            assert_eq!(parse_stat(&format!("7 {name} {rest}")), Some(('R', 23)), "{name}");
        }
        assert_eq!(parse_stat("7 (a) R 1"), None);
        assert_eq!(parse_stat(""), None);
        assert!(read_stat().is_some());
    }

    #[test]
    fn the_place_in_the_kernel_is_as_precise_as_the_system_tells() {
        for (call, function, place) in [
            (
                "230 0x0 0x0 0x7ffd 0x7ffd 0x0 0x0 0x7ffd 0x7f04\n",
                "hrtimer_nanosleep",
                " in system call 230 (hrtimer_nanosleep)",
            ),
            ("230 0x0\n", "0", " in system call 230"),
            ("-1 0x7ffd 0x7f04\n", "do_exit", " in the kernel's do_exit"),
            ("running\n", "0", ""),
            ("", "", ""),
            ("", "a\nb", ""),
        ] {
            assert_eq!(describe_place(call, function), place);
        }
    }
}
