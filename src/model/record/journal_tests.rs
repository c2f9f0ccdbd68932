//! Records on disks that are full or refuse, and what others do to their files.

use super::super::line::{End, EndStatus};
use super::*;
use commgauge_base::units::Seconds;
use std::fs::TryLockError;
use std::sync::{Arc, Mutex};

fn end(seconds: f64) -> Line {
    let status = EndStatus::Complete;
    Line::End(End {
        status,
        exit_code: 0,
        error: None,
        elapsed_seconds: Seconds(seconds),
        lines_before: None,
        sha256: None,
    })
}

#[test]
fn a_place_that_cannot_be_written_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("file"), "x").unwrap();
    std::os::unix::fs::symlink(at("nowhere"), at("link")).unwrap();
    for (path, reason) in [
        (folder.path().to_owned(), "is a directory"),
        (at("file"), "never overwritten"),
        (at("link"), "symbolic link to nowhere"),
        (at("missing/record.jsonl"), "does not exist; create it"),
        (at("file/record.jsonl"), "is not a directory"),
        (PathBuf::from("/sys/record.jsonl"), "/sys/record.jsonl"),
    ] {
        let error = Journal::create(&path).err().expect("refused");
        assert_eq!(error.exit_code(), 2, "{error}");
        assert!(error.to_string().contains(reason), "{error}");
    }
    assert_eq!(std::fs::read(at("file")).unwrap(), b"x");
}

#[test]
fn lines_are_in_the_file_as_soon_as_they_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let mut journal = Journal::create(&path).unwrap();
    for lines in 1..=3 {
        journal.write(&end(1.0)).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), lines);
    }
    journal.finish().unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 3);
}

#[test]
fn the_file_is_locked_while_the_journal_lives() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let mut journal = Journal::create(&path).unwrap();
    journal.write(&end(1.0)).unwrap();
    let other = File::open(&path).unwrap();
    assert!(matches!(other.try_lock_shared(), Err(TryLockError::WouldBlock)));
    drop(journal);
    assert!(other.try_lock_shared().is_ok());
}

#[test]
fn an_empty_journal_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    drop(Journal::create(&path).unwrap());
    assert!(!path.exists());
}

#[test]
fn a_number_that_is_not_finite_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("record.jsonl");
    let mut journal = Journal::create(&path).unwrap();
    journal.write(&end(1.0)).unwrap();
    let error = journal.write(&end(f64::NAN)).unwrap_err();
    assert!(error.to_string().contains("not finite"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 1);
}

/// A disk with room for `room` bytes, which writes what fits before it fails.
#[derive(Clone)]
struct SmallDisk {
    content: Arc<Mutex<Vec<u8>>>,
    room: usize,
    can_cut: bool,
}

impl Disk for SmallDisk {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut content = self.content.lock().unwrap();
        let fits = bytes.len().min(self.room - content.len());
        content.extend(&bytes[..fits]);
        if fits == bytes.len() { Ok(()) } else { Err(ErrorKind::StorageFull.into()) }
    }

    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        if !self.can_cut {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.content.lock().unwrap().truncate(bytes as usize);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> Option<u64> {
        None
    }

    fn place(&self, _: &Path) -> FilePlace {
        FilePlace::There
    }

    fn content(&self, _: u64) -> io::Result<Vec<u8>> {
        unreachable!("it is always there")
    }
}

#[test]
fn a_full_disk_keeps_the_earlier_lines_whole_and_says_so() {
    let length = Sealing::default().seal(&finite_json(&end(1.0)).unwrap()).len();
    let disk = SmallDisk { content: Arc::default(), room: 2 * length + 9, can_cut: true };
    let mut journal = Journal::on(Path::new("/nowhere/record.jsonl"), Box::new(disk.clone()));
    journal.write(&end(1.0)).unwrap();
    journal.write(&end(2.0)).unwrap();
    let error = journal.write(&end(3.0)).unwrap_err();
    assert_eq!(error.exit_code(), 6);
    let text = error.to_string();
    assert!(text.contains("/nowhere/record.jsonl") && text.contains("the 2 lines before it are kept"), "{text}");
    assert_eq!(disk.content.lock().unwrap().len(), 2 * length);
}

#[test]
fn after_a_torn_line_that_cannot_be_cut_off_nothing_is_appended() {
    let disk = SmallDisk { content: Arc::default(), room: 9, can_cut: false };
    let mut journal = Journal::on(Path::new("/nowhere/record.jsonl"), Box::new(disk.clone()));
    assert!(journal.write(&end(1.0)).is_err());
    assert!(journal.write(&end(1.0)).unwrap_err().to_string().contains("torn"));
    assert_eq!(disk.content.lock().unwrap().len(), 9);
}

#[test]
fn a_record_that_is_removed_or_renamed_goes_on_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("inner/run.jsonl");
    std::fs::create_dir(path.parent().unwrap()).unwrap();
    let renamed = folder.path().join("renamed.jsonl");
    let mut journal = Journal::create(&path).unwrap();
    journal.write(&end(1.0)).unwrap();
    std::fs::rename(&path, &renamed).unwrap();
    journal.write(&end(2.0)).unwrap();
    let moved = journal.take_moved().unwrap();
    assert_eq!((&moved.to, moved.was_removed, journal.path()), (&renamed, false, renamed.as_path()));
    std::fs::remove_file(&renamed).unwrap();
    journal.write(&end(3.0)).unwrap();
    let moved = journal.take_moved().unwrap();
    let kept = folder.path().join("renamed.kept.jsonl");
    assert_eq!((&moved.to, moved.was_removed, journal.path()), (&kept, true, kept.as_path()));
    assert!(moved.sentence().contains("was removed while it was written; all of it is in"), "{}", moved.sentence());
    assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), 3);
    assert!(matches!(File::open(&kept).unwrap().try_lock(), Err(TryLockError::WouldBlock)), "it is locked, too");
    // Together with its folder, and with what the first copy left.
    std::fs::remove_dir_all(folder.path()).unwrap();
    journal.write(&end(4.0)).unwrap();
    let kept = journal.take_moved().unwrap().to;
    assert_eq!(std::fs::read_to_string(&kept).unwrap().lines().count(), 4);
    journal.write(&end(5.0)).unwrap();
    assert_eq!((journal.take_moved(), journal.lines()), (None, 5));
}
