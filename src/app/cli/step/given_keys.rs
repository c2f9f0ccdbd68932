//! The flags that stand for keys of a suite's `[training]` and `[serving]`, made from the list of the keys.
//!
//! A flag that the work at hand does not take is refused: it would change nothing.

use clap::error::Error as ClapError;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use commgauge_base::error::{Error, Result};
use commgauge_model::config::step::{KeyForm, STEP_KEYS, StepKey, Work};

/// The flags that were given.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenKeys {
    given: Vec<GivenKey>,
}

#[derive(Clone, Debug)]
struct GivenKey {
    key: &'static StepKey,
    text: String,
}

impl GivenKeys {
    /// What is done with the model.
    pub(super) fn work(&self) -> Work {
        let serves = self.given.iter().any(|given| given.key.key == "phases");
        if serves { Work::Serving } else { Work::Training }
    }

    /// The given flags, for messages.
    pub(super) fn flags(&self) -> impl Iterator<Item = &'static str> {
        self.given.iter().map(|given| given.key.flag)
    }

    /// The given flags with their keys and values.
    ///
    /// # Errors
    /// Flags that this work does not take, all of them named.
    pub(super) fn entries(&self, work: Work) -> Result<Vec<(&'static str, &'static str, String)>> {
        let unused: Vec<&str> =
            self.given.iter().filter(|given| !given.key.takes.contains(&work)).map(|given| given.key.flag).collect();
        let list = unused.join(", ");
        match (unused.is_empty(), work) {
            (true, _) => Ok(self.given.iter().map(GivenKey::entry).collect()),
            (false, Work::Serving) => {
                Err(Error::usage(format!("--serve: a model that serves takes no {list}; leave that out")))
            }
            (false, Work::Training) => {
                Err(Error::usage(format!("{list}: for a model that serves; accepted: with --serve")))
            }
        }
    }
}

impl GivenKey {
    /// Flag, key and value. A flag that denies says the opposite of its key.
    fn entry(&self) -> (&'static str, &'static str, String) {
        let text = match (self.key.form, self.text.as_str()) {
            (KeyForm::Denial, "true") => "false".to_owned(),
            (KeyForm::Denial, "false") => "true".to_owned(),
            _ => self.text.clone(),
        };
        (self.key.flag, self.key.key, text)
    }
}

impl Args for GivenKeys {
    fn augment_args(command: Command) -> Command {
        let keys = STEP_KEYS.iter().flat_map(|group| group.keys.iter().map(|key| (group.heading, key)));
        keys.fold(command, |command, (heading, key)| command.arg(argument(heading, key)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        GivenKeys::augment_args(command)
    }
}

impl FromArgMatches for GivenKeys {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<GivenKeys, ClapError> {
        let keys = STEP_KEYS.iter().flat_map(|group| group.keys);
        let given = |key: &'static StepKey| {
            let text = matches.get_one::<String>(key.flag)?.clone();
            Some(GivenKey { key, text })
        };
        Ok(GivenKeys { given: keys.filter_map(given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), ClapError> {
        *self = GivenKeys::from_arg_matches(matches)?;
        Ok(())
    }
}

fn argument(heading: &'static str, key: &'static StepKey) -> Arg {
    let argument = Arg::new(key.flag).long(key.flag.trim_start_matches("--")).help(key.meaning).help_heading(heading);
    let argument = key.alias.into_iter().fold(argument, Arg::visible_alias);
    match key.form {
        KeyForm::Value(name) => argument.value_name(name),
        KeyForm::Truth | KeyForm::Denial => {
            argument.value_name("true|false").num_args(0..=1).require_equals(true).default_missing_value("true")
        }
    }
}
