//! A suite file: what to run, read once with every file that it names, and checked.
//!
//! The tables have readers of their own: `suite_measure`, `suite_calibrate`, `suite_compute`, `suite_copy`, `suite_sweep`, `suite_work`. Whether the degrees of
//! a layout fit the number of ranks is known to `workload` only.

use super::Peer;
use super::document::{Item, Place, Table};
use super::shipped::{Shipped, read_text};
use super::step::LayoutTable;
use super::suite_sweep::{BOTH_CADENCES, MOST_SIZES, Sweep, read_cadences};
use super::suite_work::{ComputeTable, CopyTable, PairsTable, WorkReader, add_to_hash};
use commgauge_base::digest::hexadecimal;
use commgauge_base::error::{Error, Result};
use commgauge_base::sample::{Cadence, ClockMethod, Timing};
use commgauge_base::units::{Bytes, Seconds};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A suite file, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// Its name.
    pub name: String,
    /// Purpose of the suite.
    pub description: String,
    /// The file.
    pub path: PathBuf,
    /// SHA-256, in hexadecimal, over the suite and every file that it names.
    pub sha256: String,
    /// Sampling settings.
    pub settings: RunSettings,
    /// Cadences of model ops, and default of sweeps.
    pub cadences: Vec<Cadence>,
    /// Sweeps over sizes.
    pub sweeps: Vec<Sweep>,
    /// How models are divided, and the work on them; several may be measured in one run.
    pub layouts: Vec<LayoutTable>,
    /// The layout whose parallelisms are ranked at the end of a run, however many ranks there are.
    pub ranking: Option<LayoutTable>,
    /// Models whose matrix products are measured.
    pub compute: Vec<ComputeTable>,
    /// Copies between hosts and GPUs.
    pub copies: Vec<CopyTable>,
    /// Measurement of all pairs, if requested.
    pub pairs: Option<PairsTable>,
}

impl Suite {
    /// Reads a suite and the files that it names. A bare name, such as `quick`, is looked up by [`Shipped::find`].
    ///
    /// # Errors
    /// Usage errors that name file, line and key.
    pub fn load(requested: &Path) -> Result<Suite> {
        let path = Shipped::Suite.find(requested).ok_or_else(|| Error::usage(Shipped::Suite.unknown(requested)))?;
        let text = read_text(&path, &Place::flag("SUITE"))?;
        Suite::parse(&path, &text)
    }

    /// Reads a suite from its text; `path` is where the files that it names are looked for.
    ///
    /// # Errors
    /// As [`Suite::load`].
    pub fn parse(path: &Path, text: &str) -> Result<Suite> {
        let mut hash = Sha256::new();
        add_to_hash(&mut hash, text);
        let mut root = Table::parse(path, text)?;
        let name = match root.take("name") {
            Some(name) => name.text()?.to_owned(),
            None => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        };
        let description = root.take("description").map(|item| item.text().map(str::to_owned)).transpose()?;
        let (mut settings, cadences) = read_measure(root.take("measure").map(Item::table).transpose()?)?;
        let calibrate = root.take("calibrate").map(Item::table).transpose()?;
        let calibrate_place = calibrate.as_ref().map(|table| table.place.clone());
        settings.calibrate = calibrate.map(Calibrate::read).transpose()?;
        let mut sweeps = Vec::new();
        for item in root.tables("sweep")? {
            sweeps.push(Sweep::read(item, &cadences)?);
        }
        let pairs = root.take("pairs").map(|item| item.table().and_then(PairsTable::read)).transpose()?;
        let (layouts, ranking) = WorkReader { path, hash: &mut hash }.layouts(&mut root)?;
        let compute = ComputeTable::all_of(&mut root, path, &mut hash)?;
        let copies = CopyTable::all_of(&mut root)?;
        let place = root.place.clone();
        root.finish()?;
        let suite = Suite {
            name,
            description: description.unwrap_or_default(),
            path: path.to_owned(),
            sha256: hexadecimal(hash),
            settings,
            cadences,
            sweeps,
            layouts,
            ranking,
            compute,
            copies,
            pairs,
        };
        if let Some(place) = calibrate_place.filter(|_| suite.sweeps.iter().all(|sweep| sweep.bytes.len() < 2)) {
            return Err(place.wrong("chooses sizes between those of a [[sweep]]; give one of at least two sizes"));
        }
        let has_no_tables = suite.sweeps.is_empty() && suite.compute.is_empty() && suite.copies.is_empty();
        let without_cases = has_no_tables && suite.pairs.is_none() && suite.ranking.is_none();
        if without_cases && suite.layouts.iter().all(|layout| layout.work.is_none()) {
            let problem = "names nothing to run; give at least one [[sweep]], [pairs], a [model] with a [[layout]] or a [ranking], a [[compute]] or a [[copy]]";
            return Err(place.wrong(problem));
        }
        Ok(suite)
    }
}

