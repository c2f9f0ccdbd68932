//! The known launchers, of `launchers.json`: the MPI they start, their programs and the variables they set for ranks. To add a launcher,
//! add it there; `launch::command` writes the arguments of a new [`Family`].

use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Launchers that `commgauge run` can start, grouped by the flags they accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Family {
    /// `mpirun` of Open MPI up to 4.
    OpenMpi4,
    /// `mpirun` of Open MPI from 5 on, which is PRRTE's `prterun`.
    OpenMpi5,
    /// Hydra, the `mpiexec` of MPICH.
    Mpich,
    /// The `mpiexec` of Intel MPI, a fork of Hydra with MPICH's binary interface.
    IntelMpi,
    /// `srun` of Slurm.
    Slurm,
}

/// The MPI that the launched programs were built against. The launcher of another MPI would start every rank alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::EnumString, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Flavor {
    /// Open MPI, any version: 4 and 5 share their binary interface.
    OpenMpi,
    Mpich,
}

/// The known facts of a launcher or process manager.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Launcher {
    name: &'static str,
    /// Its versions that `commgauge run` starts itself.
    families: Vec<Family>,
    /// The MPI it belongs to; `None` if it starts ranks of any MPI.
    flavor: Option<Flavor>,
    pub(crate) ranks: Option<&'static str>,
    /// Ranks on this host.
    pub(crate) ranks_here: Option<&'static str>,
    pub(crate) hosts: Option<&'static str>,
    /// Number of this rank.
    pub(crate) rank: Option<&'static str>,
    /// Variables that are set only for ranks that the launcher connects to each other.
    connects: Vec<&'static str>,
    /// The variable that identifies a launcher that asks ranks to end before it kills them: Open MPI a second before, srun as long as
    /// --wait says, Hydra never, which kills the others as soon as one has died.
    asks_first: Option<&'static str>,
    /// Whether it treats ranks that exit right after `MPI_Finalize` as failed if several share a processor.
    misreads_exit: bool,
    /// Whether its numbers count only under no other launcher: they may describe the allocation instead.
    is_outermost: bool,
}

static LAUNCHERS: LazyLock<Vec<Launcher>> =
    LazyLock::new(|| serde_json::from_str(include_str!("launchers.json")).expect("a test reads it"));

impl Flavor {
    pub const ALL: [Flavor; 2] = [Flavor::OpenMpi, Flavor::Mpich];

    /// The flavor recorded by the build, if any.
    pub fn of_this_build() -> Option<Self> {
        crate::world::MPI_FLAVOR?.parse().ok()
    }

    /// The folder of its programs in packages for several MPIs.
    pub fn folder(self) -> &'static str {
        self.into()
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }
}

impl Family {
    fn launcher(self) -> &'static Launcher {
        LAUNCHERS.iter().find(|launcher| launcher.families.contains(&self)).unwrap_or(&LAUNCHERS[0])
    }

    pub fn name(self) -> &'static str {
        self.launcher().name
    }

    /// The MPI that it belongs to; `None` for Slurm, which starts both if the site has set it up.
    pub fn flavor(self) -> Option<Flavor> {
        self.launcher().flavor
    }

    /// Whether ranks of that MPI can connect under this launcher.
    pub fn starts(self, flavor: Flavor) -> bool {
        self.flavor().is_none_or(|own| own == flavor)
    }
}

/// Which of its variables is meant.
pub(crate) type Variable = fn(&Launcher) -> Option<&'static str>;

/// The variables of all launchers that count this, without duplicates; those that may describe an allocation are
/// separate.
pub(crate) fn variables(counts: Variable, is_outermost: bool) -> Vec<&'static str> {
    let mut seen = BTreeSet::new();
    LAUNCHERS
        .iter()
        .filter(|launcher| launcher.is_outermost == is_outermost)
        .filter_map(counts)
        .filter(|name| seen.insert(*name))
        .collect()
}

/// Reads Slurm's numbers of its hosts in their order, such as `2(x2),1`; `None` if they are malformed, or for more hosts than any system has.
pub fn slurm_numbers(text: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',') {
        let (number, hosts) = match part.split_once("(x") {
            Some((number, hosts)) => (number, hosts.strip_suffix(')')?.parse::<usize>().ok()?),
            None => (part, 1),
        };
        let number = number.trim().parse::<u32>().ok()?;
        if all.len().checked_add(hosts)? > MAX_HOSTS {
            return None;
        }
        all.extend(std::iter::repeat_n(number, hosts));
    }
    Some(all)
}

/// Limit of a list's length, so that a typo such as `a[0-999999999]` does not fill the memory.
pub const MAX_HOSTS: usize = 1 << 17;

/// Whether a launcher has connected this process to other ranks.
pub(crate) fn is_connected(is_set: impl Fn(&str) -> bool) -> bool {
    LAUNCHERS.iter().flat_map(|launcher| &launcher.connects).any(|name| is_set(name))
}

/// Whether the launcher of this process asks ranks to end before it kills them.
pub(crate) fn asks_first() -> bool {
    LAUNCHERS.iter().filter_map(|launcher| launcher.asks_first).any(|name| std::env::var_os(name).is_some())
}

/// Ranks on this host, if their launcher may misread their exit; else 1.
pub fn ranks_with_misread_exit() -> u32 {
    let names = LAUNCHERS.iter().filter(|launcher| launcher.misreads_exit).filter_map(|launcher| launcher.ranks_here);
    names.filter_map(|name| std::env::var(name).ok()?.parse().ok()).next().unwrap_or(1)
}

/// The number that a launcher gave this process before MPI starts; `None` without a launcher.
pub fn rank_before_mpi() -> Option<String> {
    let names = variables(|of| of.rank, false).into_iter().chain(variables(|of| of.rank, true));
    names.into_iter().find_map(|name| std::env::var(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_one_row_and_every_row_can_be_recognised() {
        use Family::{IntelMpi, Mpich, OpenMpi4, OpenMpi5, Slurm};
        for family in [OpenMpi4, OpenMpi5, Mpich, IntelMpi, Slurm] {
            assert_eq!(
                LAUNCHERS.iter().filter(|launcher| launcher.families.contains(&family)).count(),
                1,
                "{family:?}"
            );
        }
        for launcher in LAUNCHERS.iter() {
            assert!(launcher.ranks.or(launcher.rank).is_some() && !launcher.name.is_empty());
        }
        assert_eq!(
            (OpenMpi5.name(), IntelMpi.name(), IntelMpi.flavor()),
            ("Open MPI", "Intel MPI", Some(Flavor::Mpich))
        );
        assert!(Slurm.starts(Flavor::Mpich) && Slurm.starts(Flavor::OpenMpi) && !Mpich.starts(Flavor::OpenMpi));
    }
}
