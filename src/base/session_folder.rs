//! What launchers keep in the folder for temporary files, and leave there: Open MPI's its session folders when it is killed,
//! MPICH 5's a description of the processors for each launch that does not end well.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where MPICH's launcher puts its descriptions, whatever `TMPDIR` says.
const DESCRIPTIONS: &str = "/tmp";

/// Removes the session folder of a launcher of this host that is gone: `ompi.HOST.UID/pid.PID` of Open MPI 4,
/// `prte.HOST.UID/dvm.PID` or `prte.HOST.PID.UID` of Open MPI 5.
pub fn remove_left_by(launcher: u32) {
    if !Path::new(&format!("/proc/{launcher}")).exists() {
        // Folders of another user stay; who may not remove them did not start the launcher.
        remove(launcher, &std::env::temp_dir());
    }
}

fn remove(launcher: u32, temporary: &Path) {
    for folder in folders_of(launcher, temporary) {
        let _ = fs::remove_dir_all(&folder);
        // The folder around it goes with the last launch, as where a launch ends by itself; it stays where it is not empty.
        if let Some(root) = folder.parent().filter(|root| *root != temporary) {
            let _ = fs::remove_dir(root);
        }
    }
}

/// The launcher whose session folder this is, as it tells its ranks in `PMIX_SERVER_TMPDIR`.
pub fn launcher_of(folder: &Path) -> Option<u32> {
    let name = folder.file_name()?.to_str()?;
    name.strip_prefix("pid.").or_else(|| name.strip_prefix("dvm."))?.parse().ok()
}

fn folders_of(launcher: u32, temporary: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(temporary).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = |path: &PathBuf, prefix: &str| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)) && path.is_dir()
    };
    let own = |path: PathBuf| {
        let is_own_root = named(&path, "prte.")
            && path.file_name().is_some_and(|name| name.to_string_lossy().contains(&format!(".{launcher}.")));
        let inner = [format!("pid.{launcher}"), format!("dvm.{launcher}")].map(|name| path.join(name));
        is_own_root.then_some(path).into_iter().chain(inner)
    };
    let roots = entries.filter(|path| named(path, "ompi.") || named(path, "prte."));
    roots.flat_map(own).filter(|path| path.is_dir()).collect()
}

/// Removes the descriptions of processors that MPICH's launcher has left on this host since then. Which launch one belongs to
/// cannot be seen, so none is removed while any launch of MPICH runs here.
pub fn remove_descriptions_since(begun: SystemTime) {
    let left = descriptions_since(begun, Path::new(DESCRIPTIONS));
    if !left.is_empty() && !has_proxy() {
        // Those of another user stay.
        left.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

fn descriptions_since(begun: SystemTime, folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_new = |entry: &fs::DirEntry| {
        let written = entry.metadata().ok().filter(fs::Metadata::is_file).and_then(|file| file.modified().ok());
        written.is_some_and(|written| written >= begun)
            && entry.file_name().to_string_lossy().starts_with("hydra_hwloc_xmlfile_")
    };
    entries.filter(is_new).map(|entry| entry.path()).collect()
}

/// Whether MPICH's launcher has a helper on this host; one that has ended has no command line.
fn has_proxy() -> bool {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut commands = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
    commands
        .any(|command| command.split(|byte| *byte == 0).next().is_some_and(|word| word.ends_with(b"hydra_pmi_proxy")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_folders_of_the_launcher_are_found() {
        let folder = std::env::temp_dir().join(format!("commgauge-sessions-{}", std::process::id()));
        let names = [
            "ompi.vm.0/pid.12",
            "ompi.vm.0/pid.123",
            "prte.vm.0/dvm.12",
            "prte.vm.12.0",
            "prte.vm.7.0",
            "other/pid.12",
        ];
        names.iter().for_each(|name| fs::create_dir_all(folder.join(name)).unwrap());
        let mut found = folders_of(12, &folder);
        found.sort();
        let expected = ["ompi.vm.0/pid.12", "prte.vm.0/dvm.12", "prte.vm.12.0"].map(|name| folder.join(name));
        assert_eq!(found, expected);
        remove(12, &folder);
        let left = ["ompi.vm.0/pid.123", "prte.vm.7.0", "other/pid.12"].map(|name| folder.join(name).exists());
        let gone = ["ompi.vm.0/pid.12", "prte.vm.0", "prte.vm.12.0"].map(|name| folder.join(name).exists());
        assert_eq!((left, gone), ([true; 3], [false; 3]));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_session_folder_names_its_launcher() {
        for (path, expected) in [
            ("/tmp/ompi.vm.0/pid.12035", Some(12035)),
            ("/tmp/prte.vm.0/dvm.7", Some(7)),
            ("/tmp/slurmd/pmix.1.0", None),
            ("/", None),
        ] {
            assert_eq!(launcher_of(Path::new(path)), expected, "{path}");
        }
    }

    #[test]
    fn descriptions_of_the_time_of_a_launch_are_found_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("commgauge-descriptions-{}", std::process::id()));
        fs::create_dir_all(folder.join("hydra_hwloc_xmlfile_folder")).unwrap();
        for name in ["hydra_hwloc_xmlfile_a", "hydra_hwloc_xmlfile_old", "other"] {
            fs::write(folder.join(name), "x").unwrap();
        }
        let now = SystemTime::now();
        let hour = std::time::Duration::from_secs(3600);
        let old = fs::File::options().write(true).open(folder.join("hydra_hwloc_xmlfile_old")).unwrap();
        old.set_modified(now - 2 * hour).unwrap();
        assert_eq!(descriptions_since(now - hour, &folder), [folder.join("hydra_hwloc_xmlfile_a")]);
        fs::remove_dir_all(&folder).unwrap();
    }
}
