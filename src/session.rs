//! One run from suite to record.
