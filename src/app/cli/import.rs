//! `commgauge import`: converts files of other tools to a record.

mod arguments;
mod bad_lines;
mod renew;

use super::places;
pub use arguments::{Foreign, ImportCommand};
use bad_lines::{bad_line_text, unreadable};
use commgauge_analysis::interop::record_lines;
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_model::record::Journal;

impl ImportCommand {
    /// Reads all files, then writes the record.
    pub fn execute(&self) -> Result<i32> {
        if self.ranks.is_some() && self.from != Foreign::Osu {
            return Err(Error::usage("--ranks: is for --from osu; the other tools' files say it themselves"));
        }
        if self.from == Foreign::Commgauge {
            return renew::execute(self);
        }
        let (mut rows, mut bad, mut notes) = (Vec::new(), Vec::new(), Vec::new());
        for path in &self.files {
            let imported = self.from.read(path, self.ranks)?;
            bad.extend(imported.bad_lines.iter().map(|line| bad_line_text(path, line)));
            notes.extend(imported.notes.iter().map(|note| format!("{}: {note}", path.display())));
            rows.extend(imported.rows);
        }
        if !bad.is_empty() && !self.skip_bad_lines {
            return Err(unreadable(&bad, bad.len() + rows.len()));
        }
        if rows.is_empty() {
            return Err(Error::usage("the files hold no line that can be read, so there is nothing to import"));
        }
        let files = self.files.iter().map(|path| places::text(path)).collect::<Result<Vec<_>>>()?;
        let warnings: Vec<String> = bad.into_iter().map(|line| format!("left out: {line}")).collect();
        let left_out = warnings.len();
        notes.iter().for_each(|note| eprintln!("{note}"));
        let warnings = warnings.into_iter().chain(notes).collect();
        let mut journal = Journal::create(&self.output)?;
        for line in record_lines(&places::new_run_id(), &files, &rows, warnings) {
            journal.write(&line)?;
        }
        journal.finish()?;
        let skipped = if left_out == 0 { String::new() } else { format!(", {left_out} lines left out") };
        eprintln!("{} times in {}{skipped}", rows.len(), self.output.display());
        Ok(0)
    }
}
