//! Queries cuBLAS: its version, and whether it has the required function. No function is called that starts work.

use super::answer::CublasAnswer;
use super::load::load;
use std::ffi::{OsString, c_int};
use std::path::Path;

/// Functions that the backend requires.
const NEEDED: [&str; 5] =
    ["cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2", "cublasSetMathMode", "cublasGemmEx"];

/// Loads the library and queries it.
pub(super) fn query(named: Option<&Path>) -> Result<CublasAnswer, String> {
    let names: Vec<OsString> = match named {
        Some(path) => vec![path.into()],
        None => vec!["libcublas.so.13".into(), "libcublas.so.12".into()],
    };
    let (library, file) = load(&names)?;
    let mut answer = CublasAnswer { file, ..CublasAnswer::default() };
    // SAFETY: `cublasStatus_t cublasGetProperty(libraryPropertyType, int *)` in every version.
    match unsafe { library.get::<unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(b"cublasGetProperty\0") } {
        Err(_) => answer.problem = Some("this is not cuBLAS: it has no cublasGetProperty".to_owned()),
        Ok(property) => {
            let mut version = [0; 3];
            for (which, part) in (0..).zip(&mut version) {
                // SAFETY: the int is ours; 0 to 2 are the parts of a version.
                let status = unsafe { property(which, part) };
                if status != 0 {
                    answer.problem = Some(format!("cublasGetProperty failed with status {status}"));
                }
            }
            answer.version = version.map(|part| part.to_string()).join(".");
        }
    }
    // SAFETY: only the presence of the symbol is checked; nothing is called.
    let has = |symbol: &str| unsafe { library.get::<*const std::ffi::c_void>(symbol.as_bytes()) }.is_ok();
    answer.lacks = NEEDED.iter().filter(|symbol| !has(symbol)).map(|symbol| (*symbol).to_owned()).collect();
    std::mem::forget(library);
    Ok(answer)
}
