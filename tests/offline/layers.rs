//! Checks which modules import which, where `unsafe` is allowed, what the offline program may use, and how long a file
//! may be. The tables below are the rule; ARCHITECTURE.md explains it. That crates import in one direction, and that only
//! one of them may contain `unsafe`, the compiler checks.

pub mod scan;

use scan::{blank, is_gated, line_of, occurrences, paths_below};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The crates in `src`, in the order in which they may use each other.
pub const CRATES: [&str; 8] = ["base", "model", "cost", "plan", "judge", "readers", "run", "app"];

/// Floors from the ground up: a room imports only rooms of lower floors.
const FLOORS: [(u32, &[&str]); 11] = [
    (
        1,
        &[
            "units",
            "error",
            "element",
            "host",
            "output_file",
            "writing",
            "digest",
            "embedded",
            "progress",
            "sample",
            "visible",
            "random",
            "testing",
        ],
    ),
    (2, &["stats", "collective", "geometry", "nccl_conf", "variant", "pattern", "mpi_call"]),
    (3, &["config", "chart"]),
    (4, &["layout", "world", "device_probe"]),
    (5, &["machine_time", "workload", "launcher"]),
    (6, &["backend", "record"]),
    (7, &["measure", "cost", "launch_check", "watchdog"]),
    (8, &["session", "launch", "planner", "verdict", "interop", "trace"]),
    (9, &["report", "doctor"]),
    (10, &["store"]),
    (11, &["cli", "bin"]),
];

/// Imports between rooms of one floor, each with its reason. The arrows make no circle.
const SIDEWAYS: [(&str, &str, &str); 16] = [
    ("doctor", "report", "findings are wrapped and escaped like reports"),
    ("error", "visible", "an error names files"),
    ("output_file", "digest", "the temporary name of a file with a long name is its digest"),
    ("host", "output_file", "the note of a signal is a file of ours"),
    ("sample", "error", "an unknown name is an error that lists the known ones"),
    ("backend", "record", "a device is described as the record writes it"),
    ("error", "host", "an error names the signal that stopped a run"),
    ("writing", "visible", "a message holds names from files and hosts"),
    ("writing", "error", "rows that cannot be written are an error"),
    ("progress", "writing", "a rank that misbehaves on request says so"),
    ("geometry", "collective", "what each rank sends and receives follows from the collective"),
    ("pattern", "collective", "the expected result follows from the collective"),
    ("pattern", "geometry", "the pattern fills and checks the buffers that the geometry lays out"),
    ("mpi_call", "collective", "a call is prepared by what it does"),
    ("mpi_call", "pattern", "buffers are laid out by the same view that fills and checks them"),
    ("bin", "cli", "a program is its flags"),
];

/// Modules that call C. They exist only with the feature `mpi`, so that `commgauge` works without libmpi.
const LAUNCHED_ONLY: [&[&str]; 3] = [&["mpi_call"], &["backend", "mpi"], &["backend", "nccl"]];
/// Files that may contain `unsafe`.
const UNSAFE_ALLOWED: [&str; 6] = [
    "src/run/mpi_call/",
    "src/run/backend/mpi/",
    "src/run/backend/mpi",
    "src/run/backend/nccl/",
    "src/run/device_probe/",
    "src/run/watchdog/asked_to_end.rs",
];
/// Programs that are started by a launcher; every other program works without MPI.
const LAUNCHED_PROGRAMS: [&str; 4] = [
    "src/bin/commgauge-suite.rs",
    "src/bin/commgauge-sweep.rs",
    "src/bin/commgauge-step.rs",
    "src/bin/commgauge-pairs.rs",
];
/// No file is longer.
const LONGEST_FILE_LINES: usize = 850;

/// Sources by their path from the repository.
pub type Sources = BTreeMap<String, String>;

fn check(sources: &Sources) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, source) in sources {
        let clean = blank(source);
        let complaint = |offset: usize, text: String| format!("{path}:{}: {text}", line_of(source, offset));
        complaints.extend(check_form(path, source));
        for offset in occurrences(&clean, "unsafe") {
            if !UNSAFE_ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
                complaints.push(complaint(offset, "`unsafe` outside the files that talk to C".into()));
            }
        }
        if !path.ends_with("lib.rs") {
            complaints.extend(check_imports(path, &clean).into_iter().map(|(at, text)| complaint(at, text)));
        }
        if !is_launched_only(sources, path) {
            complaints.extend(check_offline(path, source, &clean).into_iter().map(|(at, text)| complaint(at, text)));
        }
    }
    complaints
}

