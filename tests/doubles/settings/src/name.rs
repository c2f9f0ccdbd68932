//! Names of devices: the same in the stand-ins for the driver and for NVML.

use super::SETTINGS;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Different on every host, the same for every process of it.
pub fn uuid(number: u32) -> [u8; 16] {
    let mut name = [0u8; 256];
    unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let half = |salt: u32| {
        let mut hasher = DefaultHasher::new();
        (&name[..], number, salt).hash(&mut hasher);
        hasher.finish().to_be_bytes()
    };
    [half(0), half(1)].concat().try_into().expect("two halves of 8 bytes")
}

pub fn uuid_text(number: u32) -> String {
    let hex: String = uuid(number).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The third part of the PCI address; the others are 0. Parts of one GPU share it.
pub fn bus(number: u32) -> u32 {
    0x10 * (number / SETTINGS.parts + 1)
}
