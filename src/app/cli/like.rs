//! `--like`: sets flags to the defaults of another tool. The number of calls, which depends on the size, is in
//! `config`.

use clap::Arg;
use clap::builder::ArgPredicate;
use std::sync::LazyLock;

/// The flag itself.
const LIKE: &str = "like";

/// Its values, in the order of the columns of [`TOOL_DEFAULTS`].
const TOOLS: [&str; 3] = ["nccl-tests", "osu", "imb"];

/// Each tool's defaults, as values of our flags, by their names in the definition.
///
/// nccl-tests walks through the buffers of its largest size (`startColl` of its `src/common.cu`), which exceeds the
/// cache; OSU and IMB reuse one buffer, and run a barrier before each timed call (`osu_allreduce.c`; `-sync` of IMB).
const TOOL_DEFAULTS: [(&str, [&str; 3]); 8] = [
    ("cadence", ["streaming", "isolated", "isolated"]),
    ("placement", ["both", "one", "one"]),
    ("warm_buffers", ["false", "true", "true"]),
    ("start", ["synchronised", "barrier", "barrier"]),
    ("timing", ["whole", "marks", "marks"]),
    ("check", ["1", "0", "0"]),
    ("replicates", ["1", "1", "1"]),
    ("format", ["nccl-tests", "osu", "imb"]),
];

/// The flag; of those listed above `--like` sets the value, unless it is given. A negative number is its value, so that the error names it;
/// `-64M` is no number to clap, so that a size may begin with a hyphen.
pub fn with_tool_defaults(flag: Arg) -> Arg {
    let takes_value = flag.get_action().takes_values();
    let is_size = flag.get_value_names().is_some_and(|names| names[0] == "BYTES");
    let flag = match is_size {
        true => flag.allow_hyphen_values(true),
        false => flag.allow_negative_numbers(takes_value),
    };
    let Some((_, values)) = TOOL_DEFAULTS.iter().find(|(name, _)| flag.get_id() == name) else { return flag };
    let when = TOOLS.into_iter().zip(values).map(|(tool, value)| (LIKE, ArgPredicate::from(tool), Some(*value)));
    flag.default_value_ifs(when)
}

// Options of nccl-tests that are not flags of commgauge (its version 2.19.6, `src/common.cu`). A value that matches
// the behaviour of commgauge is accepted; any other is rejected with the alternative, so that no option is ignored
// silently.

/// An option.
struct Foreign {
    letter: char,
    name: &'static str,
    /// Values that match the behaviour of commgauge.
    accepted: Vec<&'static str>,
    /// The alternative to other values.
    instead: &'static str,
}

static TABLE: LazyLock<Vec<Foreign>> = LazyLock::new(|| {
    let rows = include_str!("nccl_tests_options.txt").lines().filter(|line| !line.starts_with('#'));
    rows.filter_map(Foreign::of).collect()
});

/// All such options; they are only validated, so no value is stored.
pub fn nccl_tests_options() -> impl Iterator<Item = Arg> {
    TABLE.iter().map(Foreign::argument)
}

impl Foreign {
    /// The option of a line of the table.
    fn of(line: &'static str) -> Option<Foreign> {
        let mut parts = line.split('|').map(str::trim);
        let (letter, name) = (parts.next()?.chars().next()?, parts.next()?);
        let accepted = parts.next()?.split(',').filter(|value| !value.is_empty()).collect();
        Some(Foreign { letter, name, accepted, instead: parts.next()? })
    }

