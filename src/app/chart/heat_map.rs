//! A matrix in per cent of a reference. The colours mean the same in every picture, so that runs can be compared side by side:
//! what is near the reference is grey, so that a healthy machine is calm. Cells that were not measured, failed or received wrong
//! data have shapes of their own. The value of each cell is shown on hover, and in the cell where there is room.

use super::write::{self, Anchor, Canvas, Path, Position, Svg, cut, text_width, xy};
use commgauge_base::stats::{self, sorted};

/// Lower bounds of the colour bands in per cent, with their legend texts. 100 is the reference, less is worse.
const BANDS: [(f64, &str); 9] = [
    (f64::NEG_INFINITY, "< 50"),
    (50.0, "50"),
    (60.0, "60"),
    (70.0, "70"),
    (80.0, "80"),
    (90.0, "90 to 110"),
    (111.0, "110"),
    (125.0, "125"),
    (150.0, "≥ 150 %"),
];
/// The band of cells that are as their reference.
const CALM: usize = 5;
/// Matrices up to this size have large numbers in their cells.
const MAX_SIZE_WITH_LARGE_NUMBERS: usize = 16;
/// Those up to this size small ones; larger matrices have numbers on hover alone.
const MAX_SIZE_WITH_NUMBERS: usize = 32;
const MAX_LABEL_CHARS: usize = 18;

/// A matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatMap {
    /// Title, also read by screen readers.
    pub title: String,
    /// Alternative text for screen readers.
    pub description: String,
    /// What 100 % is, for the legend.
    pub reference: String,
    /// Labels of the rows and of the columns, in the same order.
    pub labels: Vec<String>,
    /// Row by row.
    pub cells: Vec<Vec<Cell>>,
    /// What hovering over each cell shows before its per cent: between whom, and the value. Empty texts for cells without.
    pub hovers: Vec<Vec<String>>,
    /// Rows at which a new host, rack or the like begins: a line is drawn before them.
    pub begins: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell {
    /// In per cent of what is expected; less is worse.
    Percent(f64),
    /// Nothing to measure, as between a rank and itself.
    Nothing,
    NotMeasured,
    /// The measurement failed.
    Failed,
    /// Wrong data was received.
    Wrong,
}

impl Cell {
    /// Words for the cell.
    fn name(self) -> &'static str {
        match self {
            Cell::Percent(_) => "measured",
            Cell::Nothing => "nothing to measure",
            Cell::NotMeasured => "not measured",
            Cell::Failed => "failed",
            Cell::Wrong => "wrong data",
        }
    }

    /// The worse of two: wrong data, then failure, then the lower number, then not measured.
    pub fn worse(self, other: Cell) -> Cell {
        let rank = |cell: Cell| match cell {
            Cell::Wrong => (0, 0.0),
            Cell::Failed => (1, 0.0),
            Cell::Percent(percent) => (2, percent),
            Cell::NotMeasured => (3, 0.0),
            Cell::Nothing => (4, 0.0),
        };
        let (a, b) = (rank(self), rank(other));
        if a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).is_le() { self } else { other }
    }
}

impl HeatMap {
    /// The same with at most `most` rows: neighbours are merged, and a cell is the worst of those that it represents.
    /// Returns the number of rows per merged row.
    pub fn gathered(self, most: usize) -> (HeatMap, usize) {
        let rows = self.labels.len();
        let block = rows.div_ceil(most.max(1)).max(1);
        if block == 1 {
            return (self, 1);
        }
        let blocks = rows.div_ceil(block);
        let mut cells = vec![vec![Cell::Nothing; blocks]; blocks];
        let mut hovers = vec![vec![String::new(); blocks]; blocks];
        for (row, line) in self.cells.iter().enumerate() {
            for (column, cell) in line.iter().enumerate() {
                let old = &mut cells[row / block][column / block];
                if old.worse(*cell) != *old {
                    *old = *cell;
                    hovers[row / block][column / block].clone_from(&self.hovers[row][column]);
                }
            }
        }
        let label = |index: usize| {
            let (first, last) = (index * block, ((index + 1) * block).min(rows) - 1);
            format!("{} … {}", cut(&self.labels[first], 12), cut(&self.labels[last], 12))
        };
        let labels = (0..blocks).map(label).collect();
        (HeatMap { labels, cells, hovers, begins: Vec::new(), ..self }, block)
    }

