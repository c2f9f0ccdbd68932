//! `commgauge export`: converts a fit to the calibration files of another planner.

use super::output::{check_only_format, check_output, make_folder, replace, write_record};
use super::suite;
use clap::ValueEnum;
use commgauge_base::digest::sha256;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::eprintln;
use commgauge_cost::cost::{Fit, Place, PlaceQuery};
use commgauge_model::layout::Locality;
use commgauge_model::record::line::{ForeignTool, ID_DIGITS};
use commgauge_model::record::{Line, Record};
use commgauge_readers::interop::export::{AxisPlace, Export, ExportOptions, Target, export};
use commgauge_readers::interop::{
    BadLine, Imported, ImportedFile, Renewed, bytes_of, joined, parse_csv, parse_imb, parse_nccl_tests, parse_osu,
    read_commgauge, record_lines,
};
use jiff::Timestamp;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// Write a fit as the calibration files that another planner reads, in its units
///
/// What the fit does not hold is never made up: it is named, and nothing is written unless --partial is given. A synthetic fit
/// is refused unless --allow-synthetic is given, and marked in every file.
#[derive(Clone, Debug, clap::Args)]
pub struct ExportCommand {
    /// Planner that reads it
    #[arg(long, value_enum)]
    pub to: Target,

    /// The fit, from `commgauge calibrate -o`
    #[arg(long, value_name = "FILE")]
    pub fit: PathBuf,

    /// File to write (galvatron and astra-sim: folder); what is there is replaced
    #[arg(short, long, value_name = "PATH")]
    pub output: PathBuf,

    /// Ranks on each node (galvatron, calculon, astra-sim, alpa)
    #[arg(long, value_name = "N")]
    pub ranks_per_node: Option<u32>,

    /// Nodes of the machine (galvatron, calculon, astra-sim, alpa)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub nodes: u32,

    /// Group size and place of an axis (simai): tp=8@1n/1g/s1, dp=2@2n/8g/s8, ep=..., pp=...
    #[arg(long, value_name = "AXIS", value_parser = axis, hide_short_help = true)]
    pub axis: Vec<AxisPlace>,

    /// A system file of yours, whose networks are replaced (calculon)
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub base: Option<PathBuf>,

    /// Element type of calls that reduce [default: bfloat16, float16 or float32, whichever was fitted first]
    #[arg(long, value_name = "TYPE", hide_short_help = true)]
    pub dtype: Option<ElementType>,

    /// Where the groups of the fit were placed whose records do not say it, as far as you know, such as 1n
    #[arg(long, value_name = "PLACE", hide_short_help = true)]
    pub unknown_locality: Option<PlaceQuery>,

    /// Write what there is, though the fit lacks something
    #[arg(long, hide_short_help = true)]
    pub partial: bool,

    /// Export a fit of records without real times, for rehearsals
    #[arg(long)]
    pub allow_synthetic: bool,
}

/// Parses `tp=8@1n/1g/s1`.
fn axis(text: &str) -> std::result::Result<AxisPlace, String> {
    let wrong =
        || format!("found `{text}`; accepted: an axis (tp, dp, ep, pp), ranks and place, such as tp=8@1n/1g/s1");
    let (axis, rest) = text.split_once('=').ok_or_else(wrong)?;
    let (ranks, place) = rest.split_once('@').ok_or_else(wrong)?;
    let ranks: u32 = ranks.parse().ok().filter(|ranks| *ranks > 1).ok_or_else(wrong)?;
    if !["tp", "dp", "ep", "pp"].contains(&axis) {
        return Err(wrong());
    }
    let locality: Locality = place.parse::<PlaceQuery>()?.locality(ranks);
    Ok(AxisPlace { axis: axis.to_owned(), ranks, place: Place::of(&locality) })
}

