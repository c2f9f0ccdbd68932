//! The report page in a real browser: no message, no request, nothing that overlaps or is cut off; in light, in dark, on paper,
//! on a telephone and on a wide screen. Needs Chromium; without it the tests say that they were skipped.

mod first_screens;
mod many_rows;

use crate::offline;
use crate::records;
use offline::{commgauge, text};
use records::Made;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// A small fleet with pairs, curves and a model, so that every section is there.
const SUITE: &str = r#"
name = "page"
[measure]
minimum_samples = 12
maximum_samples = 12
case_budget = "1min"
replicates = 6
cadences = ["streaming", "isolated"]
[model]
preset = "llama-3-8b"
[training]
sequence = 2048
micro_batch = 1
micro_batches = 8
[[layout]]
tp = 4
styles = ["tensor", "data"]
[pairs]
between = "nodes"
[[sweep]]
collectives = ["all_reduce"]
element_types = ["float32"]
placements = ["out-of-place"]
bytes = { from = "1KiB", to = "64MiB", factor = 8 }
"#;

/// Four of eight on each host, and one expectation that is met and one that is not.
const MACHINE: &str = r#"
name = "page-test"
ranks_per_node = 4
[within_node]
latency = "3us"
rate = "450GB/s"
[between_nodes]
latency = "14us"
adapters_per_node = 4
rate_per_adapter = "400Gbit/s"
[noise]
relative_sigma = 0.02
outlier_probability = 0.001
outlier_factor = 2.0
arrival_jitter = "1us"
[applies_to]
backend = "mpi"
[coverage]
expectations = 1
[[faults]]
kind = "rank"
rank = 5
delay = "300us"
[[expect]]
collective = "all_reduce"
bytes = "32MiB"
ranks = 16
ranks_per_node = 4
nodes = 4
groups_per_node = 1
cadence = "streaming"
value = "240GB/s"
tolerance = 0.05
source = "nobody"
date = "2026-01-01"
"#;

/// What a test-only script finds in the page; it writes into the title, which the page's own policy would not let it.
const PROBE: &str = include_str!("../common/probe.js");

pub fn browser() -> Option<&'static str> {
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success());
    let found = BROWSERS.into_iter().find(|name| runs(name));
    if found.is_none() {
        eprintln!("SKIPPED offline_html: there is no Chromium here; it is in the package chromium");
    }
    found
}

