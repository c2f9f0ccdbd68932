//! Variables by which processes of a launch are told from others, and words by which their messages are.

/// Set in the environment of a collector process, to the marker of the launch if there is one.
pub const COLLECTOR_VARIABLE: &str = "COMMGAUGE_COLLECTOR";

/// Marks every process of a launch in its environment, except for the collectors.
pub const LAUNCH_MARK: &str = "COMMGAUGE_LAUNCH";

/// Words of a rank whose collector was lost, by which whoever reads its output knows of that.
pub const LOST_COLLECTOR: &str = ": the watchdog of this host ";

/// Words of a rank that ends the launch because nobody else will.
pub const OWN_DEADLINE: &str = " ends the launch by its own deadline";