impl ExportCommand {
    /// Reads, converts and writes.
    pub fn execute(&self) -> Result<i32> {
        let target = self.to;
        self.check_output(target)?;
        let fit = Fit::read(&self.fit)?;
        if fit.synthetic && !self.allow_synthetic {
            return Err(Error::usage(format!(
                "{}: the fit is synthetic, of records without real times; --allow-synthetic exports it, marked, for a rehearsal",
                self.fit.shown()
            )));
        }
        let options = ExportOptions {
            nodes: self.nodes,
            ranks_per_node: self.ranks_per_node,
            unknown: self.unknown_locality,
            element_type: self.dtype,
            base: self.base.as_deref().map(read_base).transpose()?,
            axes: self.axis.clone(),
        };
        let done = export(&fit, target, &options)?;
        if !done.gaps.is_empty() && !self.partial {
            return Err(Error::mismatch(format!(
                "the fit lacks {} of what {} reads; measure it, or write what there is with --partial:\n{}",
                done.gaps.len(),
                self.planner_name(),
                done.gaps.join("\n")
            )));
        }
        self.write(target, &done)?;
        done.gaps.iter().for_each(|gap| eprintln!("left out: {gap}"));
        done.notes.iter().for_each(|note| eprintln!("note: {note}"));
        if fit.synthetic {
            eprintln!("SYNTHETIC: the fit comes from records without real times; every file says so");
        }
        Ok(0)
    }

    fn planner_name(&self) -> String {
        self.to.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Checks the output path: a folder for formats of several files, a file for the others; never an input.
    fn check_output(&self, target: Target) -> Result<()> {
        let path = self.output.shown();
        if target.is_folder() && self.output.exists() && !self.output.is_dir() {
            return Err(Error::usage(format!("--output {path} is a file; {} writes a folder", self.planner_name())));
        }
        if target.is_folder() {
            return Ok(());
        }
        if self.output.is_dir() {
            return Err(Error::usage(format!("--output {path} is a folder; {} writes one file", self.planner_name())));
        }
        let inputs: Vec<&Path> =
            [Some(&self.fit), self.base.as_ref()].into_iter().flatten().map(|path| &**path).collect();
        check_output(Some(&self.output), &inputs)
    }

    fn write(&self, target: Target, done: &Export) -> Result<()> {
        if target.is_folder() {
            make_folder("--output", &self.output)?;
        }
        if let (false, [file]) = (target.is_folder(), done.files.as_slice()) {
            let format = Path::new(&file.name).extension().unwrap_or_default().to_string_lossy();
            check_only_format(&self.output, &format, &[])?;
        }
        for file in &done.files {
            let path = if target.is_folder() { self.output.join(&file.name) } else { self.output.clone() };
            replace(&path, &file.content)?;
            eprintln!("{}", path.shown());
        }
        Ok(())
    }
}

fn read_base(path: &Path) -> Result<Value> {
    let wrong = |problem: String| Error::usage(format!("--base {}: {problem}", path.shown()));
    let text = commgauge_base::host::read_to_string(path).map_err(|cause| wrong(cause.to_string()))?;
    serde_json::from_str(&text).map_err(|cause| wrong(format!("is not JSON: {cause}")))
}

// `commgauge import`: converts files of other tools to a record.

impl ImportCommand {
    /// Reads all files, then writes the record.
    pub fn execute(&self) -> Result<i32> {
        if self.ranks.is_some() && !matches!(self.from, Foreign::Osu | Foreign::NcclTests) {
            return Err(Error::usage("--ranks: is for --from osu and nccl-tests; other files say it themselves"));
        }
        if self.ranks_per_node.is_some() && !matches!(self.from, Foreign::Osu | Foreign::Imb) {
            let found = "--ranks-per-node: is for --from osu and imb; the other tools' files say where ranks were";
            return Err(Error::usage(found));
        }
        let Some(tool) = self.from.tool() else { return execute(self) };
        check_only_format(&self.output, "record", &[])?;
        let (mut read, mut bad) = (Vec::new(), Vec::new());
        for path in &self.files {
            let imported = imported(tool, path, self.ranks)?;
            bad.extend(imported.bad_lines.iter().map(|line| bad_line_text(path, line)));
            read.push(ImportedFile { name: suite::text(path)?, imported });
        }
        let (mut origin, mut rows) = joined(tool, read);
        if let Some(ranks_per_node) = self.ranks_per_node {
            rows.iter_mut().for_each(|row| row.place(ranks_per_node));
            origin.facts.notes.push(format!("{ranks_per_node} ranks on each node, as --ranks-per-node says"));
        }
        if !bad.is_empty() && !self.skip_bad_lines {
            return Err(unreadable(&bad, bad.len() + rows.len()));
        }
        if rows.is_empty() {
            return Err(Error::usage("the files hold no line that can be read, so there is nothing to import"));
        }
        origin.facts.notes.iter().for_each(|note| eprintln!("{note}"));
        origin.objections().for_each(|objection| eprintln!("warning: {objection}"));
        let left_out = bad.len();
        origin.facts.warnings.splice(0..0, bad.into_iter().map(|line| format!("left out: {line}")));
        let Identity { run_id, written } = Identity::of(&self.files)?;
        origin.written = Some(written);
        write_record(&self.output, record_lines(&run_id, &origin, &rows))?;
        eprintln!("{} in {}{}", counted(rows.len(), "row"), self.output.shown(), left_out_text(left_out));
        Ok(0)
    }
}

// Which run the files of another tool are of.

/// The run that files are of.
struct Identity {
    /// The same for the same files, so that a log that is imported every night is no further run: when the newest of them was written, and
    /// 128 bits of a digest of them all, such as `20261121T011530Z-9f3c21aa...`.
    pub run_id: String,
    /// When the newest of them was written: other tools do not say when they ran.
    pub written: Timestamp,
}

impl Identity {
    /// Reads the files once more.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of(files: &[PathBuf]) -> Result<Identity> {
        let (mut digests, mut written) = (String::new(), Timestamp::UNIX_EPOCH);
        for path in files {
            let failed = |cause| Error::file("read", path, cause);
            digests += &sha256(fs::read(path).map_err(failed)?);
            let modified = fs::metadata(path).and_then(|facts| facts.modified()).map_err(failed)?;
            written = written.max(Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH));
        }
        let digest = &sha256(digests)[..ID_DIGITS];
        Ok(Identity { run_id: format!("{}-{digest}", written.strftime("%Y%m%dT%H%M%SZ")), written })
    }
}

