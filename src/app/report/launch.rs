//! A launch check as text: the facts that all ranks share, the differences, and the messages.

use super::document::{Fields, wrapped};
use super::{visible, wrap};
use commgauge_base::units::Bytes;
use commgauge_run::launch_check::{Difference, HostRow, LaunchReport};

/// Maximum number of hosts listed; if there are more, those that differ from the first one come first.
const SHOWN_HOSTS: usize = 16;

/// Longer values are cut in the table.
const MAX_VALUE_COLUMNS: usize = 44;

/// The complete text, for `--check-launch`.
pub fn launch_check_text(report: &LaunchReport, width: u16) -> String {
    let mut text = summary(report, width);
    text += "\n";
    text += &hosts(report, width);
    if !report.shared.is_empty() {
        text += "\nThe same on all ranks:\n";
        for one in &report.shared {
            text += &item("  ", &format!("{}: {}", one.what, visible(&one.value)), width);
        }
    }
    if !report.differences.is_empty() {
        text += "\nWhere ranks differ:\n";
        text += &differences(&report.differences, width);
    }
    for (heading, sentences) in
        [("Refused, with exit code 7:", &report.refusals), ("Warnings:", &report.warnings), ("Notes:", &report.notes)]
    {
        if !sentences.is_empty() {
            text += &format!("\n{heading}\n");
            sentences.iter().for_each(|sentence| text += &item("  * ", &visible(sentence), width));
        }
    }
    text
}

/// A paragraph with a prefix, whose further lines are indented.
fn item(before: &str, text: &str, width: u16) -> String {
    let room = usize::from(width).saturating_sub(before.len().max(4)).max(20);
    before.to_owned() + &wrap(text, room, 0).replace('\n', &format!("\n{}", " ".repeat(before.len().max(4)))) + "\n"
}

/// The reasons for refusing a launch, for standard error.
pub fn refusal(report: &LaunchReport, width: u16) -> String {
    let mut text = report.refusals.iter().map(|text| visible(text)).collect::<Vec<_>>().join("\n");
    let refused: Vec<Difference> = report.differences.iter().filter(|one| one.refused).cloned().collect();
    if refused.len() > 1 {
        text += "\n\n";
        text += differences(&refused, width).trim_end();
    }
    text
}

fn summary(report: &LaunchReport, width: u16) -> String {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let (ranks, hosts) = (report.ranks, report.hosts.len());
    let launcher = match &report.launcher_says {
        Some(counts) => format!("the launcher reports {counts}"),
        None => "the launcher does not report a number".to_owned(),
    };
    let verdict = match (report.refusals.len(), report.warnings.len()) {
        (0, 0) => "ready to measure".to_owned(),
        (0, warnings) => format!("ready to measure, {warnings} warning{}", plural(warnings)),
        _ => "not ready to measure".to_owned(),
    };
    let counted = format!("{ranks} rank{} on {hosts} host{}", plural(ranks as usize), plural(hosts));
    wrapped(&format!("{counted}; {}: {verdict}", visible(&launcher)), width)
}

fn hosts(report: &LaunchReport, width: u16) -> String {
    let limit = |value: Option<u64>, shown: fn(u64) -> String| value.map_or_else(|| "unlimited".to_owned(), shown);
    let mut all: Vec<_> = report.hosts.iter().collect();
    let few = all.len() <= SHOWN_HOSTS;
    if !few {
        let key = |host: &HostRow| (host.binding.clone(), host.rank_count, host.memory_lock_bytes, host.open_files);
        all.sort_by_key(|host| report.hosts.first().is_some_and(|first| key(first) == key(host)));
    }
    let table = Fields::of(all.into_iter().take(SHOWN_HOSTS))
        .left("host", 0, |host| visible(&host.host))
        .left("ranks", 0, |host| host.ranks.clone())
        .right("processors", 2, |host| host.processors)
        .left("binding", 0, |host| host.binding.clone())
        .right("may lock", 1, |host| limit(host.memory_lock_bytes, |bytes| Bytes(bytes).to_string()))
        .right("open files", 3, |host| limit(host.open_files, |files| files.to_string()))
        .text(width);
    let more = if few { String::new() } else { format!("and {} more hosts\n", report.hosts.len() - SHOWN_HOSTS) };
    table + &more
}

