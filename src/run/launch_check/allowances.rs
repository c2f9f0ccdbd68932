//! What the user allows a launch to be, though it is likely to be a mistake.

/// Exceptions that the user allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowances {
    /// Ranks may differ in environment, libraries and drivers.
    pub mixed: bool,
    /// Ranks may share a device.
    pub shared_devices: bool,
}
