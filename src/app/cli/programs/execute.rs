//! Runs the command that a user asked `commgauge` for.

use super::commgauge::{Command, Commgauge};
use super::definition::definitions;
use super::name::ProgramName;
use crate::cli::run;
use commgauge_base::error::Result;

impl Commgauge {
    /// Runs the requested command; its output goes to stdout.
    ///
    /// # Errors
    /// Those of the command.
    pub fn execute(self) -> Result<i32> {
        match self.command {
            Command::Run(arguments) => run::run(&arguments, &mut std::io::stdout().lock()),
            Command::Ops(command) => command.execute(),
            Command::Judge(command) => command.execute(),
            Command::Gate(command) => command.execute(),
            Command::Compare(command) => command.execute(),
            Command::History(command) => command.execute(),
            Command::Expect(command) => command.execute(),
            Command::Locate(command) => command.execute(),
            Command::Report(command) => command.execute(),
            Command::Model(command) => command.execute(),
            Command::Layout(command) => command.execute(),
            Command::Import(command) => command.execute(),
            Command::Fit(command) => command.execute(),
            Command::Trace(command) => command.execute(),
            Command::Export(command) => command.execute(),
            Command::Calibrate(command) => command.execute(),
            Command::Predict(command) => command.execute(),
            Command::Rank(command) => command.execute(),
            Command::Plan(command) => command.execute(),
            Command::Validate(command) => command.execute(),
            Command::Selftest(command) => command.execute(),
            Command::Simulate(command) => command.execute(),
            Command::Schema(command) => command.execute(),
            Command::List(command) => command.execute(&definitions()),
            Command::Show(command) => command.execute(),
            Command::Doctor(command) => command.execute(),
            Command::Completions(command) => command.execute(command.program.definition()),
            Command::Man(command) => command.execute(ProgramName::definition),
        }
    }
}
