//! Pickles of plain data: dictionaries, lists, tuples, texts, numbers. Opcodes that call something are refused.
//!
//! PyTorch's own pickler (torch/csrc/jit/serialization/pickler.cpp) refers repeatedly to dictionaries and lists that it has written once,
//! which serde-pickle mistakes for recursion; the opcodes are from CPython's Lib/pickletools.py.

use serde::de::DeserializeOwned;
use std::rc::Rc;

/// Maximum number of values read from a file, counting each reference, as a multiple of its bytes: otherwise a few bytes could refer to
/// each other until memory is full.
const MOST_VALUES_PER_BYTE: usize = 8;

/// The stack of a call in PyTorch's dumps, which is most of them and which nothing is read from.
const STACK: &str = "frames";

/// Dictionaries that are passed on as they end, so that not all of them are in memory.
pub(super) struct Each<'a, T> {
    /// The key that only these dictionaries have.
    pub key: &'static str,
    /// Receives each; an empty value remains in its place.
    pub take: &'a mut dyn FnMut(T),
}

#[derive(Debug, PartialEq)]
pub(super) struct Pickled<R> {
    /// Without the values passed on.
    pub value: R,
    /// Why reading ended early; the value is then the outermost dictionary with its complete values.
    pub problem: Option<String>,
}

/// Reads a pickle; keys that are not texts become texts.
///
/// # Errors
/// If a value has the wrong type, or nothing could be read.
pub(super) fn read<T: DeserializeOwned, R: DeserializeOwned>(
    bytes: &[u8],
    each: Each<T>,
) -> Result<Pickled<R>, String> {
    let mut values_left = bytes.len().saturating_mul(MOST_VALUES_PER_BYTE);
    let (stack, marks, memo, lists) = (Vec::new(), Vec::new(), Vec::new(), Lists::default());
    let mut machine = Machine { bytes, at: 0, stack, marks, memo, lists };
    let mut hand_over = |lists: &Lists, dictionary: usize| {
        let has_key = lists.keys(dictionary).any(|key| matches!(key, Value::Text(text) if **text == *each.key));
        if has_key {
            (each.take)(lists.parsed(&Value::Dictionary(dictionary), &mut values_left)?);
        }
        Ok(has_key)
    };
    let (value, problem) = match machine.run(&mut hand_over) {
        Ok(value) => (value, None),
        Err(problem) => (machine.outermost().ok_or(problem.clone())?, Some(problem)),
    };
    match machine.lists.parsed(&value, &mut values_left) {
        Ok(value) => Ok(Pickled { value, problem }),
        Err(cause) => Err(problem.unwrap_or(cause)),
    }
}

/// Takes a dictionary that has ended; whether it is one of those that are passed on.
type HandOver<'a> = &'a mut dyn FnMut(&Lists, usize) -> Result<bool, String>;

/// The state of reading: a stack of values, marks in it, and the memo.
struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: Vec<Value>,
    lists: Lists,
}