    /// The picture.
    pub fn draw(&self) -> Svg {
        let rows = self.labels.len();
        let side = match rows {
            _ if rows <= MAX_SIZE_WITH_LARGE_NUMBERS => 32.0,
            _ if self.is_numbered() => 24.0,
            _ => 13.0,
        };
        let labels: Vec<String> = self.labels.iter().map(|label| cut(label, MAX_LABEL_CHARS)).collect();
        let margin = labels.iter().map(|label| text_width(label)).fold(44.0, f64::max) + 8.0;
        let extent = side * rows as f64;
        let width = (margin + extent + 6.0 + 44.0).max(400.0);
        let mut canvas = Canvas::new(&self.title, &self.summary());
        let mut top = super::title(&mut canvas, &self.title, width);
        top += legend(&mut canvas, top, width, &self.reference, self.has());
        let corner = xy(margin, top + margin + 2.0);
        self.draw_labels(&mut canvas, &labels, corner, side);
        self.draw_cells(&mut canvas, corner, side);
        self.draw_medians(&mut canvas, corner, side);
        canvas.finish(width, corner.y + extent + 6.0 + side.max(28.0) + 4.0)
    }

    /// How many cells have a value, the median, the extremes, and how many are calm. A matrix of pairs has each of them twice;
    /// the one below the diagonal is not counted.
    fn summary(&self) -> String {
        let above =
            self.cells.iter().enumerate().flat_map(|(row, line)| {
                line.iter().enumerate().skip(row).map(move |(column, cell)| (row, column, *cell))
            });
        let mut values = Vec::new();
        let (mut failed, mut wrong, mut missing) = (0, 0, 0);
        for (row, column, cell) in above {
            match cell {
                Cell::Percent(percent) => values.push((percent, &self.hovers[row][column])),
                Cell::Failed => failed += 1,
                Cell::Wrong => wrong += 1,
                Cell::NotMeasured => missing += 1,
                Cell::Nothing => {}
            }
        }
        values.sort_by(|a, b| a.0.total_cmp(&b.0));
        let calm = values.iter().filter(|(percent, _)| band(*percent) == CALM).count();
        let mut sentences = Vec::new();
        if let (Some(least), Some(most)) = (values.first(), values.last()) {
            let middle = values[values.len() / 2].0;
            sentences.push(format!(
                "{calm} of {} cells are within 90 to 110 % of {}; the median is {} %, the least {} % ({}), the most {} % ({})",
                values.len(),
                self.reference,
                shown(middle),
                shown(least.0),
                least.1,
                shown(most.0),
                most.1
            ));
        }
        let others = [(missing, "not measured"), (failed, "failed"), (wrong, "with wrong data")];
        let others = others.into_iter().filter(|(count, _)| *count > 0);
        sentences.extend(others.map(|(count, what)| format!("{count} cells {what}")));
        write::joined(&self.description, sentences)
    }

    /// Whether there is room for a number in each cell.
    fn is_numbered(&self) -> bool {
        self.labels.len() <= MAX_SIZE_WITH_NUMBERS
    }

    /// Which of these occur: not measured, failed, wrong.
    fn has(&self) -> [bool; 3] {
        let any = |wanted: Cell| self.cells.iter().flatten().any(|cell| *cell == wanted);
        [any(Cell::NotMeasured), any(Cell::Failed), any(Cell::Wrong)]
    }

    fn draw_labels(&self, canvas: &mut Canvas, labels: &[String], corner: Position, side: f64) {
        let Position { x: left, y: top } = corner;
        for (index, label) in labels.iter().enumerate() {
            let middle = side * (index as f64 + 0.5) + 3.6;
            canvas.text(left - 6.0, top + middle, "", Anchor::End, label);
            canvas.text_upwards(left + middle, top - 6.0, label);
        }
    }

