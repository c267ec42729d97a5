//! Chunks that are fetched in parts, and cut into pieces.

use super::super::cut::Cutter;
use super::*;

#[test]
fn a_chunk_of_several_parts_is_put_together_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: Vec<String> = (0..30_000).map(|i| format!("{i:0>900}")).collect();
    let plain = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_compression(Compression::UNCOMPRESSED)
        .build();
    write(&path, &ids, plain);
    assert!(std::fs::metadata(&path).unwrap().len() > 3 * (8 << 20));
    let found = read(&[path.to_str().unwrap()], "id", 1).unwrap();
    assert!(found.ids.keys().map(Vec::as_slice).eq(ids.iter().map(String::as_bytes)));
    // The same from a store that gives no open file, and so each part by itself.
    let mut files =
        block_on(find(&[path.display().to_string()], "2026-11-19".parse().unwrap())).unwrap();
    let elsewhere = Arc::new(object_store::memory::InMemory::new());
    let (to, bytes) = (&files[0].meta.location, std::fs::read(&path).unwrap());
    block_on(elsewhere.put(to, bytes.into())).unwrap();
    files[0].meta = block_on(elsewhere.head(to)).unwrap();
    files[0].objects = elsewhere;
    let fetched = block_on(async {
        let plan = Plan::read(files[0].clone(), "id").await.unwrap();
        fetch(&plan).await.unwrap()
    });
    let bytes = std::fs::read(&path).unwrap();
    assert!(fetched.len() > 3 * (8 << 20) && fetched[..] == bytes[4..4 + fetched.len()]);
}

#[test]
fn every_fixture_gives_the_same_in_pieces() {
    let mut cut = 0;
    for (name, path, expected) in fixtures() {
        let Some(column) = expected["column"].as_str() else { continue };
        let Ok(whole) = read(&[&path], column, 1) else { continue };
        let pieces = read_within(TINY, &[&path], column, 2);
        let pieces = pieces.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(pieces.ids, whole.ids, "{name}");
        assert_eq!(pieces.totals, whole.totals, "{name}");
        cut += 1;
    }
    assert!(cut >= 70, "only {cut} fixtures were read");
}

/// A column of one row group, and its chunk's bytes.
fn one_chunk(dictionary: bool) -> (Plan, Bytes) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: Vec<String> = (0..20_000).map(|i| format!("{:016x}", scramble(i % 7_000))).collect();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(dictionary)
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(100)
        .build();
    write(&path, &ids, properties);
    block_on(async {
        let files = find(&[path.display().to_string()], "2026-11-19".parse().unwrap()).await;
        let plan = Plan::read(files.unwrap().remove(0), "id").await.unwrap();
        let bytes = fetch(&plan).await.unwrap();
        (plan, bytes)
    })
}

/// Cuts a chunk into its pieces, each with the length of the dictionary in front. How much was fetched, too.
fn cut(plan: &Plan, bytes: &[u8], most: u64) -> Result<(Vec<(usize, Piece)>, u64), String> {
    let chunk = &plan.chunks[0];
    let mut cutter = Cutter::new(chunk, most);
    let (mut pieces, mut fetched) = (Vec::new(), 0);
    while let Some(range) = cutter.wanted() {
        let at = |offset: u64| (offset - chunk.range.start) as usize;
        fetched += range.end - range.start;
        let (dictionary, own) = (cutter.dictionary(), &bytes[at(range.start)..at(range.end)]);
        let front = dictionary.len();
        let piece = cutter.cut([dictionary, own].concat().into())?;
        pieces.extend(piece.map(|piece| (front, piece)));
    }
    Ok((pieces, fetched))
}

proptest! {
    #[test]
    fn pieces_are_all_of_a_chunk_and_no_larger_than_they_may_be(
        dictionary: bool,
        most in prop_oneof![1..5_000_u64, 5_000..400_000_u64],
    ) {
        let (plan, bytes) = one_chunk(dictionary);
        let (pieces, fetched) = cut(&plan, &bytes, most).unwrap();
        let dictionary = pages::whole(&bytes).dictionary.map_or(0, |range| range.end);
        // Or a page: it has 500 IDs of 16 characters, their lengths and its header.
        let most = most.max(dictionary as u64).max(12_000);
        let (mut together, mut rows) = (Vec::new(), 0);
        for (front, piece) in pieces {
            let (front, own) = piece.bytes.split_at(front);
            prop_assert!(own.len() as u64 <= most, "{} bytes", own.len());
            prop_assert!(front.is_empty() || front == &bytes[..dictionary]);
            // A dictionary without rows behind it is no piece.
            let between = piece.covers as usize - own.len();
            together.extend_from_slice(&bytes[together.len()..][..between]);
            prop_assert_eq!(piece.at - plan.chunks[0].range.start, together.len() as u64);
            together.extend_from_slice(own);
            rows += piece.rows;
        }
        prop_assert!(together == bytes);
        prop_assert_eq!(rows, 20_000);
        // The page that a piece ends in is fetched again, and what was too little for one.
        prop_assert!(fetched <= 3 * bytes.len() as u64, "{fetched} of {}", bytes.len());
    }
}

#[test]
fn a_page_that_can_never_be_whole_ends_the_cutting_and_is_left_to_the_decoder() {
    let (mut plan, bytes) = one_chunk(false);
    // A header that cannot be read, in the middle of a chunk that claims to be huge.
    let mut bad = bytes.to_vec();
    let at = pages::whole(&bytes[..bytes.len() / 2]).bytes;
    bad[at..].fill(0xff);
    bad.resize(64 << 20, 0xff);
    plan.chunks[0].range.end = plan.chunks[0].range.start + bad.len() as u64;
    let (pieces, fetched) = cut(&plan, &bad, 1 << 20).unwrap();
    assert!(fetched < 4 << 20, "{fetched}");
    let check = |(_, piece): &(usize, Piece)| {
        pages::check(&piece.bytes, Compression::UNCOMPRESSED, ROOM.unpacked)
    };
    assert!(check(&pieces[0]).is_ok());
    let why = check(&pieces[1]);
    assert!(why.unwrap_err().contains("page 0 has a header that cannot be read"));
    assert_eq!(pieces.len(), 2);
}

#[test]
fn more_rows_in_the_pages_than_in_the_footer_are_damage() {
    let (mut plan, bytes) = one_chunk(false);
    plan.chunks[0].rows = 9_000;
    let why = cut(&plan, &bytes, 10_000).err().unwrap();
    assert!(why.contains("rows, and 9000 were promised"), "{why}");
}
