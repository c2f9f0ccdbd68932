//! Horizontal bars, alone or stacked, each with its value next to it.

use super::axis::Axis;
use super::frame::{self, Entry, Key, LINE};
use super::position::xy;
use super::summary;
use super::write::{Anchor, Canvas, Path, Svg, cut, text_width};
use commgauge_base::stats::Interval;

/// Maximum length of a label.
const MAX_LABEL_CHARS: usize = 24;
const BAR_HEIGHT: f64 = 16.0;
const PITCH: f64 = 24.0;

/// A chart of bars.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    /// Title, also read by screen readers.
    pub title: String,
    /// Alternative text for screen readers.
    pub description: String,
    /// Axis of the bar lengths; always linear, from zero.
    pub axis: Axis,
    /// Names of the parts of a stacked bar, in the order of [`Bar::parts`]; one or none where bars are not stacked.
    pub parts: Vec<String>,
    /// The bars, top to bottom.
    pub bars: Vec<Bar>,
    /// Width in units of the picture.
    pub width: f64,
}

/// A bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Label to the left of the bar.
    pub label: String,
    /// Lengths of its parts, left to right.
    pub parts: Vec<f64>,
    /// The interval of the total.
    pub interval: Option<Interval>,
    /// Text to the right of the bar; its value with the unit where this is empty.
    pub note: String,
}

impl Bars {
    /// A chart without bars.
    pub fn new(title: impl Into<String>, axis: Axis) -> Bars {
        let (title, description) = (title.into(), String::new());
        Bars { title, description, axis, parts: Vec::new(), bars: Vec::new(), width: 400.0 }
    }

    /// The picture.
    pub fn draw(&self) -> Svg {
        let mut canvas = Canvas::new(&self.title, &self.summary());
        let mut top = frame::title(&mut canvas, &self.title, self.width);
        let entries: Vec<Entry> = match self.parts.len() {
            0 | 1 => Vec::new(),
            _ => {
                let area = |index: usize| Key::Area(format!("cg-f{}", index % 6));
                let parts = self.parts.iter().enumerate();
                parts.map(|(index, name)| Entry { key: area(index), name: name.clone() }).collect()
            }
        };
        top += frame::legend(&mut canvas, &entries, top, self.width);
        let labels: Vec<String> = self.bars.iter().map(|bar| cut(&bar.label, MAX_LABEL_CHARS)).collect();
        let notes: Vec<String> = self.bars.iter().map(|bar| self.note(bar)).collect();
        let widest = |texts: &[String]| texts.iter().map(|text| text_width(text)).fold(0.0, f64::max);
        let left = widest(&labels) + 8.0;
        let right = (self.width - widest(&notes) - 8.0).max(left + 40.0);
        let whole = |bar: &Bar| bar.parts.iter().copied().filter(|part| part.is_finite()).sum::<f64>();
        let longest =
            self.bars.iter().map(|bar| bar.interval.map_or(whole(bar), |interval| interval.high.max(whole(bar))));
        let longest = longest.fold(0.0, f64::max);
        let place = |value: f64| left + if longest > 0.0 { value / longest * (right - left) } else { 0.0 };
        for (index, bar) in self.bars.iter().enumerate() {
            let y = top + PITCH * index as f64;
            canvas.text(left - 8.0, y + 12.0, "cg-ink", Anchor::End, &labels[index]);
            let mut so_far = 0.0;
            for (part, value) in bar.parts.iter().enumerate().filter(|(_, value)| value.is_finite() && **value > 0.0) {
                let class = format!("cg-f{}", part % 6);
                let (from, to) = (place(so_far), place(so_far + value));
                canvas.rectangle(&class, from, y, (to - from).max(0.8), BAR_HEIGHT);
                so_far += value;
            }
            let mut end = place(so_far);
            let is_drawn = |of: &Interval| of.low.is_finite() && of.high.is_finite() && of.high > of.low;
            if let Some(Interval { low, high }) = bar.interval.filter(is_drawn) {
                let (low, high, middle) = (place(low.max(0.0)), place(high), y + BAR_HEIGHT / 2.0);
                let mut whisker = Path::default();
                whisker.line(xy(low, middle), xy(high, middle));
                whisker.line(xy(low, middle - 4.0), xy(low, middle + 4.0));
                whisker.line(xy(high, middle - 4.0), xy(high, middle + 4.0));
                canvas.path("cg-glyph", &whisker);
                end = end.max(high);
            }
            canvas.text(end + 6.0, y + 12.0, "", Anchor::Start, &notes[index]);
        }
        canvas.path("cg-axis", &Path::polyline([xy(left, top - 3.0), xy(left, self.bottom(top))]));
        canvas.finish(self.width, self.bottom(top) + 2.0)
    }

    fn summary(&self) -> String {
        let bars: Vec<String> = self.bars.iter().map(|bar| format!("{} {}", bar.label, self.note(bar))).collect();
        summary::joined(&self.description, (!bars.is_empty()).then(|| bars.join("; ")))
    }

    fn bottom(&self, top: f64) -> f64 {
        top + (PITCH * self.bars.len() as f64).max(LINE) - 4.0
    }

    fn note(&self, bar: &Bar) -> String {
        match bar.note.is_empty() {
            true => self.axis.shown(bar.parts.iter().sum()),
            false => bar.note.clone(),
        }
    }
}
