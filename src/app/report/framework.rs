//! The choices that a framework made because no flag or key did.

use commgauge_model::config::step::FrameworkChoices;

/// What the framework decided, and where it does: a heading and a line for each choice.
pub fn framework_defaults(choices: &FrameworkChoices) -> Vec<String> {
    let (name, version) = (choices.framework, &choices.version);
    if choices.defaults.is_empty() {
        return vec![format!("as {name} ({version}) would: every choice was given")];
    }
    let heading = format!("defaults of {name} ({version}), each to be set by its own flag or key:");
    let lines = choices.defaults.iter();
    std::iter::once(heading)
        .chain(lines.map(|default| format!("{} = {} ({})", default.key, default.value, default.source)))
        .collect()
}
