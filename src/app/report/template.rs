//! The JSON of an answer through a template (MiniJinja): texts for people and the small formats that come with the program, and
//! `--format template:FILE` for a user's own.
//!
//! `null` prints nothing, numbers print without an exponent, and a key that the answer does not have is an error. No text is
//! escaped by itself: each format has a filter for its texts.

use super::document::{
    Block, Column, Row, Table, TableLayout, Tone, gigabytes, percent, seconds_range, signed_percent, widths,
};
use super::text::{harmless, visible, wrap};
use crate::chart::escaped;
use commgauge_base::error::{Error, Result};
use commgauge_base::stats::Interval;
use commgauge_base::units::{Bytes, Rate, Seconds, counted, three_digits};
use commgauge_base::visible::{ShownPath, visible_lines};
use commgauge_model::config::likely_key;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, ValueKind};
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value as JinjaValue, escape_formatter};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A template of a user's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    path: PathBuf,
    source: String,
}

impl Template {
    /// The template of a file, checked as far as is possible without an answer.
    ///
    /// # Errors
    /// A usage error where the file cannot be read or is no template.
    pub fn read(path: &Path) -> Result<Template> {
        let source = std::fs::read_to_string(path)
            .map_err(|cause| Error::usage(format!("{}: cannot read the template: {cause}", path.shown())))?;
        let template = Template { path: path.to_owned(), source };
        let parsed = environment().template_from_str(&template.source).map(drop);
        parsed.map_err(|cause| template.wrong(&cause, &Value::Null)).map(|()| template)
    }

    /// An answer through it.
    ///
    /// # Errors
    /// A usage error with file and line where the template asks for what the answer does not have.
    pub fn draw(&self, answer: &Value) -> Result<String> {
        let drawn =
            environment().render_str(&self.source, Serde(answer)).map_err(|cause| self.wrong(&cause, answer))?;
        Ok(visible_lines(&drawn).into_owned())
    }

    /// What is wrong: file and line, what was found, and what the answer has.
    fn wrong(&self, cause: &minijinja::Error, answer: &Value) -> Error {
        let line = cause.line().map_or_else(String::new, |line| format!(":{line}"));
        let place = format!("{}{line}", self.path.shown());
        let found = cause.range().and_then(|range| self.source.get(range)).unwrap_or("").trim();
        if cause.kind() == minijinja::ErrorKind::UndefinedError {
            let mut known = BTreeSet::new();
            keys(answer, &mut known);
            let likely = likely_key(found.rsplit(['.', ' ']).next().unwrap_or(found), known.into_iter());
            return Error::usage(format!(
                "{place}: `{found}` is not in the answer{likely} `--format json` shows its keys"
            ));
        }
        let detail = cause.detail().map_or_else(String::new, |detail| format!(": {detail}"));
        let found = if found.is_empty() { String::new() } else { format!(" (at `{found}`)") };
        Error::usage(format!("{place}: {}{detail}{found}", cause.kind()))
    }
}

/// An answer through a template of the program.
///
/// # Errors
/// An environment error where the template does not fit the answer, which tests rule out.
pub(super) fn through(name: &'static str, source: &str, answer: impl Serialize) -> Result<String> {
    drawn(name, source, Serde(&answer))
}

/// A text for people through a template of the program, of an answer and what else the template sees. One that does not fit, which tests
/// rule out, says so in place of the text.
pub(crate) fn prose(name: &'static str, source: &str, answer: JinjaValue) -> String {
    drawn(name, source, answer).unwrap_or_else(|error| format!("{error}\n"))
}

