//! Problems in the expectations of machine files: contradictions, figures that no link allows, and missing
//! information. Whether a machine satisfies them is decided in `verdict`.

use super::description::{ExpectedGroup, Machine};
use super::{Expectation, Limit};
use commgauge_base::units::{Bytes, Rate, Seconds};
use commgauge_base::visible::ShownPath;

/// Tolerance, as a share: limits of equal rows that differ by more disagree, and a larger message may be faster by at
/// most this much.
const SLACK: f64 = 0.05;

/// A larger message whose bus bandwidth is lower by more is no plateau.
const LARGEST_DROP: f64 = 0.2;

/// A larger tolerance lets half of the value pass.
const LARGEST_TOLERANCE: f64 = 0.5;

/// A limit below this share of what the links allow is met by every machine that works, ...
const LEAST_SHARE: f64 = 0.01;

/// ... if it also allows a call more than this time: that of a small message is not determined by the links.
const LONGEST_SECONDS: f64 = 0.1;

/// Figures older than this number of years are outdated: libraries have changed since.
const YEARS: i16 = 3;

/// Something found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// True for a contradiction, false for advice.
    pub grave: bool,
    /// File, line and key.
    pub place: String,
    /// What it is, as a sentence without full stop.
    pub text: String,
}

/// All findings in machine files, in each file and between files. `today` is a date such as `2026-11-21`.
pub fn lint(machines: &[Machine], today: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    for machine in machines {
        for expected in &machine.expectations {
            beyond_the_links(machine, expected, &mut found);
            without_effect(machine, expected, &mut found);
            if expected.table.date.as_str() > &today[..expected.table.date.len().min(today.len())] {
                found.push(grave(expected, format!("the date {} is in the future", expected.table.date)));
            }
        }
        within(machine, &mut found);
        advice(machine, today, &mut found);
    }
    for (index, machine) in machines.iter().enumerate() {
        for other in &machines[index + 1..] {
            compare(machine, other, &mut found);
            compare(other, machine, &mut found);
            if machine.name == other.name {
                let text = format!("is named {} as {} is", machine.name, other.path.shown());
                found.push(Finding { grave: true, place: machine.path.shown().into_owned(), text });
            }
        }
    }
    found
}

fn grave(expected: &Expectation, text: String) -> Finding {
    Finding { grave: true, place: expected.place.clone(), text }
}

/// Figures that no link allows, with or without switches that reduce.
fn beyond_the_links(machine: &Machine, expected: &Expectation, found: &mut Vec<Finding>) {
    let bound = machine.bound_of(expected);
    let rate = rate_of(expected, expected.figure(), expected.bytes.0);
    if let (Some(bound), Some(rate)) = (bound, rate) {
        // Switches that sum spare an all_reduce half of its bytes: each rank sends and receives the buffer once.
        let most = if expected.table.in_network { 2.0 * bound.0 } else { bound.0 };
        if rate > most * (1.0 + 1e-9) {
            let (rate, bound) = (Rate(rate), Rate(most));
            let help = match expected.table.in_network {
                true => "which counts in that the switches reduce",
                false => "set in_network = true where the switches themselves reduce or copy",
            };
            found.push(grave(expected, format!("{rate} is above the {bound} that the links allow; {help}")));
        }
    }
    if let Limit::LatencyCeiling(_) = expected.limit {
        let least = if expected.group.nodes > machine.hosts_per_node {
            &machine.between_nodes.latency
        } else {
            &machine.within_node.latency
        };
        let assumed = machine.within_node.assumed || machine.between_nodes.assumed;
        let figure = Seconds(expected.figure());
        if figure.0 < least.0 && !assumed {
            found.push(grave(expected, format!("{figure} is less than the {least} of one empty message")));
        }
    }
}

/// A tolerance that passes half of the value, and a limit that every working machine satisfies.
fn without_effect(machine: &Machine, expected: &Expectation, found: &mut Vec<Finding>) {
    if let Some(tolerance) = expected.table.tolerance.filter(|tolerance| *tolerance > LARGEST_TOLERANCE) {
        let text = format!("the tolerance {tolerance} bounds nothing; accepted: at most {LARGEST_TOLERANCE}");
        found.push(grave(expected, text));
        return;
    }
    let (limit, bytes) = (limit_number(expected), expected.bytes.0);
    let least = machine.bound_of(expected).map(|bound| bound.0 * LEAST_SHARE);
    let is_slow = rate_of(expected, limit, bytes).zip(least).is_none_or(|(rate, least)| rate < least);
    let is_long = time_of(expected, limit, bytes).is_some_and(|seconds| seconds > LONGEST_SECONDS);
    if is_slow && is_long {
        let text = format!("{} bounds nothing: less than a hundredth of what the links allow", limit_shown(expected));
        found.push(grave(expected, text));
    }
}

