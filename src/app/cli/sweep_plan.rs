//! Combines the flags of `commgauge-sweep` into a sweep, its plan and sampling settings.

use super::suite::SuiteWork;
use super::sweep::{Chosen, SweepArguments, parse_all_or};
use commgauge_base::collective::{Collective, ReduceOp};
use commgauge_base::digest;
use commgauge_base::element::ElementType;
use commgauge_base::error::{Error, Result};
use commgauge_base::geometry::Splits;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_base::variant::Variants;
use commgauge_model::config::{Growth, Place, ROUNDS_WITHIN, Roots, Rounds, RunSettings, Sweep, growing_sizes};
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::WorkPlan;

/// Default duration of a sweep: a constant, plus a time for each case. Four collectives of 24 sizes, in and out of
/// place and in both cadences (384 cases) take 17 s.
const BASE_SECONDS: f64 = 2.0;
const SECONDS_PER_CASE: f64 = 0.04;
/// Default smallest and largest size, as in nccl-tests.
const DEFAULT_BYTES: Bytes = Bytes(32 << 20);

impl SweepArguments {
    /// The plan on `world_size` ranks, the sampling settings, and the request as stored in the record. The hash is over
    /// the sweep and the settings, so equal requests have equal hashes however they were written.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn plan(&self, world_size: u32) -> Result<SuiteWork> {
        let sweep = self.sweep()?;
        let plan = WorkPlan::from_sweep(&sweep, world_size)?;
        let settings = self.settings(plan.cases.len())?;
        let names: Vec<_> = sweep.collectives.iter().map(|collective| collective.name()).collect();
        let name = if names.len() == Collective::ALL.len() { "all".to_owned() } else { names.join(",") };
        let sha256 = digest::sha256(format!("{sweep:?} {settings:?}"));
        let facts = SuiteFacts { name: format!("sweep {name}"), path: None, sha256, model: None, layout: None };
        Ok(SuiteWork { plan, settings, facts })
    }

    /// Sampling settings for this many cases.
    fn settings(&self, cases: usize) -> Result<RunSettings> {
        let sampling = &self.sampling;
        // The number of calls of another tool is ignored if there is a precision or a budget.
        let stops_itself = sampling.precision.is_some() || sampling.budget.is_some();
        let calls_like = self.like.filter(|_| !stops_itself);
        let settings = RunSettings { calls_like, rounds: Rounds::LastInOrder, ..sampling.settings() };
        let has_duration = sampling.iterations.is_some() || sampling.replicates.is_some() || sampling.budget.is_some();
        let has_duration = has_duration || calls_like.is_some();
        if let Some(time) = self.soak {
            return settings.soaked(time);
        }
        let within = match self.within {
            None if has_duration => return Ok(settings),
            None => Seconds(BASE_SECONDS + SECONDS_PER_CASE * cases as f64),
            Some(within) => within,
        };
        if let Some(replicates) = sampling.replicates.filter(|replicates| *replicates < ROUNDS_WITHIN) {
            return Err(Error::usage(format!(
                "--replicates {replicates} with --within {within}: the time is divided by what a first replicate shows; accepted: \
                 {ROUNDS_WITHIN} and more, or leave one of them out"
            )));
        }
        let replicates = sampling.replicates.unwrap_or(ROUNDS_WITHIN);
        RunSettings { replicates, case_budget: sampling.budget.unwrap_or(within), ..settings }.divided(within)
    }

    fn sweep(&self) -> Result<Sweep> {
        let types_place = Place::flag("-d/--datatype");
        let element_types = listed(&self.element_types, &ElementType::ALL, &types_place)?;
        let reduce_ops = listed(&self.reduce_ops, &ReduceOp::ALL, &Place::flag("-o/--op"))?;
        let named = self.collectives.iter().chain(&self.collective).flat_map(|list| list.0.iter().copied());
        let collectives = expand(named.map(Chosen::One).collect(), &Collective::ALL);
        let sweep = Sweep {
            place: Place::flag("the sweep"),
            roots_place: Place::flag("-r/--root"),
            axis: commgauge_model::config::AXES[0],
            solo: false,
            collectives,
            element_types,
            reduce_ops,
            roots: self.roots()?,
            bytes: self.sizes()?,
            placements: self.placements(),
            splits: vec![self.splits.clone()],
            cadences: self.cadences(),
            variants: Variants::default(),
        };
        if self.splits != Splits::Equal && !sweep.collectives.iter().any(|collective| collective.has_splits()) {
            return Err(Place::flag("--splits").wrong("none of the collectives has splits; leave this out"));
        }
        if self.placement != "one" {
            sweep.refuse_missing_placements(&Place::flag("--placement"))?;
        }
        Ok(sweep)
    }

    fn sizes(&self) -> Result<Vec<Bytes>> {
        let (from, to) = match (self.minimum_bytes, self.maximum_bytes) {
            (Some(from), Some(to)) => (from, to),
            (Some(from), None) => (from, from.max(DEFAULT_BYTES)),
            (None, Some(to)) => (to.min(DEFAULT_BYTES), to),
            (None, None) => (DEFAULT_BYTES, DEFAULT_BYTES),
        };
        let (growth, flag) = match (self.step_factor, self.step_bytes) {
            (Some(factor), _) => (Growth::Factor(factor), "-b/-e/-f"),
            (None, Some(step)) => (Growth::Step(step), "-b/-e/-i"),
            (None, None) => (Growth::Factor(2), "-b/-e"),
        };
        growing_sizes(from, to, growth).map_err(|problem| Place::flag(flag).wrong(problem))
    }

    fn roots(&self) -> Result<Roots> {
        if self.roots.iter().any(|root| root == "all") {
            return Ok(Roots::All);
        }
        let place = Place::flag("-r/--root");
        let read = |text: &String| {
            text.parse().map_err(|_| place.wrong(format!("found `{text}`; accepted: a rank from 0, a list, or all")))
        };
        Ok(Roots::These(self.roots.iter().map(read).collect::<Result<_>>()?))
    }
}

