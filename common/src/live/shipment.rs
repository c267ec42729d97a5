//! [`shipments`]: frames of a log → the segments in the store. Each has frames of one UTC day, so
//! that a day's folder has all changes of the day and no others. Bytes only: no I/O.

use super::segment::{Frames, Header, closed};
use crate::day::Day;

/// A segment of this many bytes gets no more frames.
pub const SHIPMENT_BYTES: usize = 8 << 20;

/// One segment for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shipment {
    /// The day of its frames.
    pub day: Day,
    /// What it states about itself.
    pub header: Header,
    /// The number of its last frame.
    pub last_seq: u64,
    /// The closed segment.
    pub bytes: Vec<u8>,
}

/// The segments for the frames from `first` to `last`, of a segment with this header. Frames after
/// one that is damaged or incomplete are left out.
pub fn shipments(header: &Header, frames: Frames<'_>, first: u64, last: u64) -> Vec<Shipment> {
    let mut all = Vec::new();
    let mut part: Option<Part> = None;
    let frames = frames.map_while(Result::ok).skip_while(|frame| frame.seq < first);
    for frame in frames.take_while(|frame| frame.seq <= last) {
        let day = Day::at_unix_ms(frame.ms);
        let is_full = |part: &mut Part| part.day != day || part.frames.len() >= SHIPMENT_BYTES;
        all.extend(part.take_if(is_full).map(|part| part.close(header)));
        let begin = || Part { day, first_seq: frame.seq, last_seq: frame.seq, frames: Vec::new() };
        let part = part.get_or_insert_with(begin);
        part.last_seq = frame.seq;
        part.frames.extend_from_slice(frame.bytes());
    }
    all.extend(part.map(|part| part.close(header)));
    all
}

struct Part {
    day: Day,
    first_seq: u64,
    last_seq: u64,
    frames: Vec<u8>,
}

impl Part {
    fn close(self, header: &Header) -> Shipment {
        let Part { day, first_seq, last_seq, frames } = self;
        let header = Header { first_seq, ..*header };
        let bytes = closed(&header, &frames);
        Shipment { day, header, last_seq, bytes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::live::segment::{Op, append_hashes};

    const DAY_MS: u64 = 24 * 3_600 * 1_000;

    fn header(first_seq: u64) -> Header {
        Header { set: 1, node: 2, epoch: 3, first_seq, created_ms: 4 }
    }

    /// The frames of these days, from number 10 on.
    fn log(days: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (seq, day) in (10..).zip(days) {
            append_hashes(&mut bytes, seq, day * DAY_MS + seq, Op::Add, &[seq, seq * seq]);
        }
        bytes
    }

    proptest! {
        #[test]
        fn every_frame_is_shipped_once_in_a_segment_of_its_day(
            days in proptest::collection::vec(20_000_u64..20_003, 0..40),
            first in 0_u64..60,
            last in 0_u64..60,
        ) {
            let bytes = log(&days);
            let all = shipments(&header(10), Frames::of_rest(&bytes, 10), first, last);
            let mut got = Vec::new();
            for shipment in &all {
                let (header, frames) = Frames::of_closed(&shipment.bytes).unwrap();
                prop_assert_eq!(header, shipment.header);
                let frames: Vec<_> = frames.map(Result::unwrap).collect();
                prop_assert_eq!(frames[0].seq, header.first_seq);
                prop_assert_eq!(frames[frames.len() - 1].seq, shipment.last_seq);
                for frame in frames {
                    prop_assert_eq!(Day::at_unix_ms(frame.ms), shipment.day);
                    got.push((frame.seq, frame.ms / DAY_MS));
                }
            }
            let wanted = (10..).zip(days.iter().copied());
            let wanted: Vec<_> =
                wanted.filter(|(seq, _)| (first..=last).contains(seq)).collect();
            prop_assert_eq!(got, wanted);
        }
    }

    #[test]
    fn a_long_log_is_shipped_in_parts() {
        let (mut bytes, hashes) = (Vec::new(), [7; 1 << 16]);
        for seq in 1..=40 {
            append_hashes(&mut bytes, seq, 20_000 * DAY_MS, Op::Add, &hashes);
        }
        let all = shipments(&header(1), Frames::of_rest(&bytes, 1), 1, u64::MAX);
        assert_eq!(all.iter().map(|part| part.last_seq).collect::<Vec<_>>(), [16, 32, 40]);
        assert!(all.iter().all(|part| part.bytes.len() < SHIPMENT_BYTES + (1 << 20)));
    }
}
