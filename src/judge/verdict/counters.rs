//! What counters of hosts and readings of devices say about rows and suspects: warnings, limits of the machine file, and why a row may be
//! slow.

use super::Problem;
use super::comparability::LoadedRecord;
use super::document::{Decision, Row};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::{CounterKind, known_counter};
use commgauge_model::record::counters::{CounterBlock, Rises, faults, loads, phrases};
use commgauge_model::record::header::host_of;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

/// Counters that are named for a row, a suspect or a record, those that rose most.
const MOST_NAMED: usize = 3;

/// Fewer retransmissions or congestion marks occur under any load.
const LEAST_RETRIES: u64 = 100;

/// The hosts of a suspect retransmit at least this many times as much as any other.
const MORE_THAN_OTHERS: u64 = 4;

/// Those to name.
fn most(rises: Rises) -> impl Iterator<Item = String> {
    phrases(rises).into_iter().take(MOST_NAMED)
}

/// Counters of ports and GPUs that do not tell what happened, each with its host. Interfaces come and go with containers.
fn lost(loaded: &LoadedRecord) -> impl Iterator<Item = (&String, &String)> {
    let blocks = loaded.record.meanwhile.blocks();
    let all = blocks.flat_map(|block| block.lost.iter().map(move |what| (what, &block.host)));
    all.filter(|(what, _)| what.contains(" port ") || what.contains(" GPU "))
}

/// Whether so much is unusual under load. Lower levels are not in the record.
fn is_notable(counter: &str, by: u64) -> bool {
    by >= LEAST_RETRIES || known_counter(counter).is_some_and(|known| known.kind == CounterKind::Levels)
}

fn of_hosts<'a>(rises: &Rises<'a>, is_wanted: impl Fn(&str) -> bool) -> Rises<'a> {
    rises.iter().filter(|((host, _), _)| is_wanted(host)).map(|(key, by)| (*key, *by)).collect()
}

/// Warnings about errors that were counted while a record was measured, and failures where they exceed a limit of the machine file.
pub(super) fn problems(loaded: &LoadedRecord, machine: Option<&Machine>) -> Vec<Problem> {
    let record = loaded.path.shown();
    let limits = machine.into_iter().flat_map(|machine| &machine.counters);
    let (mut errors, mut retries) = (faults(loaded.record.meanwhile.blocks()), loads(loaded.record.meanwhile.blocks()));
    let said = |(what, host)| {
        let count = counted(lost(loaded).count(), "counter");
        format!("{record}: what happened to {count} is not known; the first: {what} on {host}")
    };
    let mut problems: Vec<Problem> =
        lost(loaded).map(said).take(1).map(|text| Problem { exit_code: 0, text }).collect();
    for (name, limit) in limits {
        let file = machine.map_or_else(String::new, |machine| machine.path.shown().to_string());
        let is_lost = lost(loaded).any(|(what, _)| what.split(' ').next() == Some(name));
        let last = loaded.record.meanwhile.counters.last().filter(|_| !is_lost);
        let was_read = last.is_some_and(|line| line.on_all_hosts.contains(name));
        if !was_read {
            let text = format!(
                "{record}: {name} was not read on every host all the time, and {file} limits it in `[counters]`"
            );
            problems.push(Problem { exit_code: 3, text });
        }
        let mut beyond = Rises::new();
        for known in [&mut errors, &mut retries] {
            let is_limited = |(_, counter): &(&str, &str)| counter.split(' ').next() == Some(name);
            beyond.extend(known.extract_if(.., |key, _| is_limited(key)).filter(|(_, by)| by > limit));
        }
        let found = most(beyond).map(|phrase| Problem {
            exit_code: 1,
            text: format!("{record}: {phrase} while cases were measured, more than {limit} ({file}, `[counters]`)"),
        });
        problems.extend(found);
    }
    let warned = most(errors).map(|phrase| Problem {
        exit_code: 0,
        text: format!("{record}: {phrase} while cases were measured; a limit in `[counters]` of the machine file makes it a failure"),
    });
    problems.extend(warned);
    problems
}

