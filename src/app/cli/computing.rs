//! What GPUs compute, from flags: the peaks of a machine file or of flags with the constants of published runs, or measured
//! matrix products.

use super::output::read_text;
use super::suite::report_resolved_file;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::units::{Rate, Seconds, parse_rate, three_digits};
use commgauge_base::visible::ShownPath;
use commgauge_base::writing::ascending;
use commgauge_cost::cost::{Fit, PlaceQuery};
use commgauge_model::config::machine::{ANY_GPU, Computing as Gpu, LayerKind, Level};
use commgauge_model::config::step::Framework;
use commgauge_model::config::{Machine, Model, Shipped};
use commgauge_model::record::Record;
use commgauge_plan::planner::compute::{
    Compute, Constants, Efficiency, MeasuredProduct, MeasuredProducts, PUBLISHED, Product,
};
use commgauge_plan::planner::rates::{Both, Fitted, Published, Rates};
use commgauge_plan::planner::step_error::{ANCHORED, StepError};
use commgauge_plan::planner::validate::{Site, anchor, layers_of, read_runs};
use commgauge_plan::planner::{AttentionKernel, Kernels};
use std::path::{Path, PathBuf};

/// Maximum number of shapes that a note lists.
const MAX_SHAPES: usize = 12;

/// The flags.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Computing")]
pub(super) struct ComputingFlags {
    #[command(flatten)]
    gpu: GpuFlags,

    /// Share of the peak that the largest matrix products reach, or `measured` for the shape of --products [default: the level of the
    /// GPU in published training steps]
    #[arg(long, value_name = "SHARE|measured", value_parser = share, hide_short_help = true)]
    efficiency: Option<Share>,

    /// The record with the measured matrix products, of a suite with [[compute]]
    #[arg(long, value_name = "RECORD", hide_short_help = true)]
    products: Option<PathBuf>,

    /// Measured steps of this model on such GPUs, as `commgauge plan validate --runs` reads them (--template prints one): they set the level
    /// and the interval
    #[arg(long, value_name = "STEP.csv", hide_short_help = true)]
    anchor: Option<PathBuf>,

    /// Linear layers are computed in 8 bits, the rest in 16
    #[arg(long, hide_short_help = true)]
    fp8_linears: bool,

    /// Linear layers are computed in 4 bits (NVFP4, MXFP4), the rest in 16
    #[arg(long, conflicts_with = "fp8_linears", hide_short_help = true)]
    fp4_linears: bool,

    /// Attention is several kernels that store a matrix of tokens by tokens, instead of one that does not
    #[arg(long, hide_short_help = true)]
    unfused_attention: bool,

    /// Attention is a kernel made for Ampere, such as FlashAttention 1 and 2, and takes twice the time on Hopper and later
    #[arg(long, conflicts_with = "unfused_attention", hide_short_help = true)]
    ampere_attention: bool,

    /// Norms, rotations and gates are kernels of PyTorch, one after another, as Hugging Face's models run that are not compiled, instead
    /// of one kernel each [default: with --framework hf]
    #[arg(long, value_name = "true|false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_short_help = true)]
    unfused_kernels: Option<bool>,

    /// CUDA graphs start the kernels of layers, so that the host does not hold up small micro-batches
    #[arg(long, hide_short_help = true)]
    cuda_graphs: bool,
}

/// Share of the peak that products reach.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    Of(f64),
    Measured,
}

/// What the GPUs compute, and its source.
pub(super) struct Computing {
    /// Compute model for pricing.
    pub compute: Compute,
    /// A short description of the source.
    pub ground: String,
    /// Notes for the user, as sentences.
    pub notes: Vec<String>,
    /// What was not validated, as a sentence.
    pub not_validated: Option<String>,
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
    /// Whether they leave it open how fast products are.
    pub fn leaves_products_open(&self) -> bool {
        self.efficiency.is_none()
            && self.products.is_none()
            && self.anchor.is_none()
            && self.gpu.peak_tflops.is_none()
            && self.bits_of_linears().is_none()
    }

    /// The type of linear layers, if it is another than that of the rest.
    fn bits_of_linears(&self) -> Option<u8> {
        (self.fp8_linears.then_some(8)).or(self.fp4_linears.then_some(4))
    }

