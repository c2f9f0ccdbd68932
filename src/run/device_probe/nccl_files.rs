//! Where NCCL may be, and why: first what the loader finds (LD_LIBRARY_PATH, the system's folders), then the paths named by variables, the
//! Python packages of the environment that commgauge was installed into and of the active one (`pip install nvidia-nccl-cu12`), conda, and
//! NVIDIA's HPC SDK.

use commgauge_base::embedded::{pairs, rows};
use memchr::memmem;
use serde::{Deserialize, Serialize};
use std::ffi::{OsString, c_int};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file that may be NCCL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclFile {
    /// Its name, for the loader.
    pub file: OsString,
    /// Why it is tried, such as `from the Python environment /opt/venv (VIRTUAL_ENV)`.
    pub why: String,
}

/// Where the HPC SDK is installed unless `NVHPC_ROOT` says otherwise.
const HPC_SDK: &str = "/opt/nvidia/hpc_sdk/Linux_x86_64";

/// Files to try in order: only the named one if there is one, else all places that are known.
pub fn nccl_files(named: Option<&Path>) -> Vec<NcclFile> {
    if let Some(path) = named {
        let why = "named explicitly".to_owned();
        return vec![NcclFile { file: path.as_os_str().to_owned(), why }];
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    places(std::env::current_exe().ok().as_deref(), &variable, Path::new(HPC_SDK))
}

fn places(own: Option<&Path>, variable: &dyn Fn(&str) -> Option<PathBuf>, hpc_sdk: &Path) -> Vec<NcclFile> {
    let path = variable("LD_LIBRARY_PATH").map_or("", |_| " in LD_LIBRARY_PATH or");
    let by_loader =
        |file: &str| NcclFile { file: file.into(), why: format!("the loader finds it{path} in the system's folders") };
    let mut found = ["libnccl.so.2", "libnccl.so"].map(by_loader).to_vec();
    let mut add = |files: Vec<PathBuf>, why: &str| {
        let new = files.into_iter().filter(|file| file.is_file()).map(PathBuf::into_os_string);
        found.extend(new.map(|file| NcclFile { file, why: why.to_owned() }));
    };
    for name in ["NCCL_HOME", "NCCL_ROOT"] {
        if let Some(home) = variable(name) {
            let files = ["lib", "lib64", "build/lib"].map(|folder| home.join(folder).join("libnccl.so.2"));
            add(files.to_vec(), &format!("{name} is {}", home.display()));
        }
    }
    if let Some(prefix) = own.and_then(prefix_of) {
        add(
            in_python_packages(prefix),
            &format!("from the Python environment {}, where commgauge is installed", prefix.display()),
        );
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = variable(name) {
            let mut files = vec![prefix.join("lib/libnccl.so.2")];
            files.extend(in_python_packages(&prefix));
            add(files, &format!("from the active environment {} ({name})", prefix.display()));
        }
    }
    if let Some(home) = variable("HOME") {
        add(in_python_packages(&home.join(".local")), "from the Python packages of this user");
    }
    add(in_python_packages(Path::new("/usr/local")), "from the Python packages of this host");
    let (sdk, why) = match variable("NVHPC_ROOT") {
        Some(root) => (in_version_of_hpc_sdk(&root), format!("from the HPC SDK {} (NVHPC_ROOT)", root.display())),
        None => (in_hpc_sdk(hpc_sdk), format!("from the HPC SDK in {}", hpc_sdk.display())),
    };
    add(sdk, &why);
    found
}

/// The environment of a program in `PREFIX/bin` or `PREFIX/lib/commgauge/MPI`.
fn prefix_of(own: &Path) -> Option<&Path> {
    let folder = own.parent()?;
    let in_bin = folder.ends_with("bin").then(|| folder.parent()).flatten();
    let in_lib = folder.ancestors().nth(1).filter(|folder| folder.ends_with("lib/commgauge"));
    in_bin.or(in_lib.and_then(|folder| folder.ancestors().nth(2)))
}

/// NCCL's files in the Python packages of an environment.
fn in_python_packages(prefix: &Path) -> Vec<PathBuf> {
    let libraries = ["lib", "lib64"].map(|name| entries(&prefix.join(name)));
    let pythons = libraries.into_iter().flatten().filter(|path| begins(path, "python3"));
    let packages = pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.join(name)));
    let mut found: Vec<PathBuf> = packages.map(|packages| packages.join("nvidia/nccl/lib/libnccl.so.2")).collect();
    found.retain(|file| file.is_file());
    found.sort();
    found
}

