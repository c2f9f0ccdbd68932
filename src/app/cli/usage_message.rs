//! Help, version and usage errors of the flag parser on the terminal.

use super::table_or_json::print;
use commgauge_base::message::eprintln;
use commgauge_base::visible::is_control_or_format;
use std::ffi::OsString;

/// Prints help, version or a usage error. Words of the command line with control characters are shown without them, and without
/// colours; a closed pipe is no reason to fail.
pub fn show(message: &clap::Error) {
    let acts = |word: OsString| word.to_string_lossy().contains(is_control_or_format);
    if !std::env::args_os().any(acts) {
        return drop(message.print());
    }
    let text = message.render().to_string();
    if message.use_stderr() {
        eprintln!("{}", text.trim_end());
    } else {
        drop(print(&text));
    }
}
