//! The text of nccl-tests: one or more runs in a log, each with a head, a table and a foot.

use super::collective::Named;
use super::columns::Columns;
use super::devices::{Device, Group, shared_device};
use super::run::{Facts, nccl_version};
use crate::interop::imported::{Imported, RunFault, RunFaultKind};
use crate::interop::log_text::{self, LogLine, Unread};
use commgauge_base::units::counted;
use commgauge_model::layout::Locality;

const COPIES: &str = "two runs begin before a table does: these are copies that do not know each other (built without \
                      MPI?), so it is unknown how many ranks took part";

/// The state of a run while it is read.
#[derive(Default)]
struct Run {
    facts: Facts,
    devices: Vec<Device>,
    /// Set by commgauge's own reports, whose devices are those of all groups.
    told_group: Option<(u32, u32)>,
    parameter_lines: u32,
    /// The foot said how many values were wrong.
    told_wrong_values: bool,
    table: Option<(Columns, Result<Group, String>)>,
}

struct Reader<'a> {
    file: &'a str,
    run: Run,
    imported: Imported,
    unread: Unread,
    log_lines: usize,
    averaged_groups: u32,
    /// The line before named one placement alone, in place.
    in_place_above: bool,
}

pub(super) fn parse(text: &str, file: &str) -> Imported {
    let (imported, unread) = (Imported::default(), Unread::default());
    let mut reader =
        Reader { file, run: Run::default(), imported, unread, log_lines: 0, averaged_groups: 0, in_place_above: false };
    for line in log_text::log_lines(text) {
        reader.take(line);
    }
    reader.finish(text)
}

