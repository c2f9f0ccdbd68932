//! Reads Rust sources just well enough to see what they import, and under which condition. Knows nothing of rooms.

/// The source with comments and the insides of literals blanked out, byte for byte, so that offsets stay the same.
pub fn blank(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut clean = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = skip(bytes, at);
        if end > at {
            for byte in &mut clean[at..end] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
            at = end;
        } else {
            at += 1;
        }
    }
    String::from_utf8_lossy(&clean).into_owned()
}

/// The end of the comment or literal that begins here; `at` itself if none does.
fn skip(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at..];
    let find = |needle: &[u8], from: usize| {
        rest[from..].windows(needle.len()).position(|window| window == needle).map_or(rest.len(), |found| from + found)
    };
    let length = match rest {
        [b'/', b'/', ..] => find(b"\n", 0),
        [b'/', b'*', ..] => (find(b"*/", 2) + 2).min(rest.len()),
        [b'r', b'"' | b'#', ..] if at == 0 || !is_word(bytes[at - 1]) || bytes[at - 1] == b'b' => {
            let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
            if rest.get(1 + hashes) != Some(&b'"') {
                return at;
            }
            let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
            (find(&close, 2 + hashes) + close.len()).min(rest.len())
        }
        [b'"', ..] => closing(rest, b'"'),
        [b'\'', b'\\', ..] => closing(rest, b'\''),
        // A character, and not a lifetime: `'x'`.
        [b'\'', _, b'\'', ..] => 3,
        _ => 0,
    };
    at + length
}

/// The length of a literal with escapes.
fn closing(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Offsets at which `word` is a whole word in a blanked source.
pub fn occurrences(clean: &str, word: &str) -> Vec<usize> {
    let bytes = clean.as_bytes();
    clean
        .match_indices(word)
        .map(|(at, _)| at)
        .filter(|at| *at == 0 || !is_word(bytes[at - 1]))
        .filter(|at| bytes.get(at + word.len()).is_none_or(|byte| !is_word(*byte)))
        .collect()
}

/// Every path below `root` (`crate`, or the package's name in a program), as its segments, with the offset of its root.
pub fn paths_below(clean: &str, root: &str) -> Vec<(usize, Vec<String>)> {
    let mut found = Vec::new();
    for at in occurrences(clean, root) {
        let rest = clean[at + root.len()..].trim_start();
        if let Some(tree) = rest.strip_prefix("::") {
            found.extend(leaves(tree).into_iter().map(|leaf| (at, leaf.path)));
        }
    }
    found
}

/// One path of the tree of a `use`, and the name that it gets by `as`.
pub struct Leaf {
    pub path: Vec<String>,
    pub alias: Option<String>,
}

/// Every path of the tree of a `use`, or the one path at the beginning of a text.
pub fn leaves(tree: &str) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    walk(tree, &mut Vec::new(), &mut leaves);
    leaves
}

/// Walks one tree of a `use`, with its braces, and returns what is left behind it.
fn walk<'a>(text: &'a str, prefix: &mut Vec<String>, leaves: &mut Vec<Leaf>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut inside) = text.strip_prefix('{') {
        loop {
            inside = inside.trim_start();
            if let Some(rest) = inside.strip_prefix('}') {
                return rest;
            }
            let rest = walk(inside, prefix, leaves);
            // Anything unexpected is passed over up to the next item.
            let Some(next) = rest.find([',', '}']) else { return "" };
            inside = if rest[next..].starts_with(',') { &rest[next + 1..] } else { &rest[next..] };
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    if end == 0 {
        leaves.push(Leaf { path: prefix.clone(), alias: None });
        return text;
    }
    prefix.push(text[..end].to_owned());
    let rest = text[end..].trim_start();
    let rest = match rest.strip_prefix("::") {
        Some(tree) => walk(tree, prefix, leaves),
        None => {
            let alias = rest.strip_prefix("as ").map(|name| name.trim_start());
            let alias = alias.and_then(|name| name.split(|c: char| !c.is_alphanumeric() && c != '_').next());
            leaves.push(Leaf { path: prefix.clone(), alias: alias.map(str::to_owned) });
            rest
        }
    };
    prefix.pop();
    rest
}

/// Whether the item at `offset`, or one that encloses it, is there only with the feature `mpi`.
pub fn is_gated(source: &str, clean: &str, offset: usize) -> bool {
    const GATE: &str = r#"feature = "mpi""#;
    if source.contains(&format!("#![cfg({GATE})]")) {
        return true;
    }
    let bytes = clean.as_bytes();
    // Backwards: the head of the item itself, then the heads of the items that enclose it. Code between them belongs
    // to other items, whose gates do not count here.
    let (mut at, mut depth, mut head_end) = (offset, 0, Some(offset));
    loop {
        let stop = at == 0 || matches!(bytes[at - 1], b';' | b'}' | b'{');
        if let (true, Some(end)) = (stop, head_end.take_if(|_| stop)) {
            let head = &source[at..end];
            if head.contains("#[cfg(") && head.contains(GATE) {
                return !head.contains("not(");
            }
        }
        if at == 0 {
            return false;
        }
        at -= 1;
        match bytes[at] {
            b'}' => depth += 1,
            b'{' if depth > 0 => depth -= 1,
            b'{' => head_end = Some(at),
            _ => {}
        }
    }
}

/// The line number of an offset, from 1.
pub fn line_of(source: &str, offset: usize) -> usize {
    source[..offset].matches('\n').count() + 1
}