impl Machine<'_> {
    fn run(&mut self, hand_over: HandOver) -> Result<Value, String> {
        loop {
            let begun = self.at;
            let opcode = self.take(1)?[0];
            if opcode == b'.' {
                return self.stack.pop().ok_or_else(|| "a value is missing".to_owned());
            }
            self.step(opcode, hand_over).map_err(|problem| format!("{problem} (byte {begun})"))?;
        }
    }

    /// The outermost dictionary with the keys whose values are complete.
    fn outermost(&mut self) -> Option<Value> {
        let Value::Dictionary(outermost) = *self.stack.first()? else { return None };
        let [begin, end] = [0, 1].map(|mark| self.marks.get(mark).copied().unwrap_or(self.stack.len()));
        let complete = self.stack.get(begin..end)?;
        let pairs = &complete[..complete.len() / 2 * 2];
        self.lists.items[outermost].extend_from_slice(pairs);
        Some(Value::Dictionary(outermost))
    }

    fn step(&mut self, opcode: u8, hand_over: HandOver) -> Result<(), String> {
        match opcode {
            0x80 => drop(self.take(1)?),
            0x95 => drop(self.take(8)?),
            b'(' => self.marks.push(self.stack.len()),
            b'}' => self.stack.push(Value::Dictionary(self.lists.begin(Vec::new()))),
            b']' | b')' => self.stack.push(Value::List(self.lists.begin(Vec::new()))),
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Truth(true)),
            0x89 => self.stack.push(Value::Truth(false)),
            b'K' => self.number(1).map(|number| self.stack.push(Value::Whole(number as i64)))?,
            b'M' => self.number(2).map(|number| self.stack.push(Value::Whole(number as i64)))?,
            b'J' => {
                let bytes = self.take(4)?.try_into().expect("four");
                self.stack.push(Value::Whole(i32::from_le_bytes(bytes).into()));
            }
            0x8a => self.push_long()?,
            b'G' => {
                let float = f64::from_be_bytes(self.take(8)?.try_into().expect("eight"));
                self.stack.push(Value::Fraction(float));
            }
            b'X' => self.push_text(4)?,
            0x8c => self.push_text(1)?,
            0x8d => self.push_text(8)?,
            b's' => self.add_items(2, hand_over)?,
            b'u' => self.since_mark().and_then(|count| self.add_items(count, hand_over))?,
            b'a' => self.append(1)?,
            b'e' => self.since_mark().and_then(|count| self.append(count))?,
            0x85..=0x87 => self.tuple(usize::from(opcode - 0x84))?,
            b't' => self.since_mark().and_then(|count| self.tuple(count))?,
            b'q' => self.number(1).and_then(|at| self.remember(at))?,
            b'r' => self.number(4).and_then(|at| self.remember(at))?,
            0x94 => self.remember(self.memo.len() as u64)?,
            b'h' => self.number(1).and_then(|at| self.recall(at))?,
            b'j' => self.number(4).and_then(|at| self.recall(at))?,
            other => return Err(format!("not plain data: opcode {other:#04x}")),
        }
        Ok(())
    }

    fn take(&mut self, count: usize) -> Result<&[u8], String> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len()).ok_or("it is truncated")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// An integer of this many bytes, little-endian.
    fn number(&mut self, bytes: usize) -> Result<u64, String> {
        Ok(self.take(bytes)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// An integer of up to eight bytes in two's complement.
    fn push_long(&mut self) -> Result<(), String> {
        let length = self.number(1)? as usize;
        let bytes = self.take(length)?;
        if length > 8 {
            return Err("a number has more than 64 bits".to_owned());
        }
        let sign = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xff } else { 0 };
        let mut whole = [sign; 8];
        whole[..length].copy_from_slice(bytes);
        self.stack.push(Value::Whole(i64::from_le_bytes(whole)));
        Ok(())
    }

    fn push_text(&mut self, bytes_of_length: usize) -> Result<(), String> {
        let length = self.number(bytes_of_length)? as usize;
        let text = String::from_utf8_lossy(self.take(length)?).into();
        self.stack.push(Value::Text(text));
        Ok(())
    }

    fn since_mark(&mut self) -> Result<usize, String> {
        let mark = self.marks.pop().ok_or("a mark is missing")?;
        self.stack.len().checked_sub(mark).ok_or_else(|| "a mark follows its values".to_owned())
    }

    /// The last values, taken from the stack.
    fn last(&mut self, count: usize) -> Result<Vec<Value>, String> {
        let first = self.stack.len().checked_sub(count).ok_or("a value is missing")?;
        Ok(self.stack.split_off(first))
    }

    fn add_items(&mut self, count: usize, hand_over: HandOver) -> Result<(), String> {
        let added = self.last(count)?;
        let Some(Value::Dictionary(dictionary)) = self.stack.last() else {
            return Err("items are added to something that is not a dictionary".to_owned());
        };
        if !count.is_multiple_of(2) {
            return Err("a key has no value".to_owned());
        }
        self.lists.items[*dictionary].extend(added);
        if hand_over(&self.lists, *dictionary)? {
            self.lists.items[*dictionary].clear();
        }
        Ok(())
    }

    fn append(&mut self, count: usize) -> Result<(), String> {
        let added = self.last(count)?;
        let Some(Value::List(list)) = self.stack.last() else {
            return Err("values are added to something that is not a list".to_owned());
        };
        self.lists.items[*list].extend(added);
        Ok(())
    }

    fn tuple(&mut self, count: usize) -> Result<(), String> {
        let items = self.last(count)?;
        self.stack.push(Value::List(self.lists.begin(items)));
        Ok(())
    }

    /// Picklers number memoized values consecutively.
    fn remember(&mut self, at: u64) -> Result<(), String> {
        let value = self.stack.last().ok_or("a value is missing")?.clone();
        let next = self.memo.len();
        match self.memo.get_mut(at as usize) {
            Some(known) => *known = value,
            None if at == next as u64 => self.memo.push(value),
            None => return Err(format!("it memoizes a value as {at}, but the next number is {next}")),
        }
        Ok(())
    }

    fn recall(&mut self, at: u64) -> Result<(), String> {
        let value = self.memo.get(at as usize).ok_or("it refers to a missing value")?.clone();
        self.stack.push(value);
        Ok(())
    }
}

