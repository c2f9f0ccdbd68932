//! Flags for the output format that every program shares, and printing to standard output.

use super::help;
use crate::report::{
    ColorChoice, Format, LiveRows, Paint, Template, VerdictFormat, VerdictLook, View, answer, pretty_json, render,
    verdict_text, written,
};
use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::error::{ContextKind, ErrorKind as FlagError};
use clap::{CommandFactory, FromArgMatches, ValueEnum};
use commgauge_base::collective::Collective;
use commgauge_base::embedded::pairs;
use commgauge_base::error::{Error, Result};
use commgauge_base::output_file::{folder_of, write_output};
use commgauge_base::visible::{ShownPath, is_control_or_format, visible, visible_lines};
use commgauge_base::writing::eprintln;
use commgauge_judge::verdict::{LoadedRecord, Verdict};
use commgauge_model::config::{Shipped, likeliest};
use commgauge_model::record::{Journal, Line};
use rayon::prelude::*;
use serde::Serialize;
use std::borrow::Borrow;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

/// How results are shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OutputArguments {
    /// Format [default: table, or what the ending of an output file means]
    ///
    /// `nccl-tests` prints that tool's columns, one block for each collective, and holds the streaming cases only.
    #[arg(long, value_parser = FormatParser::<Format>::NEW, value_name = "FORMAT")]
    pub format: Option<Chosen<Format>>,

    /// When to colour the table; NO_COLOR and TERM=dumb are heeded
    #[arg(long, value_enum, default_value_t, value_name = "WHEN", hide_short_help = true)]
    pub color: ColorChoice,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..), hide_short_help = true)]
    pub width: Option<u16>,
}

impl OutputArguments {
    /// The format of the flag, or its default; JSON for a template, which is drawn of it.
    pub fn format(&self) -> Format {
        self.format.as_ref().map_or_else(Format::default, Chosen::named)
    }

    /// Shows a view on standard output.
    pub fn show(&self, view: &View) -> Result<()> {
        self.show_on(view, Sink::stdout(), &mut std::io::stdout().lock())
    }

    /// Writes a view to `out`, which ends in this sink.
    pub fn show_on(&self, view: &View, sink: Sink, out: &mut dyn Write) -> Result<()> {
        match self.format.as_ref().and_then(Chosen::template) {
            Some(template) => print_drawn_on(out, &template.draw(&answer(view)?)?),
            None => render(view, self.format(), self.columns(sink), self.paint(sink), out),
        }
    }

    /// Refuses a format in which the answer to this flag cannot be written.
    ///
    /// # Errors
    /// A usage error that says which can.
    pub(crate) fn check_answer(&self, flag: &str, has_json: bool) -> Result<()> {
        match &self.format {
            None | Some(Chosen::Named(Format::Table)) => Ok(()),
            Some(Chosen::Named(Format::Json) | Chosen::Template(_)) if has_json => Ok(()),
            Some(_) => {
                let accepted = if has_json { "table, json or template:FILE" } else { "table" };
                Err(Error::usage(format!("{flag}: the answer has no such --format; accepted: {accepted}")))
            }
        }
    }

    /// An answer with a table and JSON, in one of the formats that [`OutputArguments::check_answer`] accepts.
    pub(crate) fn show_answer(
        &self,
        document: &impl Serialize,
        table: impl FnOnce(u16) -> String,
        out: &mut dyn Write,
    ) -> Result<()> {
        match (self.format.as_ref().and_then(Chosen::template), self.format()) {
            (Some(template), _) => print_drawn_on(out, &template.draw(&parsed(&pretty_json(document)?)?)?),
            (None, Format::Json) => print_on(out, &pretty_json(document)?),
            (None, _) => print_on(out, &table(self.columns(Sink::stdout()))),
        }
    }

    /// Rows that can be printed as they are done, if the format has such rows.
    pub(crate) fn live_rows(&self, sink: Sink) -> Option<LiveRows> {
        LiveRows::new(self.format(), self.columns(sink), self.paint(sink))
    }

