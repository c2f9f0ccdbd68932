//! NCCL's log of what it chooses: a line for every call that is begun, on the first rank of a communicator.
//!
//! Settings as NCCL has them: `NCCL_DEBUG=INFO`, `TUNING` in `NCCL_DEBUG_SUBSYS`, the file in `NCCL_DEBUG_FILE`. Read once, and the file is
//! created again when the first line is written.

use crate::buffers;
use crate::communicator::Communicator;
use crate::op::{Call, Kind};
use std::env;
use std::fs::File;
use std::io::Write;
use std::sync::{LazyLock, Mutex};

static FILE: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
    let is_told = env::var("NCCL_DEBUG").is_ok_and(|level| level.eq_ignore_ascii_case("INFO"))
        && env::var("NCCL_DEBUG_SUBSYS").is_ok_and(|parts| parts.split(',').any(|part| part == "TUNING"));
    let path = is_told.then(|| env::var("NCCL_DEBUG_FILE").ok()).flatten()?;
    let process = std::process::id().to_string();
    Some(Mutex::new(File::create(path.replace("%p", &process).replace("%%", "%")).ok()?))
});

/// Writes what is chosen for a call: a law that a test can compute. Up to 32 KiB tree and LL on one channel, beyond that ring and Simple on
/// four, unless the environment forces another. With `NCCL_CTA_POLICY=2` copy engines carry what they can of registered buffers.
pub fn tell(call: &Call, communicator: &Communicator) {
    let Some(file) = FILE.as_ref().filter(|_| communicator.rank == 0) else { return };
    let process = std::process::id();
    let line = if is_copied(call, communicator) {
        let name = match call.kind {
            Kind::AllGather => "AllGather",
            Kind::AllToAll => "AlltoAll",
            Kind::Gather => "Gather",
            _ => "Scatter",
        };
        format!(
            "double:{process}:{process} [0] NCCL INFO {name} [Copy Engine]: {} Bytes -> cudaMemcpyAsync\n",
            call.bytes()
        )
    } else {
        let Some(choice) = choice(call) else { return };
        format!("double:{process}:{process} [0] NCCL INFO {choice}\n")
    };
    // A log that cannot be written is no fault of the call, as in NCCL.
    let _ = file.lock().unwrap().write_all(line.as_bytes());
}

fn is_copied(call: &Call, communicator: &Communicator) -> bool {
    let has_copies = matches!(call.kind, Kind::AllGather | Kind::AllToAll | Kind::Gather | Kind::Scatter);
    let policy = env::var("NCCL_CTA_POLICY").is_ok_and(|policy| ["2", "ZERO"].contains(&policy.trim()));
    let registered = [call.send, call.receive].map(|buffer| buffers::is_registered(communicator, buffer));
    cfg!(since_2_28) && policy && has_copies && registered == [true; 2]
}

fn choice(call: &Call) -> Option<String> {
    let name = match call.kind {
        Kind::AllReduce => "AllReduce",
        Kind::Reduce => "Reduce",
        Kind::ReduceScatter => "ReduceScatter",
        Kind::AllGather => "AllGather",
        Kind::Broadcast => "Broadcast",
        // What is made of messages has no algorithm.
        _ => return None,
    };
    let bytes = call.bytes();
    let (algorithm, protocol, last) = if bytes <= 32 << 10 { ("TREE", "LL", 0) } else { ("RING", "SIMPLE", 3) };
    let forced =
        |variable: &str, usual: &str| env::var(variable).map_or_else(|_| usual.to_owned(), |name| name.to_uppercase());
    let (algorithm, protocol) = (forced("NCCL_ALGO", algorithm), forced("NCCL_PROTO", protocol));
    Some(format!("{name}: {bytes} Bytes -> Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{last}}}"))
}
