//! Help, version and usage errors of the flag parser on the terminal, and errors that hold words of the command line.

use super::table_or_json::print;
use commgauge_base::message::eprintln;
use commgauge_base::visible::{is_control_or_format, visible};

/// Prints help, version or a usage error. Words of the command line with control characters are written out, without colours; a
/// closed pipe is no reason to fail.
pub fn show(message: &clap::Error) {
    if acting_words().next().is_none() {
        return drop(message.print());
    }
    let text = written_out(message.render().to_string());
    if message.use_stderr() {
        eprintln!("{}", text.trim_end());
    } else {
        drop(print(&text));
    }
}

/// A message in which no word of the command line begins a line of its own.
pub fn written_out(message: String) -> String {
    acting_words().fold(message, |text, word| {
        // Of a flag with its value messages show either.
        let value = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
        text.replace(&word, &visible(&word)).replace(value, &visible(value))
    })
}

/// The words of the command line that would act on a terminal.
fn acting_words() -> impl Iterator<Item = String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    words.filter(|word| word.contains(is_control_or_format))
}
