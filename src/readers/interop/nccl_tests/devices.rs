//! The ranks of an nccl-tests run, from the lines under `# Using devices`: their number, groups and hosts.

use super::collective::{Named, Shape};
use crate::interop::imported::{DataCheck, Imported, Known, Row, RunFault, RunFaultKind, RunsFacts};
use crate::interop::log_text::{self, LogLine, Unread, microseconds, whole};
use commgauge_base::collective::{Collective, Placement, ReduceOp};
use commgauge_base::element::ElementType;
use commgauge_base::sample::Cadence;
use commgauge_base::units::{Bytes, Seconds, counted};
use commgauge_model::layout::{Axis, Groups, Locality};
use commgauge_model::record::line::RankFacts;
use std::collections::{BTreeMap, BTreeSet};

/// A rank as described by its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) rank: u32,
    pub(super) group: i64,
    pub(super) host: String,
    pub(super) model: String,
    /// Its number on the host and its bus address, as `0 [0x8d]`; absent if not printed.
    pub(super) slot: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) ranks: u32,
    pub(super) groups: u32,
    pub(super) locality: Locality,
    pub(super) device: Option<String>,
}

impl Device {
    /// `#  Rank  0 Group  0 Pid   1887 on   worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3`; old versions have no group.
    pub(super) fn of_line(text: &str) -> Option<Device> {
        let words: Vec<&str> = text.trim_start_matches('#').split_whitespace().collect();
        let ("Rank", rank) = (*words.first()?, words.get(1)?.parse().ok()?) else { return None };
        let after = |name: &str| words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1).copied());
        let (on, device) = (after("on")?, words.iter().position(|word| *word == "device")?);
        let group = after("Group").and_then(|group| group.parse().ok()).unwrap_or(0);
        let model = words.get(device + 3..).unwrap_or_default().join(" ");
        let slot = words.get(device + 1..device + 3).map(|words| words.join(" "));
        Some(Device { rank, group, host: on.to_owned(), model, slot })
    }

    /// Whether a comment looks like the line of a rank.
    pub(super) fn is_meant_by(comment: &str) -> bool {
        let mut words = comment.split_whitespace();
        words.next() == Some("Rank") && words.next().is_some_and(|rank| rank.parse::<u32>().is_ok())
    }

    /// The rank as records name it.
    pub(super) fn as_rank(&self) -> RankFacts {
        let device = Some(self.model.clone()).filter(|model| !model.is_empty());
        RankFacts { device, ..RankFacts::on_host(self.rank, &self.host) }
    }
}

/// Whether a host has one device twice: two hosts with one name, or two ranks that share a device.
pub(super) fn shared_device(devices: &[Device]) -> Option<String> {
    let mut rank_in: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    devices.iter().find_map(|device| {
        let Device { rank, host, slot: Some(slot), .. } = device else { return None };
        let other = rank_in.insert((host, slot), *rank)?;
        Some(format!(
            "ranks {other} and {rank} are both on device {slot} of {host}: two hosts have one name, or the ranks share a device"
        ))
    })
}

impl Group {
    /// The group of all ranks of a run.
    ///
    /// # Errors
    /// A sentence, if the list does not determine the number of ranks of a group.
    pub(super) fn of(devices: &[Device]) -> Result<Group, String> {
        if devices.is_empty() {
            return Err("the number of ranks is unknown: no line `# Rank ...` above".to_owned());
        }
        let ranks: BTreeSet<u32> = devices.iter().map(|device| device.rank).collect();
        if ranks.len() < devices.len() {
            return Err(format!("a rank is listed twice: {ARE_COPIES}"));
        }
        if ranks.last().is_some_and(|last| *last as usize + 1 != ranks.len()) {
            return Err(format!("ranks are missing among the lines `# Rank ...`: found {}", ranks.len()));
        }
        let mut members: BTreeMap<i64, BTreeSet<u32>> = BTreeMap::new();
        let mut hosts: BTreeMap<&str, u32> = BTreeMap::new();
        let mut host_of_rank = vec![0; devices.len()];
        for device in devices {
            members.entry(device.group).or_default().insert(device.rank);
            let next = hosts.len() as u32;
            host_of_rank[device.rank as usize] = *hosts.entry(&device.host).or_insert(next);
        }
        let groups = members.len() as u32;
        let members: Vec<Vec<u32>> = members.into_values().map(|ranks| ranks.into_iter().collect()).collect();
        let size = members.first().map_or(0, Vec::len);
        if members.iter().any(|group| group.len() != size) {
            return Err("the groups (NCCL_TESTS_SPLIT) differ in size, and the times are averages over them".to_owned());
        }
        let locality = Locality::of(&Groups { axis: Axis::World, groups: members }, &host_of_rank);
        Ok(Group { ranks: size as u32, groups, locality, device: common_model(devices) })
    }
}

