//! scripts/gpu-bundle.d/keep-one-arch leaves the device code of one architecture in a library and everything else in
//! place. Needs python3 alone. The other parts of the bundle are downloaded and not fetched here.

use std::path::Path;
use std::process::{Command, Output};

/// An entry of a container: its own header of 64 bytes with the architecture, and its code.
fn entry(architecture: u32, code: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::from([2u8, 0, 1, 1]);
    bytes.extend(64u32.to_le_bytes());
    bytes.extend((code.len() as u64).to_le_bytes());
    bytes.resize(28, 0);
    bytes.extend(architecture.to_le_bytes());
    bytes.resize(64, 0);
    bytes.extend(code);
    bytes
}

/// A container of device code: header, then entries.
fn container(entries: &[Vec<u8>]) -> Vec<u8> {
    let body = entries.concat();
    let mut bytes = 0xBA55_ED50u32.to_le_bytes().to_vec();
    bytes.extend([1, 0, 16, 0]);
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// A library of two containers, with the mark of a container by chance between them.
fn library(codes: &[(u32, u8)]) -> Vec<u8> {
    let entries: Vec<_> = codes.iter().map(|(architecture, byte)| entry(*architecture, &[*byte; 40])).collect();
    let chance = [0xBA55_ED50u32.to_le_bytes(), [0xff; 4], [0xff; 4], [0xff; 4]].concat();
    [vec![7; 100], container(&entries), chance, container(&entries[..1]), vec![9; 50]].concat()
}

fn keep(library: &Path, architecture: &str, copy: &Path) -> Option<Output> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/gpu-bundle.d/keep-one-arch");
    let ran = Command::new("python3").arg(script).arg(library).arg(architecture).arg(copy).output();
    if ran.is_err() {
        eprintln!("SKIPPED gpu_bundle: there is no python3");
    }
    ran.ok()
}

#[test]
fn a_library_keeps_the_code_of_one_architecture_and_nothing_moves() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, copy) = (folder.path().join("whole.so"), folder.path().join("slim.so"));
    std::fs::write(&whole, library(&[(80, 0x80), (90, 0x90), (120, 0xc0)])).unwrap();
    let Some(ran) = keep(&whole, "90", &copy) else { return };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(std::fs::read(&copy).unwrap(), library(&[(80, 0), (90, 0x90), (120, 0)]));
    assert!(String::from_utf8_lossy(&ran.stderr).contains("sm_90: 0.0 MB kept"));
}

#[test]
fn what_lacks_the_architecture_or_is_no_library_leaves_no_copy_behind() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, copy) = (folder.path().join("whole.so"), folder.path().join("slim.so"));
    for (bytes, words) in
        [(library(&[(80, 1), (120, 2)]), "has no code for 90; it has code for 80, 120"), (vec![1; 500], "none at all")]
    {
        std::fs::write(&whole, bytes).unwrap();
        let Some(ran) = keep(&whole, "90", &copy) else { return };
        assert_eq!(ran.status.code(), Some(1));
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(said.contains(words) && !copy.exists(), "{said}");
    }
    let Some(ran) = keep(&whole, "ninety", &copy) else { return };
    assert_eq!(ran.status.code(), Some(2));
    assert!(!copy.exists());
}
