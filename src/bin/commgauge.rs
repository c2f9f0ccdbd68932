//! Everything that needs no launch: starts suites, shows models and records, prints schemas. Links no MPI.

use commgauge::cli::output;
use commgauge::cli::programs::Commgauge;
use commgauge::writing::eprintln;
use std::process::exit;

fn main() {
    commgauge::name_commit();
    let program = output::parse::<Commgauge>().unwrap_or_else(|message| {
        output::show(&message);
        exit(message.exit_code())
    });
    exit(program.execute().unwrap_or_else(|error| {
        eprintln!("commgauge: {}", output::written_out(error.to_string()));
        error.exit_code()
    }))
}