/// The names of all hosts.
pub(super) fn hosts(devices: &[Device]) -> String {
    let hosts: BTreeSet<&str> = devices.iter().map(|device| &*device.host).collect();
    hosts.into_iter().collect::<Vec<_>>().join("+")
}

fn common_model(devices: &[Device]) -> Option<String> {
    let first = &devices.first()?.model;
    (!first.is_empty() && devices.iter().all(|device| device.model == *first)).then(|| first.clone())
}

// The text of nccl-tests: one or more runs in a log, each with a head, a table and a foot.

/// A warning.
pub(super) const MEANS: &str = "times of runs with several groups are means over the groups: they hide a slow group";

const ARE_COPIES: &str = "these are unconnected copies (built without MPI?), so the number of ranks is unknown";

/// The state of a run while it is read.
#[derive(Default)]
struct Run<'a> {
    facts: Facts,
    devices: Vec<Device>,
    /// Set for commgauge's own reports, whose devices belong to all groups.
    told_group: Option<(u32, u32)>,
    parameter_lines: u32,
    /// Of its launch, as the command line in the log says.
    processes: Option<u32>,
    ranks_of_process: u64,
    /// Whether the foot gave the number of wrong values.
    told_wrong_values: bool,
    table: Option<(Columns, Result<Group, String>)>,
    /// The rows of its table.
    rows: Vec<(LogLine<'a>, Fields)>,
}

#[derive(Default)]
struct Reader<'a> {
    file: &'a str,
    /// As the user says.
    ranks: Option<u32>,
    run: Run<'a>,
    imported: Imported,
    unread: Unread,
    log_lines: usize,
    averaged_groups: u32,
    /// What a line of NCCL left of a row, which the next line ends.
    begun_row: String,
    /// Whether the line before named only one placement, in place.
    in_place_above: bool,
}

pub(super) fn parse<'a>(text: &'a str, file: &'a str, ranks: Option<u32>) -> Imported {
    let mut reader = Reader { file, ranks, ..Reader::default() };
    for line in log_text::log_lines(text) {
        reader.take(line);
    }
    reader.finish(text)
}

