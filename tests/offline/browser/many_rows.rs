//! A page of 10,000 rows in a real browser: how large it is, how soon it can be used, and that searching, sorting and paging find
//! every row. Needs Chromium for the last two; without it the test says that it was skipped.

use super::{browser, open};
use crate::offline::{commgauge, text};
use crate::records::{Made, machine};
use std::collections::HashSet;
use std::time::Instant;

const ROWS: usize = 10_000;
/// What a page may weigh.
const MAX_BYTES: u64 = 2_000_000;
/// Seconds after which a page is to be usable, beyond what the browser takes for a page of one word.
const SOON_SECONDS: f64 = 1.0;
/// How much longer it may take where other programs take the processor.
const BUSY: f64 = 3.0;
/// Of which the best counts.
const LOADS: usize = 3;

/// Waits until the page is laid out, uses it, and writes the milliseconds and what it found into the title.
const USE: &str = r#"<script>
addEventListener('load', () => {
  const laidOut = () => document.body.offsetHeight;
  laidOut();
  const found = {ready: performance.now()};
  const timed = (name, act) => { const begun = performance.now(); act(); laidOut(); found[name] = performance.now() - begun; };
  const section = document.querySelector('#rows');
  if (section) {
    const search = section.querySelector('input'), rows = () => [...section.querySelectorAll('tbody tr')];
    const find = words => { search.value = words; search.dispatchEvent(new Event('input')); };
    const heads = [...section.querySelectorAll('th')], size = heads.findIndex(head => head.textContent === 'size');
    const medians = heads.findIndex(head => head.textContent.startsWith('median'));
    const buttons = [...section.querySelectorAll('.tools button')];
    timed('search', () => find('ALL_REDUCE/11287552'));
    found.matches = rows().length;
    timed('clear', () => find(''));
    const values = () => rows().map(row => parseFloat(row.cells[medians].textContent));
    timed('sort', () => heads[medians].querySelector('button').click());
    found.ascending = values().every((value, at, all) => at === 0 || all[at - 1] <= value);
    heads[medians].querySelector('button').click();
    found.descending = values().every((value, at, all) => at === 0 || all[at - 1] >= value);
    const first = rows()[0].textContent;
    timed('next', () => buttons[1].click());
    found.paged = rows().length > 0 && rows()[0].textContent !== first;
    dispatchEvent(new Event('beforeprint'));
    found.printed = rows().length;
    found.sizes = size >= 0;
  }
  document.title = 'FOUND ' + JSON.stringify(found) + ' END';
});
</script></body>"#;

#[test]
fn a_page_of_10_000_rows_is_small_and_can_be_searched_and_sorted_soon() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    Made::steady("many-rows", ROWS, 6, 1).write(&at.join("rows.jsonl"));
    std::fs::write(at.join("machine.toml"), machine("1MB/s")).expect("a machine");
    for machine in [&[][..], &["--machine", "machine.toml"]] {
        let begun = Instant::now();
        let output = commgauge(at, &[&["report", "rows.jsonl", "-o", "page.html"], machine].concat());
        let bytes = std::fs::metadata(at.join("page.html")).expect("a page").len();
        eprintln!("{ROWS} rows {machine:?}: made in {:.1} s, {} kB", begun.elapsed().as_secs_f64(), bytes / 1000);
        assert!(bytes < MAX_BYTES, "{bytes} bytes: {}", text(&output.stderr));
    }
    let page = std::fs::read_to_string(at.join("page.html")).expect("the page");
    let begins = "world/all_reduce/";
    let sizes =
        page.split(begins).skip(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    let sizes: HashSet<&str> = sizes.collect();
    for row in 0..ROWS {
        let size = ((1 << 20) + 1024 * row).to_string();
        assert!(sizes.contains(size.as_str()), "{begins}{size} is on the page");
    }
    let Some(browser) = browser() else { return };
    let (before, rest) = page.split_once("<meta http-equiv=\"Content-Security-Policy\"").expect("a policy");
    let after = rest.split_once('>').expect("its end").1;
    std::fs::write(at.join("used.html"), format!("{before}{after}").replace("</body>", USE)).expect("a copy");
    std::fs::write(at.join("empty.html"), format!("<!doctype html><title>x</title><body><p>x</p>{USE}"))
        .expect("a page");
    let mut ready = f64::INFINITY;
    for _ in 0..LOADS {
        let empty = used(browser, at, "empty.html");
        let found = used(browser, at, "used.html");
        eprintln!("in the browser, milliseconds: {found}; an empty page: {empty}");
        for (what, expected) in [("matches", 1), ("printed", ROWS as u64)] {
            assert_eq!(found[what], expected, "{what}: {found}");
        }
        for what in ["ascending", "descending", "paged", "sizes"] {
            assert_eq!(found[what], true, "{what}: {found}");
        }
        let milliseconds = |of: &serde_json::Value, what: &str| of[what].as_f64().expect("a time");
        let slowest = ["search", "clear", "sort", "next"].map(|what| milliseconds(&found, what));
        let slowest = slowest.into_iter().fold(0.0, f64::max);
        // What the machine takes for a page of one word is not the page's.
        let own = milliseconds(&found, "ready") - milliseconds(&empty, "ready");
        ready = ready.min(own.max(slowest) / 1000.0);
    }
    assert!(ready < SOON_SECONDS * BUSY, "usable after {ready} s at best, where {SOON_SECONDS} s are meant");
}

fn used(browser: &str, at: &std::path::Path, page: &str) -> serde_json::Value {
    let (dom, log) = open(browser, &at.join(page), at, &[]);
    let found = dom.split_once("FOUND ").and_then(|(_, rest)| rest.split_once(" END"));
    let (found, _) = found.unwrap_or_else(|| panic!("the page said nothing: {log}"));
    serde_json::from_str(&found.replace("&quot;", "\"")).expect("what was found")
}