    /// The same with the matrix products of a record.
    pub fn with_products(&self, record: &Path) -> ComputingFlags {
        ComputingFlags { efficiency: Some(Share::Measured), products: Some(record.to_owned()), ..self.clone() }
    }

    /// The same where a framework runs norms, rotations and gates as kernels one after another, unless a flag says otherwise.
    pub fn run_by(&self, framework: Option<Framework>) -> ComputingFlags {
        let unfused_kernels =
            self.unfused_kernels.or((!Kernels::usual_of(framework).fused_elementwise).then_some(true));
        ComputingFlags { unfused_kernels, ..self.clone() }
    }

    /// What the flags and a machine file say of a training of this model with activations of this type; without `calls` --anchor is not
    /// read.
    ///
    /// # Errors
    /// A record that cannot be read or has no products of the type; conflicting flags; 8 bits where no peak is known; a step that is no
    /// anchor for the plan.
    pub fn read(
        &self,
        element: ElementType,
        model: &Model,
        machine: Option<&Machine>,
        calls: Option<&Calls>,
    ) -> Result<Computing> {
        let bits = self.bits_of_linears().unwrap_or(8 * element.size() as u8);
        let gpu = self.gpu.gpu(machine);
        let level = PlanLevel::of(gpu.gpu.as_deref(), bits, layers_of(model), machine)?;
        let mut computing = match (self.efficiency, &self.products) {
            (Some(Share::Measured), Some(path)) => self.measured(path, element, machine, &level),
            (Some(Share::Measured), None) => Err(Error::usage(
                "--efficiency measured: --products is missing; accepted: a record with matrix products, such as \
                 `commgauge run compute` writes",
            )),
            (Some(Share::Of(_)), _) if self.anchor.is_some() => Err(Error::usage(
                "--efficiency: a share and --anchor both set the level; accepted: one of them, or --efficiency measured with --anchor",
            )),
            (_, Some(_)) => Err(Error::usage("--products is for --efficiency measured; give both or none")),
            (share, None) => Ok(self.published(share, machine, &level)),
        }?;
        if let Some(gpu) = gpu.gpu.as_deref().filter(|gpu| self.ampere_attention && gpu.starts_with("A100")) {
            return Err(Error::usage(format!(
                "--ampere-attention has no effect on {gpu}, an Ampere GPU; leave it out"
            )));
        }
        if let Some(bits) = self.bits_of_linears() {
            let missing = || {
                Error::usage(format!(
                    "--fp{bits}-linears: the peak in {bits} bits is not known; name a machine file with `peak_tflops_fp{bits}`, and leave \
                     out --peak-tflops and --products"
                ))
            };
            let own = self.gpu.peak_tflops.is_none() && self.products.is_none();
            let peak = self.gpu.gpu(machine).peak_of_linears(bits).filter(|_| own).ok_or_else(missing)?;
            computing.compute.peak_of_linears = Some(peak);
            computing.ground +=
                &format!("; linear layers in {bits} bits, at a peak of {} TFLOP/s", three_digits(peak / 1e12));
        }
        computing.compute.error = StepError::between(level.level.low, level.level.high);
        computing.not_validated = level.doubt();
        if let (Some(path), Some(calls)) = (&self.anchor, calls) {
            self.set_by(path, &mut computing, &level, model, machine, calls)?;
        }
        computing.compute.kernels.attention = match (self.unfused_attention, self.ampere_attention) {
            (true, _) => AttentionKernel::Separate,
            (_, true) => AttentionKernel::FusedForAmpere,
            _ => AttentionKernel::Fused,
        };
        computing.compute.kernels.in_graphs = self.cuda_graphs;
        if self.unfused_kernels == Some(true) {
            computing.compute.kernels.fused_elementwise = false;
            computing.notes.push(UNFUSED_KERNELS.to_owned());
        }
        Ok(computing)
    }