// Reads a suite's `[measure]` table: sampling settings and cadences.

/// Most independent repetitions of a case; more would be a suite of its own.
pub const MOST_REPLICATES: u32 = 1000;

/// Reads the table; what it leaves out has the default of [`RunSettings`].
pub(super) fn read_measure(table: Option<Table>) -> Result<(RunSettings, Vec<Cadence>)> {
    let mut settings = RunSettings::default();
    let mut cadences = BOTH_CADENCES.to_vec();
    let Some(mut table) = table else { return Ok((settings, cadences)) };
    table.set("precision", &mut settings.precision, |item| item.fraction(0.0, 1.0))?;
    let (minimum, maximum) = (table.take("minimum_samples"), table.take("maximum_samples"));
    if let Some(item) = &minimum {
        settings.minimum_samples = item.count()?;
    }
    if let Some(item) = &maximum {
        settings.maximum_samples = item.count()?;
    }
    if let Some(item) = maximum.or(minimum)
        && settings.minimum_samples > settings.maximum_samples
    {
        let (least, most) = (settings.minimum_samples, settings.maximum_samples);
        return Err(item.wrong(format!("at least {least} samples and at most {most} cannot both hold")));
    }
    settings.iterations = table.take("iterations").map(|item| item.count()).transpose()?;
    settings.warm_up_iterations =
        table.take("warm_up_iterations").map(|item| item.count_within(0..=u32::MAX)).transpose()?;
    if let Some(item) = table.take("case_budget") {
        settings.case_budget = item.seconds()?;
        if settings.case_budget.0 <= 0.0 || settings.case_budget.0 > 86_400.0 {
            return Err(item.wrong(format!("found {}; accepted: more than 0 s, up to a day", settings.case_budget)));
        }
    }
    table.set("replicates", &mut settings.replicates, |item| item.count_within(1..=MOST_REPLICATES))?;
    table.set("warm_buffers", &mut settings.warm_buffers, |item| item.truth())?;
    table.set("start", &mut settings.start, |item| item.parsed(str::parse))?;
    table.set("timing", &mut settings.timing, |item| item.parsed(str::parse))?;
    table.set("verify", &mut settings.verify, |item| item.truth())?;
    table.set("seed", &mut settings.seed, |item| item.whole(0..=u64::MAX))?;
    table.set("cadences", &mut cadences, read_cadences)?;
    table.finish()?;
    Ok((settings, cadences))
}

// Sampling settings: the checked form of a suite's `[measure]` table and of the flags that override it.

/// Sampling settings, as suites and flags give them and the header of a record states them. A record leaves out the last ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Settings")]
pub struct RunSettings {
    /// Requested half width of the median's 95 % interval, relative to the median.
    pub precision: f64,
    /// Fewest samples of a case and replicate.
    pub minimum_samples: u32,
    /// Most samples of a case and replicate.
    pub maximum_samples: u32,
    /// Time budget of a case and replicate, warm-up and checks not counted.
    #[serde(rename = "case_budget_seconds")]
    pub case_budget: Seconds,
    /// Independent repetitions, each with fresh communicators and a new order of the cases.
    pub replicates: u32,
    /// One buffer for all iterations instead of a rotation that exceeds the last-level cache.
    pub warm_buffers: bool,
    /// How the ranks start an isolated call together, where their clocks allow it; absent where at an agreed time.
    #[serde(default, skip_serializing_if = "ClockMethod::is_synchronised")]
    pub start: ClockMethod,
    /// Between which readings streaming calls are timed; absent where between marks.
    #[serde(default, skip_serializing_if = "Timing::is_by_marks")]
    pub timing: Timing,
    /// Check data before and after timing.
    pub verify: bool,
    /// The time that all cases together may take (`--within`): first a short round over all of them, then `replicates` less one
    /// further rounds over those whose interval is widest. Absent where every case has a budget of its own.
    #[serde(rename = "within_seconds", default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Seconds>,
    /// Repeat all cases with rolling checks and changing data for the time of `within_seconds` (`--soak`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub soak: bool,
    /// Take exactly this many calls instead of stopping by precision (`-n` of the sweep).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iterations: Option<u32>,
    /// Take the numbers of calls and warm-up calls of this tool (`--like`), which depend on the size, unless they are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub calls_like: Option<Peer>,
    /// Run exactly this many iterations before timing instead of waiting until times are stationary (`-w` of the
    /// sweep).
    #[serde(skip)]
    pub warm_up_iterations: Option<u32>,
    /// Seed of data and order. The header of a record has it in a field of its own.
    #[serde(skip)]
    pub seed: u64,
    /// How sizes are added to sweeps during the run, if they are.
    #[serde(skip)]
    pub calibrate: Option<Calibrate>,
    /// Measure the last replicate in the order of the table, so that its rows complete one after another.
    #[serde(skip)]
    pub last_in_order: bool,
}