/// Adds to rows that did not pass what counters and devices did while they were measured.
pub(super) fn explain(rows: &mut [Row], records: &[LoadedRecord]) {
    for loaded in records {
        let mut cases: HashMap<&str, u32> = HashMap::new();
        for (case, index) in loaded.record.plan.cases.iter().zip(0..) {
            cases.entry(&case.name).or_insert(index);
        }
        let undecided = |row: &&mut Row| matches!(row.decision, Some(Decision::Fail | Decision::Inconclusive));
        for row in rows.iter_mut().filter(undecided) {
            let Some(case) = cases.get(&*row.name).copied() else { continue };
            let is_during = |block: &&CounterBlock| block.during.iter().any(|(index, _)| *index == case);
            let during = || loaded.record.meanwhile.blocks().filter(is_during);
            let mut often = loads(during());
            often.retain(|(_, counter), by| is_notable(counter, *by));
            let risen = most(faults(during())).chain(most(often));
            row.reasons.extend(risen.map(|phrase| format!("{phrase} during it")));
            row.reasons.extend(device_changes(loaded, case));
        }
    }
}

/// What the devices of ranks did during a case, the most frequent first.
fn device_changes(loaded: &LoadedRecord, case: u32) -> Vec<String> {
    let readings = || loaded.record.meanwhile.device_readings.iter().filter(|readings| readings.case == case);
    let mut times: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    for change in readings().flat_map(|readings| &readings.changes) {
        change.what.split(", ").for_each(|what| *times.entry((change.rank, what)).or_default() += 1);
    }
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by_key(|(_, times)| Reverse(*times));
    let host = |rank: u32| host_of(&loaded.record.header.ranks, rank).unwrap_or("unknown");
    let phrase = |((rank, what), times): ((u32, &str), usize)| {
        format!("the device of rank {rank} on {}: {what}, in {times} of {} replicates", host(rank), readings().count())
    };
    times.into_iter().take(MOST_NAMED).map(phrase).collect()
}

/// What counters of all hosts say, for the hosts of suspects.
pub(super) struct Risen<'a> {
    errors: Rises<'a>,
    retries: Rises<'a>,
}

