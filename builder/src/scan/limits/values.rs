//! Security boundary: checks that a page has as many values as its levels say, and no other byte.
//!
//! The decoders of the parquet crate read the number of values that the levels say and ignore the
//! rest, so a flipped bit in a level would silently lose an ID.

use parquet::basic::{Encoding, Type as Physical};

use super::delta::DeltaDecoder;
use super::levels::groups;
use super::varint::varint32;

/// The type of a column's values.
#[derive(Clone, Copy, Debug)]
pub(in crate::scan) struct Values {
    pub(in crate::scan) physical: Physical,
    /// The bytes of each value, if all have the same number.
    pub(in crate::scan) width: usize,
    /// Whether the column has nulls only.
    pub(in crate::scan) none: bool,
}

const LEFT_OVER: &str = "has bytes behind its last value";
const TOO_SHORT: &str = "ends before its last value";

impl Values {
    /// Checks the `present` values of a data page. `dictionary` is the dictionary's size.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(in crate::scan) fn check(
        &self,
        encoding: Encoding,
        body: &[u8],
        present: u32,
        dictionary: Option<u32>,
    ) -> Result<(), String> {
        if self.none && present > 0 {
            return Err(format!("has {present} values in a column of nulls alone"));
        }
        // A page of nulls may have no values at all, or an encoded list of none.
        if body.is_empty() && present == 0 {
            return Ok(());
        }
        match encoding {
            Encoding::PLAIN => self.check_plain(body, present),
            Encoding::PLAIN_DICTIONARY | Encoding::RLE_DICTIONARY => {
                let dictionary = dictionary.ok_or("refers to a dictionary, and there is none")?;
                check_dictionary_indexes(body, present, dictionary)
            }
            Encoding::DELTA_BINARY_PACKED => {
                let bits = match self.physical {
                    Physical::INT32 => 32,
                    Physical::INT64 => 64,
                    _ => return Err(of_no_use(encoding)),
                };
                is_all(DeltaDecoder::new(body, present)?.pass(bits)?, 0)
            }
            Encoding::DELTA_LENGTH_BYTE_ARRAY => self.check_lengths(body, present),
            Encoding::DELTA_BYTE_ARRAY => self.check_prefixes(body, present),
            Encoding::BYTE_STREAM_SPLIT if self.width > 0 => self.check_fixed(body, present),
            _ => Err(of_no_use(encoding)),
        }
    }

    /// Checks a dictionary of `values` values.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(in crate::scan) fn check_dictionary(
        &self,
        encoding: Encoding,
        body: &[u8],
        values: u32,
    ) -> Result<(), String> {
        match encoding {
            Encoding::PLAIN | Encoding::PLAIN_DICTIONARY => self.check_plain(body, values),
            _ => Err(of_no_use(encoding)),
        }
    }

    fn check_plain(&self, body: &[u8], values: u32) -> Result<(), String> {
        match self.physical {
            Physical::BYTE_ARRAY => {
                let mut rest = body;
                for _ in 0..values {
                    let (length, behind) = rest.split_first_chunk().ok_or(TOO_SHORT)?;
                    let length = u32::from_le_bytes(*length) as usize;
                    rest = behind.get(length..).ok_or(TOO_SHORT)?;
                }
                is_all(rest, 0)
            }
            Physical::FIXED_LEN_BYTE_ARRAY => {
                let prefixed = (self.width + 4) as u64 * u64::from(values);
                // A version of arrow-rs wrote a length before each value; the parquet crate reads
                // it.
                let is_prefixed = prefixed == body.len() as u64
                    && body.chunks_exact(self.width + 4).all(|value| {
                        value.first_chunk().map(|n| u32::from_le_bytes(*n))
                            == Some(self.width as u32)
                    });
                if is_prefixed { Ok(()) } else { self.check_fixed(body, values) }
            }
            Physical::BOOLEAN => is_all(body, u64::from(values).div_ceil(8)),
            _ => self.check_fixed(body, values),
        }
    }

    fn check_fixed(&self, body: &[u8], values: u32) -> Result<(), String> {
        is_all(body, self.width as u64 * u64::from(values))
    }

    /// Checks a list of lengths and the bytes after it.
    fn check_lengths(&self, body: &[u8], present: u32) -> Result<(), String> {
        let mut lengths = DeltaDecoder::new(body, present)?;
        let mut all = 0;
        while let Some(length) = lengths.next()? {
            all += self.length(length)?;
        }
        is_all(lengths.rest(), all)
    }

    /// Checks a list of prefix lengths, a list of suffix lengths, and the bytes of the suffixes.
    fn check_prefixes(&self, body: &[u8], present: u32) -> Result<(), String> {
        let mut prefixes = DeltaDecoder::new(body, present)?;
        let mut suffixes = DeltaDecoder::new(DeltaDecoder::new(body, present)?.pass(32)?, present)?;
        let (mut before, mut all) = (0, 0);
        while let (Some(prefix), Some(suffix)) = (prefixes.next()?, suffixes.next()?) {
            let (prefix, suffix) = (u64::try_from(prefix), u64::try_from(suffix));
            let (Ok(prefix), Ok(suffix)) = (prefix, suffix) else {
                return Err("has a value of negative length".to_owned());
            };
            if prefix > before {
                return Err(format!("shares {prefix} bytes with a value that has {before}"));
            }
            before = prefix + suffix;
            if before != self.width as u64 && self.is_fixed() {
                return Err(format!("has a value of {before} bytes, and each has {}", self.width));
            }
            all += suffix;
        }
        is_all(suffixes.rest(), all)
    }

    fn length(&self, length: i32) -> Result<u64, String> {
        match u64::try_from(length) {
            Ok(length) if !self.is_fixed() || length == self.width as u64 => Ok(length),
            _ => Err(format!("has a value of {length} bytes")),
        }
    }

    fn is_fixed(&self) -> bool {
        self.physical == Physical::FIXED_LEN_BYTE_ARRAY
    }
}

