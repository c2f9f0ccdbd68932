//! The timed loop in named phases.
