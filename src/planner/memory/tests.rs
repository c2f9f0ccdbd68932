//! The memory model against published figures.