    /// Columns that tables may take.
    pub(crate) fn columns(&self, sink: Sink) -> u16 {
        columns_of(self.width, sink)
    }

    /// Whether to use colours.
    pub(crate) fn paint(&self, sink: Sink) -> Paint {
        paint(self.color, sink)
    }
}

// For commands whose answer is a table for people, a document for programs, or lines for spreadsheets.

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AnswerFormat {
    /// For people
    #[default]
    Table,
    /// One document, in base units, whose schema `commgauge show schema` prints
    Json,
    /// Comma-separated lines with a line of names, in base units
    Csv,
}

/// How an answer is shown.
pub type AnswerOutput = FormattedOutput<AnswerFormat>;

// Where the text of an answer goes, in which format, and how wide its tables are.

/// The endings of file names with the format that each means.
fn endings() -> impl Iterator<Item = (&'static str, &'static str)> {
    pairs(include_str!("endings.txt"))
}

/// The format of a page.
pub(super) const PAGE: &str = "html";

/// Where an answer goes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TextOutput {
    /// Write to a file instead of stdout; an existing file is replaced once the new one is complete. Without --format the ending of
    /// its name chooses the format: .txt, .json, .csv, .md, .html, .xml, .prom
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..), hide_short_help = true)]
    pub width: Option<u16>,
}

/// How an answer is written, and where it goes.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct FormattedOutput<F: ValueEnum + Send + Sync + 'static> {
    /// Format [default: what the ending of --output means, else table]
    #[arg(long, value_parser = FormatParser::<F>::NEW, value_name = "FORMAT")]
    pub format: Option<Chosen<F>>,

    /// Where it goes.
    #[command(flatten)]
    pub to: TextOutput,
}

impl TextOutput {
    /// Columns of a table: as requested, or those of the terminal if it goes to one.
    pub(super) fn columns(&self) -> u16 {
        columns_of(self.width, self.sink())
    }

    /// The folder of the file that it goes to, or else the current one.
    pub(super) fn folder(&self) -> PathBuf {
        folder_of(self.file().unwrap_or(Path::new(""))).to_owned()
    }

    fn sink(&self) -> Sink {
        if self.file().is_some() { Sink::File } else { Sink::stdout() }
    }

    /// Writes the text.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        match self.file() {
            Some(path) => replace(path, text),
            None => print(text),
        }
    }

    pub(super) fn file(&self) -> Option<&Path> {
        file_of(self.output.as_deref())
    }
}

/// Says on the screen that an answer in a file is no success, and returns its exit code.
pub(super) fn said(output: Option<&Path>, exit_code: i32) -> i32 {
    if let (Some(path), 1..) = (output, exit_code) {
        eprintln!("commgauge: {} is written; exit code {exit_code}", path.shown());
    }
    exit_code
}

impl<F: ValueEnum + Default + Send + Sync + 'static> FormattedOutput<F> {
    /// Rejects an output that would overwrite an input or that cannot be a file, and returns the format: that of the flag, or else
    /// the one that the name of the file means.
    pub(super) fn check(&self, inputs: &[&Path]) -> Result<F> {
        check_output(self.to.file(), inputs)?;
        if let Some(requested) = &self.format {
            return Ok(requested.named());
        }
        let offered = names::<F>();
        let meant = self.to.file().map(|path| meant_format(path, &offered)).transpose()?.flatten();
        Ok(meant.and_then(|name| F::from_str(&name, false).ok()).unwrap_or_default())
    }

    /// Writes the text of the format that [`FormattedOutput::check`] returned; where a template was requested, that is the JSON which
    /// the template draws.
    pub(super) fn write(&self, text: &str) -> Result<()> {
        match self.format.as_ref().and_then(Chosen::template) {
            Some(template) => self.to.write(&template.draw(&parsed(text)?)?),
            None => self.to.write(text),
        }
    }
}

