//! Slurm's compact host lists, such as `a[01-03,7],b`: expands them, and suggests the name a user may have meant.

/// Limit of a list's length, so that a typo such as `a[0-999999999]` does not fill the memory.
pub(super) const MAX_HOSTS: usize = 1 << 17;

/// All names of a list, in its order; none if it cannot be parsed.
pub(super) fn expand(list: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for part in split_outside_brackets(list)? {
        let more = expand_one(part)?;
        if names.len() + more.len() > MAX_HOSTS {
            return None;
        }
        names.extend(more);
    }
    Some(names)
}

/// `; did you mean a2?`, if the list has a similar name.
pub(super) fn first_difference(name: &str, list: &str) -> String {
    let names = expand(list).unwrap_or_default();
    let likeness = |known: &&String| strsim::jaro_winkler(name, known);
    let nearest = names.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    nearest.filter(|known| likeness(known) > 0.8).map_or_else(String::new, |known| format!("; did you mean {known}?"))
}

/// Splits at commas outside of brackets.
fn split_outside_brackets(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut inside) = (Vec::new(), 0, false);
    for (at, letter) in list.char_indices() {
        match letter {
            '[' if inside => return None,
            '[' => inside = true,
            ']' if !inside => return None,
            ']' => inside = false,
            ',' if !inside => {
                parts.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[begin..]);
    (!inside && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

/// Expands one name with any number of bracketed ranges; the last one varies fastest.
fn expand_one(part: &str) -> Option<Vec<String>> {
    let mut names = vec![String::new()];
    let mut rest = part;
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']')?;
        let numbers = numbers(inside)?;
        if names.len().checked_mul(numbers.len())? > MAX_HOSTS {
            return None;
        }
        names =
            names.iter().flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}"))).collect();
        rest = behind;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Some(names)
}

/// Expands `01-03,7` to 01, 02, 03, 7; the width of a range's first number applies to the whole range.
fn numbers(text: &str) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let digits = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        if !digits(first) || !digits(last) {
            return None;
        }
        let (from, to) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        if to < from || to - from >= MAX_HOSTS as u64 || all.len() > MAX_HOSTS {
            return None;
        }
        let width = first.len();
        all.extend((from..=to).map(|number| format!("{number:0width$}")));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_slurm_would_not_write_are_refused() {
        for text in [
            "",
            ",",
            "a,",
            "a[",
            "a]",
            "a[1",
            "a[1[2]]",
            "a[]",
            "a[x]",
            "a[3-1]",
            "a[1-]",
            "a[-1]",
            "a[0-999999999]",
            "a[1-1000]b[1-1000]",
        ] {
            assert_eq!(expand(text), None, "{text}");
        }
    }

    /// The forms of "scontrol show hostnames" in Slurm's manual, and its behaviour with leading zeros.
    #[test]
    fn lists_are_read_as_slurm_writes_them() {
        for (text, expected) in [
            ("a", "a"),
            ("host[0-1]", "host0 host1"),
            ("a,b", "a b"),
            ("n[08-11,3],login", "n08 n09 n10 n11 n3 login"),
            ("r[1-2]n[0-1]x", "r1n0x r1n1x r2n0x r2n1x"),
            ("a[1,3].b.c", "a1.b.c a3.b.c"),
        ] {
            assert_eq!(expand(text).expect("a list").join(" "), expected, "{text}");
        }
        assert_eq!(expand("n[1-131072]").expect("just so").len(), MAX_HOSTS);
    }
}
