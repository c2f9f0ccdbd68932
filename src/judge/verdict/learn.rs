//! From healthy runs to a machine file: measured values become expectations.
//!
//! The rule, for every kind of row: the value is the median of all replicates of all runs; the tolerance is what a run like these needs to
//! pass as a whole (`Reach`), and at least reaches the lower of their 5 % quantile and the slowest row's own median, so that the slowest
//! healthy node passes; it never falls below the required minimum. Links are not learned: they are data-sheet facts, and bound the learned
//! values.

use super::comparability::{LoadedRecord, ensure_comparable};
use super::evidence::{Evidence, Gathered, evidence};
use super::learned_file::{self, Kind, LearnRule, Learned, Values};
use super::{Allowed, Problem};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use std::collections::BTreeMap;

/// Learns expectations from runs on healthy nodes; link rates are those of `links`.
///
/// # Errors
/// If a run is incomplete or received wrong data, or runs are not comparable; if no row is verified, reliable and has enough replicates; if
/// a value is above the bound of the links.
pub fn learn(records: &[LoadedRecord], links: &Machine, rule: &LearnRule) -> Result<Learned> {
    let mut allowed = rule.allowed.clone();
    allowed.push(Allowed::Hosts);
    ensure_comparable(&records.iter().collect::<Vec<_>>(), &allowed)?;
    let mut kinds: BTreeMap<Kind, Values> = BTreeMap::new();
    let mut excluded: BTreeMap<Kind, String> = BTreeMap::new();
    for (run, loaded) in records.iter().enumerate() {
        let Gathered { cases, problems, .. } = evidence(std::slice::from_ref(loaded), &[]);
        refuse_unhealthy(loaded, &problems)?;
        for case in cases.iter().filter(|case| case.subject.call().is_none_or(|facts| facts.group_size > 1)) {
            let (kind, is_rate, values) = values(case);
            if !case.shortfalls.is_empty() && !is_skipped(case) {
                let (why, run) = (case.shortfalls.join("; "), loaded.path.shown());
                excluded.entry(kind).or_insert_with(|| format!("{}: {why} (in {run})", case.subject.name()));
                continue;
            }
            let known = kinds.entry(kind).or_default();
            known.is_rate = is_rate;
            known.of_run.entry(run).or_default().push(values.collect());
        }
    }
    // A row that is unreliable in one run is excluded from all of them.
    kinds.retain(|kind, _| !excluded.contains_key(kind));
    learned_file::write(records, &kinds, excluded.into_values().collect(), links, rule)
}

/// Refuses records that are synthetic, unreliable, wrong or incomplete.
fn refuse_unhealthy(loaded: &LoadedRecord, found: &[Problem]) -> Result<()> {
    let refused = |code: i32, why: &str| {
        let text = format!("cannot learn from {}: {why}", loaded.path.shown());
        // An inconclusive record is a bad input, not a failure of the machine.
        Err(Error::from_exit_code(if code == 3 { 2 } else { code }, text))
    };
    let code = super::most_severe(found.iter().map(|problem| problem.exit_code));
    if let Some(problem) = found.iter().find(|problem| problem.exit_code == code) {
        return refused(code, &problem.text);
    }
    Ok(())
}

/// True if every replicate was skipped.
fn is_skipped(case: &Evidence) -> bool {
    case.skipped && !case.unmeasured && case.seconds.iter().all(Option::is_none)
}

