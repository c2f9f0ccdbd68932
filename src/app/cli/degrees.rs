//! The degrees of a layout given by flags. They correspond to the keys of a suite's `[[layout]]` and are parsed by the
//! same code, so that errors are reported in the same way.

use clap::Args;
use commgauge_base::error::{Error, Result};
use commgauge_base::host;
use commgauge_base::visible::ShownPath;
use commgauge_model::config::{LayoutTable, Place, Table};
use commgauge_model::layout::Layout;
use commgauge_model::workload::step::{layout_on, ranks_of};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The flags that stand for a suite's `[[layout]]`.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Layout")]
pub struct DegreeFlags {
    /// Degree of tensor parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub tp: Option<String>,

    /// Degree of context parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub cp: Option<String>,

    /// Degree of data parallelism [default: what is left of the ranks]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub dp: Option<String>,

    /// Degree of pipeline parallelism [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub pp: Option<String>,

    /// Degree of expert parallelism (within the tp x cp x dp ranks of a stage) [default: 1]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true)]
    pub ep: Option<String>,

    /// Degree of tensor parallelism inside experts [default: that of --tp]
    #[arg(long, value_name = "DEGREE", allow_negative_numbers = true, hide_short_help = true)]
    pub etp: Option<String>,

    /// Axes from the fastest varying over consecutive ranks on; those of degree 1 may be left out [default:
    /// tp-cp-ep-dp-pp]
    #[arg(long, value_name = "AXES", hide_short_help = true)]
    pub order: Option<String>,

    /// File that names the rank at each position of the grid: ranks separated by spaces, commas or line breaks,
    /// comments from # on
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub rank_list: Option<PathBuf>,
}

impl DegreeFlags {
    /// The equivalent suite table, without placed ranks.
    ///
    /// # Errors
    /// Usage errors that name the flag and the rule.
    pub fn table(&self) -> Result<LayoutTable> {
        let flags = [
            ("--tp", "tp", &self.tp),
            ("--cp", "cp", &self.cp),
            ("--dp", "dp", &self.dp),
            ("--pp", "pp", &self.pp),
            ("--ep", "ep", &self.ep),
            ("--etp", "etp", &self.etp),
            ("--order", "order", &self.order),
        ];
        let given = flags.into_iter().filter_map(|(flag, key, text)| Some((flag, key, text.clone()?)));
        LayoutTable::read(Table::of_flags(given))
    }

    /// Whether any of them was given.
    pub fn are_given(&self) -> bool {
        let texts = [&self.tp, &self.cp, &self.dp, &self.pp, &self.ep, &self.etp, &self.order];
        texts.into_iter().any(Option::is_some) || self.rank_list.is_some()
    }

    /// The equivalent suite table on that many ranks, with placed ranks.
    ///
    /// # Errors
    /// As [`DegreeFlags::table`], degrees that do not fit the ranks, and errors in the file of ranks, with the line
    /// number.
    pub fn table_on(&self, world: u32) -> Result<LayoutTable> {
        let mut table = self.table()?;
        if let Some(path) = &self.rank_list {
            layout_on(&table, world)?;
            table.ranks = Some(read_ranks(path, world)?);
        }
        Ok(table)
    }

    /// The layout on that many ranks, or on as many as the degrees need.
    ///
    /// # Errors
    /// As [`DegreeFlags::table_on`], and neither ranks nor --dp.
    pub fn layout(&self, world: Option<u32>) -> Result<Layout> {
        let world = match (world, ranks_of(&self.table()?)?) {
            (Some(world), _) | (None, Some(world)) => world,
            (None, None) => {
                let problem = "is missing; give the number of ranks, or --dp, so that it follows from the degrees";
                return Err(Place::flag("--ranks").wrong(problem));
            }
        };
        layout_on(&self.table_on(world)?, world)
    }
}

// Parses a mapping file: the rank at each position of the grid.

/// More than the largest mapping file with comments needs.
const MAX_BYTES: u64 = 64 << 20;

/// Reads a mapping file: ranks separated by spaces, commas or line breaks, with comments from `#` to the end of the
/// line. The `i`-th rank is placed at position `i` of the grid.
///
/// # Errors
/// Usage errors that name file and line: not a rank, a rank outside of the layout, a repeated rank, a missing rank.
pub fn read_ranks(path: &Path, world: u32) -> Result<Vec<u32>> {
    parse_ranks(&read_bytes(path)?, path, world)
}

