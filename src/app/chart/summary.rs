//! Charts in sentences, for those who cannot see the picture.

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
pub(super) fn course(points: &[(f64, f64)], at: impl Fn((f64, f64)) -> String) -> Option<String> {
    let (first, last) = (*points.first()?, *points.last()?);
    let least = points.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = points.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let ends = if points.len() == 1 { at(first) } else { format!("{} to {}", at(first), at(last)) };
    let is_end = |point: (f64, f64)| point.1 == first.1 || point.1 == last.1;
    let extremes = [("least", least), ("most", most)].into_iter().filter(|(_, point)| !is_end(*point));
    Some(extremes.fold(ends, |text, (name, point)| format!("{text}, {name} {}", at(point))))
}
