//! What a collector needs to know when it is started.

use crate::watchdog::wire::Token;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Configuration of a collector on its standard input; not on its command line, which every user of the host could
/// read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Config {
    /// The secret of this run.
    pub token: Token,
    /// Index of this host.
    pub node: u32,
    /// Number of hosts.
    pub nodes: u32,
    /// The host of every rank, by index; on the first collector only.
    pub node_of_rank: Vec<u32>,
    /// Names of all hosts on the first collector, of its own host elsewhere.
    pub hosts: Vec<String>,
    /// Name of the host of rank 0.
    pub first_host: String,
    /// How long nothing may be heard of another host, in milliseconds.
    pub host_deadline_milliseconds: u64,
    /// The ranks on this host.
    pub local_ranks: Vec<u32>,
    /// The record of the run.
    pub record: PathBuf,
    /// The backend, by name.
    pub backend: String,
}