fn listed<T>(texts: &[String], all: &[T], place: &Place) -> Result<Vec<T>>
where
    T: Copy + PartialEq + std::str::FromStr<Err = String>,
{
    let read = |text: &String| parse_all_or(text).map_err(|problem| place.wrong(problem));
    Ok(expand(texts.iter().map(read).collect::<Result<_>>()?, all))
}

/// The chosen values without duplicates.
fn expand<T: Copy + PartialEq>(chosen: Vec<Chosen<T>>, all: &[T]) -> Vec<T> {
    if chosen.contains(&Chosen::All) {
        return all.to_vec();
    }
    let mut ones = Vec::new();
    for choice in chosen {
        if let Chosen::One(one) = choice
            && !ones.contains(&one)
        {
            ones.push(one);
        }
    }
    ones
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use commgauge_base::collective::Placement;

    #[derive(Parser)]
    #[command(name = "commgauge")]
    struct Program {
        #[command(flatten)]
        sweep: SweepArguments,
    }

    fn parse(line: &str) -> std::result::Result<SweepArguments, clap::Error> {
        Program::try_parse_from(std::iter::once("commgauge-sweep").chain(line.split(' '))).map(|program| program.sweep)
    }

    fn plan(line: &str) -> Result<SuiteWork> {
        parse(line).unwrap().plan(4)
    }

    #[test]
    fn unreadable_values_are_usage_errors() {
        for line in [
            "-b 8",
            "all_reduse -b 8",
            "all_reduce -b 0",
            "all_reduce -b -8",
            "all_reduce -n 0",
            "all_reduce -c 2",
            "all_reduce -f 2 -i 8",
            "all_reduce --splits uneven",
            "all_reduce --placement inside",
            "all_reduce --precision 0",
            "all_reduce --budget 5",
            "all_reduce --soak 0",
            "all_reduce --soak 0s",
            "all_reduce --soak 2h --within 60s",
            "all_reduce --soak 2h --replicates 3",
        ] {
            let error = parse(line).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}: {error}");
        }
    }

    #[test]
    fn impossible_requests_are_refused_with_the_flag() {
        for (line, expected) in [
            ("all_reduce -b 64M -e 8", "-b/-e: the smallest size, 64 MiB, is above the largest, 8 B"),
            ("all_reduce -b 8 -e 64M -f 1", "-b/-e/-f: found a factor of 1; accepted: 2 and more"),
            ("all_reduce -b 8 -e 64M -i 8", "-b/-e/-i: gives more than 1000 sizes"),
            ("all_reduce -d float17", "-d/--datatype: found element type `float17`; accepted: int8"),
            ("all_reduce -o mulsumm", "-o/--op: found reduce operation `mulsumm`; accepted: sum"),
            ("broadcast -r 4", "-r/--root: found root 4; on axis world a group has 4 ranks, accepted: 0 to 3, or all"),
            ("broadcast -r first", "-r/--root: found `first`; accepted: a rank from 0"),
            ("ping_pong --placement in", "--placement: ping_pong exists out-of-place only"),
            ("all_reduce --splits skewed:1", "--splits: none of the collectives has splits; leave this out"),
            ("all_to_all_v --splits given:1,2", "the splits name 2 ranks; on axis world a group has 4"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
            assert_eq!(error.exit_code(), 2);
        }
    }

    #[test]
    fn a_sweep_ends_in_a_time_that_follows_from_its_cases_unless_flags_say_how_long() {
        for (line, within, replicates) in [
            ("all_reduce -b 8 -e 8", Some(2.0 + 4.0 * 0.04), 2),
            ("all_reduce all_gather reduce_scatter all_to_all -b 8 -e 64M", Some(17.36), 2),
            ("all_reduce -b 8 -e 64M --within 60s", Some(60.0), 2),
            ("all_reduce --within 60s --replicates 5 --budget 1s", Some(60.0), 5),
            ("all_reduce -b 8 -e 64M --precision 1%", Some(2.0 + 96.0 * 0.04), 2),
            ("all_reduce -n 20", None, 3),
            ("all_reduce --replicates 6", None, 6),
            ("all_reduce --budget 100ms", None, 3),
            ("all_reduce --soak 2h", Some(7200.0), 120),
            ("all_reduce --soak 3m", Some(180.0), 18),
            ("all_reduce --soak 5s", Some(5.0), 3),
        ] {
            let SuiteWork { plan, settings, .. } = plan(line).unwrap();
            let found = settings.within.map(|within| within.0);
            assert!(found.zip(within).map_or(found == within, |(a, b)| (a - b).abs() < 1e-9), "{line}: {found:?}");
            assert_eq!(settings.replicates, replicates, "{line}: {} cases", plan.cases.len());
        }
        for (line, expected) in [
            ("all_reduce -n 20 --within 60s", "--within 60.0 s: -n/--iters takes a fixed number of calls"),
            ("all_reduce --replicates 1 --within 60s", "accepted: 2 and more"),
            ("all_reduce -n 20 --soak 60s", "--soak 60.0 s: a fixed number of calls"),
            ("all_reduce --like osu --soak 60s", "--soak 60.0 s: a fixed number of calls"),
            ("all_reduce -c 0 --soak 60s", "checking is switched off"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.exit_code() == 2 && error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_flags_of_nccl_tests_mean_what_they_mean_there() {
        let SuiteWork { plan, settings, facts } =
            plan("all_reduce -b 8 -e 64M -f 2 -n 20 -w 5 -d half -o max -c 0 --cadence streaming --placement in")
                .unwrap();
        assert_eq!(plan.cases.len(), 24);
        let first = &plan.cases[0];
        assert_eq!(first.name(), "world/all_reduce/max/float16/8/in-place/streaming");
        assert_eq!(plan.cases.last().unwrap().op.bytes_total, Bytes(64 << 20));
        assert_eq!((settings.fixed_iterations, settings.fixed_warm_up, settings.verify), (Some(20), Some(5), false));
        assert_eq!((facts.name.as_str(), facts.path), ("sweep all_reduce", None));
    }

    #[test]
    fn long_and_short_flags_are_equivalent() {
        let letters = plan("all_reduce -b 8 -e 1M -f 4 -n 20 -w 5 -d float -o sum -r 0").unwrap();
        let long = "--collective all_reduce --min-bytes 8 --max-bytes 1M --step-factor 4 --iterations 20 --warm-up 5 \
                    --element-type float32 --reduce-op sum --root 0";
        let words: Vec<_> = long.split_whitespace().collect();
        let long = plan(&words.join(" ")).unwrap();
        assert_eq!(letters, long);
        assert_eq!(letters.facts.sha256.len(), 64);
        assert_ne!(letters.facts.sha256, plan("all_reduce -b 8 -e 1M -f 4").unwrap().facts.sha256);
    }

    #[test]
    fn all_means_every_type_and_operation_and_root() {
        let SuiteWork { plan: everything, .. } =
            plan("all_reduce -b 1K -e 1K -d all -o all --placement out --cadence streaming").unwrap();
        assert_eq!(everything.cases.len(), ElementType::ALL.len() * ReduceOp::ALL.len());
        let SuiteWork { plan: rooted, .. } = plan("broadcast -b 1K -e 1K -r all --cadence streaming").unwrap();
        assert_eq!(rooted.cases.len(), 4);
        assert!(rooted.cases.iter().all(|case| case.placement == Placement::InPlace));
    }

    #[test]
    fn sizes_left_out_are_those_of_nccl_tests() {
        for (line, first, last) in [
            ("all_reduce", 32 << 20, 32 << 20),
            ("all_reduce -b 8M", 8 << 20, 32 << 20),
            ("all_reduce -e 8", 8, 8),
            ("all_reduce -b 1G", 1 << 30, 1 << 30),
        ] {
            let sizes = parse(line).unwrap().sizes().unwrap();
            assert_eq!((sizes[0], sizes[sizes.len() - 1]), (Bytes(first), Bytes(last)), "{line}");
        }
    }

    #[test]
    fn the_help_answers_what_each_flag_means() {
        use clap::CommandFactory;
        let help = Program::command().term_width(100).render_long_help().to_string();
        insta::assert_snapshot!(help);
    }
}