impl Reader<'_> {
    fn take(&mut self, line: LogLine) {
        let text = line.text;
        if text.is_empty() || text == "#" {
            return;
        }
        if let Some(mut columns) = Columns::of_heading(text) {
            columns.in_place_alone = std::mem::take(&mut self.in_place_above);
            self.heading(line, columns);
        } else if is_log_line(text) {
            self.log_lines += 1;
        } else if let Some(comment) = text.strip_prefix('#') {
            self.in_place_above = comment.trim() == "in-place";
            self.comment(line, comment.trim());
        } else if let Some(device) = Device::of_line(text) {
            // Copied through Markdown, which turns the `#` into a heading.
            self.run.devices.push(device);
        } else if self.run.table.is_some() {
            self.row(line);
        } else if log_text::looks_like_a_row(text) {
            self.imported.bad_lines.push(line.bad("a row outside of a table: there is no heading above it"));
        } else {
            self.hint(text);
            self.unread.add(line);
        }
    }

    fn heading(&mut self, line: LogLine, columns: Columns) {
        if let Some((before, _)) = &mut self.run.table
            && before.is_of_other_placements(&columns)
        {
            *before = columns;
            return;
        }
        if self.run.table.is_some() {
            self.cut_off(line);
            self.imported
                .bad_lines
                .push(line.bad("a second table begins before the first one ends; its run is unknown"));
        }
        let group = match (self.run.told_group, self.run.parameter_lines) {
            (_, 2..) => Err(COPIES.to_owned()),
            (Some((groups, ranks)), _) => Ok(self.told_group(groups, ranks)),
            (None, _) => Group::of(&self.run.devices),
        };
        if self.run.devices.len() > self.imported.ranks.len() {
            self.imported.ranks = self.run.devices.iter().map(Device::as_rank).collect();
        }
        self.imported.warnings.extend(shared_device(&self.run.devices));
        if let Ok(group) = &group {
            self.averaged_groups = self.averaged_groups.max(group.groups);
        }
        if self.run.facts.named == Named::Nowhere {
            self.run.facts.named = Named::of_file(self.file);
        }
        if let Some(objection) = columns.objection() {
            self.imported.bad_lines.push(line.bad(format!("{objection}; the rows below are left out")));
        }
        self.run.table = Some((columns, group));
    }

    /// If all ranks are one group, the lines of the devices give its placement.
    fn told_group(&self, groups: u32, ranks: u32) -> Group {
        match Group::of(&self.run.devices) {
            Ok(group) if groups == 1 && group.ranks == ranks => group,
            all => Group { ranks, groups, locality: Locality::UNKNOWN, device: all.ok().and_then(|all| all.device) },
        }
    }

    fn row(&mut self, line: LogLine) {
        let Some((columns, group)) = &self.run.table else { return };
        if columns.objection().is_some() {
            return;
        }
        match columns.row(line.text).and_then(|fields| self.run.facts.rows(group, &fields)) {
            Ok(rows) => self.imported.rows.extend(rows),
            Err(problem) => self.imported.bad_lines.push(line.bad(problem)),
        }
    }

    fn comment(&mut self, line: LogLine, comment: &str) {
        if let Some(name) = comment.strip_prefix("Collective test starting:") {
            self.begin(line);
            self.run.facts.named = Named::of_name(name.trim());
        } else if let Some(rest) = comment.strip_prefix("nccl-tests version") {
            self.begin(line);
            if let Some(code) = rest.split("nccl-library=").nth(1).and_then(|code| code.trim().parse().ok()) {
                self.run.facts.label("nccl_version", nccl_version(code));
            }
        } else if comment.starts_with("nThread") {
            self.begin(line);
            self.parameters(comment);
        } else if let Some(device) = Device::of_line(comment) {
            self.run.devices.push(device);
        } else if Device::is_meant_by(comment) {
            // Without it the last ranks could be missing, and nothing would show it.
            self.imported.bad_lines.push(line.bad("a rank whose host and device cannot be read"));
        } else if comment.starts_with("commgauge: axis") {
            self.read_commgauge_header(comment);
        } else if comment.starts_with("Blocking Enabled") {
            self.run.facts.blocking = true;
            let barrier = if comment.contains("no barrier") { "wait" } else { "wait and barrier" };
            self.run.facts.label("blocking", barrier);
        } else if let Some(count) = comment.strip_prefix("Out of bounds values") {
            let count = count.trim_start_matches([' ', ':']);
            self.run.told_wrong_values = true;
            if count.split_whitespace().next() != Some("0") || count.contains("FAILED") {
                let text = format!("line {}: nccl-tests found wrong data in this run: {count}", line.number);
                self.imported.faults.push(RunFault { kind: RunFaultKind::WrongData, text });
            }
        } else if let Some(average) = comment.strip_prefix("Avg bus bandwidth") {
            if average.contains("FAILED") {
                let average = average.trim_start_matches([' ', ':']);
                let text = format!("line {}: nccl-tests failed by its average bus bandwidth: {average}", line.number);
                self.imported.faults.push(RunFault { kind: RunFaultKind::Failed, text });
            }
            if self.run.table.is_some() && !self.run.told_wrong_values {
                let text = format!("the foot in line {} does not say how many values were wrong", line.number);
                self.imported.faults.push(RunFault { kind: RunFaultKind::CutOff, text });
            }
            self.run = Run::default();
        } else if comment.starts_with("Collective test concluded") {
            self.begin(line);
            self.run = Run::default();
        } else if self.run.table.is_none() {
            self.hint(comment);
        }
    }

    /// A line of a head: a new run, if the last one has a table already.
    fn begin(&mut self, line: LogLine) {
        if self.run.table.is_some() {
            self.cut_off(line);
            self.run = Run::default();
        }
    }

    fn cut_off(&mut self, line: LogLine) {
        let text = format!("the run before line {} was cut off: its table has no foot", line.number);
        self.imported.faults.push(RunFault { kind: RunFaultKind::CutOff, text });
    }

    /// `nThread 1 nGpus 1 minBytes 8 ... iters: 20 agg iters: 1 validation: 1 graph: 0`
    fn parameters(&mut self, comment: &str) {
        self.run.parameter_lines += 1;
        self.imported.settings.insert(comment.split_whitespace().collect::<Vec<_>>().join(" "));
        let number = |name: &str| {
            let rest = comment.split(name).nth(1)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.run.facts.unusual("agg_iters", number("agg iters:"), 1);
        self.run.facts.unusual("graph", number("graph:"), 0);
        self.run.facts.unusual("unalign", number("unalign:"), 0);
    }

    /// `commgauge: axis tp, sweep, 2 groups of 4 ranks, backend simulated, SYNTHETIC: not measured`
    fn read_commgauge_header(&mut self, comment: &str) {
        self.run.facts.synthetic |= comment.contains("SYNTHETIC");
        let words: Vec<&str> = comment.split_whitespace().collect();
        self.run.told_group = words.windows(5).find_map(|window| match window {
            [groups, "group" | "groups", "of", ranks, "ranks," | "ranks"] => {
                Some((groups.parse().ok()?, ranks.parse().ok().filter(|ranks| *ranks > 0)?))
            }
            _ => None,
        });
    }

    /// A command line in the log names the program where the program itself does not.
    fn hint(&mut self, text: &str) {
        if let Some(named) = text.split_whitespace().find_map(Named::of_program) {
            self.run.facts.named = named;
        }
    }

    fn finish(mut self, text: &str) -> Imported {
        let Imported { notes, warnings, faults, .. } = &mut self.imported;
        let is_begun = self.run.parameter_lines > 0 || !self.run.devices.is_empty();
        let missing = if self.run.table.is_some() {
            Some("its table has no foot")
        } else {
            is_begun.then_some("it has no table")
        };
        if let Some(missing) = missing {
            let torn = if text.ends_with('\n') { "" } else { ", and the file ends within a line" };
            let text = format!("the last run was cut off: {missing}{torn}");
            faults.push(RunFault { kind: RunFaultKind::CutOff, text });
        }
        if self.averaged_groups > 1 {
            warnings
                .push("times of runs with several groups are means over the groups: a slow one is not seen".to_owned());
        }
        if self.log_lines > 0 {
            notes.push(format!("{} of NCCL within the output not read", counted(self.log_lines, "log line")));
        }
        notes.extend(self.unread.note());
        self.imported
    }
}

fn is_log_line(text: &str) -> bool {
    ["NCCL INFO", "NCCL WARN", "NCCL TRACE", "NCCL version"].iter().any(|mark| text.contains(mark))
}