/// Parses the contents of a mapping file, as [`read_ranks`] does; `path` is for the messages.
///
/// # Errors
/// As [`read_ranks`].
pub fn parse_ranks(bytes: &[u8], path: &Path, world: u32) -> Result<Vec<u32>> {
    let text = text_of(bytes, path)?;
    let rule = format!("each of the ranks 0 to {} once", world.saturating_sub(1));
    let wrong = |line: usize, problem: String| Error::usage(format!("{}:{line}: {problem}; {rule}", path.shown()));
    let mut ranks = Vec::with_capacity(world as usize);
    // Line on which each rank was named; 0 for none yet.
    let mut named_on = vec![0; world as usize];
    let mut last_line = 1;
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        for word in words(text).map_err(|problem| wrong(line, problem))? {
            let digits = word.bytes().all(|byte| byte.is_ascii_digit());
            if !digits {
                return Err(wrong(line, format!("found `{}`, which is no rank", word.escape_debug())));
            }
            match word.parse::<u32>().ok().and_then(|rank| Some((rank, named_on.get_mut(rank as usize)?))) {
                None => return Err(wrong(line, format!("found rank {word}, but the layout has {world} ranks"))),
                Some((rank, named)) if *named > 0 => {
                    return Err(wrong(
                        line,
                        format!("rank {rank} is named a second time, the first is on line {named}"),
                    ));
                }
                Some((rank, named)) => {
                    *named = line;
                    ranks.push(rank);
                }
            }
            last_line = line;
        }
    }
    match named_on.iter().position(|line| *line == 0) {
        Some(missing) => {
            let named = ranks.len();
            Err(wrong(last_line, format!("the file names {named} of {world} ranks, and rank {missing} is missing")))
        }
        None => Ok(ranks),
    }
}

/// The ranks of one line, as written. A comma may end a line, but there must be a rank between two commas.
fn words(line: &str) -> std::result::Result<Vec<&str>, String> {
    let text = line.split('#').next().unwrap_or_default().trim();
    let text = text.strip_suffix(',').unwrap_or(text);
    if text.is_empty() {
        return if line.trim_start().starts_with(',') {
            Err("found a comma without a rank".to_owned())
        } else {
            Ok(Vec::new())
        };
    }
    let mut words = Vec::new();
    for part in text.split(',') {
        let before = words.len();
        words.extend(part.split_whitespace());
        if words.len() == before {
            return Err("found a comma without a rank".to_owned());
        }
    }
    Ok(words)
}

fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let place = Place::flag("--rank-list");
    let failed = |cause: std::io::Error| place.wrong(format!("cannot read {}: {cause}", path.shown()));
    let file = host::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(place.wrong(format!("{} is larger than any list of ranks, 64 MiB", path.shown())));
    }
    Ok(bytes)
}

fn text_of<'a>(bytes: &'a [u8], path: &Path) -> Result<&'a str> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Error::usage(format!("{}:{line}: not text in UTF-8; accepted: ranks and comments", path.shown()))
    })?;
    // Some editors write a byte order mark.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

#[cfg(test)]
mod tests {

    use super::*;

    fn read(bytes: &[u8], world: u32) -> Result<Vec<u32>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks.txt");
        std::fs::write(&path, bytes).unwrap();
        read_ranks(&path, world)
    }

    #[test]
    fn a_wrong_file_is_refused_with_line_and_rule() {
        for (text, expected) in [
            (
                &b"0 1\n2\n1\n"[..],
                "ranks.txt:3: rank 1 is named a second time, the first is on line 1; each of the ranks 0",
            ),
            (
                b"0 1\n3\n\n",
                "ranks.txt:2: the file names 3 of 4 ranks, and rank 2 is missing; each of the ranks 0 to 3",
            ),
            (b"", "ranks.txt:1: the file names 0 of 4 ranks, and rank 0 is missing"),
            (b"# 0 1 2 3", "ranks.txt:1: the file names 0 of 4 ranks"),
            (b"0 1 2 3 3", "ranks.txt:1: rank 3 is named a second time"),
            (b"0\n1\n2\n4", "ranks.txt:4: found rank 4, but the layout has 4 ranks"),
            (b"99999999999999999999999", "found rank 99999999999999999999999, but the layout has 4 ranks"),
            (b"0 1 2 three", "ranks.txt:1: found `three`, which is no rank"),
            (b"0 1 2 -3", "found `-3`, which is no rank"),
            (b"0 1 2 +3", "found `+3`, which is no rank"),
            (b"0 1 2 3.0", "found `3.0`, which is no rank"),
            (b"0-3", "found `0-3`, which is no rank"),
            (b"0\x1b[1m", "found `0\\u{1b}[1m`, which is no rank"),
            (b"0,1,,3", "ranks.txt:1: found a comma without a rank"),
            (b",0,1,2,3", "found a comma without a rank"),
            (b"0\n,\n1", "ranks.txt:2: found a comma without a rank"),
            (b"0 1\n2 \xff", "ranks.txt:2: not text in UTF-8"),
        ] {
            let error = read(text, 4).expect_err(&String::from_utf8_lossy(text));
            assert!(error.to_string().contains(expected), "{error}\n{expected}");
            assert_eq!(error.exit_code(), 2);
        }
        let error = read_ranks(Path::new("no/such/file"), 4).unwrap_err();
        assert!(error.to_string().starts_with("--rank-list: cannot read no/such/file: "), "{error}");
        assert_eq!(error.exit_code(), 2);
        assert_eq!(read_ranks(Path::new("."), 4).unwrap_err().exit_code(), 2, "a folder");
    }

    #[test]
    fn lines_spaces_commas_comments_and_both_line_ends_are_read() {
        for text in [
            "3\n1\n0\n2\n",
            "3 1 0 2",
            "3,1,0,2",
            "3, 1,\n0, 2,\n",
            "# node b first\r\n3 1 # two\r\n\r\n0\t2\r\n",
            "\u{feff}3 1 0 2",
        ] {
            assert_eq!(read(text.as_bytes(), 4).expect(text), [3, 1, 0, 2], "{text:?}");
        }
    }
}
