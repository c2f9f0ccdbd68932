//! Checks MPI: what the programs were built against, whether they are installed and find their libraries, and which
//! launcher is found.

use super::document::{Finding, Part, Section, State};
use super::system::{Query, Response, System};
use crate::launch::{self, LauncherContext};
use commgauge_base::visible::ShownPath;
use commgauge_model::record::provenance::Variable;

/// Programs that a launcher starts.
const PROGRAMS: [&str; 4] = ["commgauge-suite", "commgauge-sweep", "commgauge-step", "commgauge-pairs"];
const BUILD: &str =
    "build commgauge on a machine with MPI: ./scripts/setup, or `cargo build --release` with mpicc on PATH";

pub(super) fn check(system: &dyn System) -> Part<String> {
    let (mut findings, mut offered) = (Vec::new(), Vec::new());
    match system.flavor() {
        Some(flavor) => findings.push(Finding::new("built against", State::Fine, flavor.name())),
        None => findings.push(
            Finding::new(
                "built against",
                State::Missing,
                "this commgauge was built without MPI, so it launches nothing",
            )
            .with_fix(BUILD),
        ),
    }
    findings.push(programs(system));
    findings.extend(library(system));
    let surroundings = LauncherContext { in_slurm: system.variable("SLURM_JOB_ID").is_some(), flavor: system.flavor() };
    let probe = |name: &str| match system.query(Query::Version(name)) {
        Response::Text(text) | Response::Failed(text) => Some(text),
        Response::Absent(_) | Response::Died(_) => None,
    };
    match launch::find("auto", surroundings, &probe) {
        Ok(launcher) => {
            let text = format!("{} of {} {}", launcher.program, launcher.family.name(), launcher.version);
            offered.push(text.clone());
            findings.push(Finding::new("launcher", State::Fine, text));
        }
        // The message of the error names what was searched for, then the fix.
        Err(error) => {
            let text = error.to_string();
            let (found, fix) = text
                .split_once("; install")
                .map_or((text.as_str(), None), |(found, rest)| (found, Some(format!("install{rest}"))));
            let finding = Finding::new("launcher", State::Missing, found);
            findings.push(match fix {
                Some(fix) => finding.with_fix(fix),
                None => finding,
            });
        }
    }
    findings.push(variables(system));
    if system.is_root() {
        findings.push(Finding::new(
            "user",
            State::Note,
            "root: Open MPI wants this confirmed, which `commgauge run` does",
        ));
    }
    let section = Section::new("MPI", findings);
    let ready = section.first_fault().map_or_else(|| Ok(offered.concat()), Err);
    Part { section, ready }
}

fn programs(system: &dyn System) -> Finding {
    let folder = system.programs();
    let missing: Vec<&str> =
        PROGRAMS.into_iter().filter(|name| !system.exists(&folder.join(name).to_string_lossy())).collect();
    let place = folder.shown();
    match missing[..] {
        [] => Finding::new("programs", State::Fine, format!("all four launched programs are in {place}")),
        _ => {
            Finding::new("programs", State::Missing, format!("{} not beside commgauge in {place}", missing.join(", ")))
                .with_fix(BUILD)
        }
    }
}

/// The MPI library that the loader would use, which may differ from that of the build.
fn library(system: &dyn System) -> Option<Finding> {
    // In packages the programs are scripts that start this binary.
    let in_one = system.programs().join("commgauge-ranks");
    let has_one = system.exists(&in_one.to_string_lossy());
    let program = if has_one { in_one } else { system.programs().join(PROGRAMS[0]) };
    if !system.exists(&program.to_string_lossy()) {
        return None;
    }
    let Response::Text(text) = system.query(Query::Libraries(&program)) else {
        return Some(Finding::new(
            "libraries",
            State::Note,
            "which libraries the programs load cannot be determined here",
        ));
    };
    let missing: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("not found"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if !missing.is_empty() {
        let found = format!("{} not found, so the launched programs do not start", missing.join(", "));
        return Some(
            Finding::new("libraries", State::Broken, found)
                .with_fix("install the MPI of the build, or put its lib folder on LD_LIBRARY_PATH"),
        );
    }
    let is_mpi = |line: &&str| line.trim_start().starts_with("libmpi");
    let found = text.lines().find(is_mpi).and_then(|line| line.split("=>").nth(1)?.split_whitespace().next());
    Some(match found {
        Some(path) => Finding::new("library", State::Fine, path),
        None => Finding::new("library", State::Note, "linked into the programs"),
    })
}

fn variables(system: &dyn System) -> Finding {
    let set: Vec<String> = system.variables().iter().map(Variable::assignment).collect();
    match set[..] {
        [] => Finding::new("variables", State::Note, "none that steers MPI, NCCL or a launcher is set"),
        _ => Finding::new("variables", State::Note, set.join(" ")),
    }
}