// `commgauge import --from commgauge`: converts records to the current version, one file for each.

/// Reads all records, and writes only if all are valid or bad lines may be left out.
fn execute(command: &ImportCommand) -> Result<i32> {
    let outputs = outputs(command)?;
    let mut renewed = Vec::new();
    for path in &command.files {
        renewed.push((path, read_commgauge(path)?));
    }
    let bad_lines = renewed.iter().flat_map(|(path, record)| record.bad_lines.iter().map(move |line| (path, line)));
    let bad: Vec<String> = bad_lines.map(|(path, line)| bad_line_text(path, line)).collect();
    if !bad.is_empty() && !command.skip_bad_lines {
        let all = renewed.iter().map(|(_, record)| record.lines.len() + record.bad_lines.len()).sum();
        return Err(unreadable(&bad, all));
    }
    if command.files.len() > 1 {
        make_folder("--output", &command.output)?;
    }
    for ((path, record), output) in renewed.into_iter().zip(&outputs) {
        write(path, record, output)?;
    }
    Ok(0)
}

/// The output file of each record: the named file, or a file of the same name in the named folder.
fn outputs(command: &ImportCommand) -> Result<Vec<PathBuf>> {
    if command.files.len() == 1 {
        return Ok(vec![command.output.clone()]);
    }
    if command.output.is_file() {
        let problem = "is a file; several records go into a folder";
        return Err(Error::usage(format!("--output {}: {problem}", command.output.shown())));
    }
    let mut outputs: Vec<PathBuf> = Vec::new();
    for path in &command.files {
        let name = path.file_name().ok_or_else(|| Error::usage(format!("{}: is no file", path.shown())))?;
        let output = command.output.join(name);
        if outputs.contains(&output) {
            return Err(Error::usage(format!("two records are called {}; rename one", name.shown())));
        }
        if output.exists() {
            return Err(Error::usage(format!("{} exists, and a record is never written over", output.shown())));
        }
        outputs.push(output);
    }
    Ok(outputs)
}

fn write(path: &Path, record: Renewed, output: &Path) -> Result<()> {
    let Renewed { mut lines, bad_lines, version, cut_off } = record;
    if let Some(Line::Header(header)) = lines.first_mut() {
        header.warnings.extend(bad_lines.iter().map(|line| format!("left out: {}", bad_line_text(path, line))));
    }
    // Lines that are valid individually must also form a valid record before anything is written.
    let whole = Record::from_lines(lines.iter().cloned())?;
    write_record(output, &lines)?;
    let left_out = left_out_text(bad_lines.len());
    let cut = if cut_off { "; the run did not end, and the record says so" } else { "" };
    eprintln!("{}: version {version}, {} case lines{left_out}{cut}", output.shown(), whole.cases.len());
    Ok(())
}