    /// Sets the level by measured steps.
    fn set_by(
        &self,
        path: &Path,
        computing: &mut Computing,
        PlanLevel { bits, .. }: &PlanLevel,
        model: &Model,
        machine: Option<&Machine>,
        calls: &Calls,
    ) -> Result<()> {
        let file = path.shown();
        let runs = read_runs(&read_text("--anchor", path)?, &path.display().to_string())?;
        let site = Site {
            gpu: &self.gpu.gpu(machine),
            described: "",
            rates: calls.rates,
            ranks_per_node: calls.ranks_per_node,
        };
        let factor = anchor(&runs, &model.name, *bits, site, &computing.compute)?;
        computing.compute.efficiency = computing.compute.efficiency.times(factor);
        computing.compute.error = ANCHORED;
        computing.not_validated = None;
        computing.ground += &format!(
            "; then products {} times as fast, as {} of {file} {}",
            three_digits(factor),
            if runs.len() == 1 { "the step".to_owned() } else { format!("{} steps", runs.len()) },
            if runs.len() == 1 { "says" } else { "say" },
        );
        Ok(())
    }

    fn published(&self, efficiency: Option<Share>, machine: Option<&Machine>, level: &PlanLevel) -> Computing {
        let given = efficiency.and_then(|share| if let Share::Of(share) = share { Some(share) } else { None });
        let constants = Constants::of(&level.level);
        let constants = Constants { share_of_peak: given.unwrap_or(constants.share_of_peak), ..constants };
        let notes = self.gpu.assumption(machine).map(str::to_owned).into_iter().collect();
        Computing {
            ground: format!(
                "products up to {} ({}) of {}, half of that at a width of {}; other kernels at {} of {}, {} to \
                 start one; {:.0} % slower while calls run. Constants of published runs (`commgauge plan validate`), not measured here",
                constants.share_of_peak,
                if given.is_some() { "given".to_owned() } else { level.origin() },
                self.gpu.peak(machine),
                constants.half_width,
                constants.share_of_memory_rate,
                self.gpu.memory(machine),
                Seconds(constants.seconds_per_kernel),
                100.0 * constants.lost_beside_calls,
            ),
            compute: constants.compute(&self.gpu.gpu(machine)),
            not_validated: None,
            notes,
            synthetic: false,
        }
    }

    fn measured(
        &self,
        path: &Path,
        element: ElementType,
        machine: Option<&Machine>,
        level: &PlanLevel,
    ) -> Result<Computing> {
        let record = Record::read(path)?;
        let file = path.shown();
        if let Some(problem) = record.file.seal.tampering() {
            return Err(Error::usage(format!("--products {file}: {problem}")));
        }
        let products = MeasuredProducts::new(&MeasuredProduct::all_of(&record), element).map_err(|error| {
            Error::usage(format!("--products {file}: {error} (--element-type says the type of the activations)"))
        })?;
        let speeds = || products.products().iter().filter_map(MeasuredProduct::flops_per_second);
        let (slowest, fastest) = (speeds().fold(f64::INFINITY, f64::min), speeds().fold(0.0, f64::max));
        let peak = self.gpu.peak_tflops.map_or(fastest, |peak| peak * 1e12);
        if peak < fastest {
            return Err(Error::usage(format!(
                "--peak-tflops: found {}, but the fastest product in {file} reached {} TFLOP/s; accepted: as much or more",
                three_digits(peak / 1e12),
                three_digits(fastest / 1e12)
            )));
        }
        let shares = match self.gpu.peak_tflops {
            Some(given) => {
                format!(", {:.1} to {:.1} % of {given} TFLOP/s (given)", 100.0 * slowest / peak, 100.0 * fastest / peak)
            }
            None => String::new(),
        };
        let count = products.products().len();
        let mut ground = format!(
            "measured on {count} matrix products of {element}, {} to {} TFLOP/s a rank{shares} ({file})",
            three_digits(slowest / 1e12),
            three_digits(fastest / 1e12)
        );
        let mut notes = vec![shapes(&record, &products)];
        // Products that ran briefly, or on one GPU alone, are faster than those of a step: clocks fall as a node warms up.
        let cool = heat(&record, machine);
        let has_peak = machine.is_some_and(|machine| machine.computing.is_some()) && self.gpu.peak_tflops.is_none();
        let (products, peak) = match cool.filter(|_| has_peak && element.size() == 2) {
            None => (products, peak),
            Some(cool) => {
                let form = Constants::of(&level.level).saturation();
                let known = self.gpu.gpu(machine).peak_flops_per_second;
                ground += &format!("; their shape, at the level {} ({})", form.best, level.origin());
                notes.push(format!(
                    "The products ran {cool}: a step's run hotter and slower. They give the shape, and published steps the level; --anchor \
                     with a measured step sets it for this machine."
                ));
                (products.at_level(form, known), known)
            }
        };
        let known = self.gpu.memory_rate.is_some() || machine.is_some_and(|machine| machine.computing.is_some());
        let mut compute = PUBLISHED.compute(&self.gpu.gpu(machine));
        if known {
            notes.push(format!(
                "Matrix products are measured; other kernels move {} of {}, take {} to start and lose {:.0} % while calls run, as in \
                 published runs.",
                PUBLISHED.share_of_memory_rate,
                self.gpu.gpu(machine).memory_rate,
                Seconds(PUBLISHED.seconds_per_kernel),
                100.0 * PUBLISHED.lost_beside_calls
            ));
        } else {
            (compute.memory_rate, compute.seconds_per_kernel) = (Rate(f64::INFINITY), Seconds(0.0));
            notes.push(ONLY_PRODUCTS.to_owned());
        }
        (compute.peak_flops_per_second, compute.efficiency) = (peak, Efficiency::Measured(products));
        Ok(Computing { notes, compute, ground, not_validated: None, synthetic: record.header.backend.synthetic })
    }
}

