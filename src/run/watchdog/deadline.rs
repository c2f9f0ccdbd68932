//! Default deadlines for how long a rank may stay in one operation. Pure functions.
//!
//! A deadline is for detecting hangs, not slowness: a rank that is ten times slower than the others must not trigger
//! it. So it is many times the expected time, and never short.

use commgauge_base::units::Seconds;
use commgauge_model::workload::{Case, ProductShape};
use std::time::Duration;

/// Deadline before and after the cases: starting many ranks takes time.
pub const SETUP_DEADLINE: Duration = Duration::from_secs(120);
/// Minimum deadline of the end of MPI, also where the user gave a shorter one for everything.
const SHORTEST_END: Duration = Duration::from_secs(10);
/// The same of another host: longer than its ranks need to notice, and to agree, that its collector alone is silent.
const SHORTEST_OF_HOST: Duration = Duration::from_secs(8);
/// What preparing a case takes whatever its size: as many buffers as fill the caches, connections, code on a device.
const PREPARATION: Duration = Duration::from_secs(5);
/// Minimum deadline of a call or a wait.
const SHORTEST: Duration = Duration::from_secs(30);
/// Multiple of the expected or measured time of a call.
const FACTOR: f64 = 20.0;
/// Pessimistic speed of a host, used before anything is measured.
const CAUTIOUS_BYTES_PER_SECOND: f64 = 0.5e9;
const CAUTIOUS_OPERATIONS_PER_SECOND: f64 = 1e9;

/// Deadline of a call of a case before its time is known.
pub fn deadline_of_case(case: &Case) -> Duration {
    of_seconds(seconds_to_move(case))
}

/// Deadline of allocating, filling and checking the buffers of a case and of its first call, for which ranks wait for each other. With
/// a deadline of the user's own for everything there is time for the bytes on top of that.
pub fn deadline_of_preparation(case: &Case, timeout: Option<Duration>) -> Duration {
    match timeout {
        None => deadline_of_case(case).max(SETUP_DEADLINE),
        Some(timeout) => timeout + PREPARATION + at_most(FACTOR * seconds_to_move(case)),
    }
}

fn seconds_to_move(case: &Case) -> f64 {
    case.op.bytes_total.0 as f64 * f64::from(case.variant.calls_at_once()) / CAUTIOUS_BYTES_PER_SECOND
}

/// Deadline of a matrix product.
pub fn deadline_of_product(shape: &ProductShape) -> Duration {
    let operations = 2.0 * shape.m as f64 * shape.n as f64 * shape.k as f64;
    SHORTEST + Duration::from_secs_f64((operations / CAUTIOUS_OPERATIONS_PER_SECOND).min(1e6))
}

/// Deadline of a copy of so many bytes, made several times back to back by one rank of each host after the other.
pub fn deadline_of_copy(bytes: u64, copies: u32) -> Duration {
    of_seconds(bytes as f64 * f64::from(copies) / CAUTIOUS_BYTES_PER_SECOND)
}

/// Deadline of a replay with this much computation per rank: other ranks may wait for all of it.
pub fn deadline_of_replay(computing: Seconds) -> Duration {
    of_seconds(computing.0)
}

/// How long nothing may be heard of another host, whatever its ranks do: its collector does nothing but report.
pub(super) fn deadline_of_host(timeout: Option<Duration>) -> Duration {
    timeout.map_or(SHORTEST, |timeout| timeout.max(SHORTEST_OF_HOST))
}

/// Deadline of the end of MPI, given the user's deadline for everything.
pub(super) fn deadline_of_end(timeout: Option<Duration>) -> Duration {
    timeout.map_or(SETUP_DEADLINE, |timeout| timeout.max(SHORTEST_END))
}

/// Deadline once the time of a call is known.
pub(super) fn deadline_as_measured(call: Duration) -> Duration {
    of_seconds(call.as_secs_f64())
}

fn of_seconds(expected: f64) -> Duration {
    SHORTEST.max(at_most(FACTOR * expected))
}

/// So many seconds, and no more than a duration can hold.
fn at_most(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 1e6))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_many_times_what_is_expected_and_never_short() {
        for (milliseconds, seconds) in [(0, 30), (1, 30), (1_500, 30), (10_000, 200)] {
            let deadline = deadline_as_measured(Duration::from_millis(milliseconds));
            assert_eq!(deadline, Duration::from_secs(seconds));
        }
        assert_eq!(deadline_of_replay(Seconds(f64::INFINITY)), Duration::from_secs(1_000_000));
        assert_eq!(deadline_of_replay(Seconds(-1.0)), SHORTEST);
    }
}
