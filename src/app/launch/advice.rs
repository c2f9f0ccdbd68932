//! Advice for launcher errors with a known fix.

/// Advice for the first known error in the launcher's output.
pub fn advice(output: &str) -> Option<&'static str> {
    let known: [(&[&str], &str); 6] = [
        (
            // Open MPI's copy from process to process, refused by a container or by ptrace_scope.
            &["Read -1, expected", "errno = 1\n"],
            "copying straight between processes is forbidden here, as in some containers; run again with \
             --launcher-arg=--mca --launcher-arg=btl_vader_single_copy_mechanism --launcher-arg=none",
        ),
        (
            &["direct launched using \"srun\""],
            "srun gave the ranks no PMIx, without which they cannot find each other; start them with srun --mpi=pmix, or \
             run with --launcher mpirun",
        ),
        (
            &["not enough slots available"],
            "the launcher knows of fewer slots than ranks; name more with --hosts HOST:RANKS, or request fewer ranks with -n",
        ),
        (
            &["could not access", "Executable:"],
            "the launched program cannot be run on every host; put it on a path that all hosts share",
        ),
        (
            &["error while loading shared libraries: libmpi"],
            "the MPI library of the build is not found where the ranks run; set LD_LIBRARY_PATH to its folder",
        ),
        (
            &["No space left on device"],
            "a file system is full; Open MPI and MPICH keep shared memory in /dev/shm, which containers often make small",
        ),
    ];
    let output = format!("{output}\n");
    known.iter().find(|(signs, _)| signs.iter().all(|sign| output.contains(sign))).map(|(_, sentence)| *sentence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_errors_have_advice_and_others_have_none() {
        for (output, word) in [
            ("Read -1, expected 65536, errno = 1", Some("btl_vader_single_copy_mechanism")),
            ("There are not enough slots available in the system to satisfy the 8", Some("-n")),
            ("as it could not access\nor execute an executable:\n\nExecutable: ./nix", Some("all hosts share")),
            ("suite: error while loading shared libraries: libmpi.so.40: cannot open", Some("LD_LIBRARY_PATH")),
            ("Read -1, expected 65536, errno = 14", None),
            ("The application appears to have been direct launched using \"srun\",\nbut OMPI", Some("--mpi=pmix")),
            ("all is well", None),
        ] {
            match (advice(output), word) {
                (Some(sentence), Some(word)) => assert!(sentence.contains(word), "{sentence}"),
                (None, None) => {}
                (found, _) => panic!("{output}: {found:?}"),
            }
        }
    }
}