/// The level of a plan, and for what it was asked.
struct PlanLevel<'a> {
    level: Level,
    kind: Option<&'a str>,
    bits: u8,
    layers: LayerKind,
}

impl<'a> PlanLevel<'a> {
    fn of(kind: Option<&'a str>, bits: u8, layers: LayerKind, machine: Option<&Machine>) -> Result<PlanLevel<'a>> {
        let levels = machine.map_or_else(Level::shipped, Machine::levels)?;
        let missing = || Error::environment("this program was built without levels of published runs".to_owned());
        Ok(PlanLevel { level: Level::of(&levels, kind, bits, layers).ok_or_else(missing)?, kind, bits, layers })
    }

    /// Whose level it is.
    fn origin(&self) -> String {
        let Level { gpu, bits, runs, sources, .. } = &self.level;
        let who = match sources.as_slice() {
            [source] => source.clone(),
            several => format!("{} sources", several.len()),
        };
        let gpu = if gpu == ANY_GPU { "the middle of all GPUs".to_owned() } else { format!("level of {gpu}") };
        let bits = bits.map_or_else(String::new, |bits| format!(" in {bits} bits"));
        format!("{gpu}{bits}, {}: {runs} runs of {who}", self.layers.name())
    }

    /// What was not validated.
    fn doubt(&self) -> Option<String> {
        let PlanLevel { level, kind, bits, layers } = self;
        (!level.is_of(*kind, *bits)).then(|| {
            format!(
                "NOT VALIDATED: no published step of {} in {bits} bits ({}) is known; 95 of 100 steps take {:.2} to {:.2} times what is \
                 predicted (--anchor with a measured step narrows that)",
                kind.unwrap_or("such a GPU"),
                layers.name(),
                level.low,
                level.high
            )
        })
    }
}

/// Seconds of products after which a GPU has the clocks that it keeps.
const HOT_AFTER_SECONDS: f64 = 20.0;

/// How products ran that are faster than a step's; none where all ranks of a host ran them for long enough.
fn heat(record: &Record, machine: Option<&Machine>) -> Option<String> {
    let nanoseconds = record.products.iter().flat_map(|line| &line.slowest_nanoseconds);
    let seconds = 1e-9 * nanoseconds.map(|nanoseconds| *nanoseconds as f64).sum::<f64>();
    let at_once = record.products.iter().map(|line| line.ranks_per_host).min().unwrap_or(0);
    let all = machine.map_or(at_once, Machine::ranks_per_host);
    if at_once < all {
        return Some(format!("on {at_once} of the {all} GPUs of a host at once"));
    }
    (seconds < HOT_AFTER_SECONDS)
        .then(|| format!("for {} in all, and a GPU is warm after {HOT_AFTER_SECONDS} s", Seconds(seconds)))
}

/// Work that is missing from measured products.
const ONLY_PRODUCTS: &str = "Measured computing is that of matrix products alone: norms, softmax and the optimizer count as nothing, \
     so that a real step takes longer. Name a machine file with [computing], or give --memory-rate.";

const UNFUSED_KERNELS: &str = "Norms, rotations and gates are kernels of PyTorch one after another, as Hugging Face's models run that are not \
     compiled (transformers 5.17, models/llama/modeling_llama.py): --unfused-kernels=false prices one kernel each.";

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
    let wrong = times.iter().filter(|time| time.times.median().is_none()).count();
    let on = times.first().map_or_else(String::new, |time| {
        format!(" with {} on {} ranks of a host at once", time.library, time.ranks_per_host)
    });
    let left_out = if wrong == 0 { String::new() } else { format!("; {wrong} without a time were left out") };
    format!("Matrix products (m x n x k) were measured{on}: {}{left_out}.", listed.join(", "))
}