fn check_form(path: &str, source: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if !source.starts_with("//!") {
        complaints.push(format!("{path}:1: does not open with `//!` and what it answers"));
    }
    let lines = source.lines().count();
    if lines > LONGEST_FILE_LINES {
        complaints.push(format!("{path}: {lines} lines, more than {LONGEST_FILE_LINES}: divide it by subject"));
    }
    let fences = source.lines().map(str::trim_start).enumerate().filter(|(_, line)| line.starts_with("//"));
    let fences: Vec<_> = fences.filter_map(|(at, line)| Some((at, line.split_once("```")?.1))).collect();
    for (at, language) in fences.iter().step_by(2).filter(|(_, language)| *language != "text") {
        complaints.push(format!(
            "{path}:{}: an example in `{language}` that no test runs: make it a test, or ```text",
            at + 1
        ));
    }
    complaints
}

/// Everything that a file names of its own package.
fn imports(path: &str, clean: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = paths_below(clean, "crate");
    for name in CRATES {
        found.extend(paths_below(clean, &format!("commgauge_{name}")));
    }
    if room_of(path) == "bin" {
        // `src/lib.rs` hands on the rooms of all crates, and has one function of its own.
        let named = paths_below(clean, "commgauge").into_iter();
        found.extend(named.filter(|(_, segments)| segments.first().is_none_or(|first| first != "name_commit")));
    }
    found
}

fn check_imports(path: &str, clean: &str) -> Vec<(usize, String)> {
    let own = room_of(path);
    let Some(floor) = floor_of(own) else {
        return vec![(
            0,
            format!("room `{own}` has no floor; give it one in tests/offline/layers.rs and ARCHITECTURE.md"),
        )];
    };
    let mut complaints = Vec::new();
    for (offset, segments) in imports(path, clean) {
        // A macro belongs to the root of its crate, whatever its room.
        let is_macro = |name: &str| ["eprintln", "names"].contains(&name);
        let Some(room) = segments.first().filter(|room| *room != own && !is_macro(room)) else { continue };
        match floor_of(room) {
            None => complaints.push((offset, format!("imports `{room}`, which is no room"))),
            Some(other) if other > floor => {
                complaints.push((offset, format!("`{own}` (floor {floor}) imports `{room}` (floor {other}) above it")));
            }
            Some(other) if other == floor && !SIDEWAYS.iter().any(|pair| pair.0 == own && pair.1 == room) => {
                complaints
                    .push((offset, format!("`{own}` imports its neighbour `{room}`, and SIDEWAYS gives no reason")));
            }
            Some(_) => {}
        }
    }
    // From a room's first file, two steps up are outside the room, where the table above does not see them.
    if [format!("{own}.rs"), format!("{own}/mod.rs")].contains(&inside_crate(path).to_owned()) {
        let up = clean.match_indices("super::super").map(|(at, _)| (at, "write `crate::` for other rooms".to_owned()));
        complaints.extend(up);
    }
    complaints
}

fn check_offline(path: &str, source: &str, clean: &str) -> Vec<(usize, String)> {
    if LAUNCHED_PROGRAMS.contains(&path) {
        return Vec::new();
    }
    let mut reached: Vec<(usize, String)> = imports(path, clean)
        .into_iter()
        .filter(|(_, segments)| LAUNCHED_ONLY.iter().any(|room| segments.starts_with(&room.map_to_strings())))
        .map(|(at, segments)| (at, segments.join("::")))
        .collect();
    // The binding itself, and the `mod` lines that would bring the rooms in.
    let bytes = clean.as_bytes();
    for at in occurrences(clean, "mpi") {
        let is_crate = clean[at..].starts_with("mpi::") && !clean[..at].ends_with("::");
        if is_crate && (at == 0 || bytes[at - 1] != b'\'') {
            reached.push((at, "the crate mpi".into()));
        }
    }
    for module in ["mod mpi;", "mod mpi_call;", "mod nccl;"] {
        reached.extend(clean.match_indices(module).map(|(at, _)| (at, module.to_owned())));
    }
    let ungated = reached.into_iter().filter(|(at, _)| !is_gated(source, clean, *at));
    ungated.map(|(at, what)| (at, format!("reaches `{what}` without the feature mpi"))).collect()
}

