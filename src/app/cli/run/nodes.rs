//! Which ranks will share a host, as far as it can be said before the launch.

use super::arguments::RunArguments;
use crate::cli::backend_name::Backend;
use crate::cli::places;
use crate::launch::{self, Allocation};
use commgauge_base::error::{Error, Result};
use commgauge_base::visible::ShownPath;
use commgauge_model::config::Machine;
use commgauge_model::layout::Nodes;

/// Predicts the hosts of the ranks from flags, host file, allocation and machine file; the launched program determines
/// them itself.
pub(super) fn predicted_nodes(
    arguments: &RunArguments,
    allocation: Option<&Allocation>,
    machine: Option<&Machine>,
) -> Result<Nodes> {
    let ranks = arguments.ranks as usize;
    let launched = arguments.backend != Backend::Simulated;
    if let Some(file) = arguments.host_file.as_deref().filter(|_| launched) {
        places::check_file("--hostfile", file)?;
        let text =
            commgauge_base::input_file::read_to_string(file).map_err(|cause| Error::file("read", file, cause))?;
        match launch::hosts_of_ranks(&file.shown(), &text, arguments.ranks) {
            Ok(host_of_rank) => return Ok(Nodes::of_hosts(&host_of_rank)),
            // A form that only the launcher understands does not prevent the launch.
            Err(cause) if arguments.dry_run => return Err(cause),
            Err(_) => {}
        }
    }
    if let Some(hosts) = arguments.hosts.as_deref().filter(|_| launched) {
        let slots = hosts.split(',').flat_map(|host| {
            let (name, count) = host.split_once(':').unwrap_or((host, "1"));
            std::iter::repeat_n(name, count.parse().unwrap_or(1))
        });
        let host_of_rank: Vec<&str> = slots.take(ranks).collect();
        if host_of_rank.len() == ranks {
            return Ok(Nodes::of_hosts(&host_of_rank));
        }
    }
    let host_of_rank = allocation.map_or_else(Vec::new, |allocation| allocation.host_of_rank(arguments.ranks));
    if host_of_rank.len() == ranks {
        return Ok(Nodes::of_hosts(&host_of_rank));
    }
    let filled = |machine: &Machine| Nodes::filled(arguments.ranks, machine.ranks_per_host());
    Ok(machine.map_or_else(|| Nodes::single(arguments.ranks), filled))
}