// The values of a pickle while it is read, and their conversion to the program's types.

/// Maximum nesting; no dump needs as much, and what contains itself has more.
const MOST_LEVELS: u32 = 64;

#[derive(Clone)]
enum Value {
    None,
    Truth(bool),
    Whole(i64),
    Fraction(f64),
    Text(Rc<str>),
    /// By its index among the lists.
    List(usize),
    Dictionary(usize),
}

/// The lists and dictionaries of a pickle, which may grow after they were referred to. Keys and values of a dictionary alternate.
#[derive(Default)]
struct Lists {
    items: Vec<Vec<Value>>,
}

impl Lists {
    fn begin(&mut self, items: Vec<Value>) -> usize {
        self.items.push(items);
        self.items.len() - 1
    }

    fn keys(&self, dictionary: usize) -> impl Iterator<Item = &Value> {
        self.items[dictionary].iter().step_by(2)
    }

    /// The value as the program's type; `left` is the number of further values that may be read.
    fn parsed<T: DeserializeOwned>(&self, value: &Value, left: &mut usize) -> Result<T, String> {
        serde_json::from_value(self.as_json(value, left, 0)?).map_err(|problem| problem.to_string())
    }

    /// A value within others, with the values that it shares once for each reference.
    fn as_json(&self, value: &Value, left: &mut usize, levels: u32) -> Result<serde_json::Value, String> {
        *left = left.checked_sub(1).ok_or("it refers to itself too often")?;
        if levels > MOST_LEVELS {
            return Err(format!("it has more than {MOST_LEVELS} levels"));
        }
        Ok(match value {
            Value::None => serde_json::Value::Null,
            Value::Truth(truth) => (*truth).into(),
            Value::Whole(whole) => (*whole).into(),
            Value::Fraction(fraction) => (*fraction).into(),
            Value::Text(text) => (**text).into(),
            Value::List(list) => {
                let items = self.items[*list].iter().map(|item| self.as_json(item, left, levels + 1));
                items.collect::<Result<Vec<_>, _>>()?.into()
            }
            Value::Dictionary(dictionary) => {
                let keys = self.keys(*dictionary).map(Value::as_key).collect::<Result<Vec<_>, _>>()?;
                let values = self.items[*dictionary].iter().skip(1).step_by(2);
                let pairs = keys.into_iter().zip(values).filter(|(key, _)| key != STACK);
                let pairs = pairs.map(|(key, value)| Ok((key, self.as_json(value, left, levels + 1)?)));
                serde_json::Value::Object(pairs.collect::<Result<_, String>>()?)
            }
        })
    }
}

