//! The program that people use on a laptop must start on a machine without MPI. Needs `readelf`, of binutils.

use std::process::Command;

#[test]
fn commgauge_itself_does_not_need_libmpi() {
    let program = env!("CARGO_BIN_EXE_commgauge");
    let output = match Command::new("readelf").args(["-d", program]).output() {
        Ok(output) => output,
        Err(cause) => {
            eprintln!("skipped: readelf cannot be run ({cause}); it is in the package binutils");
            return;
        }
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let needed: Vec<&str> = text.lines().filter(|line| line.contains("(NEEDED)")).collect();
    // Without any entry the test would see nothing and be content: the C library at least is there.
    assert!(needed.iter().any(|line| line.contains("libc.so")), "{text}");
    assert!(!needed.iter().any(|line| line.contains("libmp") || line.contains("libopen-")), "{needed:?}");
}