/// Rounds of a soak last ten seconds each, within these bounds on their number: a round adds a line to the record for every case.
const SOAK_ROUND_SECONDS: f64 = 10.0;

const SOAK_ROUNDS: (f64, f64) = (3.0, 120.0);

/// Default number of rounds of a run with a time budget: a short one and one that divides the remaining time.
pub const ROUNDS_WITHIN: u32 = 2;

impl RunSettings {
    /// The same with a time budget for all cases together.
    ///
    /// # Errors
    /// A usage error if the settings leave no choice to the budget.
    pub fn divided(self, within: Seconds) -> Result<RunSettings> {
        let refused = |why: &str| Err(Error::usage(format!("--within {within}: {why}")));
        if self.iterations.is_some() {
            return refused(
                "-n/--iters takes a fixed number of calls, so no time is left to divide; leave one of them out",
            );
        }
        if self.calls_like.is_some() {
            return refused("--like takes a fixed number of calls; leave one of them out, or add --precision");
        }
        if self.calibrate.is_some() {
            return refused(
                "a suite with [calibrate] has a budget of its own, `budget` in that table; leave one of them out",
            );
        }
        Ok(RunSettings { within: Some(within), replicates: self.replicates.max(ROUNDS_WITHIN), ..self })
    }

    /// The same for repeating all cases with rolling checks for a time.
    ///
    /// # Errors
    /// A usage error if the settings leave the time no choice, or switch the checks off.
    pub fn soaked(self, time: Seconds) -> Result<RunSettings> {
        let refused = |why: &str| Err(Error::usage(format!("--soak {time}: {why}")));
        if self.iterations.is_some() || self.calls_like.is_some() {
            return refused(
                "a fixed number of calls (-n/--iters, --like) ends before the time does; leave one of them out",
            );
        }
        if self.calibrate.is_some() {
            return refused("a suite with [calibrate] adds cases until it knows a curve; leave that table out");
        }
        if !self.verify {
            return refused("a soak looks for wrong data, and checking is switched off (-c 0, verify = false)");
        }
        let rounds = (time.0 / SOAK_ROUND_SECONDS).clamp(SOAK_ROUNDS.0, SOAK_ROUNDS.1) as u32;
        Ok(RunSettings { within: Some(time), soak: true, last_in_order: false, replicates: rounds, ..self })
    }
}

impl RunSettings {
    /// The settings that fixed the number of calls, if any.
    pub fn fixed_calls(&self) -> Option<String> {
        let given = self.iterations.map(|count| format!("{count} calls"));
        given.or_else(|| Some(format!("as many calls as {} makes", self.calls_like?.name())))
    }

    /// Minimum number of replicates of every case in a complete record.
    pub fn fewest_replicates(&self) -> u32 {
        if self.within.is_some() { 1 } else { self.replicates }
    }

