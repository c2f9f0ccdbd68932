//! How a model's work is divided, and what one step of it is: the `[[layout]]`, `[training]` and `[serving]` tables of
//! a suite, and the equivalent flags.

mod choices;
mod framework;
mod keys;
mod serving;
mod table;
mod training;

pub use choices::*;
pub use framework::{Framework, FrameworkChoices, FrameworkDefault, Work};
pub use keys::{Needs, Places};
pub use serving::Serving;
pub use table::{STEP_FLAGS, StepFlag, keys_of};
pub use training::{
    ContextChoices, DEEPSPEED_BUCKET_PARAMETERS, DataChoices, ExpertChoices, LayoutTable, MOST_RANKS, ModelWork,
    ModuleChoices, PipelineChoices, STYLES, TensorChoices, Training, VocabularyChoices, divisors_among, parse_order,
    ranks_of_ep_on_a_node,
};
