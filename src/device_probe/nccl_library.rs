//! The questions to NCCL: its version, and which functions it has. Nothing of it is started.

use super::{NcclAnswer, load};
use std::ffi::c_int;
use std::path::Path;

/// What the backend cannot do without.
const NEEDED: [&str; 15] = [
    "ncclGetUniqueId",
    "ncclCommInitRankConfig",
    "ncclCommDestroy",
    "ncclCommFinalize",
    "ncclCommAbort",
    "ncclCommGetAsyncError",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclAllReduce",
    "ncclAllGather",
    "ncclReduceScatter",
    "ncclBroadcast",
    "ncclReduce",
    "ncclSend",
    "ncclRecv",
];

/// What came later, and the version that first had it.
const NEWER: [(&str, &str); 6] = [
    ("ncclCommSplit", "2.18"),
    ("ncclCommRegister", "2.19"),
    ("ncclCommWindowRegister", "2.27"),
    ("ncclAlltoAll", "2.28"),
    ("ncclGather", "2.28"),
    ("ncclScatter", "2.28"),
];

/// Loads the library and asks.
pub(super) fn ask(named: Option<&Path>) -> Result<NcclAnswer, String> {
    let names = match named {
        Some(path) => vec![path.as_os_str().to_owned()],
        None => vec!["libnccl.so.2".into(), "libnccl.so".into()],
    };
    let (library, file) = load(&names)?;
    let mut answer = NcclAnswer { file, ..NcclAnswer::default() };
    let mut code = 0;
    // SAFETY: `ncclResult_t ncclGetVersion(int *)` in every version; the int is ours.
    match unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"ncclGetVersion\0") } {
        Err(_) => answer.problem = Some("this is not NCCL: it has no ncclGetVersion".to_owned()),
        // SAFETY: as above.
        Ok(get_version) => match unsafe { get_version(&mut code) } {
            0 => answer.version = version(code),
            failed => answer.problem = Some(format!("ncclGetVersion failed with {failed}")),
        },
    }
    // SAFETY: only whether it is there matters; nothing is called.
    let has = |symbol: &str| unsafe { library.get::<*const std::ffi::c_void>(symbol.as_bytes()) }.is_ok();
    answer.lacks = NEEDED.iter().filter(|symbol| !has(symbol)).map(|symbol| (*symbol).to_owned()).collect();
    let newer = NEWER.iter().filter(|(symbol, _)| !has(symbol));
    answer.lacks_newer = newer.map(|(symbol, since)| format!("{symbol} (NCCL {since})")).collect();
    std::mem::forget(library);
    Ok(answer)
}

/// From the number that `ncclGetVersion` gives: 2.9 and later as 2_09_06, before that as 2_8_04.
fn version(code: c_int) -> String {
    let major_at = if code >= 10_000 { 10_000 } else { 1_000 };
    format!("{}.{}.{}", code / major_at, code % major_at / 100, code % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_version_number_are_read() {
        for (code, expected) in [(23_007, "2.30.7"), (22_703, "2.27.3"), (2_804, "2.8.4")] {
            assert_eq!(version(code), expected);
        }
    }
}
