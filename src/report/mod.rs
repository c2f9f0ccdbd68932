//! What to show, then how.
