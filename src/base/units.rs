//! The units of all output: bytes, seconds and rates as types, read and printed in one place.
//!
//! Inside the program only base units are used; scaling to MiB, microseconds or GB/s happens only in the `Display` implementations here. GB
//! is 10^9 bytes, sizes are printed in binary units.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A count of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// A duration in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Seconds(pub f64);

/// A rate in bytes per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Rate(pub f64);

impl Seconds {
    /// From a count of nanoseconds, as in clocks and records.
    pub fn from_nanoseconds(nanoseconds: u64) -> Self {
        Seconds(nanoseconds as f64 * 1e-9)
    }

    /// To the nearest nanosecond; negative durations become 0.
    pub fn as_nanoseconds(self) -> u64 {
        (self.0 * 1e9).round() as u64
    }
}

impl Rate {
    /// Bytes over a time; a time of zero gives no rate, never an infinite one.
    pub fn of(bytes: f64, time: Seconds) -> Option<Rate> {
        (time.0 > 0.0).then(|| Rate(bytes / time.0))
    }

    /// In GB/s, 10^9 bytes per second, the unit in which bus bandwidth is quoted.
    pub fn gigabytes_per_second(self) -> f64 {
        self.0 * 1e-9
    }
}

/// Units of a size, in lower case: those of nccl-tests (1024 each), and the same spelled out.
const BINARY_UNITS: [(&str, &str, u32); 4] = [("k", "kib", 10), ("m", "mib", 20), ("g", "gib", 30), ("t", "tib", 40)];

impl Bytes {
    /// Parses the size of a message, in files and flags: `4096`, `64M` and `64MiB` (binary, as in nccl-tests), `1.5GiB`. `64MB` is refused,
    /// since nccl-tests reads it as 64 MiB and other programs as 64,000,000 bytes.
    ///
    /// The error gives the text found and valid ones, to be appended to a file and a key.
    pub fn parse(text: &str) -> Result<Bytes, String> {
        let (digits, unit) = digits_and_unit(text);
        let decimal = BINARY_UNITS.iter().position(|(letter, ..)| unit == format!("{letter}b"));
        match (decimal, digits.parse::<f64>()) {
            (Some(power), Ok(count)) if count >= 0.0 => {
                let (letter, shift) = (unit[..1].to_ascii_uppercase(), BINARY_UNITS[power].2);
                let (binary, ten) = (count * f64::from(shift).exp2(), count * 1e3_f64.powi(power as i32 + 1));
                Err(format!(
                    "found `{text}`, which nccl-tests reads as {binary} bytes and others as {ten}; write {digits}{letter}iB (or {digits}{letter}) or {ten}"
                ))
            }
            _ => Bytes::parse_memory(text),
        }
    }

    /// Parses a size of memory, in which `80GB` is decimal as in data sheets; otherwise as [`Bytes::parse`].
    pub fn parse_memory(text: &str) -> Result<Bytes, String> {
        let accepted = "a size such as 8, 512B, 64K, 16MiB or 1GiB (binary)";
        let (digits, unit) = digits_and_unit(text);
        if digits.starts_with('-') && digits != "-" {
            return Err(format!("found `{text}`, a negative size; accepted: {accepted}"));
        }
        let spelled = match BINARY_UNITS.iter().find(|(letter, ..)| unit == *letter) {
            Some((_, whole, _)) => format!("{digits}{whole}"),
            None => text.trim().to_owned(),
        };
        bytesize::ByteSize::from_str(&spelled)
            .map(|size| Bytes(size.as_u64()))
            .map_err(|_| format!("found `{text}`; accepted: {accepted}"))
    }
}

/// A number and the letters after it, in lower case.
fn digits_and_unit(text: &str) -> (&str, String) {
    let trimmed = text.trim();
    let digits = trimmed.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    (digits.trim_end(), trimmed[digits.len()..].to_ascii_lowercase())
}

/// Parses a duration with its unit: `2ms`, `1.5 us`, `300ns`, `2s`, `1m`.
///
/// The error gives the text found and valid ones.
pub fn parse_seconds(text: &str) -> Result<Seconds, String> {
    let accepted = "a time with its unit, such as 300ns, 20us, 2ms, 1.5s, 2m or 1h";
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let scale = match trimmed[split..].trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("found `{text}`; accepted: {accepted}")),
    };
    match trimmed[..split].parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(Seconds(value * scale)),
        _ => Err(format!("found `{text}`; accepted: {accepted}")),
    }
}

/// Parses a rate with its unit: `25GB/s`, `400 Gbit/s`, `12GiB/s`.
///
/// The error gives the text found and valid ones.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    let accepted = "a rate such as 25GB/s, 900MB/s, 12GiB/s or 400Gbit/s";
    let wrong = || format!("found `{text}`; accepted: {accepted}");
    let per_second = text.trim().strip_suffix("/s").ok_or_else(wrong)?;
    let split = per_second.find(|c: char| !(c.is_ascii_digit() || c == '.')).ok_or_else(wrong)?;
    let value: f64 = per_second[..split].parse().map_err(|_| wrong())?;
    let scale = match per_second[split..].trim() {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1024f64.powi(2),
        "GiB" => 1024f64.powi(3),
        "Mbit" => 1e6 / 8.0,
        "Gbit" => 1e9 / 8.0,
        "Tbit" => 1e12 / 8.0,
        _ => return Err(wrong()),
    };
    if value > 0.0 { Ok(Rate(value * scale)) } else { Err(wrong()) }
}

