//! Finds cuBLAS, which is needed only for matrix products on GPUs: its file and version.

use super::cuda::fitting;
use super::document::{Finding, Section, State};
use super::system::{Query, Response, System};
use commgauge_run::device_probe::{CublasAnswer, Probe};

const INSTALL: &str = "only [[compute]] needs it: install the CUDA toolkit, or the Python package nvidia-cublas (CUDA 13) or nvidia-cublas-cu12, and put its folder on LD_LIBRARY_PATH or name the file in COMMGAUGE_CUBLAS_LIBRARY";

/// `driver_cuda` is the newest CUDA that the driver supports, such as `12.8`, if there is a driver. Without GPUs cuBLAS
/// is not reported as missing.
pub(super) fn check(system: &dyn System, driver_cuda: Option<&str>) -> Section {
    let missing = if driver_cuda.is_some() { State::Warning } else { State::Note };
    let finding = match system.query(Query::Library(Probe::Cublas)) {
        Response::Absent(why) | Response::Failed(why) => {
            let finding = Finding::new("library", missing, format!("cuBLAS cannot be loaded: {why}"));
            if driver_cuda.is_some() { finding.with_fix(INSTALL) } else { finding }
        }
        Response::Died(how) => {
            Finding::new("library", State::Warning, format!("asking cuBLAS ended badly: {how}")).with_fix(INSTALL)
        }
        Response::Text(text) => match serde_json::from_str::<CublasAnswer>(&text) {
            Ok(answer) => library(&answer, driver_cuda),
            Err(cause) => Finding::new("library", State::Warning, format!("its answer does not read: {cause}")),
        },
    };
    Section::new("cuBLAS", vec![finding])
}

fn library(answer: &CublasAnswer, driver_cuda: Option<&str>) -> Finding {
    let CublasAnswer { file, version, lacks, problem } = answer;
    if let Some(problem) = problem {
        return Finding::new("library", State::Warning, format!("{file}: {problem}")).with_fix(INSTALL);
    }
    if !lacks.is_empty() {
        let found = format!("{file} is cuBLAS {version}, which lacks {}", lacks.join(", "));
        return Finding::new("library", State::Warning, found).with_fix("cuBLAS 12 or newer is needed");
    }
    let found = format!("cuBLAS {version}, {file}");
    fitting(found, version, driver_cuda, State::Warning, "nvidia-cublas-cu")
}
