//! What the system says of a process in `/proc/PID/stat`.

/// A process as the system sees it (proc_pid_stat(5)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStat {
    /// Its state: a letter.
    pub state: char,
    /// The process that started it, or took it over.
    pub parent: u32,
    /// Flags of the kernel (`PF_*`).
    pub flags: u64,
    /// When it started, in clock ticks since boot: together with its number this identifies a process.
    pub start: u64,
}

impl ProcessStat {
    /// That of a process of this host; none if it is gone.
    pub fn of(pid: u32) -> Option<ProcessStat> {
        parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether only its exit code is left of it.
    pub fn is_zombie(self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether a signal or a debugger has stopped it.
    pub fn is_stopped(self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Fields 3, 4, 9 and 22, after the name in parentheses.
fn parse(text: &str) -> Option<ProcessStat> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    let flags = fields.nth(4)?.parse().ok()?;
    Some(ProcessStat { state, parent, flags, start: fields.nth(12)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_whatever_the_program_is_called() {
        let rest = "T 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23";
        let expected = ProcessStat { state: 'T', parent: 4, flags: 9, start: 22 };
        assert_eq!(parse(&format!("1 (a) b) {rest}")), Some(expected));
        assert_eq!(parse("1 (a) T 4"), None);
    }

    #[test]
    fn this_process_runs_and_has_a_parent() {
        let own = ProcessStat::of(std::process::id()).expect("it is there");
        assert!(own.parent > 0 && !own.is_zombie() && !own.is_stopped());
        assert_eq!(ProcessStat::of(u32::MAX), None);
    }
}
