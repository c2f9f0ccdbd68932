//! Summary of a run on one screen: alarms, status counts, costs of parallelisms, the worst finding, and the next commands. A
//! record becomes plain data here, and text in `text`; tables are those of the report.

mod costs;

pub(super) use costs::JsonCosts;
pub use costs::{Costs, FamilyCost};

use super::products::timeline;
use super::provenance::ending_of;
use super::row::Status;
use super::text::visible;
use super::view::{View, peaks};
use crate::chart::{Axis, Bar, Bars, Unit};
use crate::report::document::{Block, Column, Fields, Figure, Table, percent, seconds_between};
use crate::report::text::{Paint, wrap};
use commgauge_base::units::{Seconds, counted};
use commgauge_base::writing::ascending;
use commgauge_model::record::Record;
use commgauge_model::record::line::EndStatus;

/// Maximum number of lines of a screen.
pub const MAX_LINES: usize = 22;

/// What is on the screen, from top to bottom.
#[derive(Clone, Debug, PartialEq)]
pub struct Screen {
    /// Conditions that invalidate the numbers, as sentences, the most severe first.
    pub alarms: Vec<String>,
    /// What ran, where, and for how long.
    pub run: String,
    /// Number of cases by status: label and number.
    pub counts: Vec<(String, usize)>,
    /// The same for matrix products and copies, if any, such as `4 products: 4 right`.
    pub own_work: Vec<String>,
    /// What each parallelism costs, or how to learn it.
    pub costs: Result<Costs, String>,
    /// The best bandwidth and the least latency of each collective, where any was measured.
    pub peaks: Option<String>,
    /// The worst finding, or a sentence that there is none.
    pub finding: String,
    /// Commands to type next, each with what it is for.
    pub commands: Vec<(String, &'static str)>,
}

/// Names of program and record in suggested commands.
#[derive(Clone, Copy, Debug)]
pub struct CommandNames<'a> {
    /// This program, as it was invoked.
    pub program: &'a str,
    /// The record, quoted for a shell.
    pub record: &'a str,
}

impl Screen {
    /// The screen of a record.
    pub fn of(record: &Record, view: &View, called: CommandNames) -> Screen {
        Screen {
            alarms: of(record, view),
            run: run(view),
            counts: counts(view),
            own_work: view.own_work(),
            costs: costs::of(view, called.program),
            peaks: peaks(&view.rows),
            finding: finding(view),
            commands: commands(view, called),
        }
    }
}

fn finding(view: &View) -> String {
    let is_complete = view.completion.end.as_ref().is_some_and(|end| end.status == EndStatus::Complete);
    match &view.findings.worst {
        Some(worst) => format!("Worst finding: {}", visible(worst)),
        None if is_complete => "Findings: none; no call contradicts another, no rank is late.".to_owned(),
        None => "Findings: none in what was measured.".to_owned(),
    }
}

fn run(view: &View) -> String {
    let header = &view.header;
    let hosts: Vec<&str> = ascending(header.ranks.iter().map(|rank| rank.host.as_str()));
    let place = match &hosts[..] {
        [] => String::new(),
        [host] => format!(" on {host}"),
        hosts => format!(" on {}", counted(hosts.len(), "host")),
    };
    let time = view.completion.end.as_ref().map_or_else(String::new, |end| format!(", {}", end.elapsed_seconds));
    let ranks = counted(header.world_size as usize, "rank");
    format!("{}: {ranks}{place}, {}{time}", header.suite.name, header.backend.library)
}

/// Verified, failed and skipped cases always; other statuses where they occur.
fn counts(view: &View) -> Vec<(String, usize)> {
    const ALWAYS: [&str; 3] = ["verified", "failed", "skipped"];
    const SOMETIMES: [&str; 4] = ["WRONG", "not verified", "synthetic", "missing"];
    let counted = |label: &str| view.rows.iter().filter(|row| row.status.label() == label).count();
    let shown = |label: &&str| ALWAYS.contains(label) || counted(label) > 0;
    let labels = ALWAYS.into_iter().chain(SOMETIMES).filter(shown);
    labels.map(|label| (label.to_owned(), counted(label))).collect()
}