    /// Settings for a case of this size.
    pub fn at(&self, bytes: Bytes) -> Cow<'_, RunSettings> {
        let Some(peer) = self.calls_like else { return Cow::Borrowed(self) };
        let calls = peer.calls(bytes);
        Cow::Owned(RunSettings {
            iterations: self.iterations.or(Some(calls.timed)),
            warm_up_iterations: self.warm_up_iterations.or(Some(calls.warm_up)),
            ..self.clone()
        })
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        RunSettings {
            precision: 0.02,
            minimum_samples: 30,
            maximum_samples: 100_000,
            case_budget: Seconds(1.0),
            replicates: 3,
            warm_buffers: false,
            start: ClockMethod::default(),
            timing: Timing::default(),
            verify: true,
            within: None,
            soak: false,
            iterations: None,
            calls_like: None,
            warm_up_iterations: None,
            seed: 20_240_613,
            calibrate: None,
            last_in_order: false,
        }
    }
}

// Reads a suite's `[calibrate]` table: how sizes are added between those of the sweeps, and until when.

/// Upper limit on the time for choosing sizes.
const LONGEST_SECONDS: f64 = 7.0 * 86_400.0;

/// How sizes are added to a sweep: in rounds, each where the curve is least certain so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibrate {
    /// A curve is left alone once it is expected to be no more wrong than this anywhere, and the size that was measured last was
    /// predicted as well as this.
    pub until_error: f64,
    /// Most sizes of a curve, with those that it starts with.
    pub most_sizes: u32,
    /// No round is begun after so much time.
    pub budget: Seconds,
}

impl Default for Calibrate {
    fn default() -> Self {
        Calibrate { until_error: 0.05, most_sizes: 20, budget: Seconds(600.0) }
    }
}

impl Calibrate {
    /// Reads the table; what it leaves out has the default.
    pub(super) fn read(mut table: Table) -> Result<Calibrate> {
        let mut calibrate = Calibrate::default();
        table.set("until_error", &mut calibrate.until_error, |item| item.fraction(0.0, 1.0))?;
        table.set("most_sizes", &mut calibrate.most_sizes, |item| item.count_within(3..=MOST_SIZES as u32))?;
        if let Some(item) = table.take("budget") {
            calibrate.budget = item.seconds()?;
            if calibrate.budget.0 <= 0.0 || calibrate.budget.0 > LONGEST_SECONDS {
                return Err(item.wrong(format!("found {}; accepted: more than 0 s, up to a week", calibrate.budget)));
            }
        }
        table.finish()?;
        Ok(calibrate)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use commgauge_base::units::{Bytes, Seconds};
    use std::fs;

    const CONFIG: &str = r#"{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8,
        "intermediate_size": 128, "vocab_size": 256, "max_position_embeddings": 512}"#;
    const MODEL: &str =
        "[model]\nconfig = 'tiny/config.json'\n[training]\nsequence = 128\nmicro_batches = 2\n[layout]\ntp = 2\n";

    /// Reads a suite from a folder with one valid model, one that lacks a field and one that is not JSON.
    fn read_suite(text: &str) -> Result<Suite> {
        let folder = tempfile::tempdir().unwrap();
        for (name, config) in [
            ("tiny", CONFIG.to_owned()),
            ("lacking", CONFIG.replace("vocab_size", "words")),
            ("broken", "{\n?".to_owned()),
        ] {
            fs::create_dir(folder.path().join(name)).unwrap();
            fs::write(folder.path().join(name).join("config.json"), config).unwrap();
        }
        let path = folder.path().join("bad.toml");
        fs::write(&path, text).unwrap();
        Suite::load(&path)
    }

