//! All data and intermediate results of a search for suspects.

use super::document::Unconfirmed;
use super::expected_pairs::ExpectedPairs;
use super::groups::Growth;
use super::inside_pairs::InsidePairs;
use super::late::Arrivals;
use super::pair_matrix::PairMatrices;
use super::places::Places;

/// All data and intermediate results of a search.
pub(super) struct Analysis {
    pub(super) places: Places,
    pub(super) pair_matrices: PairMatrices,
    pub(super) inside_pairs: InsidePairs,
    pub(super) growths: Vec<Growth>,
    /// Histograms covered ranks of several nodes.
    pub(super) coarse: bool,
    pub(super) arrivals: Arrivals,
    pub(super) nodes_inside: u32,
    /// True where groups of every size could be checked.
    pub(super) all_sizes: bool,
    /// Pairs that were slow in a single replicate and are no suspects.
    pub(super) slow_once: usize,
    /// How much longer a path must take to be seen in the measure of bandwidth that scatters least, as a logarithm.
    pub(super) allowed_of_path: Option<f64>,
    /// Findings of a single measure on few nodes. They make no suspect, but the machine is not called good either.
    pub(super) unconfirmed: Vec<Unconfirmed>,
    /// What the machine file says that pairs reach; empty without one.
    pub(super) expected_pairs: Vec<ExpectedPairs>,
}
