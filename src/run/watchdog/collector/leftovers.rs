//! What killed ranks and a killed launcher leave on a host, which nobody else removes where all of them end at once: shared memory,
//! and the launcher's session folder.

use super::process::{Process, process_start};
use super::serve::Serving;
use super::stage::Stage;
use commgauge_base::session_folder::SessionFolder;
use commgauge_base::shared_memory::Segments;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Intervals of scanning the ranks' shared memory: until all have begun their cases, and after that.
const FIRST_SCANS: Duration = Duration::from_secs(1);
const LATER_SCANS: Duration = Duration::from_secs(30);
/// How long processes on their way out are waited for. They need a processor, and give their memory back first.
const DYING_TIMEOUT: Duration = Duration::from_secs(3);

/// What is to be removed in the end.
#[derive(Debug, Default)]
pub(super) struct Leftovers {
    segments: Segments,
    /// When they were noted last, and whether all ranks had begun their cases.
    noted: Option<(Instant, bool)>,
    session: Option<Session>,
}

/// The session folder of the launcher that runs on this host.
#[derive(Debug)]
struct Session {
    folder: SessionFolder,
    launcher: Process,
}

impl Session {
    /// That of the launcher that started a rank.
    fn of_rank(rank: u32) -> Option<Session> {
        let path = std::env::var_os("PMIX_SERVER_TMPDIR").map(PathBuf::from)?;
        let folder = SessionFolder::of_rank(&path, rank)?;
        let pid = folder.launcher();
        Some(Session { folder, launcher: Process { pid, start: process_start(pid)? } })
    }
}

impl Serving {
    /// Notes periodically what the ranks have in shared memory, as killed ones cannot be asked.
    pub(super) fn note_leftovers(&mut self, now: Instant) {
        let ranks = self.local().count();
        if ranks == 0 || !matches!(self.stage, Stage::Watching) {
            return;
        }
        let begun = ranks == self.config.local_ranks.len() && self.local().all(|entry| entry.state.shown.activity > 1);
        let is_due = self.leftovers.noted.is_none_or(|(at, had_begun)| match (had_begun, begun) {
            (false, true) => true,
            (true, _) => now - at > LATER_SCANS,
            (false, false) => now - at > FIRST_SCANS,
        });
        if is_due {
            self.leftovers.noted = Some((now, begun));
            self.note_leftovers_now();
        }
    }

    /// Notes them before the ranks are ended.
    pub(super) fn note_leftovers_now(&mut self) {
        let pids: Vec<u32> = self.local().map(|entry| entry.process.pid).collect();
        if let (None, Some(pid)) = (&self.leftovers.session, pids.first()) {
            self.leftovers.session = Session::of_rank(*pid);
        }
        pids.into_iter().for_each(|pid| self.leftovers.segments.note(pid));
    }

    /// Removes what ended processes left. A launcher that goes on sees to its folder itself.
    pub(super) fn remove_leftovers(&self) {
        let launcher = self.leftovers.session.as_ref().map(|session| session.launcher);
        let processes: Vec<Process> = self.local().map(|entry| entry.process).chain(launcher).collect();
        let deadline = Instant::now() + DYING_TIMEOUT;
        while processes.iter().any(|process| process.is_dying()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.leftovers.segments.remove_left();
        if let Some(session) = &self.leftovers.session {
            session.folder.remove_left();
        }
    }
}