    #[test]
    fn a_mistake_is_refused_with_file_line_and_key() {
        let sweep = |lines: &str| format!("[[sweep]]\ncollectives = ['all_reduce']\n{lines}");
        let training = |line: &str| format!("{MODEL}[measure]\n").replace("micro_batches = 2", line);
        for (text, expected) in [
            ("", "bad.toml: the file: names nothing to run"),
            ("name = 3", "bad.toml:1: name: found 3; accepted: a text in quotes"),
            ("nam = 'x'", "bad.toml:1: nam: unknown key; did you mean `name`? Known here: name"),
            (
                "[measure]\nprecision = 2",
                "bad.toml:2: measure.precision: found 2; accepted: a number above 0 and up to 1",
            ),
            (
                "[measure]\ncase_budget = '2 weeks'",
                "bad.toml:2: measure.case_budget: found `2 weeks`; accepted: a time",
            ),
            (
                "[measure]\ncase_budget = '0s'",
                "bad.toml:2: measure.case_budget: found 0.000 ns; accepted: more than 0 s",
            ),
            ("[measure]\nreplicates = 0", "measure.replicates: found 0; accepted: a whole number from 1 to 1000"),
            ("[measure]\nminimum_samples = 9\nmaximum_samples = 8", "bad.toml:3: measure.maximum_samples: at least 9"),
            ("[measure]\ncadences = 'both'", "measure.cadences: found `both`; accepted: streaming, isolated"),
            (&sweep(""), "bad.toml:1: sweep[0]: `bytes` is missing"),
            (
                &sweep("bytes = '64MB'"),
                "bad.toml:3: sweep[0].bytes: found `64MB`, which nccl-tests reads as 67108864 bytes",
            ),
            (&sweep("bytes = ['1KiB', 0]"), "bad.toml:3: sweep[0].bytes[1]: found a size of 0"),
            (&sweep("bytes = '100TiB'"), "bad.toml:3: sweep[0].bytes: found 100 TiB; accepted: up to 64 TiB"),
            (&sweep("bytes = { from = '2KiB', to = '1KiB' }"), "sweep[0].bytes: the smallest size, 2 KiB, is above"),
            (&sweep("bytes = { from = '8B', to = '1KiB', factor = 1 }"), "sweep[0].bytes.factor: found 1; accepted"),
            (&sweep("bytes = { from = '8B', to = '1GiB', step = '8B' }"), "gives more than 1000 sizes"),
            (&sweep("bytes = { from = '8B', to = '9B', factor = 2, step = 1 }"), "cannot be combined with `factor`"),
            (&sweep("bytes = 8\nelement_type = 'int8'"), "unknown key; did you mean `element_types`?"),
            (
                &sweep("bytes = 8\nelement_types = 'int7'"),
                "bad.toml:4: sweep[0].element_types: found element type `int7`",
            ),
            (&sweep("bytes = 8\nroots = 1"), "bad.toml:4: sweep[0].roots: none of the collectives has a root"),
            (&sweep("bytes = 8\nplacements = 'inside'"), "found `inside`; accepted: in-place, out-of-place"),
            (&sweep("bytes = 8\naxis = 'up'"), "found axis `up`; accepted: world, tp, cp, ep, dp, pp"),
            (
                "[[sweep]]\ncollectives = ['all_reduse']",
                "sweep[0].collectives[0]: found collective `all_reduse`; accepted",
            ),
            ("[[sweep]]\ncollectives = []", "bad.toml:2: sweep[0].collectives: found an empty list"),
            (
                "[[sweep]]\ncollectives = 'ping_pong'\nbytes = 8\nplacements = 'in-place'",
                "ping_pong exists out-of-place only",
            ),
            ("[pairs]\nbetween = 'hosts'", "bad.toml:2: pairs.between: found `hosts`; accepted: nodes, ranks"),
            (
                "[pairs]\nlatency_bytes = '8MiB'",
                "bad.toml:2: pairs.latency_bytes: a latency message of 8 MiB is not below",
            ),
            ("[pairs]\nbandwidth_bytes = '4GiB'", "pairs.bandwidth_bytes: found 4 GiB; accepted: up to"),
            ("[pairs]\npairs = 'some'", "bad.toml:2: pairs.pairs: found `some`; accepted: all, screen"),
            ("[pairs]\npairs = 'screen'\nbetween = 'ranks'", "bad.toml:2: pairs.pairs: nodes are screened, not ranks"),
            ("[pairs]\nrounds = 3", "bad.toml:2: pairs.rounds: unknown key"),
            ("sweep = 3", "bad.toml:1: sweep: found 3; accepted: a table"),
            ("[model]\nconfig = 'none/config.json'", "bad.toml:2: model.config: there is no file"),
            ("[model]\nconfig = 'tiny'", "bad.toml:2: model.config: "),
            ("[model]\npreset = 'none'", "bad.toml:2: model.preset: there is no model `none`: no "),
            ("[model]\nlayers = 3", "bad.toml:1: model: accepted: either `config`"),
            (
                "[model]\nconfig = 'tiny/config.json'\nlayers = 9",
                "model.layers: found 9; accepted: 1 to 8, the layers of tiny",
            ),
            ("[model]\nconfig = 'lacking/config.json'", "lacking/config.json: vocab_size: is missing"),
            ("[model]\nconfig = 'broken/config.json'", "broken/config.json:2:1: not JSON: "),
            ("[model]\nconfig = 'tiny/config.json'", "bad.toml: the file: [model] needs a [[layout]]"),
            ("[model]\nconfig = 'tiny/config.json'\n[layout]\ntp = 2", "[model] needs [training]"),
            ("[training]\nsequence = 8\nmicro_batches = 1", "bad.toml:1: training: needs a [model]"),
            (
                &training("micro_batches = 2\nglobal_batch = 3"),
                "training.micro_batches: cannot be combined with `global_batch`",
            ),
            (&training(""), "bad.toml:3: training: the size of a step is missing"),
            (&training("micro_batches = 2\ngradient_element_type = 'int8'"), "found int8; accepted: bfloat16, float16"),
            (&MODEL.replace("128", "1024"), "bad.toml:4: training.sequence: found 1024; tiny allows up to 512"),
            (&format!("{MODEL}ep = 0"), "layout.ep: found 0; accepted: a whole number from 1"),
            (&format!("{MODEL}order = 'tp-up'"), "layout.order: found `up` in `tp-up`; accepted"),
            (&format!("{MODEL}routing = 'odd'"), "layout.routing: unknown key"),
            (
                &training("micro_batches = 2\nrouting = 'odd'"),
                "training.routing: found routing `odd`; accepted: uniform",
            ),
            (&format!("{MODEL}order = 'tp-tp-cp-dp-pp'"), "layout.order: `tp-tp-cp-dp-pp` names tp twice"),
            (&format!("{MODEL}styles = 'odd'"), "found style `odd`; accepted: tensor, sequence, vocabulary, data"),
        ] {
            let error = read_suite(text).expect_err(text);
            assert!(error.to_string().contains(expected), "{text}\n  gave     {error}\n  expected {expected}");
            assert_eq!(error.exit_code(), 2, "{error}");
        }
    }

