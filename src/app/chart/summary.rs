//! Charts in sentences, for those who cannot see the picture.

use super::position::Position;

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

/// A sentence about something that may have a name.
pub(super) fn named(name: &str, text: &str) -> String {
    if name.is_empty() { text.to_owned() } else { format!("{name}: {text}") }
}

/// Points by their ends and extremes: `9 us at 1 KiB to 2 ms at 64 MiB, least .. at .., most .. at ..`. None without points.
pub(super) fn course(points: &[Position], at: impl Fn(Position) -> String) -> Option<String> {
    let (first, last) = (*points.first()?, *points.last()?);
    let least = points.iter().copied().min_by(|a, b| a.y.total_cmp(&b.y))?;
    let most = points.iter().copied().max_by(|a, b| a.y.total_cmp(&b.y))?;
    let ends = if points.len() == 1 { at(first) } else { format!("{} to {}", at(first), at(last)) };
    let is_end = |point: Position| point.y == first.y || point.y == last.y;
    let extremes = [("least", least), ("most", most)].into_iter().filter(|(_, point)| !is_end(*point));
    Some(extremes.fold(ends, |text, (name, point)| format!("{text}, {name} {}", at(point))))
}
