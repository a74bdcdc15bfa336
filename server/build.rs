//! Lays out the code of the released binary, see `late_code.ld`.

use std::env::{var, var_os};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=late_code.ld");
    let is = |name, value| var(name).is_ok_and(|set| set == value);
    // There Rust brings its own linker, which is known to read the script; one that was chosen in its place may not.
    let own_linker = var_os("RUSTC_LINKER").is_none() && is("CARGO_ENCODED_RUSTFLAGS", "");
    if is("TARGET", "x86_64-unknown-linux-gnu") && is("PROFILE", "release") && own_linker {
        let dir = var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR for a build script");
        println!("cargo:rustc-link-arg-bin=assay-server=-Wl,-T,{dir}/late_code.ld");
    }
}
