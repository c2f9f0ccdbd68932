//! `commgauge show`: prints an embedded suite, model or machine file as a template.

use super::table_or_json::print;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_model::config::{Shipped, is_embedded};
use std::path::Path;

/// Print a suite, model or machine file that is embedded in this program, as a copy to change
///
/// What is printed is the embedded file, also where a file of that name in the working directory wins over it; stderr says so then.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "commgauge show suite quick > mine.toml; commgauge run mine.toml\ncommgauge show machine h100-nvswitch-ndr > mine.toml\n\n`commgauge list suites`, `list models` and `list machines` name them."
)]
pub struct ShowCommand {
    /// Of which kind
    #[arg(value_enum)]
    pub kind: ShownKind,

    /// Its name, such as quick, llama-3-8b or h100-nvswitch-ndr
    pub name: String,
}

/// A kind of embedded files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ShownKind {
    /// What to run
    Suite,
    /// A model's config.json
    Model,
    /// The links of a machine, and what is expected of it
    Machine,
}

impl ShownKind {
    fn shipped(self) -> Shipped {
        match self {
            ShownKind::Suite => Shipped::Suite,
            ShownKind::Model => Shipped::Model,
            ShownKind::Machine => Shipped::Machine,
        }
    }
}

impl ShowCommand {
    /// Prints the file.
    ///
    /// # Errors
    /// A usage error if there is no embedded file of this name.
    pub fn execute(&self) -> Result<i32> {
        let kind = self.kind.shipped();
        let requested = Path::new(&self.name);
        let found = kind.find(requested).map(|file| file.display().to_string()).filter(|file| !is_embedded(file));
        let Some(text) = kind.embedded(&self.name) else {
            return Err(Error::usage(match found {
                Some(file) => format!("there is no embedded {} `{}`; {file} is a file here", kind.noun(), self.name),
                None => kind.unknown(requested),
            }));
        };
        print(text)?;
        if let Some(file) = found {
            eprintln!(
                "commgauge: {} {} (embedded); elsewhere that name means {file}, which wins",
                kind.noun(),
                self.name
            );
        }
        Ok(0)
    }
}