/// Expectations of one file that cannot both be right.
fn within(machine: &Machine, found: &mut Vec<Finding>) {
    let all = &machine.expectations;
    for (index, one) in all.iter().enumerate() {
        for other in all[index + 1..].iter().filter(|other| is_same_kind(one, other)) {
            let Some((smaller, larger)) = in_order(one, other) else {
                disagreement(one, other, found);
                continue;
            };
            order(smaller, larger, found);
        }
    }
}

/// Both cover a common size: the value that one states as reached must satisfy the other's limit.
fn disagreement(one: &Expectation, other: &Expectation, found: &mut Vec<Finding>) {
    let bytes = one.bytes.0.max(other.bytes.0);
    for (strict, reached) in [(one, other), (other, one)] {
        let Some((limit, figure)) =
            time_of(strict, limit_number(strict), bytes).zip(time_of(reached, reached.figure(), bytes))
        else {
            continue;
        };
        let slack = if reached.table.tolerance.is_none() { 1.0 + SLACK } else { 1.0 + 1e-9 };
        if figure > limit * slack {
            found.push(grave(
                strict,
                format!(
                    "requires more than {} says of the same rows: {} and {}",
                    reached.place,
                    shown(strict),
                    shown(reached)
                ),
            ));
            return;
        }
    }
}

/// A larger message takes no less time, and its bandwidth is not far below that of a smaller one.
fn order(smaller: &Expectation, larger: &Expectation, found: &mut Vec<Finding>) {
    let (at, beyond) = (smaller.bytes.1, larger.bytes.0);
    let times = time_of(smaller, smaller.figure(), at).zip(time_of(larger, larger.figure(), beyond));
    let rates = rate_of(smaller, smaller.figure(), at).zip(rate_of(larger, larger.figure(), beyond));
    if times.is_some_and(|(less, more)| more < less * (1.0 - SLACK)) {
        found.push(grave(larger, format!("{beyond} would take less time than {at} by {}", smaller.place)));
    } else if rates.is_some_and(|(less, more)| more < less * (1.0 - LARGEST_DROP)) {
        let (less, more) = (shown(smaller), shown(larger));
        found.push(grave(
            larger,
            format!("{beyond} would be slower than {at}: {more}, and {less} by {}", smaller.place),
        ));
    }
}

/// A machine whose links are nowhere slower should not have lower expectations where links are the limit, that is not
/// for small messages.
fn compare(slower: &Machine, faster: &Machine, found: &mut Vec<Finding>) {
    for expected in &faster.expectations {
        let alike = |other: &&Expectation| is_same_kind(expected, other) && overlap(expected, other);
        let others = slower.expectations.iter().filter(alike);
        for other in others.filter(|other| is_limited_by_links(slower, other)) {
            let links_are_faster = links(faster, expected).zip(links(slower, other)).is_some_and(|(faster, slower)| {
                faster.0 >= slower.0 * (1.0 - 1e-9)
                    && (expected.group.nodes == 1 || faster.1 >= slower.1 * (1.0 - 1e-9))
            });
            let bytes = expected.bytes.0.max(other.bytes.0);
            let times =
                time_of(expected, limit_number(expected), bytes).zip(time_of(other, limit_number(other), bytes));
            if links_are_faster && times.is_some_and(|(mine, theirs)| mine > theirs / (1.0 - SLACK)) {
                let (mine, theirs) = (limit_shown(expected), limit_shown(other));
                found.push(grave(
                    expected,
                    format!(
                        "{} is to reach {mine}, less than the {theirs} of {}, though its links are no slower ({})",
                        faster.name, slower.name, other.place
                    ),
                ));
            }
        }
    }
}

/// True if at least half of the bound by the links is required.
fn is_limited_by_links(machine: &Machine, expected: &Expectation) -> bool {
    let bound = machine.bound_of(expected);
    match expected.limit {
        Limit::BusBandwidthFloor(floor) => bound.is_some_and(|bound| floor.0 >= bound.0 / 2.0),
        Limit::LatencyCeiling(_) => false,
    }
}

