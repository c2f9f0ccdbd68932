//! Computing rate of the GPUs of a plan, from flags: a peak and a share of it, or measured matrix products.

use commgauge_analysis::planner::compute::{Compute, Efficiency, MeasuredProduct, MeasuredProducts, Product};
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Rate, Seconds, three_digits};
use commgauge_model::record::Record;
use std::path::PathBuf;

/// Dense bfloat16 products of an H100 SXM (NVIDIA H100 data sheet, without sparsity).
const DEFAULT_PEAK_TFLOPS: f64 = 989.0;
/// Share of the peak that large models reach: 400 of 989 TFLOP/s (arXiv 2407.21783 table 4), including waiting;
/// products alone reach more.
const DEFAULT_EFFICIENCY: f64 = 0.5;
/// Maximum number of shapes that a note lists.
const MAX_SHAPES: usize = 12;

/// The flags.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Computing")]
pub(super) struct ComputingFlags {
    /// Peak of dense matrix products of one GPU, 10^12 operations a second [default: 989, an H100 in bfloat16; with
    /// --efficiency measured the fastest product that was measured]
    #[arg(long, value_name = "TFLOPS", value_parser = positive)]
    peak_tflops: Option<f64>,

    /// Share of the peak that computing reaches, or `measured` for that of the products of --products [default: 0.5]
    #[arg(long, value_name = "SHARE|measured", value_parser = share)]
    efficiency: Option<Share>,

    /// The record with the measured matrix products, of a suite with [[compute]]
    #[arg(long, value_name = "RECORD")]
    products: Option<PathBuf>,

    /// Type of parameters and activations, and so of the matrix products [default: bfloat16]
    #[arg(long, value_name = "TYPE")]
    pub(super) element_type: Option<String>,
}

/// Share of the peak that products reach.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    Of(f64),
    Measured,
}

/// Computing rate of the GPUs, and its source.
pub(super) struct Computing {
    /// Compute model for pricing.
    pub compute: Compute,
    /// A short description of the source.
    pub ground: String,
    /// Notes for the user, as sentences.
    pub notes: Vec<String>,
    /// True if the products come from a record without real times.
    pub synthetic: bool,
}

fn share(text: &str) -> std::result::Result<Share, String> {
    if text == "measured" {
        return Ok(Share::Measured);
    }
    let wrong = || format!("found `{text}`; accepted: a share of the peak, above 0 and up to 1, or `measured`");
    positive(text).ok().filter(|share| *share <= 1.0).map(Share::Of).ok_or_else(wrong)
}

impl ComputingFlags {
    /// The computing rate that the flags give for a training with activations of this type.
    ///
    /// # Errors
    /// A record that cannot be read or has no products of the type; conflicting flags.
    pub fn read(&self, element: ElementType) -> Result<Computing> {
        match (self.efficiency, &self.products) {
            (Some(Share::Measured), Some(path)) => self.measured(path, element),
            (Some(Share::Measured), None) => Err(Error::usage(
                "--efficiency measured: --products is missing; accepted: a record with matrix products, such as \
                 `commgauge run compute` writes",
            )),
            (_, Some(_)) => Err(Error::usage("--products is for --efficiency measured; give both or none")),
            (share, None) => Ok(self.assumed(share)),
        }
    }

    fn assumed(&self, efficiency: Option<Share>) -> Computing {
        let given = efficiency.and_then(|share| if let Share::Of(share) = share { Some(share) } else { None });
        let (peak, share) = (self.peak_tflops.unwrap_or(DEFAULT_PEAK_TFLOPS), given.unwrap_or(DEFAULT_EFFICIENCY));
        let assumed = |given: Option<f64>| if given.is_some() { "given" } else { "assumed" };
        let mut notes = Vec::new();
        if self.peak_tflops.is_none() || given.is_none() {
            notes.push(
                "Computing is assumed: give --peak-tflops and --efficiency for your GPU, or the share of communication is wrong."
                    .to_owned(),
            );
        }
        Computing {
            compute: Compute::constant(peak * 1e12, share),
            ground: format!("{peak} TFLOP/s ({}) x {share} ({})", assumed(self.peak_tflops), assumed(given)),
            notes,
            synthetic: false,
        }
    }

