//! Whether a launch may resume a record: the facts of its header that have changed.
//!
//! Facts that differ in every run (times, process ids, the job id) are not compared.

use super::line::{Header, Plan, Settings};
use super::rank_facts::RankFacts;
use super::resume_line::{Change, shortened};
use commgauge_base::units::Rate;

/// Variables that are unique to a Slurm job; its hosts are compared rank by rank.
const OF_THE_JOB: &str = "SLURM_JOB_";

/// The facts that differ between two headers.
pub fn changes(before: &Header, now: &Header) -> Vec<Change> {
    let mut found = Found(Vec::new());
    found.compare("program", &before.program, &now.program);
    found.compare("version of the program", &before.program_version, &now.program_version);
    found.compare("binary (SHA-256)", &before.program_sha256, &now.program_sha256);
    found.compare("suite", &before.suite.name, &now.suite.name);
    found.compare("suite and its files (SHA-256)", &before.suite.sha256, &now.suite.sha256);
    found.compare("backend", &before.backend.name, &now.backend.name);
    found.compare("library", &before.backend.library, &now.backend.library);
    found.option("transport", before.backend.transport.as_deref(), now.backend.transport.as_deref());
    found.option("machine file", before.backend.machine.as_deref(), now.backend.machine.as_deref());
    found.compare("number of ranks", &before.world_size.to_string(), &now.world_size.to_string());
    found.compare("seed", &before.seed.to_string(), &now.seed.to_string());
    settings(&mut found, &before.settings, &now.settings);
    ranks(&mut found, &before.ranks, &now.ranks);
    environment(&mut found, before, now);
    found.0
}

/// Checks that both plans have the same calls on the same groups; the error is a sentence without full stop. Cases of another
/// plan never fit into the record, whatever is allowed.
pub fn ensure_same_plan(before: &Plan, now: &Plan) -> Result<(), String> {
    let (then, here) = (before.cases.len(), now.cases.len());
    if then != here {
        return Err(format!("the record plans {then} cases, this launch {here}"));
    }
    for (index, (old, new)) in before.cases.iter().zip(&now.cases).enumerate() {
        if old.name != new.name {
            return Err(format!("case {index} of the record is `{}`, of this launch `{}`", old.name, new.name));
        }
        if old.locality != new.locality {
            return Err(format!("the groups of case {index} (`{}`) are placed differently on the hosts", old.name));
        }
        // A bound comes from a machine file and affects no measurement.
        let bound: Option<Rate> = new.bound_bytes_per_second;
        if *new != (super::line::CaseFacts { bound_bytes_per_second: bound, ..old.clone() }) {
            return Err(format!("case {index} (`{}`) is another call", old.name));
        }
    }
    if before.case_lines != now.case_lines || before.product_lines != now.product_lines {
        let lines = |plan: &Plan| format!("{} + {}", plan.case_lines, plan.product_lines);
        return Err(format!(
            "the record has {} lines of cases, products and copies when complete, this launch {}",
            lines(before),
            lines(now)
        ));
    }
    if before.steps != now.steps { Err("its steps are others".to_owned()) } else { Ok(()) }
}

/// The changes as a table with a heading, each row indented; at most so many.
pub fn table(changes: &[Change], most: usize) -> String {
    let row = |what: &str, before: &str, now: &str| [shortened(what), shortened(before), shortened(now)];
    let mut rows = vec![row("what", "in the record", "now")];
    rows.extend(changes.iter().take(most).map(|change| row(&change.what, &change.before, &change.now)));
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1));
    let lines = rows.iter().map(|[what, before, now]| format!("  {what:<first$}  {before:<second$}  {now}"));
    let mut text = lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>().join("\n");
    if changes.len() > most {
        text += &format!("\n  ... and {} more", changes.len() - most);
    }
    text
}

struct Found(Vec<Change>);