    fn read(&self, text: &str) -> Result<String, String> {
        match self.accepted.as_slice() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::suite::SuiteWork;
    use crate::cli::work::{Sweep, Work};
    use crate::report::Format;
    use clap::{Parser, ValueEnum};
    use commgauge_base::sample::{Cadence, ClockMethod, Timing};
    use commgauge_model::config::Peer;

    /// Result of a command line: cadences, placements, warm, checked, replicates, calls of 8 B and of 64 KiB, format.
    fn parsed(line: &str) -> (String, String, bool, bool, u32, [Option<u32>; 2], Format) {
        let sweep = Sweep::try_parse_from(std::iter::once("commgauge-sweep").chain(line.split(' ')));
        let sweep = sweep.unwrap_or_else(|error| panic!("{line}: {error}"));
        let SuiteWork { plan, settings, .. } = sweep.plan(2).unwrap();
        let mut cadences: Vec<Cadence> = plan.cases.iter().map(|case| case.cadence).collect();
        let mut placements: Vec<&str> = plan.cases.iter().map(|case| case.placement.name()).collect();
        cadences.dedup();
        placements.sort_unstable();
        placements.dedup();
        let calls = [8, 64 << 10].map(|bytes| settings.at(commgauge_base::units::Bytes(bytes)).iterations);
        let cadences: Vec<String> = cadences.iter().map(ToString::to_string).collect();
        let format = sweep.launched().output.format();
        (
            cadences.join(" "),
            placements.join(" "),
            settings.warm_buffers,
            settings.verify,
            settings.replicates,
            calls,
            format,
        )
    }

    #[test]
    fn like_sets_what_the_tool_does_and_every_flag_that_is_given_wins() {
        let text = str::to_owned;
        for (line, expected) in [
            (
                "--like nccl-tests",
                (
                    text("streaming"),
                    text("in-place out-of-place"),
                    false,
                    true,
                    1,
                    [Some(20), Some(20)],
                    Format::NcclTests,
                ),
            ),
            (
                "--like osu",
                (text("isolated"), text("out-of-place"), true, false, 1, [Some(1000), Some(100)], Format::Osu),
            ),
            (
                "--like imb",
                (text("isolated"), text("out-of-place"), true, false, 1, [Some(1000), Some(640)], Format::Imb),
            ),
            (
                "--like osu -n 7 -c 1 --cadence streaming --placement in --replicates 2 --format csv",
                (text("streaming"), text("in-place"), true, true, 2, [Some(7), Some(7)], Format::Csv),
            ),
            (
                "--like osu --precision 5%",
                (text("isolated"), text("out-of-place"), true, false, 1, [None, None], Format::Osu),
            ),
        ] {
            assert_eq!(parsed(&format!("all_reduce -b 8 -e 8 {line}")), expected, "{line}");
        }
        for (line, start) in [
            ("--like nccl-tests", ClockMethod::Synchronised),
            ("--like osu", ClockMethod::Barrier),
            ("--like imb", ClockMethod::Barrier),
            ("--like imb --start synchronised", ClockMethod::Synchronised),
        ] {
            let words = format!("commgauge-sweep all_reduce {line}");
            let sweep = Sweep::try_parse_from(words.split(' ')).unwrap();
            assert_eq!(sweep.plan(2).unwrap().settings.start, start, "{line}");
        }
        for (line, timing) in [
            ("--like nccl-tests", Timing::Whole),
            ("--like nccl-tests --timing marks", Timing::Marks),
            ("--like osu", Timing::Marks),
            ("--timing whole", Timing::Whole),
        ] {
            let words = format!("commgauge-sweep all_reduce {line}");
            let sweep = Sweep::try_parse_from(words.split(' ')).unwrap();
            assert_eq!(sweep.plan(2).unwrap().settings.timing, timing, "{line}");
        }
        // A collective that exists in place only is measured in place.
        assert_eq!(parsed("broadcast -b 8 -e 8 --like osu").1, "in-place");
    }

    #[test]
    fn every_tool_has_its_column() {
        let names: Vec<&str> = Peer::value_variants().iter().map(|peer| peer.name()).collect();
        let values = Peer::value_variants().iter().filter_map(|peer| peer.to_possible_value());
        assert!(values.map(|value| value.get_name().to_owned()).eq(names.iter().copied()));
        assert_eq!(names, super::TOOLS);
    }

    fn parse(words: &[&str]) -> clap::error::Result<Sweep> {
        Sweep::try_parse_from([&["commgauge-sweep", "all_reduce"], words].concat())
    }

    #[test]
    fn default_behaviour_is_accepted_and_the_rest_refused_with_the_alternative() {
        for foreign in TABLE.iter() {
            let letter = format!("-{}", foreign.letter);
            let long = format!("--{}", foreign.name);
            let flags = [letter.as_str(), long.as_str()];
            for flag in &flags[..if foreign.name.is_empty() { 1 } else { 2 }] {
                for value in &foreign.accepted {
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
