//! What the user's files say, read once and checked once; below here nobody looks at files, flags or environment.

mod settings;

pub use settings::RunSettings;
