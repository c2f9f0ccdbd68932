//! `commgauge show completions` and `commgauge show man`: shell completions and man pages, generated from the definitions that
//! also parse the flags and print the help.

use super::output::print;
use super::output::replace;
use super::program_name::ProgramName;
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, ValueEnum};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_model::config::Shipped;
use std::path::{Path, PathBuf};

/// Print the completions of a shell, for this program or a launched one
///
/// commgauge show completions bash > ~/.local/share/bash-completion/completions/commgauge
///
/// Commands, flags and their values are completed, and paths where a file is requested. In bash the shipped suites, models and
/// machines of the current directory are completed by name too; they are those of the moment at which this is run.
#[derive(Clone, Debug, clap::Args)]
pub struct CompletionsCommand {
    /// For which shell
    #[arg(value_enum)]
    pub shell: Shell,

    /// Of which program
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    pub program: ProgramName,
}

/// Shells that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Shell {
    /// Bash 4.4 and newer
    Bash,
    /// Zsh
    Zsh,
    /// Fish
    Fish,
}

/// Print or write man pages, of this program and the launched ones
///
/// commgauge show man | man -l -
///
/// commgauge show man -o ~/.local/share/man/man1
///
/// With a folder a page is written for every program and every command: commgauge.1, commgauge-run.1, commgauge-suite.1 ...
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ManCommand {
    /// Of which program [default: commgauge on stdout, all of them into a folder]
    #[arg(long, value_enum, value_name = "NAME")]
    pub program: Option<ProgramName>,

    /// Write the pages into this folder, which must be there
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
}

impl CompletionsCommand {
    /// Prints the script, for the program of this definition.
    pub fn execute(&self, definition: Command) -> Result<i32> {
        print(&completions(definition, self.shell)?)?;
        Ok(0)
    }
}

impl ManCommand {
    /// Prints the page of one program, or writes the pages of all.
    pub fn execute(&self, definition_of: fn(ProgramName) -> Command) -> Result<i32> {
        let Some(folder) = &self.output else {
            print(&page(&definition_of(self.program.unwrap_or_default()))?.text)?;
            return Ok(0);
        };
        if !folder.is_dir() {
            return Err(Error::usage(format!("--output {}: there is no such folder; make it first", folder.shown())));
        }
        let programs = self.program.as_ref().map_or(ProgramName::value_variants(), std::slice::from_ref);
        let pages = programs.iter().map(|program| pages(definition_of(*program))).collect::<Result<Vec<_>>>()?.concat();
        for page in &pages {
            replace(&folder.join(&page.file_name), &page.text)?;
        }
        eprintln!("{} man pages in {}", pages.len(), folder.shown());
        Ok(0)
    }
}

/// The script by which a shell completes a program.
fn completions(mut definition: Command, shell: Shell) -> Result<String> {
    let (shell, name) = match shell {
        Shell::Bash => (clap_complete::Shell::Bash, definition.get_name().to_owned()),
        Shell::Zsh => (clap_complete::Shell::Zsh, definition.get_name().to_owned()),
        Shell::Fish => (clap_complete::Shell::Fish, definition.get_name().to_owned()),
    };
    // Bash falls back to paths where no name fits; the other two would complete names only.
    if shell == clap_complete::Shell::Bash {
        definition = with_names(definition);
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition, name, &mut script);
    String::from_utf8(script).map_err(|_| Error::environment("the completions are not text in UTF-8"))
}

/// The definition, in which arguments that take the name of a shipped file list those names as values.
fn with_names(definition: Command) -> Command {
    let names = |requested: &str| match requested {
        "suite" => Shipped::Suite.names(),
        "model" => Shipped::Model.names(),
        "machine" => Shipped::Machine.names(),
        _ => Vec::new(),
    };
    let named = |argument: Arg| {
        let names = names(argument.get_id().as_str());
        if names.is_empty() || argument.get_num_args().is_some_and(|count| !count.takes_values()) {
            return argument;
        }
        // Clap needs names that live as long as the program, and this one ends soon.
        argument.value_parser(PossibleValuesParser::new(names.into_iter().map(|name| &*name.leak())))
    };
    definition.mut_args(named).mut_subcommands(with_names)
}

/// A man page.
#[derive(Clone)]
struct Page {
    file_name: String,
    text: String,
}

/// The pages of a program and its commands.
fn pages(definition: Command) -> Result<Vec<Page>> {
    let mut definition = definition.disable_help_subcommand(true);
    definition.build();
    let mut pages = Vec::new();
    collect(&definition, &mut pages)?;
    Ok(pages)
}

fn collect(definition: &Command, pages: &mut Vec<Page>) -> Result<()> {
    pages.push(page(definition)?);
    for command in definition.get_subcommands().filter(|command| !command.is_hide_set()) {
        collect(command, pages)?;
    }
    Ok(())
}

fn page(definition: &Command) -> Result<Page> {
    let name = definition.get_display_name().unwrap_or(definition.get_name()).to_owned();
    let mut bytes = Vec::new();
    let made = clap_mangen::Man::new(definition.clone());
    made.render(&mut bytes).map_err(|cause| Error::file("make the man page", Path::new(&name), cause))?;
    let text = String::from_utf8(bytes).map_err(|_| Error::environment("a man page is not text in UTF-8"))?;
    Ok(Page { file_name: format!("{name}.1"), text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_program_and_command_has_a_page_of_its_own() {
        let all: Vec<Page> =
            ProgramName::value_variants().iter().flat_map(|program| pages(program.definition()).unwrap()).collect();
        let names: BTreeSet<&str> = all.iter().map(|page| page.file_name.as_str()).collect();
        assert_eq!(names.len(), all.len(), "two pages of one name would overwrite each other: {names:?}");
        for wanted in
            ["commgauge.1", "commgauge-run.1", "commgauge-expect-lint.1", "commgauge-suite.1", "commgauge-pairs.1"]
        {
            assert!(names.contains(wanted), "{wanted} of {names:?}");
        }
        for Page { file_name: name, text } in &all {
            let head = format!(".TH {} 1", name.trim_end_matches(".1"));
            assert!(
                text.contains(&head) && text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"),
                "{name}: {text:.300}"
            );
        }
    }

    #[test]
    fn completions_name_the_program_its_commands_and_its_flags() {
        for program in ProgramName::value_variants() {
            for shell in Shell::value_variants() {
                let script = completions(program.definition(), *shell).unwrap();
                let definition = program.definition();
                assert!(script.contains(definition.get_name()), "{program:?} {shell:?}");
                for command in definition.get_subcommands() {
                    assert!(script.contains(command.get_name()), "{program:?} {shell:?} {}", command.get_name());
                }
                let flags = definition.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(Arg::get_long);
                flags.for_each(|flag| assert!(script.contains(flag), "{program:?} {shell:?} --{flag}"));
            }
        }
    }

    #[test]
    fn bash_completes_shipped_names() {
        let script = completions(ProgramName::Commgauge.definition(), Shell::Bash).unwrap();
        for name in ["llama-3-8b", "h100-nvswitch-ndr", "quick"] {
            assert!(script.contains(name), "{name}");
        }
        // Where no name fits, paths are completed.
        assert!(script.contains("-o default"), "{script:.100}");
    }

    #[test]
    fn a_folder_that_is_not_there_is_refused() {
        let command = ManCommand { output: Some("/nowhere/man1".into()), ..ManCommand::default() };
        let error = command.execute(ProgramName::definition).unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains("make it first"), "{error}");
    }
}