/// Rates of a rank's links within the node and of its adapters.
fn links(machine: &Machine, expected: &Expectation) -> Option<(f64, f64)> {
    let known = !machine.within_node.assumed && !machine.between_nodes.assumed;
    let ExpectedGroup { ranks_per_node, groups_per_node, .. } = expected.group;
    let active = ranks_per_node.saturating_mul(groups_per_node);
    known.then(|| (machine.within_rate_per_rank(ranks_per_node).0, machine.adapter_rate_per_rank(active).0))
}

/// Missing information, counted over a file.
fn advice(machine: &Machine, today: &str, found: &mut Vec<Finding>) {
    let all = &machine.expectations;
    let mut report = |text: String| {
        found.push(Finding { grave: false, place: machine.path.shown().into_owned(), text });
    };
    if machine.thresholds() == 0 {
        return report("expects nothing; it can bound and simulate, but gates nothing".to_owned());
    }
    for (is_missing, table) in
        [(machine.judged_runs.is_none(), "[applies_to]"), (machine.required_coverage.is_none(), "[coverage]")]
    {
        if is_missing {
            report(format!("has no {table}, so no run passes it"));
        }
    }
    let oldest = today.get(..4).and_then(|year| year.parse::<i16>().ok()).unwrap_or(i16::MAX).saturating_sub(YEARS);
    let stale = |expected: &&Expectation| {
        let (year, rest) = expected.table.date.split_at(4);
        let day = format!("{oldest}{rest}");
        year.parse::<i16>().is_ok_and(|year| year < oldest) || (expected.table.date == day && *day < today[..day.len()])
    };
    for (count, what) in [
        (
            all.iter().filter(|expected| expected.table.version.is_none()).count(),
            "do not name the version of the library",
        ),
        (all.iter().filter(|expected| expected.table.element_type.is_none()).count(), "do not name the element type"),
        (all.iter().filter(stale).count(), "are older than three years"),
    ] {
        if count > 0 {
            report(format!("{count} of {} expectations {what}", all.len()));
        }
    }
}

/// The same call in groups with the same placement and cadence, so that only the size may differ.
fn is_same_kind(one: &Expectation, other: &Expectation) -> bool {
    let compatible = one.table.placement.zip(other.table.placement).is_none_or(|(one, other)| one == other)
        && one.table.element_type.zip(other.table.element_type).is_none_or(|(one, other)| one == other);
    let word = |expected: &Expectation| {
        let name = expected.table.algorithm.as_deref()?;
        Some(name.chars().take_while(|c| c.is_ascii_alphanumeric()).collect::<String>().to_ascii_lowercase())
    };
    let algorithms = word(one).zip(word(other)).is_none_or(|(one, other)| one == other);
    let group = |e: &Expectation| (e.table.collective, e.group, e.table.cadence);
    // A mean, or a number of rows, compares with that for the same rows only.
    let rows = one.table.rows == other.table.rows && (one.table.rows.is_none() || one.bytes == other.bytes);
    compatible && algorithms && rows && one.table.variant == other.table.variant && group(one) == group(other)
}

fn overlap(one: &Expectation, other: &Expectation) -> bool {
    one.bytes.0 <= other.bytes.1 && other.bytes.0 <= one.bytes.1
}

/// The one with smaller messages first; none if they have a common size.
fn in_order<'a>(one: &'a Expectation, other: &'a Expectation) -> Option<(&'a Expectation, &'a Expectation)> {
    match overlap(one, other) {
        true => None,
        false if one.bytes.1 < other.bytes.0 => Some((one, other)),
        false => Some((other, one)),
    }
}

fn limit_number(expected: &Expectation) -> f64 {
    match expected.limit {
        Limit::BusBandwidthFloor(rate) => rate.0,
        Limit::LatencyCeiling(time) => time.0,
    }
}

/// A figure as the time of one call of that size, in seconds; a bus bandwidth is f S / t.
fn time_of(expected: &Expectation, figure: f64, bytes: Bytes) -> Option<f64> {
    match expected.limit {
        Limit::LatencyCeiling(_) => Some(figure),
        Limit::BusBandwidthFloor(_) => moved(expected, bytes).map(|moved| moved / figure),
    }
}

