//! `commgauge show layout`: the groups of every axis and their placement on the nodes. Needs no launch.
//!
//! Flags are parsed like a suite's `[[layout]]`, so that errors are reported in the same way.

use super::TableOrJson;
use super::output::columns;
use crate::report::layout::{Overview, SHOWN, write, write_groups, write_json};
use crate::report::written;
use clap::Args;
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::config::{LayoutTable, Place, Recipe, Table, read_text};
use commgauge_model::layout::{Axis, Layout, MOST_RANKS};
use commgauge_model::workload::step::{layout_on, ranks_of};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// Show the groups of every axis of a layout, and how they are placed on the nodes
///
/// commgauge show layout --ranks 16 --tp 2 --pp 4
///
/// Ranks are numbered as the launcher numbers them, so that consecutive ranks share a node.
#[derive(Clone, Debug, clap::Args)]
pub struct LayoutCommand {
    /// The degrees, their order, and where ranks stand.
    #[command(flatten)]
    pub degrees: DegreeFlags,

    /// Number of ranks [default: tp x cp x dp x pp, if --dp is given]
    #[arg(long, visible_alias = "world", value_name = "RANKS", allow_negative_numbers = true)]
    pub ranks: Option<String>,

    /// Ranks on each node
    #[arg(long, value_name = "N", default_value = "8", allow_negative_numbers = true)]
    pub ranks_per_node: String,

    /// Show these axes only, with all their groups; names as in the table, comma-separated
    #[arg(long = "axis", value_name = "AXES", value_delimiter = ',')]
    pub axes: Vec<String>,

    /// Format of the answer
    #[arg(long, value_enum, default_value_t)]
    pub format: TableOrJson,

    /// Columns that the picture may take [default: COLUMNS, else those of the terminal, else 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(40..), hide_short_help = true)]
    pub width: Option<u16>,
}

impl LayoutCommand {
    fn world(&self) -> Result<Option<u32>> {
        let given = self.ranks.clone().map(|text| ("--ranks", "ranks", text));
        Table::of_flags(given).take("ranks").map(|item| item.count_within(1..=MOST_RANKS)).transpose()
    }

    /// Prints the layout on stdout.
    ///
    /// # Errors
    /// Usage errors as of [`DegreeArguments::layout`], and an environment error if stdout cannot be written.
    pub fn execute(&self) -> Result<i32> {
        let stdout = std::io::stdout();
        self.show_on(columns(self.width), &mut BufWriter::new(stdout.lock()))?;
        Ok(0)
    }

    /// Writes the layout to `out`. If the reader closes the pipe early, it ends without an error.
    ///
    /// # Errors
    /// As [`LayoutCommand::execute`].
    pub fn show_on(&self, width: u16, out: &mut dyn Write) -> Result<()> {
        let overview = self.overview()?;
        let result = match self.format {
            TableOrJson::Table if self.axes.is_empty() => write(&overview, usize::from(width), out),
            TableOrJson::Table => write(&overview, usize::from(width), out)
                .and_then(|()| write_groups(&overview, usize::from(width), out)),
            TableOrJson::Json => write_json(&overview, out),
        };
        written(result.and_then(|()| out.flush()), "the layout")
    }

    fn overview(&self) -> Result<Overview> {
        let key = "ranks_per_node";
        let mut table = Table::of_flags([("--ranks-per-node", key, self.ranks_per_node.clone())]);
        let accepted = "the number of ranks on each node";
        let ranks_per_node = table.require(key, accepted)?.count_within(1..=MOST_RANKS)?;
        let mut axes = Vec::new();
        for name in &self.axes {
            let shown = Axis::named(name).filter(|axis| SHOWN.contains(axis));
            let axis = shown.ok_or_else(|| {
                let accepted = SHOWN.map(Axis::name).join(", ");
                Place::flag("--axis").wrong(format!("found `{name}`; accepted: {accepted}"))
            })?;
            axes.push(axis);
        }
        Ok(Overview::new(self.degrees.layout(self.world()?)?, ranks_per_node, &axes))
    }
}

// The degrees of a layout given by flags. They correspond to the keys of a suite's `[[layout]]` and are parsed by the
// same code, so that errors are reported in the same way.

/// The flags that stand for a suite's `[[layout]]`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Layout")]
pub struct DegreeFlags {
    /// Degree of tensor parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub tp: Option<String>,

    /// Degree of context parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub cp: Option<String>,

