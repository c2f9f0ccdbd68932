//! Which command starts the ranks.
