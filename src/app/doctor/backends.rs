//! Availability of each backend on this machine, as one sentence each.

use super::document::BackendVerdict;
use commgauge_run::device_probe::{CudaAnswer, NcclAnswer};

type Part<T> = Result<T, (String, Option<String>)>;

pub(super) fn verdicts(mpi: &Part<String>, cuda: &Part<CudaAnswer>, nccl: &Part<NcclAnswer>) -> Vec<BackendVerdict> {
    let verdict = |name: &str, ready: Result<String, (String, Option<String>)>| match ready {
        Ok(reason) => BackendVerdict { name: name.to_owned(), ready: true, reason, fix: None },
        Err((reason, fix)) => BackendVerdict { name: name.to_owned(), ready: false, reason, fix },
    };
    let simulated = "in this process, on any machine file; needs nothing".to_owned();
    vec![
        verdict("mpi", mpi.clone().map(|launcher| format!("host memory, launched by {launcher}"))),
        verdict("nccl", nccl_verdict(mpi, cuda, nccl)),
        verdict("simulated", Ok(simulated)),
    ]
}

fn nccl_verdict(mpi: &Part<String>, cuda: &Part<CudaAnswer>, nccl: &Part<NcclAnswer>) -> Part<String> {
    let cuda = cuda.clone()?;
    let nccl = nccl.clone()?;
    mpi.clone().map_err(|(reason, fix)| (format!("its ranks are launched by MPI, and {reason}"), fix))?;
    let devices = match cuda.devices.len() {
        1 => "1 device".to_owned(),
        many => format!("{many} devices"),
    };
    let double = if cuda.is_double { ", stand-ins for tests: synthetic" } else { "" };
    Ok(format!("{devices}, CUDA {}, NCCL {}{double}", cuda.cuda, nccl.version))
}
