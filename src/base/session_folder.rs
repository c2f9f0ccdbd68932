//! What launchers keep in the folder for temporary files, and leave there: Open MPI's its session folders when it is killed,
//! MPICH 5's a description of the processors for each launch that does not end well.

use crate::process_stat::ProcessStat;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Where MPICH's launcher puts its descriptions, whatever `TMPDIR` says.
const DESCRIPTIONS: &str = "/tmp";

/// Removes the session folders of a launcher of this host that is gone: `ompi.HOST.UID/pid.PID` of Open MPI 4,
/// `prte.HOST.UID/dvm.PID` or `prte.HOST.PID.UID` of Open MPI 5.
pub fn remove_left_by(launcher: u32) {
    if is_gone(launcher) {
        // Folders of another user stay; who may not remove them did not start the launcher.
        remove(launcher, &std::env::temp_dir());
    }
}

/// Whether nothing of a process uses its files any more.
fn is_gone(pid: u32) -> bool {
    ProcessStat::of(pid).is_none_or(ProcessStat::is_zombie)
}

/// The folder that a launcher, or its helper on another host, keeps for the ranks of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFolder {
    path: PathBuf,
    launcher: u32,
}

impl SessionFolder {
    /// The one that a rank was told in `PMIX_SERVER_TMPDIR`: besides those of [`remove_left_by`] `ompi.HOST.UID/jf.JOB`, which Open
    /// MPI 4 has where its helper runs. None if it is called otherwise, or the rank is gone.
    pub fn of_rank(path: &Path, rank: u32) -> Option<SessionFolder> {
        let is_number = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let name = path.file_name()?.to_str()?;
        let root = path.parent()?.file_name()?.to_str()?;
        let is_known = ["pid.", "dvm.", "jf."].iter().any(|known| name.strip_prefix(known).is_some_and(is_number));
        let is_session = is_known && ["ompi.", "prte."].iter().any(|known| root.starts_with(known));
        let launcher = ProcessStat::of(rank)?.parent;
        is_session.then(|| SessionFolder { path: path.to_owned(), launcher })
    }

    /// The process that started the rank.
    pub fn launcher(&self) -> u32 {
        self.launcher
    }

    /// Removes it where that process is gone.
    pub fn remove_left(&self) {
        if is_gone(self.launcher) {
            remove_with_root(&self.path);
        }
    }
}

fn remove(launcher: u32, temporary: &Path) {
    for folder in folders_of(launcher, temporary) {
        match folder.parent() {
            Some(root) if root != temporary => remove_with_root(&folder),
            _ => drop(fs::remove_dir_all(&folder)),
        }
    }
}

/// Removes a folder, and the one around it with the last launch, as where a launch ends by itself; it stays where it is not empty.
fn remove_with_root(folder: &Path) {
    let _ = fs::remove_dir_all(folder);
    if let Some(root) = folder.parent() {
        let _ = fs::remove_dir(root);
    }
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
    fn only_what_is_called_like_a_session_folder_is_one() {
        let own = std::process::id();
        for (path, expected) in [
            ("/tmp/ompi.vm.0/pid.12035", true),
            ("/tmp/prte.vm.0/dvm.7", true),
            ("/tmp/ompi.host1.0/jf.30512", true),
            ("/tmp/ompi.host1.0/jf.", false),
            ("/tmp/other/pid.7", false),
            ("/tmp/slurmd/pmix.1.0", false),
            ("/", false),
        ] {
            assert_eq!(SessionFolder::of_rank(Path::new(path), own).is_some(), expected, "{path}");
        }
        assert_eq!(SessionFolder::of_rank(Path::new("/tmp/ompi.vm.0/pid.1"), u32::MAX), None, "a rank that is gone");
    }

    #[test]
    fn a_session_folder_goes_with_its_launcher_and_not_before() {
        let folder = std::env::temp_dir().join(format!("commgauge-session-{}", std::process::id()));
        let path = folder.join("ompi.vm.0/jf.12");
        fs::create_dir_all(path.join("0/1")).unwrap();
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        let session = SessionFolder { path: path.clone(), launcher: child.id() };
        session.remove_left();
        assert!(path.is_dir());
        child.kill().unwrap();
        // Nobody has asked for its exit code yet.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while path.is_dir() {
            assert!(std::time::Instant::now() < deadline, "it is removed");
            session.remove_left();
        }
        assert!(!folder.join("ompi.vm.0").exists());
        child.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
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
