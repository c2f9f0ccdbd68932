//! Options of nccl-tests that are not flags of commgauge (its version 2.19.6, `src/common.cu`). A value that matches
//! the behaviour of commgauge is accepted; any other is rejected with the alternative, so that no option is ignored
//! silently.

use clap::error::Error;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// An option.
struct Foreign {
    letter: char,
    name: &'static str,
    /// Values that match the behaviour of commgauge.
    accepted: &'static [&'static str],
    /// The alternative to other values.
    instead: &'static str,
}

const fn foreign(
    letter: char,
    name: &'static str,
    accepted: &'static [&'static str],
    instead: &'static str,
) -> Foreign {
    Foreign { letter, name, accepted, instead }
}

const TABLE: [Foreign; 19] = [
    foreign(
        'g',
        "ngpus",
        &["1"],
        "a rank has one GPU here; start as many ranks, as with commgauge run -n 8 or mpirun -np 8",
    ),
    foreign(
        't',
        "nthreads",
        &["1"],
        "a rank is a process here; start as many ranks, as with commgauge run -n 8 or mpirun -np 8",
    ),
    // With one thread per process, as here, it makes no difference in nccl-tests either.
    foreign('p', "parallel_init", &["0", "1"], "ranks are processes, which start in parallel"),
    foreign('a', "average", &["3"], "times are those of the slowest rank, which is -a 3"),
    foreign('N', "run_cycles", &["1"], "--replicates repeats everything and gives one row with its spread"),
    foreign(
        'I',
        "per_iter_timing",
        &["0"],
        "calls are timed one by one in any case: --format json has the percentiles, --record FILE the samples",
    ),
    foreign('K', "per_iter_skip", &["0"], "-w/--warmup_iters makes as many calls before timing"),
    foreign('C', "report_cputime", &["0"], "times are those of completed calls"),
    foreign('M', "memory", &["0"], "memory of GPUs is not reported; a run that does not fit says so before it starts"),
    foreign('u', "unalign", &["0"], "buffers are always aligned"),
    foreign(
        'S',
        "report_timestamps",
        &["0"],
        "the header says when the run started, and --record FILE keeps what was done in order",
    ),
    foreign(
        'z',
        "blocking",
        &["0"],
        "--cadence isolated has each call start after all ranks are there, and times it by itself",
    ),
    foreign(
        'G',
        "cudagraph",
        &["0"],
        "--submit graph:CALLS --buffers allocated captures calls in a CUDA graph, with --backend nccl",
    ),
    foreign('R', "local_register", &["0"], "--buffers registered (-R 1) or symmetric (-R 2), with --backend nccl"),
    foreign('D', "device_implementation", &["0"], "calls are those of NCCL's host interface"),
    foreign(
        'V',
        "device_cta_count",
        &[],
        "there are no kernels of -D here; --max-ctas limits the thread blocks of NCCL's own, --version says the version",
    ),
    foreign('J', "output_file", &[], "--format json > FILE writes JSON, and --record FILE all samples"),
    foreign('y', "stream_null", &["0"], "calls go to a stream of their own"),
    // Its long name is also a flag of ours, in seconds too, but for one call.
    foreign(
        'T',
        "",
        &[],
        "--timeout SECONDS says how long a rank may stay in one call, --time-limit TIME how long the run may take",
    ),
];

/// All such options; they are only validated, so no value is stored.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NcclTestsFlags;

impl Foreign {
    fn read(&self, text: &str) -> Result<String, String> {
        match self.accepted {
            accepted if accepted.contains(&text) => Ok(text.to_owned()),
            [] => Err(format!("an option of nccl-tests; {}", self.instead)),
            accepted => Err(format!("accepted: {}; {}", accepted.join(", "), self.instead)),
        }
    }

    fn argument(&'static self) -> Arg {
        let id = if self.name.is_empty() { "nccl_tests_timeout" } else { self.name };
        let argument = Arg::new(id).short(self.letter).value_name("VALUE").hide(true);
        let argument = argument.value_parser(|text: &str| self.read(text));
        // Other programs answer -V alone with their version.
        let argument = if self.letter == 'V' { argument.num_args(0..=1).default_missing_value("") } else { argument };
        if self.name.is_empty() { argument } else { argument.long(self.name) }
    }
}

impl Args for NcclTestsFlags {
    fn augment_args(command: Command) -> Command {
        TABLE.iter().fold(command, |command, foreign| command.arg(foreign.argument()))
    }

    fn augment_args_for_update(command: Command) -> Command {
        NcclTestsFlags::augment_args(command)
    }
}

impl FromArgMatches for NcclTestsFlags {
    fn from_arg_matches(_: &ArgMatches) -> Result<NcclTestsFlags, Error> {
        Ok(NcclTestsFlags)
    }

    fn update_from_arg_matches(&mut self, _: &ArgMatches) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::programs::Sweep;
    use clap::Parser;

    fn parse(words: &[&str]) -> Result<Sweep, Error> {
        Sweep::try_parse_from([&["commgauge-sweep", "all_reduce"], words].concat())
    }

    #[test]
    fn default_behaviour_is_accepted_and_the_rest_refused_with_the_alternative() {
        for foreign in &TABLE {
            let letter = format!("-{}", foreign.letter);
            let long = format!("--{}", foreign.name);
            let flags = [letter.as_str(), long.as_str()];
            for flag in &flags[..if foreign.name.is_empty() { 1 } else { 2 }] {
                for value in foreign.accepted {
                    assert!(parse(&[flag, value]).is_ok(), "{flag} {value}");
                }
                let refused = parse(&[flag, "7"]).expect_err(flag);
                let text = refused.to_string();
                assert!(
                    refused.exit_code() == 2 && text.contains(foreign.instead) && text.contains('7'),
                    "{flag}: {text}"
                );
            }
        }
    }

    #[test]
    fn lines_of_other_programs_that_call_nccl_tests_are_read() {
        // SuperBench, ReFrame's tests of CSCS, Ramble.
        for line in [
            "-b 8 -e 8G -f 2 -g 1 -c 0 -n 20 -w 5",
            "--minbytes 1024M --maxbytes 1024M --ngpus 1",
            "-b 8 -e 8G -f 2 -g 1 -w 5 --iters 100 -c 1",
            "-b8 -e 64M -f2 -t1 -g1 -p 1 -z0 -G0 -a3 -o sum -d float -r 0 -m 1",
        ] {
            let words: Vec<&str> = line.split(' ').collect();
            parse(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
    }

    #[test]
    fn the_version_flag_has_only_a_long_name_as_v_is_an_option_of_nccl_tests() {
        assert_eq!(parse(&["--version"]).unwrap_err().kind(), clap::error::ErrorKind::DisplayVersion);
        assert!(parse(&["-V", "16"]).unwrap_err().to_string().contains("--max-ctas"));
        assert!(parse(&["-V"]).unwrap_err().to_string().contains("--version says the version"));
    }
}