impl fmt::Display for Bytes {
    /// Binary units, without decimals if the size is a whole number of the unit: `64 MiB`, `1.5 KiB`, `8 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let text = match UNITS.iter().find(|(_, scale)| self.0 >= *scale) {
            None => format!("{} B", self.0),
            Some((unit, scale)) if self.0.is_multiple_of(*scale) => format!("{} {unit}", self.0 / scale),
            Some((unit, scale)) => format!("{:.1} {unit}", self.0 as f64 / *scale as f64),
        };
        f.pad(&text)
    }
}

impl fmt::Display for Seconds {
    /// Three significant digits in a suitable unit: `1.24 us`, `16.2 ms`, `2.50 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.abs();
        let (scale, unit) = match magnitude {
            m if m < 1e-6 => (1e9, "ns"),
            m if m < 1e-3 => (1e6, "us"),
            m if m < 1.0 => (1e3, "ms"),
            _ => (1.0, "s"),
        };
        f.pad(&format!("{} {unit}", three_digits(self.0 * scale)))
    }
}

impl fmt::Display for Rate {
    /// In GB/s (10^9), below 0.1 in MB/s or kB/s: three significant digits, with the unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scale, unit) = match self.0.abs() {
            rate if rate >= 0.09995e9 || rate == 0.0 => (1e9, "GB/s"),
            rate if rate >= 0.9995e6 => (1e6, "MB/s"),
            _ => (1e3, "kB/s"),
        };
        f.pad(&format!("{} {unit}", three_digits(self.0 / scale)))
    }
}

/// Three significant digits without an exponent: `0.123`, `1.23`, `12.3`, `123`, `1230`.
pub fn three_digits(value: f64) -> String {
    let magnitude = value.abs();
    let decimals = match magnitude {
        m if m >= 99.95 => 0,
        m if m >= 9.995 => 1,
        m if m >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A number with its noun.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_their_units() {
        for (text, bytes) in [
            ("8", 8),
            ("64M", 64 << 20),
            ("64m", 64 << 20),
            ("64MiB", 64 << 20),
            ("64 MiB", 64 << 20),
            ("1.5KiB", 1536),
            ("0.5K", 512),
            ("512B", 512),
            ("1g", 1 << 30),
        ] {
            assert_eq!(Bytes::parse(text), Ok(Bytes(bytes)), "{text}");
            assert_eq!(Bytes::parse_memory(text), Ok(Bytes(bytes)), "{text}");
        }
        assert_eq!(Bytes::parse_memory("80GB"), Ok(Bytes(80_000_000_000)));
    }

    #[test]
    fn an_invalid_size_is_refused_with_the_accepted_forms() {
        for text in ["64MB", "-8", "8 furlongs", "", "KiB", "64Mi B", "nanKB", "-1MB"] {
            let message = Bytes::parse(text).unwrap_err();
            assert!(message.contains(&format!("found `{text}`")), "{message}");
        }
        assert_eq!(
            Bytes::parse("64MB").unwrap_err(),
            "found `64MB`, which nccl-tests reads as 67108864 bytes and others as 64000000; write 64MiB (or 64M) or 64000000"
        );
    }

    #[test]
    fn times_and_rates_are_read_with_their_units() {
        assert_eq!(parse_seconds("2ms"), Ok(Seconds(2e-3)));
        assert_eq!(parse_seconds("1.5 us"), Ok(Seconds(1.5e-6)));
        assert!(parse_seconds("2").is_err());
        assert_eq!(parse_rate("400Gbit/s"), Ok(Rate(50e9)));
        assert!(parse_rate("0GB/s").is_err());
        assert!(parse_rate("25GB").is_err());
    }

    #[test]
    fn values_are_printed_with_their_units() {
        assert_eq!(Bytes(64 << 20).to_string(), "64 MiB");
        assert_eq!(Bytes(1536).to_string(), "1.5 KiB");
        assert_eq!(Bytes(8).to_string(), "8 B");
        assert_eq!(Seconds(1.2345e-6).to_string(), "1.23 us");
        assert_eq!(Seconds(0.0162).to_string(), "16.2 ms");
        assert_eq!(Rate(12.345e9).to_string(), "12.3 GB/s");
        assert_eq!(Rate(0.1e9).to_string(), "0.100 GB/s");
        assert_eq!(Rate(58.94e6).to_string(), "58.9 MB/s");
        assert_eq!(Rate(420.4e3).to_string(), "420 kB/s");
        assert_eq!(Rate(8.0e3).to_string(), "8.00 kB/s");
    }
}