fn commands(view: &View, CommandNames { program, record }: CommandNames) -> Vec<(String, &'static str)> {
    let report = (format!("{program} report {record}"), "every table");
    let ended = view.completion.end.as_ref().map(|end| end.status);
    let second = match ended {
        Some(EndStatus::Complete | EndStatus::Failed) => {
            (format!("{program} report {record} -o report.html"), "a page")
        }
        Some(EndStatus::Interrupted | EndStatus::OutOfTime) | None => {
            (format!("{program} run --resume {record}"), "continue")
        }
    };
    vec![report, second]
}

// Conditions that invalidate the numbers of a run, the most severe first: wrong data before everything.

fn of(record: &Record, view: &View) -> Vec<String> {
    let mut alarms = Vec::new();
    alarms.extend(first_of(view, "data arrived WRONG in", |status| matches!(status, Status::Wrong { .. })));
    alarms.extend(first_of(view, "failed:", |status| matches!(status, Status::Failed(_))));
    alarms.extend(ending(view));
    if view.header.backend.synthetic {
        alarms.push("SYNTHETIC: no data moved and no real time passed; these are not measurements".to_owned());
    }
    // The warnings of a synthetic record mention it as well.
    let of_machine = view.header.warnings.iter().filter(|text| !text.starts_with("synthetic"));
    alarms.extend(of_machine.chain(&record.file.warnings).cloned());
    alarms
}

/// The number of cases, copies and products with such a status, and the first of them with its reason.
fn first_of(view: &View, what: &str, wanted: fn(&Status) -> bool) -> Option<String> {
    let mut found = view.entries().filter(|entry| wanted(&entry.status));
    let first = found.next()?;
    let reason = first.status.reason().unwrap_or_default();
    let more = found.count();
    let cases = counted(1 + more, "case") + if more > 0 { ", the first" } else { "" };
    Some(format!("{what} {cases}: {}: {reason}", first.name))
}

/// How a run ended other than complete.
pub(super) fn ending(view: &View) -> Option<String> {
    let Some(end) = &view.completion.end else {
        let text = if view.completion.running {
            "the run is in progress"
        } else {
            "the record has no end: the run was cut off"
        };
        return Some(text.to_owned());
    };
    ending_of(end)
}

// The screen as text: aligned, fitted to a width, and no longer than [`MAX_LINES`].

/// Lines that alarms may take together, and that the finding and the bandwidths may.
const ALARM_LINES: usize = 3;

const FINDING_LINES: usize = 2;

/// The screen for a terminal of this many columns.
pub fn text(screen: &Screen, width: u16, paint: Paint) -> String {
    let width = usize::from(width).max(40);
    let mut parts = vec![head(screen, width, paint), costs(screen, width, paint)];
    parts.extend(screen.peaks.as_ref().map(|peaks| cut(&wrap(peaks, width, 2), FINDING_LINES, width)));
    parts.push(cut(&wrap(&screen.finding, width, 2), FINDING_LINES, width));
    parts.push(text_commands(screen, width, paint));
    let lines: usize = parts.iter().map(Vec::len).sum();
    let gap = if lines + parts.len() - 1 <= MAX_LINES { "\n\n" } else { "\n" };
    parts.iter().map(|part| part.join("\n")).collect::<Vec<_>>().join(gap) + "\n"
}

/// Its warnings and counts alone.
pub fn head_text(screen: &Screen, width: u16, paint: Paint) -> String {
    head(screen, usize::from(width).max(40), paint).join("\n") + "\n"
}

