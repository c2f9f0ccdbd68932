//! `commgauge import`: converts files of other tools to a record.

mod arguments;
mod bad_lines;
mod identity;
mod renew;

use super::places;
use super::text_output::check_only_format;
pub use arguments::{Foreign, ImportCommand};
use bad_lines::{bad_line_text, unreadable};
use commgauge_analysis::interop::{ImportedFile, joined, record_lines};
use commgauge_base::error::{Error, Result};
use commgauge_base::message::eprintln;
use commgauge_base::units::counted;
use commgauge_base::visible::ShownPath;
use commgauge_model::record::Journal;
use identity::Identity;

impl ImportCommand {
    /// Reads all files, then writes the record.
    pub fn execute(&self) -> Result<i32> {
        if self.ranks.is_some() && self.from != Foreign::Osu {
            return Err(Error::usage("--ranks: is for --from osu; the other tools' files say it themselves"));
        }
        if self.ranks_per_node.is_some() && !matches!(self.from, Foreign::Osu | Foreign::Imb) {
            let found = "--ranks-per-node: is for --from osu and imb; the other tools' files say where ranks were";
            return Err(Error::usage(found));
        }
        if self.from == Foreign::Commgauge {
            return renew::execute(self);
        }
        check_only_format(&self.output, "record", &[])?;
        let (mut read, mut bad) = (Vec::new(), Vec::new());
        for path in &self.files {
            let imported = self.from.read(path, self.ranks)?;
            bad.extend(imported.bad_lines.iter().map(|line| bad_line_text(path, line)));
            read.push(ImportedFile { name: places::text(path)?, imported });
        }
        let (mut origin, mut rows) = joined(self.from.tool()?, read);
        if let Some(ranks_per_node) = self.ranks_per_node {
            rows.iter_mut().for_each(|row| row.place(ranks_per_node));
            origin.notes.push(format!("{ranks_per_node} ranks on each node, as --ranks-per-node says"));
        }
        if !bad.is_empty() && !self.skip_bad_lines {
            return Err(unreadable(&bad, bad.len() + rows.len()));
        }
        if rows.is_empty() {
            return Err(Error::usage("the files hold no line that can be read, so there is nothing to import"));
        }
        origin.notes.iter().for_each(|note| eprintln!("{note}"));
        origin.objections().for_each(|objection| eprintln!("warning: {objection}"));
        let left_out = bad.len();
        origin.warnings.splice(0..0, bad.into_iter().map(|line| format!("left out: {line}")));
        let Identity { run_id, written } = Identity::of(&self.files)?;
        origin.written = Some(written);
        let mut journal = Journal::create(&self.output)?;
        for line in record_lines(&run_id, &origin, &rows) {
            journal.write(&line)?;
        }
        journal.finish()?;
        let skipped = if left_out == 0 { String::new() } else { format!(", {} left out", counted(left_out, "line")) };
        eprintln!("{} in {}{skipped}", counted(rows.len(), "row"), self.output.shown());
        Ok(0)
    }
}
