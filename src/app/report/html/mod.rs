//! The report as one HTML file, to be sent to those who fix the machine.
//!
//! [`html`] gathers sections of plain data; `page` writes them. The file needs no network, reads without its script, and is the
//! same for the same input: it has no timestamp of its creation.

mod answer;
mod cost;
mod curves;
pub(super) mod page;
mod pairs;

pub use page::{HtmlInput, HtmlRun};

use super::products;
use super::view::View;
use crate::report::document::Block;
use crate::report::verdict::coverage;
use answer::Answer;
use commgauge_base::error::Result;
use commgauge_base::units::counted;
use commgauge_plan::planner::plan_document::PlanDocument;
use page::{Section, page_text};

/// A plan as the text of a file.
///
/// # Errors
/// An environment error where the page cannot be written.
pub fn plan_page(plan: &PlanDocument) -> Result<String> {
    let title = format!("A plan for {}", plan.model);
    let subtitle = format!("{} GPUs, {} samples of {} tokens a step", plan.gpus, plan.global_batch, plan.sequence);
    let sections = vec![
        Section::new("answer", "The best layout", super::plan::first_screen(plan)),
        Section::new("layouts", "Layouts", super::plan::choices(plan)),
        Section::new("details", "What it is made of", super::plan::made_of(plan)),
    ];
    page_text(None, &title, &subtitle, plan.synthetic, sections, "commgauge plan")
}

/// The report as the text of a file.
///
/// # Errors
/// An environment error where the page cannot be written.
pub fn html(input: &HtmlInput) -> Result<String> {
    let Some(first) = input.runs.first() else { return Ok(String::new()) };
    let header = &first.view.header;
    let Answer { words, heading, mut blocks } = Answer::of(input);
    let mut sections = Vec::new();
    let mut not_looked_for = Vec::new();
    let has_map =
        blocks.iter().any(|block| matches!(block, Block::Charts(figures) if figures.iter().any(|figure| figure.wide)));
    let map = if has_map { Vec::new() } else { pairs::worst(first, input.verdict) };
    for (what, section) in parts(input, first, map) {
        match section.is_empty() {
            true => not_looked_for.push(what),
            false => sections.push(section),
        }
    }
    not_looked_for.retain(|what| !what.is_empty());
    if !not_looked_for.is_empty() {
        blocks.push(Block::absent(format!("Not looked for: {}.", not_looked_for.join("; "))));
    }
    sections.insert(0, Section::new("answer", heading, blocks));
    let ranked = first.view.ranking.as_ref().map(|step| &step.facts.model);
    let model = ranked.or(header.suite.model.as_ref()).filter(|model| !header.suite.name.contains(model.as_str()));
    let model = model.map_or_else(String::new, |model| format!(", {model}"));
    let title = format!("{}{model}", header.suite.name);
    let runs = match input.runs.len() {
        1 => String::new(),
        count => format!("{count} runs, the first "),
    };
    let subtitle = format!(
        "{runs}{} · {} ranks · {} · {}",
        header.started(),
        header.world_size,
        header.backend.library,
        first.name
    );
    let synthetic = input.runs.iter().chain(input.base).any(|run| run.view.header.backend.synthetic);
    let footer = format!(
        "commgauge {}. GB is 10^9 bytes; sizes are binary. What is folded opens with a click, and on paper all is open.",
        env!("CARGO_PKG_VERSION")
    );
    page_text(Some(&words), &title, &subtitle, synthetic, sections, &footer)
}