fn head(screen: &Screen, width: usize, paint: Paint) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, alarm) in screen.alarms.iter().enumerate() {
        let room = ALARM_LINES.saturating_sub(lines.len());
        let more = screen.alarms.len() - index;
        match room {
            0 => break,
            1 if more > 1 => lines.push(paint.alarm(&format!("! {more} more warnings: see the report"))),
            room => {
                let wrapped = cut(&wrap(&format!("! {}", visible(alarm)), width, 2), room.min(2), width);
                lines.extend(wrapped.iter().map(|line| paint.alarm(line)));
            }
        }
        if room == 1 {
            break;
        }
    }
    lines.extend(cut(&wrap(&visible(&screen.run), width, 2), 2, width));
    let counts: Vec<String> = screen.counts.iter().map(|(label, count)| format!("{count} {label}")).collect();
    let cases =
        (screen.own_work.is_empty() || screen.counts.iter().any(|(_, count)| *count > 0)).then(|| counts.join(", "));
    let all: Vec<String> = cases.into_iter().chain(screen.own_work.iter().cloned()).collect();
    lines.push(paint.bold(&all.join("; ")));
    lines
}

fn costs(screen: &Screen, width: usize, paint: Paint) -> Vec<String> {
    let costs = match &screen.costs {
        Ok(costs) => costs,
        Err(how) => return cut(&wrap(how, width, 2), 2, width),
    };
    let mut lines = cut(&title(costs), 1, width);
    lines.iter_mut().for_each(|line| *line = paint.bold(line));
    lines.extend(cut(&basis(costs), 1, width));
    lines.extend(table(&costs.families, width));
    lines.extend(cut(&costs.rule, 1, width).iter().map(|line| paint.bold(line)));
    lines
}

fn title(costs: &Costs) -> String {
    let step = &costs.step;
    format!("What each parallelism costs in a {} step of {}", visible(&step.phase), visible(&step.model))
}

/// The layout, its ranks, and where the times come from.
fn basis(costs: &Costs) -> String {
    let (ranks, layout) = (costs.step.degrees.world(), visible(&costs.step.layout));
    match costs.measured {
        true => format!("{layout}: measured on {ranks} ranks, all calls one after another"),
        false => format!("{layout}: {ranks} ranks, predicted from calls of {}", costs.ranks),
    }
}

/// The costs of the parallelisms, where the plan ranks a step and something of it can be said.
pub(super) fn document(view: &View) -> Vec<Block> {
    let costs = view.ranking.as_ref().and_then(|_| costs::of(view, "commgauge").ok());
    let Some(costs) = costs else { return Vec::new() };
    let reasons = (costs.families.iter())
        .filter_map(|cost| Some(format!("{}: {}", cost.family.name(), cost.seconds.as_ref().err()?)));
    let order = format!("order of costs: {} (> is sure, = is a tie, ? is not known)", costs.order);
    let sentences: Vec<String> = reasons.chain([basis(&costs), order, costs.rule.clone()]).collect();
    let heading = format!("{}, all calls one after another", title(&costs));
    vec![Block::Table(costs_table(&heading, &costs.families)), Block::list(sentences)]
}

/// What the costs of a run are about, for a heading.
pub(super) fn lead_title(view: &View) -> Option<String> {
    costs::of(view, "commgauge").ok().map(|costs| title(&costs))
}