impl<'a> Reader<'a> {
    fn take(&mut self, line: LogLine<'a>) {
        let text = line.text;
        if text.is_empty() || text == "#" {
            return;
        }
        if let Some(mut columns) = Columns::of_heading(text) {
            columns.in_place_alone = std::mem::take(&mut self.in_place_above);
            self.heading(line, columns);
        } else if is_log_line(text) {
            self.log_lines += 1;
            self.imported.facts.library_use.observe(text);
            // As NCCL_DEBUG=VERSION prints it: `NCCL version 2.27.3+cuda12.9`.
            if let Some((_, version)) = text.split_once("NCCL version ").filter(|(_, rest)| begins_with_digit(rest)) {
                self.run.facts.label("nccl_version", version.split(['+', ' ']).next().unwrap_or(version));
            }
            if self.run.table.is_some() && begins_with_digit(text) {
                // Its first word with a colon is `host:pid:tid`.
                let cells = text.split_whitespace().take_while(|word| !word.contains(':'));
                self.begun_row = cells.map(|cell| format!("{cell} ")).collect();
            }
        } else if let Some(comment) = text.strip_prefix('#') {
            self.in_place_above = comment.trim() == "in-place";
            self.comment(line, comment.trim());
        } else if let Some(device) = Device::of_line(text) {
            // Copied through Markdown, which turns the `#` into a heading.
            self.run.devices.push(device);
        } else if self.run.table.is_some() && begins_with_digit(text) {
            self.row(line);
        } else if log_text::looks_like_a_row(text) {
            self.imported.bad_lines.push(line.bad("a row outside a table: no heading above it"));
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
            let problem = "a second table begins before the first one ends; its run is unknown";
            self.imported.bad_lines.push(line.bad(problem));
        }
        let group = match (self.run.told_group, self.run.parameter_lines) {
            (_, 2..) => Err(format!("two runs begin before a table: {ARE_COPIES}")),
            (Some((groups, ranks)), _) => Ok(self.told_group(groups, ranks)),
            (None, _) => Group::of(&self.run.devices),
        };
        if self.run.devices.len() > self.imported.facts.ranks.len() {
            self.imported.facts.ranks = self.run.devices.iter().map(Device::as_rank).collect();
        }
        self.imported.facts.warnings.extend(shared_device(&self.run.devices));
        self.run.facts.label("hosts", hosts(&self.run.devices));
        if let Ok(group) = &group {
            self.averaged_groups = self.averaged_groups.max(group.groups);
        }
        if self.run.facts.named == Named::Nowhere {
            self.run.facts.named = Named::of_file(self.file);
        }
        if let Some(objection) = columns.objection() {
            self.imported.bad_lines.push(line.bad(format!("{objection}; the rows below are skipped")));
        }
        self.run.table = Some((columns, group));
    }

    /// If all ranks form one group, the device lines give its placement.
    fn told_group(&self, groups: u32, ranks: u32) -> Group {
        match Group::of(&self.run.devices) {
            Ok(group) if groups == 1 && group.ranks == ranks => group,
            all => Group { ranks, groups, locality: Locality::UNKNOWN, device: all.ok().and_then(|all| all.device) },
        }
    }

    fn row(&mut self, line: LogLine<'a>) {
        let Some((columns, _)) = &self.run.table else { return };
        if columns.objection().is_some() {
            return;
        }
        let whole = std::mem::take(&mut self.begun_row) + line.text;
        match columns.row(&whole) {
            // Nothing is moved, so nothing was measured.
            Ok(fields) if fields.bytes.0 == 0 => self.unread.add(line),
            Ok(fields) => self.run.rows.push((line, fields)),
            Err(problem) => self.imported.bad_lines.push(line.bad(problem)),
        }
    }