    fn draw_cells(&self, canvas: &mut Canvas, corner: Position, side: f64) {
        let Position { x: left, y: top } = corner;
        let mut colored: Vec<Vec<(Path, String)>> = vec![Vec::new(); BANDS.len()];
        let mut absent: Vec<(Path, String)> = Vec::new();
        let (mut faint, mut glyphs) = (Path::default(), Path::default());
        let mut numbers: Vec<(f64, f64, f64)> = Vec::new();
        let inner = side - 1.0;
        for (row, line) in self.cells.iter().enumerate() {
            for (column, cell) in line.iter().enumerate() {
                let (x, y) = (left + side * column as f64, top + side * row as f64);
                let hover = |what: &str| match self.hovers[row][column].as_str() {
                    "" => format!("{}, {}: {what}", self.labels[row], self.labels[column]),
                    value => format!("{value}, {what}"),
                };
                match cell {
                    Cell::Percent(percent) => {
                        let mut square = Path::default();
                        square.rectangle(x, y, inner, inner);
                        let text = hover(&format!("{} % of {}", shown(*percent), self.reference));
                        colored[band(*percent)].push((square, text));
                        numbers.push((x + inner / 2.0, y + inner / 2.0 + 3.8, *percent));
                    }
                    Cell::Nothing if row == column => faint.line(xy(x, y), xy(x + inner, y + inner)),
                    Cell::Nothing => {}
                    Cell::NotMeasured | Cell::Failed | Cell::Wrong => {
                        let mut square = Path::default();
                        square.rectangle(x + 0.5, y + 0.5, inner - 1.0, inner - 1.0);
                        absent.push((square, hover(cell.name())));
                        shape(&mut glyphs, *cell, x + inner / 2.0, y + inner / 2.0);
                    }
                }
            }
        }
        let names = (0..BANDS.len()).map(|index| format!("cg-h{index}")).chain(["cg-absent".to_owned()]);
        for (class, squares) in names.zip(colored.iter().chain([&absent])).filter(|(_, squares)| !squares.is_empty()) {
            canvas.begin_group(&class);
            squares.iter().for_each(|(square, hover)| canvas.path_with_hover(square, hover));
            canvas.end_group();
        }
        canvas.path("cg-glyph-faint", &faint);
        canvas.path("cg-glyph", &glyphs);
        for (x, y, percent) in numbers.into_iter().filter(|_| self.is_numbered()) {
            canvas.text(x, y, &class_of_number(percent, side), Anchor::Middle, &shown(percent));
        }
        let extent = side * self.labels.len() as f64;
        let mut lines = Path::default();
        for begin in self.begins.iter().filter(|begin| **begin > 0) {
            let at = side * *begin as f64 - 0.5;
            lines.line(xy(left, top + at), xy(left + extent, top + at));
            lines.line(xy(left + at, top), xy(left + at, top + extent));
        }
        canvas.path("cg-axis", &lines);
    }

    /// The median of each row and column, apart from the cells: a slow row or column is a host, a single cell is a path.
    fn draw_medians(&self, canvas: &mut Canvas, corner: Position, side: f64) {
        let Position { x: left, y: top } = corner;
        let extent = side * self.labels.len() as f64;
        let (right, below) = (left + extent + 6.0, top + extent + 6.0);
        let length = if self.is_numbered() { side } else { 26.0 };
        canvas.text(right, top - 6.0, "", Anchor::Start, "median");
        canvas.text(left - 6.0, below + length.min(side.max(14.0)) / 2.0 + 4.0, "", Anchor::End, "median");
        for index in 0..self.labels.len() {
            let at = side * index as f64;
            let row = median(self.cells[index].iter());
            let column = median(self.cells.iter().map(|line| &line[index]));
            if let Some(percent) = row {
                canvas.rectangle(&format!("cg-h{}", band(percent)), right, top + at, length, side - 1.0);
                let middle = top + at + (side - 1.0) / 2.0 + 3.5;
                let class = class_of_number(percent, side);
                canvas.text(right + length / 2.0, middle, &class, Anchor::Middle, &shown(percent));
            }
            if let Some(percent) = column {
                let high = if self.is_numbered() { side - 1.0 } else { 20.0 };
                canvas.rectangle(&format!("cg-h{}", band(percent)), left + at, below, side - 1.0, high);
                if self.is_numbered() {
                    let middle = left + at + (side - 1.0) / 2.0;
                    let class = class_of_number(percent, side);
                    canvas.text(middle, below + side / 2.0 + 3.5, &class, Anchor::Middle, &shown(percent));
                }
            }
        }
    }
}

