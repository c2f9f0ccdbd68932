//! From records to verdicts: does a machine meet its expectations, and is it slower than before.
//!
//! Statistics are over the medians of replicates, never over their iterations, which share communicators, placement and the
//! state of the machine. Missing, unverified, synthetic or unreliable data never pass. Rendering is in `report`.

mod algorithm;
mod comparability;
mod compare;
mod compare_rule;
mod consistency;
mod copied_times;
mod curve_noise;
mod curves;
mod decision;
mod document;
mod evidence;
mod expected;
mod gate;
pub mod history;
mod judgement;
mod learn;
mod learned_file;
mod learned_kind;
mod learned_reach;
mod loaded_record;
pub mod locate;
mod network;
mod next_run;
mod noise_rows;
mod one_run;
mod own_work_table;
mod percent;
mod permutation;
mod planned;
mod row_subject;
mod scope;
pub mod selftest;
mod subject;
mod template;
mod transient_slowdown;
mod whole_record;

pub use comparability::{Allowed, Difference, differences, ensure_comparable};
pub use compare::compare;
pub use compare_rule::CompareRule;
pub use consistency::{Consistency, ConsistencyRule, Timed, consistency};
pub use curve_change::{CurveChange, CurvePart};
pub use decision::{Decision, most_severe};
pub use document::{
    AgainstBase, AgainstLimit, Coverage, FORMAT, FalseAlarms, Metric, Question, Row, Run, Trouble, VERSION, Verdict,
};
pub use finding::{Finding, Guideline};
pub use gate::{GateRule, gate, gate_new_machine};
pub use judgement::{is_cleared, located_code};
pub use learn::learn;
pub use learned_file::{LearnRule, Learned};
pub use loaded_record::LoadedRecord;
pub use next_run::{NextRun, judged_suite, next_run};
pub use row_subject::{RowCall, RowSubject};
pub use scope::{PlanOutlook, PlannedWork, plan_outlook};
pub use selftest::{Counted, History, Noise, OwnRecords, SelfTest, SelfTestRule, Trial, TrialKind, selftest};
pub use subject::Subject;
pub use transient_slowdown::TransientSlowdown;

#[cfg(test)]
mod cheat_tests;
#[cfg(test)]
mod compare_tests;
mod curve_change;
#[cfg(test)]
mod damage_tests;
mod finding;
#[cfg(test)]
mod monotonicity_tests;
#[cfg(test)]
mod own_work_tests;
#[cfg(any(test, feature = "test-support"))]
pub mod testing;
#[cfg(test)]
mod tests;
