//! `commgauge show`: what commgauge knows, from names and shipped files to schemas and man pages.

use super::layout::LayoutCommand;
use super::output::{AnswerArguments, print, replace};
use crate::doctor::{DOCTOR_FORMAT, DOCTOR_VERSION, DoctorDocument};
use crate::report::formats::SCHEMA_VERSION;
use crate::report::model::ModelDocument;
use crate::report::names::{Kind, ListDocument};
use crate::report::{
    REHEARSAL_FORMAT, REHEARSAL_VERSION, Rehearsed, fit, formats, layout, model, names, ops, pretty_json, published,
    rank, schema_of as of, trace,
};
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, Subcommand, ValueEnum};
use clap_complete::Shell;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_cost::cost;
use commgauge_judge::verdict::locate::{SUSPECTS_FORMAT, SUSPECTS_VERSION, Suspects};
use commgauge_judge::verdict::selftest::{SELFTEST_FORMAT, SELFTEST_VERSION};
use commgauge_judge::verdict::{self, SelfTest, Verdict, history};
use commgauge_model::config::{Model, Shipped, is_embedded};
use commgauge_model::record;
use commgauge_plan::planner::{plan_document, validate};
use commgauge_run::launch_check::{LAUNCH_FORMAT, LAUNCH_VERSION, LaunchReport};
use serde_json::Value;
use std::path::{Path, PathBuf};

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

// The published JSON Schemas of what commgauge writes.
//
// A new document needs one member of [`Document`] and one arm of its `match`.

/// Documents with a published schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Document {
    /// One line of a record
    #[default]
    Record,
    /// What `commgauge show model --format json` prints
    Model,
    /// What `commgauge ops --format json` prints
    Ops,
    /// What `commgauge show layout --format json` prints
    Layout,
    /// The fit that `commgauge calibrate` writes
    Fit,
    /// What `commgauge rank call --format json` prints
    Predictions,
    /// What `commgauge judge --part thresholds --format json` prints
    Verdict,
    /// What `commgauge history --format json` prints
    History,
    /// What `commgauge rank --format json` prints
    Rank,
    /// What `commgauge plan --format json` prints
    Plan,
    /// What `commgauge plan validate --format json` prints
    Validation,
    /// What `commgauge expect selftest --format json` prints
    Selftest,
    /// What `commgauge judge --part suspects --format json` prints
    Suspects,
    /// What `commgauge simulate --format json` prints
    Rehearsal,
    /// What `commgauge show suites --format json` prints
    List,
    /// What `commgauge run --check-launch --format json` prints
    Launch,
    /// What `commgauge doctor --format json` prints
    Doctor,
    /// What `commgauge report --format json` prints
    Report,
    /// What `commgauge trace --format json` prints
    Trace,
}

impl Document {
    /// Its JSON Schema (draft 2020-12).
    pub fn schema(self) -> Value {
        match self {
            Document::Record => record::schema(),
            Document::Model => of::<model::ModelDocument>(
                model::FORMAT,
                model::VERSION,
                &format!("A {}, version {}", model::FORMAT, model::VERSION),
            ),
            Document::Ops => of::<ops::OpsDocument>(ops::FORMAT, ops::VERSION, &printed("ops")),
            Document::Layout => of::<layout::LayoutDocument>(
                layout::FORMAT,
                layout::VERSION,
                &format!("A {}, version {}", layout::FORMAT, layout::VERSION),
            ),
            Document::Fit => published(cost::schema(), cost::FORMAT, cost::VERSION, "A commgauge fit"),
            Document::Predictions => {
                of::<fit::Predictions>(fit::PREDICTIONS_FORMAT, fit::PREDICTIONS_VERSION, "Predictions of commgauge")
            }
            Document::Verdict => of::<Verdict>(verdict::FORMAT, verdict::VERSION, "A verdict of commgauge"),
            Document::History => {
                of::<history::History>(history::FORMAT, history::VERSION, "Runs over time, by commgauge")
            }
            Document::Rank => of::<rank::RankDocument>(rank::FORMAT, rank::VERSION, &printed("rank")),
            Document::Plan => {
                of::<plan_document::PlanDocument>(plan_document::FORMAT, plan_document::VERSION, &printed("plan"))
            }
            Document::Validation => {
                of::<validate::Validation>(validate::FORMAT, validate::VERSION, "A validation of commgauge")
            }
            Document::Selftest => of::<SelfTest>(SELFTEST_FORMAT, SELFTEST_VERSION, "A selftest of commgauge"),
            Document::Suspects => of::<Suspects>(SUSPECTS_FORMAT, SUSPECTS_VERSION, "Suspects of commgauge"),
            Document::Rehearsal => of::<Rehearsed>(REHEARSAL_FORMAT, REHEARSAL_VERSION, "A rehearsal of commgauge"),
            Document::List => of::<names::ListDocument>(names::FORMAT, names::VERSION, "What there is, by commgauge"),
            Document::Launch => {
                of::<LaunchReport>(LAUNCH_FORMAT, LAUNCH_VERSION, "The check of a launch, by commgauge")
            }
            Document::Doctor => of::<DoctorDocument>(DOCTOR_FORMAT, DOCTOR_VERSION, "A machine, by commgauge doctor"),
            Document::Report => published(formats::schema(), formats::FORMAT, SCHEMA_VERSION, &printed("report")),
            Document::Trace => of::<trace::TraceDocument>(trace::FORMAT, trace::VERSION, &printed("trace")),
        }
    }
}

