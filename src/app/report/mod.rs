//! What to show, then how: a record becomes a [`View`], a view becomes text in one of the formats.

mod calibration;
mod color;
mod columns;
mod combinations;
mod contention;
mod copies;
mod csv;
mod devices;
pub mod document;
mod entry;
mod findings;
mod fit;
mod flops_unit;
mod framework;
mod github;
mod history;
mod html;
mod interference;
mod json;
mod json_whole;
mod junit;
mod late;
mod live;
mod locate;
mod pairs;
mod peer_table;
pub mod plan;
mod products;
mod prometheus;
mod provenance;
pub mod rank;
mod rank_means;
mod replay;
mod row;
pub mod screen;
mod section;
mod shared_labels;
mod soak;
mod status;
mod step;
mod superbench;
mod table;
mod test_report;
mod text;
pub(crate) use text::{visible, wrap};
mod verdict;
mod view;
mod warnings;
mod work_outcome;

pub use color::{ColorChoice, Paint};
pub use combinations::{Combination, combinations_text};
pub use contention::Contention;
pub(crate) use entry::Entry;
pub use findings::Findings;
pub use fit::fit_text;
pub use framework::framework_defaults;
pub use history::{HistoryFormat, ShownRows, history_text, plots};
pub use html::{HtmlInput, HtmlRun, html, plan_page};
pub use interference::CallInterference;
pub use late::Late;
pub(crate) use late::host_of;
pub use live::LiveRows;
pub use locate::{SuspectsFormat, suspects_text};
pub use pairs::{Measure as PairMeasure, Pair, PairsView};
pub use replay::{ReplayTime, replay_time};
pub use row::{Counts, Latency, Row};
pub use status::Status;
pub use step::{Crossing, Crossover, Family, Measure, Place, Ranking, Rule, Span, StepOp, StepView, Sum, Totals};
pub use verdict::{VerdictFormat, verdict_text};
pub use view::{Completion, View};

use commgauge_base::error::{Error, Result};
use peer_table::Peer;
use std::io::{ErrorKind, Write};

/// Name and version of the JSON document, and its schema.
pub mod json_document {
    pub use super::json::{FORMAT, SCHEMA_VERSION};

    /// The JSON Schema of the document, without its name.
    pub fn schema() -> serde_json::Value {
        super::json::schema()
    }
}

/// How a report is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people, fitted to the width of the terminal.
    #[default]
    Table,
    /// One JSON document with everything in base units.
    Json,
    /// One row for each call, copy and matrix product, and for each pair of ranks where pairs were measured, with units in the column
    /// names.
    Csv,
    /// Tables for a page or an issue.
    Markdown,
    /// A test report in JUnit's XML: one test case for each call, copy and matrix product.
    Junit,
    /// A text file for the collector of Prometheus' node exporter.
    Prometheus,
    /// A line of SuperBench's results-summary.jsonl: one flat JSON object, times in microseconds and rates in GB/s.
    Superbench,
    /// The columns of nccl-tests, for programs that read those; holds the streaming cases only, because nccl-tests
    /// measures no others.
    NcclTests,
    /// The columns of the OSU micro-benchmarks, of mean times on the ranks.
    Osu,
    /// The columns of the Intel MPI benchmarks, of mean times on the ranks.
    Imb,
}

impl Format {
    /// What a line begins with that says more than the results; none where programs read the whole.
    pub fn comment_mark(self) -> Option<&'static str> {
        match self {
            Format::Table => Some(""),
            Format::NcclTests | Format::Osu | Format::Imb => Some("# "),
            _ => None,
        }
    }
}

/// Writes a view. `width` and `paint` are used by the table only.
///
/// A reader that closes the pipe early (`| head`) ends the writing quietly.
///
/// # Errors
/// An environment error where the text cannot be written.
pub fn render(view: &View, format: Format, width: u16, paint: Paint, out: &mut dyn Write) -> Result<()> {
    let text = match format {
        Format::Table => table::text(view, usize::from(width), paint),
        Format::Json => json::text(view)?,
        Format::Csv => csv::text(view)?,
        Format::Markdown => table::page(view),
        Format::Junit => junit::text(view)?,
        Format::Prometheus => prometheus::text(view),
        Format::Superbench => superbench::text(view)?,
        Format::NcclTests => Peer::NcclTests.text(view),
        Format::Osu => Peer::Osu.text(view),
        Format::Imb => Peer::Imb.text(view),
    };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(cause) if cause.kind() != ErrorKind::BrokenPipe => {
            Err(Error::environment(format!("cannot write the report: {cause}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod entry_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole_tests;
