//! The kinds of things that have names.

/// A kind of things that have names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Communication calls, as in `collectives` of a [[sweep]]
    Collectives,
    /// Dimensions of a layout, whose groups communicate
    Axes,
    /// Parallel styles, as in `styles` of a [[layout]]
    Styles,
    /// Pipeline schedules, as in `schedule` of [training]
    Schedules,
    /// Keys of [training] and [serving], each with its flag
    Keys,
    /// Shipped suites, for `commgauge run`
    Suites,
    /// Shipped models, for --model and `preset`
    Models,
    /// Shipped machine files, for --machine
    Machines,
    /// Formats that are written and read, and by which commands
    Formats,
    /// Who can carry calls out, for --backend
    Backends,
}
