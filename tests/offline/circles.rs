//! No files import each other in a circle: whoever reads a file never needs one that needs it in turn.
//!
//! What is in the way of it is named with its arrows. The cure is to move what the wrong arrow names (a type, a constant, a helper)
//! into a file below both.

mod arrows;

use crate::layers::{Sources, read_sources};
use arrows::{Arrows, arrows};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Groups of files of which each reaches every other.
fn circles(arrows: &Arrows) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        arrows.keys().map(|file| (file.as_str(), reached(arrows, file))).collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|targets| targets.contains(to));
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for (file, targets) in &reached {
        let mutual: BTreeSet<&str> = targets.iter().copied().filter(|other| reaches(other, file)).collect();
        if mutual.len() > 1 && !circles.contains(&mutual) {
            circles.push(mutual);
        }
    }
    circles
}

/// All files to which the arrows of a file lead, directly or not.
fn reached<'a>(arrows: &'a Arrows, file: &str) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![file]);
    while let Some(file) = next.pop() {
        for target in arrows.get(file).into_iter().flat_map(|targets| targets.keys()) {
            if reached.insert(target.as_str()) {
                next.push(target);
            }
        }
    }
    reached
}

/// A circle with its arrows, and what each takes.
fn described(circle: &BTreeSet<&str>, arrows: &Arrows) -> String {
    let mut text = format!("a circle of {} files:\n", circle.len());
    for from in circle {
        for (to, names) in arrows[*from].iter().filter(|(to, _)| circle.contains(to.as_str())) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            text += &format!("  {from} -> {to}: {}\n", names.join(", "));
        }
    }
    text
}

#[test]
fn no_files_import_each_other_in_a_circle() {
    let mut sources = Sources::new();
    read_sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut sources);
    let arrows = arrows(&sources);
    assert!(arrows.values().map(|targets| targets.len()).sum::<usize>() > 1000, "hardly any imports were found");
    let complaints: Vec<String> = circles(&arrows).iter().map(|circle| described(circle, &arrows)).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// The circles of some files below `src/`, each as its files.
fn circles_of(files: &[(&str, &str)]) -> Vec<String> {
    let sources: Sources = files.iter().map(|(path, code)| (format!("src/{path}"), (*code).to_owned())).collect();
    let arrows = arrows(&sources);
    circles(&arrows).iter().map(|circle| circle.iter().copied().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn circles_of_two_and_of_three_files_are_found() {
    let two = [
        ("room/mod.rs", "mod a;\nmod b;"),
        ("room/a.rs", "use super::b::B;\npub struct A;"),
        ("room/b.rs", "use crate::room::a::A;"),
    ];
    assert_eq!(circles_of(&two), ["src/room/a.rs src/room/b.rs"]);
    let three = [
        ("room.rs", "mod a;\nmod b;\nmod c;"),
        ("room/a.rs", "fn f() { super::b::g() }"),
        ("room/b.rs", "use super::{\n    c::{self, C},\n};"),
        ("room/c.rs", "use super::super::room::a;"),
    ];
    assert_eq!(circles_of(&three), ["src/room/a.rs src/room/b.rs src/room/c.rs"]);
}

#[test]
fn a_parent_that_defines_what_its_children_use_and_uses_them_is_a_circle() {
    let parent = "mod a;\nuse a::f;\npub struct P;\nfn g() { f() }";
    assert_eq!(
        circles_of(&[("room/mod.rs", parent), ("room/a.rs", "use super::P;")]),
        ["src/room/a.rs src/room/mod.rs"]
    );
    let by_path = "mod a;\npub struct P;\nfn g() { a::f() }";
    assert_eq!(circles_of(&[("room.rs", by_path), ("room/a.rs", "use super::P;")]), ["src/room.rs src/room/a.rs"]);
}

#[test]
fn a_circle_behind_a_re_export_is_found() {
    for hand_on in ["pub use b::B;", "pub(crate) use b::{Other as B};", "use b::B;"] {
        let parent = format!("mod a;\nmod b;\n{hand_on}");
        let files = [
            ("room/mod.rs", parent.as_str()),
            ("room/a.rs", "use super::B;\npub struct A;"),
            ("room/b.rs", "use super::a::A;"),
        ];
        assert_eq!(circles_of(&files), ["src/room/a.rs src/room/b.rs"], "{hand_on}");
    }
}

#[test]
fn a_tree_is_no_circle() {
    let tree = [
        ("lib.rs", "pub mod room;\npub mod other;"),
        // Hands a child's names on, and defines what another child uses.
        ("room/mod.rs", "mod a;\nmod b;\npub use a::{A, f as g};\npub struct P;"),
        ("room/a.rs", "use super::b::B;\npub struct A;"),
        ("room/b.rs", "use super::P;\nuse crate::other::A;\n// use super::a::A;\nconst TEXT: &str = \"super::a::A\";"),
        ("other.rs", "pub(in crate::other) struct A;\nuse std::fmt;"),
    ];
    assert_eq!(circles_of(&tree), [""; 0]);
}

#[test]
fn tests_may_use_what_uses_their_file() {
    let files = [
        ("room/mod.rs", "mod a;\nmod b;\n#[cfg(test)]\nmod testing;"),
        ("room/a.rs", "pub struct A;\n#[cfg(test)]\nmod tests {\n    use super::super::b::B;\n}"),
        ("room/b.rs", "use super::a::A;\n#[cfg(test)]\nuse super::testing::T;"),
        ("room/testing.rs", "use super::b::B;"),
    ];
    assert_eq!(circles_of(&files), [""; 0]);
}
