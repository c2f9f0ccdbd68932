//! Text from files, hosts and flags without characters that affect a terminal.
//!
//! Control characters move the cursor and change colours, line breaks forge lines, bidirectional controls reorder what is read.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::path::Path;

/// Paths in messages. `Path::display` passes line feeds through, with which a file name could forge a line.
pub trait ShownPath {
    /// The path on one line, as [`visible`].
    fn shown(&self) -> Cow<'_, str>;
}

impl ShownPath for OsStr {
    fn shown(&self) -> Cow<'_, str> {
        match self.to_string_lossy() {
            Cow::Borrowed(text) => visible(text),
            Cow::Owned(text) => Cow::Owned(visible(&text).into_owned()),
        }
    }
}

impl ShownPath for Path {
    fn shown(&self) -> Cow<'_, str> {
        self.as_os_str().shown()
    }
}

/// The text on one line: control characters, line breaks, bidirectional controls and zero-width characters are written out.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, is_control_or_format)
}

/// For a text of several lines: line feeds and tabs stay.
pub fn visible_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| is_control_or_format(c) && !matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, acts: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| if acts(c) { shown.extend(c.escape_default()) } else { shown.push(c) });
    Cow::Owned(shown)
}

/// The text of a JSON document without raw control and format characters; within strings an escape is the same text.
pub fn visible_json(json: &str) -> Cow<'_, str> {
    if !json.contains(|c| c != '\n' && is_control_or_format(c)) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if c == '\n' || !is_control_or_format(c) {
            out.push(c);
            continue;
        }
        let mut units = [0; 2];
        c.encode_utf16(&mut units).iter().for_each(|unit| out += &format!("\\u{unit:04x}"));
    }
    Cow::Owned(out)
}

/// True for control and format characters, which are invisible.
pub fn is_control_or_format(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

// Quotes words so that a shell reads them back unchanged. Only POSIX quoting is used, so any shell works. A word with control or format
// characters is written as a call of printf: a line feed in a file name would start a new line, and other characters affect the terminal.

/// The word, in single quotes if it has characters that are special to a shell.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    // A shell's command substitution strips trailing line feeds.
    if word.contains(is_control_or_format) && !word.ends_with('\n') {
        return format!("\"$(printf -- '{}')\"", word.chars().map(for_printf).collect::<String>());
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A character of a format of printf(1), in single quotes.
fn for_printf(c: char) -> String {
    match c {
        '\\' | '\'' => format!("\\{:03o}", u32::from(c)),
        '%' => "%%".to_owned(),
        c if is_control_or_format(c) => c.to_string().bytes().map(|byte| format!("\\{byte:03o}")).collect(),
        c => c.to_string(),
    }
}

/// Quotes the first word of a command, in which an `=` would make it an assignment.
pub fn quote_program(word: &str) -> String {
    if word.contains('=') { format!("'{}'", word.replace('\'', r"'\''")) } else { quote(word) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_is_passed_on() {
        for (text, shown) in [
            ("node-a", "node-a"),
            ("naïve 東", "naïve 東"),
            ("a\x1b[31mb", "a\\u{1b}[31mb"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{9b}x\u{202e}y\u{200b}", "\\u{9b}x\\u{202e}y\\u{200b}"),
        ] {
            assert_eq!(visible(text), shown);
        }
        assert_eq!(Path::new("run\ncommgauge: all is well.jsonl").shown(), "run\\ncommgauge: all is well.jsonl");
        assert_eq!(visible_lines("a\nb\tc\r\x07"), "a\nb\tc\\r\\u{7}");
        assert_eq!(visible_json("{\n\"a\": \"\u{9b}\u{202e}é\"}"), "{\n\"a\": \"\\u009b\\u202eé\"}");
    }
}

#[cfg(test)]
mod quote_tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    fn through_a_shell(words: &[String]) -> Vec<String> {
        let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
        // One NUL-terminated item per word: NUL is the only byte that a word cannot contain.
        let script = format!("printf '%s\\0' {}", quoted.join(" "));
        let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("UTF-8 in, UTF-8 out");
        text.split_terminator('\0').map(str::to_owned).collect()
    }

    #[test]
    fn plain_words_stay_readable_and_others_are_quoted() {
        for (word, expected) in [
            ("--host", "--host"),
            ("a:2,b:2", "a:2,b:2"),
            ("", "''"),
            ("my suite.toml", "'my suite.toml'"),
            ("a\nb 5%.toml", r#""$(printf -- 'a\012b 5%%.toml')""#),
            ("a\u{9b}\u{202e}", r#""$(printf -- 'a\302\233\342\200\256')""#),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("~/x", "'~/x'"),
            ("a;b", "'a;b'"),
        ] {
            assert_eq!(quote(word), expected);
        }
        assert_eq!(quote_program("A=b"), "'A=b'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_reads_every_word_back_unchanged(words in prop::collection::vec("[^\0]{0,12}", 1..6)) {
            prop_assert_eq!(through_a_shell(&words), words);
        }
    }
}
