//! What a page is made of: records with their views, and what follows from them.

use crate::report::view::View;
use commgauge_analysis::cost::Fit;
use commgauge_analysis::verdict::locate::Suspects;
use commgauge_analysis::verdict::{Difference, SelfTest, Verdict};
use commgauge_model::record::Record;

/// A record and its view.
#[derive(Debug)]
pub struct HtmlRun<'a> {
    /// Its file, as it was named.
    pub name: String,
    /// The record.
    pub record: &'a Record,
    /// The view of the record.
    pub view: View,
    /// Accepted differences from the first record.
    pub differences: Vec<Difference>,
}

/// Everything that goes into a report.
#[derive(Debug)]
pub struct HtmlInput<'a> {
    /// The records, the first in order first; at least one.
    pub runs: &'a [HtmlRun<'a>],
    /// The base of a comparison; empty without one.
    pub base: &'a [HtmlRun<'a>],
    /// The machine file or its name, as it was given.
    pub machine: Option<String>,
    /// The verdict against the expectations of a machine file, if there is one.
    pub verdict: Option<&'a Verdict>,
    /// The verdict against the base.
    pub comparison: Option<&'a Verdict>,
    /// The self-consistency verdict, or why it was not computed.
    pub consistency: std::result::Result<&'a Verdict, String>,
    /// Measured error rates of the rules, if given.
    pub selftest: Option<&'a SelfTest>,
    /// The cost model, or why there is none.
    pub fit: std::result::Result<&'a Fit, String>,
    /// Whether the fit was made from these records.
    pub fit_is_own: bool,
    /// The suspects, or why they could not be searched for.
    pub suspects: std::result::Result<&'a Suspects, String>,
}