fn parsed(text: &str) -> Result<serde_json::Value> {
    serde_json::from_str(text).map_err(|cause| Error::environment(format!("cannot read the answer as JSON: {cause}")))
}

/// A format: one with a name, or a template of the user's over the JSON answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chosen<F> {
    /// By its name.
    Named(F),
    /// `template:FILE`.
    Template(Template),
}

impl<F: Default> Default for Chosen<F> {
    fn default() -> Chosen<F> {
        Chosen::Named(F::default())
    }
}

impl<F: ValueEnum + Default> Chosen<F> {
    /// The format with a name: of a template JSON, which every command offers that has templates.
    fn named(&self) -> F {
        match self {
            Chosen::Named(format) => format.clone(),
            Chosen::Template(_) => F::from_str("json", false).unwrap_or_default(),
        }
    }

    fn template(&self) -> Option<&Template> {
        match self {
            Chosen::Named(_) => None,
            Chosen::Template(template) => Some(template),
        }
    }
}

/// Parses [`Chosen`]; a template is read at once, so that a wrong one costs no run.
#[derive(Clone, Debug)]
struct FormatParser<F>(PhantomData<F>);

impl<F> FormatParser<F> {
    const NEW: FormatParser<F> = FormatParser(PhantomData);
}

impl<F: ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for FormatParser<F> {
    type Value = Chosen<F>;

    fn parse_ref(
        &self,
        command: &clap::Command,
        flag: Option<&clap::Arg>,
        value: &OsStr,
    ) -> std::result::Result<Chosen<F>, clap::Error> {
        match value.to_str().and_then(|value| value.strip_prefix("template:")) {
            Some(path) => Template::read(Path::new(path)).map(Chosen::Template).map_err(|error| {
                clap::Error::raw(FlagError::ValueValidation, format!("--format template: {error}\n")).with_cmd(command)
            }),
            None => EnumValueParser::<F>::new().parse_ref(command, flag, value).map(Chosen::Named),
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let own = PossibleValue::new("template:FILE").help("The JSON through a template of your own");
        Some(Box::new(F::value_variants().iter().filter_map(F::to_possible_value).chain([own])))
    }
}

/// The file that a flag names; none where it means stdout.
pub(super) fn file_of(output: Option<&Path>) -> Option<&Path> {
    output.filter(|path| *path != Path::new("-"))
}

/// The names of formats, as the flag takes them.
pub(super) fn names<F: ValueEnum>() -> Vec<String> {
    F::value_variants().iter().filter_map(|format| Some(format.to_possible_value()?.get_name().to_owned())).collect()
}

/// Which of the formats on offer the ending of a name means; none where it has no ending.
///
/// # Errors
/// A usage error for any other ending: the file would not hold what its name says.
pub(super) fn meant_format(path: &Path, offered: &[String]) -> Result<Option<String>> {
    let Some(ending) = path.extension() else { return Ok(None) };
    let known = format_of_ending(path);
    if let Some(format) = known.filter(|known| offered.iter().any(|offered| offered == known)) {
        return Ok(Some(format.to_owned()));
    }
    let with_endings = |format: &String| {
        let endings: Vec<String> =
            endings().filter(|(_, meant)| meant == format).map(|(ending, _)| format!(".{ending}")).collect();
        if endings.is_empty() { format.clone() } else { format!("{format} ({})", endings.join(", ")) }
    };
    let formats = offered.iter().map(with_endings).collect::<Vec<_>>().join(", ");
    let choice = if offered.len() > 1 { "; --format chooses one whatever the ending" } else { "" };
    Err(Error::usage(format!(
        "--output {}: no format for files that end in .{} is offered here; accepted: {formats}, or a name without ending{choice}",
        path.shown(),
        commgauge_base::visible::visible(&ending.to_string_lossy())
    )))
}

/// Rejects an output that would overwrite an input, that cannot be a file, or whose name promises another format than the only one
/// that there is of it; an ending that means no format promises none.
pub(super) fn check_only_format(output: &Path, format: &str, inputs: &[&Path]) -> Result<()> {
    check_output(Some(output), inputs)?;
    match format_of_ending(output) {
        Some(_) => meant_format(output, &[format.to_owned()]).map(drop),
        None => Ok(()),
    }
}

fn format_of_ending(path: &Path) -> Option<&'static str> {
    let ending = path.extension()?;
    endings().find(|(known, _)| ending.eq_ignore_ascii_case(known)).map(|(_, format)| format)
}