    /// Ends a run: all its rows together tell its ranks.
    fn end_run(&mut self) {
        let Run { facts, devices, parameter_lines, table, rows, processes, ranks_of_process, .. } =
            std::mem::take(&mut self.run);
        let Some((_, mut group)) = table else { return };
        let is_one = group.as_ref().map_or(devices.is_empty() && parameter_lines < 2, |group| group.groups == 1);
        let launched = u64::from(processes.unwrap_or(0)).saturating_mul(ranks_of_process);
        let launched = u32::try_from(launched).ok().filter(|ranks| *ranks > 0);
        let of_launch = launched.filter(|_| devices.is_empty()).map(|ranks| (ranks, "the command line"));
        let known = facts.ranks_told(&rows).map(|ranks| (ranks, "busbw / algbw")).or(of_launch);
        let known =
            self.ranks.map(|ranks| (ranks, "--ranks")).or(known.filter(|(ranks, _)| *ranks as usize > devices.len()));
        if let Some((ranks, source)) = known.filter(|_| is_one) {
            let lines = devices.len();
            let other = launched.filter(|launched| *launched != ranks);
            let other = other.map_or_else(String::new, |other| format!("; the command line says {other}"));
            let note = format!("{source} tells {ranks} ranks, which count; {lines} have a `# Rank` line{other}");
            self.imported.facts.notes.push(note);
            group = Ok(Group { ranks, groups: 1, locality: Locality::UNKNOWN, device: common_model(&devices) });
        }
        for (line, fields) in rows {
            match facts.rows(&group, &fields) {
                Ok(rows) => self.imported.rows.extend(rows),
                Err(problem) => self.imported.bad_lines.push(line.bad(problem)),
            }
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
            self.parameters(line, comment);
        } else if let Some(device) = Device::of_line(comment) {
            self.run.devices.push(device);
        } else if Device::is_meant_by(comment) {
            // Without it the last ranks could be missing unnoticed.
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
                self.imported.facts.faults.push(RunFault { kind: RunFaultKind::WrongData, text });
            }
        } else if let Some(average) = comment.strip_prefix("Avg bus bandwidth") {
            if average.contains("FAILED") {
                let average = average.trim_start_matches([' ', ':']);
                let text = format!("line {}: nccl-tests failed by its average bus bandwidth: {average}", line.number);
                self.imported.facts.faults.push(RunFault { kind: RunFaultKind::Failed, text });
            }
            if self.run.table.is_some() && !self.run.told_wrong_values {
                let text = format!("the foot in line {} lacks the number of wrong values", line.number);
                self.imported.facts.faults.push(RunFault { kind: RunFaultKind::CutOff, text });
            }
            self.end_run();
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
            self.end_run();
        }
    }

    fn cut_off(&mut self, line: LogLine) {
        let text = format!("the run before line {} is truncated: its table has no foot", line.number);
        self.imported.facts.faults.push(RunFault { kind: RunFaultKind::CutOff, text });
    }

    /// `nThread 1 nGpus 1 minBytes 8 ... iters: 20 agg iters: 1 validation: 1 graph: 0`
    fn parameters(&mut self, line: LogLine, comment: &str) {
        self.run.parameter_lines += 1;
        let number = |name: &str| {
            let rest = comment.split(name).nth(1)?;
            rest.split_whitespace().next()?.parse::<u64>().ok()
        };
        let iterations = comment.split(" iters:").nth(2).and_then(|rest| rest.split_whitespace().next());
        if iterations == Some("0") {
            let text = format!("line {}: `iters: 0`: a run without iterations measures nothing", line.number);
            self.imported.facts.faults.push(RunFault { kind: RunFaultKind::Failed, text });
        }
        self.run.ranks_of_process = number("nThread").unwrap_or(0).saturating_mul(number("nGpus").unwrap_or(0));
        self.run.facts.label("iters", iterations.unwrap_or_default());
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

    /// A command line in the log names the program if the program itself does not.
    fn hint(&mut self, text: &str) {
        // Without a launcher the program is one process.
        let alone = text.trim_start_matches(['$', ' ']).split(' ').next().and_then(Named::of_program).map(|_| 1);
        self.run.processes = log_text::launched_processes(text).or(alone).or(self.run.processes);
        match text.split_whitespace().find_map(Named::of_program) {
            Some(Named::Known(collective)) => self.run.facts.named = Named::Hinted(collective),
            Some(named) => self.run.facts.named = named,
            None => {}
        }
    }

    fn finish(mut self, text: &str) -> Imported {
        let is_begun = self.run.parameter_lines > 0 || !self.run.devices.is_empty();
        let missing = match self.run.table {
            Some(_) => Some("its table has no foot"),
            None => is_begun.then_some("it has no table"),
        };
        self.end_run();
        let RunsFacts { notes, warnings, faults, .. } = &mut self.imported.facts;
        self.imported.bad_lines.sort_by_key(|line| line.number);
        if let Some(missing) = missing {
            let torn = if text.ends_with('\n') { "" } else { ", and the file ends within a line" };
            let text = format!("the last run is truncated: {missing}{torn}");
            faults.push(RunFault { kind: RunFaultKind::CutOff, text });
        }
        warnings.extend((self.averaged_groups > 1).then(|| MEANS.to_owned()));
        if self.log_lines > 0 {
            let lines = counted(self.log_lines, "log line");
            notes.push(format!("{lines} of NCCL within the output count only for what it carried data over"));
        }
        notes.extend(self.unread.note());
        self.imported
    }
}

fn begins_with_digit(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit())
}

fn is_log_line(text: &str) -> bool {
    ["NCCL INFO", "NCCL WARN", "NCCL TRACE", "NCCL version"].iter().any(|mark| text.contains(mark))
}

// Facts that apply to all rows of an nccl-tests run, and the rows built from them and the fields of a line.

