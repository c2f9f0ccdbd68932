//! The peaks of a GPU, from flags or a machine file, and who says them.

use commgauge_base::units::Rate;
use commgauge_model::config::Machine;
use commgauge_model::config::machine::Computing as Gpu;

/// An H100 SXM (NVIDIA H100 data sheet, without sparsity), where no machine file says what GPU it is.
fn assumed() -> Gpu {
    Gpu {
        gpu: Some("H100".to_owned()),
        peak_flops_per_second: 989e12,
        peak_fp8_flops_per_second: Some(1979e12),
        memory_rate: Rate(3350e9),
    }
}

/// The flags.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Computing")]
pub(super) struct GpuFlags {
    /// Peak of dense matrix products of one GPU, 10^12 operations a second [default: that of the machine file, else 989, an H100
    /// in bfloat16; with --efficiency measured the fastest product that was measured]
    #[arg(long, value_name = "TFLOPS", value_parser = positive)]
    pub peak_tflops: Option<f64>,

    /// What a GPU's memory moves, such as 3.35TB/s [default: that of the machine file, else of an H100]
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub memory_rate: Option<Rate>,
}

/// A number above 0.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let wrong = || format!("found `{text}`; accepted: a number above 0");
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0).ok_or_else(wrong)
}

fn rate(text: &str) -> Result<Rate, String> {
    commgauge_base::units::parse_rate(text)
}

impl GpuFlags {
    /// The GPU of the machine file, or the assumed one, with what flags say instead. A peak of its own is of no known kind.
    pub fn gpu(&self, machine: Option<&Machine>) -> Gpu {
        let named = machine.and_then(|machine| machine.computing.clone()).unwrap_or_else(assumed);
        Gpu {
            peak_flops_per_second: self.peak_tflops.map_or(named.peak_flops_per_second, |peak| peak * 1e12),
            memory_rate: self.memory_rate.unwrap_or(named.memory_rate),
            gpu: named.gpu.filter(|_| self.peak_tflops.is_none()),
            ..named
        }
    }

    /// The peak with who says it.
    pub fn peak(&self, machine: Option<&Machine>) -> String {
        self.gpu(machine).peak_by(source(self.peak_tflops.is_some(), machine))
    }

    /// The memory's rate with who says it.
    pub fn memory(&self, machine: Option<&Machine>) -> String {
        self.gpu(machine).memory_by(source(self.memory_rate.is_some(), machine))
    }

    /// What to do where nobody says which GPU it is.
    pub fn assumption(&self, machine: Option<&Machine>) -> Option<&'static str> {
        let is_known = machine.is_some_and(|machine| machine.computing.is_some());
        (!is_known && (self.peak_tflops.is_none() || self.memory_rate.is_none())).then_some(
            "Computing is assumed to be that of an H100: name a machine file with [computing], or give --peak-tflops and \
             --memory-rate, or the share of communication is wrong.",
        )
    }
}

fn source(is_given: bool, machine: Option<&Machine>) -> &str {
    let named = machine.filter(|machine| machine.computing.is_some()).map(|machine| machine.name.as_str());
    if is_given { "given" } else { named.unwrap_or("an H100, assumed") }
}
