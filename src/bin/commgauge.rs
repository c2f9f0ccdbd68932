//! Everything that needs no launch: starts suites, shows models and records, prints schemas. Links no MPI.

use commgauge::cli::output;
use commgauge::cli::programs::Commgauge;
use commgauge::error::Error;
use commgauge::writing::eprintln;
use std::process::exit;

/// Words of the panics of Rayon and the standard library where the system starts no more threads.
const NO_THREAD: [&str; 3] = ["global thread pool", "failed to spawn thread", "alternative stack"];

/// Ends the program at a panic with the codes of docs/reference/exit-codes.md, in release builds too.
fn end_at_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let cause = panic.payload_as_str().unwrap_or_default();
        if NO_THREAD.iter().any(|words| cause.contains(words)) {
            let error = Error::environment(format!("{cause}; raise `ulimit -v` and `ulimit -u`"));
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