/// Rejects an output that would overwrite an input, or that cannot be a file.
pub(super) fn check_output(output: Option<&Path>, inputs: &[&Path]) -> Result<()> {
    let Some(path) = output else { return Ok(()) };
    if path.is_dir() {
        return Err(Error::usage(format!("--output {} is a folder; name a file in it", path.shown())));
    }
    let whole = |path: &Path| path.canonicalize().ok();
    match inputs.iter().find(|input| whole(input).is_some() && whole(input) == whole(path)) {
        Some(_) => Err(Error::usage(format!("--output {} is one of the inputs; name another file", path.shown()))),
        None => Ok(()),
    }
}

/// Whether the name of an output asks for a page.
pub(super) fn is_page(path: &Path) -> bool {
    format_of_ending(path) == Some(PAGE)
}

/// The text of a file that a flag names.
pub(super) fn read_text(flag: &str, path: &Path) -> Result<String> {
    commgauge_base::host::read_to_string(path)
        .map_err(|cause| Error::usage(format!("{flag} {}: cannot be read: {cause}", path.shown())))
}

/// Writes a record, which must not exist.
pub(super) fn write_record(path: &Path, lines: impl IntoIterator<Item = impl Borrow<Line>>) -> Result<()> {
    let mut journal = Journal::create(path)?;
    lines.into_iter().try_for_each(|line| journal.write(line.borrow()))?;
    journal.finish()
}

/// Writes an output: whoever reads it meanwhile sees either the old text or the new one.
pub(super) fn replace(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    write_output(path, content.as_ref()).map_err(|cause| Error::path("write", path, &cause))
}

/// Makes the folder that a flag names.
pub(super) fn make_folder(flag: &str, path: &Path) -> Result<()> {
    commgauge_base::output_file::make_folder(path)
        .map_err(|cause| Error::usage(format!("{flag}: cannot make {}: {cause}", path.shown())))
}

// Records that are judged, and flags for the output of a verdict.

/// How a verdict is shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct VerdictOutput {
    /// Also show what passed, all evidence, how it was decided, and what the data cannot show
    #[arg(long)]
    pub explain: bool,

    /// How it is written.
    #[command(flatten)]
    pub output: FormattedOutput<VerdictFormat>,
}

impl VerdictOutput {
    /// Rejects outputs over inputs, and returns what to write.
    pub(super) fn look(&self, inputs: &[&Path]) -> Result<VerdictLook> {
        let format = self.output.check(inputs)?;
        let paint = paint(ColorChoice::Auto, self.output.to.sink());
        Ok(VerdictLook { format, width: self.output.to.columns(), paint, explained: self.explain })
    }

    /// Writes the verdict, and returns its exit code.
    pub fn show(&self, verdict: &Verdict, look: VerdictLook) -> Result<i32> {
        self.output.write(&verdict_text(verdict, look)?)?;
        Ok(said(self.output.to.file(), verdict.exit_code))
    }
}

/// The records directly inside a folder, sorted by name.
pub(super) fn records_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let unreadable = |cause| Error::file("read the folder", folder, cause);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "jsonl") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the records to be evaluated, in parallel.
pub(super) fn read_all(paths: &[PathBuf]) -> Result<Vec<LoadedRecord>> {
    let read: Vec<Result<LoadedRecord>> = paths.par_iter().map(|path| LoadedRecord::read(path)).collect();
    read.into_iter().collect()
}

