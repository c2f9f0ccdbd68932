//! Completes the definition of every program: commands in groups, exit codes below the long help, and `--color` for commands without
//! a table. Flags that the short help leaves out say so themselves (`hide_short_help`).

use crate::report::ColorChoice;
use clap::{Arg, Command, builder::EnumValueParser};

/// The groups of the commands of `commgauge`, each with its first one.
const GROUPS: [(&str, &str); 5] =
    [("Measure", "run"), ("Judge", "judge"), ("Look", "report"), ("Plan", "calibrate"), ("Know", "ops")];

const EXIT_CODES: &str = include_str!("exit_codes.txt");

/// The completed definition.
pub(crate) fn finished(definition: Command) -> Command {
    let hidden = definition.get_arguments().filter(|flag| flag.is_hide_short_help_set() && !flag.is_hide_set()).count();
    let definition = if definition.get_name() == "commgauge" { grouped(definition) } else { definition };
    let definition = with_color(definition);
    let above = definition.get_after_long_help().or(definition.get_after_help()).map(ToString::to_string);
    let text = above.into_iter().chain([EXIT_CODES.trim_end().to_owned()]).collect::<Vec<_>>().join("\n\n");
    let definition = definition.after_long_help(text);
    let definition = match hidden {
        0 => definition,
        1 => definition.after_help("1 more flag, and exit codes: --help"),
        hidden => definition.after_help(format!("{hidden} more flags, and exit codes: --help")),
    };
    definition.mut_subcommands(finished)
}

/// The definition as `-h` shows it: flags without their groups, one below the other, each with the first clause of its help and the
/// values that it takes.
pub(crate) fn shortened(definition: Command) -> Command {
    definition.mut_args(|flag| clause(flag.help_heading(None))).mut_subcommands(shortened)
}

fn clause(flag: Arg) -> Arg {
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let end = ["; ", ": ", " (", " [default"].iter().filter_map(|mark| help.find(mark)).min();
    let clause = help[..end.unwrap_or(help.len())].to_owned();
    let values: Vec<String> = match flag.get_action().takes_values() {
        true => flag.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect(),
        false => Vec::new(),
    };
    match values.is_empty() {
        true => flag.help(clause),
        false => flag.help(format!("{clause}: {}", values.join(", "))).hide_possible_values(true),
    }
}

/// The commands of `commgauge` below their headings; the flag parser has none for commands.
fn grouped(definition: Command) -> Command {
    let commands = definition.get_subcommands().filter(|command| !command.is_hide_set());
    let commands = commands.fold(String::new(), |text, command| {
        let name = command.get_name();
        let heading = GROUPS.iter().find(|(_, first)| *first == name).map_or("", |(heading, _)| heading);
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        text + &format!("  {heading:<8} {name:<10} {about}\n")
    });
    definition.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}\n{{options}}{{after-help}}"
    ))
}

fn with_color(definition: Command) -> Command {
    let has_color = definition.get_arguments().any(|argument| argument.get_id() == "color");
    if has_color || definition.has_subcommands() && definition.get_arguments().next().is_none() {
        return definition;
    }
    let parser = EnumValueParser::<ColorChoice>::new();
    let help = "When to colour help and errors; NO_COLOR and TERM=dumb are heeded";
    let color =
        Arg::new("color").long("color").value_name("WHEN").value_parser(parser).default_value("auto").help(help);
    definition.arg(color.hide_short_help(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::show::ProgramName;
    use clap::ValueEnum;

    /// Every program and command with its name.
    fn all() -> Vec<(String, Command)> {
        fn collect(definition: &Command, before: &str, all: &mut Vec<(String, Command)>) {
            let name = format!("{before}{}", definition.get_name());
            all.push((name.clone(), definition.clone()));
            definition.get_subcommands().for_each(|command| collect(command, &format!("{name} "), all));
        }
        let mut found = Vec::new();
        for program in ProgramName::value_variants() {
            collect(&program.definition(), "", &mut found);
        }
        found
    }

    #[test]
    fn the_short_help_of_every_program_fits_25_lines() {
        let lines =
            |definition: Command| shortened(definition).term_width(80).render_help().to_string().lines().count();
        let long: Vec<(String, usize)> =
            all().into_iter().map(|(name, definition)| (name, lines(definition))).collect();
        let long: Vec<&(String, usize)> =
            long.iter().filter(|(name, lines)| *lines > 25 && name != "commgauge").collect();
        assert!(long.is_empty(), "{long:?}");
    }

    #[test]
    fn the_long_help_has_every_flag_and_the_exit_codes() {
        for (name, mut definition) in all() {
            let text = definition.render_long_help().to_string();
            assert!(text.contains("Exit codes:") && text.contains("data arrived wrong"), "{name}: {text}");
            for flag in definition.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(Arg::get_long) {
                assert!(text.contains(&format!("--{flag}")), "{name} --{flag}");
            }
        }
    }

    #[test]
    fn the_first_help_shows_every_command_below_five_headings_on_one_screen() {
        let definition = ProgramName::Commgauge.definition().term_width(80);
        for help in [definition.clone().render_help(), definition.clone().render_long_help()] {
            let text = help.to_string();
            assert!(
                text.lines().count() <= 24 + definition.get_subcommands().count()
                    && text.lines().all(|line| line.chars().count() <= 80),
                "{text}"
            );
            let places = ["Measure  run", "Judge    judge", "Look     report", "Plan     calibrate", "Know     ops"]
                .map(|first| text.find(first).unwrap_or_else(|| panic!("{first}: {text}")));
            assert!(places.is_sorted(), "{text}");
            for command in definition.get_subcommands() {
                assert!(text.contains(&format!(" {} ", command.get_name())), "{}: {text}", command.get_name());
            }
        }
    }

    #[test]
    fn every_command_takes_a_choice_of_colours() {
        for (name, definition) in all().into_iter().filter(|(_, definition)| !definition.has_subcommands()) {
            assert!(definition.get_arguments().any(|flag| flag.get_long() == Some("color")), "{name}");
        }
    }
}
