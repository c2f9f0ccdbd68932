//! Compiles the kernels of `kernels/` as C++ for the CPU.

fn main() {
    let kernels = "../../../kernels";
    println!("cargo:rerun-if-changed={kernels}");
    println!("cargo:rerun-if-changed=kernels.cpp");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .warnings(true)
        .include(kernels)
        .file("kernels.cpp")
        .compile("kernels");
}
