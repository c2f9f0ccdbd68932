//! The flags of `commgauge-pairs`, and the resulting plan.

use super::suite::SuiteWork;
use super::sweep::SamplingArguments;
use clap::Args;
use commgauge_base::digest;
use commgauge_base::error::Result;
use commgauge_base::units::{Bytes, Seconds};
use commgauge_model::config::RunSettings;
use commgauge_model::record::line::SuiteFacts;
use commgauge_model::workload::{PairsRequest, WorkPlan};

/// There are many rounds, so each is short: with three replicates 16 ranks take half a minute.
const DEFAULT_BUDGET: Seconds = Seconds(0.1);

/// Latency and bandwidth between every two ranks.
#[derive(Args, Clone, Debug)]
pub struct PairsArguments {
    /// Message of the latency: its one-way time
    #[arg(long, value_name = "BYTES", default_value = "8", value_parser = parse_bytes, help_heading = "Measurement", hide_short_help = true)]
    latency_bytes: Bytes,

    /// Message of the bandwidth: 4M and 4MiB are binary, 4MB is decimal
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = parse_bytes, help_heading = "Measurement", hide_short_help = true)]
    bandwidth_bytes: Bytes,

    /// Measure each pair alone: not all pairs of a round at once; slower, and blind to links
    /// that pairs share
    #[arg(long, help_heading = "Measurement")]
    one_at_a_time: bool,

    /// Only every N-th rank: the ranks of a host, filled one host after the other, leave one on each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..), help_heading = "Measurement")]
    rank_stride: u32,

    #[command(flatten)]
    sampling: SamplingArguments,
}

impl PairsArguments {
    /// The requested work on that many ranks. The hash is over the measured cases and the settings, so equal requests
    /// have equal hashes however they were written.
    ///
    /// # Errors
    /// Usage errors that name the flag.
    pub fn work(&self, world_size: u32) -> Result<SuiteWork> {
        let request = PairsRequest {
            latency_bytes: self.latency_bytes,
            bandwidth_bytes: self.bandwidth_bytes,
            one_at_a_time: self.one_at_a_time,
            rank_stride: self.rank_stride,
        };
        let plan = WorkPlan::of_pairs(&request, world_size)?;
        let settings = self.settings();
        let facts = SuiteFacts {
            name: "pairs".to_owned(),
            path: None,
            sha256: digest::sha256(format!("{request:?} {settings:?}")),
            model: None,
            layout: None,
        };
        Ok(SuiteWork { plan, settings, facts })
    }

    fn settings(&self) -> RunSettings {
        let settings = self.sampling.settings();
        RunSettings { case_budget: self.sampling.budget.unwrap_or(DEFAULT_BUDGET), ..settings }
    }
}

fn parse_bytes(text: &str) -> std::result::Result<Bytes, String> {
    Bytes::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    #[command(name = "commgauge-pairs", disable_version_flag = true)]
    struct Program {
        #[command(flatten)]
        pairs: PairsArguments,
    }

    fn work(line: &str, ranks: u32) -> Result<SuiteWork> {
        let words = std::iter::once("commgauge-pairs").chain(line.split_whitespace());
        Program::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).pairs.work(ranks)
    }

    #[test]
    fn flags_that_make_no_sense_are_refused() {
        for (line, expected) in [
            ("--latency-bytes none", "found `none`"),
            ("--rank-stride 0", "0 is not in 1.."),
            ("--budget 0s", "more than 0 s"),
            ("--cadence isolated", "unexpected argument '--cadence'"),
        ] {
            let words = std::iter::once("commgauge-pairs").chain(line.split_whitespace());
            let error = Program::try_parse_from(words).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
        for (line, ranks, expected) in [
            ("", 1, "needs two ranks"),
            ("--latency-bytes 0", 4, "--latency-bytes: found 0 B"),
            ("--bandwidth-bytes 4G", 4, "--bandwidth-bytes: found 4 GiB"),
            ("--rank-stride 8", 8, "--rank-stride 8 leaves one of 8"),
        ] {
            let error = work(line, ranks).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn sixteen_ranks_are_done_in_less_than_a_minute() {
        let SuiteWork { plan, settings, facts } = work("", 16).unwrap();
        assert_eq!((plan.cases.len(), settings.replicates, settings.case_budget), (45, 3, DEFAULT_BUDGET));
        assert!(plan.estimated_seconds(&settings).0 < 30.0, "{}", plan.estimated_seconds(&settings));
        assert_eq!(facts.name, "pairs");
    }

    #[test]
    fn equal_requests_have_equal_hashes_and_others_do_not() {
        let hash = |line: &str| work(line, 4).unwrap().facts.sha256;
        assert_eq!(hash(""), hash("--bandwidth-bytes 4MiB --latency-bytes 8B --budget 100ms"));
        for other in ["--one-at-a-time", "--bandwidth-bytes 1M", "--seed 1", "--rank-stride 2"] {
            assert_ne!(hash(""), hash(other), "{other}");
        }
    }

    #[test]
    fn the_help_answers_what_each_flag_means() {
        insta::assert_snapshot!(Program::command().term_width(100).render_long_help().to_string());
    }
}
