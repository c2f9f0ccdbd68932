//! `commgauge list`: names that can be used in files and flags, one line each.
//!
//! `list/gather` collects the entries with the same functions and definitions that the other commands use.

mod document;
mod facts;

pub use document::Kind;
pub(super) use document::schema;

use super::output::AnswerArguments;
use commgauge_base::error::Result;
use document::ListDocument;

/// List what there is to name in files and flags, one line each; without an argument how many there are of each kind
#[derive(Clone, Debug, Default, clap::Args)]
#[command(
    after_help = "commgauge list models\ncommgauge list machines --format json\n\nFiles in suites/ of the working directory win over the embedded ones; `commgauge show` prints those."
)]
pub struct ListCommand {
    /// Of which kind
    #[arg(value_enum)]
    pub kind: Option<Kind>,

    /// How the answer is shown.
    #[command(flatten)]
    pub shown: AnswerArguments,
}

impl ListCommand {
    /// Collects the entries and prints them; the formats are those of the flags of these programs.
    pub fn execute(&self, programs: &[clap::Command]) -> Result<i32> {
        let document = ListDocument::of(self.kind, programs);
        self.shown.show(&document, |width| document::text(&document, self.kind, width))?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    // Tests of the lists: every name with its description on one line, and only names that other commands accept.
    use super::document;
    use super::document::Kind;
    use super::document::ListDocument;
    use super::facts::Named;
    use crate::cli::programs::definitions;
    use clap::ValueEnum;

    fn listed(kind: Option<Kind>) -> ListDocument {
        ListDocument::of(kind, &definitions())
    }

    #[test]
    fn every_name_has_a_description_and_no_shipped_file_is_broken() {
        let all = listed(None);
        for list in [&all.collectives, &all.axes, &all.styles, &all.schedules, &all.backends] {
            let list: &Vec<Named> = list.as_ref().unwrap();
            assert!(list.len() >= 3, "{list:?}");
            let silent: Vec<&Named> = list.iter().filter(|one| one.description.is_empty()).collect();
            assert!(silent.is_empty(), "{silent:?}");
        }
        let keys = all.keys.as_ref().unwrap();
        let phases = keys.iter().find(|key| key.name == "phases").unwrap();
        assert_eq!((phases.flag.as_str(), phases.tables.as_slice()), ("--serve", &["serving".to_owned()][..]));
        for suite in all.suites.as_ref().unwrap() {
            assert!(suite.problem.is_none() && !suite.description.is_empty(), "{suite:?}");
        }
        for model in all.models.as_ref().unwrap() {
            assert!(model.problem.is_none() && model.parameters > 0 && model.layers > 0, "{model:?}");
        }
        for machine in all.machines.as_ref().unwrap() {
            assert!(machine.problem.is_none() && !machine.description.is_empty(), "{machine:?}");
        }
    }

    #[test]
    fn suites_say_how_many_ranks_they_need() {
        let all = listed(Some(Kind::Suites)).suites.unwrap();
        // From suites/README.md.
        for (name, exactly, multiple) in [
            ("quick", None, Some(2)),
            ("llama-3-8b", None, Some(4)),
            ("codegeex", None, Some(8)),
            ("smoke", None, Some(1)),
            ("gpt-7.5b-16gpu", None, Some(8)),
            ("180b-128gpu", Some(128), None),
            ("deepseek-v3", Some(2048), None),
            ("llama-3-405b-16k", Some(16_384), None),
        ] {
            let suite = all.iter().find(|suite| suite.name == name).expect(name);
            assert_eq!((suite.ranks, suite.ranks_multiple_of), (exactly, multiple), "{name}");
        }
    }

    #[test]
    fn formats_come_from_the_flags_of_the_commands() {
        let all = listed(Some(Kind::Formats)).formats.unwrap();
        for (name, command) in [
            ("nccl-tests", "commgauge import --from"),
            ("junit", "commgauge judge --format"),
            ("csv", "commgauge-sweep --format"),
            ("calculon", "commgauge export --to"),
        ] {
            let found =
                all.iter().any(|format| format.name == name && format.commands.iter().any(|known| known == command));
            assert!(found, "{name} of {command}: {all:?}");
        }
    }

    #[test]
    fn tables_keep_to_their_width_with_a_line_for_each_name() {
        commgauge_base::checkout::enter_checkout();
        for kind in Kind::value_variants() {
            let document = listed(Some(*kind));
            for width in [80, 140] {
                let text = document::text(&document, Some(*kind), width);
                // The sentence about omitted columns is a separate paragraph.
                let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(longest <= usize::from(width), "{kind:?} at {width}: {longest}\n{text}");
            }
        }
    }

    #[test]
    fn the_tables_of_80_columns() {
        commgauge_base::checkout::enter_checkout();
        for kind in [None, Some(Kind::Machines), Some(Kind::Formats), Some(Kind::Suites), Some(Kind::Backends)] {
            let name = kind
                .and_then(|kind: Kind| kind.to_possible_value())
                .map_or("overview".to_owned(), |kind| kind.get_name().to_owned());
            insta::assert_snapshot!(format!("{name}_80"), document::text(&listed(kind), kind, 80));
        }
    }
}
