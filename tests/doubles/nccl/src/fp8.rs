//! 8-bit floats to 32-bit ones and back, to nearest even, saturating as NCCL's do.

/// A format: bits of exponent and mantissa, and whether it has infinities as IEEE has.
#[derive(Clone, Copy)]
pub struct Format {
    exponent_bits: i32,
    mantissa_bits: i32,
    largest: f32,
}

pub const E4M3: Format = Format { exponent_bits: 4, mantissa_bits: 3, largest: 448.0 };
pub const E5M2: Format = Format { exponent_bits: 5, mantissa_bits: 2, largest: 57344.0 };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    pub fn decode(self, bits: u8) -> f32 {
        let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
        let exponent = i32::from(bits & 0x7f) >> self.mantissa_bits;
        let mantissa = i32::from(bits) & ((1 << self.mantissa_bits) - 1);
        let fraction = mantissa as f32 / (1 << self.mantissa_bits) as f32;
        let value = match exponent {
            0 => fraction * 2f32.powi(1 - self.bias()),
            _ => (1.0 + fraction) * 2f32.powi(exponent - self.bias()),
        };
        if value <= self.largest {
            return sign * value;
        }
        // E5M2 has infinity and NaN, E4M3 NaN alone.
        if self.mantissa_bits == 2 && mantissa == 0 { sign * f32::INFINITY } else { f32::NAN }
    }

    pub fn encode(self, value: f32) -> u8 {
        if value.is_nan() {
            return 0x7f;
        }
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let magnitude = value.abs().min(self.largest);
        if magnitude == 0.0 {
            return sign;
        }
        let lowest = 1 - self.bias();
        let exponent = (magnitude.log2().floor() as i32).max(lowest);
        let step = 2f32.powi(exponent - self.mantissa_bits);
        // A carry out of the mantissa runs into the exponent, which is what it should do.
        let steps = (magnitude / step).round_ties_even() as i32;
        (sign as i32 + ((exponent - lowest) << self.mantissa_bits) + steps) as u8
    }
}
