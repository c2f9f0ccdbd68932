//! The MPIs for which launched programs are installed, each in a folder of its own.

use super::family::Flavor;
use commgauge_base::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The MPI of the launched programs, if it is unambiguous; `None` for a package with several.
pub(super) fn only_flavor() -> Option<Flavor> {
    only_flavor_from(own().ok().as_deref())
}

pub(super) fn own() -> Result<PathBuf> {
    std::env::current_exe()
        .map_err(|cause| Error::environment(format!("the path of commgauge itself is unknown: {cause}")))
}

/// The folder of the programs for one MPI: next to commgauge itself, or `PREFIX/lib/commgauge` of a package.
pub(super) fn packaged(own: &Path, flavor: Flavor) -> Option<PathBuf> {
    let prefix = own.ancestors().nth(2).unwrap_or(own);
    let folders = [own.with_file_name(""), prefix.join("lib/commgauge")].map(|parent| parent.join(flavor.folder()));
    folders.into_iter().find(|folder| folder.is_dir())
}

pub(super) fn only_flavor_from(own: Option<&Path>) -> Option<Flavor> {
    let has = |flavor| own.is_some_and(|own| packaged(own, flavor).is_some());
    match (has(Flavor::OpenMpi), has(Flavor::Mpich)) {
        (true, true) => None,
        (true, false) => Some(Flavor::OpenMpi),
        (false, true) => Some(Flavor::Mpich),
        (false, false) => Flavor::of_this_build(),
    }
}