/// The lines of [`prose`] that say something, such as the sentences of a list.
pub(super) fn lines(name: &'static str, source: &str, answer: JinjaValue) -> Vec<String> {
    prose(name, source, answer).lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn drawn(name: &'static str, source: &str, answer: impl Into<JinjaValue>) -> Result<String> {
    let mut environment = environment();
    if Path::new(name).extension().is_some_and(|ending| ending == "html") {
        environment.set_auto_escape_callback(|_| AutoEscape::Html);
    }
    let drawn = environment.render_named_str(name, source, answer.into());
    drawn.map_err(|cause| Error::environment(format!("cannot write {name}: {cause:#}")))
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let mut syntax = SyntaxConfig::builder();
    syntax.keep_trailing_newline(true).trim_blocks(true).lstrip_blocks(true);
    // Only delimiters can be refused, and these are the usual ones.
    environment.set_syntax(syntax.build().unwrap_or_default());
    environment.set_formatter(|out, state, value| match (value.kind(), f64::try_from(value.clone())) {
        (ValueKind::None, _) => Ok(()),
        (ValueKind::Number, Ok(number)) if !value.is_integer() => Ok(write!(out, "{number}")?),
        (ValueKind::String, _) if *state.auto_escape() == AutoEscape::Html && !value.is_safe() => {
            Ok(out.write_str(&escaped(&plain_text(value)))?)
        }
        _ => escape_formatter(out, state, value),
    });
    environment.add_filter("us", |seconds: Option<f64>| seconds.map(|seconds| seconds * 1e6));
    environment.add_filter("gb", |bytes: Option<f64>| bytes.map(|bytes| bytes / 1e9));
    environment.add_filter("duration", |seconds: Option<f64>| seconds.map(|seconds| Seconds(seconds).to_string()));
    environment.add_filter("rate", |rate: Option<f64>| rate.map(|rate| Rate(rate).to_string()));
    environment.add_filter("size", |bytes: Option<u64>| bytes.map(|bytes| Bytes(bytes).to_string()));
    environment.add_filter("csv", |value: JinjaValue| quoted(&plain_text(&value)));
    environment.add_filter("signed_percent", signed_percent);
    environment.add_filter("counted", |count: usize, noun: &str| counted(count, noun));
    environment.add_filter("thousands", thousands);
    environment.add_filter("three_digits", three_digits);
    environment.add_filter("gigabytes", |bytes: u64| gigabytes(Bytes(bytes)));
    environment.add_filter("seconds_range", |low: Option<f64>, high: Option<f64>| {
        seconds_range(low.zip(high).map(|(low, high)| Interval { low, high }))
    });
    environment
        .add_filter("percent", |share: Option<f64>, decimals: usize| share.map(|share| percent(share, decimals)));
    environment.add_filter("optional", |value: JinjaValue| if value.is_none() { "-".into() } else { value });
    environment.add_filter("cell", |value: JinjaValue| visible(&plain_text(&value)).replace('|', BAR));
    environment.add_filter("table", table);
    environment.add_filter("item", item);
    environment.add_filter("wrapped", |text: &str, width: u16, indent: Option<usize>| {
        wrap(&text.replace('\n', " "), usize::from(width), indent.unwrap_or(4)) + "\n"
    });
    environment.add_filter("line", |value: JinjaValue| visible(&plain_text(&value)));
    environment.add_filter("xml", |value: JinjaValue| escaped(&plain_text(&value)).replace("&#39;", "&apos;"));
    environment.add_filter("label", |value: JinjaValue| {
        visible(&plain_text(&value)).replace('\\', "\\\\").replace('"', "\\\"")
    });
    environment
}

/// A value as the template prints it.
fn plain_text(value: &JinjaValue) -> String {
    match value.kind() {
        ValueKind::None => String::new(),
        _ => value.to_string(),
    }
}

/// Replaces `|` within a cell: a character that no visible text has.
const BAR: &str = "\u{1}";

/// The table of a text whose lines are rows, with `|` between their cells. Of the first, the headings, those of numbers begin with `>`, a
/// unit comes after `;`, and those that end in `:N` are of columns that narrow terminals do without, the largest N first; `:page` is for
/// pages only. Where the last ends in `...`, its cells are cut, so that every row stays on one line; where it ends in `+`, they continue below.
fn table(text: &str, width: u16) -> String {
    let mut table = parsed_table("", text.lines());
    let Some(last) = table.columns.last_mut() else { return String::new() };
    let heading = last.heading.trim_end_matches(['.', '+']);
    match std::mem::replace(&mut last.heading, heading).strip_prefix(heading) {
        Some("...") => with_last_cut(table, width),
        Some("+") => with_last_broken(table, width),
        _ => table,
    }
    .text(width)
}

fn parsed_table<'a>(title: &str, lines: impl Iterator<Item = &'a str>) -> Table {
    // Those of the first column may be indented.
    let cells = |line: &str| {
        let (first, others) = line.split_once('|').unzip();
        let others = others.into_iter().flat_map(|others| others.split('|')).map(str::trim);
        let all = [first.unwrap_or(line).trim_end()].into_iter().chain(others);
        all.map(|cell| cell.replace(BAR, "|")).collect::<Vec<String>>()
    };
    let column = |heading: String| {
        // Headings live as long as the program, and a table has few.
        let heading: &'static str = heading.leak();
        let rank = |word: &str| if word == "page" { Some(Column::PAGES_ONLY) } else { word.parse().ok() };
        let parts = heading.rsplit_once(':').and_then(|(name, word)| Some((name, rank(word)?)));
        let (name, expendable) = parts.unwrap_or((heading, 0));
        let (name, unit) = name.split_once(';').unwrap_or((name, ""));
        let number = name.strip_prefix('>').map(|name| Column::right(name, expendable));
        number.unwrap_or(Column::left(name, expendable)).in_unit(unit)
    };
    let mut lines = lines.filter(|line| !line.trim().is_empty());
    let columns: Vec<Column> = lines.next().map(cells).into_iter().flatten().map(column).collect();
    let row = |line: &str| {
        let toned = TONES.iter().find_map(|(mark, tone)| Some((line.strip_prefix(mark)?, *tone)));
        let (line, tone) = toned.unwrap_or((line, Tone::Plain));
        Row::toned(tone, cells(line))
    };
    Table::new(title, &columns, lines.map(row))
}

