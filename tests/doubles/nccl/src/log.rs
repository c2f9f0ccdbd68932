//! NCCL's log of what it chooses: a line for every call that is begun, on the first rank of a communicator.
//!
//! Settings as NCCL has them: `NCCL_DEBUG=INFO`, `TUNING` in `NCCL_DEBUG_SUBSYS`, the file in `NCCL_DEBUG_FILE`. Read once, and the file
//! is made anew when the first line is written.

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
/// four, unless the environment forces another.
pub fn tell(call: &Call, rank: u32) {
    let Some(file) = FILE.as_ref().filter(|_| rank == 0) else { return };
    let name = match call.kind {
        Kind::AllReduce => "AllReduce",
        Kind::Reduce => "Reduce",
        Kind::ReduceScatter => "ReduceScatter",
        Kind::AllGather => "AllGather",
        Kind::Broadcast => "Broadcast",
        // What is made of messages has no algorithm.
        _ => return,
    };
    let bytes = call.bytes();
    let (algorithm, protocol, last) = if bytes <= 32 << 10 { ("TREE", "LL", 0) } else { ("RING", "SIMPLE", 3) };
    let forced =
        |variable: &str, usual: &str| env::var(variable).map_or_else(|_| usual.to_owned(), |name| name.to_uppercase());
    let (algorithm, protocol) = (forced("NCCL_ALGO", algorithm), forced("NCCL_PROTO", protocol));
    let process = std::process::id();
    let line = format!(
        "double:{process}:{process} [0] NCCL INFO {name}: {bytes} Bytes -> Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..{last}}}\n"
    );
    // A log that cannot be written is no fault of the call, as in NCCL.
    let _ = file.lock().unwrap().write_all(line.as_bytes());
}
