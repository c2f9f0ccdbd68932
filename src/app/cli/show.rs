//! `commgauge show`: what commgauge knows, from names and shipped files to schemas and man pages.

use super::layout::LayoutCommand;
use super::manual::{CompletionsCommand, ManCommand};
use super::output::{AnswerArguments, print};
use super::program_name::ProgramName;
use super::schemas::Document;
use crate::report::model::{self, ModelDocument};
use crate::report::names::{self, Kind, ListDocument};
use crate::report::pretty_json;
use clap::{ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use commgauge_base::error::{Error, Result};
use commgauge_base::writing::eprintln;
use commgauge_model::config::{Model, Shipped, is_embedded};
use std::path::Path;

/// Show names, shipped files, models, layouts and schemas; alone, how many of each exist
///
/// Files in suites/ of the working directory win over the embedded ones.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    override_usage = "commgauge show [WHAT]",
    help_template = "{about-with-newline}\n{usage-heading} {usage}\n\n{subcommands}\n\n{options}{after-help}",
    mut_arg("format", |format| format.hide_short_help(true))
)]
pub struct ShowCommand {
    #[command(subcommand)]
    subject: Option<Subject>,

    /// How the overview is shown.
    #[command(flatten)]
    shown: AnswerArguments,
}

/// What is shown.
#[derive(Clone, Debug, Subcommand)]
enum Subject {
    #[command(flatten)]
    List(ListCommand),
    /// An embedded suite, as a copy to change
    Suite(FileCommand),
    /// An embedded machine file, as a copy to change
    Machine(FileCommand),
    /// Parameters and shape of a model, from its config.json
    Model(ModelCommand),
    /// Groups of every axis of a layout, and their place on the nodes
    Layout(LayoutCommand),
    /// JSON Schema of what commgauge writes
    Schema(SchemaCommand),
    /// Man pages, of this program and the launched ones
    Man(ManCommand),
    /// Completions of a shell, for this program or a launched one
    Completions(CompletionsCommand),
}

impl ShowCommand {
    /// Prints what was asked for; `definition_of` gives the flags of a program.
    ///
    /// # Errors
    /// A usage error where there is no such thing.
    pub fn execute(&self, definition_of: fn(ProgramName) -> Command) -> Result<i32> {
        match &self.subject {
            None => show_names(None, &self.shown, definition_of),
            Some(Subject::List(list)) => show_names(Some(list.kind), &list.shown, definition_of),
            Some(Subject::Suite(file)) => file.print(Shipped::Suite),
            Some(Subject::Machine(file)) => file.print(Shipped::Machine),
            Some(Subject::Model(model)) => model.execute(),
            Some(Subject::Layout(layout)) => layout.execute(),
            Some(Subject::Schema(schema)) => print(&pretty_json(&schema.document.schema())?).map(|()| 0),
            Some(Subject::Man(man)) => man.execute(definition_of),
            Some(Subject::Completions(completions)) => completions.execute(definition_of(completions.program)),
        }
    }
}

/// The names of a kind, or the number of names of each kind.
fn show_names(kind: Option<Kind>, shown: &AnswerArguments, definition_of: fn(ProgramName) -> Command) -> Result<i32> {
    let programs: Vec<Command> = ProgramName::value_variants().iter().copied().map(definition_of).collect();
    let document = ListDocument::of(kind, &programs);
    shown.show(&document, |width| names::text(&document, kind, width)).map(|()| 0)
}

/// The names of a kind: a command for each [`Kind`].
#[derive(Clone, Debug)]
struct ListCommand {
    kind: Kind,
    shown: AnswerArguments,
}