/// Marks at the beginning of a row.
const TONES: [(&str, Tone); 3] = [("[good]", Tone::Good), ("[bad]", Tone::Bad), ("[unsure]", Tone::Unsure)];

/// The mark of a row.
pub(super) fn mark(tone: Tone) -> &'static str {
    TONES.iter().find(|(_, marked)| *marked == tone).map_or("", |(mark, _)| mark)
}

/// The blocks of a template of the program, with an empty line between them: lists of sentences, and tables.
///
/// A table begins with `#` and its title, or `##` below another part. Then come its remarks: a line of `<` collapses it on a page, one of `=`
/// leaves out columns that agree in all rows, `^` says where all rows are, and `~` is the note below it. The lines of the filter `table`
/// follow, rows with a tone behind `[good]`, `[bad]` or `[unsure]`.
pub(super) fn blocks(name: &'static str, source: &str, answer: JinjaValue) -> Vec<Block> {
    let text = prose(name, source, answer);
    text.split("\n\n").map(|part| part.trim_matches('\n')).filter(|part| !part.is_empty()).map(block).collect()
}

fn block(text: &str) -> Block {
    let Some((title, lines)) = text.strip_prefix('#').and_then(|table| table.split_once('\n')) else {
        return Block::list(text.lines());
    };
    let is_remark = |line: &&str| line.starts_with(['<', '=', '^', '~']);
    let remark = |mark| lines.lines().take_while(is_remark).find_map(|line| line.strip_prefix(mark)).map(str::trim);
    let rows = lines.lines().skip_while(is_remark);
    let table = Table {
        elsewhere: remark('^').unwrap_or_default().to_owned(),
        folded: remark('<').is_some(),
        level: 2 + u8::from(title.starts_with('#')),
        ..parsed_table(title.trim_start_matches('#').trim(), rows).noted(remark('~').unwrap_or_default())
    };
    Block::Table(if remark('=').is_some() { table.without_columns_that_agree() } else { table })
}

/// Minimum width of a column that is cut or broken; narrower terminals wrap it.
const SHORTEST: usize = 20;

/// What the others leave of the width.
fn room_of_last(table: &Table, width: u16) -> usize {
    let mut widths = widths(&table.columns, &table.rows);
    widths[table.columns.len() - 1] = SHORTEST;
    let before = TableLayout::new(&table.columns, widths, usize::from(width));
    SHORTEST + usize::from(width).saturating_sub(before.width())
}

fn with_last_cut(mut table: Table, width: u16) -> Table {
    let (last, longest) = (table.columns.len() - 1, room_of_last(&table, width));
    for row in &mut table.rows {
        let cell = visible(&row.cells[last]);
        row.cells[last] = match cell.chars().count() > longest {
            true => cell.chars().take(longest - 3).chain("...".chars()).collect(),
            false => cell,
        };
    }
    table
}

fn with_last_broken(mut table: Table, width: u16) -> Table {
    let (last, longest) = (table.columns.len() - 1, room_of_last(&table, width));
    let broken = |row: Row| {
        let text = wrap(&row.cells[last], longest, 0);
        let line = |(index, line): (usize, &str)| {
            let mut cells = if index == 0 { row.cells.clone() } else { vec![String::new(); last + 1] };
            line.clone_into(&mut cells[last]);
            Row::toned(row.tone, cells)
        };
        text.lines().enumerate().map(line).collect::<Vec<_>>()
    };
    table.rows = table.rows.into_iter().flat_map(broken).collect();
    table
}

/// A paragraph behind a mark, whose further lines are indented; on the narrowest terminals it takes `least` columns even so.
fn item(text: &str, mark: &str, width: u16, least: Option<usize>) -> String {
    let indent = mark.chars().count().max(4);
    let room = usize::from(width).saturating_sub(indent).max(least.unwrap_or(20));
    format!("{mark}{}\n", wrap(text, room, 0).replace('\n', &format!("\n{:indent$}", "")))
}

