//! The crates that programs are built of come from the registry and have licences that deny.toml allows. `cargo deny check` asks the
//! same and more, where it is installed.

use serde::Deserialize;
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

#[derive(Deserialize)]
struct Rules {
    licenses: Licences,
}

#[derive(Deserialize)]
struct Licences {
    allow: Vec<String>,
    exceptions: Vec<Exception>,
}

#[derive(Deserialize)]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<Requirement>,
}

#[derive(Deserialize)]
struct Requirement {
    name: String,
    req: String,
    path: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Edge>,
}

#[derive(Deserialize)]
struct Edge {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Everything that a program of ours contains or is built by; crates for tests and benches are left out.
fn built_of(metadata: &Metadata) -> BTreeSet<&str> {
    let edges: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = metadata.workspace_members.iter().map(String::as_str).collect();
    while let Some(id) = open.pop() {
        if reached.insert(id) {
            let is_built = |edge: &&Edge| edge.dep_kinds.iter().any(|kind| kind.kind.as_deref() != Some("dev"));
            open.extend(edges[id].deps.iter().filter(is_built).map(|edge| edge.pkg.as_str()));
        }
    }
    reached
}

fn complaints(rules: &Rules, metadata: &Metadata) -> Vec<String> {
    let built = built_of(metadata);
    let mut found = Vec::new();
    for package in metadata.packages.iter().filter(|package| built.contains(package.id.as_str())) {
        let Package { name, license, source, .. } = package;
        match source.as_deref() {
            None | Some(REGISTRY) => {}
            Some(other) => found.push(format!("{name} comes from {other}; accepted: {REGISTRY}")),
        }
        let any = |dependency: &&Requirement| dependency.req == "*" && dependency.path.is_none();
        found.extend(package.dependencies.iter().filter(any).filter(|_| source.is_none()).map(|dependency| {
            format!("{name} takes any version of {}; accepted: a version in Cargo.toml", dependency.name)
        }));
        let exceptions = rules.licenses.exceptions.iter().filter(|exception| exception.name == *name);
        let allowed: Vec<&String> =
            rules.licenses.allow.iter().chain(exceptions.flat_map(|exception| &exception.allow)).collect();
        let is_allowed = |req: &LicenseReq| allowed.iter().any(|licence| **licence == req.to_string());
        let expression = license.as_deref().map(|text| Expression::parse_mode(text, ParseMode::LAX));
        match expression {
            Some(Ok(expression)) if expression.evaluate(is_allowed) => {}
            _ => found.push(format!("{name} has the licence {license:?}; deny.toml does not allow it")),
        }
    }
    found
}

fn metadata() -> Metadata {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--all-features"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs the tests");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
}

fn rules() -> Rules {
    toml::from_str(include_str!("../../deny.toml")).expect("deny.toml lists licences")
}

#[test]
fn every_crate_of_the_programs_has_a_licence_and_an_origin_that_are_allowed() {
    let metadata = metadata();
    assert!(built_of(&metadata).len() > 100, "the walk reached few crates: {:?}", built_of(&metadata));
    assert_eq!(complaints(&rules(), &metadata), Vec::<String>::new());
}

#[test]
fn unknown_licences_origins_and_versions_are_named() {
    let mut metadata = metadata();
    let changed = |metadata: &mut Metadata, name: &str, change: fn(&mut Package)| {
        change(metadata.packages.iter_mut().find(|package| package.name == name).expect("in use"));
    };
    changed(&mut metadata, "serde", |package| package.license = Some("GPL-3.0-only".into()));
    changed(&mut metadata, "clap", |package| package.license = None);
    changed(&mut metadata, "csv", |package| package.source = Some("git+https://example.com/csv".into()));
    changed(&mut metadata, "commgauge-base", |package| package.dependencies[0].req = "*".into());
    changed(&mut metadata, "commgauge-base", |package| package.dependencies[0].path = None);
    let found = complaints(&rules(), &metadata);
    assert_eq!(found.len(), 4, "{found:#?}");
    for (name, what) in
        [("serde", "GPL-3.0-only"), ("clap", "None"), ("csv", "git+"), ("commgauge-base", "any version")]
    {
        assert!(found.iter().any(|line| line.starts_with(name) && line.contains(what)), "{name} {what}: {found:#?}");
    }
}
