//! A table as data: what its columns mean, and rows of cells as text.

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    heading: &'static str,
    unit: &'static str,
    is_number: bool,
    is_status: bool,
    expendable: u8,
}

/// The role of a row or a result, which decides its colour. What it says is always written as text as well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing to be seen at once.
    #[default]
    Plain,
    /// As it should be.
    Good,
    /// Wrong, failed or slow.
    Bad,
    /// Missing or not decided.
    Unsure,
    /// Not measured at all.
    Synthetic,
}

/// A row of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Its role.
    pub tone: Tone,
    /// A text for each column; texts that are missing are empty.
    pub cells: Vec<String>,
}

/// A table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows; empty where the text before it says so.
    pub title: String,
    /// Level of the title as a heading.
    pub level: u8,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
    /// A sentence below it; empty for none.
    pub note: String,
    /// Where all rows are, if a page has no room for them.
    pub elsewhere: String,
    /// Whether a page collapses it.
    pub folded: bool,
}

impl Column {
    /// Priority of columns that only pages show, without a remark on a terminal.
    pub const PAGES_ONLY: u8 = u8::MAX;

    /// A column of words. `expendable` is its priority of being left out, the highest first; 0 is never left out.
    pub const fn left(heading: &'static str, expendable: u8) -> Column {
        Column { heading, unit: "", is_number: false, is_status: false, expendable }
    }

    /// A column of numbers.
    pub const fn right(heading: &'static str, expendable: u8) -> Column {
        Column { is_number: true, ..Column::left(heading, expendable) }
    }

    /// The same with a unit, which a terminal writes below the heading.
    pub const fn in_unit(self, unit: &'static str) -> Column {
        Column { unit, ..self }
    }

    /// The same as the column whose cells have the colour of their row's tone.
    pub const fn of_status(self) -> Column {
        Column { is_status: true, ..self }
    }

    /// The heading of the column.
    pub fn heading(&self) -> &'static str {
        self.heading
    }

    /// The unit of its numbers; empty where the cells have theirs.
    pub fn unit(&self) -> &'static str {
        self.unit
    }

    /// Whether the column is aligned to the right.
    pub fn is_number(&self) -> bool {
        self.is_number
    }

    /// Whether its cells have the colour of their row's tone.
    pub fn is_status(&self) -> bool {
        self.is_status
    }

    /// Priority of being left out, the highest first; 0 is never left out.
    pub fn expendable(&self) -> u8 {
        self.expendable
    }

    /// The heading with its unit, on one line.
    pub fn heading_on_page(&self) -> String {
        if self.unit.is_empty() { self.heading.to_owned() } else { format!("{}, {}", self.heading, self.unit) }
    }
}

impl From<Vec<String>> for Row {
    fn from(cells: Vec<String>) -> Row {
        Row { tone: Tone::Plain, cells }
    }
}

impl Row {
    /// A row with a role.
    pub fn toned(tone: Tone, cells: Vec<String>) -> Row {
        Row { tone, cells }
    }
}

impl Table {
    /// A table.
    pub fn new<R: Into<Row>>(title: impl Into<String>, columns: &[Column], rows: impl IntoIterator<Item = R>) -> Table {
        Table {
            title: title.into(),
            level: 2,
            columns: columns.to_vec(),
            rows: rows.into_iter().map(Into::into).collect(),
            note: String::new(),
            elsewhere: String::new(),
            folded: false,
        }
    }

    /// The same with another column, of a cell for each row.
    pub fn with_column(mut self, column: Column, cells: impl IntoIterator<Item = String>) -> Table {
        self.columns.push(column);
        for (row, cell) in self.rows.iter_mut().zip(cells) {
            row.cells.push(cell);
        }
        self
    }

    /// The same without the columns that say the same in every row; what they say goes into the note. Columns of a status stay,
    /// and so does a table of one row.
    pub fn without_columns_that_agree(mut self) -> Table {
        let Some((first, others)) = self.rows.split_first().filter(|(_, others)| !others.is_empty()) else {
            return self;
        };
        let cell = |row: &Row, at: usize| row.cells.get(at).cloned().unwrap_or_default();
        let differs = |at: usize| others.iter().any(|row| row.cells.get(at) != first.cells.get(at));
        let kept: Vec<bool> =
            self.columns.iter().enumerate().map(|(at, column)| column.is_status() || differs(at)).collect();
        let is_said = |at: &usize| !kept[*at] && !cell(first, *at).is_empty();
        let agreed = |at: usize| format!("{} {}", self.columns[at].heading_on_page(), cell(first, at));
        let agreed: Vec<String> = (0..self.columns.len()).filter(is_said).map(agreed).collect();
        if !agreed.is_empty() {
            let separator = if self.note.is_empty() { "" } else { " " };
            self.note += &format!("{separator}The same in all rows: {}.", agreed.join("; "));
        }
        let mut keep = kept.iter();
        self.columns.retain(|_| keep.next().is_none_or(|kept| *kept));
        for row in &mut self.rows {
            let mut keep = kept.iter();
            row.cells.retain(|_| keep.next().is_none_or(|kept| *kept));
        }
        self
    }

    /// The same, below the part before it.
    pub fn below(self) -> Table {
        Table { level: 3, ..self }
    }

    /// The same with a sentence below it.
    pub fn noted(self, note: impl Into<String>) -> Table {
        Table { note: note.into(), ..self }
    }

    /// The same, saying where all rows are.
    pub fn whole_in(self, elsewhere: impl Into<String>) -> Table {
        Table { elsewhere: elsewhere.into(), ..self }
    }

    /// The same, collapsed on a page.
    pub fn folded(self) -> Table {
        Table { folded: true, ..self }
    }
}
