//! The end of a run: its last line, and its exit code.

use super::journal::SharedJournal;
use super::tally::Tally;
use super::work_loop::Run;
use crate::watchdog::{Activity, SETUP_DEADLINE};
use commgauge_base::error::{Error, Kind, Result};
use commgauge_base::units::Seconds;
use commgauge_model::record::line::{End, EndStatus, Line};
use std::time::Instant;

/// Exit code of a run that stopped before its time limit with work left: `EX_TEMPFAIL` of `sysexits.h`, after which a
/// retry makes sense.
pub const OUT_OF_TIME: i32 = 75;

/// Called before a run is recorded as complete: a signal after its last case still counts, and if the watchdog is
/// ending the run, this does not return.
pub(super) fn finalize(run: &mut Run) -> Result<()> {
    let watch = &run.request.watch;
    watch.begin(|| Activity::named("after the last case", SETUP_DEADLINE));
    if run.tally.signal == 0 {
        run.ask_for_signal()?;
    }
    if run.world.process() == 0 {
        watch.conclude();
    }
    Ok(())
}

/// Writes the end line and closes the record. If only this process knows of the error, the others are in another
/// operation and would never join a collective.
pub(super) fn conclude(
    mut journal: SharedJournal,
    measured: Result<Tally>,
    begun: Instant,
    limit: Option<Seconds>,
) -> Result<End> {
    let end = end_line(&measured, begun, limit);
    let line = || Line::End(end.clone());
    if let Err(error) = measured {
        // If the record cannot be written either, the first error matters more, and mostly has the same cause.
        let _ = if error.is_shared() { journal.write(line) } else { journal.write_locally(line) };
        return Err(error);
    }
    journal.write(line)?;
    journal.finish()?;
    Ok(end)
}

fn end_line(measured: &Result<Tally>, begun: Instant, limit: Option<Seconds>) -> End {
    let elapsed_seconds = Seconds(begun.elapsed().as_secs_f64());
    let end =
        |status, exit_code, error| End { status, exit_code, error, elapsed_seconds, lines_before: None, sha256: None };
    match measured {
        Ok(tally) if tally.signal != 0 => {
            let stopped = Error::from(Kind::Interrupted(tally.signal));
            end(EndStatus::Interrupted, stopped.exit_code(), Some(stopped.to_string()))
        }
        Ok(tally) if tally.out_of_time => {
            let limit = limit.map_or_else(String::new, |limit| format!(" of {limit}"));
            let text = format!("the time limit{limit} leaves no time for the next case; what was measured is kept");
            end(EndStatus::OutOfTime, OUT_OF_TIME, Some(text))
        }
        Ok(tally) if tally.corrupt > 0 => {
            end(EndStatus::Complete, 4, Some(format!("{} case lines carry wrong data", tally.corrupt)))
        }
        Ok(tally) if tally.failed > 0 => {
            end(EndStatus::Complete, 6, Some(format!("{} case lines could not be run to their end", tally.failed)))
        }
        Ok(_) => end(EndStatus::Complete, 0, None),
        Err(error) => end(EndStatus::Failed, error.exit_code(), Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::listener::Listener;
    use crate::watchdog::Watch;
    use crate::world::{Located, World};
    use commgauge_model::record::Journal;

    #[test]
    fn only_a_run_without_errors_ends_with_0() {
        let tally = |corrupt, failed, signal, out_of_time| Ok(Tally { corrupt, failed, signal, out_of_time });
        for (measured, code) in [
            (tally(0, 0, 0, false), 0),
            (tally(0, 1, 0, false), 6),
            (tally(1, 1, 0, false), 4),
            (tally(1, 1, 2, false), 130),
            (tally(0, 1, 0, true), 75),
            (tally(0, 0, 15, true), 143),
            (Err(Error::usage("wrong")), 2),
        ] {
            assert_eq!(end_line(&measured, Instant::now(), None).exit_code, code);
        }
    }

    /// Processes that never join a collective: waiting for them would take forever.
    struct Busy;

    impl World for Busy {
        fn process(&self) -> u32 {
            0
        }
        fn processes(&self) -> u32 {
            2
        }
        fn barrier(&self) -> Result<()> {
            panic!("waits")
        }
        fn broadcast(&self, _: &mut Vec<u8>) -> Result<()> {
            panic!("waits")
        }
        fn broadcast_u64(&self, _: &mut [u64]) -> Result<()> {
            panic!("waits")
        }
        fn gather(&self, _: &[u8]) -> Result<Vec<Vec<u8>>> {
            panic!("waits")
        }
        fn all_max(&self, _: &mut [Located]) -> Result<()> {
            panic!("waits")
        }
        fn all_min(&self, _: &mut [Located]) -> Result<()> {
            panic!("waits")
        }
        fn send(&self, _: u32, _: u64) -> Result<()> {
            panic!("waits")
        }
        fn receive(&self, _: u32) -> Result<u64> {
            panic!("waits")
        }
        fn abort(&self, _: i32) -> ! {
            panic!("aborted")
        }
    }

    #[test]
    fn an_error_of_one_process_is_recorded_without_waiting_for_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        let journal =
            SharedJournal::new(&Busy, Some(Journal::create(&path).unwrap()), &Listener::default(), &Watch::default());
        let failed = Err(Error::environment("MPI_Bcast failed"));
        let error = conclude(journal, failed, Instant::now(), None).unwrap_err();
        assert_eq!((error.exit_code(), error.is_shared()), (6, false));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(r#""status":"failed","exit_code":6,"error":"MPI_Bcast failed""#), "{text}");
    }
}
