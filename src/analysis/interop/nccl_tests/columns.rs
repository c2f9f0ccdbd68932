//! The heading of a table of nccl-tests, which differs between versions and options, and the fields of a row under it.

use crate::interop::log_text::{microseconds, whole};
use commgauge_base::collective::Placement;
use commgauge_base::element::ElementType;
use commgauge_base::units::{Bytes, Seconds};

/// The names of the columns, in the order of the heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    shared: Vec<String>,
    /// The columns of one placement; those of the other are the same.
    half: Vec<String>,
    halves: usize,
    /// Whether the single placement is in place, according to the line above the names.
    pub(super) in_place_alone: bool,
    timestamp: bool,
}

/// A row, unconverted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fields {
    pub(super) bytes: Bytes,
    pub(super) count: u64,
    pub(super) element_type: ElementType,
    pub(super) reduce_op: Option<String>,
    pub(super) root: Option<u32>,
    pub(super) halves: Vec<Half>,
}

/// The measurement of one placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Half {
    pub(super) placement: Placement,
    pub(super) latency: Seconds,
    /// In microseconds.
    pub(super) time: Printed,
    /// In GB/s.
    pub(super) algbw: Option<Printed>,
    pub(super) busbw: Option<Printed>,
    pub(super) wrong_elements: Option<u64>,
}

/// A number as it was printed: rounded or cut off at its last digit, of which versions print more or fewer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Printed {
    pub(super) value: f64,
    /// One in the last digit.
    pub(super) step: f64,
}

impl Printed {
    /// A number from 0 on.
    pub(super) fn of(column: &str, text: &str) -> Result<Printed, String> {
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let value = text.parse::<f64>().ok().filter(|value| *value >= 0.0 && value.is_finite());
        let step = exponent.parse::<i32>().ok().map(|exponent| 10f64.powi(exponent.saturating_sub(decimals as i32)));
        let both = value.zip(step).map(|(value, step)| Printed { value, step });
        both.ok_or_else(|| format!("{column}: found `{text}`; accepted: a number from 0 on"))
    }
}

/// Blanks that a row has in place of the out-of-place columns when it measured in place only.
const EMPTY_HALF: &str = "                        ";

impl Columns {
    /// Of the line that names them: `# size count type redop root time algbw busbw #wrong time algbw busbw #wrong`.
    pub(super) fn of_heading(text: &str) -> Option<Columns> {
        let words: Vec<String> = text.trim_start_matches('#').split_whitespace().map(str::to_owned).collect();
        let is_time = |word: &String| word == "time" || word == "cputime";
        let first = words.iter().position(is_time)?;
        if words.first()? != "size" || !words.iter().any(|word| word == "busbw") {
            return None;
        }
        let timestamp = words.last().is_some_and(|word| word == "timestamp");
        let end = words.len() - usize::from(timestamp);
        let second = words[first + 1..end].iter().position(is_time).map_or(end, |at| first + 1 + at);
        let half = words[first..second].to_vec();
        let halves = if second < end { 2 } else { 1 };
        (first + half.len() * halves == end).then(|| Columns {
            shared: words[..first].to_vec(),
            half,
            halves,
            in_place_alone: false,
            timestamp,
        })
    }

    /// Whether the same run continues with rows of other placements, as in our own reports.
    pub(super) fn is_of_other_placements(&self, next: &Columns) -> bool {
        (self.halves, self.in_place_alone) != (next.halves, next.in_place_alone)
            && (&self.shared, &self.half) == (&next.shared, &next.half)
    }

    /// Why the times are not those of the call, if they are not.
    pub(super) fn objection(&self) -> Option<&'static str> {
        (self.half.first().is_some_and(|name| name == "cputime"))
            .then_some("the times are those of the processor (-C), not of the call")
    }

    /// The fields of a row.
    pub(super) fn row(&self, text: &str) -> Result<Fields, String> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if self.timestamp {
            words.truncate(words.len().saturating_sub(2));
        }
        let expected = self.shared.len() + self.half.len() * self.halves;
        let in_place_only = self.halves == 2
            && words.len() == self.shared.len() + self.half.len()
            && text.trim_end().contains(EMPTY_HALF);
        if words.len() != expected && !in_place_only {
            return Err(format!("has {} fields, the heading {expected}", words.len()));
        }
        let (shared, measured) = words.split_at(self.shared.len());
        let field = |name: &str| self.shared.iter().position(|column| column == name).map(|index| shared[index]);
        let needed = |name: &str| field(name).ok_or_else(|| format!("the heading has no column `{name}`"));
        let placements: &[Placement] = if in_place_only || self.in_place_alone {
            &[Placement::InPlace]
        } else {
            &[Placement::OutOfPlace, Placement::InPlace]
        };
        let mut halves = Vec::new();
        for (placement, fields) in placements.iter().zip(measured.chunks(self.half.len())) {
            halves.extend(self.half(*placement, fields)?);
        }
        if halves.is_empty() {
            return Err("holds no time: N/A in all placements".to_owned());
        }
        let root = field("root").and_then(|root| root.parse::<i64>().ok());
        Ok(Fields {
            bytes: Bytes(whole("size", needed("size")?)?),
            count: whole("count", needed("count")?)?,
            element_type: needed("type")?.parse().map_err(|problem| format!("type: {problem}"))?,
            reduce_op: field("redop").filter(|op| *op != "none").map(str::to_owned),
            root: root.and_then(|root| u32::try_from(root).ok()),
            halves,
        })
    }

    fn half(&self, placement: Placement, fields: &[&str]) -> Result<Option<Half>, String> {
        let field =
            |name: &str| self.half.iter().position(|column| column == name).and_then(|at| fields.get(at).copied());
        let time = fields.first().copied().unwrap_or_default();
        if time == "N/A" {
            return Ok(None);
        }
        // The old column `error` is a deviation, not a number of elements; what it means depends on the type.
        let wrong_elements = match field("#wrong") {
            None | Some("N/A") => None,
            Some(text) => Some(wrong_elements(text)?),
        };
        let rate =
            |name: &str| field(name).filter(|text| *text != "N/A").map(|text| Printed::of(name, text)).transpose();
        Ok(Some(Half {
            placement,
            latency: microseconds("time", time)?,
            time: Printed::of("time", time)?,
            algbw: rate("algbw")?,
            busbw: rate("busbw")?,
            wrong_elements,
        }))
    }
}

/// A count as C's `%g` prints it.
pub(super) fn wrong_elements(text: &str) -> Result<u64, String> {
    let count = text.parse::<f64>().ok().filter(|count| *count >= 0.0 && count.is_finite());
    count
        .map(|count| count.ceil() as u64)
        .ok_or_else(|| format!("#wrong: found `{text}`; accepted: a number of elements"))
}