/// The sections below the answer: what the run was made for, then what follows from it, each with the words that name it where the run
/// has nothing of it. `map` is the heat map of pairs unless the answer has it.
fn parts(input: &HtmlInput, first: &HtmlRun, map: Vec<Block>) -> Vec<(String, Section)> {
    let of_runs = |of: fn(&View) -> Vec<Block>| page::of_runs(input, of);
    let products = of_runs(|view| products::document(&view.products, &view.header));
    let copies = of_runs(|view| products::copies_document(&view.copies, &view.header));
    let rows: usize = input.runs.iter().map(|run| run.view.rows.len()).sum();
    let consistent = input.consistency.as_ref().map_or_else(String::clone, |found| coverage(found).join("; "));
    let suspects = Section::new("suspects", "Suspects and warnings", answer::suspects_blocks(input));
    let suspects = match input.suspects.as_ref() {
        Ok(found) if !found.suspects.is_empty() => suspects,
        found => suspects.folded(answer::suspects_in_short(input, found.ok().copied())),
    };
    let contradictions = format!("calls that contradict each other ({consistent})");
    let no_fit = input.fit.as_ref().err().map_or_else(String::new, |reason| format!("a cost model ({reason})"));
    let mut parts = Vec::new();
    let mut part = |what: &str, id, title: &str, blocks| parts.push((what.to_owned(), Section::new(id, title, blocks)));
    part("thresholds (`--machine FILE`)", "verdict", "Verdict and coverage", answer::verdict_blocks(input));
    part("an earlier run (`--base EARLIER`)", "base", "Against the base", cost::comparison_blocks(input));
    part("costs of a step (`commgauge run quick`)", "model", "The model's communication", page::step_blocks(input));
    part("curves (three sizes or more)", "curves", "Bandwidth and latency", curves::blocks(input));
    part(
        "pairs of ranks (`commgauge run --pairs`)",
        "pairs",
        "Pairs of ranks",
        pairs::blocks(first, input.verdict, map),
    );
    part("", "products", "Matrix products", products);
    part("", "copies", "Copies between hosts and GPUs", copies);
    parts.push((String::new(), suspects));
    let mut folded = |what: &str, id, title: &str, blocks, brief: String| {
        parts.push((what.to_owned(), Section::new(id, title, blocks).folded(brief)));
    };
    folded("late ranks (`--cadence both`)", "late", "Late ranks", page::late(first), page::late_in_short(first));
    folded(&contradictions, "consistency", "Self-consistency", cost::consistency_blocks(input), consistent);
    folded(&no_fit, "cost", "Cost model", cost::blocks(input), cost::in_short(input));
    folded("", "rows", "All rows", page::rows_blocks(input), counted(rows, "row"));
    let library = first.view.header.backend.library.clone();
    folded("", "provenance", "Provenance", page::runs_blocks(input), library);
    parts
}

#[cfg(test)]
mod tests {
    // Properties of any page: no hostile text, no external resources, headings in order, deterministic output.
    use super::*;
    use commgauge_cost::cost::{FitOptions, Measurements, fit};
    use commgauge_judge::verdict::{
        AgainstLimit, ConsistencyRule, Decision, GateRule, LoadedRecord, Metric, Verdict, consistency, gate,
    };
    use commgauge_model::record::Record;
    use commgauge_model::record::line::{CaseFacts, EndStatus};
    use serde_json::Value;

    const SAMPLE: &str = include_str!("../../../../tests/data/sample-record.jsonl");
    const HOSTILE: &str = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\"'&amp;{{7*7}}\u{202e}\u{7}";

    fn gate_of(record: &Record) -> Verdict {
        let loaded = [LoadedRecord { path: "a<b>.jsonl".into(), record: record.clone() }];
        gate(&loaded, None, &GateRule { confidence: 0.95, allowed: Vec::new() }).unwrap()
    }

    fn page(record: &Record) -> String {
        page_judged(record, Some(&gate_of(record)))
    }

    fn page_judged(record: &Record, verdict: Option<&Verdict>) -> String {
        let loaded = [LoadedRecord { path: "a<b>.jsonl".into(), record: record.clone() }];
        let consistent = consistency(&loaded, ConsistencyRule::default(), &[]);
        let fitted = Measurements::of([("a<b>.jsonl", record)])
            .and_then(|all| fit(&all, FitOptions { resamples: 0, ..FitOptions::default() }));
        let runs = [HtmlRun { name: "a<b>.jsonl".into(), record, view: View::new(record), differences: Vec::new() }];
        html(&HtmlInput {
            runs: &runs,
            base: &[],
            machine: None,
            verdict,
            comparison: None,
            consistency: consistent.as_ref().map_err(ToString::to_string),
            selftest: None,
            fit: fitted.as_ref().map_err(ToString::to_string),
            fit_is_own: true,
            suspects: Err("no one <looked>".into()),
        })
        .unwrap()
    }

    fn record(lines: &[Value]) -> Record {
        Record::from_lines(lines.iter().map(|line| serde_json::from_value(line.clone()).unwrap())).unwrap()
    }

