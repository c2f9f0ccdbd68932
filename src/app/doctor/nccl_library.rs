//! Checks NCCL: its file and version, whether it fits the driver, and missing functions.

use super::cuda::fitting;
use super::document::{Finding, Part, Section, State};
use super::system::{Query, Response, System};
use commgauge_run::device_probe::{NcclAnswer, Probe};

const INSTALL: &str = "install libnccl2 (NVIDIA's package repository) or the Python package nvidia-nccl-cu13 (nvidia-nccl-cu12 where the driver serves CUDA 12), and put its folder on LD_LIBRARY_PATH or name the file in COMMGAUGE_NCCL_LIBRARY";

/// `driver_cuda` is the newest CUDA that the driver supports, such as `12.8`, if there is a driver.
pub(super) fn check(system: &dyn System, driver_cuda: Option<&str>) -> Part<NcclAnswer> {
    let (finding, answer) = match system.query(Query::Library(Probe::Nccl)) {
        Response::Absent(why) | Response::Failed(why) => {
            (Finding::new("library", State::Missing, format!("NCCL cannot be loaded: {why}")).with_fix(INSTALL), None)
        }
        Response::Died(how) => {
            (Finding::new("library", State::Broken, format!("asking NCCL ended badly: {how}")).with_fix(INSTALL), None)
        }
        Response::Text(text) => match serde_json::from_str::<NcclAnswer>(&text) {
            Ok(answer) => (library(&answer, driver_cuda), Some(answer)),
            Err(cause) => (Finding::new("library", State::Broken, format!("its answer does not read: {cause}")), None),
        },
    };
    let mut findings = vec![finding];
    if let Some(answer) = answer.as_ref().filter(|answer| !answer.lacks_newer.is_empty() && answer.problem.is_none()) {
        let found = format!(
            "not in this version: {}; other calls stand in for them, and records say so",
            answer.lacks_newer.join(", ")
        );
        findings.push(Finding::new("newer functions", State::Note, found));
    }
    let section = Section::new("NCCL", findings);
    let ready = match (section.first_fault(), answer) {
        (None, Some(answer)) => Ok(answer),
        (fault, _) => Err(fault.unwrap_or_default()),
    };
    Part { section, ready }
}

fn library(answer: &NcclAnswer, driver_cuda: Option<&str>) -> Finding {
    let file = &answer.file;
    if let Some(problem) = &answer.problem {
        return Finding::new("library", State::Broken, format!("{file}: {problem}")).with_fix(INSTALL);
    }
    let version = &answer.version;
    if !answer.lacks.is_empty() {
        let found = format!("{file} is NCCL {version}, which lacks {}", answer.lacks.join(", "));
        return Finding::new("library", State::Broken, found)
            .with_fix("NCCL 2.18 or newer is needed; 2.28 has all collectives of its own");
    }
    let why = if answer.why.is_empty() { String::new() } else { format!(": {}", answer.why) };
    let Some(cuda) = &answer.cuda else {
        return Finding::new("library", State::Fine, format!("NCCL {version}, {file}{why}"));
    };
    let found = format!("NCCL {version} for CUDA {cuda}, {file}{why}");
    fitting(found, cuda, driver_cuda, State::Broken, "nvidia-nccl-cu")
}
