//! A ranking of the parallelisms of a step as a document: plain data for JSON, with a published schema, and from it a table and
//! CSV.

mod csv;
mod documents;
mod ranked;
#[cfg(test)]
mod tests;
mod text;

pub use csv::csv;
pub use documents::*;
pub use text::text;