// For commands that print one answer: as a table, or as JSON for programs.

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TableOrJson {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document in base units, whose schema `commgauge show schema` prints.
    Json,
}

/// How an answer is shown.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct AnswerArguments {
    /// Format
    #[arg(long, value_parser = FormatParser::<TableOrJson>::NEW, value_name = "FORMAT", default_value = "table")]
    pub format: Chosen<TableOrJson>,

    /// Columns that the table may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..), hide_short_help = true)]
    pub width: Option<u16>,
}

impl AnswerArguments {
    /// Prints on stdout: the document as JSON or through a template, or the table for a width.
    pub fn show(&self, document: &impl Serialize, table: impl FnOnce(u16) -> String) -> Result<()> {
        match &self.format {
            Chosen::Named(TableOrJson::Table) => print(&table(columns(self.width))),
            Chosen::Named(TableOrJson::Json) => print(&pretty_json(document)?),
            Chosen::Template(template) => print(&template.draw(&parsed(&pretty_json(document)?)?)?),
        }
    }
}

/// Writes text without colours to stdout, with the control characters of names from elsewhere written out. If the reader closes
/// the pipe early (`| head`), writing stops without an error.
pub(crate) fn print(text: &str) -> Result<()> {
    print_on(&mut std::io::stdout().lock(), text)
}

/// The same for any writer in place of stdout.
pub(crate) fn print_on(out: &mut dyn Write, text: &str) -> Result<()> {
    print_drawn_on(out, &visible_lines(text))
}

/// The same for what a drawer has escaped and coloured.
pub(crate) fn print_drawn_on(out: &mut dyn Write, text: &str) -> Result<()> {
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()), "to stdout")
}

// Properties of the terminal: the one place that evaluates `--color`, NO_COLOR, TERM, `--width` and COLUMNS, for our
// tables and for the output of the flag parser.

/// Columns of a table that is written to a file or a pipe.
pub(crate) const WIDTH_WITHOUT_TERMINAL: u16 = 100;

/// A table does not fit into fewer columns than this.
const MIN_WIDTH: u16 = 40;

/// Where a text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// To a terminal, which has a width and perhaps colours.
    Terminal,
    /// Into a file or a pipe.
    File,
}

impl Sink {
    /// What standard output is.
    pub(crate) fn stdout() -> Sink {
        if std::io::stdout().is_terminal() { Sink::Terminal } else { Sink::File }
    }
}

/// Whether text is styled.
pub(crate) fn paint(requested: ColorChoice, sink: Sink) -> Paint {
    let (no_color, term) = (std::env::var_os("NO_COLOR"), std::env::var_os("TERM"));
    match sink {
        Sink::Terminal => requested.on_terminal(no_color.as_deref(), term.as_deref()),
        Sink::File => requested.elsewhere(),
    }
}

/// The columns that a table on standard output may take.
pub(crate) fn columns(requested: Option<u16>) -> u16 {
    columns_of(requested, Sink::stdout())
}

/// Columns of a table that may or may not go to a terminal: as requested, else COLUMNS, else those of the terminal.
pub(crate) fn columns_of(requested: Option<u16>, sink: Sink) -> u16 {
    let terminal = terminal_size::terminal_size().filter(|_| sink == Sink::Terminal).map(|(width, _)| width.0);
    decide_columns(requested, std::env::var("COLUMNS").ok().as_deref(), terminal)
}

/// A value of COLUMNS that is not a number, or too small for a table, is ignored.
fn decide_columns(requested: Option<u16>, variable: Option<&str>, terminal: Option<u16>) -> u16 {
    let variable = variable.and_then(|text| text.trim().parse::<u16>().ok()).filter(|columns| *columns >= MIN_WIDTH);
    let terminal = terminal.map(|columns| columns.max(MIN_WIDTH));
    requested.or(variable).or(terminal).unwrap_or(WIDTH_WITHOUT_TERMINAL)
}

