//! Flags in, exit code out: what the programs share.
