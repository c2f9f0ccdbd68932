//! Replays that could wait for themselves: streams that share a queue to the device, and calls of several communicators without a common
//! order.

use super::environment::{ORDERS_FROM, QUEUES};
use super::library::Version;
use super::state::Streams;
use commgauge_base::error::{Error, Result};

/// The driver's default, used when ranks share GPUs.
const USUAL_QUEUES: usize = 8;

/// Refuses to wait for a deadlock: streams beyond the device's queues share one, and a call there waits for those before it.
pub(super) fn refuse_shared_queues(streams: Streams, queues: Option<String>) -> Result<()> {
    // More than the most have no effect.
    let queues = queues.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_QUEUES).min(QUEUES.1);
    let Streams { own, of_nccl } = streams;
    if own + of_nccl <= queues {
        return Ok(());
    }
    let fix = if own + of_nccl <= QUEUES.1 {
        format!("set {}={}, which happens by itself unless ranks share GPUs", QUEUES.0, QUEUES.1)
    } else {
        format!(
            "{} are the most that CUDA has: replay a layout with fewer axes, pipeline neighbours or chunks",
            QUEUES.1
        )
    };
    Err(Error::usage(format!(
        "this step has {own} streams, NCCL's communicators have {of_nccl} of their own, and there are {queues} queues to the device: \
         calls would wait for one another, and may for ever; {fix}"
    )))
}

/// Refuses to wait for another deadlock: kernels of several communicators may start on each device in another order, and each waits with
/// multiprocessors of its own for ranks where another came first. NCCL gives them one order, that of the calls, from this version on.
pub(super) fn refuse_unordered(communicators: usize, version: Version) -> Result<()> {
    if communicators < 2 || version >= ORDERS_FROM {
        return Ok(());
    }
    Err(Error::usage(format!(
        "calls of several communicators at once need NCCL {}.{} (NCCL_LAUNCH_ORDER_IMPLICIT), found {version}: older ones start them in any \
         order, and ranks may wait for one another for ever",
        ORDERS_FROM.0, ORDERS_FROM.1
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_with_more_streams_than_the_device_has_queues_is_refused_and_both_are_named() {
        const MORE: &str = "set CUDA_DEVICE_MAX_CONNECTIONS=32";
        const NO_MORE: &str = "32 are the most that CUDA has";
        for (own, of_nccl, queues, refused) in [
            (3, 0, Some("1"), Some(MORE)),
            (3, 6, Some("8"), Some(MORE)),
            (4, 4, Some("8"), None),
            (12, 20, Some("32"), None),
            (12, 22, Some("32"), Some(NO_MORE)),
            (12, 22, Some("64"), Some(NO_MORE)),
            (12, 22, None, Some(NO_MORE)),
            (3, 6, None, Some(MORE)),
            (4, 4, None, None),
        ] {
            let streams = Streams { own, of_nccl };
            let error = refuse_shared_queues(streams, queues.map(str::to_owned)).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused.is_some(), "{streams:?}, {queues:?}");
            let Some((text, words)) = error.zip(refused) else { continue };
            let counts = format!("this step has {own} streams, NCCL's communicators have {of_nccl} of their own");
            assert!(text.contains(&counts) && text.contains(words), "{text}");
        }
    }

    #[test]
    fn calls_of_several_communicators_at_once_are_refused_where_nccl_gives_them_no_order() {
        for (communicators, version, refused) in [
            (2, Version(2, 25, 1), true),
            (2, Version(2, 26, 2), false),
            (1, Version(2, 18, 1), false),
            (0, Version(2, 18, 1), false),
        ] {
            let error = refuse_unordered(communicators, version).err().map(|error| error.to_string());
            assert_eq!(error.is_some(), refused, "{communicators}, {version}");
            assert!(error.is_none_or(|text| text.contains("need NCCL 2.26") && text.contains("found 2.25.1")));
        }
    }
}