/// A figure as a bus bandwidth, in bytes per second.
fn rate_of(expected: &Expectation, figure: f64, bytes: Bytes) -> Option<f64> {
    match expected.limit {
        Limit::BusBandwidthFloor(_) => Some(figure),
        Limit::LatencyCeiling(_) => moved(expected, bytes).map(|moved| moved / figure),
    }
}

fn moved(expected: &Expectation, bytes: Bytes) -> Option<f64> {
    let factor = expected.table.collective.bus_factor(expected.group.ranks)?;
    Some(bytes.0 as f64 * factor).filter(|moved| *moved > 0.0)
}

fn shown(expected: &Expectation) -> String {
    number_shown(expected, expected.figure())
}

fn limit_shown(expected: &Expectation) -> String {
    number_shown(expected, limit_number(expected))
}

fn number_shown(expected: &Expectation, number: f64) -> String {
    match expected.limit {
        Limit::BusBandwidthFloor(_) => Rate(number).to_string(),
        Limit::LatencyCeiling(_) => Seconds(number).to_string(),
    }
}

#[cfg(test)]
mod tests {
    // Each contradiction is found and named; the shipped files have none.
    use super::*;
    use std::path::{Path, PathBuf};

    const TODAY: &str = "2026-11-21";

    fn machine(name: &str, rows: &str) -> Machine {
        let text = format!(
            "name = '{name}'\nranks_per_node = 8\n[within_node]\nlatency = '3us'\nrate = '450GB/s'\n[between_nodes]\n\
         latency = '14us'\nadapters_per_node = 8\nrate_per_adapter = '50GB/s'\n{rows}"
        );
        Machine::parse(&text, &PathBuf::from(format!("{name}.toml"))).unwrap()
    }

    fn row(bytes: &str, figure: &str) -> String {
        format!(
            "[[expect]]\ncollective = 'all_reduce'\nranks = 8\nbytes = {bytes}\n{figure}\nsource = 's'\ndate = '2026-03'\n\
         version = 'v'\nelement_type = 'float32'\n"
        )
    }

    fn found(machines: &[Machine]) -> Vec<String> {
        let found = lint(machines, TODAY);
        found
            .iter()
            .filter(|finding| finding.grave)
            .map(|finding| format!("{}: {}", finding.place, finding.text))
            .collect()
    }

    #[test]
    fn contradictions_within_a_file_are_named() {
        let big = row("'1GiB'", "value = '440GB/s'\ntolerance = 0.05");
        for (rows, words) in [
            // Both about 1 GiB: 300 was reached, 418 are required.
            (
                big.clone() + &row("['512MiB', '2GiB']", "value = '300GB/s'\ntolerance = 0.05"),
                "requires more than m.toml",
            ),
            (big.clone() + &row("'1GiB'", "ceiling = '4.2ms'"), "requires more than"),
            (
                row("'1GiB'", "value = '300GB/s'\ntolerance = 0.1\nrows = 'mean'")
                    + &row("'1GiB'", "floor = '310GB/s'\nrows = 'mean'"),
                "requires more than",
            ),
            (
                row("['1KiB', '1GiB']", "value = '460GB/s'\ntolerance = 0.05\nrows = 'maximum'"),
                "460 GB/s is above the 450 GB/s",
            ),
            (
                big.clone() + &row("'2GiB'", "floor = '300GB/s'"),
                "2 GiB would be slower than 1 GiB: 300 GB/s, and 440 GB/s",
            ),
            (
                row("'1MiB'", "ceiling = '50us'") + &row("'2MiB'", "ceiling = '40us'"),
                "2 MiB would take less time than 1 MiB",
            ),
            (
                row("'1GiB'", "value = '470GB/s'\ntolerance = 0.05"),
                "470 GB/s is above the 450 GB/s that the links allow",
            ),
            (
                row("'1GiB'", "value = '910GB/s'\ntolerance = 0.05\nin_network = true"),
                "is above the 900 GB/s that the links allow; which counts in that the switches reduce",
            ),
            (row("'1KiB'", "ceiling = '2us'"), "2.00 us is less than the 3.00 us of one empty message"),
            (big.replace("2026-03", "2027-03"), "the date 2027-03 is in the future"),
            (big.replace("0.05", "0.9"), "the tolerance 0.9 bounds nothing; accepted: at most 0.5"),
            (row("'1GiB'", "floor = '0.000000001B/s'"), "bounds nothing: less than a hundredth"),
            (row("'1KiB'", "ceiling = '1h'"), "3600 s bounds nothing"),
        ] {
            let texts = found(&[machine("m", &rows)]);
            assert!(texts.len() == 1 && texts[0].contains(words), "{words}: {texts:?}");
        }
    }

