//! The NCCL version of this build: `COMMGAUGE_DOUBLE_NCCL=2.27.3`. Later functions are not compiled, so that looking
//! their symbols up fails as in the real library of that version.

/// Minor versions of NCCL 2 that brought something.
const STEPS: [u32; 9] = [17, 18, 19, 22, 23, 24, 26, 27, 28];

fn main() {
    println!("cargo:rerun-if-env-changed=COMMGAUGE_DOUBLE_NCCL");
    let text =
        std::env::var("COMMGAUGE_DOUBLE_NCCL").ok().filter(|text| !text.is_empty()).unwrap_or("2.30.7".to_owned());
    let parts: Vec<u32> = text.split('.').map(|part| part.parse().expect("a version of NCCL, as 2.27.3")).collect();
    let [2, minor, patch] = parts[..] else { panic!("COMMGAUGE_DOUBLE_NCCL={text} is not a version of NCCL 2") };
    assert!(minor >= 14, "NCCL before 2.14 is not played");
    println!("cargo:rustc-env=NCCL_CODE={}", 20000 + 100 * minor + patch);
    for step in STEPS {
        println!("cargo:rustc-check-cfg=cfg(since_2_{step})");
        if minor >= step {
            println!("cargo:rustc-cfg=since_2_{step}");
        }
    }
}
