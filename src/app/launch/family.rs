//! The supported launchers, distinguished by the output of their `--version`.

/// Launchers grouped by the flags they accept. Open MPI changed its flags with version 5, so it counts as two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `mpirun` of Open MPI up to 4.
    OpenMpi4,
    /// `mpirun` of Open MPI from 5 on, which is PRRTE's `prterun`.
    OpenMpi5,
    /// Hydra, the `mpiexec` of MPICH.
    Mpich,
    /// The `mpiexec` of Intel MPI, which shares MPICH's binary interface and began as its Hydra.
    IntelMpi,
    /// `srun` of Slurm.
    Slurm,
}

/// The MPI that the launched programs were built against. The launcher of another MPI would start every rank alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// Open MPI, any version: 4 and 5 share their binary interface.
    OpenMpi,
    /// MPICH.
    Mpich,
}

/// A launcher that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The program to run: a name on the search path, or a path.
    ///
    /// A name is not made absolute, because Open MPI takes an absolute path as the order to change the search paths of
    /// the remote hosts (its `--prefix`).
    pub program: String,
    /// The flags it accepts.
    pub family: Family,
    /// Its version, as printed.
    pub version: String,
    /// Whether it can bind ranks to cores: Hydra that was built without a topology library ends where it is asked to.
    pub can_bind: bool,
}

impl Flavor {
    /// The flavor that the build recorded, if it did.
    pub fn of_this_build() -> Option<Self> {
        match commgauge_run::world::MPI_FLAVOR {
            Some("open-mpi") => Some(Self::OpenMpi),
            Some("mpich") => Some(Self::Mpich),
            _ => None,
        }
    }

    /// The folder of its programs in packages for several MPIs.
    pub(super) fn folder(self) -> &'static str {
        match self {
            Self::OpenMpi => "open-mpi",
            Self::Mpich => "mpich",
        }
    }

    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }
}

impl Family {
    /// Display name.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenMpi4 | Self::OpenMpi5 => "Open MPI",
            Self::Mpich => "MPICH",
            Self::IntelMpi => "Intel MPI",
            Self::Slurm => "Slurm",
        }
    }

    /// The MPI that it belongs to; none for Slurm.
    pub fn flavor(self) -> Option<Flavor> {
        match self {
            Self::OpenMpi4 | Self::OpenMpi5 => Some(Flavor::OpenMpi),
            Self::Mpich | Self::IntelMpi => Some(Flavor::Mpich),
            Self::Slurm => None,
        }
    }

    /// Whether ranks of that MPI can connect under this launcher. Slurm supports both, if the site has set it up.
    pub fn starts(self, flavor: Flavor) -> bool {
        self.flavor().is_none_or(|own| own == flavor)
    }
}

/// The launcher `program`, from the output of its `--version`; none for an unknown one.
pub(super) fn parse_version(program: &str, text: &str) -> Option<Launcher> {
    let (family, version) = parse_family(text)?;
    let can_bind = family != Family::Mpich || has_topology_library(text);
    Some(Launcher { program: program.to_owned(), family, version, can_bind })
}

fn parse_family(text: &str) -> Option<(Family, String)> {
    let first = text.lines().find(|line| !line.trim().is_empty())?.trim();
    if let Some((_, version)) = first.split_once("(Open MPI)").or_else(|| first.split_once("(OpenRTE)")) {
        let version = version.trim().to_owned();
        let major: u32 = leading_number(&version)?;
        return Some((if major >= 5 { Family::OpenMpi5 } else { Family::OpenMpi4 }, version));
    }
    if first.starts_with("HYDRA build details") {
        let version = text.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
        return Some((Family::Mpich, version.trim().to_owned()));
    }
    if first.starts_with("Intel(R) MPI Library") {
        let version = first.split_once("Version ")?.1.split(' ').next()?;
        leading_number(version)?;
        return Some((Family::IntelMpi, version.to_owned()));
    }
    // Debian calls it slurm-wlm.
    let (name, version) = first.split_once(' ')?;
    (matches!(name, "slurm" | "slurm-wlm") && leading_number(version).is_some())
        .then(|| (Family::Slurm, version.trim().to_owned()))
}

/// Hydra lists the libraries that it was built with; Debian 11's lists none. A Hydra without that line is taken for able.
fn has_topology_library(text: &str) -> bool {
    let listed = text.lines().find_map(|line| line.trim().strip_prefix("Topology libraries available:"));
    listed.is_none_or(|libraries| !libraries.trim().is_empty())
}

fn leading_number(text: &str) -> Option<u32> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN_MPI_4: &str = "mpirun (Open MPI) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n";
    const OPEN_MPI_5: &str = "mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org/community/help/\n\n";
    const MPICH: &str = "HYDRA build details:\n    Version:                                 4.0.2\n    \
        Release Date:                            Thu Apr  7 12:34:45 CDT 2022\n    CC:                  gcc\n";
    const INTEL: &str = "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 20231005 (id: 74c4a23)\n";

    #[test]
    fn the_family_is_read_from_the_version_text() {
        let known = |family, version: &str| Some((family, version.to_owned()));
        for (text, expected) in [
            ("", None),
            ("\n\n", None),
            ("mpirun: command not understood", None),
            (INTEL, known(Family::IntelMpi, "2021.11")),
            ("Intel(R) MPI Library for Linux* OS", None),
            ("mpirun (Open MPI) unknown", None),
            ("slurm", None),
            (OPEN_MPI_4, known(Family::OpenMpi4, "4.1.4")),
            (OPEN_MPI_5, known(Family::OpenMpi5, "5.0.11")),
            ("mpirun (Open MPI) 10.0.0rc1\n", known(Family::OpenMpi5, "10.0.0rc1")),
            ("mpiexec (OpenRTE) 4.0.3\n", known(Family::OpenMpi4, "4.0.3")),
            (MPICH, known(Family::Mpich, "4.0.2")),
            ("slurm 22.05.8\n", known(Family::Slurm, "22.05.8")),
            ("slurm-wlm 22.05.8\n", known(Family::Slurm, "22.05.8")),
        ] {
            assert_eq!(parse_family(text), expected, "{text}");
        }
    }

    #[test]
    fn hydra_without_a_topology_library_cannot_bind_ranks() {
        let hydra = |line: &str| format!("HYDRA build details:\n    Version:      3.4.1\n{line}");
        for (text, expected) in [
            (
                hydra("    Topology libraries available:            \n    Demux engines available:   poll select\n"),
                false,
            ),
            (hydra("    Topology libraries available:            hwloc\n"), true),
            (hydra(""), true),
            (OPEN_MPI_4.to_owned(), true),
        ] {
            assert_eq!(parse_version("mpiexec", &text).map(|launcher| launcher.can_bind), Some(expected), "{text}");
        }
    }
}