fn printed(command: &str) -> String {
    format!("What commgauge {command} --format json prints")
}

// `commgauge show completions` and `commgauge show man`: shell completions and man pages, generated from the definitions that
// also parse the flags and print the help.

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
            return print(&page(definition_of(self.program.unwrap_or_default()))?).map(|()| 0);
        };
        if !folder.is_dir() {
            return Err(Error::usage(format!("--output {}: there is no such folder; make it first", folder.shown())));
        }
        let programs = self.program.as_ref().map_or(ProgramName::value_variants(), std::slice::from_ref);
        for program in programs {
            let mut definition = definition_of(*program).disable_help_subcommand(true);
            definition.build();
            write_pages(&definition, folder)?;
        }
        eprintln!("the man pages of {} are in {}", counted(programs.len(), "program"), folder.shown());
        Ok(0)
    }
}

/// Writes the pages of a program, or a command, and of its commands.
fn write_pages(definition: &Command, folder: &Path) -> Result<()> {
    let name = definition.get_display_name().unwrap_or(definition.get_name());
    replace(&folder.join(format!("{name}.1")), &page(definition.clone())?)?;
    let mut shown = definition.get_subcommands().filter(|command| !command.is_hide_set());
    shown.try_for_each(|command| write_pages(command, folder))
}

/// A man page.
fn page(definition: Command) -> Result<String> {
    let mut page = Vec::new();
    let made = clap_mangen::Man::new(definition).render(&mut page);
    made.map_err(|cause| Error::environment(format!("cannot make the man page: {cause}")))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// The script by which a shell completes a program.
fn completions(definition: Command, shell: Shell) -> Result<String> {
    // Bash falls back to paths where no name fits; the others would complete names only.
    let mut definition = if shell == Shell::Bash { with_names(definition) } else { definition };
    let (name, mut script) = (definition.get_name().to_owned(), Vec::new());
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

// The names of the programs.

/// A program of ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ProgramName {
    /// The one that people start; links no MPI
    #[default]
    Commgauge,
    /// Runs a suite file in one launch
    CommgaugeSuite,
    /// Collectives over sizes, with the flags of nccl-tests
    CommgaugeSweep,
    /// The traffic of a model's step
    CommgaugeStep,
    /// Every two ranks
    CommgaugePairs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::names::{Named, text};
    use clap::ValueEnum;
    use std::collections::BTreeMap;

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
        commgauge_base::testing::enter_checkout();
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
        commgauge_base::testing::enter_checkout();
        for kind in [None, Some(Kind::Machines), Some(Kind::Formats), Some(Kind::Suites), Some(Kind::Backends)] {
            let name = kind
                .and_then(|kind: Kind| kind.to_possible_value())
                .map_or("overview".to_owned(), |kind| kind.get_name().to_owned());
            insta::assert_snapshot!(format!("{name}_80"), text(&listed(kind), kind, 80));
        }
    }

    #[test]
    fn every_schema_names_its_document_and_version() {
        for document in Document::value_variants() {
            let schema = document.schema();
            let name = document.to_possible_value().unwrap().get_name().to_owned();
            assert_eq!(schema["$id"], format!("urn:commgauge-{name}:{}", schema["version"]));
            assert!(schema["$schema"].as_str().unwrap().contains("2020-12"));
        }
    }

    #[test]
    fn every_program_and_command_has_a_page_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let command = ManCommand { output: Some(folder.path().to_owned()), ..ManCommand::default() };
        assert_eq!(command.execute(ProgramName::definition).unwrap(), 0);
        let pages = std::fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().path());
        let pages: BTreeMap<String, String> = pages
            .map(|page| {
                (page.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(page).unwrap())
            })
            .collect();
        let shown = |command: &Command| command.get_subcommands().filter(|part| !part.is_hide_set()).cloned().collect();
        let mut commands: Vec<Command> = ProgramName::value_variants().iter().map(|one| one.definition()).collect();
        let mut all = 0;
        while let Some(command) = commands.pop() {
            let parts: Vec<Command> = shown(&command);
            (all, commands) = (all + 1, [commands, parts].concat());
        }
        assert_eq!(pages.len(), all, "two pages of one name overwrite each other: {:?}", pages.keys());
        for wanted in
            ["commgauge.1", "commgauge-run.1", "commgauge-expect-lint.1", "commgauge-suite.1", "commgauge-pairs.1"]
        {
            assert!(pages.contains_key(wanted), "{wanted} of {:?}", pages.keys());
        }
        for (name, text) in &pages {
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