/// Facts of a run that its rows do not repeat.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) named: Named,
    /// Each call was waited for (`-z`).
    pub(super) blocking: bool,
    pub(super) synthetic: bool,
    /// Further facts: version of NCCL, aggregated calls, graph launches.
    pub(super) labels: BTreeMap<String, String>,
}

impl Facts {
    pub(super) fn label(&mut self, name: &str, value: impl ToString) {
        self.labels.insert(name.to_owned(), value.to_string());
    }

    /// A number that becomes a label only if it is not the default.
    pub(super) fn unusual(&mut self, name: &str, value: Option<u64>, usual: u64) {
        if let Some(value) = value.filter(|value| *value != usual) {
            self.label(name, value);
        }
    }

    /// The ranks that busbw / algbw of all rows tell: it is (n - 1) / n of 2 for all_reduce, and of 1 for calls with a block for each rank
    /// (doc/PERFORMANCE.md of nccl-tests).
    fn ranks_told(&self, rows: &[(LogLine, Fields)]) -> Option<u32> {
        let (Named::Known(collective) | Named::Hinted(collective)) = self.named else { return None };
        let most_at_all = match collective {
            Collective::AllReduce => 2.0,
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => 1.0,
            _ => return None,
        };
        let ranks = |busbw: f64, algbw: f64| 1.0 / (1.0 - (busbw / algbw / most_at_all).min(1.0));
        let (mut fewest, mut most) = (2.0_f64, f64::INFINITY);
        for half in rows.iter().flat_map(|(_, fields)| &fields.halves) {
            let (Some(algbw), Some(busbw)) = (half.algbw, half.busbw) else { continue };
            if algbw.value > 2.0 * algbw.step {
                fewest = fewest.max(ranks(busbw.value - busbw.step, algbw.value + algbw.step));
                most = most.min(ranks(busbw.value + busbw.step, algbw.value - algbw.step));
            }
        }
        let only = fewest.ceil();
        (only <= most && most < only + 1.0).then_some(only as u32)
    }

    /// The rows of a line, one for each placement with a time.
    pub(super) fn rows(&self, group: &Result<Group, String>, fields: &Fields) -> Result<Vec<Row>, String> {
        let group = group.as_ref().map_err(Clone::clone)?;
        let shape = Shape {
            bytes: fields.bytes.0,
            count: fields.count,
            element_type: fields.element_type,
            ranks: group.ranks,
            reduces: fields.reduce_op.is_some(),
            has_root: fields.root.is_some(),
        };
        let collective = shape.collective(&self.named)?;
        if let Some(contradiction) = fields.halves.iter().find_map(|half| contradiction(half, &shape, collective)) {
            return Err(contradiction);
        }
        let reduce_op = fields.reduce_op.as_deref().and_then(|op| op.parse::<ReduceOp>().ok());
        let mut labels = self.labels.clone();
        if let (Some(name), None) = (&fields.reduce_op, reduce_op) {
            labels.insert("redop".to_owned(), name.clone());
        }
        if group.groups > 1 {
            labels.insert("groups".to_owned(), group.groups.to_string());
        }
        labels.extend(group.device.iter().map(|device| ("device".to_owned(), device.clone())));
        let row = |half: &Half| Row {
            collective,
            element_type: fields.element_type,
            ranks: group.ranks,
            bytes_total: fields.bytes,
            latency: half.latency,
            locality: group.locality.clone(),
            known: Known {
                placement: Some(half.placement),
                cadence: Some(if self.blocking { Cadence::Isolated } else { Cadence::Streaming }),
                reduce_op: reduce_op.filter(|_| collective.reduces()),
                root: fields.root,
                data_check: half.wrong_elements.map(DataCheck::of_count),
                synthetic: self.synthetic,
            },
            labels: labels.clone(),
        };
        Ok(fields.halves.iter().map(row).collect())
    }
}

