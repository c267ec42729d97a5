//! `include/bloomsday.h` is what the sources say. `BLOOMSDAY_UPDATE=1 cargo test` writes it.

use std::path::Path;
use std::{env, fs};

#[test]
fn the_header_is_made_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("it can be read");
    let sources = ["failure", "filter", "server", "pointers"];
    let sources = sources.map(|name| root.join(format!("src/{name}.rs")));
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources {
        builder = builder.with_src(source);
    }
    let mut made = Vec::new();
    builder.generate().expect("the sources have an interface").write(&mut made);
    let made = String::from_utf8(made).expect("a header is text");
    let made = made.replace("// # Safety", "// The caller promises:");
    let file = root.join("include/bloomsday.h");
    if env::var_os("BLOOMSDAY_UPDATE").is_some() {
        fs::write(&file, &made).expect("it can be written");
    }
    let there = fs::read_to_string(&file).expect("the header is there");
    assert!(there == made, "include/bloomsday.h is old: BLOOMSDAY_UPDATE=1 cargo test");
}