/// NCCL's files in all versions of the HPC SDK, the newest first.
fn in_hpc_sdk(root: &Path) -> Vec<PathBuf> {
    let mut versions = entries(root);
    versions.sort();
    versions.iter().rev().flat_map(|version| in_version_of_hpc_sdk(version)).collect()
}

/// `comm_libs/nccl/lib`, a link to the default CUDA's, and `comm_libs/CUDA/nccl/lib`.
fn in_version_of_hpc_sdk(root: &Path) -> Vec<PathBuf> {
    let libraries = root.join("comm_libs");
    let mut of_cuda: Vec<PathBuf> = entries(&libraries).into_iter().map(|folder| folder.join("nccl")).collect();
    of_cuda.sort();
    let folders = std::iter::once(libraries.join("nccl")).chain(of_cuda.into_iter().rev());
    folders.map(|folder| folder.join("lib/libnccl.so.2")).filter(|file| file.is_file()).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn begins(path: &Path, with: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(with))
}

// Queries NCCL: its version, the CUDA that it was built with, and which functions it has. No communicator is created.

/// Functions that the backend calls.
const FUNCTIONS: &str = include_str!("nccl_functions.txt");

/// Functions that only AMD's RCCL has (its src/nccl.h.in); they identify it under any file name, such as NCCL's.
const OF_RCCL: [&str; 2] = ["ncclAllToAllv", "mscclLoadAlgo"];

/// What can be done for AMD GPUs.
pub const FOR_AMD: &str = "commgauge has no backend for AMD GPUs; `commgauge import --from nccl-tests LOG -o r.jsonl` reads logs of rccl-tests, `commgauge judge r.jsonl --machine mi300x-mesh-ndr` judges them, and --backend mpi measures their hosts";

/// Whether a library is AMD's RCCL. It has NCCL's functions and types, and needs HIP's streams, memory and kernels.
pub fn is_rccl(library: &libloading::Library) -> bool {
    missing(library, &OF_RCCL).len() < OF_RCCL.len()
}

/// Those of these functions that a library does not have.
pub(super) fn missing(library: &libloading::Library, symbols: &[&str]) -> Vec<String> {
    // SAFETY: only the presence of the symbol is checked; nothing is called.
    let has = |symbol: &str| unsafe { library.get::<*const std::ffi::c_void>(symbol.as_bytes()) }.is_ok();
    symbols.iter().filter(|symbol| !has(symbol)).map(|symbol| (*symbol).to_owned()).collect()
}

/// The NCCL that runs would load.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NcclAnswer {
    /// The file that was loaded.
    pub file: String,
    /// Why this file: where it was found, and what led there.
    #[serde(default)]
    pub why: String,
    /// Its version, such as `2.30.7`.
    pub version: String,
    /// The CUDA that it was built with, such as `12.9`; absent if its file does not contain it.
    pub cuda: Option<String>,
    /// Required functions that are missing.
    pub lacks: Vec<String>,
    pub lacks_newer: Vec<String>,
    /// The error that ended the query early, if any.
    pub problem: Option<String>,
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
            0 => answer.version = Version::of_code(code).to_string(),
            failed => answer.problem = Some(format!("ncclGetVersion failed with {failed}")),
        },
    }
    if is_rccl(&library) {
        answer.problem = Some(format!("this is RCCL: {FOR_AMD}"));
    }
    let needed: Vec<&str> = rows(FUNCTIONS).filter(|row| !row.contains('|')).collect();
    answer.lacks = missing(&library, &needed);
    let newer = pairs(FUNCTIONS).filter(|(symbol, _)| !missing(&library, &[*symbol]).is_empty());
    answer.lacks_newer = newer.map(|(symbol, since)| format!("{symbol} (NCCL {since})")).collect();
    std::mem::forget(library);
    Ok(answer)
}

