//! What is in `suites/` is embedded; a file that changes is noticed by the compiler, a new one only here.

fn main() {
    println!("cargo:rerun-if-changed=../../suites");
}
