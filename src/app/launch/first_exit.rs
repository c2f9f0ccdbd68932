//! Reports which of several processes of this host exits first.
//!
//! MPICH kills the other ranks when one dies and then names any of them, so the order is taken from the operating
//! system instead.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::sync::mpsc::{Receiver, channel};

/// Sends the first of the processes to exit; several, if they had all exited by the time they were polled.
///
/// Nothing is sent if one of them is not on this host, or if the system cannot watch processes (before Linux 5.3).
pub fn first_exit(pids: Vec<u32>) -> Receiver<Vec<u32>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let open = |pid: &u32| -> Option<OwnedFd> { pidfd_open(Pid::from_raw(*pid as i32)?, PidfdFlags::empty()).ok() };
        let Some(watched) = pids.iter().map(open).collect::<Option<Vec<OwnedFd>>>() else { return };
        let mut fds: Vec<PollFd<'_>> = watched.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
        // The only possible error is an interruption by a signal; the wait then continues.
        while !fds.is_empty() && poll(&mut fds, None).is_err() {}
        let exited = fds.iter().zip(&pids).filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, pid)| *pid).collect();
        // The receiver may be gone.
        let _ = sender.send(exited);
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn only_the_first_process_to_exit_is_reported() {
        let mut children = ["5", "0.2", "5"].map(|time| Command::new("sleep").arg(time).spawn().expect("it starts"));
        let exited = first_exit(children.iter().map(std::process::Child::id).collect());
        let first = exited.recv_timeout(Duration::from_secs(4)).expect("one ends");
        assert_eq!(first, [children[1].id()]);
        for child in &mut children {
            // The one in the middle has ended already.
            let _ = child.kill();
            child.wait().expect("it is ours");
        }
    }

    #[test]
    fn a_process_that_is_not_here_ends_the_watch_without_an_answer() {
        let exited = first_exit(vec![std::process::id(), 0]);
        assert!(exited.recv_timeout(Duration::from_secs(4)).is_err());
    }
}