/// The costs for the first screen of a page: bars, and the answer in a sentence.
pub(super) fn lead(view: &View) -> Vec<Block> {
    let replayed = view.replays.first().and_then(timeline);
    let costs = match costs::of(view, "commgauge") {
        Ok(costs) => costs,
        Err(how) => return replayed.into_iter().chain([Block::absent(how)]).collect(),
    };
    let mut bars = Bars::new("Time in a step, all calls one after another", Axis::linear("", Unit::Seconds));
    bars.description = title(&costs);
    bars.parts = vec!["exposed".to_owned(), "hidden by computing".to_owned()];
    let bar = |cost: &FamilyCost| match &cost.seconds {
        Ok((time, exposed)) => Bar {
            label: cost.family.name().to_owned(),
            parts: vec![exposed.middle, (time.middle - exposed.middle).max(0.0)],
            interval: time.interval,
            note: Seconds(time.middle).to_string(),
        },
        Err(reason) => Bar {
            label: cost.family.name().to_owned(),
            parts: Vec::new(),
            interval: None,
            note: reason.split(':').next().unwrap_or_default().to_owned(),
        },
    };
    bars.bars = costs.families.iter().map(bar).collect();
    let chart = Block::Charts(vec![Figure::new(&bars.title, bars.draw())]);
    let of_step = [chart, Block::text(basis(&costs)), Block::Strong(costs.rule.clone())];
    replayed.into_iter().chain(of_step).collect()
}

/// Letters of the longest bar.
const BAR_LETTERS: f64 = 20.0;

/// Exposed time as a solid bar, and what computing hides as a light one.
fn bar(cost: &FamilyCost, longest: f64) -> Option<String> {
    let (time, exposed) = cost.seconds.as_ref().ok()?;
    let letters = |seconds: f64| (BAR_LETTERS * seconds / longest).round() as usize;
    let solid = letters(exposed.middle);
    Some("█".repeat(solid) + &"░".repeat(letters(time.middle).saturating_sub(solid)))
}

fn table(families: &[FamilyCost], width: usize) -> Vec<String> {
    let longest = families.iter().map(costs::middle).fold(f64::MIN_POSITIVE, f64::max);
    let bars = families.iter().filter_map(|cost| bar(cost, longest));
    let table = costs_table("", families).with_column(Column::left("", 9), bars);
    let text = table.text(u16::try_from(width).unwrap_or(u16::MAX));
    let shown = text.lines().filter(|line| !table.rows.is_empty() && !line.starts_with(['-', '(']));
    let mut lines: Vec<String> = shown.map(|line| format!("  {line}")).collect();
    for cost in families {
        if let Err(reason) = &cost.seconds {
            lines.extend(cut(&format!("  {}  {}", cost.family.name(), visible(reason)), 1, width));
        }
    }
    lines
}

/// The rows of those that have a time.
fn costs_table(title: &str, families: &[FamilyCost]) -> Table {
    let known = || families.iter().filter_map(|cost| Some((cost.family, cost.seconds.as_ref().ok()?)));
    let whole: f64 = known().map(|(_, (time, _))| time.middle).sum();
    let share = |time: f64| percent(if whole > 0.0 { time / whole } else { 0.0 }, 1);
    let exposed = |seconds: f64| if seconds > 0.0 { Seconds(seconds).to_string() } else { "none".to_owned() };
    Fields::of(known())
        .left("", 0, |(family, _)| family.name())
        .right("per step", 0, |(_, (time, _))| Seconds(time.middle))
        .right("95 % interval", 0, |(_, (time, _))| seconds_between(*time))
        .right("share", 1, |(_, (time, _))| share(time.middle))
        .right("exposed", 0, |(_, (_, hidden))| exposed(hidden.middle))
        .table(title)
}

/// Commands are never broken, so that they can be copied; what they are for is left out where there is no room.
fn text_commands(screen: &Screen, width: usize, paint: Paint) -> Vec<String> {
    let longest = screen.commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    let comments = screen.commands.iter().map(|(_, what)| what.len()).max().unwrap_or(0);
    let room = 2 + longest + 3 + comments <= width;
    let line = |(command, what): &(String, &str)| {
        let comment = if room {
            format!("{:pad$}   {}", "", paint.dim(what), pad = longest - command.chars().count())
        } else {
            String::new()
        };
        format!("  {}{comment}", visible(command))
    };
    std::iter::once("Next:".to_owned()).chain(screen.commands.iter().map(line)).collect()
}

