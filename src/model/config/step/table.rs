//! The whole table of keys: its flags, its lists, and its page.

use super::framework::Work;
use super::keys::{Accepted, Flag, KeyPart, Needs, StepKey};
use super::{Serving, Training};
use std::sync::LazyLock;

/// Every row, in the order of help.
fn rows() -> impl Iterator<Item = &'static StepKey> {
    Training::rows().into_iter().chain(Serving::rows())
}

/// The names of the keys that the table of such work has and that have flags.
pub fn keys_of(work: Work) -> impl Iterator<Item = &'static str> {
    rows().filter(move |row| row.group.work == work && !matches!(row.flag, Flag::None)).map(|row| row.name)
}

/// The flag of a key, which both tables may have.
#[derive(Debug)]
pub struct StepFlag {
    /// The key.
    pub key: &'static str,
    /// With its dashes.
    pub flag: String,
    /// Another name of the flag.
    pub alias: Option<&'static str>,
    /// What it takes: `None` for true or false.
    pub value_name: Option<String>,
    /// Whether it says the opposite of the key.
    pub is_denial: bool,
    /// What it is about.
    pub heading: &'static str,
    /// What it means, the accepted values, and the default.
    pub help: String,
    /// The work whose table has the key.
    pub takes: Vec<Work>,
    /// Without what the key changes nothing.
    pub needs: Needs,
    /// Whether the short help has it.
    pub is_common: bool,
}

/// The flags of all keys, in the order of help.
pub static STEP_FLAGS: LazyLock<Vec<StepFlag>> = LazyLock::new(|| {
    let mut flags: Vec<StepFlag> = Vec::new();
    for row in rows() {
        let Some(flag) = StepFlag::of(row) else { continue };
        match flags.iter_mut().find(|known| known.key == flag.key) {
            None => flags.push(flag),
            Some(known) => {
                known.takes.extend(flag.takes);
                if !known.help.contains(&row.accepted()) {
                    known.help += &format!("; to serve: {}", row.accepted());
                }
            }
        }
    }
    flags
});

impl StepFlag {
    fn of(row: &StepKey) -> Option<StepFlag> {
        let words = row.name.replace('_', "-");
        let is_truth = matches!(row.accepted, Accepted::Truth);
        let value_name = match row.accepted {
            Accepted::Truth => None,
            Accepted::Whole(..) => Some("N".to_owned()),
            // The last word of the key says best what is taken.
            _ => row.name.rsplit('_').next().map(str::to_uppercase),
        };
        let (flag, meaning) = match row.flag {
            Flag::None => return None,
            Flag::Denial(help) => (format!("--no-{words}"), help),
            Flag::Named(flag) => (flag.to_owned(), row.meaning),
            Flag::OfName => (format!("--{words}"), row.meaning),
        };
        let accepted = if is_truth { String::new() } else { format!(": {}", row.accepted()) };
        let help = row.described(meaning, &accepted);
        Some(StepFlag {
            key: row.name,
            flag,
            alias: row.alias,
            value_name,
            is_denial: matches!(row.flag, Flag::Denial(_)),
            heading: row.group.heading,
            help,
            takes: vec![row.group.work],
            needs: row.group.needs,
            is_common: row.is_common,
        })
    }

