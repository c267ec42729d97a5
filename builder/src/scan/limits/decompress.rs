//! Security boundary: decompresses a page's body to exactly as many bytes as its header says.
//!
//! Each decoder writes into memory of that size. The lengths in a compressed body are never
//! trusted.

use std::io::{Cursor, Read};

use brotli_decompressor::{BrotliDecoderParameter, Decompressor};
use parquet::basic::Compression;

/// Unpacks the pages of one column.
pub(in crate::scan) enum Codec {
    None,
    Snappy(Box<snap::raw::Decoder>),
    Gzip,
    Zstd(zstd::bulk::Decompressor<'static>),
    Lz4,
    Lz4Raw,
    Brotli,
}

/// The error of a decoder that cannot unpack a body.
fn damaged(e: impl std::fmt::Display) -> String {
    format!("does not unpack: {e}")
}

impl Codec {
    /// The memory that a decoder needs besides the page. Brotli has a window, which grows with the
    /// page up to 16 MiB, and tables.
    pub(in crate::scan) fn scratch(codec: Compression, page: u64) -> u64 {
        match codec {
            Compression::BROTLI(_) => (4 * page).min(32 << 20) + (6 << 20),
            Compression::LZ4 => (2 * page).min(16 << 20),
            _ => 0,
        }
    }

    pub(in crate::scan) fn new(codec: Compression) -> Result<Codec, String> {
        Ok(match codec {
            Compression::UNCOMPRESSED => Codec::None,
            Compression::SNAPPY => Codec::Snappy(Box::default()),
            Compression::GZIP(_) => Codec::Gzip,
            Compression::ZSTD(_) => Codec::Zstd(zstd::bulk::Decompressor::new().map_err(damaged)?),
            Compression::LZ4 => Codec::Lz4,
            Compression::LZ4_RAW => Codec::Lz4Raw,
            Compression::BROTLI(_) => Codec::Brotli,
            Compression::LZO => return Err("is compressed with LZO".to_owned()),
        })
    }

    pub(in crate::scan) fn is_none(&self) -> bool {
        matches!(self, Codec::None)
    }

    /// Returns `front` followed by what `packed` unpacks to, which must be `bytes` bytes.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(in crate::scan) fn unpack(
        &mut self,
        packed: &[u8],
        front: &[u8],
        bytes: usize,
    ) -> Result<Vec<u8>, String> {
        let all = front.len() + bytes;
        let mut to = Vec::with_capacity(all);
        to.extend_from_slice(front);
        // A page of nulls has no values, and some writers then write no compressed body.
        if bytes == 0 {
            return Ok(to);
        }
        if let Codec::Zstd(decoder) = self {
            let mut cursor = Cursor::new(to);
            cursor.set_position(front.len() as u64);
            decoder.decompress_to_buffer(packed, &mut cursor).map_err(damaged)?;
            let to = cursor.into_inner();
            return is_all(to.len() - front.len(), bytes).map(|()| to);
        }
        to.resize(all, 0);
        let place = &mut to[front.len()..];
        match self {
            Codec::None | Codec::Zstd(_) => {
                is_all(packed.len(), bytes)?;
                place.copy_from_slice(packed);
            }
            Codec::Snappy(decoder) => {
                is_all(snap::raw::decompress_len(packed).map_err(damaged)?, bytes)?;
                is_all(decoder.decompress(packed, place).map_err(damaged)?, bytes)?;
            }
            Codec::Gzip => fill(flate2::read::MultiGzDecoder::new(packed), place)?,
            Codec::Lz4Raw => lz4_block(packed, place)?,
            Codec::Lz4 => {
                // Writers used this name for three formats, of which only one can fit.
                hadoop(packed, place)
                    .or_else(|_| fill(lz4_flex::frame::FrameDecoder::new(packed), place))
                    .or_else(|_| lz4_block(packed, place))?;
            }
            Codec::Brotli => {
                const BUFFER_BYTES: usize = 4096;
                let mut stream = Decompressor::new(packed, BUFFER_BYTES);
                // No writer of Parquet uses the extension for windows of a gigabyte.
                let large = BrotliDecoderParameter::BROTLI_DECODER_PARAM_LARGE_WINDOW;
                stream.set_parameter(large, 0);
                fill(stream, place)?;
            }
        }
        Ok(to)
    }
}

fn is_all(got: usize, claimed: usize) -> Result<(), String> {
    if got == claimed {
        return Ok(());
    }
    Err(format!("unpacks to {got} bytes, and its header claims {claimed}"))
}

/// Fills `place` from a stream, which must end there.
fn fill(mut stream: impl Read, place: &mut [u8]) -> Result<(), String> {
    stream.read_exact(place).map_err(damaged)?;
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(format!("unpacks to more than the {} bytes that it claims", place.len())),
        Err(e) => Err(damaged(e)),
    }
}

fn lz4_block(packed: &[u8], place: &mut [u8]) -> Result<(), String> {
    let got = lz4_flex::block::decompress_into(packed, place).map_err(damaged)?;
    is_all(got, place.len())
}

/// Hadoop's frames: each block has two lengths before it, first the unpacked one.
fn hadoop(mut packed: &[u8], mut place: &mut [u8]) -> Result<(), String> {
    const TORN: &str = "has LZ4 frames that do not add up";
    while !packed.is_empty() {
        let (unpacked, rest) = packed.split_first_chunk().ok_or(TORN)?;
        let (length, rest) = rest.split_first_chunk().ok_or(TORN)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (block, rest) = rest.split_at_checked(length).ok_or(TORN)?;
        let unpacked = u32::from_be_bytes(*unpacked) as usize;
        let (here, behind) = place.split_at_mut_checked(unpacked).ok_or(TORN)?;
        lz4_block(block, here)?;
        (packed, place) = (rest, behind);
    }
    if place.is_empty() { Ok(()) } else { Err(TORN.to_owned()) }
}