/// At most this many lines, none wider than the width; dots mark what is omitted.
fn cut(text: &str, most: usize, width: usize) -> Vec<String> {
    let all: Vec<&str> = text.lines().collect();
    let shortened = |line: &str| {
        let shortened: String = line.chars().take(width - 4).collect();
        format!("{} ...", shortened.trim_end())
    };
    let one = |(index, line): (usize, &&str)| {
        let is_last = index + 1 == most && all.len() > most;
        if is_last || line.chars().count() > width { shortened(line) } else { (*line).to_owned() }
    };
    all.iter().take(most).enumerate().map(one).collect()
}

#[cfg(test)]
pub(super) mod tests {
    // What a screen promises, on records made by hand.
    use super::*;
    use crate::report::Paint;
    use crate::report::step::tests::{USUAL, record};
    use commgauge_base::units::Bytes;
    use commgauge_model::layout::{Axis, Degrees};
    use commgauge_model::record::Line;
    use commgauge_model::record::line::{EndStatus, Outcome};
    use commgauge_model::workload::{Family, Measure, RankedCall, RankedStep};
    use commgauge_plan::planner::rank::Order;

    const CALLED: CommandNames = CommandNames { program: "commgauge", record: "reports/runs/r.jsonl" };

    fn screen(record: &Record) -> Screen {
        Screen::of(record, &View::new(record), CALLED)
    }

    fn shown(record: &Record, width: u16) -> String {
        text(&screen(record), width, Paint::Plain)
    }

    /// The step of 8 ranks that USUAL makes, on as many ranks.
    fn whole() -> Record {
        let mut record = ended(&USUAL);
        record.header.world_size = 8;
        record
    }

    /// The sample that these records are made from was interrupted.
    fn ended(calls: &[crate::report::step::tests::StepCall]) -> Record {
        let mut record = record(calls);
        if let Some(end) = &mut record.end {
            (end.status, end.error, end.exit_code) = (EndStatus::Complete, None, 0);
        }
        record
    }

    /// A ranking of all five parallelisms, of which PP needs groups that four ranks cannot replace.
    pub(in crate::report) fn predicted() -> Record {
        let mut record = ended(&USUAL);
        let row = |index: usize| &record.plan.cases[index];
        let call = |index: usize, axis: Axis, group_size: u32, count_per_step: u64, exposed: bool| RankedCall {
            style: row(index).style,
            axis,
            group_size,
            stride: 1,
            collective: row(index).collective,
            element_type: row(index).element_type,
            reduce_op: row(index).reduce_op,
            bytes_total: row(index).bytes_total,
            splits: None,
            count_per_step,
            exposed,
        };
        let calls = vec![
            call(0, Axis::Tp, 2, 640, true),
            call(0, Axis::Cp, 2, 3, false),
            call(1, Axis::Dp, 2, 100, true),
            call(2, Axis::Pp, 16, 8, true),
        ];
        let facts = commgauge_model::workload::StepFacts {
            model: "a-mixture".to_owned(),
            layout: "tp 2 x cp 2 x dp 2 x pp 16".to_owned(),
            degrees: Degrees::dense(2, 2, 2, 16),
            ..record.plan.steps[0].clone()
        };
        record.plan.ranking = Some(RankedStep { facts, calls });
        record
    }

    fn costs(record: &Record) -> Costs {
        screen(record).costs.expect("there is a model")
    }

    fn of(costs: &Costs, family: Family) -> Result<f64, String> {
        let found = costs.families.iter().find(|cost| cost.family == family).expect("all are listed");
        found.seconds.clone().map(|(time, _)| time.middle)
    }

