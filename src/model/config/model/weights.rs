//! Parameters of layers that no key of a family describes, as formulas over the fields of config.json. What the tensors are and how
//! ranks divide them is not known of these, so that only totals are.
//!
//! A formula has `+ - * // % == < in or`, parentheses, texts in single quotes and names: fields (`a.b` for those of objects, an item of a
//! list being that of the layer), formulas of `named`, and `layer`, counted from 0. True is 1; false, null and a comparison that fails
//! are 0. Behind `or` is what is taken for a field that is missing or 0.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// No model may have more parameters than this: the bytes of a whole training state, 18 for each parameter, summed over
/// a hundred replicas then still fit 64 bits.
pub(super) const MOST_PARAMETERS: f64 = 1e15;

/// Formulas of a family.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Weights {
    /// Files that the formulas are for, if not all of the family: those where this is not 0.
    when: Option<String>,
    /// Why no step of the model has a list of calls.
    steps_refused: String,
    /// Formulas that others name.
    #[serde(default)]
    named: BTreeMap<String, String>,
    /// Of a layer: the sum of all.
    layer: BTreeMap<String, String>,
    /// Of those, how many a token does not use.
    idle: Option<String>,
    /// Before and after the layers, without embedding, last norm and output projection.
    outside: Option<String>,
}

/// Parameters of a model that are known by formulas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Of each layer: all, and those that a token uses.
    pub layers: Vec<[u64; 2]>,
    /// Outside of the layers, without embedding, last norm and output projection.
    pub outside: u64,
    /// Why no step of the model has a list of calls.
    pub steps_refused: String,
}

/// The value of a field.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<&'a Value>;

/// A formula that has no value.
pub(super) struct Wrong {
    pub formula: String,
    pub problem: String,
}

impl Weights {
    /// The parameters of a model of these fields.
    ///
    /// # Errors
    /// Names the formula: a field that is missing or no number, and counts that are negative or too large.
    pub fn count<'a>(&'a self, fields: Lookup<'a>, layers: u32) -> Result<Option<Counted>, Wrong> {
        let one = |text: &'a str, layer: u32| -> Result<u64, Wrong> {
            let scope = Scope { weights: self, fields, layer, depth: 0 };
            let wrong = |problem: String| Wrong { formula: text.to_owned(), problem };
            let count = scope.number(text).map_err(wrong)?;
            match (0.0..=MOST_PARAMETERS).contains(&count) {
                true => Ok(count as u64),
                false => Err(wrong(format!("gives {count}; accepted: 0 to {MOST_PARAMETERS:.0e}"))),
            }
        };
        if self.when.as_ref().map_or(Ok(1), |text| one(text, 0))? == 0 {
            return Ok(None);
        }
        let of_layer = |layer: u32| -> Result<[u64; 2], Wrong> {
            let parts = self.layer.values().map(|text| one(text, layer));
            let all = parts.sum::<Result<u64, Wrong>>()?;
            let idle = self.idle.as_ref().map_or(Ok(0), |text| one(text, layer))?;
            Ok([all, all.saturating_sub(idle)])
        };
        Ok(Some(Counted {
            layers: (0..layers).map(of_layer).collect::<Result<_, Wrong>>()?,
            outside: self.outside.as_ref().map_or(Ok(0), |text| one(text, 0))?,
            steps_refused: self.steps_refused.clone(),
        }))
    }
}

/// Longest formula, so that parentheses cannot nest too deeply.
const LONGEST: usize = 1000;

/// Formulas may name one another this deeply.
const MOST_DEPTH: u32 = 8;

#[derive(Clone, Copy)]
struct Scope<'a> {
    weights: &'a Weights,
    fields: Lookup<'a>,
    layer: u32,
    depth: u32,
}

