//! Predicts from a host file on which host each rank will run, as far as possible before the launch.
//!
//! The launcher reads the file itself and decides; this is only for what is shown before the launch.

use commgauge_base::error::{Error, Result};

/// A host of a file.
struct Host {
    name: String,
    /// Its number of slots, where the file gives it.
    slots: Option<u32>,
}

/// The host of every rank, from a file in the form of Open MPI (`host slots=4`), of MPICH (`host:4`), or with a host on
/// each line. Hosts are filled one after the other. Where no host has a number of slots, all take equally many ranks.
///
/// # Errors
/// A usage error that names the line that cannot be parsed, or reports that there is no host.
pub fn hosts_of_ranks(name: &str, text: &str, ranks: u32) -> Result<Vec<String>> {
    let hosts = hosts_of(name, text)?;
    let has_slots = hosts.iter().any(|host| host.slots.is_some());
    let each = if has_slots { 1 } else { ranks.div_ceil(hosts.len() as u32).max(1) };
    let slots = hosts.iter().flat_map(|host| std::iter::repeat_n(&host.name, host.slots.unwrap_or(each) as usize));
    // Ranks beyond the last slot wrap around to the first host.
    Ok(slots.cycle().take(ranks as usize).cloned().collect())
}

/// The slots of all hosts of a file together; none where it gives none.
///
/// # Errors
/// As [`hosts_of_ranks`].
pub fn slots_of_hosts(name: &str, text: &str) -> Result<Option<u32>> {
    let hosts = hosts_of(name, text)?;
    let sum = |sum: u32, host: &Host| sum.saturating_add(host.slots.unwrap_or(1));
    Ok(hosts.iter().any(|host| host.slots.is_some()).then(|| hosts.iter().fold(0, sum)))
}

fn hosts_of(name: &str, text: &str) -> Result<Vec<Host>> {
    let mut hosts: Vec<Host> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let words = line.split('#').next().unwrap_or_default();
        let Some(host) = host_of(words).map_err(|found| refusal(name, index + 1, &found))? else { continue };
        match hosts.iter_mut().find(|known| known.name == host.name) {
            // Each repetition of a host adds one slot, or the number given.
            Some(known) => known.slots = Some(known.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1))),
            None => hosts.push(host),
        }
    }
    if hosts.is_empty() {
        return Err(Error::usage(format!(
            "--hostfile {name}: it names no host; write one on each line, such as `a slots=8`"
        )));
    }
    Ok(hosts)
}

/// The host of a line and its slots; `None` for an empty line. A line that cannot be parsed is returned as the error.
fn host_of(line: &str) -> std::result::Result<Option<Host>, String> {
    let mut words = line.split_whitespace();
    let Some(first) = words.next() else { return Ok(None) };
    let number = |text: &str| match text.parse::<u32>() {
        Ok(slots) if slots > 0 => Ok(slots),
        _ => Err(line.trim().to_owned()),
    };
    // A colon precedes the slots in the form of MPICH; an IPv6 address has several.
    let (host, mut slots) = match first.split_once(':') {
        Some((host, slots)) if !slots.contains(':') => (host, Some(number(slots)?)),
        _ => (first, None),
    };
    if host.is_empty() || host.contains('=') {
        return Err(line.trim().to_owned());
    }
    for word in words {
        if let Some(text) = word.strip_prefix("slots=") {
            slots = Some(number(text)?);
        }
    }
    Ok(Some(Host { name: host.to_owned(), slots }))
}

fn refusal(name: &str, line: usize, found: &str) -> Error {
    // The beginning identifies the line; other files may have lines of megabytes.
    let found: String = found.chars().take(60).collect();
    Error::usage(format!(
        "--hostfile {name}, line {line}: found `{found}`; a line is HOST, HOST slots=RANKS (Open MPI) or HOST:RANKS (MPICH)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(text: &str, ranks: u32) -> String {
        hosts_of_ranks("hosts", text, ranks).expect("hosts").join(" ")
    }

    #[test]
    fn every_launchers_form_is_read() {
        assert_eq!(hosts("a slots=2 max_slots=4\n# spare\nb slots=2 # new\n\n", 4), "a a b b");
        assert_eq!(hosts("a:1\nb:3\n", 4), "a b b b");
        assert_eq!(hosts("a\na\nb\nb\n", 4), "a a b b", "a line for each rank");
        assert_eq!(hosts("a\nb\n", 6), "a a a b b b", "nothing is said: equally many");
        assert_eq!(hosts("fe80::1 slots=1\nfe80::2 slots=1\n", 2), "fe80::1 fe80::2");
    }

    #[test]
    fn slots_are_added_up_where_the_file_gives_any() {
        for (text, expected) in [
            ("a slots=8\nb slots=8\n", Some(16)),
            ("a:8\nb\n", Some(9)),
            ("a\na\nb\n", Some(3)),
            ("a\nb\n", None),
            ("a slots=4294967295\nb slots=2\n", Some(u32::MAX)),
        ] {
            assert_eq!(slots_of_hosts("hosts", text).expect("hosts"), expected, "{text}");
        }
    }

    #[test]
    fn ranks_without_room_start_with_the_first_host_again() {
        assert_eq!(hosts("a slots=1\nb slots=1\n", 3), "a b a");
        assert_eq!(hosts("a slots=8\n", 2), "a a");
    }

    #[test]
    fn lines_without_host_or_number_are_refused() {
        for (text, words) in [
            ("", "it names no host"),
            ("# all down\n", "it names no host"),
            ("a slots=2\nb slots=x\n", "line 2: found `b slots=x`"),
            ("a slots=0\n", "line 1"),
            ("a:many\n", "line 1: found `a:many`"),
            ("slots=4\n", "line 1"),
        ] {
            let error = hosts_of_ranks("hosts", text, 4).expect_err(text);
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(words), "{error}");
        }
    }

    #[test]
    fn a_number_beyond_all_ranks_costs_no_memory() {
        assert_eq!(hosts("a slots=4294967295\nb slots=4294967295\n", 2), "a a");
    }
}
