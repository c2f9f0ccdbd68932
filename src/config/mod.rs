//! What the user's files say, read once and checked once; below here nobody looks at files, flags or environment.

mod document;
mod model;
mod model_parameters;
mod model_reader;
mod settings;

pub use document::Place;
pub use model::{Family, LatentAttention, Mixture, Model};
pub use settings::RunSettings;
