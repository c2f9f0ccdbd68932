//! The keys of the tables `[training]` and `[serving]`: their names, the flags that stand for them, and what they mean. Everything that
//! lists them takes them from here; how their values are read is with the choices themselves.

mod data;
mod division;
mod step;
mod step_key;

pub use step_key::{KeyForm, Needs, StepKey};

use crate::config::step::Work;

/// Keys that belong together.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyGroup {
    /// What they are about.
    pub heading: &'static str,
    /// Without what they change nothing, unless a key says otherwise.
    needs: Needs,
    /// The keys.
    pub keys: &'static [StepKey],
}

/// All of them.
pub const STEP_KEYS: [KeyGroup; 7] = [
    KeyGroup { heading: "Step", needs: Needs::Nothing, keys: step::STEP },
    KeyGroup { heading: "Tensor parallelism", needs: Needs::TensorParallelism, keys: division::TENSOR },
    KeyGroup { heading: "Data parallelism", needs: Needs::Nothing, keys: data::DATA },
    KeyGroup { heading: "Pipeline parallelism", needs: Needs::PipelineParallelism, keys: division::PIPELINE },
    KeyGroup { heading: "Context parallelism", needs: Needs::ContextParallelism, keys: division::CONTEXT },
    KeyGroup { heading: "Expert parallelism", needs: Needs::Experts, keys: division::EXPERT },
    KeyGroup { heading: "Serving", needs: Needs::Nothing, keys: step::SERVED },
];

/// The names of the keys that the table of such work has.
pub fn keys_of(work: Work) -> impl Iterator<Item = &'static str> {
    let keys = STEP_KEYS.iter().flat_map(|group| group.keys);
    keys.filter(move |key| key.takes.contains(&work)).map(|key| key.key)
}

/// Without what a flag changes nothing; `None` for one that stands for no key.
pub fn needs_of_flag(flag: &str) -> Option<Needs> {
    STEP_KEYS.iter().find_map(|group| {
        let key = group.keys.iter().find(|key| key.flag == flag)?;
        Some(key.needs.unwrap_or(group.needs))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::document::Table;
    use crate::config::step::Work;
    use crate::config::{Serving, Training};
    use std::path::Path;

    /// The keys that a table is said to know where it has one that nobody knows.
    fn known(work: Work) -> Vec<String> {
        let table =
            Table::parse(Path::new("suite.toml"), "unknown_to_all = 1\nsequence = 8\nmicro_batches = 1\nbatch = 1");
        let table = table.unwrap();
        let message = match work {
            Work::Training => Training::read(table).unwrap_err().to_string(),
            Work::Serving => Serving::read(table).unwrap_err().to_string(),
        };
        let (_, list) = message.split_once("Known here: ").unwrap_or_else(|| panic!("{message}"));
        list.split(", ").map(str::to_owned).collect()
    }

    #[test]
    fn each_table_reads_the_keys_that_are_listed_and_no_others() {
        for (work, elsewhere) in [(Work::Training, vec!["placements"]), (Work::Serving, vec![])] {
            let keys = STEP_KEYS.iter().flat_map(|group| group.keys).filter(|key| key.takes.contains(&work));
            let mut listed: Vec<&str> = keys.map(|key| key.key).chain(elsewhere).collect();
            let mut known = known(work);
            listed.sort_unstable();
            known.sort_unstable();
            assert_eq!(known, listed, "{work:?}");
        }
    }

    #[test]
    fn flags_and_keys_are_there_once_and_a_flag_that_denies_says_so() {
        let keys: Vec<&StepKey> = STEP_KEYS.iter().flat_map(|group| group.keys).collect();
        for (index, key) in keys.iter().enumerate() {
            let others = || keys.iter().skip(index + 1);
            assert!(others().all(|other| other.key != key.key && other.flag != key.flag), "{}", key.key);
            assert_eq!(key.flag.starts_with("--no-"), key.form == KeyForm::Denial, "{}", key.flag);
            assert!(!key.meaning.is_empty() && !key.meaning.ends_with('.'), "{}", key.key);
        }
    }

    #[test]
    fn the_page_of_suites_names_every_key() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suites/README.md");
        let page = std::fs::read_to_string(page).unwrap();
        for key in STEP_KEYS.iter().flat_map(|group| group.keys) {
            let as_code = page.contains(&format!("`{}`", key.key));
            assert!(
                as_code || page.contains(&format!("{} = ", key.key)),
                "suites/README.md says nothing of {}",
                key.key
            );
        }
    }
}
