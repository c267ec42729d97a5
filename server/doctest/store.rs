// The rustdoc examples include this file: it makes a local store for them.

/// A local store whose filter `rt` contains these IDs: its folder, removed when it is dropped, and
/// its path.
fn store_with(ids: &[&[u8]]) -> (tempfile::TempDir, String) {
    use bloomsday_common::blob::{self, Header, Origin};
    use bloomsday_common::filter::{FilterMut, Layout, Shape};
    use bloomsday_common::hash::{IdHash, Xxh3};

    let n_ids = ids.len() as u64;
    let shape = Shape::for_ids(Layout::Blocked, n_ids, 0.01).expect("the shape is valid");
    let mut filter = FilterMut::new(shape).expect("the filter is small");
    ids.iter().for_each(|id| filter.insert(Xxh3::of(id)));
    let filter = filter.freeze();
    let day = bloomsday_common::day::Day::of(jiff::Timestamp::now());
    let header = Header {
        filter: "rt".parse().expect("the name is valid"),
        day,
        shape,
        origin: Origin::Built,
        ids: n_ids,
        fpp_target: 0.01,
        fpp_hits: 0,
        fpp_asked: 1,
        ones: filter.count_ones(),
    };
    let blob = blob::encode(&header, &filter);
    let folder = tempfile::TempDir::new().expect("a temporary folder can be made");
    let write = |name: String, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("it has a parent")).expect("it can be made");
        std::fs::write(path, bytes).expect("it can be written");
    };
    write(blob.key().to_string(), blob.parts().concat());
    let pointer = bloomsday_common::pointer::Pointer::to(blob.key().clone());
    write(format!("rt/pointers/{day}"), pointer.to_bytes());
    let path = folder.path().display().to_string();
    (folder, path)
}
