//! The report as Markdown: the facts as a list, one table, findings and warnings. For issues and pages.

use super::plain_table::markdown_table;
use super::row::Row;
use super::step::{self, Part};
use super::text::visible;
use super::view::View;
use super::{calibration, contention, interference, products, replay, screen};
use commgauge_base::units::{Rate, Seconds, three_digits};
use commgauge_base::variant;

const HEADINGS: [(&str, bool); 14] = [
    ("axis", false),
    ("groups x ranks", false),
    ("hosts x ranks per host", false),
    ("collective", false),
    ("size", true),
    ("type", false),
    ("op", false),
    ("placement", false),
    ("cadence", false),
    ("samples (replicates)", true),
    ("median, us [95 % interval]", true),
    ("p99, us", true),
    ("busbw, GB/s (of bound)", true),
    ("check", false),
];

/// The document.
pub(super) fn text(view: &View) -> String {
    let mut out = format!("# commgauge: {}\n\n", escaped(&view.header.suite.name));
    if view.header.backend.synthetic {
        out += "**SYNTHETIC: no data moved and no real time passed; these are not measurements.**\n\n";
    }
    for (label, text) in &view.provenance {
        out += &format!("* **{label}**: {}\n", escaped(text));
    }
    out += &match &view.pairs {
        Some(pairs) => super::pairs::markdown::text(pairs),
        None => rows(view),
    };
    let mut parts: Vec<Part> = view.steps.iter().flat_map(|step| step::markdown(step, &view.rows)).collect();
    parts.extend(screen::part(view, &markdown_table, &bullets));
    parts.extend(contention::part(view, &markdown_table));
    parts.extend(interference::part(view, &markdown_table));
    parts.extend(calibration::part(view, &markdown_table));
    parts.extend(products::part(view, &markdown_table));
    parts.extend(replay::parts(view, &markdown_table, &bullets));
    for part in parts {
        let level = if part.below { "###" } else { "##" };
        out += &format!("\n{level} {}\n\n{}", escaped(&part.title), part.body);
    }
    for (heading, sentences) in [("Findings", &view.findings), ("Warnings", &view.warnings)] {
        if !sentences.is_empty() {
            out += &format!("\n## {heading}\n\n");
        }
        for sentence in sentences {
            out += &format!("* {}\n", escaped(sentence));
        }
    }
    out + &format!("\n{}\n", view.summary())
}

/// The table of cases and what its columns mean.
fn rows(view: &View) -> String {
    let mut out = String::new();
    let headings: Vec<&str> = HEADINGS.iter().map(|(heading, _)| *heading).collect();
    let rules: Vec<&str> = HEADINGS.iter().map(|(_, right)| if *right { "---:" } else { "---" }).collect();
    out += &format!("\n| {} |\n| {} |\n", headings.join(" | "), rules.join(" | "));
    for row in &view.rows {
        out += &format!("| {} |\n", cells(row).join(" | "));
    }
    out += "\nTimes are of one call, the slowest rank's, of ping\\_pong one way; the interval of the median is the hull of \
            the replicates' own 95 % intervals. GB = 10^9 B, sizes are binary.\n";
    out
}

fn cells(row: &Row) -> [String; HEADINGS.len()] {
    let (facts, latency) = (&row.facts, row.latency.as_ref());
    let dash = || "-".to_owned();
    let microseconds = |seconds: Seconds| three_digits(seconds.0 * 1e6);
    let gigabytes = |rate: Rate| three_digits(rate.gigabytes_per_second());
    let axis = format!("{} {}", facts.axis, facts.style.name());
    let median = latency.map(|latency| match latency.interval {
        Some((low, high)) => {
            format!("{} [{} .. {}]", microseconds(latency.median), microseconds(low), microseconds(high))
        }
        None => format!("{} [n/a]", microseconds(latency.median)),
    });
    let busbw = row.busbw.map(|rate| match row.bound_share {
        Some(share) => format!("{} ({:.0} %)", gigabytes(rate), share * 100.0),
        None => gigabytes(rate),
    });
    let p99 = latency.map(|latency| latency.p99.map_or_else(|| "n/a".to_owned(), microseconds));
    [
        axis,
        format!("{} x {}", facts.groups, facts.group_size),
        facts.locality.to_string(),
        format!("{} {}", super::columns::collective(row), escaped(&variant::shown(&facts.labels)))
            .trim_end()
            .to_owned(),
        facts.bytes_total.to_string(),
        facts.element_type.to_string(),
        facts.reduce_op.map_or_else(dash, |op| op.to_string()),
        facts.placement.to_string(),
        facts.cadence.to_string(),
        format!("{} ({}/{})", row.samples, row.replicates, row.replicates_planned),
        median.unwrap_or_else(dash),
        p99.unwrap_or_else(dash),
        busbw.unwrap_or_else(dash),
        escaped(&row.status.to_string()),
    ]
}

/// Sentences as a list.
pub(super) fn bullets(sentences: Vec<String>) -> String {
    let bullets = sentences.iter().map(|sentence| format!("* {}\n", escaped(sentence)));
    std::iter::once("\n".to_owned()).chain(bullets).collect()
}

/// A text from the record, escaped for Markdown.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in visible(text).chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '#' | '!' => out.extend(['\\', c]),
            c => out.push(c),
        }
    }
    out
}

/// A command to be copied: a code span, unless a renderer could take it for markup, in which case it is escaped.
pub(super) fn code(text: &str) -> String {
    let shown = visible(text);
    match shown.contains(['`', '<', '>', '&']) {
        true => escaped(text),
        false => format!("`{shown}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_copied_and_cannot_break_out_of_markup() {
        assert_eq!(code("run -n 2 --hosts a_b:1  # why"), "`run -n 2 --hosts a_b:1  # why`");
        assert_eq!(code("a`<b>"), "a\\`&lt;b&gt;");
        assert!(!code("a\n# b\u{1b}[31m").contains(['\n', '\u{1b}']));
    }
}
