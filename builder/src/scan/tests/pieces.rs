//! Chunks that are fetched in parts, and cut into pieces.

use super::super::chunk::{ChunkError, ChunkPiece};
use super::super::chunk_splitter::ChunkSplitter;
use super::super::limits::{page_header as header, page_limits};
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
    let other_store = Arc::new(object_store::memory::InMemory::new());
    let (to, bytes) = (&files[0].meta.location, std::fs::read(&path).unwrap());
    block_on(other_store.put(to, bytes.into())).unwrap();
    files[0].meta = block_on(other_store.head(to)).unwrap();
    files[0].objects = other_store;
    let fetched = block_on(async {
        let plan = super::plan(&files[0]).await.unwrap();
        fetch_all(&plan).await.unwrap()
    });
    let bytes = std::fs::read(&path).unwrap();
    assert!(fetched.len() > 3 * (8 << 20) && fetched[..] == bytes[4..4 + fetched.len()]);
}

#[test]
fn every_fixture_gives_the_same_in_pieces() {
    let mut cut = 0;
    for (name, path, expected) in fixtures() {
        let Some(column) = expected["column"].as_str() else { continue };
        let Ok(complete) = read(&[&path], column, 1) else { continue };
        let pieces = read_within(TINY, &[&path], column, 2);
        let pieces = pieces.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(pieces.ids, complete.ids, "{name}");
        assert_eq!(pieces.totals, complete.totals, "{name}");
        cut += 1;
    }
    assert!(cut >= 70, "only {cut} fixtures were read");
}

/// A column of one row group, and its chunk's bytes.
fn one_chunk(dictionary: bool) -> (FilePlan, Bytes) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: Vec<String> = (0..20_000).map(|i| format!("{:016x}", mix64(i % 7_000))).collect();
    let properties = WriterProperties::builder()
        .set_dictionary_enabled(dictionary)
        .set_data_page_row_count_limit(500)
        .set_write_batch_size(100)
        .build();
    write(&path, &ids, properties);
    block_on(async {
        let files = find(&[path.display().to_string()], "2026-11-19".parse().unwrap()).await;
        let plan = super::plan(&files.unwrap()[0]).await.unwrap();
        let bytes = fetch_all(&plan).await.unwrap();
        (plan, bytes)
    })
}

/// Cuts a chunk into its pieces, each with the length of the dictionary in front. How much was
/// fetched, too.
fn cut(
    plan: &FilePlan,
    bytes: &[u8],
    most: u64,
) -> Result<(Vec<(usize, ChunkPiece)>, u64), ChunkError> {
    let chunk = &plan.chunks[0];
    let mut splitter = ChunkSplitter::new(chunk, most, BUDGET.unpacked - 1);
    let (mut pieces, mut fetched) = (Vec::new(), 0);
    while let Some(wanted) = splitter.next_range() {
        let at = |offset: u64| (offset - chunk.range.start) as usize;
        let of = |range: &Range<u64>| &bytes[at(range.start)..at(range.end)];
        fetched += wanted.bytes();
        let (dictionary, own) = (of(&wanted.dictionary), of(&wanted.pages));
        let piece = splitter.split([dictionary, own].concat().into())?;
        pieces.extend(piece.map(|piece| (dictionary.len(), piece)));
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
        let dictionary = page_limits::complete_pages(&bytes).dictionary.map_or(0, |range| range.end);
        // Or a page: it has 500 IDs of 16 characters, their lengths and its header.
        let most = most.max(2 * dictionary as u64).max(12_000);
        let (mut together, mut rows) = (Vec::new(), 0);
        for (front, piece) in pieces {
            prop_assert!(piece.bytes.len() as u64 <= most, "{} bytes", piece.bytes.len());
            let (front, own) = piece.bytes.split_at(front);
            prop_assert!(front.is_empty() || front == &bytes[..dictionary]);
            prop_assert_eq!(piece.range.start - plan.chunks[0].range.start, together.len() as u64);
            together.extend_from_slice(own);
            prop_assert_eq!(piece.range.end - plan.chunks[0].range.start, together.len() as u64);
            rows += piece.rows;
        }
        prop_assert!(together == bytes);
        prop_assert_eq!(rows, 20_000);
        // Again come the page that a piece ends in, what was too little for one, and the
        // dictionary.
        prop_assert!(fetched <= 4 * bytes.len() as u64, "{fetched} of {}", bytes.len());
    }
}

#[test]
fn a_page_that_can_never_be_whole_ends_the_cutting_and_is_left_to_the_decoder() {
    let (mut plan, bytes) = one_chunk(false);
    // A header that cannot be read, in the middle of a chunk that claims to be huge.
    let mut bad = bytes.to_vec();
    let at = page_limits::complete_pages(&bytes[..bytes.len() / 2]).bytes;
    bad[at..].fill(0xff);
    bad.resize(64 << 20, 0xff);
    plan.chunks[0].range.end = plan.chunks[0].range.start + bad.len() as u64;
    let (pieces, fetched) = cut(&plan, &bad, 1 << 20).unwrap();
    assert!(fetched < 4 << 20, "{fetched}");
    let check =
        |(_, piece): &(usize, ChunkPiece)| pages::check(&piece.bytes, &PLAIN, BUDGET.unpacked);
    assert!(check(&pieces[0]).is_ok());
    let why = check(&pieces[1]);
    assert!(why.unwrap_err().contains("page 0 has a header that cannot be read"));
    assert_eq!(pieces.len(), 2);
}