    /// Degree of data parallelism [default: what is left of the ranks]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub dp: Option<String>,

    /// Degree of pipeline parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub pp: Option<String>,

    /// Degree of expert parallelism (within the tp x cp x dp ranks of a stage) [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub ep: Option<String>,

    /// Degree of tensor parallelism inside experts [default: that of --tp; 1 where a model serves with --ep]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true, hide_short_help = true)]
    pub etp: Option<String>,

    /// Axes from the fastest varying over consecutive ranks on; those of degree 1 may be left out [default:
    /// tp-cp-ep-dp-pp]
    #[arg(long, value_name = "AXES", hide_short_help = true)]
    pub order: Option<String>,

    /// File that names the rank at each position of the grid: ranks separated by spaces, commas or line breaks,
    /// comments from # on
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub rank_list: Option<PathBuf>,
}

impl DegreeFlags {
    /// The equivalent suite table, without placed ranks; a recipe says what the flags leave out.
    ///
    /// # Errors
    /// Usage errors that name the flag, or the place in the recipe, and the rule.
    pub fn table(&self, recipe: Option<&Recipe>) -> Result<LayoutTable> {
        let given = self.flags().into_iter().filter_map(|(flag, key, text)| Some((flag, key, text.clone()?)));
        let mut table = Table::of_flags(given);
        recipe.inspect(|recipe| recipe.fill(&mut table, self.flags().map(|(_, key, _)| key)));
        LayoutTable::read(table)
    }

    /// The flags that are keys of a suite's table, with their texts.
    fn flags(&self) -> [(&'static str, &'static str, &Option<String>); 7] {
        [
            ("--tp", "tp", &self.tp),
            ("--cp", "cp", &self.cp),
            ("--dp", "dp", &self.dp),
            ("--pp", "pp", &self.pp),
            ("--ep", "ep", &self.ep),
            ("--etp", "etp", &self.etp),
            ("--order", "order", &self.order),
        ]
    }

    /// Whether any of them was given.
    pub fn are_given(&self) -> bool {
        self.rank_list.is_some() || self.flags().iter().any(|(.., text)| text.is_some())
    }

    /// The equivalent suite table on that many ranks, with placed ranks.
    ///
    /// # Errors
    /// As [`DegreeFlags::table`], degrees that do not fit the ranks, and errors in the file of ranks, with the line
    /// number.
    pub fn table_on(&self, world: u32, recipe: Option<&Recipe>) -> Result<LayoutTable> {
        let mut table = self.table(recipe)?;
        if let Some(path) = &self.rank_list {
            layout_on(&table, world)?;
            table.ranks = Some(read_ranks(path, world)?);
        }
        Ok(table)
    }

    /// The layout on that many ranks, or on as many as the degrees need.
    ///
    /// # Errors
    /// As [`DegreeFlags::table_on`], and neither ranks nor --dp.
    pub fn layout(&self, world: Option<u32>) -> Result<Layout> {
        let world = match (world, ranks_of(&self.table(None)?)?) {
            (Some(world), _) | (None, Some(world)) => world,
            (None, None) => {
                let problem = "is missing; give the number of ranks, or --dp, so that it follows from the degrees";
                return Err(Place::flag("--ranks").wrong(problem));
            }
        };
        layout_on(&self.table_on(world, None)?, world)
    }
}

// Parses a mapping file: the rank at each position of the grid.

/// Reads a mapping file: ranks separated by spaces, commas or line breaks, with comments from `#` to the end of the
/// line. The `i`-th rank is placed at position `i` of the grid.
///
/// # Errors
/// Usage errors that name file and line: not a rank, a rank outside of the layout, a repeated rank, a missing rank.
pub fn read_ranks(path: &Path, world: u32) -> Result<Vec<u32>> {
    parse_ranks(&read_text(path, &Place::flag("--rank-list"))?, path, world)
}