/// Whether the module of the file exists only with the feature: by the table, or because the line that declares it, or
/// its parent, is gated.
fn is_launched_only(sources: &Sources, path: &str) -> bool {
    let stem = inside_crate(path).trim_end_matches(".rs").trim_end_matches("/mod");
    let segments: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if LAUNCHED_ONLY.iter().any(|room| segments.starts_with(&room.map_to_strings())) {
        return true;
    }
    let Some((name, parents)) = segments.split_last() else { return false };
    let top = path.strip_suffix(inside_crate(path)).unwrap_or("src/").trim_end_matches('/');
    let folder = parents.iter().fold(top.to_owned(), |folder, part| format!("{folder}/{part}"));
    let candidates = [format!("{folder}.rs"), format!("{folder}/mod.rs"), format!("{folder}/lib.rs")];
    candidates.iter().filter(|parent| *parent != path).any(|parent| {
        let Some(source) = sources.get(parent) else { return false };
        let clean = blank(source);
        let declared = clean.find(&format!("mod {name};"));
        declared.is_some_and(|at| is_gated(source, &clean, at)) || (folder != top && is_launched_only(sources, parent))
    })
}

trait ToStrings {
    fn map_to_strings(&self) -> Vec<String>;
}

impl ToStrings for &[&str] {
    fn map_to_strings(&self) -> Vec<String> {
        self.iter().map(|part| (*part).to_owned()).collect()
    }
}

/// The path below the folder of its crate.
pub fn inside_crate(path: &str) -> &str {
    let inside = path.trim_start_matches("src/");
    inside.split_once('/').filter(|(first, _)| CRATES.contains(first)).map_or(inside, |(_, rest)| rest)
}

fn room_of(path: &str) -> &str {
    let inside = inside_crate(path);
    inside.split('/').next().unwrap_or(inside).trim_end_matches(".rs")
}

fn floor_of(room: &str) -> Option<u32> {
    FLOORS.iter().find(|(_, rooms)| rooms.contains(&room)).map(|(floor, _)| *floor)
}

pub fn read_sources(folder: &Path, sources: &mut Sources) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            read_sources(&path, sources);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("build.rs") {
            let inside = path.strip_prefix(env!("CARGO_MANIFEST_DIR")).expect("inside the repository");
            sources.insert(inside.display().to_string(), fs::read_to_string(&path).expect("readable"));
        }
    }
}

