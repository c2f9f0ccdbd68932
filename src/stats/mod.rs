//! Pure numbers: order statistics, intervals, histograms. Too few samples give `None`.