/// Contradictions within a row: nccl-tests prints the bandwidths that follow from the time; both must agree within their last digits.
fn contradiction(half: &Half, shape: &Shape, collective: Collective) -> Option<String> {
    /// Tolerance for a value printed in few digits and computed from more.
    const SLACK: f64 = 0.001;
    // For blocks of different length the size is less than the data moved.
    if collective == Collective::AllToAllV {
        return None;
    }
    let rate = |microseconds: f64| shape.bytes as f64 / microseconds / 1e3;
    let (time, step) = (half.time.value, half.time.step);
    let factor = collective.bus_factor(shape.ranks)?;
    let within = if half.placement == Placement::InPlace { "in place" } else { "out of place" };
    [("algbw", half.algbw, 1.0), ("busbw", half.busbw, factor)].into_iter().find_map(|(name, printed, factor)| {
        let printed = printed?;
        let low = rate(time + step) * factor * (1.0 - SLACK) - printed.step;
        let high = if time > step { rate(time - step) * factor * (1.0 + SLACK) + printed.step } else { f64::INFINITY };
        (!(low..=high).contains(&printed.value)).then(|| {
            format!(
                "time {time} us and {name} {} GB/s ({within}) contradict each other: {} bytes of {collective} on {} ranks in that time \
                 are {:.2} GB/s",
                printed.value,
                shape.bytes,
                shape.ranks,
                rate(time) * factor
            )
        })
    })
}

/// `22703` is 2.27.3; before 2.9 a version was `2804`.
pub(super) fn nccl_version(code: u64) -> String {
    let thousands = if code >= 10_000 { 100 } else { 10 };
    let (major, minor) = (code / (100 * thousands), code / 100 % thousands);
    format!("{major}.{minor}.{}", code % 100)
}

// The heading of an nccl-tests table, which differs between versions and options, and the fields of a row under it.

/// The names of the columns, in the order of the heading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    shared: Vec<String>,
    /// The columns of one placement; the other has the same.
    half: Vec<String>,
    halves: usize,
    /// Whether the only placement is in place, according to the line above the names.
    pub(super) in_place_alone: bool,
    timestamp: bool,
}

/// A row, unconverted.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fields {
    pub(super) bytes: Bytes,
    pub(super) count: u64,
    pub(super) element_type: ElementType,
    pub(super) reduce_op: Option<String>,
    pub(super) root: Option<u32>,
    pub(super) halves: Vec<Half>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Half {
    pub(super) placement: Placement,
    pub(super) latency: Seconds,
    pub(super) time: Printed,
    pub(super) algbw: Option<Printed>,
    pub(super) busbw: Option<Printed>,
    pub(super) wrong_elements: Option<u64>,
}

/// A number as printed: rounded or truncated at its last digit; versions differ in the number of digits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Printed {
    pub(super) value: f64,
    /// One unit in the last digit.
    pub(super) step: f64,
}

impl Printed {
    /// A number from 0 on.
    pub(super) fn of(column: &str, text: &str) -> Result<Printed, String> {
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
        let value = text.parse::<f64>().ok().filter(|value| *value >= 0.0 && value.is_finite());
        let step = exponent.parse::<i32>().ok().map(|exponent| 10f64.powi(exponent.saturating_sub(decimals as i32)));
        let both = value.zip(step).map(|(value, step)| Printed { value, step });
        both.ok_or_else(|| format!("{column}: found `{text}`; accepted: a number from 0 on"))
    }
}

/// Blanks that a row has in place of the out-of-place columns when it measured in place only.
const EMPTY_HALF: &str = "                        ";

impl Columns {
    /// From the line of names: `# size count type redop root time algbw busbw #wrong time algbw busbw #wrong`.
    pub(super) fn of_heading(text: &str) -> Option<Columns> {
        let words: Vec<String> = text.trim_start_matches('#').split_whitespace().map(str::to_owned).collect();
        let is_time = |word: &String| word == "time" || word == "cputime";
        let first = words.iter().position(is_time)?;
        if words.first()? != "size" || !words.iter().any(|word| word == "busbw") {
            return None;
        }
        let timestamp = words.last().is_some_and(|word| word == "timestamp");
        let end = words.len() - usize::from(timestamp);
        let second = words[first + 1..end].iter().position(is_time).map_or(end, |at| first + 1 + at);
        let half = words[first..second].to_vec();
        let halves = if second < end { 2 } else { 1 };
        (first + half.len() * halves == end).then(|| Columns {
            shared: words[..first].to_vec(),
            half,
            halves,
            in_place_alone: false,
            timestamp,
        })
    }

