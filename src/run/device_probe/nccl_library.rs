//! Queries NCCL: its version, the CUDA that it was built with, and which functions it has. No communicator is created.

use super::answer::NcclAnswer;
use super::load::load;
use super::{NcclFile, nccl_files};
use memchr::memmem;
use std::ffi::c_int;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Functions that the backend requires.
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

/// Newer functions, and the version that introduced each.
const NEWER: [(&str, &str); 6] = [
    ("ncclCommSplit", "2.18"),
    ("ncclCommRegister", "2.19"),
    ("ncclCommWindowRegister", "2.27"),
    ("ncclAlltoAll", "2.28"),
    ("ncclGather", "2.28"),
    ("ncclScatter", "2.28"),
];

/// Functions that AMD's RCCL alone has (its src/nccl.h.in): by these it is known under whatever name, such as that of NCCL.
const OF_RCCL: [&str; 2] = ["ncclAllToAllv", "mscclLoadAlgo"];

/// Whether a library is AMD's RCCL. It has NCCL's functions and types, and needs HIP's streams, memory and kernels.
pub fn is_rccl(library: &libloading::Library) -> bool {
    // SAFETY: only the presence of the symbol is checked; nothing is called.
    OF_RCCL.iter().any(|symbol| unsafe { library.get::<*const std::ffi::c_void>(symbol.as_bytes()) }.is_ok())
}

/// Loads the library and queries it.
pub(super) fn query(named: Option<&Path>) -> Result<NcclAnswer, String> {
    let candidates = nccl_files(named);
    let names: Vec<_> = candidates.iter().map(|candidate| candidate.file.clone()).collect();
    let (library, file) = load(&names)?;
    let why = why(&candidates, &file);
    let cuda = File::open(&file).ok().and_then(built_with);
    let mut answer = NcclAnswer { file, why, cuda, ..NcclAnswer::default() };
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
    if is_rccl(&library) {
        answer.problem = Some("this is RCCL, for AMD GPUs, of which commgauge measures none".to_owned());
    }
    // SAFETY: only the presence of the symbol is checked; nothing is called.
    let has = |symbol: &str| unsafe { library.get::<*const std::ffi::c_void>(symbol.as_bytes()) }.is_ok();
    answer.lacks = NEEDED.iter().filter(|symbol| !has(symbol)).map(|symbol| (*symbol).to_owned()).collect();
    let newer = NEWER.iter().filter(|(symbol, _)| !has(symbol));
    answer.lacks_newer = newer.map(|(symbol, since)| format!("{symbol} (NCCL {since})")).collect();
    std::mem::forget(library);
    Ok(answer)
}

/// Why the file that was loaded was the one: the first candidate that it is, by path or by what the loader made of its name.
fn why(candidates: &[NcclFile], file: &str) -> String {
    let is_it = |candidate: &&NcclFile| {
        let real = |path: &Path| path.canonicalize().ok();
        let path = Path::new(&candidate.file);
        !path.is_absolute() || real(path).is_some_and(|candidate| Some(candidate) == real(Path::new(file)))
    };
    // A name without a folder is one that the loader found, unless another candidate is this very file.
    let by_path = candidates.iter().filter(|candidate| Path::new(&candidate.file).is_absolute()).find(is_it);
    let first = by_path.or(candidates.first());
    first.map(|candidate| candidate.why.clone()).unwrap_or_default()
}

/// The CUDA version in the banner of a library's file, such as `12.9`: `NCCL version 2.30.7+cuda12.9` (nccl,
/// src/init.cc, `VERSION_STRING`). No function returns it. The file is read only up to the banner, which precedes the
/// hundreds of megabytes of device code.
fn built_with(mut file: impl Read) -> Option<String> {
    const BANNER: &[u8] = b"NCCL version ";
    const LONGEST: usize = 64;
    let finder = memmem::Finder::new(BANNER);
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut chunk).ok().filter(|count| *count > 0);
        bytes.extend(&chunk[..count.unwrap_or(0)]);
        // At the end of the file a banner may be shorter; before that, the rest of it may not have been read yet.
        let is_whole = |at: &usize| count.is_none() || at + LONGEST <= bytes.len();
        let banners = finder.find_iter(&bytes).filter(is_whole);
        let found = banners.filter_map(|at| cuda_of(&bytes[at + BANNER.len()..])).next();
        if found.is_some() || count.is_none() {
            return found;
        }
        bytes.drain(..bytes.len().saturating_sub(LONGEST));
    }
}

/// `12.9` of `2.30.7+cuda12.9` and whatever follows it.
fn cuda_of(banner: &[u8]) -> Option<String> {
    let words = banner.split(|byte| !byte.is_ascii_graphic()).next()?;
    let (_, cuda) = std::str::from_utf8(words).ok()?.split_once("+cuda")?;
    let (major, minor) = cuda.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(major) && digits(minor)).then(|| cuda.to_owned())
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

    #[test]
    fn the_cuda_of_a_library_is_read_from_its_banner_wherever_that_stands() {
        let mebibyte = 1 << 20;
        for before in [0, 1, mebibyte - 20, mebibyte - 1, 3 * mebibyte] {
            for (banner, expected) in [
                (&b"NCCL version 2.30.7+cuda13.3\0NCCL version 2.30.7 compiled with CUDA 13.3"[..], Some("13.3")),
                (b"NCCL version %s\0NCCL version 2.21.5+cuda12.4", Some("12.4")),
                (b"NCCL version 2.21.5+cudaX.4\0", None),
                (b"no banner", None),
            ] {
                let bytes: Vec<u8> = std::iter::repeat_n(0xff, before).chain(banner.iter().copied()).collect();
                assert_eq!(built_with(&bytes[..]).as_deref(), expected, "{before} bytes before");
            }
        }
    }
}
