//! Which run the files of another tool are of.

use commgauge_base::digest::sha256;
use commgauge_base::error::{Error, Result};
use jiff::Timestamp;
use std::fs;
use std::path::PathBuf;

/// Digits of the digest in the name of a run.
const DIGITS: usize = 8;

/// The run that files are of.
pub(super) struct Identity {
    /// The same for the same files, so that a log that is imported every night is no further run: when the newest of them was written, and
    /// the beginning of a digest of them all, such as `20261121T011530Z-9f3c21aa`.
    pub run_id: String,
    /// When the newest of them was written: other tools do not say when they ran.
    pub written: Timestamp,
}

impl Identity {
    /// Reads the files once more.
    ///
    /// # Errors
    /// A file that cannot be read.
    pub fn of(files: &[PathBuf]) -> Result<Identity> {
        let (mut digests, mut written) = (String::new(), Timestamp::UNIX_EPOCH);
        for path in files {
            let failed = |cause| Error::file("read", path, cause);
            digests += &sha256(fs::read(path).map_err(failed)?);
            let modified = fs::metadata(path).and_then(|facts| facts.modified()).map_err(failed)?;
            written = written.max(Timestamp::try_from(modified).unwrap_or(Timestamp::UNIX_EPOCH));
        }
        let digest = &sha256(digests)[..DIGITS];
        Ok(Identity { run_id: format!("{}-{digest}", written.strftime("%Y%m%dT%H%M%SZ")), written })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_same_files_are_the_same_run_and_what_is_written_later_is_another() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, seconds: u64| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            fs::File::open(&path).unwrap().set_modified(time).unwrap();
            path
        };
        let id = |files: &[&PathBuf]| {
            Identity::of(&files.iter().map(|path| (*path).clone()).collect::<Vec<_>>()).unwrap().run_id
        };
        let (first, second) = (write("a", "1 us", 1_700_000_000), write("b", "2 us", 1_700_000_100));
        let one = id(&[&first]);
        assert!(one.starts_with("20231114T221320Z-"), "{one}");
        assert_eq!(id(&[&first]), one);
        assert!(id(&[&first, &second]).starts_with("20231114T221500Z-"));
        assert_ne!(id(&[&second]), one);
        assert_ne!(id(&[&write("a", "3 us", 1_700_000_000)]), one);
        assert!(Identity::of(&[folder.path().join("none")]).is_err());
    }
}
