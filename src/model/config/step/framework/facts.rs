//! The shape of what is known of a framework.

/// What is known of a framework.
pub(super) struct Facts {
    /// The version that was read or run.
    pub version: &'static str,
    /// The axes that it divides a model by.
    pub axes: &'static [&'static str],
    /// Choices that it makes where the user makes none, in their order: a later one may depend on an earlier one.
    pub defaults: &'static [Default],
    /// Keys of which it offers some values only.
    pub limits: &'static [Limit],
    /// Keys that it has no use for, group by group.
    pub unused: &'static [&'static [&'static str]],
}

impl Facts {
    /// Whether it has no use for a key.
    pub fn leaves_unused(&self, key: &str) -> bool {
        self.unused.iter().copied().flatten().any(|unused| *unused == key)
    }

    /// The only values of a key that it offers; `None` where it takes every one.
    pub fn accepted(&self, key: &str) -> Option<&'static [&'static str]> {
        self.limits.iter().find(|limit| limit.key == key).map(|limit| limit.accepted)
    }
}

/// A choice that it makes.
pub(super) struct Default {
    pub key: &'static str,
    pub value: &'static str,
    /// File, and function or setting.
    pub source: &'static str,
    /// Only where another key has one of these values.
    pub only_with: Option<With>,
}

/// A condition on another key.
#[derive(Clone, Copy)]
pub(super) struct With {
    pub key: &'static str,
    pub values: &'static [&'static str],
}

/// The values of a key that it offers.
pub(super) struct Limit {
    pub key: &'static str,
    pub accepted: &'static [&'static str],
    /// Where it does not hold.
    pub unless: Option<With>,
}

impl Limit {
    pub const fn new(key: &'static str, accepted: &'static [&'static str]) -> Limit {
        Limit { key, accepted, unless: None }
    }

    /// The same, but not where another key has one of these values.
    pub const fn unless(self, key: &'static str, values: &'static [&'static str]) -> Limit {
        Limit { unless: Some(With { key, values }), ..self }
    }
}

/// Of a framework that has every axis.
pub(super) const EVERY_AXIS: &[&str] = &["tp", "cp", "ep", "pp", "dp"];

impl Default {
    pub const fn new(key: &'static str, value: &'static str, source: &'static str) -> Default {
        Default { key, value, source, only_with: None }
    }

    /// The same only where another key has one of these values.
    pub const fn only_with(self, key: &'static str, values: &'static [&'static str]) -> Default {
        Default { only_with: Some(With { key, values }), ..self }
    }
}