    /// Whether the same run continues with rows of other placements, as in commgauge's own reports.
    pub(super) fn is_of_other_placements(&self, next: &Columns) -> bool {
        (self.halves, self.in_place_alone) != (next.halves, next.in_place_alone)
            && (&self.shared, &self.half) == (&next.shared, &next.half)
    }

    /// Why the times are not those of the call; `None` if they are.
    pub(super) fn objection(&self) -> Option<&'static str> {
        (self.half.first().is_some_and(|name| name == "cputime"))
            .then_some("the times are processor times (-C), not those of the call")
    }

    pub(super) fn row(&self, text: &str) -> Result<Fields, String> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        if self.timestamp {
            words.truncate(words.len().saturating_sub(2));
        }
        let expected = self.shared.len() + self.half.len() * self.halves;
        // Calls that reduce nothing have a blank for it before 2.13, and hypercube has.
        let reduction = self.shared.iter().position(|column| column == "redop");
        if let Some(at) = reduction.filter(|at| words.len() + 1 == expected && words[*at].parse::<f64>().is_ok()) {
            words.insert(at, "none");
        }
        let in_place_only = self.halves == 2
            && words.len() == self.shared.len() + self.half.len()
            && text.trim_end().contains(EMPTY_HALF);
        if words.len() != expected && !in_place_only {
            return Err(format!("has {} fields, the heading {expected}", words.len()));
        }
        let (shared, measured) = words.split_at(self.shared.len());
        let field = |name: &str| self.shared.iter().position(|column| column == name).map(|index| shared[index]);
        let needed = |name: &str| field(name).ok_or_else(|| format!("the heading has no column `{name}`"));
        let placements: &[Placement] = if in_place_only || self.in_place_alone {
            &[Placement::InPlace]
        } else {
            &[Placement::OutOfPlace, Placement::InPlace]
        };
        let mut halves = Vec::new();
        for (placement, fields) in placements.iter().zip(measured.chunks(self.half.len())) {
            halves.extend(self.half(*placement, fields)?);
        }
        if halves.is_empty() {
            return Err("holds no time: N/A in all placements".to_owned());
        }
        let root = field("root").and_then(|root| root.parse::<i64>().ok());
        Ok(Fields {
            bytes: Bytes(whole("size", needed("size")?)?),
            count: whole("count", needed("count")?)?,
            element_type: needed("type")?.parse().map_err(|problem| format!("type: {problem}"))?,
            reduce_op: field("redop").filter(|op| *op != "none").map(str::to_owned),
            root: root.and_then(|root| u32::try_from(root).ok()),
            halves,
        })
    }

    fn half(&self, placement: Placement, fields: &[&str]) -> Result<Option<Half>, String> {
        let field =
            |name: &str| self.half.iter().position(|column| column == name).and_then(|at| fields.get(at).copied());
        let time = fields.first().copied().unwrap_or_default();
        if time == "N/A" {
            return Ok(None);
        }
        // The old column `error` is a deviation, not a number of elements; its meaning depends on the type.
        let wrong_elements = match field("#wrong") {
            None | Some("N/A") => None,
            Some(text) => Some(wrong_elements(text)?),
        };
        let rate =
            |name: &str| field(name).filter(|text| *text != "N/A").map(|text| Printed::of(name, text)).transpose();
        Ok(Some(Half {
            placement,
            latency: microseconds("time", time)?,
            time: Printed::of("time", time)?,
            algbw: rate("algbw")?,
            busbw: rate("busbw")?,
            wrong_elements,
        }))
    }
}

/// A count as C's `%g` prints it.
pub(super) fn wrong_elements(text: &str) -> Result<u64, String> {
    let count = text.parse::<f64>().ok().filter(|count| *count >= 0.0 && count.is_finite());
    count
        .map(|count| count.ceil() as u64)
        .ok_or_else(|| format!("#wrong: found `{text}`; accepted: a number of elements"))
}
