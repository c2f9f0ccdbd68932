//! Everything that needs no launch: starts suites, shows models and records, prints schemas. Links no MPI.

use clap::Parser;
use commgauge::cli::programs::Commgauge;
use std::process::exit;

fn main() {
    exit(Commgauge::parse().execute().unwrap_or_else(|error| {
        eprintln!("commgauge: {error}");
        error.exit_code()
    }))
}