    #[test]
    fn consistent_files_have_no_findings() {
        let big = row("'1GiB'", "value = '440GB/s'\ntolerance = 0.05");
        for rows in [
            big.clone() + &row("['512MiB', '2GiB']", "value = '430GB/s'\ntolerance = 0.05"),
            big.clone() + &row("'1GiB'", "value = '300GB/s'\ntolerance = 0.05\ncadence = 'isolated'"),
            big.clone() + &row("'1GiB'", "value = '200GB/s'\ntolerance = 0.05").replace("float32", "float16"),
            row("'1GiB'", "value = '360GB/s'\ntolerance = 0.05\nalgorithm = 'Ring'")
                + &row("'1GiB'", "value = '480GB/s'\ntolerance = 0.05\nin_network = true\nalgorithm = 'NVLS'"),
            // A mean over more sizes is no figure of each, nor of other sizes.
            big.clone() + &row("['1KiB', '1GiB']", "floor = '200GB/s'\nrows = 'mean'"),
            row("['1KiB', '1GiB']", "floor = '200GB/s'\nrows = 'mean'")
                + &row("['1MiB', '1GiB']", "floor = '300GB/s'\nrows = 'mean'"),
            row("['1MiB', '1GiB']", "floor = '300GB/s'\nrows = 'maximum'")
                + &row("['1MiB', '1GiB']", "floor = '200GB/s'\nrows = 'mean'"),
            row("'1MiB'", "ceiling = '50us'") + &row("'2MiB'", "ceiling = '49us'"),
            row("'1KiB'", "floor = '0.1GB/s'"),
        ] {
            assert_eq!(found(&[machine("m", &rows)]), [""; 0], "{rows}");
        }
    }

    #[test]
    fn a_machine_with_faster_links_but_lower_expectations_is_reported() {
        // The gates that a cloud ships for its H100 and H200 nodes.
        let gate = |floor: &str| row("'16GiB'", &format!("floor = '{floor}'\nin_network = true"));
        let (h100, h200) = (machine("h100", &gate("460GB/s")), machine("h200", &gate("431GB/s")));
        for order in [[h100.clone(), h200.clone()], [h200.clone(), h100.clone()]] {
            let texts = found(&order);
            assert!(
                texts.len() == 1 && texts[0].contains("h200 is to reach 431 GB/s, less than the 460 GB/s of h100"),
                "{texts:?}"
            );
        }
        // Links do not determine the time of small messages: newer switches may take longer for those.
        let small = |floor: &str| gate(floor).replace("16GiB", "1MiB");
        assert_eq!(found(&[machine("h100", &small("60GB/s")), machine("h200", &small("40GB/s"))]), [""; 0]);
        let mut older = h200;
        older.within_node.rate = Rate(300e9);
        assert_eq!(found(&[h100.clone(), older]), [""; 0], "slower links may reach less");
        assert!(found(&[h100.clone(), h100])[0].contains("is named h100 as h100.toml is"));
    }

    #[test]
    fn advice_counts_missing_and_outdated_expectations() {
        let bare = row("'1GiB'", "floor = '400GB/s'").replace("version = 'v'\nelement_type = 'float32'\n", "");
        let rows = bare.clone() + &bare.replace("2026-03", "2023-11-20").replace("1GiB", "2GiB");
        let texts: Vec<String> = lint(&[machine("m", &rows)], TODAY).into_iter().map(|finding| finding.text).collect();
        assert_eq!(
            texts,
            [
                "has no [applies_to], so no run passes it",
                "has no [coverage], so no run passes it",
                "2 of 2 expectations do not name the version of the library",
                "2 of 2 expectations do not name the element type",
                "1 of 2 expectations are older than three years",
            ]
        );
        assert!(lint(&[machine("m", "")], TODAY)[0].text.starts_with("expects nothing"));
    }

    #[test]
    fn the_shipped_machine_files_do_not_contradict_themselves_or_each_other() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/machines");
        let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let machines: Vec<Machine> = paths.map(|path| Machine::load(&path).unwrap()).collect();
        assert_eq!(found(&machines), [""; 0]);
        let expectations: usize = machines.iter().map(|machine| machine.expectations.len()).sum();
        assert!(expectations > 100, "{expectations}");
    }
}
