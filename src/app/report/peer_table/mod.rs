//! The report in the columns of other tools, so that programs which parse those keep working: of nccl-tests, of the OSU
//! micro-benchmarks and of the Intel MPI benchmarks.
//!
//! All have one table for each test. So rows are divided into blocks, each with a table that is written from top to bottom,
//! at once or while a run goes on. Comments begin with `#` as those tools' own do.

mod block;
mod imb;
mod mean_columns;
mod mean_times;
mod nccl_tests;
mod osu;

use super::row::Row;
use super::view::View;
pub(super) use block::Divided;
use commgauge_model::record::line::Header;
use mean_times::Tool;

/// A tool whose columns are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    NcclTests,
    Osu,
    Imb,
}

impl Peer {
    /// The text before the first table.
    pub(super) fn begin(self, header: &Header) -> String {
        match self {
            Peer::NcclTests => String::new(),
            Peer::Osu => mean_times::begin(Tool::Osu, header),
            Peer::Imb => mean_times::begin(Tool::Imb, header),
        }
    }

    /// The tables of the rows.
    pub(super) fn divide(self, rows: &[Row]) -> Divided {
        match self {
            Peer::NcclTests => nccl_tests::divide(rows),
            Peer::Osu => mean_times::divide(Tool::Osu, rows),
            Peer::Imb => mean_times::divide(Tool::Imb, rows),
        }
    }

    /// The text after the last table, which says what has none.
    pub(super) fn closing(self, left_out: &[usize], rows: &[Row]) -> String {
        match self {
            Peer::NcclTests => nccl_tests::closing(left_out),
            Peer::Osu => mean_times::closing(Tool::Osu, left_out, rows),
            Peer::Imb => mean_times::closing(Tool::Imb, left_out, rows),
        }
    }

    /// The whole report.
    pub(super) fn text(self, view: &View) -> String {
        let Divided { mut blocks, left_out } = self.divide(&view.rows);
        let mut out = self.begin(&view.header);
        for block in &mut blocks {
            block.settle(&view.rows, &|_| true);
            out += &block.begin(&view.header, &view.rows);
            out.extend((0..block.line_count()).map(|line| block.line(line, &view.header, &view.rows)));
            out += &block.end(&view.rows);
        }
        out + &self.closing(&left_out, &view.rows) + &without_columns(view)
    }
}

/// That copies and matrix products have no columns in those tools.
fn without_columns(view: &View) -> String {
    match (view.copies.len(), view.products.len()) {
        (0, 0) => String::new(),
        (copies, products) => format!(
            "# commgauge: copies ({copies}) and matrix products ({products}) have no columns here; see --format table\n"
        ),
    }
}
