//! Variables by which processes of a launch are told from others.

/// Set in the environment of a collector process, to the marker of the launch if there is one.
pub const COLLECTOR_VARIABLE: &str = "COMMGAUGE_COLLECTOR";

/// Marks every process of a launch in its environment, except for the collectors.
pub const LAUNCH_MARK: &str = "COMMGAUGE_LAUNCH";
