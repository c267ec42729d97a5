//! The compressions of a batch. What a batch unpacks to is bounded before it is there.

use std::borrow::Cow;
use std::io::Read;

use super::wire::Reader;

/// What a batch may unpack to: 64 times what brokers take by default.
pub(super) const MAX_UNPACKED_BYTES: usize = 64 << 20;

/// How the framing of Snappy in Java's client begins; others send one block as it is.
const SNAPPY_MAGIC: &[u8] = &[0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// The versions that follow it.
const SNAPPY_VERSIONS_BYTES: usize = 8;

/// The content of a batch, by the number of its compression; else why it cannot be had.
pub(super) fn unpack(codec: i16, packed: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let why = |error: std::io::Error| error.to_string();
    Ok(Cow::Owned(match codec {
        0 => return Ok(Cow::Borrowed(packed)),
        1 => read(flate2::read::MultiGzDecoder::new(packed))?,
        2 => snappy(packed)?,
        3 => read(lz4_flex::frame::FrameDecoder::new(packed))?,
        4 => {
            let mut zstd = zstd::stream::read::Decoder::with_buffer(packed).map_err(why)?;
            zstd.window_log_max(MAX_UNPACKED_BYTES.ilog2()).map_err(why)?;
            read(zstd)?
        }
        other => return Err(format!("its compression, number {other}, is not known")),
    }))
}

fn read(unpacking: impl Read) -> Result<Vec<u8>, String> {
    let mut unpacked = Vec::new();
    let read = unpacking.take(MAX_UNPACKED_BYTES as u64 + 1).read_to_end(&mut unpacked);
    read.map_err(|error| error.to_string())?;
    bounded(unpacked.len())?;
    Ok(unpacked)
}

fn bounded(len: usize) -> Result<(), String> {
    if len > MAX_UNPACKED_BYTES {
        return Err(format!("it unpacks to more than {} MiB", MAX_UNPACKED_BYTES >> 20));
    }
    Ok(())
}

fn snappy(packed: &[u8]) -> Result<Vec<u8>, String> {
    let Some(framed) = packed.strip_prefix(SNAPPY_MAGIC) else {
        let mut unpacked = Vec::new();
        snappy_block(packed, &mut unpacked)?;
        return Ok(unpacked);
    };
    let (mut reader, mut unpacked) = (Reader::new(framed), Vec::new());
    reader.take(SNAPPY_VERSIONS_BYTES).map_err(|error| error.to_string())?;
    while !reader.rest().is_empty() {
        let block = reader.bytes().map_err(|error| error.to_string())?;
        snappy_block(block.unwrap_or_default(), &mut unpacked)?;
    }
    Ok(unpacked)
}

fn snappy_block(packed: &[u8], to: &mut Vec<u8>) -> Result<(), String> {
    let why = |error: snap::Error| error.to_string();
    let len = snap::raw::decompress_len(packed).map_err(why)?;
    let begin = to.len();
    bounded(begin.saturating_add(len))?;
    to.resize(begin + len, 0);
    let written = snap::raw::Decoder::new().decompress(packed, &mut to[begin..]).map_err(why)?;
    to.truncate(begin + written);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(codec: i16, bytes: &[u8]) -> Vec<u8> {
        match codec {
            1 => {
                let mut gzip = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                gzip.write_all(bytes).unwrap();
                gzip.finish().unwrap()
            }
            2 => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
            3 => {
                let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
                lz4.write_all(bytes).unwrap();
                lz4.finish().unwrap()
            }
            4 => zstd::stream::encode_all(bytes, 3).unwrap(),
            _ => bytes.to_vec(),
        }
    }

    #[test]
    fn each_compression_unpacks_to_what_was_packed_and_no_cut_of_it_panics() {
        let bytes: Vec<u8> = (0..20_000_u32).flat_map(|n| (n / 7).to_be_bytes()).collect();
        for codec in 0..=4 {
            let packed = packed(codec, &bytes);
            assert_eq!(unpack(codec, &packed).unwrap(), bytes, "{codec}");
            for cut in (0..packed.len()).step_by(97) {
                let _ = unpack(codec, &packed[..cut]);
                let mut flipped = packed.clone();
                flipped[cut] ^= 0x55;
                let _ = unpack(codec, &flipped);
            }
        }
        assert!(unpack(5, b"x").is_err());
    }

    #[test]
    fn the_framing_of_java_is_read_block_by_block() {
        let mut framed = [SNAPPY_MAGIC, &[0, 0, 0, 1, 0, 0, 0, 1]].concat();
        for part in [&b"one "[..], b"two "] {
            let block = packed(2, part);
            framed.extend((block.len() as u32).to_be_bytes());
            framed.extend(block);
        }
        assert_eq!(unpack(2, &framed).unwrap(), &b"one two "[..]);
        assert!(unpack(2, &framed[..framed.len() - 1]).is_err());
    }

    #[test]
    fn what_unpacks_to_too_much_is_refused() {
        let bomb = vec![0; MAX_UNPACKED_BYTES + 1];
        for codec in 1..=4 {
            let refused = unpack(codec, &packed(codec, &bomb)).unwrap_err();
            assert!(refused.contains("64 MiB"), "{codec}: {refused}");
        }
        // The length of a block of Snappy is only said.
        let refused = unpack(2, &[0xff, 0xff, 0xff, 0xff, 0x0f, 0]).unwrap_err();
        assert!(refused.contains("64 MiB"), "{refused}");
    }
}
