//! What each drawer makes of known documents.

use super::*;

const COLUMNS: [Column; 3] = [Column::left("name", 0), Column::right("count", 2), Column::left("remark", 1)];

fn drawn(blocks: &[Block], width: u16) -> String {
    Terminal::plain(width).draw(blocks)
}

fn cells(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn one() -> Table {
    Table::new("", &COLUMNS, [cells(&["one", "1", "a long remark"])])
}

#[test]
fn columns_that_do_not_fit_are_left_out_by_priority_and_listed() {
    let blocks = [Block::Table(one())];
    let wide = "name  count  remark\n--------------------------\none       1  a long remark\n";
    assert_eq!(drawn(&blocks, 80), wide);
    let narrow = drawn(&blocks, 20);
    assert_eq!(narrow.lines().last(), Some("(columns left out for want of width: count)"));
    assert!(narrow.contains("a long remark") && !narrow.contains(" 1"), "{narrow}");
    assert!(drawn(&blocks, 5).contains("left out for want of width: count, remark"));
}

#[test]
fn a_table_shows_more_columns_at_140_than_at_80() {
    let word = "x".repeat(36);
    let table = Table::new("Words:", &COLUMNS, [cells(&[&word, &word, &word])]);
    let at = |width| drawn(&[Block::Table(table.clone())], width);
    let rule = |columns: usize| "-".repeat(36 * columns + 2 * (columns - 1));
    let two = format!(
        "Words:\nname{:32}  remark\n{}\n{word}  {word}\n(columns left out for want of width: count)\n",
        "",
        rule(2)
    );
    assert_eq!(at(80), two);
    let three = format!("Words:\nname{:32}  {:31}count  remark\n{}\n{word}  {word}  {word}\n", "", "", rule(3));
    assert_eq!(at(140), three);
}

#[test]
fn a_column_of_sentences_keeps_its_width_on_a_page_where_others_want_room() {
    let sentence = "nine of nine replicates are beyond the limit; and data were not checked";
    let page = Html::default().section("", &[Block::Table(Table::new("", &COLUMNS, [cells(&["one", "1", sentence])]))]);
    assert!(page.contains(&format!("<td>one</td><td class=\"n\">1</td><td class=\"t\">{sentence}</td>")), "{page}");
}

#[test]
fn wide_characters_take_two_columns() {
    let rows = [cells(&["東京", "1", "x"]), cells(&["node", "2", "y"])];
    let table = Block::Table(Table::new("", &COLUMNS, rows));
    let expected = "name  count  remark\n-------------------\n東京      1  x\nnode      2  y\n";
    assert_eq!(drawn(&[table], 80), expected);
    assert_eq!(drawn(&[Block::text("東京 東京 東京")], 10), "東京 東京\n東京\n");
}

#[test]
fn units_stand_below_headings_on_a_terminal_and_beside_them_on_pages() {
    let columns = [Column::left("call", 0), Column::right("median", 0).in_unit("us")];
    let table = [Block::Table(Table::new("", &columns, [cells(&["all_reduce", "3.12"])]))];
    assert_eq!(drawn(&table, 80), "call        median\n                us\n------------------\nall_reduce    3.12\n");
    assert_eq!(markdown(&table), "\n| call | median, us |\n| --- | ---: |\n| all\\_reduce | 3.12 |\n");
    assert!(html(&table).contains("<th scope=\"col\" class=\"n\">median, us</th>"));
}

#[test]
fn columns_for_pages_are_silently_absent_from_terminals() {
    let columns = [Column::left("name", 0), Column::left("why", Column::PAGES_ONLY)];
    let table = Table::new("", &columns, [cells(&["one", "because"])]);
    assert_eq!(drawn(&[Block::Table(table.clone())], 80), "name\n----\none\n");
    assert_eq!(markdown(&[Block::Table(table)]), "\n| name | why |\n| --- | --- |\n| one | because |\n");
    let pages = Table::new("title", &columns[1..], [cells(&["because"])]);
    assert_eq!(drawn(&[Block::Table(pages), Block::text("end")], 80), "end\n");
}

#[test]
fn an_empty_table_has_its_headings_and_an_empty_list_is_nothing() {
    let blocks = [
        Block::Table(Table::new("Nothing", &COLUMNS[..1], Vec::<Row>::new())),
        Block::list(Vec::<String>::new()),
        Block::text("end"),
    ];
    assert_eq!(drawn(&blocks, 80), "Nothing\nname\n----\n\nend\n");
    assert_eq!(markdown(&blocks), "\n## Nothing\n\n| name |\n| --- |\n\nend\n");
    assert!(html(&blocks).contains("<tbody></tbody></table></div>\n<p>end</p>"));
}

#[test]
fn markup_and_control_characters_are_escaped_by_every_drawer() {
    const HOSTILE: &str = "a|b <i>*x*</i> & \"'\u{1b}[31m\u{202e}";
    let blocks = [
        Block::heading(HOSTILE),
        Block::list([HOSTILE]),
        Block::Facts(vec![Fact::new(HOSTILE, HOSTILE)]),
        Block::Table(Table::new(HOSTILE, &COLUMNS[..1], [cells(&[HOSTILE])])),
        Block::Command(HOSTILE.to_owned()),
    ];
    for text in [drawn(&blocks, 80), markdown(&blocks), html(&blocks)] {
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    }
    let page = markdown(&blocks);
    assert!(page.contains("| a\\|b &lt;i&gt;\\*x\\*&lt;/i&gt; &amp; \"'\\\\u{1b}\\[31m"), "{page}");
    assert!(!page.contains("<i>"), "{page}");
    let html = html(&blocks);
    assert!(html.contains("<td>a|b &lt;i&gt;*x*&lt;/i&gt; &amp; &quot;&#39;\\u{1b}[31m\\u{202e}</td>"), "{html}");
    assert!(!html.contains("<i>"), "{html}");
}

#[test]
fn a_document_reads_on_a_terminal_and_as_markdown() {
    let blocks = [
        Block::Alarm("SYNTHETIC".to_owned()),
        Block::Facts(vec![Fact::new("run", "1"), Fact::new("backend", "mpi")]),
        Block::Table(Table { title: "Rows:".to_owned(), ..one() }.noted("a note")),
        Block::list(["below the table"]),
        Block::marked(Mark::Alarm, ["careful"]),
        Block::Narrow(vec![Block::heading("Why:"), Block::list(["because"])]),
        Block::heading("Notes"),
        Block::marked(Mark::Number, ["first", "second of two that is wrapped"]),
        Block::Command("commgauge list".to_owned()),
        Block::apart(Mark::Dash, ["found"]),
        Block::Strong("1 case".to_owned()),
    ];
    let terminal = "SYNTHETIC\n\nrun      1\nbackend  mpi\n\nRows:\nname  remark\n-------------------\none   a long remark\n\
                    (columns left out for want of width: count)\na note\nbelow the table\n! careful\n\nWhy:\nbecause\n\nNotes\n\
                    [1] first\n[2] second of two that\n    is wrapped\n  next: commgauge list\n\n- found\n\n1 case\n";
    assert_eq!(drawn(&blocks, 22), terminal);
    let page = "\n**SYNTHETIC**\n\n* **run**: 1\n* **backend**: mpi\n\n## Rows\n\n| name | count | remark |\n| --- | ---: | --- |\n\
                | one | 1 | a long remark |\n\na note\n\n* below the table\n* careful\n\n## Notes\n\n* \\[1\\] first\n\
                * \\[2\\] second of two that is wrapped\n* next: `commgauge list`\n* found\n\n1 case\n";
    assert_eq!(markdown(&blocks), page);
}

#[test]
fn only_the_cells_of_a_status_have_the_colour_of_their_row() {
    let columns = [Column::left("name", 0), Column::left("check", 0).of_status(), Column::left("end", 0)];
    let rows =
        [(Tone::Bad, "WRONG"), (Tone::Plain, "-")].map(|(tone, check)| Row::toned(tone, cells(&["x", check, "y"])));
    let table = [Block::Table(Table::new("", &columns, rows))];
    let colored = Terminal::new(80, crate::report::color::Paint::Colors).draw(&table);
    assert!(colored.contains("x     \u{1b}[38;5;9mWRONG\u{1b}[39m  y\nx     -      y\n"), "{colored:?}");
    assert!(!drawn(&table, 80).contains('\u{1b}'));
    assert!(html(&table).contains("<tr class=\"bad\"><td>x</td>"));
}

#[test]
fn a_page_has_every_row_and_those_that_stand_out_first() {
    let mut rows: Vec<Row> = (0..1500).map(|row| vec![row.to_string(), "<b>".to_owned()].into()).collect();
    rows[1400].tone = Tone::Bad;
    let table = Table::new("many", &COLUMNS[..2], rows).whole_in("the CSV has every row").folded();
    let page = html(&[Block::Table(table.clone())]);
    assert!(page.starts_with("<details><summary>many</summary>") && page.matches("<tr").count() == 251, "{page}");
    assert!(page.contains("<tbody><tr class=\"bad\"><td>1400</td>"), "{page}");
    assert!(page.contains("<summary>1250 more rows, as text</summary><pre>\tname\tcount\n"), "{page}");
    for row in (0..1500).filter(|row| *row != 1400) {
        let as_row = page.contains(&format!("<tr><td>{row}</td><td class=\"n\">&lt;b&gt;</td>"));
        assert!(as_row != page.contains(&format!("\n\t{row}\t&lt;b&gt;\n")), "row {row} is there once");
    }
    assert!(!page.contains("the CSV has every row"), "nothing is left out");
    assert_eq!(markdown(&[Block::Table(table)]).lines().count(), 1500 + 5);
}

#[test]
fn what_a_page_has_no_room_for_is_said_before_the_rows() {
    let rows = (0..12_001).map(|row| vec![row.to_string()]);
    let table = Table::new("many", &COLUMNS[..1], rows).whole_in("the CSV has every row");
    let page = html(&[Block::Table(table)]);
    let alarm = "<p class=\"alarm\">12000 of 12001 rows, those that stand out first; the CSV has every row</p>";
    assert!(page.starts_with(alarm), "{}", &page[..200]);
    assert!(page.contains("\t11999\n") && !page.contains("12000\n"));
}

#[test]
fn no_two_headings_of_a_page_are_alike() {
    let table = || Block::Table(Table::new("per step:", &COLUMNS[..1], [cells(&["x"])]));
    let fold = || Block::folded("a step", vec![Block::heading("time"), table(), table()]);
    let mut page = Html::default();
    let text =
        page.section("one", &[Block::heading("time"), table(), fold(), fold()]) + &page.section("two", &[table()]);
    let mut heads: Vec<&str> = Vec::new();
    for tag in ["h3", "summary", "caption"] {
        let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
        heads.extend(text.split(&open).skip(1).filter_map(|rest| Some(rest.split_once(&close)?.0)));
    }
    let different: std::collections::HashSet<&&str> = heads.iter().collect();
    assert_eq!(heads.len(), different.len(), "{heads:?}");
    for expected in ["time (a step)", "per step (time (a step))", "a step (time)", "per step (two)"] {
        assert!(heads.contains(&expected), "{expected} in {heads:?}");
    }
}

#[test]
fn columns_that_agree_are_said_once() {
    let table = || Table::new("", &COLUMNS, [cells(&["one", "1", "x"]), cells(&["two", "1", "x"])]).noted("A note.");
    let shorter = table().without_columns_that_agree();
    assert_eq!(shorter.columns, COLUMNS[..1]);
    assert_eq!(shorter.rows[1].cells, ["two"]);
    assert_eq!(shorter.note, "A note. The same in all rows: count 1; remark x.");
    let one = Table { rows: table().rows[..1].to_vec(), ..table() };
    assert_eq!(one.clone().without_columns_that_agree(), one);
}