    fn measured(&self, path: &std::path::Path, element: ElementType) -> Result<Computing> {
        let record = Record::read(path)?;
        let file = path.display();
        if let Some(problem) = record.seal.tampering() {
            return Err(Error::usage(format!("--products {file}: {problem}")));
        }
        let products = MeasuredProducts::new(&MeasuredProduct::all_of(&record), element).map_err(|error| {
            Error::usage(format!("--products {file}: {error} (--element-type says the type of the activations)"))
        })?;
        let speeds = || products.products().iter().filter_map(MeasuredProduct::flops_per_second);
        let (slowest, fastest) = (speeds().fold(f64::INFINITY, f64::min), speeds().fold(0.0, f64::max));
        let peak = self.peak_tflops.map_or(fastest, |peak| peak * 1e12);
        if peak < fastest {
            return Err(Error::usage(format!(
                "--peak-tflops: found {}, but the fastest product in {file} reached {} TFLOP/s; accepted: as much or more",
                three_digits(peak / 1e12),
                three_digits(fastest / 1e12)
            )));
        }
        let shares = match self.peak_tflops {
            Some(given) => {
                format!(", {:.1} to {:.1} % of {given} TFLOP/s (given)", 100.0 * slowest / peak, 100.0 * fastest / peak)
            }
            None => String::new(),
        };
        let count = products.products().len();
        let ground = format!(
            "measured on {count} matrix products of {element}, {} to {} TFLOP/s a rank{shares} ({file})",
            three_digits(slowest / 1e12),
            three_digits(fastest / 1e12)
        );
        Ok(Computing {
            notes: vec![shapes(&record, &products), ONLY_PRODUCTS.to_owned()],
            compute: Compute {
                peak_flops_per_second: peak,
                efficiency: Efficiency::Measured(products),
                memory_rate: Rate(f64::INFINITY),
                seconds_per_kernel: Seconds(0.0),
                fused_attention: true,
            },
            ground,
            synthetic: record.header.backend.synthetic,
        })
    }
}

/// Work that is missing from measured products.
const ONLY_PRODUCTS: &str = "Measured computing is that of matrix products alone: norms, softmax and the optimizer count as nothing, \
     so that a real step takes longer.";

/// The measured shapes and the device.
fn shapes(record: &Record, products: &MeasuredProducts) -> String {
    let all = products.products();
    let one = |product: &MeasuredProduct| {
        let speed = product.flops_per_second().unwrap_or(0.0) / 1e12;
        format!("{} x {} x {} {} TFLOP/s", product.m, product.n, product.k, three_digits(speed))
    };
    let mut listed: Vec<String> = all.iter().take(MAX_SHAPES).map(one).collect();
    if all.len() > MAX_SHAPES {
        listed.push(format!("{} more", all.len() - MAX_SHAPES));
    }
    let times = record.product_times();
    let wrong = times.iter().filter(|time| time.median().is_none()).count();
    let on = times.first().map_or_else(String::new, |time| {
        format!(" with {} on {} ranks of a host at once", time.library, time.ranks_per_host)
    });
    let left_out = if wrong == 0 { String::new() } else { format!("; {wrong} without a time were left out") };
    format!("Matrix products (m x n x k) were measured{on}: {}{left_out}.", listed.join(", "))
}

impl Computing {
    /// How many of the products of a layout were measured at their exact shape; none if there are no measurements.
    pub fn own_shapes(&self, needed: &[Product]) -> Option<String> {
        let Efficiency::Measured(measured) = &self.compute.efficiency else { return None };
        let mut shapes: Vec<[u64; 3]> = needed.iter().map(|product| [product.m, product.n, product.k]).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let is_measured =
            |shape: &&[u64; 3]| measured.products().iter().any(|known| [known.m, known.n, known.k] == **shape);
        let exact = shapes.iter().filter(is_measured).count();
        Some(format!(
            "Of the {} shapes of matrix products in the best layout {exact} were measured; the others are interpolated between \
             those that were, and kept within their speeds.",
            shapes.len()
        ))
    }
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    let wrong = || format!("found `{text}`; accepted: a number above 0");
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0).ok_or_else(wrong)
}