/// Parses the command line; help, version and usage errors are coloured and wrapped like all other output.
///
/// # Errors
/// Help, version or a usage error, to be printed.
pub fn parse<P: CommandFactory + FromArgMatches>() -> std::result::Result<P, clap::Error> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let color = match colors_of_parser(&words) {
        ColorChoice::Auto => clap::ColorChoice::Auto,
        ColorChoice::Always => clap::ColorChoice::Always,
        ColorChoice::Never => clap::ColorChoice::Never,
    };
    let width = usize::from(columns(None).min(WIDTH_WITHOUT_TERMINAL));
    let definition = help::finished(P::command()).color(color).term_width(width);
    let ours = words.iter().take_while(|word| *word != "--");
    let mut definition =
        if ours.into_iter().any(|word| word == "-h") { help::shortened(definition) } else { definition };
    let words = if definition.get_name() == "commgauge" { with_one_name_for_ranks(words) } else { words };
    let parsed = definition.try_get_matches_from_mut(words.clone());
    let parsed = parsed.map_err(|error| {
        let is_unknown = error.kind() == FlagError::InvalidSubcommand;
        let unknown = words.get(1).and_then(|word| word.to_str()).filter(|_| is_unknown).unwrap_or_default();
        let suites = Shipped::Suite.names();
        let known = pairs(MEANT).map(|(name, _)| name).chain(suites.iter().map(String::as_str));
        let near = || likeliest(unknown, known).and_then(meant_command);
        let has_tip = error.get(ContextKind::SuggestedSubcommand).is_some();
        match meant_command(unknown).or_else(|| near().filter(|_| is_unknown && !has_tip)) {
            Some(meant) => definition.error(error.kind(), format!("`{}` is no command; {meant}", visible(unknown))),
            None => with_fix_first(error, &mut definition, &words[1..]),
        }
    })?;
    P::from_arg_matches(&parsed)
}

/// A usage error with what is missing, accepted or meant in its first line, where the parser writes it below.
fn with_fix_first(error: clap::Error, mut command: &mut clap::Command, words: &[OsString]) -> clap::Error {
    let said = error.render().to_string();
    let text = said.replace("invalid digit found in string", "accepted: a whole number");
    let fixes = text.lines().skip(1).take_while(|line| !line.starts_with(|first: char| first.is_ascii_alphabetic()));
    let fixes = fixes.map(str::trim).filter(|fix| !fix.is_empty() && !fix.starts_with("tip: to pass"));
    let fixes = fixes.collect::<Vec<_>>().join("; ");
    if !error.use_stderr() || (fixes.is_empty() && text == said) {
        return error;
    }
    for word in words {
        if command.find_subcommand(word).is_none() {
            break;
        }
        command = command.find_subcommand_mut(word).expect("it was found");
    }
    let what = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    let mark = match fixes.is_empty() {
        true => "",
        false if what.ends_with(':') => " ",
        false => "; ",
    };
    command.error(error.kind(), format!("{what}{mark}{fixes}"))
}

/// Commands of other tools, and parts of ours, with the command that does it.
const MEANT: &str = include_str!("meant_commands.txt");

/// What a word that is no command may mean: one of [`MEANT`], a collective or a suite.
fn meant_command(word: &str) -> Option<String> {
    let ours = pairs(MEANT).find(|(name, _)| *name == word).map(|(_, command)| command.to_owned());
    let sweep = || word.parse::<Collective>().ok().map(|collective| format!("run --sweep {}", collective.name()));
    let suite = || Shipped::Suite.embedded(word).map(|_| format!("run {word}"));
    let meant = ours.or_else(sweep).or_else(suite)?;
    Some(format!("did you mean `commgauge {meant}`?"))
}

