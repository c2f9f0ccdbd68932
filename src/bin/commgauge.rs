//! Everything that needs no launch: starts suites, shows models and records, prints schemas. Links no MPI.

use commgauge::cli::programs::Commgauge;
use commgauge::cli::{terminal, usage_message};
use commgauge::message::eprintln;
use std::process::exit;

fn main() {
    commgauge::name_commit();
    let program = terminal::parse::<Commgauge>().unwrap_or_else(|message| {
        usage_message::show(&message);
        exit(message.exit_code())
    });
    exit(program.execute().unwrap_or_else(|error| {
        eprintln!("commgauge: {}", usage_message::written_out(error.to_string()));
        error.exit_code()
    }))
}