fn legend(canvas: &mut Canvas, top: f64, width: f64, reference: &str, [not_measured, failed, wrong]: [bool; 3]) -> f64 {
    let mut x = 0.0;
    let note = format!("% of {}; less is worse", cut(reference, 24));
    canvas.text(x, top + 10.0, "", Anchor::Start, &note);
    let top = top + 18.0;
    for (index, (_, label)) in BANDS.iter().enumerate() {
        let wide = (text_width(label) + 8.0).max(26.0);
        canvas.rectangle(&format!("cg-h{index}"), x, top, wide, 14.0);
        let class = ink_on(index);
        canvas.text(x + wide / 2.0, top + 11.0, class, Anchor::Middle, label);
        x += wide;
    }
    let mut y = top;
    let shapes = [(not_measured, Cell::NotMeasured), (failed, Cell::Failed), (wrong, Cell::Wrong)];
    x += 14.0;
    for (name, cell) in shapes.into_iter().filter(|(there, _)| *there).map(|(_, cell)| (cell.name(), cell)) {
        if x + 18.0 + text_width(name) > width {
            (x, y) = (0.0, y + 20.0);
        }
        let mut glyph = Path::default();
        shape(&mut glyph, cell, x + 6.0, y + 7.0);
        canvas.rectangle("cg-absent", x, y + 1.0, 12.0, 12.0);
        canvas.path("cg-glyph", &glyph);
        canvas.text(x + 17.0, y + 11.0, "", Anchor::Start, name);
        x += 17.0 + text_width(name) + 10.0;
    }
    y + 24.0 - top + 18.0
}

fn shape(path: &mut Path, cell: Cell, x: f64, y: f64) {
    match cell {
        Cell::Failed => {
            path.line(xy(x - 3.0, y - 3.0), xy(x + 3.0, y + 3.0));
            path.line(xy(x - 3.0, y + 3.0), xy(x + 3.0, y - 3.0));
        }
        Cell::Wrong => {
            path.line(xy(x, y - 4.0), xy(x, y + 1.0));
            path.line(xy(x, y + 2.5), xy(x, y + 4.0));
        }
        _ => path.line(xy(x - 2.0, y), xy(x + 2.0, y)),
    }
}

fn band(percent: f64) -> usize {
    // A value that rounds to 90 has the colour of 90.
    BANDS.iter().rposition(|(from, _)| percent.round() >= *from).unwrap_or(0)
}

/// The text colour that is readable on the colour of a value.
fn ink(percent: f64) -> &'static str {
    ink_on(band(percent))
}

fn ink_on(band: usize) -> &'static str {
    match band {
        0..=2 | 8 => "cg-on-dark",
        _ => "cg-on",
    }
}

/// A number in a cell: small where the cell is.
fn class_of_number(percent: f64, side: f64) -> String {
    if side < 32.0 { format!("{} cg-small", ink(percent)) } else { ink(percent).to_owned() }
}

fn shown(percent: f64) -> String {
    if percent < 999.5 { format!("{percent:.0}") } else { ">999".to_owned() }
}

fn median<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<f64> {
    let percents = cells.filter_map(|cell| if let Cell::Percent(percent) = cell { Some(*percent) } else { None });
    stats::median(&sorted(percents))
}
