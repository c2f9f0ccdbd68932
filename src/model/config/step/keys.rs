//! Keys of `[training]` and `[serving]` as rows of a table.
//!
//! [`keys!`] declares a group of keys as a struct with a field for each key. The struct, its reader, the flags, `commgauge show keys` and
//! the tables of `suites/README.md` are all made from it.

use super::choices::Choice;
use super::framework::{FrameworkChoices, Work, apply};
use crate::config::document::{Item, Place, Table};
use crate::config::suite_sweep::parse_placement;
use commgauge_base::collective::Placement;
use commgauge_base::element::ElementType;
use commgauge_base::error::Result;
use commgauge_base::geometry::Routing;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Declares a group of keys. `field: Type = row` is a key: its comment says what the key means, its type what the key takes, and the row all
/// else. Fields behind a `+` are no keys but parts with keys of their own.
macro_rules! keys {
    (
        $(#[$doc:meta])*
        $name:ident in $group:expr;
        $($(#[doc = $meaning:literal])+ $key:ident: $type:ty = $row:expr,)+
        $(+ $(#[$part_doc:meta])+ $part:ident: $part_type:ty,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $($(#[doc = $meaning])+ pub $key: $type,)+
            $($(#[$part_doc])+ pub $part: $part_type,)*
        }

        #[allow(non_upper_case_globals, reason = "a row has the name of its field")]
        impl $name {
            $(const $key: StepKey = $row.complete::<$type>(concat!($($meaning),+), $group);)+
        }

        impl KeyPart for $name {
            fn take(keys: &mut Keys) -> Result<$name> {
                Ok($name { $($key: keys.value(&$name::$key)?,)+ $($part: KeyPart::take(keys)?,)* })
            }

            fn add_rows(rows: &mut Vec<&'static StepKey>) {
                rows.extend([$(&$name::$key),+]);
                $(<$part_type as KeyPart>::add_rows(rows);)*
            }

            fn add_values(&self, values: &mut Vec<Value>) {
                $(values.push((&$name::$key, KeyValue::text(&self.$key)));)+
                $(self.$part.add_values(values);)*
            }
        }
    };
}

pub(super) use keys;

/// A row of the table: a key of `[training]` or of `[serving]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepKey {
    pub name: &'static str,
    /// What it means: a first sentence, and details.
    pub meaning: &'static str,
    pub accepted: Accepted,
    pub default: Default,
    pub only_with: &'static [With],
    pub group: Group,
    pub flag: Flag,
    /// Another name of the flag.
    pub alias: Option<&'static str>,
    /// Whether the short help has its flag.
    pub is_common: bool,
    /// Whether it changes something without what its group needs.
    is_always: bool,
}

/// What keys of a group have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub work: Work,
    pub heading: &'static str,
    /// Without what they change nothing.
    pub needs: Needs,
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

/// What a key takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Accepted {
    /// What the type of its field takes.
    OfType,
    Truth,
    Names(&'static [&'static str]),
    /// Any number of names.
    List(&'static [&'static str]),
    /// The same, or `none`.
    ListOrNone(&'static [&'static str]),
    Whole(u64, u64),
    /// In words.
    Text(&'static str),
    /// Those that do such work.
    Frameworks(Work),
}

/// What holds where a key is left out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Default {
    /// A value, as a file has it.
    Value(&'static str),
    /// The value of another key.
    Same(&'static str),
    /// No value, and what that means.
    Absent(&'static str),
    /// The key must be there, with such a value.
    Required(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Flag {
    /// `--` and the words of the key.
    OfName,
    Named(&'static str),
    /// `--no-` and the words of the key, with the help of that flag.
    Denial(&'static str),
    /// Files alone have the key.
    None,
}

/// Values of another key that a key needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct With {
    /// The value that needs them; `None` for every value but the default.
    value: Option<&'static str>,
    pub key: &'static str,
    /// Every value but the default where empty.
    values: &'static [&'static str],
}

pub(super) const fn group(work: Work, heading: &'static str, needs: Needs) -> Group {
    Group { work, heading, needs }
}

/// A row that [`keys!`] completes.
pub(super) const fn key(name: &'static str) -> StepKey {
    let group = group(Work::Training, "", Needs::Nothing);
    let (accepted, default, flag) = (Accepted::OfType, Default::Absent("none"), Flag::OfName);
    let (alias, is_common, is_always) = (None, false, false);
    StepKey { name, meaning: "", accepted, default, only_with: &[], group, flag, alias, is_common, is_always }
}

/// Only with these values of another key; without values, only where that is not left at its default.
pub(super) const fn with(key: &'static str, values: &'static [&'static str]) -> With {
    With { value: None, key, values }
}

impl With {
    /// The same for one value alone.
    pub const fn of(self, value: &'static str) -> With {
        With { value: Some(value), ..self }
    }

    /// What is wanted, in words.
    fn wanted(&self) -> String {
        match self.values {
            [] => self.key.to_owned(),
            [value] => format!("{} = {value}", self.key),
            [values @ .., last] => format!("{} = {} or {last}", self.key, values.join(", ")),
        }
    }
}

/// What completes a row: each sets one field.
macro_rules! setters {
    ($($name:ident($($given:ident: $type:ty),*) $field:ident = $value:expr;)+) => {
        $(pub const fn $name(self, $($given: $type),*) -> StepKey {
            StepKey { $field: $value, ..self }
        })+
    };
}

impl StepKey {
    setters! {
        or(value: &'static str) default = Default::Value(value);
        or_that_of(key: &'static str) default = Default::Same(key);
        or_else(meaning: &'static str) default = Default::Absent(meaning);
        required(accepted: &'static str) default = Default::Required(accepted);
        within(from: u64, to: u64) accepted = Accepted::Whole(from, to);
        takes(accepted: Accepted) accepted = accepted;
        only(only_with: &'static [With]) only_with = only_with;
        flag(flag: &'static str) flag = Flag::Named(flag);
        denied(help: &'static str) flag = Flag::Denial(help);
        without_flag() flag = Flag::None;
        alias(alias: &'static str) alias = Some(alias);
        common() is_common = true;
        always() is_always = true;
    }

    fn takes_that_of_activations(&self) -> bool {
        matches!(self.accepted, Accepted::Names(names) if names.contains(&ACTIVATIONS))
    }

    pub const fn complete<T: KeyValue>(self, meaning: &'static str, group: Group) -> StepKey {
        let accepted = match self.accepted {
            Accepted::OfType => T::ACCEPTED,
            own => own,
        };
        let needs = if self.is_always { Needs::Nothing } else { group.needs };
        StepKey { meaning: meaning.trim_ascii(), accepted, group: Group { needs, ..group }, ..self }
    }

    /// The accepted values with the default, in words.
    pub fn accepted(&self) -> String {
        let names = |names: &[&str]| names.join(", ");
        let accepted = match self.accepted {
            Accepted::Truth => names(&["true", "false"]),
            Accepted::Names(all) => names(all),
            Accepted::List(all) => format!("any of {}", names(all)),
            Accepted::ListOrNone(all) => format!("any of {}, or none", names(all)),
            Accepted::Text(words) => words.to_owned(),
            Accepted::Frameworks(work) => work.frameworks(),
            Accepted::Whole(from, to) if to <= 4096 => format!("{from} to {to}"),
            Accepted::Whole(..) | Accepted::OfType => "a number".to_owned(),
        };
        match self.default {
            Default::Value(value) if value.contains(',') => {
                format!("{accepted} (default {})", value.replace(',', ", "))
            }
            Default::Value(value) if accepted.split(", ").any(|one| one == value) => {
                let mark = |one: &str| if one == value { format!("{one} (default)") } else { one.to_owned() };
                accepted.split(", ").map(mark).collect::<Vec<_>>().join(", ")
            }
            Default::Value(value) => format!("{accepted} (default {value})"),
            Default::Same(key) => format!("{accepted} (default: as {key})"),
            Default::Absent(meaning) => format!("{accepted} (default: {meaning})"),
            Default::Required(_) => format!("{accepted}, required"),
        }
    }

    /// A meaning with the accepted values and the other keys that it needs behind its first sentence.
    pub fn described(&self, meaning: &str, accepted: &str) -> String {
        let (first, details) = meaning.split_once(". ").unwrap_or((meaning, ""));
        let mut text = format!("{first}{accepted}");
        for (index, with) in self.only_with.iter().enumerate() {
            let wanted = with.wanted();
            text += &match with.value {
                of if index > 0 && self.only_with[index - 1].value == of => format!(", {wanted}"),
                None => format!("; only with {wanted}"),
                Some(value) => format!("; {value} only with {wanted}"),
            };
        }
        if details.is_empty() { text } else { format!("{text}. {details}") }
    }
}

// How a table is read by its rows.

/// Where a table and its keys were written.
#[derive(Clone, PartialEq, Eq)]
pub struct Places(Arc<(Place, BTreeMap<String, Place>)>);

/// Without the places: the hash of a step is made of its debugging text, and is the same however the step was written.
impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Places")
    }
}

impl Places {
    /// That of the table.
    pub fn table(&self) -> &Place {
        &self.0.0
    }

    /// That of a key, or of the table where the key was left out.
    pub fn at(&self, key: &str) -> &Place {
        self.0.1.get(key).unwrap_or(&self.0.0)
    }
}

/// A table that is read, with what a framework adds to it.
pub(super) struct Keys {
    table: Table,
    places: Places,
    framework: Option<FrameworkChoices>,
    read: BTreeMap<&'static str, Cow<'static, str>>,
}

impl Keys {
    /// # Errors
    /// Keys that the table of such work does not have, and what the framework has no use for.
    pub fn of<P: KeyPart>(mut table: Table, work: Work) -> Result<Keys> {
        table.only(&P::rows().iter().map(|row| row.name).collect::<Vec<_>>())?;
        let framework = apply(&mut table, work)?;
        let places = Places(Arc::new((table.place.clone(), table.places())));
        Ok(Keys { table, places, framework, read: BTreeMap::new() })
    }

    /// The value of a key.
    pub fn value<T: KeyValue>(&mut self, row: &'static StepKey) -> Result<T> {
        let places = self.places.clone();
        let place = places.at(row.name);
        let same = |key: &str| self.read.get(key).map(|text| Item::of_text(text, place));
        let item = match (self.table.take(row.name), row.default) {
            (Some(item), _) if item.is_text(ACTIVATIONS) && row.takes_that_of_activations() => {
                same("activation_element_type")
            }
            (Some(item), _) => Some(item),
            (None, Default::Value(text)) => Some(Item::of_text(text, place)),
            (None, Default::Same(key)) => same(key),
            (None, Default::Absent(_) | Default::Required(_)) => None,
        };
        let value = match (item, row.default) {
            (Some(item), _) => T::read(item, row)?,
            (None, Default::Required(accepted)) => {
                return Err(place.wrong(format!("`{}` is missing; accepted: {accepted}", row.name)));
            }
            (None, _) => T::absent().ok_or_else(|| place.wrong(format!("`{}` is missing", row.name)))?,
        };
        self.read.insert(row.name, value.text());
        Ok(value)
    }

    /// Gives a key this value where it is left out and the table has something else.
    pub fn default_where(&mut self, key: &'static str, value: &str, holds: impl Fn(&Table) -> bool) {
        if holds(&self.table) {
            self.table.default_to(key, value, self.places.table());
        }
    }
}

/// A part of a table that reads its keys itself.
pub(super) trait KeyPart: Sized {
    fn take(keys: &mut Keys) -> Result<Self>;

    fn add_rows(_: &mut Vec<&'static StepKey>) {}

    /// Adds its keys with their values.
    fn add_values(&self, _: &mut Vec<Value>) {}

    fn rows() -> Vec<&'static StepKey> {
        let mut rows = Vec::new();
        Self::add_rows(&mut rows);
        rows
    }
}

/// A key with its value.
pub(super) type Value = (&'static StepKey, Cow<'static, str>);

impl KeyPart for Places {
    fn take(keys: &mut Keys) -> Result<Places> {
        Ok(keys.places.clone())
    }
}

impl KeyPart for Option<FrameworkChoices> {
    fn take(keys: &mut Keys) -> Result<Self> {
        Ok(keys.framework.take())
    }
}

/// Refuses a value that needs another one than is there. A key whose group needs what is not there is passed over, and so is what
/// the framework decided.
///
/// # Errors
/// The first, at its place, with what it needs.
pub(super) fn check_conditions(
    part: &impl KeyPart,
    places: &Places,
    framework: Option<&FrameworkChoices>,
    has: impl Fn(Needs) -> bool,
) -> Result<()> {
    let mut values = Vec::new();
    part.add_values(&mut values);
    let is_default = |(row, value): &Value| match row.default {
        Default::Value(default) => default == *value,
        Default::Same(key) => values.iter().any(|(other, same)| other.name == key && same == value),
        Default::Absent(_) | Default::Required(_) => *value == NONE,
    };
    for written in values.iter().filter(|(row, _)| !row.only_with.is_empty() && has(row.group.needs)) {
        let (row, value) = written;
        if is_default(written) || framework.is_some_and(|framework| framework.decides(row.name)) {
            continue;
        }
        for with in row.only_with.iter().filter(|with| with.value.is_none_or(|of| of == value)) {
            let Some(other) = values.iter().find(|(other, _)| other.name == with.key) else { continue };
            let fits = if with.values.is_empty() { !is_default(other) } else { with.values.contains(&&*other.1) };
            if !fits {
                let problem =
                    format!("{} = {value} needs {}; found {} = {}", row.name, with.wanted(), with.key, other.1);
                return Err(places.at(row.name).wrong(problem));
            }
        }
    }
    Ok(())
}

// The types of keys.

/// How a value that is not there is shown.
const NONE: &str = "none";

/// The type of the activations, where a key takes another.
const ACTIVATIONS: &str = "activations";

/// Largest number that a key has by itself.
pub(super) const LARGEST: u64 = u32::MAX as u64;

/// Types that sums have.
const SUMMED: &[&str] = &["bfloat16", "float16", "float32", "float64"];
/// The same, or that of the activations.
pub(super) const SUMMED_OR_SAME: Accepted =
    Accepted::Names(&["bfloat16", "float16", "float32", "float64", ACTIVATIONS]);
/// Types that are only moved may be 8 bits wide.
pub(super) const MOVED: Accepted =
    Accepted::Names(&["bfloat16", "float16", "float32", "float64", "fp8_e4m3", "fp8_e5m2"]);

/// A type of a key.
pub(super) trait KeyValue: Sized {
    /// What it takes, where the row does not say it.
    const ACCEPTED: Accepted;

    fn read(item: Item, row: &StepKey) -> Result<Self>;

    /// The value of a key that is left out and has no default.
    fn absent() -> Option<Self> {
        None
    }

    /// The value as a file has it.
    fn text(&self) -> Cow<'static, str>;
}

/// Implements [`KeyValue`]: what a type takes, how it is read, and its text.
macro_rules! key_values {
    ($($type:ty, $accepted:expr, |$item:ident, $row:ident| $read:expr, |$value:ident| $text:expr;)+) => {$(
        impl KeyValue for $type {
            const ACCEPTED: Accepted = $accepted;

            fn read($item: Item, $row: &StepKey) -> Result<$type> {
                $read
            }

            fn text(&self) -> Cow<'static, str> {
                let $value = self;
                $text
            }
        }
    )+};
}

key_values! {
    bool, Accepted::Truth, |item, _row| item.truth(), |value| if *value { "true" } else { "false" }.into();
    u64, Accepted::Whole(1, LARGEST), |item, row| whole(&item, row), |value| value.to_string().into();
    u32, Accepted::Whole(1, LARGEST), |item, row| Ok(whole(&item, row)? as u32), |value| value.to_string().into();
    f64, Accepted::Text("a number"), |item, _row| item.fraction(0.0, 1e6), |value| value.to_string().into();
    ElementType, Accepted::Names(SUMMED), |item, row| element(&item, row), |value| value.name().into();
    Routing, Accepted::Text("uniform, random, zipf:EXPONENT, hot:SHARE"),
        |item, _row| item.parsed(str::parse), |value| value.to_string().into();
    Placement, Accepted::Names(&["in-place", "out-of-place"]),
        |item, _row| item.parsed(parse_placement), |value| value.name().into();
}

impl<T: Choice> KeyValue for T {
    const ACCEPTED: Accepted = Accepted::Names(T::NAMES);

    fn read(item: Item, _: &StepKey) -> Result<T> {
        item.parsed(str::parse)
    }

    fn text(&self) -> Cow<'static, str> {
        Choice::name(*self).into()
    }
}

impl<T: KeyValue> KeyValue for Option<T> {
    const ACCEPTED: Accepted = T::ACCEPTED;

    fn read(item: Item, row: &StepKey) -> Result<Option<T>> {
        T::read(item, row).map(Some)
    }

    fn absent() -> Option<Option<T>> {
        Some(None)
    }

    fn text(&self) -> Cow<'static, str> {
        self.as_ref().map_or(NONE.into(), T::text)
    }
}

impl<T: KeyValue> KeyValue for Vec<T> {
    const ACCEPTED: Accepted = T::ACCEPTED;

    fn read(item: Item, row: &StepKey) -> Result<Vec<T>> {
        if matches!(row.accepted, Accepted::ListOrNone(_)) && item.is_text(NONE) {
            return Ok(Vec::new());
        }
        item.items()?.into_iter().map(|item| T::read(item, row)).collect()
    }

    fn text(&self) -> Cow<'static, str> {
        let texts: Vec<_> = self.iter().map(T::text).collect();
        if texts.is_empty() { NONE.into() } else { texts.join(",").into() }
    }
}

fn whole(item: &Item, row: &StepKey) -> Result<u64> {
    match row.accepted {
        Accepted::Whole(from, to) => item.whole(from..=to),
        // Chunks may have no layer.
        Accepted::Text(_) => item.whole(0..=LARGEST),
        Accepted::Names(names) => match item.whole(1..=LARGEST)? {
            number if names.contains(&number.to_string().as_str()) => Ok(number),
            number => Err(item.wrong(format!("found {number}; accepted: {}", names.join(", ")))),
        },
        _ => item.whole(1..=LARGEST),
    }
}

fn element(item: &Item, row: &StepKey) -> Result<ElementType> {
    let element: ElementType = item.parsed(str::parse)?;
    match row.accepted {
        Accepted::Names(names) if !names.contains(&element.name()) => {
            Err(item.wrong(format!("found {element}; accepted: {}", names.join(", "))))
        }
        _ => Ok(element),
    }
}
