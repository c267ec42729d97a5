//! What a broker of Kafka sends: responses of each kind, and batches of messages with a checksum that fits, so that
//! what comes after it is reached. The first byte chooses.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../server/src/live/kafka/batch.rs"]
#[allow(dead_code)]
mod batch;
#[path = "../../server/src/live/kafka/codec.rs"]
mod codec;
#[path = "../../server/src/live/kafka/crc.rs"]
mod crc;
#[path = "../../server/src/live/kafka/message.rs"]
#[allow(dead_code)]
mod message;
#[path = "../../server/src/live/kafka/wire.rs"]
#[allow(dead_code)]
mod wire;

/// Where the checksum of a batch is, and what it is of.
const CRC: std::ops::Range<usize> = 17..21;

fn read(bytes: &[u8]) {
    for batch in batch::batches(bytes, &[(1, 0), (2, 5)]).flatten() {
        for record in batch.records().flatten() {
            let parts = [record.key, record.value].into_iter().flatten();
            assert!(parts.map(<[u8]>::len).sum::<usize>() <= codec::MAX_UNPACKED_BYTES);
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((kind, bytes)) = input.split_first() else { return };
    match kind % 6 {
        0 => drop(message::read_versions(bytes)),
        1 => drop(message::read_metadata(bytes)),
        2 => drop(message::read_offsets(bytes)),
        3 => drop(message::read_records(bytes)),
        4 => read(bytes),
        _ => {
            // One batch of all the bytes.
            let mut batch = bytes.to_vec();
            if batch.len() > CRC.end {
                let length = batch.len() as u32 - 12;
                batch[8..12].copy_from_slice(&length.to_be_bytes());
                batch[16] = 2;
                let crc = crc::crc32c(&batch[CRC.end..]);
                batch[CRC].copy_from_slice(&crc.to_be_bytes());
            }
            read(&batch);
        }
    }
});