/// Replaces `-np 4`, as mpirun has it, by `-n 4`; the parser would read it as `-n p`. Arguments after `--` are
/// unchanged.
fn with_one_name_for_ranks(words: Vec<OsString>) -> Vec<OsString> {
    let ours = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let renamed = |(index, word): (usize, OsString)| if index < ours && word == "-np" { "-n".into() } else { word };
    words.into_iter().enumerate().map(renamed).collect()
}

/// The value of `--color` before the flags are parsed; `auto` leaves NO_COLOR to the parser, which evaluates it too.
fn colors_of_parser(words: &[OsString]) -> ColorChoice {
    let mut words = words.iter().filter_map(|word| word.to_str()).take_while(|word| *word != "--");
    let mut choice = ColorChoice::Auto;
    while let Some(word) = words.next() {
        let value = match word.strip_prefix("--color") {
            Some("") => words.next(),
            Some(rest) => rest.strip_prefix('='),
            None => None,
        };
        choice = match value {
            Some("always") => ColorChoice::Always,
            Some("never") => ColorChoice::Never,
            Some(_) => ColorChoice::Auto,
            None => choice,
        };
    }
    choice
}

// Help, version and usage errors of the flag parser on the terminal, and errors that hold words of the command line.

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

/// A message in which no word of the command line begins a new line.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{HistoryFormat, VerdictFormat};

    fn output<F: ValueEnum + Default + Send + Sync>(path: impl Into<PathBuf>, format: Option<F>) -> FormattedOutput<F> {
        FormattedOutput { format: format.map(Chosen::Named), to: TextOutput { output: Some(path.into()), width: None } }
    }

    #[test]
    fn an_output_that_cannot_be_written_is_refused_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.jsonl");
        std::fs::write(&record, "x").unwrap();
        for (path, words) in [(folder.path().to_owned(), "is a folder"), (record.clone(), "is one of the inputs")] {
            let error = output::<VerdictFormat>(path, None).check(&[&record]).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(words), "{error}");
        }
        let nowhere = folder.path().join("missing/v.json");
        assert_eq!(replace(&nowhere, "text").unwrap_err().exit_code(), 2);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_ending_of_a_name_chooses_the_format_and_the_flag_wins() {
        use VerdictFormat::*;
        for (name, meant) in [
            ("v", Some(Table)),
            ("-", Some(Table)),
            ("v.d/v", Some(Table)),
            ("v.TXT", Some(Table)),
            ("v.json", Some(Json)),
            ("v.md", Some(Markdown)),
            ("v.junit.xml", Some(Junit)),
            ("v.prom", Some(Prometheus)),
            ("v.csv", None),
            ("v.html", None),
            ("v.pdf", None),
            ("v.2026-11-27", None),
        ] {
            match output::<VerdictFormat>(name, None).check(&[]) {
                Ok(format) => assert_eq!(Some(format), meant, "{name}"),
                Err(error) => {
                    assert!(meant.is_none() && error.exit_code() == 2, "{name}: {error}");
                    assert!(error.to_string().contains("markdown (.md), prometheus (.prom), github"), "{error}");
                }
            }
            assert_eq!(output(name, Some(Github)).check(&[]).unwrap(), Github, "{name}");
        }
        assert_eq!(output::<HistoryFormat>("h.htm", None).check(&[]).unwrap(), HistoryFormat::Html);
        for name in ["f.json", "f", "f.v2"] {
            check_only_format(Path::new(name), "json", &[]).unwrap();
        }
        let error = check_only_format(Path::new("f.csv"), "json", &[]).unwrap_err().to_string();
        assert!(error.contains(".csv") && error.contains("json (.json)") && !error.contains("--format"), "{error}");
    }

    #[test]
    fn a_template_is_read_with_the_flags_and_draws_the_json() {
        #[derive(clap::Parser)]
        struct Words {
            #[command(flatten)]
            shown: FormattedOutput<VerdictFormat>,
        }
        let parse = |words: &[&str]| <Words as clap::Parser>::try_parse_from([&["test"], words].concat());
        let folder = tempfile::tempdir().unwrap();
        let (own, out) = (folder.path().join("own.txt"), folder.path().join("out.csv"));
        std::fs::write(&own, "{{ exit_code }} of {{ rows|length }}\n").unwrap();
        let flag = format!("--format=template:{}", own.display());
        let shown = parse(&[&flag, "-o", out.to_str().unwrap()]).unwrap_or_else(|error| panic!("{error}")).shown;
        assert_eq!(shown.check(&[]).unwrap(), VerdictFormat::Json);
        shown.write("{\"exit_code\": 3, \"rows\": [{}]}").unwrap();
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "3 of 1\n");
        assert_eq!(shown.write("{\"rows\": []}").unwrap_err().exit_code(), 2);

        std::fs::write(&own, "{% if %}").unwrap();
        for (words, said) in [
            (&[flag.as_str()][..], "own.txt:1: syntax error"),
            (&["--format=template:absent.j2"], "absent.j2: cannot read the template"),
            (&["--format=tamplate:x"], "invalid value 'tamplate:x'"),
        ] {
            let error = parse(words).err().unwrap_or_else(|| panic!("{words:?}"));
            assert!(error.exit_code() == 2 && error.to_string().contains(said), "{error}");
        }
    }

    #[test]
    fn the_flag_takes_precedence_over_columns_and_columns_over_the_terminal() {
        for (requested, variable, terminal, expected) in [
            (None, None, None, 100),
            (None, None, Some(140), 140),
            (None, None, Some(12), 40),
            (None, Some("72"), Some(140), 72),
            (None, Some("72"), None, 72),
            (Some(60), Some("72"), Some(140), 60),
            (None, Some("wide"), Some(140), 140),
            (None, Some("0"), None, 100),
            (None, Some("999999"), None, 100),
        ] {
            assert_eq!(
                decide_columns(requested, variable, terminal),
                expected,
                "{requested:?} {variable:?} {terminal:?}"
            );
        }
    }

    #[test]
    fn a_word_that_is_no_command_is_answered_with_the_one_that_it_means() {
        for (word, meant) in [
            ("sweep", Some("run --sweep all_reduce")),
            ("all_reduce_perf", Some("run --sweep all_reduce")),
            ("osu_alltoall", Some("run --sweep all_to_all")),
            ("qualify", Some("run qualify")),
            ("locate", Some("judge --part suspects")),
            ("nonsense", None),
        ] {
            let expected = meant.map(|meant| format!("did you mean `commgauge {meant}`?"));
            assert_eq!(meant_command(word), expected, "{word}");
        }
        for (_, command) in pairs(MEANT) {
            let ours = command.split(" -- ").next().unwrap_or_default();
            let words = format!("commgauge {ours} --help");
            let words = words.split(' ');
            let error = crate::cli::programs::Commgauge::command().try_get_matches_from(words).map(drop).unwrap_err();
            assert_eq!(error.kind(), FlagError::DisplayHelp, "{command}: {error}");
        }
    }

    #[test]
    fn the_number_of_ranks_may_be_written_as_for_mpirun() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let found = with_one_name_for_ranks(words("commgauge run quick -np 4 -- -np 3"));
        assert_eq!(found, words("commgauge run quick -n 4 -- -np 3"));
    }

    #[test]
    fn the_colour_of_help_follows_the_flag_at_any_position() {
        for (line, expected) in [
            ("commgauge run -h", ColorChoice::Auto),
            ("commgauge run --color never -h", ColorChoice::Never),
            ("commgauge --color=always run", ColorChoice::Always),
            ("commgauge run --color never --color always", ColorChoice::Always),
            ("commgauge run quick -- --color never", ColorChoice::Auto),
            ("commgauge run --color", ColorChoice::Auto),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(colors_of_parser(&words), expected, "{line}");
        }
    }
}