/// Parses the contents of a mapping file, as [`read_ranks`] does; `path` is for the messages.
///
/// # Errors
/// As [`read_ranks`].
pub fn parse_ranks(text: &str, path: &Path, world: u32) -> Result<Vec<u32>> {
    let rule = format!("each of the ranks 0 to {} once", world.saturating_sub(1));
    let wrong = |line: usize, problem: String| Error::usage(format!("{}:{line}: {problem}; {rule}", path.shown()));
    let mut ranks = Vec::with_capacity(world as usize);
    // Line on which each rank was named; 0 for none yet.
    let mut named_on = vec![0; world as usize];
    let mut last_line = 1;
    // Some editors write a byte order mark.
    for (line, text) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        for word in words(text).map_err(|problem| wrong(line, problem))? {
            let digits = word.bytes().all(|byte| byte.is_ascii_digit());
            if !digits {
                return Err(wrong(line, format!("found `{}`, which is no rank", word.escape_debug())));
            }
            match word.parse::<u32>().ok().and_then(|rank| Some((rank, named_on.get_mut(rank as usize)?))) {
                None => return Err(wrong(line, format!("found rank {word}, but the layout has {world} ranks"))),
                Some((rank, named)) if *named > 0 => {
                    return Err(wrong(
                        line,
                        format!("rank {rank} is named a second time, the first is on line {named}"),
                    ));
                }
                Some((rank, named)) => {
                    *named = line;
                    ranks.push(rank);
                }
            }
            last_line = line;
        }
    }
    match named_on.iter().position(|line| *line == 0) {
        Some(missing) => {
            let named = ranks.len();
            Err(wrong(last_line, format!("the file names {named} of {world} ranks, and rank {missing} is missing")))
        }
        None => Ok(ranks),
    }
}