impl<'a> Risen<'a> {
    pub fn of(records: &'a [LoadedRecord]) -> Risen<'a> {
        let all = || records.iter().flat_map(|loaded| loaded.record.meanwhile.blocks());
        Risen { errors: faults(all()), retries: loads(all()) }
    }

    /// The errors that these hosts counted, and the retransmissions where other hosts have far fewer, as a sentence.
    pub fn on(&self, hosts: &[&str]) -> Option<String> {
        let of_others = of_hosts(&self.retries, |host| !hosts.contains(&host));
        let mut more_often = of_hosts(&self.retries, |host| hosts.contains(&host));
        more_often.retain(|(_, counter), by| {
            let most = of_others.iter().filter(|((_, other), _)| other == counter).map(|(_, by)| *by).max();
            is_notable(counter, *by) && *by >= MORE_THAN_OTHERS * most.unwrap_or(0)
        });
        let errors = of_hosts(&self.errors, |host| hosts.contains(&host));
        let risen: Vec<String> = most(errors).chain(most(more_often)).collect();
        (!risen.is_empty()).then(|| format!("during the run {}", risen.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::gate::{GateRule, gate};
    use super::super::testing::{lines, loaded, machine};
    use super::*;
    use commgauge_model::record::Line;
    use commgauge_model::record::counters::CountersLine;
    use commgauge_model::record::header::{DeviceChange, DeviceReadingsLine};

    const RULE: GateRule = GateRule { confidence: 0.99, allowed: Vec::new() };

    /// A record of one row that takes this long, with these lines before its end.
    fn record(microseconds: f64, added: Vec<Line>) -> LoadedRecord {
        let mut lines = lines("r", &[vec![microseconds; 12]]);
        if let Some(Line::End(end)) = lines.last_mut() {
            end.lines_before = end.lines_before.map(|before| before + added.len() as u64);
        }
        let at = lines.len() - 1;
        lines.splice(at..at, added);
        loaded("r.jsonl", lines)
    }

    fn counted(errors: &[(&str, u64)], retries: &[(&str, u64)]) -> Line {
        let rises = |all: &[(&str, u64)]| all.iter().map(|(name, by)| ((*name).to_owned(), *by)).collect();
        let block = CounterBlock {
            host: "n3".into(),
            during: vec![(0, 1), (0, 2)],
            errors: rises(errors),
            retries: rises(retries),
            ..CounterBlock::default()
        };
        let on_all_hosts = ["symbol_error", "RetransSegs", "xid", "row_remap_pending"].map(String::from).to_vec();
        Line::Counters(Box::new(CountersLine { hosts_read: 2, on_all_hosts, blocks: vec![block] }))
    }

    /// Exit code, problems and the reasons of the row.
    fn judged(record: LoadedRecord, limits: &[(&str, u64)]) -> (i32, String, String) {
        let mut machine = machine("1GB/s");
        machine.counters = limits.iter().map(|(name, limit)| ((*name).to_owned(), *limit)).collect();
        let verdict = gate(&[record], Some(&machine), &RULE).unwrap();
        let problems: Vec<String> = verdict.problems.into_iter().map(|problem| problem.text).collect();
        (verdict.exit_code, problems.join("\n"), verdict.rows[0].reasons.join("\n"))
    }

    #[test]
    fn errors_during_a_pass_are_a_warning_that_the_machine_file_makes_a_failure() {
        const ERROR: (&str, u64) = ("symbol_error of mlx5_4 port 1", 812);
        for (errors, retries, limits, exit_code, said) in [
            (
                &[ERROR][..],
                &[][..],
                &[][..],
                0,
                "symbol_error of mlx5_4 port 1 on n3 rose by 812 while cases were measured; a limit",
            ),
            (
                &[ERROR],
                &[],
                &[("symbol_error", 811)],
                1,
                "rose by 812 while cases were measured, more than 811 (m.toml, `[counters]`)",
            ),
            (&[ERROR], &[], &[("symbol_error", 812)], 0, ""),
            (&[], &[("RetransSegs of Tcp", 90_000)], &[], 0, ""),
            (
                &[],
                &[("RetransSegs of Tcp", 90_000)],
                &[("RetransSegs", 1000)],
                1,
                "RetransSegs of Tcp on n3 rose by 90000",
            ),
            (&[("xid 79 of GPU 5", 1)], &[], &[], 0, "xid 79 of GPU 5 on n3 rose by 1 while cases"),
            (&[("xid 79 of GPU 5", 1)], &[], &[("xid", 0)], 1, "xid 79 of GPU 5 on n3 rose by 1 while cases"),
            (&[], &[], &[("link_downed", 0)], 3, "link_downed was not read on every host all the time, and m.toml"),
        ] {
            let (found, problems, _) = judged(record(1000.0, vec![counted(errors, retries)]), limits);
            assert_eq!(found, exit_code, "{errors:?} {limits:?}: {problems}");
            assert!(problems.contains(said) && said.is_empty() == problems.is_empty(), "{said}: {problems}");
        }
        let (found, problems, _) = judged(record(1000.0, Vec::new()), &[("symbol_error", 0)]);
        assert_eq!(found, 3, "a record without counters: {problems}");
    }

    /// A block with these levels, whose host is another than that of the other errors.
    fn high(host: &str, levels: &[(&str, u64)]) -> Line {
        let levels = levels.iter().map(|(name, level)| ((*name).to_owned(), *level)).collect();
        let block = CounterBlock { host: host.into(), during: vec![(0, 0)], levels, ..CounterBlock::default() };
        let on_all_hosts = vec!["row_remap_pending".to_owned(), "cpu_pressure".to_owned()];
        // Twice: a height is no sum.
        Line::Counters(Box::new(CountersLine { hosts_read: 2, on_all_hosts, blocks: vec![block.clone(), block] }))
    }

    #[test]
    fn a_pass_on_a_faulty_gpu_is_warned_of_or_fails_and_pressure_alone_says_nothing() {
        const PENDING: (&str, u64) = ("row_remap_pending of GPU 5", 1);
        const PRESSURE: (&str, u64) = ("cpu_pressure of host", 41);
        for (level, limits, exit_code, said) in [
            (PENDING, &[][..], 0, "GPU 5 of n7: row_remap_pending while cases were measured; a limit"),
            (
                PENDING,
                &[("row_remap_pending", 0)],
                1,
                "GPU 5 of n7: row_remap_pending while cases were measured, more than 0",
            ),
            (PRESSURE, &[], 0, ""),
            (PRESSURE, &[("cpu_pressure", 40)], 1, "n7: cpu_pressure 41 % while cases were measured, more than 40"),
            (PRESSURE, &[("cpu_pressure", 41)], 0, ""),
        ] {
            let (found, problems, _) = judged(record(1000.0, vec![high("n7", &[level])]), limits);
            assert_eq!(found, exit_code, "{level:?} {limits:?}: {problems}");
            assert!(problems.contains(said) && said.is_empty() == problems.is_empty(), "{said}: {problems}");
        }
        let (_, _, reasons) = judged(record(1e6, vec![high("n7", &[PRESSURE, PENDING])]), &[]);
        assert!(reasons.contains("GPU 5 of n7: row_remap_pending during it"), "{reasons}");
        assert!(reasons.contains("n7: cpu_pressure 41 % during it"), "{reasons}");
        let slow = record(1e6, vec![high("n7", &[PRESSURE, PENDING]), high("n8", &[("cpu_pressure of host", 12)])]);
        let records = [slow];
        let risen = Risen::of(&records);
        assert_eq!(
            risen.on(&["n7"]).as_deref(),
            Some("during the run GPU 5 of n7: row_remap_pending"),
            "n8 is pressed too"
        );
        assert_eq!(risen.on(&["n8"]), None);
    }

    #[test]
    fn counters_that_are_lost_are_said_and_are_no_failure() {
        let lost = [
            "rx_dropped of veth7 vanished",
            "symbol_error of mlx5_4 port 1 vanished",
            "link_downed of mlx5_4 port 1 vanished",
        ];
        let block =
            CounterBlock { host: "n3".into(), lost: lost.map(String::from).to_vec(), ..CounterBlock::default() };
        let on_all_hosts = vec!["link_downed".to_owned()];
        let line = || {
            Line::Counters(Box::new(CountersLine {
                hosts_read: 1,
                on_all_hosts: on_all_hosts.clone(),
                blocks: vec![block.clone()],
            }))
        };
        let (exit_code, problems, _) = judged(record(1000.0, vec![line()]), &[]);
        assert_eq!(exit_code, 0);
        let said = "what happened to 2 counters is not known; the first: symbol_error of mlx5_4 port 1 vanished on n3";
        assert!(problems.contains(said), "{problems}");
        let (exit_code, problems, _) = judged(record(1000.0, vec![line()]), &[("link_downed", 0)]);
        assert_eq!(exit_code, 3, "what vanished may have risen: {problems}");
    }

    #[test]
    fn a_failed_row_names_the_errors_retransmissions_and_throttled_devices_of_its_cases() {
        let readings = |replicate: u32, is_throttled: bool| {
            let what = format!("multiprocessor clock 1980 -> 14{replicate}0 MHz, throttled by power cap");
            let changes = if is_throttled { vec![DeviceChange { rank: 1, what }] } else { Vec::new() };
            let ranks_changed = u32::from(is_throttled);
            Line::DeviceReadings(Box::new(DeviceReadingsLine {
                replicate,
                ranks_changed,
                changes,
                ..DeviceReadingsLine::default()
            }))
        };
        let risen = counted(
            &[("symbol_error of mlx5_4 port 1", 812)],
            &[("RetransSegs of Tcp", 99), ("np_cnp_sent of mlx5_4 port 1", 4000)],
        );
        let added = || vec![readings(0, true), readings(1, true), readings(2, false), risen.clone()];
        let (exit_code, _, reasons) = judged(record(1e6, added()), &[]);
        assert_eq!(exit_code, 1);
        for said in [
            "symbol_error of mlx5_4 port 1 on n3 rose by 812 during it",
            "np_cnp_sent of mlx5_4 port 1 on n3 rose by 4000 during it",
            ": throttled by power cap, in 2 of 3 replicates",
        ] {
            assert!(reasons.contains(said), "{said}: {reasons}");
        }
        assert!(!reasons.contains("RetransSegs"), "few occur under any load: {reasons}");
        let (exit_code, _, reasons) = judged(record(1000.0, added()), &[]);
        assert_eq!((exit_code, reasons.contains("rose by")), (0, false), "{reasons}");
    }
}
