//! What killed ranks and a killed launcher leave on a host, which nobody else removes where all of them end at once: shared memory,
//! and the launcher's session folder.

use super::process::{Process, process_start};
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

impl Leftovers {
    /// Whether nothing is to be noted yet, whatever the ranks do.
    pub(super) fn rests(&self, now: Instant) -> bool {
        self.noted.is_some_and(|(at, had_begun)| had_begun && now - at <= LATER_SCANS)
    }

    /// Notes from time to time what processes of this host have in shared memory, as killed ones cannot be asked. `have_begun` is
    /// whether all ranks of the host have begun their cases.
    pub(super) fn note_at(&mut self, now: Instant, have_begun: bool, processes: &[Process]) {
        let is_due = self.noted.is_none_or(|(at, had_begun)| match (had_begun, have_begun) {
            (false, true) => true,
            (true, _) => !self.rests(now),
            (false, false) => now - at > FIRST_SCANS,
        });
        if is_due && !processes.is_empty() {
            self.noted = Some((now, have_begun));
            self.note(processes);
        }
    }

    /// Notes it now, as before ranks are ended.
    pub(super) fn note(&mut self, processes: &[Process]) {
        if let (None, Some(process)) = (&self.session, processes.first()) {
            self.session = Session::of_rank(process.pid);
        }
        processes.iter().for_each(|process| self.segments.note(process.pid));
    }

    /// Removes what these left, once they have ended. A launcher that goes on sees to its folder itself.
    pub(super) fn remove(&self, processes: &[Process]) {
        let launcher = self.session.as_ref().map(|session| session.launcher);
        let ending = processes.iter().copied().chain(launcher);
        let deadline = Instant::now() + DYING_TIMEOUT;
        while ending.clone().any(Process::is_dying) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.segments.remove_left();
        if let Some(session) = &self.session {
            session.folder.remove_left();
        }
    }
}
