//! Prints rows on standard output as they are done, and below them, if standard error is a terminal, a progress bar.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::Write;

/// A progress bar of cases.
pub(super) fn new_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    // The template is a constant, so an error would show in every run; the default style is used then.
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} cases{msg}, {elapsed}, {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Writes text above the bar immediately. If the reader closes the pipe early (`| head`), writing stops without an
/// error.
pub(super) fn write_above(bar: Option<&ProgressBar>, out: &mut dyn Write, text: &str) {
    if text.is_empty() {
        return;
    }
    let mut write = || drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

#[cfg(feature = "mpi")]
pub(super) use in_rank_0::Live;

#[cfg(feature = "mpi")]
mod in_rank_0 {
    use super::{ProgressBar, new_bar, write_above};
    use crate::report::{LiveRows, View};
    use commgauge_model::record::Line;
    use commgauge_run::session::Listener;
    use std::io::IsTerminal;
    use std::sync::{Arc, Mutex};

    /// The rows of a run that this process measures.
    #[derive(Clone)]
    pub(in crate::cli) struct Live(Arc<Mutex<LiveTable>>);

    struct LiveTable {
        rows: Option<LiveRows>,
        bar: Option<ProgressBar>,
        cases: u64,
    }

    impl Live {
        pub(in crate::cli) fn new(rows: LiveRows) -> Live {
            let bar = std::io::stderr().is_terminal().then(new_bar);
            Live(Arc::new(Mutex::new(LiveTable { rows: Some(rows), bar, cases: 0 })))
        }

        /// A listener that prints the row of each line.
        pub(in crate::cli) fn listener(&self) -> Listener {
            let shown = Arc::clone(&self.0);
            Listener::new(move |line| {
                if let Ok(mut shown) = shown.lock() {
                    shown.print_line(line);
                }
            })
        }

        /// Clears the bar, and returns the text that follows the printed rows.
        pub(in crate::cli) fn finish(&self, view: &View) -> String {
            let Ok(mut shown) = self.0.lock() else { return String::new() };
            if let Some(bar) = shown.bar.take() {
                bar.finish_and_clear();
            }
            shown.rows.take().map_or_else(String::new, |rows| rows.finish(view))
        }
    }

    impl LiveTable {
        fn print_line(&mut self, line: &Line) {
            let text = self.rows.as_mut().map_or_else(String::new, |rows| rows.take(line));
            match (line, &self.bar) {
                (Line::Plan(plan), Some(bar)) => bar.set_length(plan.case_lines),
                (Line::Case(_), Some(bar)) => {
                    self.cases += 1;
                    // With a budget for all cases there may be more lines than planned.
                    bar.set_length(bar.length().unwrap_or(0).max(self.cases));
                    bar.set_position(self.cases);
                }
                _ => {}
            }
            // Never treated as a terminal: some launchers give rank 0 a pseudo-terminal and copy its output.
            write_above(self.bar.as_ref(), &mut std::io::stdout().lock(), &text);
        }
    }
}