impl Subcommand for ListCommand {
    fn augment_subcommands(command: Command) -> Command {
        let kinds = Kind::value_variants().iter().filter_map(Kind::to_possible_value);
        kinds.fold(command, |command, kind| {
            // Clap needs names that live as long as the program.
            let list = Command::new(&*kind.get_name().to_owned().leak());
            let about = kind.get_help().cloned().unwrap_or_default();
            command.subcommand(AnswerArguments::augment_args(list).about(about))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Kind::from_str(name, false).is_ok()
    }
}

impl FromArgMatches for ListCommand {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let (name, matches) = matches.subcommand().unwrap_or(("", matches));
        let unknown = |_| clap::Error::new(clap::error::ErrorKind::InvalidSubcommand);
        let kind = Kind::from_str(name, false).map_err(unknown)?;
        Ok(ListCommand { kind, shown: AnswerArguments::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// What is printed is the embedded file, also where a file of that name in the working directory wins over it; stderr says so then.
#[derive(Clone, Debug, Args)]
struct FileCommand {
    /// Its name, such as quick or h100-nvswitch-ndr
    name: String,
}

impl FileCommand {
    fn print(&self, kind: Shipped) -> Result<i32> {
        print_embedded(kind, &self.name).map(|()| 0)
    }
}

fn print_embedded(kind: Shipped, name: &str) -> Result<()> {
    let requested = Path::new(name);
    let found = kind.find(requested).map(|file| file.display().to_string()).filter(|file| !is_embedded(file));
    let Some(text) = kind.embedded(name) else {
        return Err(Error::usage(match found {
            Some(file) => format!("there is no embedded {} `{name}`; {file} is a file here", kind.noun()),
            None => kind.unknown(requested),
        }));
    };
    print(text)?;
    if let Some(file) = found {
        eprintln!("commgauge: {} {name} (embedded); elsewhere that name means {file}, which wins", kind.noun());
    }
    Ok(())
}

/// commgauge show model llama-3-8b
///
/// commgauge show model llama-3-8b --config > config.json
#[derive(Clone, Debug, Args)]
struct ModelCommand {
    /// A config.json, the folder that holds one, or the name of a shipped model, such as llama-3-8b
    model: String,

    /// Print the config.json of a shipped model instead, as a copy to change
    #[arg(long, conflicts_with_all = ["format", "width"])]
    config: bool,

    /// How the answer is shown.
    #[command(flatten)]
    shown: AnswerArguments,
}

impl ModelCommand {
    fn execute(&self) -> Result<i32> {
        if self.config {
            return print_embedded(Shipped::Model, &self.model).map(|()| 0);
        }
        let document = ModelDocument::new(&Model::load(&self.model)?);
        self.shown.show(&document, |width| model::text(&document, width)).map(|()| 0)
    }
}

#[derive(Clone, Debug, Args)]
struct SchemaCommand {
    /// Of which document
    #[arg(value_enum, default_value_t)]
    document: Document,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::names::{Named, text};

    fn listed(kind: Option<Kind>) -> ListDocument {
        let programs: Vec<Command> = ProgramName::value_variants().iter().map(|one| one.definition()).collect();
        ListDocument::of(kind, &programs)
    }

    #[test]
    fn every_name_has_a_description_and_no_shipped_file_is_broken() {
        let all = listed(None);
        for list in [&all.collectives, &all.axes, &all.styles, &all.schedules, &all.backends] {
            let list: &Vec<Named> = list.as_ref().unwrap();
            assert!(list.len() >= 3, "{list:?}");
            let silent: Vec<&Named> = list.iter().filter(|one| one.description.is_empty()).collect();
            assert!(silent.is_empty(), "{silent:?}");
        }
        let keys = all.keys.as_ref().unwrap();
        let phases = keys.iter().find(|key| key.name == "phases").unwrap();
        assert_eq!((phases.flag.as_str(), phases.tables.as_slice()), ("--serve", &["serving".to_owned()][..]));
        for suite in all.suites.as_ref().unwrap() {
            assert!(suite.problem.is_none() && !suite.description.is_empty(), "{suite:?}");
        }
        for model in all.models.as_ref().unwrap() {
            assert!(model.problem.is_none() && model.parameters > 0 && model.layers > 0, "{model:?}");
        }
        for machine in all.machines.as_ref().unwrap() {
            assert!(machine.problem.is_none() && !machine.description.is_empty(), "{machine:?}");
        }
    }

    #[test]
    fn suites_say_how_many_ranks_they_need() {
        let all = listed(Some(Kind::Suites)).suites.unwrap();
        // From suites/README.md.
        for (name, exactly, multiple) in [
            ("quick", None, Some(2)),
            ("llama-3-8b", None, Some(4)),
            ("codegeex", None, Some(8)),
            ("smoke", None, Some(1)),
            ("gpt-7.5b-16gpu", None, Some(8)),
            ("180b-128gpu", Some(128), None),
            ("deepseek-v3", Some(2048), None),
            ("llama-3-405b-16k", Some(16_384), None),
        ] {
            let suite = all.iter().find(|suite| suite.name == name).expect(name);
            assert_eq!((suite.ranks, suite.ranks_multiple_of), (exactly, multiple), "{name}");
        }
    }

    #[test]
    fn formats_come_from_the_flags_of_the_commands() {
        let all = listed(Some(Kind::Formats)).formats.unwrap();
        for (name, command) in [
            ("nccl-tests", "commgauge import --from"),
            ("junit", "commgauge judge --format"),
            ("csv", "commgauge-sweep --format"),
            ("calculon", "commgauge export --to"),
        ] {
            let found =
                all.iter().any(|format| format.name == name && format.commands.iter().any(|known| known == command));
            assert!(found, "{name} of {command}: {all:?}");
        }
    }

    #[test]
    fn tables_keep_to_their_width_with_a_line_for_each_name() {
        commgauge_base::checkout::enter_checkout();
        for kind in Kind::value_variants() {
            let document = listed(Some(*kind));
            for width in [80, 140] {
                let table = text(&document, Some(*kind), width);
                // The sentence about omitted columns is a separate paragraph.
                let longest = table.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(longest <= usize::from(width), "{kind:?} at {width}: {longest}\n{table}");
            }
        }
    }

    #[test]
    fn the_tables_of_80_columns() {
        commgauge_base::checkout::enter_checkout();
        for kind in [None, Some(Kind::Machines), Some(Kind::Formats), Some(Kind::Suites), Some(Kind::Backends)] {
            let name = kind
                .and_then(|kind: Kind| kind.to_possible_value())
                .map_or("overview".to_owned(), |kind| kind.get_name().to_owned());
            insta::assert_snapshot!(format!("{name}_80"), text(&listed(kind), kind, 80));
        }
    }
}
