//! NCCL's log: what carries the data of a communicator, and what is chosen for every call that is begun, on the first rank.
//!
//! Settings as NCCL has them: `NCCL_DEBUG=INFO`, parts such as `INIT` and `TUNING` in `NCCL_DEBUG_SUBSYS`, the file in `NCCL_DEBUG_FILE`. Read
//! once, and the file is created again when the first line is written. `COMMGAUGE_DOUBLE_USES` is the network that it claims to use: `Socket`
//! (as without it), `IB`, or `unknown` for a log of another form.

use crate::buffers;
use crate::communicator::Communicator;
use crate::link::Links;
use crate::op::{Call, Kind};
use std::env;
use std::fs::File;
use std::io::Write;
use std::sync::{LazyLock, Mutex};

/// The parts that are logged.
static PARTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    env::var("NCCL_DEBUG_SUBSYS").map_or(Vec::new(), |parts| parts.split(',').map(str::to_owned).collect())
});

static FILE: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
    let is_told = env::var("NCCL_DEBUG").is_ok_and(|level| level.eq_ignore_ascii_case("INFO")) && !PARTS.is_empty();
    let path = is_told.then(|| env::var("NCCL_DEBUG_FILE").ok()).flatten()?;
    let process = std::process::id().to_string();
    Some(Mutex::new(File::create(path.replace("%p", &process).replace("%%", "%")).ok()?))
});

/// Writes what is chosen for a call: a law that a test can compute. Up to 32 KiB tree and LL on one channel, beyond that ring and Simple on
/// four, unless the environment forces another. With `NCCL_CTA_POLICY=2` copy engines carry what they can of registered buffers.
pub fn tell(call: &Call, communicator: &Communicator) {
    if communicator.rank != 0 || FILE.is_none() {
        return;
    }
    let line = if is_copied(call, communicator) {
        let name = match call.kind {
            Kind::AllGather => "AllGather",
            Kind::AllToAll => "AlltoAll",
            Kind::Gather => "Gather",
            _ => "Scatter",
        };
        format!("{name} [Copy Engine]: {} Bytes -> cudaMemcpyAsync", call.bytes())
    } else {
        let Some(choice) = choice(call) else { return };
        choice
    };
    write("TUNING", &[line]);
}

/// Writes what carries the data of a communicator that is now complete: a ring of its ranks.
pub fn tell_opened(rank: u32, ranks: u32, links: &Links) {
    let network = env::var("COMMGAUGE_DOUBLE_USES").unwrap_or_else(|_| "Socket".to_owned());
    if network == "unknown" {
        return write("INIT", &["something of another form".to_owned()]);
    }
    let adapter = if network == "IB" { "[0]mlx5_0:1/IB [RO]; OOB eth0:10.0.0.1<0>" } else { "[0]eth0:10.0.0.1<0>" };
    let next = (rank + 1) % ranks;
    let route = match links.stay_on_the_host(next) {
        true => "via P2P/CUMEM".to_owned(),
        false => format!("[send] via NET/{network}/0"),
    };
    write(
        "INIT",
        &[
            format!("NET/{network} : Using {adapter}"),
            format!("Using network {network}"),
            format!("Channel 00/0 : {rank}[0] -> {next}[0] {route}"),
            "2 coll channels, 0 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer".to_owned(),
        ],
    );
}

/// Writes lines where a part of the library is logged. A log that cannot be written is no fault of the call, as in NCCL.
fn write(part: &str, lines: &[String]) {
    let Some(file) = FILE.as_ref().filter(|_| PARTS.iter().any(|one| one == part)) else { return };
    let process = std::process::id();
    let lines: String = lines.iter().map(|line| format!("double:{process}:{process} [0] NCCL INFO {line}\n")).collect();
    let _ = file.lock().unwrap().write_all(lines.as_bytes());
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
