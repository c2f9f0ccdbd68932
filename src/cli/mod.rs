//! Flags in, exit code out: what the programs share.

pub mod run;
