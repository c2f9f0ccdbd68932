//! Many ranks in one process, on a virtual clock, without data.