fn values<'a>(case: &'a Evidence) -> (Kind, bool, impl Iterator<Item = f64> + 'a) {
    let rate = case.subject.rate();
    let value = move |time: &f64| rate.map_or(*time, |rate| rate.amount / time);
    (Kind::of(case.subject), rate.is_some(), case.seconds.iter().flatten().map(value))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{lines, loaded, machine};
    use super::super::{GateRule, gate};
    use super::*;
    use commgauge_base::units::Rate;
    use commgauge_model::record::Line;
    use commgauge_model::record::line::Outcome;
    use std::path::Path;

    fn rule() -> LearnRule {
        LearnRule { name: "ours".to_owned(), least_tolerance: 0.02, in_network: false, allowed: Vec::new() }
    }

    fn run(id: &str, host: &str, microseconds: &[f64]) -> LoadedRecord {
        let mut loaded = loaded(&format!("{id}.jsonl"), lines(id, &[microseconds.to_vec(), microseconds.to_vec()]));
        loaded.record.header.ranks.iter_mut().for_each(|rank| rank.host = format!("{host}{}", rank.node));
        loaded
    }

    #[test]
    fn expectations_are_learned_from_healthy_nodes_and_all_of_them_pass() {
        let runs = [
            run("a", "x", &[100.0, 101.0, 99.0, 100.5, 99.5, 100.2]),
            run("b", "y", &[100.1, 101.2, 99.3, 100.4, 99.6, 100.3]),
            run("c", "z", &[104.0, 105.0, 104.5, 104.2, 104.8, 104.6]),
        ];
        let learned = learn(&runs, &machine("1GB/s"), &rule()).unwrap();
        assert_eq!((learned.expectations, learned.left_out.len()), (2, 0));
        let machine = Machine::parse(&learned.text, Path::new("ours.toml")).unwrap();
        let [small, large] = machine.expectations.as_slice() else { panic!("{}", learned.text) };
        // 1 MiB on 4 ranks is 1.5 * 1048576 B on the wires; the median of the 18 is the mean of 100.4 and 100.5 us.
        let expected = 1.5 * 1048576.0 / 100.4e-6;
        assert!((small.figure() / expected - 1.0).abs() < 1e-3, "{} {expected}", small.figure());
        // One of six may miss with (0.05 / 2 rows) / 6: 4.43 of Student's t with 4.5 degrees of freedom, sqrt(1 + pi / 36), and a scatter
        // of 3.2 % of the slower nine. The slowest of the 18 is 4.3 % slower.
        assert!((0.145..0.151).contains(&small.table.tolerance.unwrap()), "{:?}", small.table.tolerance);
        assert_eq!(small.table.note.as_deref(), Some("18 replicates"));
        assert_eq!((small.table.source.as_str(), large.bytes.0.0), ("learned from the runs a, b, c", 2 << 20));
        let gates = GateRule { confidence: 0.95, allowed: Vec::new() };
        for run in runs {
            let verdict = gate(&[run], Some(&machine), &gates).unwrap();
            assert_eq!(verdict.exit_code, 0, "{:?}", verdict.rows[0].reasons);
        }
        let slow = run("d", "x", &[130.0, 131.0, 129.0, 130.5, 129.5, 130.2]);
        assert_eq!(gate(&[slow], Some(&machine), &gates).unwrap().exit_code, 1);
    }

    #[test]
    fn slow_rows_are_learned_as_exactly_as_fast_ones() {
        // From 1.5 GB/s down to 1.5 B/s.
        for microseconds in [1e3, 1e6, 1e9, 1e12] {
            let learned = learn(&[run("a", "x", &[microseconds; 5])], &machine("1B/s"), &rule()).unwrap();
            let machine = Machine::parse(&learned.text, Path::new("ours.toml")).unwrap();
            let expected = 1.5 * 1048576.0 / (microseconds * 1e-6);
            let figure = machine.expectations[0].figure();
            assert!((figure / expected - 1.0).abs() < 1e-4, "{figure} {expected}");
        }
    }

    #[test]
    fn nothing_is_learned_from_unhealthy_runs() {
        let good = || run("a", "x", &[100.0, 101.0, 99.0, 100.5, 99.5, 100.2]);
        type Harm = (&'static str, i32, fn(&mut LoadedRecord));
        let harms: [Harm; 6] = [
            ("synthetic", 2, |run| run.record.header.backend.synthetic = true),
            ("unreliable: busy", 2, |run| run.record.header.warnings.push("busy".to_owned())),
            ("not verified", 2, |run| {
                run.record.cases.iter_mut().for_each(|case| case.outcome = Outcome::Measured { verified: false });
            }),
            ("wrong data in 1 measurement", 4, |run| {
                let (when, expected, got) = ("after".to_owned(), "1".to_owned(), "2".to_owned());
                run.record.cases[0].outcome =
                    Outcome::Corrupt { when, rank: 1, element: 2, expected, got, count: 1, call: None };
            }),
            ("no end line", 7, |run| run.record.end = None),
            ("were not measured", 7, |run| {
                run.record.cases.remove(0);
            }),
        ];
        for (words, code, harm) in harms {
            let mut run = good();
            harm(&mut run);
            let error = learn(&[good_named("b"), run], &machine("1GB/s"), &rule()).unwrap_err();
            assert!(error.exit_code() == code && error.to_string().contains(words), "{words}: {error}");
        }
        let mut flagged = run("c", "x", &[100.0, 101.0, 99.0, 100.5, 99.5, 100.2]);
        flagged.record.cases[0].warnings.push("times were still falling".to_owned());
        let learned = learn(&[good_named("b"), flagged], &machine("1GB/s"), &rule()).unwrap();
        let [left_out] = learned.left_out.as_slice() else { panic!("{:?}", learned.left_out) };
        assert!(
            learned.expectations == 1 && left_out.contains("unreliable: times were still falling (in c.jsonl)"),
            "{left_out}"
        );
        let error =
            learn(&[run("s", "x", &[100.0, 300.0, 100.0, 180.0, 500.0])], &machine("1GB/s"), &rule()).unwrap_err();
        assert!(error.to_string().contains("scatters so much that a run"), "{error}");
        let few = loaded("f.jsonl", lines("f", &[vec![100.0; 4]]));
        let error = learn(&[few], &machine("1GB/s"), &rule()).unwrap_err().to_string();
        assert!(error.contains("4 replicates, at least 5 are needed"), "{error}");
    }

    fn good_named(id: &str) -> LoadedRecord {
        run(id, "w", &[100.0, 101.0, 99.0, 100.5, 99.5, 100.2])
    }

    #[test]
    fn values_above_the_links_are_accepted_only_with_in_network_reduction() {
        let mut links = machine("1GB/s");
        (links.between_nodes.rate_per_adapter, links.within_node.rate) = (Rate(1e9), Rate(1e9));
        let error = learn(&[good_named("a")], &links, &rule()).unwrap_err().to_string();
        assert!(error.contains("more than the") && error.contains("--in-network"), "{error}");
        let learned = learn(&[good_named("a")], &links, &LearnRule { in_network: true, ..rule() }).unwrap();
        assert!(learned.text.contains("in_network = true"));
    }

    #[test]
    fn a_learned_file_keeps_all_that_the_machine_of_its_links_has_but_faults_and_expectations() {
        let text = "name = 'like'\ncloud = 'a cloud'\nranks_per_node = 2\n[within_node]\nlatency = '1us'\nrate = '448GB/s'\n\
                    rate_per_peer = '64GB/s'\n[between_nodes]\nlatency = '5us'\nadapters_per_node = 2\nrate_per_adapter = '400GB/s'\n\
                    nodes_per_leaf = 32\n[computing]\ngpu = 'H100'\npeak_tflops = 989\npeak_tflops_fp8 = 1979\nmemory_rate = \
                    '3350GB/s'\n[[level]]\ngpu = 'H100'\nbits = 16\nlayers = 'dense'\nshare_of_peak = 0.6\nshare_of_memory_rate = \
                    0.7\nlow = 0.8\nhigh = 1.3\nruns = 12\nsources = 'us'\n[noise]\nrelative_sigma = 0.01\narrival_jitter = '1us'\n\
                    [[faults]]\nkind = 'rank'\nrank = 0\ndelay = '1ms'\n[[expect]]\ncollective = 'all_gather'\nranks = 2\n\
                    bytes = '1GiB'\nfloor = '1GB/s'\nsource = 's'\ndate = '2026'\n";
        let like = Machine::parse(text, Path::new("like.toml")).unwrap();
        let learned = learn(&[good_named("a")], &like, &rule()).unwrap();
        assert!(
            learned.text.starts_with("# Learned from 1 runs on 2 hosts. Each value is the median"),
            "{}",
            learned.text
        );
        let ours = Machine::parse(&learned.text, Path::new("ours.toml")).unwrap();
        let known = |machine: &Machine| {
            let Machine { cloud, ranks_per_node, within_node, between_nodes, computing, own_levels, noise, .. } =
                machine.clone();
            (cloud, ranks_per_node, within_node, between_nodes, computing, own_levels, noise)
        };
        assert_eq!(known(&ours), known(&like));
        assert_eq!((ours.name.as_str(), ours.faults.len(), ours.expect.len()), ("ours", 0, 2), "{}", learned.text);
    }

    #[test]
    fn names_from_records_cannot_break_out_of_the_file() {
        let hostile = "x\"\n[[faults]]\nkind = 'rank' #";
        let mut lines = lines(hostile, &[vec![100.0, 101.0, 99.0, 100.5, 99.5]]);
        let Line::Header(header) = &mut lines[0] else { unreachable!() };
        header.backend.library = hostile.to_owned();
        let learned = learn(&[loaded("r.jsonl", lines)], &machine("1GB/s"), &rule()).unwrap();
        let machine = Machine::parse(&learned.text, Path::new("ours.toml")).unwrap();
        assert_eq!((machine.faults.len(), machine.expectations[0].table.version.as_deref()), (0, Some(hostile)));
    }
}
