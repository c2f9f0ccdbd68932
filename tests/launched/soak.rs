//! The short form of `scripts/soak`: a long run needs no more than at its beginning. Needs the launcher of the MPI that was built with.

use crate::common;

use common::{COMMGAUGE, alone, ending, start};
use std::process::Command;

#[test]
#[ignore = "needs a quiet machine: where ranks get few cycles, half a minute is all warm-up"]
fn a_long_run_takes_no_more_memory_files_or_bytes_of_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let _alone = alone();
    let mut soak = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/soak"));
    soak.args(["--seconds", "120", "--program", COMMGAUGE, "--folder"]).arg(folder.path().join("soak"));
    let ran = ending(start(&mut soak), 90).ended_with(0);
    for (role, count) in [("rank", 4), ("collector", 1), ("run ", 1), ("record", 1)] {
        let flat = ran.stdout.lines().filter(|line| line.starts_with(role) && line.contains(": flat"));
        assert_eq!(flat.count(), count, "{role}: {}", ran.stdout);
    }
}