#[derive(Clone, PartialEq)]
enum Held<'a> {
    Number(f64),
    Text(&'a str),
    List(&'a [Value]),
}

type Found<T> = std::result::Result<T, String>;

impl<'a> Scope<'a> {
    fn number(self, text: &'a str) -> Found<f64> {
        if text.len() > LONGEST {
            return Err(format!("is longer than {LONGEST} bytes"));
        }
        let mut reader = Reader { scope: self, rest: text.trim_start() };
        let number = number_of(reader.comparison()?)?;
        if reader.rest.is_empty() { Ok(number) } else { Err(format!("`{}` cannot be read here", reader.rest)) }
    }

    fn named(self, name: &'a str) -> Found<Held<'a>> {
        if name == "layer" {
            return Ok(Held::Number(f64::from(self.layer)));
        }
        if let Some(formula) = self.weights.named.get(name) {
            if self.depth == MOST_DEPTH {
                return Err(format!("{name} names itself, or names lead over more than {MOST_DEPTH} formulas"));
            }
            return Scope { depth: self.depth + 1, ..self }.number(formula).map(Held::Number);
        }
        let mut path = name.split('.');
        let mut value = path.next().and_then(|first| (self.fields)(first)).ok_or(format!("{name} is missing"))?;
        for key in path {
            value = match value {
                Value::Array(items) => items.get(self.layer as usize).unwrap_or(&Value::Null),
                other => other,
            };
            value = value.get(key).unwrap_or(&Value::Null);
        }
        Ok(match value {
            Value::Array(items) => Held::List(items),
            other => self.held(other),
        })
    }

    fn held(self, value: &'a Value) -> Held<'a> {
        match value {
            Value::String(text) => Held::Text(text),
            Value::Bool(truth) => Held::Number(f64::from(u8::from(*truth))),
            other => Held::Number(other.as_f64().unwrap_or(0.0)),
        }
    }

    /// The item of the layer, where a list is not searched.
    fn of_layer(self, held: Held<'a>) -> Found<Held<'a>> {
        let Held::List(items) = held else { return Ok(held) };
        let item =
            items.get(self.layer as usize).ok_or(format!("a list of {} has no layer {}", items.len(), self.layer));
        Ok(self.held(item?))
    }
}

fn number_of(held: Held) -> Found<f64> {
    match held {
        Held::Number(number) => Ok(number),
        Held::Text(text) => Err(format!("\"{text}\" is no number")),
        Held::List(_) => Err("a list is no number".to_owned()),
    }
}

struct Reader<'a> {
    scope: Scope<'a>,
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn takes(&mut self, mark: &str) -> bool {
        let rest = self.rest.strip_prefix(mark).map(str::trim_start);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn comparison(&mut self) -> Found<Held<'a>> {
        let left = self.sum()?;
        let truth = if self.takes("==") {
            left == self.sum()?
        } else if self.takes("<") {
            number_of(left)? < number_of(self.sum()?)?
        } else if self.takes("in ") {
            let Held::List(items) = self.atom(false)? else { return Err("in needs a list behind it".to_owned()) };
            items.iter().any(|item| self.scope.held(item) == left)
        } else {
            return Ok(left);
        };
        Ok(Held::Number(f64::from(u8::from(truth))))
    }

    fn sum(&mut self) -> Found<Held<'a>> {
        let mut left = self.product()?;
        loop {
            let sign = if self.takes("+") {
                1.0
            } else if self.takes("-") {
                -1.0
            } else {
                return Ok(left);
            };
            left = Held::Number(number_of(left)? + sign * number_of(self.product()?)?);
        }
    }

    fn product(&mut self) -> Found<Held<'a>> {
        let mut left = self.atom(true)?;
        loop {
            let operator = ["*", "//", "%"].into_iter().find(|operator| self.takes(operator));
            let Some(operator) = operator else { return Ok(left) };
            let (a, b) = (number_of(left)?, number_of(self.atom(true)?)?);
            left = Held::Number(match operator {
                "*" => a * b,
                _ if b == 0.0 => return Err("divides by 0".to_owned()),
                "//" => (a / b).floor(),
                _ => a - b * (a / b).floor(),
            });
        }
    }

    fn atom(&mut self, of_layer: bool) -> Found<Held<'a>> {
        if self.takes("(") {
            let inner = self.comparison()?;
            return if self.takes(")") {
                self.or_else(Ok(inner))
            } else {
                Err("a parenthesis is not closed".to_owned())
            };
        }
        if let Some((text, rest)) = self.rest.strip_prefix('\'').and_then(|rest| rest.split_once('\'')) {
            self.rest = rest.trim_start();
            return Ok(Held::Text(text));
        }
        let end = self.rest.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        match word.parse::<f64>() {
            Ok(number) => Ok(Held::Number(number)),
            Err(_) if word.is_empty() => Err(format!("found `{rest}` where a name or a number belongs")),
            Err(_) => {
                let found = self.scope.named(word);
                self.or_else(if of_layer { found.and_then(|held| self.scope.of_layer(held)) } else { found })
            }
        }
    }

    /// What was found, or what is behind `or` if that is nothing or 0.
    fn or_else(&mut self, found: Found<Held<'a>>) -> Found<Held<'a>> {
        if !self.takes("or ") {
            return found;
        }
        let instead = self.product()?;
        Ok(found.ok().filter(|held| *held != Held::Number(0.0)).unwrap_or(instead))
    }
}
