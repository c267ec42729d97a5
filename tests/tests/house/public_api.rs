//! The public surface of the libraries, compared with a snapshot that is committed: a change of
//! what others may call is visible in review, as a change of `tests/golden/api`.
//!
//! After a change that is meant:
//!
//! ```text
//! BLOOMSDAY_UPDATE=1 cargo test -p bloomsday-tests --test house public_api
//! ```

use std::fmt::Write as _;
use std::fs;

use bloomsday_tests::sources::{root, rust_files};
use syn::{Attribute, Block, Fields, ImplItem, Item, ItemImpl, TraitItem, Visibility, parse_quote};

#[test]
fn the_public_surface_is_the_one_that_was_reviewed() {
    for name in ["common", "builder", "server"] {
        let surface = surface_of(name);
        assert!(surface.lines().count() > 50, "the sources of {name} are somewhere else");
        let snapshot = root().join(format!("tests/golden/api/{name}.txt"));
        if std::env::var_os("BLOOMSDAY_UPDATE").is_some() {
            fs::create_dir_all(snapshot.parent().unwrap()).unwrap();
            fs::write(&snapshot, &surface).unwrap();
        }
        let reviewed = fs::read_to_string(&snapshot).unwrap();
        let differs = surface.lines().zip(reviewed.lines()).find(|(now, then)| now != then);
        assert!(
            surface == reviewed,
            "the public surface of {name} changed, first here (now, then): {differs:#?}\n\
             If that is meant: BLOOMSDAY_UPDATE=1 cargo test -p bloomsday-tests --test house public_api"
        );
    }
}

/// What is public in each file of a crate, without documentation and without bodies.
fn surface_of(name: &str) -> String {
    let source = root().join(name).join("src");
    let mut surface = String::new();
    for path in rust_files(vec![source.clone()]) {
        let within = path.strip_prefix(&source).unwrap().display().to_string();
        // Those of tests and of the fuzz targets are nobody else's.
        if within.split(['/', '.']).any(|part| ["tests", "simulation", "fuzzing"].contains(&part)) {
            continue;
        }
        let file = syn::parse_file(&fs::read_to_string(&path).unwrap()).unwrap();
        let items: Vec<Item> = file.items.into_iter().filter_map(public).collect();
        if !items.is_empty() {
            let text = prettyplease::unparse(&syn::File { shebang: None, attrs: vec![], items });
            write!(surface, "// {within}\n\n{text}\n").unwrap();
        }
    }
    surface
}

/// The item as others see it; none if they do not.
fn public(mut item: Item) -> Option<Item> {
    let attributes = match &mut item {
        Item::Const(item) => &mut item.attrs,
        Item::Enum(item) => &mut item.attrs,
        Item::Fn(item) => &mut item.attrs,
        Item::Impl(item) => &mut item.attrs,
        Item::Mod(item) => &mut item.attrs,
        Item::Struct(item) => &mut item.attrs,
        Item::Trait(item) => &mut item.attrs,
        Item::Type(item) => &mut item.attrs,
        Item::Use(item) => &mut item.attrs,
        _ => return None,
    };
    if is_hidden(attributes) {
        return None;
    }
    keep_meaning(attributes);
    let visibility = match &mut item {
        Item::Const(item) => &item.vis,
        Item::Enum(item) => {
            item.variants.iter_mut().for_each(|variant| {
                keep_meaning(&mut variant.attrs);
                strip_fields(&mut variant.fields);
            });
            &item.vis
        }
        Item::Fn(item) => {
            *item.block = empty();
            &item.vis
        }
        Item::Impl(item) => return public_part(item.clone()).map(Item::Impl),
        Item::Mod(item) if item.content.is_none() => &item.vis,
        Item::Struct(item) => {
            strip_fields(&mut item.fields);
            if let Fields::Named(fields) = &mut item.fields {
                let kept = fields.named.iter().filter(|field| is_public(&field.vis)).cloned();
                fields.named = kept.collect();
            }
            &item.vis
        }
        Item::Trait(item) => {
            for member in &mut item.items {
                if let TraitItem::Fn(function) = member {
                    keep_meaning(&mut function.attrs);
                    function.default = function.default.take().map(|_| empty());
                } else if let TraitItem::Const(constant) = member {
                    keep_meaning(&mut constant.attrs);
                }
            }
            &item.vis
        }
        Item::Type(item) => &item.vis,
        Item::Use(item) => &item.vis,
        _ => return None,
    };
    is_public(visibility).then_some(item)
}

/// The public methods and constants of an inherent `impl`. What traits give is not listed.
fn public_part(mut item: ItemImpl) -> Option<ItemImpl> {
    if item.trait_.is_some() {
        return None;
    }
    item.items.retain_mut(|member| match member {
        ImplItem::Fn(function) if is_public(&function.vis) && !is_hidden(&function.attrs) => {
            keep_meaning(&mut function.attrs);
            function.block = empty();
            true
        }
        ImplItem::Const(constant) if is_public(&constant.vis) && !is_hidden(&constant.attrs) => {
            keep_meaning(&mut constant.attrs);
            true
        }
        _ => false,
    });
    (!item.items.is_empty()).then_some(item)
}

fn strip_fields(fields: &mut Fields) {
    fields.iter_mut().for_each(|field| keep_meaning(&mut field.attrs));
}

/// Keeps the attributes that callers depend on.
fn keep_meaning(attributes: &mut Vec<Attribute>) {
    let kept = ["cfg", "non_exhaustive", "must_use", "deprecated", "derive"];
    attributes.retain(|attribute| kept.iter().any(|name| attribute.path().is_ident(name)));
}

/// `#[doc(hidden)]`, or there for tests alone.
fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is = |word: syn::Meta| attribute.meta == word;
        is(parse_quote!(doc(hidden))) || is(parse_quote!(cfg(test)))
    })
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn empty() -> Block {
    parse_quote!({})
}
