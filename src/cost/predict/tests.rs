//! What a fit answers, and on what ground.