// The flags of `commgauge import`.

/// Turn what another tool measured into a record
///
/// What the files do not say stays unknown. Lines that cannot be read are reported with their number, and nothing is written
/// unless --skip-bad-lines is given; then the record lists them.
#[derive(Clone, Debug, clap::Args)]
pub struct ImportCommand {
    /// Files to read; one record is made of all of them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Who wrote them
    #[arg(long, value_enum)]
    pub from: Foreign,

    /// The record to write; it must not exist. With several records of commgauge, the folder to write them into
    #[arg(short, long, value_name = "RECORD")]
    pub output: PathBuf,

    /// Ranks of the groups, for tools and logs that do not print them (osu, nccl-tests)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: Option<u32>,

    /// Ranks on each node, for tools that do not say where ranks were (osu, imb), so that gate can judge them; nodes are filled one
    /// after another
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks_per_node: Option<u32>,

    /// Leave out lines that cannot be read; the record says which
    #[arg(long)]
    pub skip_bad_lines: bool,
}

/// Formats of other tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Foreign {
    /// nccl-tests and rccl-tests: their text, or the JSON of -J
    NcclTests,
    /// OSU micro-benchmarks: point to point and blocking collectives
    Osu,
    /// Intel MPI Benchmarks: IMB-MPI1
    Imb,
    /// Columns collective, dtype, ranks, bytes_total, latency_us, optional locality; further columns become labels
    Csv,
    /// Records of an older commgauge, each checked and brought to the current version; several go into a folder
    Commgauge,
}

impl Foreign {
    /// The tool whose times a record then holds.
    fn tool(self) -> Option<ForeignTool> {
        match self {
            Foreign::NcclTests => Some(ForeignTool::NcclTests),
            Foreign::Osu => Some(ForeignTool::Osu),
            Foreign::Imb => Some(ForeignTool::Imb),
            Foreign::Csv => Some(ForeignTool::Csv),
            Foreign::Commgauge => None,
        }
    }
}

fn imported(tool: ForeignTool, path: &Path, ranks: Option<u32>) -> Result<Imported> {
    let bytes = bytes_of(path)?;
    match tool {
        ForeignTool::NcclTests => parse_nccl_tests(&bytes, path, ranks),
        ForeignTool::Osu => parse_osu(&bytes, path, ranks),
        ForeignTool::Imb => parse_imb(&bytes, path),
        ForeignTool::Csv => parse_csv(&bytes, path),
    }
}

fn left_out_text(lines: usize) -> String {
    if lines == 0 { String::new() } else { format!(", {} left out", counted(lines, "line")) }
}

// Lines of other tools that cannot be read, in the words of an error.

/// Maximum number of bad lines that an error lists.
const NAMED_LINES: usize = 20;

/// The error about lines that cannot be parsed, with a list of the first ones.
fn unreadable(bad: &[String], all: usize) -> Error {
    let more = match bad.len().saturating_sub(NAMED_LINES) {
        0 => String::new(),
        more => format!("\n... and {more} more"),
    };
    let named = &bad[..bad.len().min(NAMED_LINES)];
    Error::usage(format!(
        "{} of {all} lines cannot be read; fix them, or leave them out with --skip-bad-lines:\n{}{more}",
        bad.len(),
        named.join("\n")
    ))
}

fn bad_line_text(path: &Path, line: &BadLine) -> String {
    format!("{}:{}: {}", path.shown(), line.number, line.problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_same_files_are_the_same_run_and_what_is_written_later_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, seconds: u64| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let id = |files: &[&PathBuf]| {
            Identity::of(&files.iter().map(|path| (*path).clone()).collect::<Vec<_>>()).unwrap().run_id
        };
        let (first, second) = (write("a", "1 us", 1_700_000_000), write("b", "2 us", 1_700_000_100));
        let one = id(&[&first]);
        assert!(one.starts_with("20231114T221320Z-"), "{one}");
        assert_eq!(id(&[&first]), one);
        assert!(id(&[&first, &second]).starts_with("20231114T221500Z-"));
        assert_ne!(id(&[&second]), one);
        assert_ne!(id(&[&write("a", "3 us", 1_700_000_000)]), one);
        assert!(Identity::of(&[folder.path().join("none")]).is_err());
    }
}