#[test]
fn every_file_keeps_to_its_floor() {
    let mut sources = Sources::new();
    read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    assert!(sources.len() > 20, "only {} sources were found", sources.len());
    let complaints = check(&sources);
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn the_arrows_between_rooms_of_one_floor_make_no_circle() {
    let reaches = |from: &str, to: &str| SIDEWAYS.iter().any(|pair| pair.0 == from && pair.1 == to);
    for (from, to, reason) in SIDEWAYS {
        assert_eq!(floor_of(from), floor_of(to), "{from} -> {to} is not sideways");
        assert!(!reason.is_empty());
        for (middle, _, _) in SIDEWAYS {
            assert!(!(reaches(to, from) || reaches(to, middle) && reaches(middle, from)), "{from} -> {to} is a circle");
        }
    }
}

#[test]
fn what_breaks_a_rule_is_seen() {
    for (path, body, expected) in [
        ("src/base/units.rs", "use crate::report::Table;", Some("above it")),
        ("src/model/layout/axes.rs", "use crate::{error::Error, session::{self, Run}};", Some("`session` (floor 8)")),
        (
            "src/model/layout/axes.rs",
            "use crate::{\n    error::{Error, Result as R},\n    world::World,\n};",
            Some("its neighbour"),
        ),
        ("src/base/stats/mod.rs", "mod tests {\n    fn f() { crate::config::x(); }\n}", Some("`config` (floor 3)")),
        ("src/base/stats/mod.rs", "macro_rules! m { () => { $crate::cli::x() } }", Some("`cli` (floor 11)")),
        ("src/run/session/x.rs", "use commgauge_app::report::View;", Some("`report` (floor 9)")),
        ("src/run/session/x.rs", "use commgauge_base::units::Bytes;", None),
        ("src/base/stats/mod.rs", "use crate::nonsense::X;", Some("which is no room")),
        ("src/base/attic.rs", "", Some("has no floor")),
        ("src/base/stats/mod.rs", "use super::super::report::X;", Some("write `crate::`")),
        ("src/app/launch/x.rs", "fn f() { unsafe { g() } }", Some("`unsafe` outside")),
        ("src/run/session.rs", "use crate::backend::mpi::Mpi;", Some("without the feature mpi")),
        ("src/run/session.rs", "use crate::{backend::{mpi, simulated}};", Some("without the feature mpi")),
        (
            "src/run/session.rs",
            "#[cfg(not(feature = \"mpi\"))]\nuse crate::backend::mpi::X;",
            Some("without the feature"),
        ),
        (
            "src/run/session.rs",
            "#[cfg(feature = \"mpi\")]\nfn a() {}\nfn b() { crate::mpi_call::x() }",
            Some("mpi_call::x"),
        ),
        ("src/run/world/mod.rs", "pub mod mpi;", Some("`mod mpi;`")),
        ("src/app/cli/x.rs", "use mpi::traits::Communicator;", Some("the crate mpi")),
        ("src/bin/commgauge.rs", "use commgauge::backend::mpi::X;", Some("without the feature mpi")),
        ("src/run/session.rs", "#[cfg(feature = \"mpi\")]\nuse crate::backend::mpi::Mpi;", None),
        ("src/run/session.rs", "#[cfg(feature = \"mpi\")]\nfn a() {\n  if x { y(); }\n  crate::mpi_call::x()\n}", None),
        ("src/run/world/mod.rs", "#[cfg(feature = \"mpi\")]\npub mod mpi;", None),
        ("src/bin/commgauge-suite.rs", "use commgauge::backend::mpi::X;", None),
        ("src/run/backend/mpi/calls.rs", "use mpi::ffi; use crate::mpi_call; fn f() { unsafe { g() } }", None),
        (
            "src/base/units.rs",
            "// use crate::report::X;\n/* crate::cli */ const A: &str = \"crate::cli::x unsafe\";",
            None,
        ),
        (
            "src/base/collective/mod.rs",
            "const A: &str = r#\"crate::cli::\"x\"#; const B: char = '\"'; fn f<'a>() { crate::error::x() }",
            None,
        ),
        ("src/base/geometry.rs", "use crate::collective::Collective;", None),
        ("src/base/geometry.rs", "/// ```\n/// f();\n/// ```\nfn f() {}", Some("that no test runs")),
        ("src/base/geometry.rs", "/// ```text\n/// a -> b\n/// ```\nfn f() {}", None),
    ] {
        let sources = Sources::from([(path.to_owned(), format!("//! Subject.\n{body}\n"))]);
        let complaints = check(&sources).join("\n");
        match expected {
            Some(words) => {
                assert!(complaints.contains(words), "{path}: {body}\nexpected {words}, found {complaints:?}")
            }
            None => assert_eq!(complaints, "", "{path}: {body}"),
        }
    }
}

#[test]
fn a_file_that_is_declared_under_the_feature_may_use_mpi() {
    let live = ("src/run/session/live.rs".to_owned(), "//! Live.\nuse crate::backend::mpi::X;\n".to_owned());
    let parent = |gate: &str| ("src/run/session/mod.rs".to_owned(), format!("//! Session.\n{gate}mod live;\n"));
    assert_eq!(check(&Sources::from([live.clone(), parent("#[cfg(feature = \"mpi\")]\n")])), Vec::<String>::new());
    assert_eq!(check(&Sources::from([live, parent("")])).len(), 1);
}

#[test]
fn a_long_file_and_one_without_a_subject_are_seen() {
    let long = format!("//! Subject.\n{}", "\n".repeat(LONGEST_FILE_LINES));
    assert!(check(&Sources::from([("src/base/units.rs".into(), long)]))[0].contains("851 lines"));
    assert!(
        check(&Sources::from([("src/base/units.rs".into(), "use std::fmt;\n".into())]))[0].contains("does not open")
    );
}