/// Why the loaded file was chosen: the first candidate that matches it, by path or by the loader's name for it.
fn why(candidates: &[NcclFile], file: &str) -> String {
    let is_it = |candidate: &&NcclFile| {
        let real = |path: &Path| path.canonicalize().ok();
        let path = Path::new(&candidate.file);
        !path.is_absolute() || real(path).is_some_and(|candidate| Some(candidate) == real(Path::new(file)))
    };
    // The loader found a name without a folder, unless another candidate is this very file.
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
        // At the end of the file a banner may be shorter; before that, its rest may not have been read yet.
        let is_whole = |at: &usize| count.is_none() || at + LONGEST <= bytes.len();
        let banners = finder.find_iter(&bytes).filter(is_whole);
        let found = banners.filter_map(|at| cuda_of(&bytes[at + BANNER.len()..])).next();
        if found.is_some() || count.is_none() {
            return found;
        }
        bytes.drain(..bytes.len().saturating_sub(LONGEST));
    }
}

fn cuda_of(banner: &[u8]) -> Option<String> {
    let words = banner.split(|byte| !byte.is_ascii_graphic()).next()?;
    let (_, cuda) = std::str::from_utf8(words).ok()?.split_once("+cuda")?;
    let (major, minor) = cuda.split_once('.')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(major) && digits(minor)).then(|| cuda.to_owned())
}

/// A version of NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32, pub u32);

