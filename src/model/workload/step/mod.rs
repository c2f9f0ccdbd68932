//! One step of a model in a layout: training or serving, checked, with the ops that each of its stages performs.

mod check;
mod check_context;
mod check_data;
mod check_hybrid;
mod check_prediction;
mod check_serving;
mod check_shards;
mod checked;
mod divisibility;
mod experts;
mod layers_only;
mod messages;
mod one_step;
mod place;
mod rank_parameters;
mod serving;
mod stages;
mod token_shares;
mod totals;
mod training;

pub use check::undivided_axis;
pub use divisibility::must_divide;
pub(super) use experts::routed;
pub use layers_only::wire_bytes_of_layers;
pub use messages::Messages;
pub use one_step::Step;
pub use place::{layout_on, ranks_of};
pub use rank_parameters::RankParameters;
pub use serving::{PassTokens, Phase, ServingStep};
pub use stages::Stages;
pub(super) use token_shares::share_of_tokens;
pub use totals::{AxisTotals, StepOps};
pub use training::TrainingStep;