impl Found {
    fn compare(&mut self, what: &str, before: &str, now: &str) {
        if before != now {
            self.0.push(Change { what: what.to_owned(), before: before.to_owned(), now: now.to_owned() });
        }
    }

    fn option(&mut self, what: &str, before: Option<&str>, now: Option<&str>) {
        self.compare(what, before.unwrap_or("none"), now.unwrap_or("none"));
    }
}

fn settings(found: &mut Found, before: &Settings, now: &Settings) {
    // Destructured so that a new setting cannot be forgotten here.
    let parts = |settings: &Settings| {
        let Settings {
            precision,
            minimum_samples,
            maximum_samples,
            case_budget_seconds,
            replicates,
            warm_buffers,
            start,
            timing,
            verify,
            within_seconds,
            soak,
            iterations,
            calls_like,
        } = settings;
        [
            ("precision", precision.to_string()),
            ("minimum_samples", minimum_samples.to_string()),
            ("maximum_samples", maximum_samples.to_string()),
            ("case_budget", case_budget_seconds.to_string()),
            ("replicates", replicates.to_string()),
            ("warm_buffers", warm_buffers.to_string()),
            ("start", start.to_string()),
            ("timing", timing.to_string()),
            ("verify", verify.to_string()),
            ("within", within_seconds.map_or_else(|| "none".to_owned(), |within| within.to_string())),
            ("soak", soak.to_string()),
            ("iterations", iterations.map_or_else(|| "none".to_owned(), |count| count.to_string())),
            ("like", calls_like.clone().unwrap_or_else(|| "none".to_owned())),
        ]
    };
    for ((name, then), (_, here)) in parts(before).into_iter().zip(parts(now)) {
        found.compare(name, &then, &here);
    }
}

/// A fact of a rank.
type Fact = fn(&RankFacts) -> &str;

/// Neighbouring ranks with the same fact before, and the same now.
#[derive(Clone, Copy)]
struct ChangedRanks<'a> {
    first: u32,
    last: u32,
    before: &'a str,
    now: &'a str,
}

/// Rank by rank; neighbours with the same change share a row.
fn ranks(found: &mut Found, before: &[RankFacts], now: &[RankFacts]) {
    let facts: [(&str, Fact); 6] = [
        ("host", |facts| &facts.host),
        ("processor", |facts| &facts.processor),
        ("kernel", |facts| &facts.kernel),
        ("cores", |facts| &facts.cores),
        ("NUMA nodes", |facts| &facts.numa_nodes),
        ("device", |facts| facts.device.as_deref().unwrap_or("none")),
    ];
    for (name, of) in facts {
        let mut run: Option<ChangedRanks> = None;
        for (old, new) in before.iter().zip(now) {
            let (before, now, last) = (of(old), of(new), old.rank + old.ranks.saturating_sub(1));
            run = match run {
                Some(run) if run.before == before && run.now == now => Some(ChangedRanks { last, ..run }),
                ended => {
                    ended.into_iter().for_each(|run| push_ranks(found, name, run));
                    Some(ChangedRanks { first: old.rank, last, before, now })
                }
            };
        }
        run.into_iter().for_each(|run| push_ranks(found, name, run));
    }
}

fn push_ranks(found: &mut Found, name: &str, run: ChangedRanks) {
    let ChangedRanks { first, last, before, now } = run;
    let of = if first == last { format!("rank {first}") } else { format!("ranks {first}-{last}") };
    found.compare(&format!("{name} of {of}"), before, now);
}

