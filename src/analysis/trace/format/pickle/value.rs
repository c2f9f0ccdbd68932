//! The values of a pickle while it is read, and how they become those of a program. What is referred to more than once is there once.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Lists in lists; no dump of anything needs as many.
const MOST_LEVELS: u32 = 64;

/// A value.
#[derive(Clone)]
pub(super) enum Value {
    None,
    Truth(bool),
    Whole(i64),
    Fraction(f64),
    Text(Rc<str>),
    List(Rc<Items>),
    /// Keys and values by turns.
    Dictionary(Rc<Items>),
}

/// What is in a list or a dictionary, which grows until it lies in another.
#[derive(Default)]
pub(super) struct Items {
    values: RefCell<Vec<Value>>,
    levels: Cell<u32>,
    is_in_another: Cell<bool>,
}

impl Value {
    pub(super) fn as_list(&self) -> Option<&Rc<Items>> {
        if let Value::List(items) = self { Some(items) } else { None }
    }

    pub(super) fn as_dictionary(&self) -> Option<&Rc<Items>> {
        if let Value::Dictionary(items) = self { Some(items) } else { None }
    }

    fn items(&self) -> Option<&Rc<Items>> {
        self.as_list().or(self.as_dictionary())
    }
}

impl Items {
    /// Whether these may be added: nothing lies in itself then, and nothing too deep.
    pub(super) fn check_additions(&self, added: &[Value]) -> Result<(), String> {
        let of_added = added.iter().filter_map(Value::items);
        let is_added = |items: &&Rc<Items>| std::ptr::eq(Rc::as_ptr(items), self);
        if self.is_in_another.get() || of_added.clone().any(|items| is_added(&items)) {
            return Err("something is added to what it lies in".to_owned());
        }
        let levels = of_added.map(|items| items.levels.get() + 1).max().unwrap_or(0);
        if levels > MOST_LEVELS {
            return Err(format!("it has more than {MOST_LEVELS} levels"));
        }
        Ok(())
    }

    /// Adds values that were checked.
    pub(super) fn extend(&self, added: impl Iterator<Item = Value>) {
        let added = added.inspect(|value| {
            if let Some(items) = value.items() {
                items.is_in_another.set(true);
                self.levels.set(self.levels.get().max(items.levels.get() + 1));
            }
        });
        self.values.borrow_mut().extend(added);
    }

    pub(super) fn has_key(&self, key: &str) -> bool {
        let values = self.values.borrow();
        values.iter().step_by(2).any(|value| matches!(value, Value::Text(text) if **text == *key))
    }

    pub(super) fn clear(&self) {
        self.values.borrow_mut().clear();
    }
}

/// The value as one of the program; `left` is how many more values may be read of it.
pub(super) fn parsed<T: DeserializeOwned>(value: &Value, left: &Cell<usize>) -> Result<T, String> {
    T::deserialize(Read { value, left }).map_err(|problem| problem.to_string())
}

type Problem = serde::de::value::Error;

/// A value that is being read.
#[derive(Clone, Copy)]
struct Read<'a> {
    value: &'a Value,
    left: &'a Cell<usize>,
}

/// The same as the key of a dictionary.
struct Key<'a>(Read<'a>);

impl<'de> Deserializer<'de> for Read<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        let Read { value, left } = self;
        left.set(left.get().checked_sub(1).ok_or_else(|| Problem::custom("it refers to itself too often"))?);
        let read = |value| Read { value, left };
        match value {
            Value::None => visitor.visit_unit(),
            Value::Truth(truth) => visitor.visit_bool(*truth),
            Value::Whole(whole) => visitor.visit_i64(*whole),
            Value::Fraction(fraction) => visitor.visit_f64(*fraction),
            Value::Text(text) => visitor.visit_str(text),
            Value::List(items) => visitor.visit_seq(SeqDeserializer::new(items.values.borrow().iter().map(read))),
            Value::Dictionary(items) => {
                let values = items.values.borrow();
                let pairs = values.chunks_exact(2).map(|pair| (Key(read(&pair[0])), read(&pair[1])));
                visitor.visit_map(MapDeserializer::new(pairs))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.value {
            Value::None => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple tuple_struct map
        struct enum identifier
    }
}

impl<'de> Deserializer<'de> for Key<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.0.value {
            Value::Whole(number) => visitor.visit_string(number.to_string()),
            _ => self.0.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct seq tuple
        tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Problem> for Read<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> IntoDeserializer<'de, Problem> for Key<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