    #[test]
    fn an_embedded_suite_is_the_same_as_its_file_and_one_that_is_not_there_is_refused() {
        commgauge_base::testing::enter_checkout();
        let load = |requested: &str| Suite::load(Path::new(requested)).unwrap();
        let (here, embedded) = (load("quick"), load("embedded:suites/quick.toml"));
        assert_eq!(
            (here.path.as_path(), embedded.path.as_path()),
            (Path::new("suites/quick.toml"), Path::new("embedded:suites/quick.toml"))
        );
        assert_eq!((here.name, here.sha256), (embedded.name, embedded.sha256));
        for folder in ["suites", "tests"] {
            let error = Suite::load(Path::new(folder)).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().starts_with("there is no suite"), "{error}");
        }
    }

    #[test]
    fn all_suite_settings_are_read() {
        let text = format!(
            "name = 'mine'\n{MODEL}dp = 3\n[measure]\ncase_budget = '20ms'\niterations = 5\ncadences = 'isolated'\n\
             [[sweep]]\ncollectives = ['broadcast']\nroots = 'all'\nbytes = {{ from = '1KiB', to = '1MiB', factor = 32 }}\n"
        );
        let suite = read_suite(&text).unwrap();
        assert_eq!((suite.name.as_str(), suite.settings.case_budget), ("mine", Seconds(0.02)));
        assert_eq!((suite.settings.iterations, suite.cadences.as_slice()), (Some(5), &[Cadence::Isolated][..]));
        assert_eq!(suite.sweeps[0].bytes, [1 << 10, 1 << 15, 1 << 20].map(Bytes));
        assert_eq!(suite.sweeps[0].cadences, [Cadence::Isolated]);
        assert_eq!((suite.layouts[0].tp, suite.layouts[0].dp), (2, Some(3)));
    }

    #[test]
    fn the_hash_changes_with_the_suite_and_with_the_model() {
        let folder = tempfile::tempdir().unwrap();
        let load = |suite: &str, config: &str| {
            fs::create_dir_all(folder.path().join("tiny")).unwrap();
            fs::write(folder.path().join("tiny/config.json"), config).unwrap();
            fs::write(folder.path().join("s.toml"), suite).unwrap();
            Suite::load(&folder.path().join("s.toml")).unwrap().sha256
        };
        let first = load(MODEL, CONFIG);
        assert_eq!(first, load(MODEL, CONFIG));
        assert_ne!(first, load(&format!("{MODEL}\n"), CONFIG));
        assert_ne!(first, load(MODEL, &CONFIG.replace("128", "256")));
    }
}
