//! Files inherited from the parent process. Launchers and MPI libraries leave theirs open for processes started by a
//! rank, and then wait forever for connections to close that such a process still has open.

/// Limit for systems that cannot close all files at once: no launcher leaves files with higher numbers.
const HIGHEST: u32 = 4096;

/// Closes every file but the three standard ones. To be called first of all, when nothing of this program is open.
pub fn close_inherited_files() {
    const FIRST: u32 = 3;
    // SAFETY: closes numbers that nothing in this program owns yet (close_range(2), Linux 5.9).
    let closed = unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, 0u32) };
    if closed != 0 {
        for file in FIRST..HIGHEST {
            // SAFETY: as above; closing a number that is not open is an error without consequence (close(2)).
            unsafe { libc::close(file as i32) };
        }
    }
}
