//! A key of a step, as data.

use crate::config::step::Work;

/// A key of a step.
#[derive(Debug, PartialEq, Eq)]
pub struct StepKey {
    /// Its name in a table.
    pub key: &'static str,
    /// The flag that stands for it, with its dashes.
    pub flag: &'static str,
    /// Another name of the flag.
    pub alias: Option<&'static str>,
    /// What the flag takes.
    pub form: KeyForm,
    /// The work whose table has it.
    pub takes: &'static [Work],
    /// What it means, its values and its default, in one line.
    pub meaning: &'static str,
    /// Without what it changes nothing, where that is not so of its whole group.
    pub(super) needs: Option<Needs>,
}

/// What a layout or a model must have for a key to change anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing.
    Nothing,
    /// Several ranks of tp.
    TensorParallelism,
    /// Several stages.
    PipelineParallelism,
    /// Several ranks of cp.
    ContextParallelism,
    /// A model with experts.
    Experts,
}

/// What the flag of a key takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// A value, named so in help.
    Value(&'static str),
    /// True or false; true without a value.
    Truth,
    /// The same, and the flag says the opposite of the key.
    Denial,
}

pub(super) const TRAINING: &[Work] = &[Work::Training];
pub(super) const SERVING: &[Work] = &[Work::Serving];
pub(super) const BOTH: &[Work] = &[Work::Training, Work::Serving];

impl StepKey {
    pub(super) const fn text(
        key: &'static str,
        flag: &'static str,
        value: &'static str,
        takes: &'static [Work],
        meaning: &'static str,
    ) -> StepKey {
        StepKey { key, flag, alias: None, form: KeyForm::Value(value), takes, meaning, needs: None }
    }

    pub(super) const fn truth(
        key: &'static str,
        flag: &'static str,
        takes: &'static [Work],
        meaning: &'static str,
    ) -> StepKey {
        StepKey { key, flag, alias: None, form: KeyForm::Truth, takes, meaning, needs: None }
    }

    pub(super) const fn denial(
        key: &'static str,
        flag: &'static str,
        takes: &'static [Work],
        meaning: &'static str,
    ) -> StepKey {
        StepKey { key, flag, alias: None, form: KeyForm::Denial, takes, meaning, needs: None }
    }

    pub(super) const fn alias(self, alias: &'static str) -> StepKey {
        StepKey { alias: Some(alias), ..self }
    }

    pub(super) const fn needs(self, needs: Needs) -> StepKey {
        StepKey { needs: Some(needs), ..self }
    }
}