/// Opens a page and returns the browser's output: the page after loading, and its log.
pub fn open(browser: &str, page: &Path, folder: &Path, more: &[&str]) -> (String, String) {
    let (out, err) = (folder.join("dom.html"), folder.join("log.txt"));
    let file = |path: &Path| File::create(path).expect("a file for the browser's words");
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"])
        .args(["--enable-logging=stderr", "--hide-scrollbars", "--allow-file-access-from-files", &profile])
        .args(more)
        .arg("--dump-dom")
        .arg(format!("file://{}", page.display()))
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&err))
        .spawn()
        .expect("the browser starts");
    let begun = Instant::now();
    while child.try_wait().expect("the browser can be waited for").is_none() {
        if begun.elapsed() > Duration::from_secs(180) {
            let _ = child.kill();
            panic!("the browser hangs on {}", page.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let read = |path: &Path| text(&std::fs::read(path).unwrap_or_default());
    (read(&out), read(&err))
}

/// A copy into which the test may insert its script: without the policy, which would forbid it, and as on paper if
/// requested.
fn probed(page: &str, on_paper: bool) -> String {
    let (before, rest) = page.split_once("<meta http-equiv=\"Content-Security-Policy\"").expect("a policy");
    let after = rest.split_once('>').expect("its end").1;
    let whole = format!("{before}{after}").replace("</body>", &(probe() + "</body>"));
    if !on_paper {
        return whole;
    }
    whole.replace("@media print", "@media all").replace("@media (prefers-color-scheme:dark)", "@media not all")
}

fn probe() -> String {
    format!("<script>{PROBE}</script>")
}

/// A page around it with the requested width: browser windows cannot be as narrow as a telephone.
fn frame(width: u32) -> String {
    format!(
        "<!doctype html><title>waiting</title><body><iframe src=\"probed.html\" width=\"{width}\" height=\"900\"></iframe>\
         <script>addEventListener('message',e=>{{document.body.textContent='FOUND '+e.data+' END'}})</script></body>"
    )
}

struct Pages {
    folder: tempfile::TempDir,
    page: PathBuf,
}

/// A page with everything in it: verdict, comparison, model, curves, pairs, late ranks, cost model.
fn pages() -> Pages {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    std::fs::write(at.join("page.toml"), SUITE).expect("the suite");
    std::fs::write(at.join("machine.toml"), MACHINE).expect("the machine");
    let run = ["run", "page.toml", "--backend", "simulated", "--machine", "machine.toml", "-n", "16", "--record"];
    for record in ["new.jsonl", "base.jsonl"] {
        let output = commgauge(at, &[&run[..], &[record]].concat());
        assert!(at.join(record).exists(), "{}", text(&output.stderr));
    }
    let report = ["report", "new.jsonl", "--machine", "machine.toml", "--base", "base.jsonl", "-o", "page.html"];
    let output = commgauge(at, &report);
    assert!(at.join("page.html").exists(), "{}", text(&output.stderr));
    let again = commgauge(at, &[&report[..7], &["again.html"]].concat());
    assert_eq!(output.status.code(), again.status.code());
    let read = |name: &str| std::fs::read(at.join(name)).expect("a page");
    assert_eq!(read("page.html"), read("again.html"), "the same records make the same page");
    let page = at.join("page.html");
    Pages { folder, page }
}

#[test]
fn a_browser_shows_the_page_without_a_message_a_request_or_an_overlap() {
    let Some(browser) = browser() else { return };
    let Pages { folder, page } = pages();
    let at = folder.path();
    let html = std::fs::read_to_string(&page).expect("the page");
    for section in
        ["answer", "verdict", "suspects", "provenance", "model", "curves", "pairs", "late", "cost", "base", "rows"]
    {
        assert!(html.contains(&format!("<section id=\"{section}\"")), "{section}");
    }
    let (dom, log) = open(browser, &page, at, &[]);
    assert!(dom.contains("</html>") && dom.contains("INCONCLUSIVE"), "the page was shown: {log}");
    let messages: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(messages.is_empty(), "{messages:#?}");

    for (form, width, paper, scheme) in [
        ("light, wide", 1400, false, "1"),
        ("dark, wide", 1400, false, "0"),
        ("light, telephone", 390, false, "1"),
        ("dark, telephone", 390, false, "0"),
        ("paper", 718, true, "1"),
    ] {
        std::fs::write(at.join("probed.html"), probed(&html, paper)).expect("a copy");
        std::fs::write(at.join("frame.html"), frame(width)).expect("a frame");
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        let more = ["--window-size=1500,1000", "--virtual-time-budget=20000", &scheme];
        let (dom, log) = open(browser, &at.join("frame.html"), at, &more);
        let found = dom.split_once("FOUND ").and_then(|(_, rest)| rest.split_once(" END"));
        let (found, _) = found.unwrap_or_else(|| panic!("{form}: the probe said nothing: {dom} {log}"));
        assert_eq!(found, format!("{width} wide, nothing wrong"), "{form}");
    }
}

#[test]
fn the_probe_sees_what_is_wrong() {
    let Some(browser) = browser() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    let bad = "<!doctype html><meta http-equiv=\"Content-Security-Policy\" content=\"x\"><style>b{position:absolute;left:9px;top:9px}\
               i{position:absolute;width:3000px}p{color:#ccc}</style><body><i>wide</i><b><h2>one</h2></b><b><h2>two</h2></b>\
               <p>pale</p><svg width=50 height=50><text x=40 y=10>cut off</text></svg></body>";
    std::fs::write(at.join("probed.html"), probed(bad, false)).expect("a copy");
    std::fs::write(at.join("frame.html"), frame(390)).expect("a frame");
    let (dom, _) = open(browser, &at.join("frame.html"), at, &["--virtual-time-budget=20000"]);
    for complaint in ["wider than the page", "overlap", "leaves its picture", "contrast"] {
        assert!(dom.contains(complaint), "{complaint}: {dom}");
    }
}

#[test]
fn a_printed_page_shows_every_table_and_a_page_without_scripts_reads() {
    let Some(browser) = browser() else { return };
    let Pages { folder, page } = pages();
    let at = folder.path();
    let html = std::fs::read_to_string(&page).expect("the page");
    let closed = html.matches("<details").count();
    assert!(closed > 5, "there is something to open");
    // What a browser does before it prints, without a printer.
    let printing = "<script>dispatchEvent(new Event('beforeprint'));\
        document.title=`OPEN ${document.querySelectorAll('details[open]').length} END`</script></body>";
    std::fs::write(at.join("printing.html"), probed(&html, false).replace(&probe(), "").replace("</body>", printing))
        .expect("a copy");
    let (dom, log) = open(browser, &at.join("printing.html"), at, &[]);
    assert!(dom.contains(&format!("OPEN {closed} END")), "all of {closed} are open on paper: {log}");
    // Without scripts style alone opens them.
    let heights = "<script>document.title=`CLOSED ${[...document.querySelectorAll('details>.scroll,details>.folded')]\
        .filter(part=>!part.offsetHeight).length} END`</script></body>";
    let (before, rest) = html.split_once("<script>").expect("its script");
    let without = format!("{before}{}", rest.split_once("</script>").expect("its end").1);
    assert!(!without.contains("class=\"tools\""), "a page without scripts has no controls that do nothing");
    let on_paper = probed(&without, true).replace(&probe(), "").replace("</body>", heights);
    std::fs::write(at.join("paper.html"), on_paper).expect("a copy");
    let (dom, log) = open(browser, &at.join("paper.html"), at, &[]);
    assert!(dom.contains("CLOSED 0 END"), "{log}");
}

/// The figures of large records; with `--release --nocapture` under a clock they show how long a page takes.
#[test]
#[ignore = "writes records of hundreds of megabytes"]
fn pages_of_many_rows_and_many_ranks_are_small() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    Made::steady("many-rows", 100_000, 5, 1).write(&at.join("rows.jsonl"));
    Made { ranks: 4096, ..Made::steady("many-ranks", 100, 5, 2) }.write(&at.join("ranks.jsonl"));
    for record in ["rows.jsonl", "ranks.jsonl"] {
        let begun = Instant::now();
        let output = commgauge(at, &["report", record, "-o", "page.html"]);
        let page = std::fs::metadata(at.join("page.html")).expect("a page").len();
        eprintln!("{record}: {:.1} s, a page of {} kB", begun.elapsed().as_secs_f64(), page / 1000);
        assert!(output.status.code() == Some(0) && page < 2_000_000, "{record}: {page} {}", text(&output.stderr));
        std::fs::remove_file(at.join("page.html")).expect("the page can be removed");
    }
}
