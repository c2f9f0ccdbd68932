//! Where the numbers come from: host, process, processors and the allowed part of the environment.

use super::rank_facts::RankFacts;
use super::secrets::{HIDDEN, is_secret};
use super::variables::is_recorded;
pub use super::variables::{Variable, is_launcher_internal};
use commgauge_base::digest;
use commgauge_base::error::{Error, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// The facts of a rank as its own process knows them; `node` is filled in once all ranks are gathered.
pub fn rank_facts(rank: u32) -> RankFacts {
    let name = rustix::system::uname();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let listed = |key: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(key));
        value.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
    };
    RankFacts {
        rank,
        ranks: 1,
        host: name.nodename().to_string_lossy().into_owned(),
        node: 0,
        pid: std::process::id(),
        cores: listed("Cpus_allowed_list:"),
        numa_nodes: listed("Mems_allowed_list:"),
        processor: processor_name(),
        kernel: format!("{} {}", name.sysname().to_string_lossy(), name.release().to_string_lossy()),
        device: None,
        adapters: Vec::new(),
    }
}

/// Numbers the hosts in order of first appearance.
pub fn number_hosts(ranks: &mut [RankFacts]) {
    let mut hosts: Vec<String> = Vec::new();
    for facts in ranks {
        let known = hosts.iter().position(|host| *host == facts.host);
        facts.node = known.unwrap_or_else(|| {
            hosts.push(facts.host.clone());
            hosts.len() - 1
        }) as u32;
    }
}

/// The recorded part of the environment. Of variables whose name says that they are secret, only that they are set.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
        .filter(|(name, _)| is_recorded(name))
        .map(|(name, value)| if is_secret(&name) { (name, HIDDEN.to_owned()) } else { (name, value) })
        .collect()
}

/// SHA-256 of the running program, in hexadecimal.
///
/// # Errors
/// Where the executable can no longer be read.
pub fn program_sha256() -> Result<String> {
    // The executable can be large and does not change, so it is hashed once.
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known.clone());
    }
    let path = std::env::current_exe()
        .map_err(|cause| Error::environment(format!("the file of this program is unknown: {cause}")))?;
    let sha256 = file_sha256(&path)?;
    Ok(KNOWN.get_or_init(|| sha256).clone())
}

/// SHA-256 of a file, in hexadecimal.
pub fn file_sha256(path: &Path) -> Result<String> {
    let failed = |cause| Error::file("read", path, cause);
    digest::sha256_of(fs::File::open(path).map_err(failed)?).map_err(failed)
}

static PROGRAM_VERSION: OnceLock<&str> = OnceLock::new();

/// Sets what [`program_version`] returns; a program does so first. The commit is known to the programs alone, so that a new
/// commit compiles them again and nothing else. A second call changes nothing.
pub fn set_program_version(version: &'static str) {
    let _ = PROGRAM_VERSION.set(version);
}

/// Version of this program, and its commit where it was built from a checkout.
pub fn program_version() -> &'static str {
    PROGRAM_VERSION.get().copied().unwrap_or(env!("CARGO_PKG_VERSION"))
}

fn processor_name() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = text.lines().find_map(|line| line.strip_prefix("model name"));
    named.map_or_else(|| "unknown".to_owned(), |rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_in_order_of_first_appearance() {
        let on = |rank, host: &str| RankFacts { host: host.to_owned(), ..rank_facts(rank) };
        let mut ranks = [on(0, "b"), on(1, "a"), on(2, "b")];
        number_hosts(&mut ranks);
        assert_eq!(ranks.map(|r| r.node), [0, 1, 0]);
    }
}