impl Value {
    fn as_key(&self) -> Result<String, String> {
        match self {
            Value::Text(text) => Ok(text.as_ref().to_owned()),
            Value::Whole(number) => Ok(number.to_string()),
            _ => Err("a key is neither a text nor a number".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use serde_json::{Value as Json, json};

    /// The values of a pickle without dictionaries to pass on.
    fn read_all(bytes: &[u8]) -> Result<Json, String> {
        let read = read(bytes, Each::<Json> { key: "none has it", take: &mut |_| {} })?;
        read.problem.map_or(Ok(read.value), Err)
    }

    #[test]
    fn dictionaries_with_the_key_are_handed_over_as_they_end() {
        // pickle.dumps([{"a": 1}, {"b": 2}, {"a": 3}], protocol=2)
        let pickle =
            b"\x80\x02]q\x00(}q\x01X\x01\x00\x00\x00aq\x02K\x01s}q\x03X\x01\x00\x00\x00bq\x04K\x02s}q\x05h\x02K\x03se.";
        let mut taken: Vec<Json> = Vec::new();
        let mut take = |value| taken.push(value);
        let rest = read(pickle, Each { key: "a", take: &mut take }).map(|read| (read.value, read.problem));
        assert_eq!(rest, Ok((json!([{}, {"b": 2}, {}]), None)));
        assert_eq!(taken, [json!({"a": 1}), json!({"a": 3})]);
        let refused = read::<u64, Json>(pickle, Each { key: "b", take: &mut |_| {} });
        assert!(refused.unwrap_err().contains("invalid type: map, expected u64"));
    }

    #[test]
    fn plain_data_is_read_and_nothing_else() {
        // pickle.dumps({"a": [1, -2, 70000, 2**40, True, None, 0.5], 3: ("x", "x")}, protocol=4)
        let pickle = b"\x80\x04\x95\x3f\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffJp\x11\x01\x00\x8a\x06\
            \x00\x00\x00\x00\x00\x01\x88NG?\xe0\x00\x00\x00\x00\x00\x00eK\x03\x8c\x01x\x94h\x03\x86\x94u.";
        let expected = json!({"a": [1, -2, 70000, 1_u64 << 40, true, null, 0.5], "3": ["x", "x"]});
        assert_eq!(read_all(pickle), Ok(expected));
        // pickle.dumps(print, protocol=2)
        let calls = read_all(b"\x80\x02c__builtin__\nprint\nq\x00.").unwrap_err();
        assert!(calls.contains("not plain data: opcode 0x63 (byte 2)"), "{calls}");
        for end in 0..pickle.len() {
            assert!(read_all(&pickle[..end]).is_err(), "truncated after {end} bytes");
        }
    }

    #[test]
    fn of_what_is_cut_off_the_complete_values_of_the_outermost_dictionary_are_there() {
        // pickle.dumps({"a": [1], "b": [{"c": 2}, 3]}, protocol=2), before its last three opcodes
        let pickle = b"\x80\x02}(X\x01\x00\x00\x00a](K\x01eX\x01\x00\x00\x00b](}(X\x01\x00\x00\x00cK\x02uK\x03";
        let mut taken: Vec<Json> = Vec::new();
        let mut take = |value| taken.push(value);
        let read = read::<Json, Json>(pickle, Each { key: "c", take: &mut take }).unwrap();
        assert_eq!((read.value, read.problem.as_deref()), (json!({"a": [1], "b": []}), Some("it is truncated")));
        assert_eq!(taken, [json!({"c": 2})]);
    }

    #[test]
    fn what_is_referred_to_again_is_whole_though_it_was_remembered_empty() {
        // x = [1]; pickle.dumps([x, x], protocol=2)
        assert_eq!(read_all(b"\x80\x02]q\x00(]q\x01K\x01ah\x01e."), Ok(json!([[1], [1]])));
    }

    #[test]
    fn a_few_bytes_that_refer_to_each_other_do_not_fill_the_memory() {
        let mut laughs = b"\x80\x02]q\x00".to_vec();
        for _ in 0..40 {
            laughs.extend(b"h\x00h\x00\x86q\x00");
        }
        laughs.push(b'.');
        assert!(read_all(&laughs).unwrap_err().contains("too often"));
    }

    #[test]
    fn what_refers_to_itself_or_nests_too_deep_is_refused() {
        let deep = [&b"\x80\x02)"[..], &[0x85; 100_000], b"."].concat();
        let itself = b"\x80\x02]q\x00h\x00h\x00aa.";
        for (pickle, expected) in [(&deep[..], "more than 64 levels"), (itself, "more than 64 levels")] {
            let message = read_all(pickle).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }
}
