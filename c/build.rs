//! Gives the shared library its name for linkers: programs that were linked to an older 0.x are not
//! loaded with a newer one that changed what they rely on.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbloomsday.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
