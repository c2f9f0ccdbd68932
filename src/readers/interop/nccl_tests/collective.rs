//! The collective of an nccl-tests run: from its name or, if an old version does not print it, from its rows.

use crate::interop::collective_named;
use commgauge_base::collective::{Collective, Division};
use commgauge_base::element::ElementType;

/// Known facts about the collective before its rows are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Named {
    #[default]
    Nowhere,
    /// A name known to commgauge.
    Known(Collective),
    /// Named by a line before the head, such as a command line or what made the program.
    Hinted(Collective),
    /// A test without a commgauge call (hypercube, custom collectives).
    Foreign(String),
}

impl Named {
    /// From a program name: `./build/all_reduce_perf`, `alltoall_perf_mpi`.
    pub(super) fn of_program(word: &str) -> Option<Named> {
        let (stem, _) = word.split_once("_perf")?;
        let stem =
            stem.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().filter(|stem| !stem.is_empty())?;
        Some(Self::of_name(stem))
    }

    /// From the name after `Collective test starting:`, with or without `_perf`.
    pub(super) fn of_name(name: &str) -> Named {
        let stem = name.rsplit('/').next().unwrap_or(name).trim();
        let stem = stem.split_once("_perf").map_or(stem, |(stem, _)| stem);
        collective_named(stem).map_or_else(|_| Named::Foreign(stem.to_owned()), Named::Known)
    }

    /// From a file name, if exactly one collective is in it.
    pub(super) fn of_file(file: &str) -> Named {
        let bare: String = file.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
        let found = |collective: &Collective| bare.contains(&collective.name().replace('_', ""));
        // The longest name: `reduce` is in `allreduce`, `alltoall` in `alltoallv`.
        Collective::ALL
            .into_iter()
            .filter(found)
            .max_by_key(|collective| collective.name().replace('_', "").len())
            .map_or(Named::Nowhere, Named::Known)
    }
}

/// The facts of a row that identify its collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) bytes: u64,
    pub(super) count: u64,
    pub(super) element_type: ElementType,
    pub(super) ranks: u32,
    pub(super) reduces: bool,
    pub(super) has_root: bool,
}

impl Shape {
    /// Whether the buffer is `blocks` times the counted elements.
    fn is_made_of(&self, blocks: u32) -> bool {
        let counted = u128::from(self.count) * u128::from(self.element_type.size()) * u128::from(blocks);
        counted == u128::from(self.bytes)
    }

    /// The named collective if the row fits it; without a name the only one that fits.
    pub(super) fn collective(&self, named: &Named) -> Result<Collective, String> {
        match named {
            Named::Foreign(name) => Err(format!("commgauge has no call for `{name}`")),
            Named::Known(collective) if self.fits(*collective) => Ok(*collective),
            Named::Known(collective) => Err(format!(
                "{} elements of {} do not make up {} bytes in {collective} of {} ranks",
                self.count, self.element_type, self.bytes, self.ranks
            )),
            Named::Hinted(collective) if self.fits(*collective) && collective.has_root() == self.has_root => {
                Ok(*collective)
            }
            Named::Hinted(_) | Named::Nowhere => self.only_fit(),
        }
    }

    fn fits(&self, collective: Collective) -> bool {
        match collective.division() {
            Division::Whole => self.is_made_of(1),
            Division::EqualBlocks => self.is_made_of(self.ranks),
            // Blocks of different lengths: the count is for the largest, or for one.
            Division::OwnBlocks | Division::Nothing => true,
        }
    }

    fn only_fit(&self) -> Result<Collective, String> {
        use Collective::*;
        let whole = self.is_made_of(1);
        let blocks = self.is_made_of(self.ranks);
        let found = match (self.reduces, self.has_root) {
            _ if self.bytes == 0 || self.ranks < 2 => None,
            (true, true) if whole => Some(Reduce),
            (true, false) if whole => Some(AllReduce),
            (true, false) if blocks => Some(ReduceScatter),
            (false, true) if whole => Some(Broadcast),
            (false, false) if whole => Some(SendRecv),
            _ => None,
        };
        let several = "the file does not name its collective, and several fit; rename the file after it, such as all_gather.txt, or keep the line that starts the program";
        found.ok_or_else(|| several.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collective_is_known_by_program_and_by_file() {
        for (word, expected) in [
            ("./build/all_reduce_perf", Some(Named::Known(Collective::AllReduce))),
            ("/opt/alltoall_perf_mpi", Some(Named::Known(Collective::AllToAll))),
            ("sendrecv_perf", Some(Named::Known(Collective::SendRecv))),
            ("hypercube_perf", Some(Named::Foreign("hypercube".to_owned()))),
            ("_perf", Some(Named::Foreign("_".to_owned())).filter(|_| false)),
            ("mpirun", None),
        ] {
            assert_eq!(Named::of_program(word), expected, "{word}");
        }
        assert_eq!(Named::of_file("h100-AllReduce.txt"), Named::Known(Collective::AllReduce));
        assert_eq!(Named::of_file("alltoallv.log"), Named::Known(Collective::AllToAllV));
        assert_eq!(Named::of_file("run7.log"), Named::Nowhere);
    }

    #[test]
    fn without_a_name_only_an_unambiguous_collective_is_accepted() {
        use Collective::*;
        let shape = |count, reduces, has_root| {
            let element_type = ElementType::Float32;
            Shape { bytes: 4096, count, element_type, ranks: 4, reduces, has_root }.collective(&Named::Nowhere).ok()
        };
        for (count, reduces, has_root, expected) in [
            (1024, true, false, Some(AllReduce)),
            (256, true, false, Some(ReduceScatter)),
            (1024, true, true, Some(Reduce)),
            (1024, false, true, Some(Broadcast)),
            (1024, false, false, Some(SendRecv)),
            (256, false, false, None),
            (256, false, true, None),
            (7, true, false, None),
        ] {
            assert_eq!(shape(count, reduces, has_root), expected);
        }
    }
}