fn differences(differences: &[Difference], width: u16) -> String {
    let shortened = |value: &str| {
        let shown = visible(value);
        match shown.chars().count() {
            length if length > MAX_VALUE_COLUMNS => {
                shown.chars().take(MAX_VALUE_COLUMNS - 3).chain("...".chars()).collect()
            }
            _ => shown,
        }
    };
    let values = differences.iter().flat_map(|one| one.values.iter().zip(0..).map(move |(value, at)| (one, value, at)));
    Fields::of(values)
        .left("what", 0, |(difference, _, at)| if *at == 0 { visible(&difference.what) } else { String::new() })
        .left("value", 0, |(_, value, _)| shortened(&value.value))
        .left("ranks", 0, |(_, value, _)| value.ranks.clone())
        .text(width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use commgauge_run::launch_check::{HostRow, Shared, Value};

    fn report() -> LaunchReport {
        let host = |host: &str, ranks: &str, lock| HostRow {
            host: host.into(),
            ranks: ranks.into(),
            rank_count: 2,
            processors: 2,
            binding: "own cores".into(),
            ranks_share_processors: false,
            memory_lock_bytes: lock,
            open_files: Some(1024),
        };
        let value = |value: &str, ranks: &str| Value { value: value.into(), ranks: ranks.into(), rank_count: 2 };
        LaunchReport {
            ranks: 4,
            launcher_says: Some("4 (OMPI_COMM_WORLD_SIZE)".into()),
            hosts: vec![host("host0", "0, 1", None), host("host1\u{1b}[31m", "2, 3", Some(1 << 16))],
            shared: vec![Shared { what: "MPI library".into(), value: "Open MPI v4.1.4".into() }],
            differences: vec![
                Difference {
                    what: "NCCL_ALGO".into(),
                    refused: true,
                    values: vec![value("Ring", "0, 1"), value("not set", "2, 3")],
                },
                Difference {
                    what: "OMP_NUM_THREADS".into(),
                    refused: true,
                    values: vec![value("1", "0, 1"), value("64", "2, 3")],
                },
            ],
            refusals: vec![
                "the ranks do not have the same NCCL_ALGO: Ring on ranks 0, 1; not set on ranks 2, 3".into(),
            ],
            warnings: vec![
                "less memory may be locked on some hosts than on others, where it is unlimited: 64 KiB on host1".into(),
            ],
            notes: vec!["ranks of host host0 are not bound to cores: all 2 may run on cores 0-3".into()],
            ..LaunchReport::default()
        }
    }

    #[test]
    fn what_differs_is_one_table_and_the_reasons_follow() {
        let shown = launch_check_text(&report(), 80);
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        insta::assert_snapshot!(shown);
    }

    #[test]
    fn a_refusal_begins_with_the_reason_and_shows_the_table_for_several() {
        let text = refusal(&report(), 80);
        assert!(text.starts_with("the ranks do not have the same NCCL_ALGO"), "{text}");
        assert!(text.contains("OMP_NUM_THREADS  1        0, 1"), "{text}");
    }

    #[test]
    fn among_thousands_of_hosts_those_that_differ_are_shown() {
        let mut report = report();
        report.hosts = (0..2048).map(|n| HostRow { host: format!("n{n}"), ..report.hosts[0].clone() }).collect();
        report.hosts[2000].memory_lock_bytes = Some(4096);
        let shown = hosts(&report, 80);
        assert!(shown.contains("n2000") && shown.contains("and 2032 more hosts"), "{shown}");
        assert!(shown.lines().count() < 22);
    }
}
