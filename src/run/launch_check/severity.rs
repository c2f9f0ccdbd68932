//! How severe it is that ranks differ in something.

/// Severity of a difference between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// The difference is only displayed.
    Info,
    /// The run continues with a note in its record; no measurement is affected.
    Note,
    /// The run continues, and its record is marked as unreliable.
    Warning,
    /// The run is refused, unless mixed ranks are allowed; then a warning.
    Mixed,
    /// The run is refused in any case.
    Refusal,
}