#[test]
fn of_two_dictionaries_the_later_one_belongs_to_the_pages_behind_it() {
    let (mut plan, bytes) = one_chunk(true);
    let dictionary = page_limits::complete_pages(&bytes).dictionary.unwrap();
    let twice = [&bytes[..], &bytes].concat();
    let Range { start, .. } = plan.chunks[0].range;
    plan.chunks[0].range.end = start + twice.len() as u64;
    plan.chunks[0].rows *= 2;
    let mut splitter = ChunkSplitter::new(&plan.chunks[0], 1, BUDGET.unpacked);
    let mut before = Vec::new();
    while let Some(wanted) = splitter.next_range() {
        let at = |range: &Range<u64>| (range.start - start) as usize..(range.end - start) as usize;
        before.push(at(&wanted.dictionary));
        let parts = [&twice[at(&wanted.dictionary)], &twice[at(&wanted.pages)]];
        splitter.split(parts.concat().into()).unwrap();
    }
    let later = dictionary.start + bytes.len()..dictionary.end + bytes.len();
    before.dedup();
    assert_eq!(before, [0..0, dictionary, later]);
}

#[test]
fn a_page_without_room_or_that_claims_too_little_is_refused_before_it_is_fetched() {
    let (mut plan, bytes) = one_chunk(false);
    let claims = pages::claims(&bytes);
    let claim = zigzag(claims.compressed);
    let at = bytes.windows(claim.len()).position(|w| w == claim).unwrap();
    // Uncompressed: both claims are the same, the one of what it unpacks to in front.
    let rest = &bytes[at + 2 * claim.len() + 1..];
    plan.chunks[0].range.end = plan.chunks[0].range.start + (1 << 40);
    let refused = |unpacked: u64, compressed: u64| {
        let claims = [zigzag(unpacked as i64), vec![0x15], zigzag(compressed as i64)].concat();
        let bad = [&bytes[..at], &claims, rest].concat();
        cut(&plan, &bad, 1_000).err().unwrap()
    };
    let (limit, most) = (header::MAX_PAGE_BYTES, (1 << 31) - 1);
    let why = refused(limit, limit);
    assert!(matches!(why, ChunkError::TooLarge(bytes) if bytes == limit), "{why:?}");
    for (unpacked, compressed) in [(10, most), (limit, most), (10, 2 << 20)] {
        let ChunkError::Damaged(why) = refused(unpacked, compressed) else { panic!("no budget") };
        assert!(why.contains(&format!("claims to unpack to {unpacked}")), "{why}");
    }
}

/// The ordinary room of a small budget, more threads than chunks, and a page that is larger than
/// the room.
#[test]
fn pieces_of_many_chunks_at_once_are_all_there() {
    let dir = tempfile::tempdir().unwrap();
    let ids: Vec<String> = (0..400_000).map(|i| format!("{:032x}", u128::from(mix64(i)))).collect();
    for (name, page_rows, dictionary) in
        [("a", 20_000, true), ("b", 400_000, false), ("c", 5_000, false)]
    {
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(dictionary)
            .set_data_page_size_limit(1 << 30)
            .set_data_page_row_count_limit(page_rows)
            .set_write_batch_size(page_rows)
            .set_max_row_group_row_count(Some(ids.len()))
            .build();
        write(&dir.path().join(name).with_extension("parquet"), &ids, properties);
    }
    let budget = ScanBudget { in_flight: 4 << 20, ..BUDGET };
    let found = read_within(budget, &[dir.path().to_str().unwrap()], "id", 4).unwrap();
    assert!(
        found
            .ids
            .keys()
            .map(Vec::as_slice)
            .eq(BTreeSet::from_iter(ids.iter().map(|id| id.as_bytes())))
    );
    assert!(found.ids.values().all(|rows| *rows == 3));
}

#[test]
fn more_rows_in_the_pages_than_in_the_footer_are_damage() {
    let (mut plan, bytes) = one_chunk(false);
    plan.chunks[0].rows = 9_000;
    let Err(ChunkError::Damaged(why)) = cut(&plan, &bytes, 10_000) else { panic!("it is not") };
    assert!(why.contains("rows, and 9000 were promised"), "{why}");
}

#[test]
fn a_file_written_to_in_place_between_two_pieces_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.parquet");
    let ids: Vec<String> = (0..1_000).map(|i| format!("user-{i}")).collect();
    write(&path, &ids, WriterProperties::builder().build());
    let bytes = std::fs::read(&path).unwrap();
    let modified = || std::fs::metadata(&path).unwrap().modified().unwrap();
    let error = block_on(async {
        let files = find(&[path.display().to_string()], "2026-11-19".parse().unwrap()).await;
        let plan = super::plan(&files.unwrap()[0]).await.unwrap();
        let Range { start, end } = plan.chunks[0].range;
        let middle = start.midpoint(end);
        fetch(&plan, start..middle).await.unwrap();
        let before = modified();
        // The same bytes: what a writer is halfway through nobody knows. A clock may tick only now
        // and then.
        while modified() == before {
            std::fs::write(&path, &bytes).unwrap();
        }
        fetch(&plan, middle..end).await.unwrap_err()
    });
    assert!(matches!(&error, Error::Replaced { .. }), "{error}");
}