    /// The value of the key where the flag has this one, and the other way round.
    pub fn turned<'a>(&self, text: &'a str) -> &'a str {
        match text {
            "true" if self.is_denial => "false",
            "false" if self.is_denial => "true",
            _ => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Table;
    use std::path::Path;

    fn read(work: Work, text: &str) -> String {
        let size = match work {
            Work::Training => "sequence = 8\nmicro_batches = 1\n",
            Work::Serving => "batch = 1\n",
        };
        let table = Table::parse(Path::new("suite.toml"), &format!("{size}{text}")).unwrap();
        let read = match work {
            Work::Training => Training::read(table).map(|_| ()),
            Work::Serving => Serving::read(table).map(|_| ()),
        };
        read.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn every_key_is_there_once_with_a_meaning_and_a_default_that_reads() {
        for work in [Work::Training, Work::Serving] {
            let all: Vec<_> = rows().filter(|row| row.group.work == work).collect();
            for (index, row) in all.iter().enumerate() {
                assert!(all[index + 1..].iter().all(|other| other.name != row.name), "{}", row.name);
                assert!(!row.meaning.is_empty() && !row.meaning.ends_with('.'), "{}", row.name);
                for with in row.only_with {
                    assert!(all.iter().any(|other| other.name == with.key), "{}: {}", row.name, with.key);
                }
            }
            assert_eq!(read(work, ""), "");
        }
        let mut flags: Vec<&str> = STEP_FLAGS.iter().map(|flag| flag.flag.as_str()).collect();
        let all = flags.len();
        flags.sort_unstable();
        flags.dedup();
        assert_eq!(flags.len(), all);
    }

    #[test]
    fn mistakes_name_the_line_the_key_and_what_would_be_right() {
        for (work, text, expected) in [
            (
                Work::Training,
                "bucket_rul = 'pytorch'",
                "suite.toml:3: bucket_rul: unknown key; did you mean `bucket_rule`? Known",
            ),
            (
                Work::Training,
                "bucket_rule = 'torch'",
                "suite.toml:3: bucket_rule: found bucket rule `torch`; accepted: megatron, pytorch, deepspeed, layer_wise",
            ),
            (
                Work::Training,
                "gradient_element_type = 'activations'",
                "suite.toml:3: gradient_element_type: found element type `activations`; accepted: int8",
            ),
            (
                Work::Training,
                "gradient_element_type = 'fp8_e4m3'",
                "suite.toml:3: gradient_element_type: found fp8_e4m3; accepted: bfloat16, float16, float32, float64",
            ),
            (
                Work::Training,
                "virtual_stages = 2000",
                "virtual_stages: found 2000; accepted: a whole number from 1 to 1024",
            ),
            (Work::Training, "global_batch = 8", "suite.toml:2: micro_batches: cannot be combined with `global_batch`"),
            (Work::Training, "overlap_gradients = 1", "overlap_gradients: found 1; accepted: true or false"),
            (Work::Training, "small_calls = []", "small_calls: found an empty list"),
            (Work::Training, "placements = 'none'", "found `none`; accepted: in-place, out-of-place"),
            (Work::Serving, "batch_agrement = true", "did you mean `batch_agreement`?"),
        ] {
            let message = read(work, text);
            assert!(message.contains(expected), "{text}: {message}");
        }
        assert_eq!(read(Work::Training, "router_element_type = 'activations'\nsmall_calls = 'none'"), "");
    }

    #[test]
    fn a_step_has_the_same_hash_however_it_is_written() {
        let text = |more: &str| {
            let text = format!("sequence = 8\nmicro_batches = 1\n{more}");
            format!("{:?}", Training::read(Table::parse(Path::new("suite.toml"), &text).unwrap()).unwrap())
        };
        assert_eq!(text(""), text("# default\nmicro_batch = 1\ndata_style = 'ddp'"));
        assert_ne!(text(""), text("micro_batch = 2"));
    }

    #[test]
    fn a_flag_that_denies_turns_its_value() {
        let flag = |key: &str| STEP_FLAGS.iter().find(|flag| flag.key == key).unwrap();
        let denial = flag("overlap_gradients");
        assert_eq!((denial.flag.as_str(), denial.turned("true")), ("--no-overlap-gradients", "false"));
        let both = flag("dispatcher");
        assert_eq!(both.takes, [Work::Training, Work::Serving]);
        assert!(
            both.help.contains("all_to_all (default), all_gather, deepep, hybrid_ep; to serve: all_to_all (default)"),
            "{}",
            both.help
        );
    }

    /// The keys of such work as a table of Markdown, for `suites/README.md`.
    fn keys_as_markdown(work: Work) -> String {
        let row =
            |row: &StepKey| format!("| `{}` | {} | {} |\n", row.name, row.accepted(), row.described(row.meaning, ""));
        let rows: String = rows().filter(|row| row.group.work == work).map(row).collect();
        format!("| key | accepted | meaning |\n|---|---|---|\n{rows}")
    }

    #[test]
    fn the_page_of_suites_has_the_whole_table() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/README.md");
        let page = std::fs::read_to_string(&file).unwrap();
        let mut wanted = page.clone();
        for (work, name) in [(Work::Training, "training"), (Work::Serving, "serving")] {
            let (begin, end) = (format!("<!-- keys of {name} -->\n"), format!("<!-- end of {name} -->"));
            let (before, rest) = wanted.split_once(&begin).unwrap();
            let (_, after) = rest.split_once(&end).unwrap();
            wanted = format!("{before}{begin}{}{end}{after}", keys_as_markdown(work));
        }
        if page != wanted {
            std::fs::write(&file, wanted).unwrap();
            panic!("suites/README.md was not as the table of keys; it is now");
        }
    }
}