impl Version {
    /// Decodes the number that `ncclGetVersion` returns: 2.9 and later as 2_09_06, before that as 2_8_04.
    pub(crate) fn of_code(code: c_int) -> Version {
        let code = u32::try_from(code).unwrap_or(0);
        let major_at = if code >= 10_000 { 10_000 } else { 1_000 };
        Version(code / major_at, code % major_at / 100, code % 100)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Why a file was not loaded. The error's own text is only "dlopen failed"; the message of the system is its source.
pub(crate) fn cause(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// A function of a library.
///
/// # Safety
/// The function of this name has this type.
pub(super) unsafe fn function<'l, F>(
    library: &'l libloading::Library,
    name: &str,
) -> Result<libloading::Symbol<'l, F>, String> {
    // SAFETY: promised by the caller.
    unsafe { library.get(name.as_bytes()) }.map_err(|_| format!("the library has no {name}"))
}

/// Loads the first library of these names that exists.
pub(super) fn load(names: &[std::ffi::OsString]) -> Result<(libloading::Library, String), String> {
    let mut problems = Vec::new();
    for name in names {
        // SAFETY: loading runs the library's initialisers, which is the purpose of a probe; the process does little
        // else.
        match unsafe { libloading::Library::new(name) } {
            Ok(library) => return Ok((library, file_of(&name.to_string_lossy()))),
            Err(error) => problems.push(cause(&error)),
        }
    }
    Err(problems.join("; "))
}

/// The file that a library of this name was mapped from; the name itself where that cannot be determined.
pub(super) fn file_of(name: &str) -> String {
    let begin = Path::new(name).file_name().map_or_else(|| name.to_owned(), |name| name.to_string_lossy().into_owned());
    // `libnccl.so.2` is mostly a link to `libnccl.so.2.30.7`.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let stem = begin.split(".so").next().unwrap_or(&begin).to_owned() + ".so";
    let found = paths
        .into_iter()
        .find(|path| Path::new(path).file_name().is_some_and(|file| file.to_string_lossy().starts_with(&stem)));
    found.map_or_else(|| name.to_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Creates files below a folder, and returns the candidates among them, with the reasons.
    fn found(files: &[&str], own: &str, variables: &[(&str, &str)]) -> Vec<(String, String)> {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        for file in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        let variables: HashMap<&str, PathBuf> = variables.iter().map(|(name, at)| (*name, root.join(at))).collect();
        let places = places(Some(&root.join(own)), &|name| variables.get(name).cloned(), &root.join("opt/hpc"));
        let below = |file: &NcclFile| {
            let path = Path::new(&file.file).strip_prefix(root).ok()?.display().to_string();
            Some((path, file.why.replace(&format!("{}/", root.display()), "")))
        };
        places.iter().filter_map(below).collect()
    }

    #[test]
    fn the_nccl_of_a_python_environment_is_found_by_programs_that_lie_in_it_and_by_no_others() {
        let library = "v/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2";
        for (own, finds) in [
            ("v/bin/commgauge", true),
            ("v/lib/commgauge/open-mpi/commgauge-suite", true),
            ("v/lib/commgauge/mpich/commgauge-suite", true),
            ("v/target/release/commgauge", false),
            ("v/lib/elsewhere/mpich/commgauge-suite", false),
            ("commgauge", false),
        ] {
            let files: Vec<String> = found(&[library], own, &[]).into_iter().map(|(file, _)| file).collect();
            assert_eq!(files, if finds { vec![library] } else { vec![] }, "{own}");
        }
    }

    #[test]
    fn wheels_conda_the_hpc_sdk_and_variables_are_looked_at_in_order_and_say_why() {
        let wheel = "venv/lib64/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2";
        let conda = "conda/lib/libnccl.so.2";
        let user = "home/.local/lib/python3.10/site-packages/nvidia/nccl/lib/libnccl.so.2";
        let (old, new) =
            ("opt/hpc/24.7/comm_libs/12.5/nccl/lib/libnccl.so.2", "opt/hpc/25.1/comm_libs/nccl/lib/libnccl.so.2");
        let files = [wheel, conda, user, old, new, "nccl/build/lib/libnccl.so.2"];
        let variables = [("NCCL_HOME", "nccl"), ("VIRTUAL_ENV", "venv"), ("CONDA_PREFIX", "conda"), ("HOME", "home")];
        let seen = found(&files, "commgauge", &variables);
        let expected = [
            ("nccl/build/lib/libnccl.so.2", "NCCL_HOME is nccl"),
            (wheel, "from the active environment venv (VIRTUAL_ENV)"),
            (conda, "from the active environment conda (CONDA_PREFIX)"),
            (user, "from the Python packages of this user"),
            (new, "from the HPC SDK in opt/hpc"),
            (old, "from the HPC SDK in opt/hpc"),
        ];
        assert_eq!(seen, expected.map(|(file, why)| (file.to_owned(), why.to_owned())));
        let by_root = found(&files, "commgauge", &[("NVHPC_ROOT", "opt/hpc/24.7")]);
        assert_eq!(by_root, [(old.to_owned(), "from the HPC SDK opt/hpc/24.7 (NVHPC_ROOT)".to_owned())]);
    }

    #[test]
    fn a_named_file_is_the_only_one_and_the_loader_comes_before_all_other_places() {
        let named = nccl_files(Some(Path::new("/a/b.so")));
        assert_eq!((named.len(), &named[0].file, named[0].why.as_str()), (1, &"/a/b.so".into(), "named explicitly"));
        let files = nccl_files(None);
        assert_eq!(files[..2].iter().map(|file| file.file.clone()).collect::<Vec<_>>(), ["libnccl.so.2", "libnccl.so"]);
    }

    #[test]
    fn both_forms_of_a_version_number_are_read() {
        for (code, expected) in [(23_007, "2.30.7"), (22_703, "2.27.3"), (2_804, "2.8.4")] {
            assert_eq!(Version::of_code(code).to_string(), expected);
        }
    }

    #[test]
    fn the_cuda_of_a_library_is_read_from_its_banner_at_any_position() {
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
