//! `commgauge show layout`: the groups of every axis and their placement on the nodes. Needs no launch.
//!
//! Flags are parsed like a suite's `[[layout]]`, so that errors are reported in the same way.

use super::TableOrJson;
use super::degrees::DegreeFlags;
use super::output::columns;
use crate::report::layout::{Overview, SHOWN, write, write_groups, write_json};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::{Place, Table};
use commgauge_model::layout::{Axis, MOST_RANKS};
use std::io::{BufWriter, ErrorKind, Write};

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
        let written = match self.format {
            TableOrJson::Table => write(&overview, usize::from(width), out).and_then(|()| match self.axes.is_empty() {
                true => Ok(()),
                false => write_groups(&overview, usize::from(width), out),
            }),
            TableOrJson::Json => write_json(&overview, out),
        };
        match written.and_then(|()| out.flush()) {
            Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
                Err(Error::environment(format!("cannot write the layout: {cause}")))
            }
            _ => Ok(()),
        }
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

#[cfg(test)]
mod tests {
    // Tests of the command from its arguments: errors, the picture at two widths, the document against its schema.
    use super::*;
    use crate::cli::schemas::Document;
    use clap::Parser;
    use serde_json::Value;

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
            ("--ranks 16 --rank-list no/such/file", "--rank-list: cannot read no/such/file"),
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
}
