//! How a model's work is divided, and what one step of it is: the `[[layout]]`, `[training]` and `[serving]` tables of
//! a suite, and the equivalent flags.

mod choices;
mod data;
mod framework;
mod framework_choices;
mod keys;
mod layout_table;
mod reading;
mod serving;
mod serving_parts;
mod tensor_choices;
mod training;

pub use choices::{BucketRule, ContextStyle, DataStyle, Dispatcher, Linears, Recompute, Routing, ScheduleKind};
pub use data::{DEEPSPEED_BUCKET_PARAMETERS, DataChoices, ModuleChoices, divisors_among};
pub use framework::{Framework, FrameworkChoices, FrameworkDefault, Work};
pub use framework_choices::{
    BalanceLoss, BroadcastBuffers, DecodeContextExchange, Drafter, ExpertTokens, FeedForwardRanks,
    GradientAccumulation, GradientReduction, KvTransfer, OuterSharding, ParameterReturn, ReplicaReduction,
    SampledTokens, ServingDispatcher, ShardBuffers, SmallCall, TensorStyle, TokenExchange, UnitRule, VocabularyPadding,
    VocabularyStyle,
};
pub use keys::{KeyForm, KeyGroup, Needs, STEP_KEYS, StepKey, keys_of, needs_of_flag};
pub use layout_table::{LayoutTable, MOST_RANKS, ModelWork, STYLES, parse_order};
pub use serving::Serving;
pub use tensor_choices::{BatchBroadcast, GatherRecipe, MuonTensorMode, ProductOverlap};
pub use training::{
    Batch, ContextChoices, ExpertChoices, PipelineChoices, TensorChoices, Training, VocabularyChoices,
    ranks_of_ep_on_a_node,
};
