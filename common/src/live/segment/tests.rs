//! Segments: round trips, every torn length and every flipped bit.

use proptest::prelude::*;

use super::*;

const HEADER: Header =
    Header { set: 7, node: 8, epoch: 9, first_seq: 1 << 40, created_ms: 1_700_000_000_000 };

/// What a frame is made of.
#[derive(Clone, Debug)]
enum Content {
    Hashes(Op, Vec<u64>),
    Record(Op, Vec<u8>),
}

fn content() -> impl Strategy<Value = Content> {
    let hashes = prop::collection::vec(any::<u64>(), 0..40);
    let record = prop::collection::vec(any::<u8>(), 0..60);
    prop_oneof![
        (prop_oneof![Just(Op::Add), Just(Op::Delete)], hashes)
            .prop_map(|(op, hashes)| Content::Hashes(op, hashes)),
        (prop_oneof![Just(Op::Reserve), Just(Op::Drop), Just(Op::Expire)], record)
            .prop_map(|(op, record)| Content::Record(op, record)),
    ]
}

/// An open segment, and where each frame ends.
fn segment(contents: &[Content]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = HEADER.encode().to_vec();
    let mut ends = vec![bytes.len()];
    for (i, content) in contents.iter().enumerate() {
        let (seq, ms) = (HEADER.first_seq + i as u64, 5 + i as u64);
        match content {
            Content::Hashes(op, hashes) => append_hashes(&mut bytes, seq, ms, *op, hashes),
            Content::Record(op, record) => append_record(&mut bytes, seq, ms, *op, record),
        }
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn closed(mut bytes: Vec<u8>) -> Vec<u8> {
    let digest = blake3::hash(&bytes);
    bytes.extend(digest.as_bytes());
    bytes
}

proptest! {
    #[test]
    fn what_is_written_is_read(contents in prop::collection::vec(content(), 0..20)) {
        let (bytes, _) = segment(&contents);
        let closed = closed(bytes.clone());
        for (header, frames) in [Frames::of_open(&bytes), Frames::of_closed(&closed)].map(Result::unwrap) {
            prop_assert_eq!(header, HEADER);
            let mut count = 0;
            for (frame, content) in frames.map(Result::unwrap).zip(&contents) {
                prop_assert_eq!(frame.ms, 5 + count as u64);
                prop_assert_eq!(frame.seq, HEADER.first_seq + count as u64);
                match content {
                    Content::Hashes(op, hashes) => {
                        prop_assert_eq!(frame.op, *op);
                        prop_assert_eq!(&frame.hashes().collect::<Vec<_>>(), hashes);
                    }
                    Content::Record(op, record) => {
                        prop_assert_eq!(frame.op, *op);
                        prop_assert_eq!(frame.record(), record);
                    }
                }
                count += 1;
            }
            prop_assert_eq!(count, contents.len());
        }
    }

    #[test]
    fn a_torn_segment_gives_the_frames_before_the_tear(
        contents in prop::collection::vec(content(), 0..8),
    ) {
        let (bytes, ends) = segment(&contents);
        for length in 0..=bytes.len() {
            match Frames::of_open(&bytes[..length]) {
                Err(bad) => prop_assert!(length < HEADER_BYTES && bad == SegmentError::Header),
                Ok((_, mut frames)) => {
                    let whole = ends.iter().filter(|end| **end <= length).count() - 1;
                    let good = frames.by_ref().take_while(Result::is_ok).count();
                    prop_assert_eq!(good, whole);
                    prop_assert_eq!(frames.good_bytes(), ends[whole]);
                    prop_assert!(frames.next().is_none());
                    prop_assert!(!has_frame(&bytes[ends[whole]..length]));
                }
            }
            if length > 0 {
                prop_assert!(Frames::of_closed(&bytes[..length]).is_err());
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        with_header: bool,
    ) {
        let bytes = if with_header { [&HEADER.encode()[..], &bytes].concat() } else { bytes };
        if let Ok((_, frames)) = Frames::of_open(&bytes) {
            frames.for_each(|frame| {
                let _ = frame.map(|frame| (frame.hashes().count(), frame.record().len()));
            });
        }
        prop_assert!(Frames::of_closed(&bytes).is_err());
        prop_assert!(!has_frame(&bytes));
    }
}

#[test]
fn every_flipped_bit_is_noticed() {
    let contents = [
        Content::Record(Op::Reserve, b"options".to_vec()),
        Content::Hashes(Op::Add, vec![1, u64::MAX, 3]),
        Content::Hashes(Op::Delete, vec![]),
        Content::Record(Op::Drop, vec![]),
    ];
    let (open, ends) = segment(&contents);
    let closed = closed(open.clone());
    for bit in 0..8 * closed.len() {
        let mut flipped = closed.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Frames::of_closed(&flipped).is_err(), "bit {bit} of a closed segment");
        if bit / 8 >= open.len() {
            continue;
        }
        match Frames::of_open(&flipped[..open.len()]) {
            Err(_) => assert!(bit / 8 < HEADER_BYTES),
            Ok((_, frames)) => {
                let good = frames.take_while(Result::is_ok).count();
                let hit = ends.iter().filter(|end| **end <= bit / 8).count() - 1;
                assert_eq!(good, hit, "bit {bit} of an open segment");
                let has_more = hit + 1 < contents.len();
                assert_eq!(has_frame(&flipped[ends[hit]..open.len()]), has_more, "bit {bit}");
            }
        }
    }
}

#[test]
fn a_segment_of_another_program_is_refused_by_name() {
    let encoded = |at: usize, byte: u8| {
        let mut bytes = HEADER.encode();
        bytes[at] = byte;
        let check = Xxh3::of(&bytes[..56]).0;
        bytes[56..].copy_from_slice(&check.to_le_bytes());
        Header::parse(&bytes)
    };
    assert_eq!(encoded(8, 1), Err(SegmentError::Version(1)));
    assert_eq!(encoded(10, 2), Err(SegmentError::Hash));
    assert_eq!(encoded(11, 2), Err(SegmentError::Hash));
    assert_eq!(encoded(16, 0), Err(SegmentError::Hash));
    assert_eq!(encoded(0, b'B'), Err(SegmentError::Header));
    assert_eq!(encoded(0, b'b'), Ok(HEADER));
}