impl Computing {
    /// The source, and what was not validated.
    pub fn ground_with_doubt(&self) -> String {
        [Some(self.ground.clone()), self.not_validated.clone()].into_iter().flatten().collect::<Vec<_>>().join(". ")
    }

    /// How many of the products of a layout were measured at their exact shape; none if there are no measurements.
    pub fn own_shapes(&self, needed: &[Product]) -> Option<String> {
        let Efficiency::Measured(measured) = &self.compute.efficiency else { return None };
        let shapes: Vec<[u64; 3]> = ascending(needed.iter().map(|product| [product.m, product.n, product.k]));
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

// The peaks of a GPU, from flags or a machine file, and who says them.

/// An H100 SXM (NVIDIA H100 data sheet, without sparsity), where no machine file says what GPU it is.
fn assumed() -> Gpu {
    Gpu {
        gpu: Some("H100".to_owned()),
        peak_flops_per_second: 989e12,
        peak_fp8_flops_per_second: Some(1979e12),
        peak_fp4_flops_per_second: None,
        memory_rate: Rate(3350e9),
    }
}

/// The flags.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Computing")]
pub(super) struct GpuFlags {
    /// Peak of dense matrix products of one GPU, 10^12 operations a second [default: that of the machine file, else 989, an H100
    /// in bfloat16; with --efficiency measured the fastest product that was measured]
    #[arg(long, value_name = "TFLOPS", value_parser = positive, hide_short_help = true)]
    pub peak_tflops: Option<f64>,

    /// What a GPU's memory moves, such as 3.35TB/s [default: that of the machine file, else of an H100]
    #[arg(long, value_name = "RATE", value_parser = parse_rate, hide_short_help = true)]
    pub memory_rate: Option<Rate>,
}

/// A number above 0.
pub(super) fn positive(text: &str) -> std::result::Result<f64, String> {
    let wrong = || format!("found `{text}`; accepted: a number above 0");
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0).ok_or_else(wrong)
}

impl GpuFlags {
    /// The GPU of the machine file, or the assumed one, with values from flags. A GPU with its own peak has no known kind.
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

    /// What to do where no flag or file names the GPU.
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

// Source of predicted times, given by flags: a fit, a machine file, or both.

/// The group of the flags of which one at least has to be given.
const SOURCE: &str = "rates_source";

/// The flags that name a fit or a machine.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Rates", group(clap::ArgGroup::new(SOURCE).required(true).multiple(true)))]
pub struct RatesFlags {
    /// The fit, from `commgauge calibrate -o`
    #[arg(long, value_name = "FILE", group = SOURCE)]
    pub fit: Option<PathBuf>,

    /// A machine file, for published link rates: not calibrated. With --fit, for the calls that the fit does not hold
    #[arg(long, value_name = "FILE", group = SOURCE)]
    pub machine: Option<PathBuf>,

    /// Where the groups of the fit were placed whose records do not say it, as far as you know: 1n for any groups inside a
    /// host, 1n/1g for one at a time
    #[arg(long, value_name = "PLACE", requires = "fit", hide_short_help = true)]
    pub unknown_locality: Option<PlaceQuery>,
}

/// Times of calls, and the ranks of a node.
pub struct Calls<'a> {
    /// Times of calls.
    pub rates: &'a dyn Rates,
    /// Ranks of a node.
    pub ranks_per_node: u32,
}

/// The files that the flags name, parsed.
#[derive(Debug)]
pub struct RatesSource {
    named: Named,
    unknown: Option<PlaceQuery>,
}

#[derive(Debug)]
enum Named {
    Fit(Box<Fit>, String),
    Machine(Box<Machine>),
    Both(Box<Fit>, String, Box<Machine>),
}

impl RatesFlags {
    /// The files that the flags name.
    pub fn files(&self) -> Vec<&Path> {
        self.fit.iter().chain(&self.machine).map(PathBuf::as_path).collect()
    }

