//! Everything that needs no launch: starts suites, shows models and records, prints schemas. Links no MPI.

use commgauge::cli::output;
use commgauge::cli::programs::Commgauge;
use commgauge::error::Error;
use commgauge::writing::eprintln;
use std::process::exit;

/// Ends the program at a panic with the codes of docs/reference/exit-codes.md, in release builds too. Rayon and the standard library panic
/// where the system starts no more threads.
fn end_at_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let cause = panic.payload_as_str().unwrap_or_default();
        if ["global thread pool", "failed to spawn thread"].iter().any(|words| cause.contains(words)) {
            let error =
                Error::environment(format!("{cause}; raise `ulimit -v`, `ulimit -u` or the limits of the container"));
            eprintln!("commgauge: no thread can be started: {error}");
            exit(error.exit_code());
        }
        usual(panic);
        exit(101);
    }));
}

fn main() {
    end_at_panics();
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