/// Formats 8030261248 as 8,030,261,248.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// A cell of a line of comma-separated values, which no spreadsheet takes for a formula.
fn quoted(text: &str) -> String {
    let text = harmless(text);
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

fn keys<'a>(answer: &'a Value, found: &mut BTreeSet<&'a str>) {
    match answer {
        Value::Object(fields) => {
            for (key, value) in fields {
                found.insert(key);
                keys(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use minijinja::context;
    use serde_json::json;

    fn drawn(source: &str) -> Result<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.txt");
        std::fs::write(&path, source).unwrap();
        let rows = json!([
            {"case": "a,\"b\"<\u{1b}[2J&", "latency_seconds_median": 0.0000125, "busbw": null, "samples": 3, "bytes": 1_048_576},
        ]);
        let drawn = Template::read(&path).and_then(|own| own.draw(&json!({ "rows": rows, "share": 1.0 })));
        drawn.map_err(|error| Error::usage(error.to_string().replace(&path.display().to_string(), "own.txt")))
    }

    #[test]
    fn numbers_are_grouped_by_thousands() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (8_030_261_248, "8,030,261,248")] {
            assert_eq!(thousands(number), expected);
        }
    }

    #[test]
    fn a_cell_may_hold_what_separates_cells_and_lines() {
        let rows = json!([{ "name": "a | b\n|", "time": null }, { "name": "c", "time": 0.002 }]);
        let source = "{% filter table(40) %}\n| > | >time:1\n{% for row in rows %}\n\
            | {{ row.name|cell }} | {{ row.time|duration|optional }}\n{% endfor %}\n{% endfilter %}\n";
        let text = prose("own.txt", source, context! { rows => Serde(rows) });
        let expected = "               time\n-------------------\n  a | b\\n|        -\n         c  2.00 ms\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn blocks_are_lists_and_tables_whose_remarks_come_before_their_headings() {
        let source = "one\ntwo\n\n## a title\n<\n^ elsewhere\n~ a note\nname;unit | >count:2 | why:page\n[bad]{{ name|cell }} | 3 | x\n~b | 4 | y\n";
        let [list, table] = &blocks("own.txt", source, context! { name => "= | \n\n#" })[..] else {
            panic!("two blocks")
        };
        assert_eq!(*list, Block::list(["one", "two"]));
        let Block::Table(table) = table else { panic!("{table:?}") };
        assert_eq!((table.title.as_str(), table.level, table.folded), ("a title", 3, true));
        assert_eq!((table.elsewhere.as_str(), table.note.as_str()), ("elsewhere", "a note"));
        let why = Column::left("why", Column::PAGES_ONLY);
        assert_eq!(table.columns, [Column::left("name", 0).in_unit("unit"), Column::right("count", 2), why]);
        let rows: Vec<(Tone, &str)> = table.rows.iter().map(|row| (row.tone, row.cells[0].as_str())).collect();
        assert_eq!(rows, [(Tone::Bad, "= | \\n\\n#"), (Tone::Plain, "~b")], "no text of a cell is a remark");
    }

    #[test]
    fn a_wrong_template_names_its_line_and_a_missing_key_what_was_meant() {
        for (source, words) in [
            (
                "a\n{{ rows[0].latency_seconds_medain }}",
                "own.txt:2: `rows[0].latency_seconds_medain` is not in the answer; did you mean `latency_seconds_median`?",
            ),
            ("{% for row in rwos %}{% endfor %}", "own.txt:1: `rwos` is not in the answer; did you mean `rows`?"),
            ("{% if rows[0].nothing %}{% endif %}", "nothing` is not in the answer. `--format json` shows its keys"),
            ("\n\n{% for row in rows %}", "own.txt:3: syntax error"),
            ("{{ share|nothing }}", "own.txt:1: unknown filter"),
            ("{{ rows[0].case|us }}", "own.txt:1: "),
        ] {
            let error = drawn(source).expect_err(source);
            assert!(error.to_string().contains(words), "{source}: {error}");
            assert_eq!(error.exit_code(), 2, "{source}");
        }
        let absent = Template::read(Path::new("no-such-template")).unwrap_err();
        assert!(absent.to_string().contains("no-such-template: cannot read the template"), "{absent}");
    }

    #[test]
    fn filters_turn_base_units_and_texts_into_those_of_a_format() {
        for (source, text) in [
            ("{{ rows[0].latency_seconds_median }} {{ share }} {{ rows[0].busbw }}.\n", "0.0000125 1 .\n"),
            ("{{ rows[0].latency_seconds_median|us }} {{ rows[0].busbw|us }}.", "12.5 ."),
            ("{{ rows[0].latency_seconds_median|duration }}, {{ rows[0].bytes|size }}", "12.5 us, 1 MiB"),
            ("{{ rows[0].case|csv }}", r#""a,""b""<\u{1b}[2J&""#),
            ("{{ rows[0].case|xml }}", r"a,&quot;b&quot;&lt;\u{1b}[2J&amp;"),
            ("{{ rows[0].case|label }}", r#"a,\"b\"<\\u{1b}[2J&"#),
            ("{{ rows[0].case }}\n", "a,\"b\"<\\u{1b}[2J&\n"),
            ("{% for row in rows if row.cadence is defined %}x{% endfor %}", ""),
        ] {
            assert_eq!(drawn(source).unwrap(), text, "{source}");
        }
    }
}