    /// Reads the named files.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid.
    pub fn read(&self) -> Result<RatesSource> {
        let fit = self.fit.as_ref().map(|path| Fit::read(path).map(|fit| (Box::new(fit), path.display().to_string())));
        self.machine.iter().for_each(|machine| report_resolved_file(Shipped::Machine, machine));
        let machine = self.machine.as_ref().map(|path| Machine::load(path).map(Box::new));
        let named = match (fit.transpose()?, machine.transpose()?) {
            (Some((fit, name)), Some(machine)) => Named::Both(fit, name, machine),
            (Some((fit, name)), None) => Named::Fit(fit, name),
            (None, Some(machine)) => Named::Machine(machine),
            (None, None) => return Err(Error::usage("give --fit FILE, or --machine FILE for published rates")),
        };
        Ok(RatesSource { named, unknown: self.unknown_locality })
    }
}

impl RatesSource {
    /// The rates, for queries; with the calls within a node that a serving framework carries out by itself, where they were measured.
    pub fn rates(&self, serving: Option<Framework>) -> Box<dyn Rates + '_> {
        let fitted = |fit, name| Fitted::new(fit, name, self.unknown);
        let published = |machine| Published::of(machine, serving.map(Framework::name));
        match &self.named {
            Named::Fit(fit, name) => Box::new(fitted(fit, name)),
            Named::Machine(machine) => Box::new(published(machine)),
            Named::Both(fit, name, machine) => Box::new(Both::new(fitted(fit, name), published(machine))),
        }
    }

    /// The machine, where one was named.
    pub fn machine(&self) -> Option<&Machine> {
        match &self.named {
            Named::Machine(machine) | Named::Both(_, _, machine) => Some(machine),
            Named::Fit(..) => None,
        }
    }

    /// What calls take, for steps to be priced.
    ///
    /// # Errors
    /// As [`ranks_per_node`].
    pub fn calls<'a>(&self, rates: &'a dyn Rates, requested: Option<u32>) -> Result<Calls<'a>> {
        Ok(Calls { rates, ranks_per_node: self.ranks_per_node(requested)? })
    }

    /// Ranks on each node: see [`ranks_per_node`].
    ///
    /// # Errors
    /// As there.
    pub fn ranks_per_node(&self, requested: Option<u32>) -> Result<u32> {
        ranks_per_node(requested, self.machine())
    }
}

/// Fewest GPUs of an NVLink domain that is more than a node: racks, whose trays hold this many GPUs.
const TRAY: u32 = 4;

/// GPUs that a job uses of each NVLink domain of several trays: all, unless they do not divide the GPUs of the job. Then the most whole trays
/// that do, if that is at least half of them, as published jobs use 64 of each rack of 72
/// (NVIDIA-NeMo/Megatron-Bridge docs/performance-summary-archive.md); and a sentence that says so.
pub fn used_of_each_domain(domain: u32, gpus: u32) -> (u32, Option<String>) {
    let is_rack = domain > 4 * TRAY;
    if !is_rack || gpus <= domain || gpus.is_multiple_of(domain) {
        return (domain, None);
    }
    let trays = (1..domain / TRAY).rev().map(|trays| trays * TRAY).take_while(|used| 2 * used >= domain);
    let used = trays.into_iter().find(|used| gpus.is_multiple_of(*used)).unwrap_or(domain);
    let what = if used < domain { "are used" } else { "hold groups that lie across domains" };
    let sentence = format!("{used} of the {domain} GPUs of each NVLink domain {what}: {domain} do not divide {gpus}.");
    (used, Some(sentence))
}

/// Ranks on each node: as requested, else from the machine file.
///
/// # Errors
/// If neither gives a number, or it is 0.
pub fn ranks_per_node(requested: Option<u32>, machine: Option<&Machine>) -> Result<u32> {
    match requested.or_else(|| machine.map(|machine| machine.ranks_per_node)) {
        Some(0) => Err(Error::usage("--ranks-per-node: found 0; accepted: 1 or more")),
        Some(ranks) => Ok(ranks),
        None => Err(Error::usage(
            "--ranks-per-node is missing; a fit does not say how many ranks a node has (a machine file does)",
        )),
    }
}