fn environment(found: &mut Found, before: &Header, now: &Header) {
    let (old, new) = (&before.environment, &now.environment);
    let added = new.keys().filter(|name| !old.contains_key(*name));
    for name in old.keys().chain(added).filter(|name| !name.starts_with(OF_THE_JOB)) {
        let value = |of: &std::collections::BTreeMap<String, String>| of.get(name).cloned();
        let shown = |value: Option<String>| value.unwrap_or_else(|| "not set".to_owned());
        found.compare(name, &shown(value(old)), &shown(value(new)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;
    use commgauge_base::units::Seconds;

    fn sample() -> Record {
        Record::parse(include_bytes!("../../../tests/data/sample-record.jsonl"), "sample").unwrap()
    }

    #[test]
    fn every_fact_that_is_another_is_named_with_both_values() {
        let before = sample().header;
        type Edit<'a> = &'a dyn Fn(&mut Header);
        let cases: [(&str, Edit); 12] = [
            ("binary (SHA-256)", &|now| now.program_sha256 = "f00".into()),
            ("version of the program", &|now| now.program_version = "9".into()),
            ("suite and its files (SHA-256)", &|now| now.suite.sha256 = "f00".into()),
            ("library", &|now| now.backend.library = "other MPI".into()),
            ("machine file", &|now| now.backend.machine = Some("new".into())),
            ("number of ranks", &|now| now.world_size += 1),
            ("case_budget", &|now| now.settings.case_budget_seconds = Seconds(77.0)),
            ("verify", &|now| now.settings.verify = !now.settings.verify),
            ("host of rank 1", &|now| now.ranks[1].host = "elsewhere".into()),
            ("kernel of ranks 0-1", &|now| now.ranks[..2].iter_mut().for_each(|rank| rank.kernel = "Linux 9".into())),
            ("device of rank 0", &|now| now.ranks[0].device = Some("GPU".into())),
            ("NCCL_ALGO", &|now| drop(now.environment.insert("NCCL_ALGO".into(), "Ring".into()))),
        ];
        for (what, change) in cases {
            let mut now = before.clone();
            change(&mut now);
            let found = changes(&before, &now);
            assert_eq!(found.iter().map(|change| change.what.as_str()).collect::<Vec<_>>(), [what]);
            assert_ne!(found[0].before, found[0].now);
        }
    }

    #[test]
    fn what_differs_from_run_to_run_is_no_change() {
        let before = sample().header;
        let mut now = before.clone();
        now.run_id = "another".into();
        now.started_at = "2027-01-01T00:00:00+00:00".into();
        now.command_line.push("--resume".into());
        now.ranks.iter_mut().for_each(|rank| rank.pid += 1);
        now.environment.insert("SLURM_JOB_ID".into(), "4711".into());
        assert_eq!(changes(&before, &now), []);
    }

    #[test]
    fn a_plan_of_other_calls_is_refused_and_another_bound_is_not() {
        let plan = sample().plan;
        let changed = |change: &dyn Fn(&mut Plan)| {
            let mut now = plan.clone();
            change(&mut now);
            ensure_same_plan(&plan, &now)
        };
        assert_eq!(changed(&|_| {}), Ok(()));
        assert_eq!(changed(&|now| now.cases[0].bound_bytes_per_second = Some(Rate(1e9))), Ok(()));
        type Edit<'a> = &'a dyn Fn(&mut Plan);
        let cases: [(&str, Edit); 5] = [
            ("cases, this launch", &|now| drop(now.cases.pop())),
            ("of this launch `x`", &|now| now.cases[1].name = "x".into()),
            ("placed differently", &|now| now.cases[0].locality.nodes_spanned += 1),
            ("is another call", &|now| now.cases[0].groups += 1),
            ("lines of cases, products and copies", &|now| now.case_lines += 1),
        ];
        for (reason, change) in cases {
            let refused = changed(change).expect_err(reason);
            assert!(refused.contains(reason), "{refused}");
        }
    }

    #[test]
    fn the_table_names_each_change_in_a_row_and_counts_what_it_leaves_out() {
        let change = |what: &str| Change { what: what.into(), before: "node-a".into(), now: "node-b".into() };
        let many: Vec<Change> = ["host of rank 2", "kernel"].map(change).into();
        let text = table(&many, 1);
        let expected =
            "  what            in the record  now\n  host of rank 2  node-a         node-b\n  ... and 1 more";
        assert_eq!(text, expected);
    }
}