fn of_no_use(encoding: Encoding) -> String {
    format!("has the encoding {encoding}, which its values cannot have")
}

/// Checks that `rest` has `wanted` bytes.
fn is_all(rest: &[u8], wanted: u64) -> Result<(), String> {
    match (rest.len() as u64).cmp(&wanted) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(TOO_SHORT.to_owned()),
        std::cmp::Ordering::Greater => Err(LEFT_OVER.to_owned()),
    }
}

/// Checks dictionary indexes: the first byte is their width in bits, and then come runs and groups.
fn check_dictionary_indexes(body: &[u8], present: u32, dictionary: u32) -> Result<(), String> {
    let (bits, mut rest) = body.split_first().ok_or(TOO_SHORT)?;
    let bits = u32::from(*bits);
    if bits > 32 {
        return Err(format!("has dictionary indexes of {bits} bits"));
    }
    let mut left = present;
    while left > 0 {
        let header = varint32(&mut rest).ok_or(TOO_SHORT)?;
        let (packed, n) = (header & 1 == 1, header >> 1);
        // The decoder takes it for the end.
        if header == 0 {
            return Err(TOO_SHORT.to_owned());
        }
        if packed {
            // The decoder checks each index.
            groups(&mut rest, n, bits, left)
                .ok_or("has fewer or more dictionary indexes than values")?;
            left -= left.min(n.saturating_mul(8));
        } else {
            let bytes = rest.split_off(..bits.div_ceil(8) as usize).ok_or(TOO_SHORT)?;
            let key = bytes.iter().rev().fold(0_u64, |key, byte| key << 8 | u64::from(*byte));
            if key >= u64::from(dictionary) {
                return Err(format!("refers to value {key} of the {dictionary} in its dictionary"));
            }
            left = left.checked_sub(n).ok_or("has more dictionary indexes than values")?;
        }
    }
    is_all(rest, 0)
}