    fn sample_lines() -> Vec<Value> {
        SAMPLE.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Replaces every free text of a line by the hostile text, and counts the replacements.
    fn poison(line: &mut Value) -> usize {
        let mut paths = Vec::new();
        texts(line, String::new(), &mut paths);
        let mut poisoned = 0;
        for path in paths {
            let Some(slot) = line.pointer_mut(&path) else { continue };
            let old = std::mem::replace(slot, Value::String(HOSTILE.into()));
            let is_valid = serde_json::from_value::<commgauge_model::record::Line>(line.clone()).is_ok();
            // Names of cases are checked against the plan, formats against the version, so those are replaced in the plan only.
            let fixed = path == "/format" || path.ends_with("hdr_v2_deflate_base64");
            match is_valid && !fixed {
                true => poisoned += 1,
                false => *line.pointer_mut(&path).unwrap() = old,
            }
        }
        poisoned
    }

    fn texts(value: &Value, path: String, found: &mut Vec<String>) {
        match value {
            Value::String(_) => found.push(path),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| texts(item, format!("{path}/{index}"), found));
            }
            Value::Object(fields) => {
                fields
                    .iter()
                    .for_each(|(name, item)| texts(item, format!("{path}/{}", name.replace('/', "~1")), found));
            }
            _ => {}
        }
    }

    /// The page without its script, of which a test compares the hash.
    fn without_script(text: &str) -> String {
        let (before, rest) = text.split_once("<script>").expect("a script");
        let (script, after) = rest.split_once("</script>").expect("its end");
        assert_eq!(script, include_str!("../../../../reports/templates/report.js"));
        format!("{before}{after}")
    }

    #[test]
    fn nothing_hostile_in_any_text_of_a_record_gets_through() {
        let mut lines = sample_lines();
        let poisoned: usize = lines.iter_mut().map(poison).sum();
        assert!(poisoned > 40, "{poisoned} texts are hostile");
        let text = without_script(&page(&record(&lines)));
        for forbidden in
            ["<img", "<script", "</script", "onerror=alert(1)>", "49", "\u{202e}", "\u{7}", "a<b>", "<looked>"]
        {
            let harmless = forbidden == "49";
            assert!(harmless || !text.contains(forbidden), "{forbidden}");
        }
        assert!(text.contains("&#60;img") || text.contains("&lt;img"), "the text is still shown");
        assert!(text.contains("{{7*7}}"), "no text is a template");
    }

    #[test]
    fn a_page_requests_nothing_and_runs_no_script_but_its_own() {
        let text = without_script(&page(&record(&sample_lines())));
        for forbidden in
            ["<script", " onclick", " onload", "javascript:", "http://", "https://", "@import", "url(", " style="]
        {
            assert!(!text.contains(forbidden), "{forbidden}");
        }
        let links: Vec<&str> = text.split("href=\"").skip(1).collect();
        assert!(links.iter().all(|link| link.starts_with('#') || link.starts_with("data:,")), "links stay inside");
        assert!(text.contains("default-src 'none'; style-src 'sha256-"), "and the policy says so");
    }

    #[test]
    fn the_policy_allows_the_very_style_sheet_and_script_of_the_page() {
        use base64::Engine;
        use sha2::Digest;
        let text = page(&record(&sample_lines()));
        for (kind, tag) in [("style-src", "style"), ("script-src", "script")] {
            let inside = text.split_once(&format!("<{tag}>")).unwrap().1.split_once(&format!("</{tag}>")).unwrap().0;
            let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(inside));
            assert!(text.contains(&format!("{kind} 'sha256-{hash}';")), "{tag} {hash}");
        }
    }

    #[test]
    fn the_same_record_makes_the_same_page() {
        let lines = sample_lines();
        assert_eq!(page(&record(&lines)), page(&record(&lines)));
    }

    #[test]
    fn headings_are_in_order_and_every_table_has_a_caption() {
        let text = page(&record(&sample_lines()));
        let mut last = 0;
        for part in text.split("<h").skip(1).filter(|part| part.starts_with(|c: char| c.is_ascii_digit())) {
            let level = part.as_bytes()[0] - b'0';
            assert!(level <= last + 1, "h{level} after h{last}");
            last = level;
        }
        assert_eq!(text.matches("<h1").count(), 1);
        assert_eq!(text.matches("<table>").count(), text.matches("<caption>").count());
        assert_eq!(text.matches("<svg").count(), text.matches("<svg class=\"cg\" role=\"img\"").count());
        assert!(
            text.contains("WRONG DATA") && text.contains("INCONCLUSIVE") || text.contains("ERROR"),
            "the verdict is there"
        );
    }

    #[test]
    fn a_synthetic_record_says_so_at_the_top() {
        let mut synthetic = record(&sample_lines());
        synthetic.header.backend.synthetic = true;
        let text = page(&synthetic);
        let (head, _) = text.split_once("<main").unwrap();
        assert!(head.contains("SYNTHETIC"));
    }

    #[test]
    fn an_empty_record_still_makes_a_page() {
        let mut empty = record(&sample_lines());
        empty.plan.cases.clear();
        empty.cases.clear();
        (empty.header.ranks, empty.clocks) = (Vec::new(), Vec::new());
        let text = page(&empty);
        assert!(text.contains("Not looked for: ") && text.contains("INCOMPLETE"));
    }

    #[test]
    fn every_row_is_on_the_page() {
        let mut many = record(&sample_lines());
        let facts = many.plan.cases[0].clone();
        many.cases.clear();
        many.plan.cases = (0..1_500).map(|row| CaseFacts { name: format!("row-{row}!"), ..facts.clone() }).collect();
        let text = page(&many);
        let rows = text.split_once("<section id=\"rows\"").unwrap().1;
        for row in 0..1_500 {
            assert_eq!(rows.matches(&format!("row-{row}!")).count(), 1, "row {row}");
        }
        assert!(rows.contains("1250 more rows, as text") && rows.contains("; axis "), "{rows}");
    }

    /// A complete run whose rows are as they should be.
    fn complete() -> Record {
        use crate::report::step::tests::{USUAL, record};
        let mut record = record(&USUAL);
        if let Some(end) = &mut record.end {
            (end.status, end.error, end.exit_code) = (EndStatus::Complete, None, 0);
        }
        record.header.warnings.clear();
        assert_eq!(View::new(&record).exit_code(), 0);
        record
    }

    #[test]
    fn the_first_screen_has_the_rows_that_failed_with_what_was_measured_and_required_and_the_next_command() {
        let record = complete();
        let mut verdict = gate_of(&record);
        let limit = |metric, limit: f64, median: f64| AgainstLimit {
            metric,
            limit,
            median: Some(median),
            lower_bound: None,
            upper_bound: None,
            place: "m.toml:1".into(),
            source: "<nobody>".into(),
            date: "2026".into(),
            algorithm: None,
            version: None,
        };
        let limits = [
            (Decision::Pass, limit(Metric::LatencySeconds, 1e-3, 1e-4)),
            (Decision::Fail, limit(Metric::LatencySeconds, 1e-3, 1.2e-3)),
            (Decision::Fail, limit(Metric::BusBandwidthBytesPerSecond, 240e9, 60e9)),
        ];
        for (row, (decision, limit)) in verdict.rows.iter_mut().zip(limits) {
            row.decision = Some(decision);
            row.reasons = vec!["6 of 6 replicates are beyond the threshold".into()];
            row.against_limit = Some(limit);
        }
        (verdict.exit_code, verdict.problems) = (1, Vec::new());
        let text = page_judged(&record, Some(&verdict));
        assert!(text.contains("<title>FAIL: 2 rows failed · "), "the tab says it: {text}");
        let (first, _) = text.split_once("<nav").expect("the first screen ends with the list of sections");
        let at = |part: &str| first.find(part).unwrap_or_else(|| panic!("{part} in {first}"));
        assert!(at("pp all_reduce of ") < at("dp all_reduce of "), "the worst first, in words");
        assert!(!first.contains("tp all_reduce of "), "what passed is not there");
        for cells in [
            "<td class=\"n\">60.0 GB/s</td><td class=\"n\">≥ 240 GB/s</td><td class=\"n\">-75.0 %</td>",
            "<td class=\"n\">1.20 ms</td><td class=\"n\">≤ 1.00 ms</td><td class=\"n\">+20.0 %</td>",
            "<dt>why</dt><dd>6 of 6 replicates are beyond the threshold</dd>",
            "<pre class=\"command\"><code>commgauge ",
            "<div class=\"badge bad\">",
        ] {
            at(cells);
        }
    }

    #[test]
    fn a_complete_run_is_amber_only_where_all_of_its_times_are_doubtful() {
        let mut run = complete();
        let text = page_judged(&run, None);
        assert!(text.contains("<div class=\"badge none\">") && text.contains("COMPLETE, NOT JUDGED"), "{text}");
        run.header.warnings.push("8 ranks on 4 cores".into());
        let text = page_judged(&run, None);
        let (first, _) = text.split_once("<nav").unwrap();
        assert!(
            first.contains("<div class=\"badge unsure\">") && first.contains("<dd>8 ranks on 4 cores</dd>"),
            "{first}"
        );
        assert!(first.contains("1 warning"), "{first}");
    }

    #[test]
    fn no_two_headings_of_a_page_with_steps_are_alike() {
        let text = page(&complete());
        let mut heads: Vec<&str> = Vec::new();
        for (open, close) in [("<h3>", "</h3>"), ("<summary>", "</summary>"), ("<caption>", "</caption>")] {
            let mut of_kind: Vec<&str> =
                text.split(open).skip(1).filter_map(|rest| Some(rest.split_once(close)?.0)).collect();
            let all = of_kind.len();
            of_kind.sort_unstable();
            of_kind.dedup();
            assert_eq!(of_kind.len(), all, "{of_kind:?}");
            heads.extend(of_kind);
        }
        assert!(heads.len() > 12, "{heads:?}");
    }

    #[test]
    fn a_comparison_shows_curves_and_how_many_false_alarms_are_to_be_expected() {
        use commgauge_judge::verdict::{CompareRule, CurveChange, CurvePart, compare};
        let (base, mut new) = (record(&sample_lines()), record(&sample_lines()));
        new.header.run_id = "another".into();
        let loaded = |record: &Record, path: &str| vec![LoadedRecord { path: path.into(), record: record.clone() }];
        let rule = CompareRule { false_alarm_level: 0.05, relevant_slowdown: 0.03, allowed: Vec::new() };
        let mut verdict = compare(&loaded(&base, "base"), &loaded(&new, "new"), &rule).unwrap();
        let change = |part, base, new: f64, worse| CurveChange {
            name: "world/<b>".into(),
            cases: 9,
            part,
            base,
            new,
            slowdown: new / base - 1.0,
            slowdown_lower_bound: Some(0.07),
            slowdown_upper_bound: None,
            p_corrected: 0.01,
            worse,
        };
        verdict.curves =
            vec![change(CurvePart::Latency, 1e-5, 1e-5, false), change(CurvePart::Bandwidth, 1e-9, 2e-9, true)];
        let seen = |record| HtmlRun { name: "r".into(), record, view: View::new(record), differences: Vec::new() };
        let (runs, old) = ([seen(&new)], [seen(&base)]);
        let text = html(&HtmlInput {
            runs: &runs,
            base: &old,
            machine: None,
            verdict: None,
            comparison: Some(&verdict),
            consistency: Err("not asked".into()),
            selftest: None,
            fit: Err("not asked".into()),
            fit_is_own: true,
            suspects: Err("not asked".into()),
        })
        .unwrap();
        assert!(text.contains("a chance of 5.00 % of any false alarm over all"), "the budget is shown");
        assert!(text.contains("--selftest selftest.json"), "and how to measure it");
        let at = |part: &str| text.find(&format!("world/&lt;b&gt;</td><td class=\"n\">9</td><td>{part}</td>")).unwrap();
        assert!(at("bandwidth") < at("latency"), "the worst first");
        assert!(text.contains("1.00 GB/s") && text.contains("0.500 GB/s") && text.contains("<td>worse</td>"));
        assert!(!text.contains("world/<b>"));
    }

    #[test]
    fn a_page_has_the_tables_of_a_step_with_the_columns_for_pages() {
        use crate::report::step::tests::{USUAL, record};
        let text = page(&record(&USUAL));
        for part in
            ["per axis and step", "the rule TP &gt; DP &gt; PP", "<td>by hand</td>", "<th scope=\"col\">why</th>"]
        {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn folds_are_closed_in_order_and_hold_what_is_beyond_the_first() {
        let text = page(&record(&sample_lines()));
        assert_eq!(text.matches("<details").count(), text.matches("</details>").count());
        assert_eq!(text.matches("<div").count(), text.matches("</div>").count());
    }
}
