//! `commgauge run --wait-for-hosts`: the hosts to wait for, and the messages.

use super::arguments::RunArguments;
use crate::launch::{self, LauncherContext};
use commgauge_base::error::{Error, Result};
use std::path::Path;
use std::time::Duration;

/// Waits until the hosts of the launch are ready, if requested.
pub(super) fn wait(arguments: &RunArguments) -> Result<()> {
    let Some(timeout) = arguments.wait_for_hosts else { return Ok(()) };
    let hosts = match (&arguments.hosts, &arguments.host_file) {
        (Some(hosts), _) => launch::parse_hosts(hosts)?.into_iter().map(|(name, _)| name.to_owned()).collect(),
        (None, Some(file)) => hosts_of(file, arguments.ranks)?,
        (None, None) => {
            return Err(Error::usage("--wait-for-hosts needs --hosts or --hostfile: whom to wait for"));
        }
    };
    let launcher = launch::find(&arguments.launcher, LauncherContext::here(), &launch::probe)?;
    let shell = launch::remote_shell(&launcher, &arguments.launcher_arguments, &|name| std::env::var(name).ok());
    let count = if hosts.len() == 1 { "1 host".to_owned() } else { format!("{} hosts", hosts.len()) };
    eprintln!("commgauge: waits for {count}, {timeout} at most");
    let waited = launch::wait_for_hosts(&hosts, shell.as_deref(), Duration::from_secs_f64(timeout.0))?;
    eprintln!("commgauge: {count} ready after {:.0} s", waited.as_secs_f64());
    Ok(())
}

/// The hosts of the file that get ranks, each once.
fn hosts_of(file: &Path, ranks: u32) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).map_err(|cause| Error::file("read", file, cause))?;
    let mut hosts = launch::hosts_of_ranks(&file.display().to_string(), &text, ranks)?;
    hosts.sort_unstable();
    hosts.dedup();
    Ok(hosts)
}
