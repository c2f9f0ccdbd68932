//! Charts in sentences: the ends of each series and its extremes, for those who cannot see the picture.

use super::plot::{Plot, Point};

/// Series that are put into words; the legend has the others.
const MAX_SERIES: usize = 6;

/// The sentences after a description, which may be empty.
pub(super) fn joined(description: &str, sentences: impl IntoIterator<Item = String>) -> String {
    let mut text = description.trim().to_owned();
    for sentence in sentences {
        if !text.is_empty() {
            text.push(' ');
        }
        text += &sentence;
        text.push('.');
    }
    text
}

/// Each series of a plot by its first and last point, its least and its greatest; then reference lines and changes.
pub(super) fn of_plot(plot: &Plot) -> String {
    let drawn = |point: &&Point| plot.x.takes(point.x) && plot.y.takes(point.y);
    let series = plot.series.iter().take(MAX_SERIES).filter_map(|series| {
        let points: Vec<(f64, f64)> = series.points.iter().filter(drawn).map(|point| (point.x, point.y)).collect();
        let crossed = series.points.iter().filter(drawn).filter(|point| point.crossed).count();
        let crossed = if crossed > 0 { format!("; {crossed} crossed out") } else { String::new() };
        Some(named(&series.name, &(course(plot, &points)? + &crossed)))
    });
    let lines = plot.lines.iter().filter(|line| !line.name.is_empty());
    let lines = lines.filter_map(|line| Some(named(&line.name, &course(plot, &line.points)?)));
    let changes = plot.changes.iter().map(|change| format!("Change: {}", change.label));
    joined(&plot.description, series.chain(lines).chain(changes))
}

fn named(name: &str, text: &str) -> String {
    if name.is_empty() { text.to_owned() } else { format!("{name}: {text}") }
}

/// Points in words: `9 us at 1 KiB to 2 ms at 64 MiB, least .. at .., most .. at ..`.
fn course(plot: &Plot, points: &[(f64, f64)]) -> Option<String> {
    let at = |(x, y): (f64, f64)| format!("{} at {}", plot.y.shown(y), plot.x.named(x));
    let (first, last) = (*points.first()?, *points.last()?);
    let least = points.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let ends = if points.len() == 1 { at(first) } else { format!("{} to {}", at(first), at(last)) };
    let is_end = |point: (f64, f64)| point.1 == first.1 || point.1 == last.1;
    let extremes = [("least", least), ("most", most)].into_iter().filter(|(_, point)| !is_end(*point));
    Some(extremes.fold(ends, |text, (name, point)| format!("{text}, {name} {}", at(point))))
}
