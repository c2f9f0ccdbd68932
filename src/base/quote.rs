//! Quotes words so that a shell reads them back unchanged. Only POSIX quoting is used, so any shell works. A word with control or format
//! characters is written as a call of printf: a line feed in a file name would start a new line, and other characters affect the terminal.

use crate::visible::is_control_or_format;

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
