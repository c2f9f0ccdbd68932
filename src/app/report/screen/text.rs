//! The screen as text: aligned, fitted to a width, and no longer than [`MAX_LINES`].

use super::{Costs, FamilyCost, MAX_LINES, Screen};
use crate::report::color::Paint;
use crate::report::document::{self, Block, Column, Table, percent, seconds_between};
use crate::report::text::{visible, wrap};
use crate::report::view::View;
use commgauge_base::units::Seconds;

/// Lines that alarms may take together, and that the finding may.
const ALARM_LINES: usize = 4;
const FINDING_LINES: usize = 3;

/// The screen for a terminal of so many columns.
pub fn text(screen: &Screen, width: u16, paint: Paint) -> String {
    let width = usize::from(width).max(40);
    let mut parts = vec![head(screen, width, paint), costs(screen, width, paint)];
    parts.push(cut(&wrap(&screen.finding, width, 2), FINDING_LINES, width));
    parts.push(commands(screen, width, paint));
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
            1 if more > 1 => lines.push(paint.alarm(&format!("! {more} more warnings; the report has them all"))),
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
    let mut lines = cut(&wrap(&title(costs), width, 2), 2, width);
    lines.iter_mut().for_each(|line| *line = paint.bold(line));
    lines.extend(cut(&wrap(&basis(costs), width, 2), 2, width));
    lines.extend(table(&costs.families, width));
    let order = match costs.order.is_empty() {
        true => Vec::new(),
        false => vec![format!("Order of costs: {}   (> is sure, = is a tie, ? is not known)", costs.order)],
    };
    lines.extend(order.iter().flat_map(|line| cut(&wrap(line, width, 2), 1, width)));
    let rule = cut(&wrap(&costs.rule, width, 2), 1, width);
    lines.extend(rule.iter().map(|line| paint.bold(line)));
    lines
}

fn title(costs: &Costs) -> String {
    let step = &costs.step;
    format!("What each parallelism costs in a {} step of {}", visible(&step.phase), visible(&step.model))
}

fn basis(costs: &Costs) -> String {
    let (ranks, layout) = (costs.step.degrees.world(), visible(&costs.step.layout));
    match costs.measured {
        true => format!("{layout}: measured, all calls one after another"),
        false => format!(
            "{layout} ({ranks} ranks): predicted from the measured calls of {} ranks, one after another",
            costs.ranks
        ),
    }
}

/// The costs of the parallelisms, where the plan ranks a step and something of it can be said.
pub(in crate::report) fn document(view: &View) -> Vec<Block> {
    let costs = view.ranking.as_ref().and_then(|_| super::costs::of(view, "commgauge").ok());
    let Some(costs) = costs else { return Vec::new() };
    let reasons = (costs.families.iter())
        .filter_map(|cost| Some(format!("{}: {}", cost.family.name(), cost.seconds.as_ref().err()?)));
    let order = format!("order of costs: {} (> is sure, = is a tie, ? is not known)", costs.order);
    let sentences: Vec<String> = reasons.chain([basis(&costs), order, costs.rule.clone()]).collect();
    vec![Block::Table(Table::new(title(&costs), &COLUMNS, cells(&costs.families))), Block::list(sentences)]
}

const COLUMNS: [Column; 5] = [
    Column::left("", 0),
    Column::right("per step", 0),
    Column::right("95 % interval", 0),
    Column::right("share", 1),
    Column::right("not hidden", 2),
];

fn table(families: &[FamilyCost], width: usize) -> Vec<String> {
    let rows = cells(families);
    let text = document::table(&COLUMNS, &rows, u16::try_from(width).unwrap_or(u16::MAX));
    let shown = text.lines().filter(|line| !rows.is_empty() && !line.starts_with(['-', '(']));
    let mut lines: Vec<String> = shown.map(|line| format!("  {line}")).collect();
    for cost in families {
        if let Err(reason) = &cost.seconds {
            lines.extend(cut(&format!("  {}  {}", cost.family.name(), visible(reason)), 1, width));
        }
    }
    lines
}

/// The rows of those that have a time.
fn cells(families: &[FamilyCost]) -> Vec<Vec<String>> {
    let whole: f64 = families.iter().filter_map(|cost| cost.seconds.as_ref().ok()).map(|(time, _)| time.middle).sum();
    let row = |cost: &FamilyCost| {
        let (time, exposed) = cost.seconds.as_ref().ok()?;
        let share = if whole > 0.0 { time.middle / whole } else { 0.0 };
        Some(vec![
            cost.family.name().to_owned(),
            Seconds(time.middle).to_string(),
            seconds_between(*time),
            percent(share, 1),
            if exposed.middle > 0.0 { Seconds(exposed.middle).to_string() } else { "none".to_owned() },
        ])
    };
    families.iter().filter_map(row).collect()
}

/// Commands are never broken, so that they can be copied; what they are for is left out where there is no room.
fn commands(screen: &Screen, width: usize, paint: Paint) -> Vec<String> {
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

/// At most so many lines, none wider than the width; what is left out leaves dots.
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
