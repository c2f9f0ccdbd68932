//! Each contradiction is found and named; the shipped files have none.

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
    found.iter().filter(|finding| finding.grave).map(|finding| format!("{}: {}", finding.place, finding.text)).collect()
}

#[test]
fn contradictions_within_a_file_are_named() {
    let big = row("'1GiB'", "value = '440GB/s'\ntolerance = 0.05");
    for (rows, words) in [
        // Both about 1 GiB: 300 was reached, 418 are required.
        (big.clone() + &row("['512MiB', '2GiB']", "value = '300GB/s'\ntolerance = 0.05"), "requires more than m.toml"),
        (big.clone() + &row("'1GiB'", "ceiling = '4.2ms'"), "requires more than"),
        (big.clone() + &row("'2GiB'", "floor = '300GB/s'"), "2 GiB would be slower than 1 GiB: 300 GB/s, and 440 GB/s"),
        (
            row("'1MiB'", "ceiling = '50us'") + &row("'2MiB'", "ceiling = '40us'"),
            "2 MiB would take less time than 1 MiB",
        ),
        (row("'1GiB'", "value = '470GB/s'\ntolerance = 0.05"), "470 GB/s is above the 450 GB/s that the links allow"),
        (
            row("'1GiB'", "value = '910GB/s'\ntolerance = 0.05\nin_network = true"),
            "is above the 900 GB/s that the links allow; which counts in that the switches reduce",
        ),
        (row("'1KiB'", "ceiling = '2us'"), "2.00 us is less than the 3.00 us of one empty message"),
        (big.replace("2026-03", "2027-03"), "the date 2027-03 is in the future"),
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
        row("'1MiB'", "ceiling = '50us'") + &row("'2MiB'", "ceiling = '49us'"),
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