    #[test]
    fn the_cost_of_an_axis_is_the_sum_of_calls_times_their_count() {
        let costs = costs(&whole());
        assert!(costs.measured);
        for (family, expected) in [(Family::Tensor, 6.4e-3), (Family::Data, 2e-3), (Family::Pipeline, 1.6e-3)] {
            let found = of(&costs, family).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-3, "{}: {found}", family.name());
        }
        assert_eq!(costs.order, "TP > DP > PP");
        assert!(costs.rule.starts_with("TP > DP > PP holds"), "{}", costs.rule);
        let by_time = |order: &&Order| order.measure == Measure::Time;
        let step = View::new(&whole()).steps.remove(0);
        let table = step.rankings.iter().find(by_time).map(|order| (order.text(), order.rule_text())).unwrap();
        assert_eq!(table, (costs.order.clone(), "holds".to_owned()), "the table of the step says the same");
        let families: Vec<&str> = costs.families.iter().map(|cost| cost.family.name()).collect();
        assert_eq!(families, ["TP", "DP", "PP"], "those of the layout alone");
    }

    #[test]
    fn a_layout_larger_than_the_run_is_predicted_from_its_calls_and_missing_predictions_have_a_reason() {
        let costs = costs(&predicted());
        assert!(!costs.measured && costs.ranks == 4);
        for (family, expected) in [(Family::Tensor, 64e-3), (Family::Context, 0.3e-3), (Family::Data, 100e-3)] {
            let found = of(&costs, family).unwrap();
            assert!((found / expected - 1.0).abs() < 1e-3, "{}: {found}", family.name());
        }
        let reason = of(&costs, Family::Pipeline).unwrap_err();
        assert!(
            reason.starts_with("not measured: PP all_reduce of")
                && reason.ends_with("groups of 16 ranks, the run has 4")
        );
        assert_eq!(costs.order, "DP > TP > CP");
        assert_eq!(costs.rule, "TP > DP > PP: not known without PP.");
        let names: Vec<&str> = costs.families.iter().map(|cost| cost.family.name()).collect();
        assert_eq!(names[..3], ["DP", "TP", "CP"], "the costliest first: {names:?}");
        assert!(shown(&predicted(), 80).contains("ranks, predicted from calls of 4"));
    }

    #[test]
    fn an_order_that_contradicts_the_rule_is_reported_with_its_uncertainty() {
        let mut other = predicted();
        if let Some(ranking) = &mut other.plan.ranking {
            ranking.calls[3].group_size = 2;
        }
        let rule = costs(&other).rule;
        assert!(rule.starts_with("TP > DP > PP does not hold: DP > TP > PP, ") && rule.ends_with(" % sure."), "{rule}");
    }

    #[test]
    fn a_run_without_a_model_says_in_one_line_how_to_get_a_ranking() {
        let mut sweep = whole();
        sweep.plan.steps.clear();
        sweep.plan.cases.iter_mut().for_each(|case| case.uses.clear());
        let how = screen(&sweep).costs.unwrap_err();
        assert!(how.contains("`commgauge run quick`"), "{how}");
        let text = shown(&sweep, 140);
        assert!(text.lines().any(|line| line == how) && !text.contains("per step"), "{text}");
    }

    #[test]
    fn wrong_data_comes_first_then_what_else_makes_numbers_meaningless() {
        let mut broken = whole();
        broken.header.warnings =
            vec!["host a has 8 ranks on 2 processors: ranks take turns, and times are unreliable".to_owned()];
        assert!(shown(&broken, 80).starts_with("! host a has 8 ranks on 2 processors"), "{}", shown(&broken, 80));
        broken.cases[0].outcome = Outcome::corrupt("after", 1, 7, ["1", "2"], 3);
        let text = shown(&broken, 80);
        assert!(text.starts_with("! data arrived WRONG in 1 case: tp/"), "{text}");
        assert!(text.contains("! host a has 8 ranks") && text.contains("1 WRONG"), "{text}");
        assert!(text.contains("TP  not known: TP all_reduce of"), "numbers of wrong data are withheld: {text}");
    }

    #[test]
    fn an_early_end_is_explained_with_the_command_to_resume() {
        for (status, said) in [
            (Some(EndStatus::Interrupted), "! the run was interrupted"),
            (Some(EndStatus::OutOfTime), "! the run stopped before its time limit"),
            (None, "! the record has no end"),
        ] {
            let mut cut = whole();
            match (status, &mut cut.end) {
                (Some(status), Some(end)) => end.status = status,
                _ => cut.end = None,
            }
            let text = shown(&cut, 80);
            assert!(text.contains(said) && text.contains("  commgauge run --resume reports/runs/r.jsonl"), "{text}");
            assert!(text.contains("Findings: none in what was measured."), "{text}");
        }
    }

    #[test]
    fn a_screen_is_never_longer_than_a_terminal_nor_wider() {
        let mut worst = predicted();
        worst.header.warnings =
            (0..9).map(|index| format!("warning {index} {}", "that continues on and on ".repeat(12))).collect();
        worst.header.suite.name = "a suite with a name ".repeat(12);
        if let Some(ranking) = &mut worst.plan.ranking {
            ranking.facts.model = "a-model-".repeat(20);
            ranking.calls.iter_mut().for_each(|call| call.group_size = 99);
            ranking.calls.iter_mut().for_each(|call| call.bytes_total = Bytes(7));
        }
        let mut view = View::new(&worst);
        view.findings.worst = Some("a finding ".repeat(60));
        let full = Screen::of(&worst, &view, CALLED);
        for width in [40, 80, 140] {
            for screen in [&full, &screen(&predicted()), &screen(&whole())] {
                let text = text(screen, width, Paint::Plain);
                let lines = text.lines().count();
                assert!(lines <= MAX_LINES, "{lines} at {width}:\n{text}");
                let commands: Vec<&str> = screen.commands.iter().map(|(command, _)| command.as_str()).collect();
                for line in text.lines().filter(|line| !commands.contains(&line.trim())) {
                    assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
                }
                assert!(commands.iter().all(|command| text.contains(command)), "commands are never cut: {text}");
            }
        }
    }

    #[test]
    fn the_screen_is_as_published() {
        for width in [80, 140] {
            insta::assert_snapshot!(format!("predicted_{width}"), shown(&predicted(), width));
        }
        insta::assert_snapshot!("measured_80", shown(&whole(), 80));
        insta::assert_snapshot!(
            "measured_80_colored",
            text(&screen(&whole()), 80, Paint::Colors).replace('\x1b', "ESC")
        );
    }

    #[test]
    fn no_hostile_text_is_passed_on() {
        let mut hostile = whole();
        let poison = || "\x1b[31mx\u{202e}\n".to_owned();
        hostile.header.suite.name = poison();
        hostile.header.backend.library = poison();
        hostile.header.warnings = vec![poison()];
        hostile.plan.steps[0].model = poison();
        hostile.plan.steps[0].layout = poison();
        for case in &mut hostile.plan.cases {
            case.name = poison();
        }
        hostile.cases[0].outcome = Outcome::Failed { reason: poison() };
        let text = shown(&hostile, 80);
        assert!(!text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}'), "{text:?}");
    }

    #[test]
    fn the_sample_record_has_a_screen() {
        insta::assert_snapshot!("sample_80", shown(&commgauge_model::record::testing::sample(), 80));
    }

    #[test]
    fn copies_are_counted_after_the_cases_and_alone_without_cases() {
        let mut record = ended(&USUAL);
        for line in commgauge_judge::verdict::testing::copy_lines(&[20.0; 3]) {
            let Line::Copy(copy) = line else { panic!("a copy") };
            record.copies.push(*copy);
        }
        let text = shown(&record, 100);
        assert!(text.lines().any(|line| line.contains(" verified, ") && line.contains("; 1 copy: 1 ")), "{text}");
        record.plan.cases.clear();
        record.cases.clear();
        let text = shown(&record, 100);
        assert!(text.lines().any(|line| line.starts_with("1 copy: 1 ")), "{text}");
    }
}
