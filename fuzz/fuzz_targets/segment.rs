//! Segments of a live log: whatever is read, written again gives the same bytes. The first byte
//! tells whether a header is put before the others, and whether check sums are made right.

#![no_main]

use bloomsday_common::hash::{IdHash, Xxh3};
use bloomsday_common::live::segment::{
    FRAME_HEADER_BYTES, Frames, Header, Op, append_hashes, append_record,
};
use libfuzzer_sys::fuzz_target;

/// Makes the check of each frame right, as far as lengths lead from one to the next.
fn mend(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + FRAME_HEADER_BYTES) {
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
        let Some(end) =
            (at + FRAME_HEADER_BYTES).checked_add(length).filter(|end| *end <= bytes.len())
        else {
            return;
        };
        let check = Xxh3::of(&bytes[at + 8..end]).0;
        bytes[at..at + 8].copy_from_slice(&check.to_le_bytes());
        at = end;
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((how, rest)) = input.split_first() else { return };
    let header = Header { set: 1, node: 2, epoch: 3, first_seq: 0, created_ms: 5 };
    let mut frames = rest.to_vec();
    if how & 1 == 1 {
        mend(&mut frames);
    }
    let bytes = if how & 2 == 2 { [&header.encode()[..], &frames].concat() } else { frames };
    let _ = Frames::of_closed(&bytes).map(|(_, frames)| assert!(frames.count() <= bytes.len()));
    let Ok((header, mut frames)) = Frames::of_open(&bytes) else { return };
    let mut again = header.encode().to_vec();
    for frame in frames.by_ref().map_while(Result::ok) {
        match frame.op {
            Op::Add | Op::Delete => {
                let hashes: Vec<u64> = frame.hashes().collect();
                append_hashes(&mut again, frame.seq, frame.ms, frame.op, &hashes);
            }
            op => append_record(&mut again, frame.seq, frame.ms, op, frame.record()),
        }
    }
    assert_eq!(again, &bytes[..frames.good_bytes()]);
});