/// The ranks of one line, as written. A comma may end a line, but there must be a rank between two commas.
fn words(line: &str) -> std::result::Result<Vec<&str>, String> {
    let text = line.split('#').next().unwrap_or_default().trim();
    let parts = text.strip_suffix(',').unwrap_or(text).split(',');
    if !text.is_empty() && parts.clone().any(|part| part.trim().is_empty()) {
        return Err("found a comma without a rank".to_owned());
    }
    Ok(parts.flat_map(str::split_whitespace).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::show::Document;
    use clap::Parser;
    use serde_json::Value;

    // Tests of the command from its arguments: errors, the picture at two widths, the document against its schema.

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        layout: LayoutCommand,
    }

    fn shown(line: &str, width: u16) -> Result<String> {
        let words = std::iter::once("layout").chain(line.split_whitespace());
        let command = Program::try_parse_from(words).map_err(|error| Error::usage(error.to_string()))?.layout;
        let mut out = Vec::new();
        command.show_on(width, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    fn document(line: &str) -> Value {
        serde_json::from_str(&shown(&format!("{line} --format json"), 80).unwrap()).unwrap()
    }

    #[test]
    fn invalid_layouts_are_refused_with_the_flag_and_the_rule() {
        for (line, expected) in [
            ("", "--ranks: is missing; give the number of ranks, or --dp, so that it follows"),
            ("--tp 2 --pp 4", "--ranks: is missing"),
            ("--ranks 0", "--ranks: found 0; accepted: a whole number from 1 to 1048576"),
            ("--ranks 1048577", "--ranks: found 1048577; accepted: a whole number from 1 to 1048576"),
            ("--ranks 99999999999999999999999999", "--ranks: found 99999999999999999999999999; accepted"),
            ("--ranks 16 --tp 0", "--tp: found 0; accepted: a whole number from 1 to 1048576"),
            ("--ranks 16 --pp -4", "--pp: found -4; accepted: a whole number from 1"),
            ("--ranks 16 --ep 2.5", "--ep: found 2.5; accepted: a whole number from 1"),
            ("--ranks 16 --cp two", "--cp: found the text \"two\"; accepted: a whole number from 1"),
            ("--ranks 16 --tp 2 --dp 3 --pp 4", "= 24 ranks, but there are 16; start 24, or write dp = 2"),
            (
                "--ranks 16 --tp 3",
                "needs a multiple of 3 ranks, but there are 16; nearest: 15 or 18, or write tp = 2 or 4",
            ),
            (
                "--tp 1024 --dp 1024 --pp 2",
                "tp 1024 x cp 1 x dp 1024 x pp 2 = 2097152 ranks; the maximum is 1048576 (2^20)",
            ),
            (
                "--ranks 16 --tp 2 --ep 3",
                "ep 3 x etp 2 = 6 does not divide the tp 2 x cp 1 x dp 8 = 16 ranks of a stage",
            ),
            ("--ranks 16 --etp 3", "nearest that divide: etp 2 or 4"),
            ("--ranks 16 --order tp-dp-zz", "--order: found `zz` in `tp-dp-zz`; accepted: the axes from the fastest"),
            ("--ranks 16 --order tp-dp-tp", "--order: `tp-dp-tp` names tp twice"),
            ("--ranks 16 --tp 2 --order tp-pp", "axis order tp-pp: dp is missing, but dp is 8"),
            ("--ranks 16 --ranks-per-node 0", "--ranks-per-node: found 0; accepted: a whole number from 1"),
            (
                "--ranks 16 --axis tp,xx",
                "--axis: found `xx`; accepted: tp, cp, ep, etp, dp, pp, mp, dp_cp, edp, embedding",
            ),
            ("--ranks 16 --axis pair", "--axis: found `pair`"),
            ("--ranks 16 --rank-list no/such/file", "--rank-list: there is no file no/such/file"),
            ("--ranks 16 --format yaml", "invalid value 'yaml'"),
            (
                "--ranks 64 --tp 8 --pp 2 --ep 4 --order tp-cp-ep-pp-dp",
                "tp 8 x cp 1 = 8 ranks for dense layers and etp 8 x ep 4 = 32 for experts precede pp; put pp last",
            ),
        ] {
            let error = shown(line, 80).expect_err(line);
            assert!(error.to_string().contains(expected), "{line}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn the_picture_fits_the_width() {
        for (name, line) in [
            ("sixteen", "--ranks 16 --tp 2 --pp 4 --dp 2"),
            ("sixteen_swapped", "--ranks 16 --tp 2 --pp 4 --order tp-cp-ep-pp-dp"),
            ("experts", "--ranks 64 --tp 8 --pp 2 --ep 8 --etp 1"),
            ("many", "--ranks 131072 --tp 8 --cp 2 --pp 16 --ep 64 --etp 1"),
            ("wide_node", "--ranks 144 --ranks-per-node 72 --tp 8 --pp 2"),
            ("uneven", "--ranks 12 --tp 2 --dp 6 --axis dp,pp"),
        ] {
            for width in [80, 140] {
                let text = shown(line, width).unwrap();
                let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
                assert!(widest <= usize::from(width), "{name} at {width}: {widest}\n{text}");
                insta::assert_snapshot!(format!("{name}_{width}"), text);
            }
            let text = shown(line, 60).unwrap();
            assert!(text.lines().all(|line| line.chars().count() <= 60), "{name} at 60:\n{text}");
        }
    }

    #[test]
    fn the_document_has_every_group_and_its_locality() {
        let json = document("--tp 2 --pp 4 --dp 2");
        assert_eq!((&json["format"], &json["version"]), (&"commgauge-layout".into(), &1.into()));
        assert_eq!((&json["world"], &json["order"]), (&16.into(), &"tp-cp-ep-dp-pp".into()));
        assert_eq!(json["degrees"], serde_json::json!({"tp": 2, "cp": 1, "dp": 2, "pp": 4, "ep": 1, "etp": 2}));
        let keys: Vec<_> = json["groups"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut expected = ["tp", "cp", "ep", "dp", "pp", "mp", "dp_cp", "edp", "embedding"];
        expected.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!(
            json["groups"]["pp"],
            serde_json::json!([[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]])
        );
        let locality = |nodes, ranks, stride, groups| {
            serde_json::json!({
                "nodes_spanned": nodes, "ranks_per_node": ranks, "stride": stride, "concurrent_groups_per_node": groups
            })
        };
        assert_eq!(json["locality"]["tp"], locality(1, 2, 1, 4));
        assert_eq!(json["locality"]["dp"], locality(1, 2, 2, 4));
        assert_eq!(json["locality"]["pp"], locality(2, 2, 4, 4));
        assert_eq!(json["locality"]["mp"], locality(2, 4, 0, 2));
        assert_eq!(json["locality"]["embedding"], locality(2, 1, 12, 4));
        let json = document("--tp 8 --dp 4 --pp 2 --ep 8 --etp 1");
        assert_eq!(json["groups"]["etp"][63], serde_json::json!([63]), "etp is there where it is not tp");
        let json = document("--ranks 16 --tp 2 --axis dp,tp");
        assert_eq!(json["groups"].as_object().unwrap().len(), 2);
    }

    #[test]
    fn every_document_is_valid_and_an_unknown_one_is_not() {
        let validator = jsonschema::validator_for(&Document::Layout.schema()).unwrap();
        for line in
            ["--ranks 1", "--ranks 16 --tp 2 --pp 4", "--ranks 64 --tp 8 --ep 8 --etp 1", "--ranks 16 --axis dp"]
        {
            let json = document(line);
            let errors: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{line}: {errors:?}");
        }
        let mut stranger = document("--ranks 16");
        stranger["groups"]["zz"] = serde_json::json!([[0]]);
        assert!(!validator.is_valid(&stranger));
        stranger = document("--ranks 16");
        stranger["version"] = 2.into();
        assert!(!validator.is_valid(&stranger));
    }

    #[test]
    fn a_mapping_file_moves_ranks_to_other_positions() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks.txt");
        std::fs::write(&path, "0 4 1 5 # even positions on the first node\n2 6 3 7\n").unwrap();
        let line = format!("--tp 2 --dp 4 --ranks-per-node 4 --rank-list {}", path.display());
        let json = document(&line);
        assert_eq!(json["groups"]["tp"], serde_json::json!([[0, 4], [1, 5], [2, 6], [3, 7]]));
        assert_eq!(json["locality"]["tp"]["nodes_spanned"], 2);
        assert!(
            shown(&line, 80)
                .unwrap()
                .starts_with("8 ranks on 2 nodes of 4: tp 2 x dp 4, order tp-cp-ep-dp-pp, ranks placed")
        );
        std::fs::write(&path, "0 4 1 5\n2 6 3 3\n").unwrap();
        let error = shown(&line, 80).unwrap_err();
        let place = format!("{}:2: rank 3 is named a second time, the first is on line 2", path.display());
        assert!(error.to_string().starts_with(&place), "{error}");
    }

    fn read(bytes: &[u8], world: u32) -> Result<Vec<u32>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks.txt");
        std::fs::write(&path, bytes).unwrap();
        read_ranks(&path, world)
    }

    #[test]
    fn a_wrong_file_is_refused_with_line_and_rule() {
        for (text, expected) in [
            (
                &b"0 1\n2\n1\n"[..],
                "ranks.txt:3: rank 1 is named a second time, the first is on line 1; each of the ranks 0",
            ),
            (
                b"0 1\n3\n\n",
                "ranks.txt:2: the file names 3 of 4 ranks, and rank 2 is missing; each of the ranks 0 to 3",
            ),
            (b"", "ranks.txt:1: the file names 0 of 4 ranks, and rank 0 is missing"),
            (b"# 0 1 2 3", "ranks.txt:1: the file names 0 of 4 ranks"),
            (b"0 1 2 3 3", "ranks.txt:1: rank 3 is named a second time"),
            (b"0\n1\n2\n4", "ranks.txt:4: found rank 4, but the layout has 4 ranks"),
            (b"99999999999999999999999", "found rank 99999999999999999999999, but the layout has 4 ranks"),
            (b"0 1 2 three", "ranks.txt:1: found `three`, which is no rank"),
            (b"0 1 2 -3", "found `-3`, which is no rank"),
            (b"0 1 2 +3", "found `+3`, which is no rank"),
            (b"0 1 2 3.0", "found `3.0`, which is no rank"),
            (b"0-3", "found `0-3`, which is no rank"),
            (b"0\x1b[1m", "found `0\\u{1b}[1m`, which is no rank"),
            (b"0,1,,3", "ranks.txt:1: found a comma without a rank"),
            (b",0,1,2,3", "found a comma without a rank"),
            (b"0\n,\n1", "ranks.txt:2: found a comma without a rank"),
            (b"0 1\n2 \xff", "ranks.txt is not text in UTF-8"),
        ] {
            let error = read(text, 4).expect_err(&String::from_utf8_lossy(text));
            assert!(error.to_string().contains(expected), "{error}\n{expected}");
            assert_eq!(error.exit_code(), 2);
        }
        let error = read_ranks(Path::new("no/such/file"), 4).unwrap_err();
        assert!(error.to_string().starts_with("--rank-list: there is no file no/such/file"), "{error}");
        assert_eq!(error.exit_code(), 2);
        assert_eq!(read_ranks(Path::new("."), 4).unwrap_err().exit_code(), 2, "a folder");
    }

    #[test]
    fn lines_spaces_commas_comments_and_both_line_ends_are_read() {
        for text in [
            "3\n1\n0\n2\n",
            "3 1 0 2",
            "3,1,0,2",
            "3, 1,\n0, 2,\n",
            "# node b first\r\n3 1 # two\r\n\r\n0\t2\r\n",
            "\u{feff}3 1 0 2",
        ] {
            assert_eq!(read(text.as_bytes(), 4).expect(text), [3, 1, 0, 2], "{text:?}");
        }
    }
}
