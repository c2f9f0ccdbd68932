//! What the user's files say, read once and checked once; below here nobody looks at files, flags or environment.

pub mod machine;
mod settings;

pub use machine::Machine;
pub use settings::RunSettings;
