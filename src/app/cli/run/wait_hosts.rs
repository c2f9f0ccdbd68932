//! `commgauge run --wait-for-hosts`: the hosts to wait for, and the messages.

use super::arguments::RunArguments;
use crate::launch::{self, LauncherContext};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::visible::ShownPath;
use std::path::Path;
use std::time::Duration;

/// Waits until the hosts of the launch are ready, if requested.
pub(super) fn wait(arguments: &RunArguments) -> Result<()> {
    let Some(timeout) = arguments.wait_for_hosts else { return Ok(()) };
    let Some(hosts) = hosts(arguments)? else {
        return Err(Error::usage("--wait-for-hosts needs --hosts or --hostfile: whom to wait for"));
    };
    let shell = shell(arguments)?;
    let count = if hosts.len() == 1 { "1 host".to_owned() } else { format!("{} hosts", hosts.len()) };
    eprintln!("commgauge: waits for {count}, {timeout} at most");
    let waited = launch::wait_for_hosts(&hosts, shell.as_deref(), Duration::from_secs_f64(timeout.0))?;
    eprintln!("commgauge: {count} ready after {:.0} s", waited.as_secs_f64());
    Ok(())
}

/// How long the hosts of a launch that did not come together are looked for.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(4);
/// Hosts that are named.
const MAX_SHOWN: usize = 20;

/// Which hosts of a launch that did not come together are not reached from here; none where they were not named, or
/// all are.
pub(super) fn unreachable(arguments: &RunArguments) -> Option<String> {
    let (hosts, shell) = (hosts(arguments).ok()??, shell(arguments).ok()?);
    let silent = launch::silent_hosts(&hosts, SEARCH_TIMEOUT / 2);
    if silent.is_empty() {
        return launch::wait_for_hosts(&hosts, shell.as_deref(), SEARCH_TIMEOUT / 2)
            .err()
            .map(|error| error.to_string());
    }
    let shown = silent.iter().take(MAX_SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    let (more, them) =
        (if silent.len() > MAX_SHOWN { ", ..." } else { "" }, if silent.len() == 1 { "it" } else { "them" });
    Some(format!("{shown}{more} cannot be reached from here: the host or the link to {them}"))
}

/// The hosts that the user named.
fn hosts(arguments: &RunArguments) -> Result<Option<Vec<String>>> {
    match (&arguments.hosts, &arguments.host_file) {
        (Some(hosts), _) => {
            Ok(Some(launch::parse_hosts(hosts)?.into_iter().map(|(name, _)| name.to_owned()).collect()))
        }
        (None, Some(file)) => hosts_of(file, arguments.ranks).map(Some),
        (None, None) => Ok(None),
    }
}

fn shell(arguments: &RunArguments) -> Result<Option<Vec<String>>> {
    let launcher = launch::find(&arguments.launcher, LauncherContext::here(), &launch::probe)?;
    Ok(launch::remote_shell(&launcher, &arguments.launcher_arguments, &|name| std::env::var(name).ok()))
}

/// The hosts of the file that get ranks, each once.
fn hosts_of(file: &Path, ranks: u32) -> Result<Vec<String>> {
    let text = commgauge_base::input_file::read_to_string(file).map_err(|cause| Error::file("read", file, cause))?;
    let mut hosts = launch::hosts_of_ranks(&file.shown(), &text, ranks)?;
    hosts.sort_unstable();
    hosts.dedup();
    Ok(hosts)
}
