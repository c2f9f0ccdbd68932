//! Faults as text: `hang rank=2 op=5; slow rank=1 op=all microseconds=500`.

use std::ops::RangeInclusive;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The op never ends on this rank, until its communicator is aborted.
    Hang,
    /// The op begins later, by `microseconds`.
    Slow,
    /// Messages between hosts have `percent` of the rate of their link.
    SlowLink,
    /// Messages within a host have `percent` of the rate of NVLink.
    SlowNvlink,
    /// The call takes the host `microseconds` longer before anything is enqueued.
    SlowHost,
    /// One bit of what the op wrote is turned over.
    Corrupt,
    /// The op reads its input when the kernel before it starts.
    Early,
    /// The device is lost: every call of the driver fails from here on with `code`.
    Lost,
    /// The op moves nothing, and the communicator's asynchronous error becomes `code`.
    AsyncError,
    /// The call itself answers `code`.
    Error,
    /// An allocation of device memory fails; counted by `allocation`.
    OutOfMemory,
    /// The process ends itself with the signal `code`.
    Kill,
    /// The process ends itself with the exit code `code`.
    Exit,
    /// From this op on the group that this thread is in stays open: what was called in it never begins.
    OpenGroup,
    /// The call connects and never returns to the host, until its communicator is aborted.
    ConnectHang,
    /// The device is not given to this process: `cuDevicePrimaryCtxRetain` answers `code`.
    Context,
    /// The driver does not take our kernels: loading a module answers `code`.
    Module,
    /// The first call of a communicator finds no memory for its buffers.
    ConnectOutOfMemory,
    /// Making a communicator never ends; counted by `communicator`.
    InitHang,
    /// Making a communicator takes `microseconds` longer; counted by `communicator`.
    InitSlow,
    /// Making a communicator fails with `code`; counted by `communicator`.
    InitError,
}

const KINDS: [(&str, Kind, i32); 19] = [
    ("hang", Kind::Hang, 0),
    ("slow", Kind::Slow, 0),
    ("slow_link", Kind::SlowLink, 0),
    ("slow_nvlink", Kind::SlowNvlink, 0),
    ("slow_host", Kind::SlowHost, 0),
    ("corrupt", Kind::Corrupt, 0),
    ("early", Kind::Early, 0),
    // CUDA_ERROR_LAUNCH_FAILED, which stays.
    ("lost", Kind::Lost, 719),
    // ncclRemoteError.
    ("async_error", Kind::AsyncError, 6),
    // ncclInternalError.
    ("error", Kind::Error, 3),
    ("out_of_memory", Kind::OutOfMemory, 0),
    // SIGKILL.
    ("kill", Kind::Kill, 9),
    ("exit", Kind::Exit, 0),
    ("open_group", Kind::OpenGroup, 0),
    // CUDA_ERROR_DEVICE_UNAVAILABLE, CUDA_ERROR_UNSUPPORTED_PTX_VERSION.
    ("context", Kind::Context, 46),
    ("module", Kind::Module, 222),
    ("init_hang", Kind::InitHang, 0),
    ("init_slow", Kind::InitSlow, 0),
    // ncclSystemError.
    ("init_error", Kind::InitError, 2),
];

/// One injected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What.
    pub kind: Kind,
    /// On which rank; on every one without.
    pub rank: Option<u32>,
    /// The other end of a link.
    pub peer: Option<u32>,
    /// The share of a link's rate that is left.
    pub percent: u32,
    /// At which times, counted from 1; at every one without.
    pub when: RangeInclusive<u64>,
    /// Counted among calls of this name alone.
    pub call: Option<String>,
    /// The error, signal or exit code.
    pub code: i32,
    /// How much later.
    pub microseconds: u64,
}

/// Reads faults, divided by `;`.
pub fn parse(text: &str) -> Result<Vec<Fault>, String> {
    text.split(';').map(str::trim).filter(|one| !one.is_empty()).map(parse_one).collect()
}

fn parse_one(text: &str) -> Result<Fault, String> {
    let mut words = text.split_whitespace();
    let name = words.next().unwrap_or_default();
    let (_, kind, code) = *KINDS.iter().find(|(known, _, _)| *known == name).ok_or_else(|| {
        let known: Vec<_> = KINDS.iter().map(|kind| kind.0).collect();
        format!("fault `{name}` is not known; known are {}", known.join(", "))
    })?;
    let mut fault =
        Fault { kind, rank: None, peer: None, percent: 50, when: 1..=u64::MAX, call: None, code, microseconds: 1000 };
    for word in words {
        let wrong = || format!("`{word}` in fault `{text}` cannot be read");
        let (key, value) = word.split_once('=').ok_or_else(wrong)?;
        match key {
            "rank" => fault.rank = Some(value.parse().map_err(|_| wrong())?),
            "peer" => fault.peer = Some(value.parse().map_err(|_| wrong())?),
            "percent" => {
                fault.percent = value.parse().ok().filter(|percent| (1..=100).contains(percent)).ok_or_else(wrong)?;
            }
            "op" | "allocation" | "communicator" => fault.when = times(value).ok_or_else(wrong)?,
            "call" => fault.call = Some(value.to_owned()),
            "code" => fault.code = value.parse().map_err(|_| wrong())?,
            "microseconds" => fault.microseconds = value.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        }
    }
    if fault.call.as_deref() == Some("connect") {
        (fault.kind, fault.call) = match fault.kind {
            Kind::Hang => (Kind::ConnectHang, None),
            Kind::OutOfMemory => (Kind::ConnectOutOfMemory, None),
            other => (other, fault.call),
        };
    }
    Ok(fault)
}

/// `5`, `5-` (from the fifth on), `5-8` or `all`.
fn times(text: &str) -> Option<RangeInclusive<u64>> {
    if text == "all" {
        return Some(1..=u64::MAX);
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = first.parse().ok().filter(|first| *first > 0)?;
    let last = if last.is_empty() { u64::MAX } else { last.parse().ok()? };
    Some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_misspelt_is_refused() {
        for text in
            ["hnag", "hang rank", "hang rank=x", "hang op=0", "hang when=3", "hang op=3-x", "slow_link percent=0"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn faults_are_read() {
        let read =
            parse("hang rank=2 op=5; slow op=3- microseconds=7 call=all_reduce; hang call=connect op=2; out_of_memory call=connect")
                .unwrap();
        assert_eq!((read[0].kind, read[0].rank, &read[0].when), (Kind::Hang, Some(2), &(5..=5)));
        assert_eq!((read[1].when.clone(), read[1].microseconds), (3..=u64::MAX, 7));
        assert_eq!(read[1].call.as_deref(), Some("all_reduce"));
        assert_eq!((read[2].kind, &read[2].call, &read[2].when), (Kind::ConnectHang, &None, &(2..=2)));
        assert_eq!((read[3].kind, &read[3].call), (Kind::ConnectOutOfMemory, &None));
    }
}
