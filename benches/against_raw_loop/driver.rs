//! Launches the ranks, as often as asked, and merges what they measured.

use super::pair::{self, Pair};
use super::{Arguments, summary};
use commgauge::error::{Error, Result};
use commgauge::launch::{Launcher, LauncherContext, Request, build, find, probe};
use std::fs::File;
use std::io::{Write, stderr, stdout};
use std::process::Stdio;

/// Launches, and tells whether no criterion was missed.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let launcher = find("auto", LauncherContext::here(), &probe)?;
    let mut pairs = Vec::new();
    for ranks in &arguments.ranks {
        if *ranks > find::cores() {
            let cores = find::cores();
            say(&format!(
                "{ranks} ranks: skipped, this host has {cores} cores and ranks that take turns measure the system"
            ));
            continue;
        }
        for launch in 1..=arguments.launches {
            say(&format!("{ranks} ranks, launch {launch} of {}", arguments.launches));
            pairs.extend(launch_once(arguments, &launcher, *ranks, launch)?);
        }
    }
    if let Some(path) = &arguments.csv {
        let file = File::create(path).map_err(|cause| Error::file("create", path, cause))?;
        pair::write(&pairs, file)?;
    }
    summary::show(&pairs, &mut stdout().lock())
}

fn launch_once(arguments: &Arguments, launcher: &Launcher, ranks: u32, launch: u32) -> Result<Vec<Pair>> {
    let program = std::env::current_exe()
        .map_err(|cause| Error::environment(format!("the path of this program is unknown: {cause}")))?;
    let list = |items: Vec<String>| items.join(",");
    let words = [
        format!("--rows-of-launch={launch}"),
        format!("--budget={}ns", arguments.budget.as_nanoseconds()),
        format!("--pairs={}", arguments.pairs),
        format!("--sizes={}", list(arguments.sizes.iter().map(|bytes| bytes.0.to_string()).collect())),
        format!("--collectives={}", list(arguments.collectives.clone())),
        format!("--seed={}", arguments.seed),
    ];
    let request = Request {
        ranks,
        cores: find::cores(),
        root: find::is_root(),
        program: program.to_string_lossy().into_owned(),
        program_arguments: words.to_vec(),
        ..Request::default()
    };
    let command = build(launcher, &request)?;
    let output = command
        .command()
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|cause| Error::environment(format!("cannot start {}: {cause}", command.program)))?;
    if !output.status.success() {
        return Err(Error::environment(format!("`{}` ended with {}", command.for_shell(), output.status)));
    }
    pair::read(output.stdout.as_slice())
}

/// Progress is no reason to fail.
fn say(text: &str) {
    let _ = writeln!(stderr(), "against_raw_loop: {text}");
}
