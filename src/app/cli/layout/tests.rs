//! Tests of the command from its arguments: errors, the picture at two widths, the document against its schema.

use super::*;
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
        ("--ranks 16 --tp 3", "needs a multiple of 3 ranks, but there are 16; nearest: 15 or 18, or write tp = 2 or 4"),
        ("--tp 1024 --dp 1024 --pp 2", "tp 1024 x cp 1 x dp 1024 x pp 2 = 2097152 ranks; the most are 1048576 (2^20)"),
        ("--ranks 16 --tp 2 --ep 3", "ep 3 x etp 2 = 6 does not divide the tp 2 x cp 1 x dp 8 = 16 ranks of a stage"),
        ("--ranks 16 --etp 3", "nearest that divide: etp 2 or 4"),
        ("--ranks 16 --order tp-dp-zz", "--order: found `zz` in `tp-dp-zz`; accepted: the axes from the fastest"),
        ("--ranks 16 --order tp-dp-tp", "--order: `tp-dp-tp` names tp twice"),
        ("--ranks 16 --tp 2 --order tp-pp", "axis order tp-pp: dp is left out, but dp is 8"),
        ("--ranks 16 --ranks-per-node 0", "--ranks-per-node: found 0; accepted: a whole number from 1"),
        ("--ranks 16 --axis tp,xx", "--axis: found `xx`; accepted: tp, cp, ep, etp, dp, pp, mp, dp_cp, edp, embedding"),
        ("--ranks 16 --axis pair", "--axis: found `pair`"),
        ("--ranks 16 --rank-list no/such/file", "--rank-list: cannot read no/such/file"),
        ("--ranks 16 --format yaml", "invalid value 'yaml'"),
        (
            "--ranks 64 --tp 8 --pp 2 --ep 4 --order tp-cp-ep-pp-dp",
            "before pp are tp 8 x cp 1 = 8 ranks for dense layers and etp 8 x ep 4 = 32 for experts; put pp last",
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
    assert_eq!(json["groups"]["pp"], serde_json::json!([[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]));
    let lies = |nodes, ranks, stride, groups| {
        serde_json::json!({
            "nodes_spanned": nodes, "ranks_per_node": ranks, "stride": stride, "concurrent_groups_per_node": groups
        })
    };
    assert_eq!(json["locality"]["tp"], lies(1, 2, 1, 4));
    assert_eq!(json["locality"]["dp"], lies(1, 2, 2, 4));
    assert_eq!(json["locality"]["pp"], lies(2, 2, 4, 4));
    assert_eq!(json["locality"]["mp"], lies(2, 4, 0, 2));
    assert_eq!(json["locality"]["embedding"], lies(2, 1, 12, 4));
    let json = document("--tp 8 --dp 4 --pp 2 --ep 8 --etp 1");
    assert_eq!(json["groups"]["etp"][63], serde_json::json!([63]), "etp is there where it is not tp");
    let json = document("--ranks 16 --tp 2 --axis dp,tp");
    assert_eq!(json["groups"].as_object().unwrap().len(), 2);
}

#[test]
fn every_document_is_valid_and_an_unknown_one_is_not() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    for line in ["--ranks 1", "--ranks 16 --tp 2 --pp 4", "--ranks 64 --tp 8 --ep 8 --etp 1", "--ranks 16 --axis dp"] {
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
