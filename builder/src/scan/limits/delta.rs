//! Security boundary: checks DELTA_BINARY_PACKED lists, which are differences in blocks of
//! miniblocks, each with its own width.
//!
//! Only lengths are decoded here, and only for checks. The parquet crate trusts the count of such a
//! list before it reads the values, and a few bytes can claim billions.

use super::varint::{varint32, varint64, zigzag};

/// A decoder for the values of a list and the bytes after it.
pub(in crate::scan) struct DeltaDecoder<'a> {
    bytes: &'a [u8],
    values_per_miniblock: u32,
    miniblocks: usize,
    /// The values that are not returned yet.
    left: u32,
    value: i32,
    is_first: bool,
    /// Of the block: its least difference, and the widths of the next miniblocks.
    min_delta: i32,
    widths: &'a [u8],
    /// Of the miniblock: its next bytes, the width of a value, and the number of values.
    packed: &'a [u8],
    width: u32,
    left_in_miniblock: u32,
    /// Bits that are read, but not used yet.
    window: u64,
    bits: u32,
}

/// The most numbers of a miniblock: writers have 32 to 64.
const MAX_IN_MINIBLOCK: u32 = 1 << 16;

impl<'a> DeltaDecoder<'a> {
    /// The list at the front of `bytes`, which must have `count` values.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(in crate::scan) fn new(
        mut bytes: &'a [u8],
        count: u32,
    ) -> Result<DeltaDecoder<'a>, String> {
        let head = (|| {
            let (block, miniblocks) = (varint32(&mut bytes)?, varint32(&mut bytes)?);
            Some((block, miniblocks, varint64(&mut bytes)?, zigzag(&mut bytes)?))
        })();
        let (block, miniblocks, claims, value) = head.ok_or(UNREADABLE)?;
        if claims != u64::from(count) {
            return Err(format!("has a list that claims {claims} numbers for its {count} values"));
        }
        // The rules of the format. Without them the positions of values are undefined.
        let values_per_miniblock = block.checked_div(miniblocks).ok_or(UNREADABLE)?;
        let is_right = block.is_multiple_of(128)
            && block.is_multiple_of(miniblocks)
            && values_per_miniblock.is_multiple_of(32)
            && (1..=MAX_IN_MINIBLOCK).contains(&values_per_miniblock);
        if !is_right {
            return Err(UNREADABLE.to_owned());
        }
        Ok(DeltaDecoder {
            bytes,
            values_per_miniblock,
            miniblocks: miniblocks as usize,
            left: count,
            value: value as i32,
            is_first: true,
            min_delta: 0,
            widths: &[],
            packed: &[],
            width: 0,
            left_in_miniblock: 0,
            window: 0,
            bits: 0,
        })
    }

    /// The next value. Additions wrap at 32 bits, as in the parquet crate.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    #[inline]
    pub(in crate::scan) fn next(&mut self) -> Result<Option<i32>, String> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        if std::mem::take(&mut self.is_first) {
            return Ok(Some(self.value));
        }
        if self.left_in_miniblock == 0 {
            self.next_miniblock().ok_or(UNREADABLE)?;
        }
        while self.bits < self.width {
            let byte = self.packed.split_off_first().ok_or(UNREADABLE)?;
            self.window |= u64::from(*byte) << self.bits;
            self.bits += 8;
        }
        let delta = (self.window & ((1 << self.width) - 1)) as i32;
        self.window >>= self.width;
        self.bits -= self.width;
        self.left_in_miniblock -= 1;
        self.value = self.value.wrapping_add(self.min_delta).wrapping_add(delta);
        Ok(Some(self.value))
    }

    fn next_miniblock(&mut self) -> Option<()> {
        if self.widths.is_empty() {
            self.min_delta = zigzag(&mut self.bytes)? as i32;
            self.widths = self.bytes.split_off(..self.miniblocks)?;
        }
        self.width = u32::from(*self.widths.split_off_first()?);
        // Lengths have 32 bits, and so have their differences.
        let bytes = (self.width <= 32)
            .then_some(self.width as usize * self.values_per_miniblock as usize / 8)?;
        self.packed = self.bytes.split_off(..bytes)?;
        (self.window, self.bits, self.left_in_miniblock) = (0, 0, self.values_per_miniblock);
        Some(())
    }

    /// The bytes after the list. All values must have been returned.
    pub(in crate::scan) fn rest(self) -> &'a [u8] {
        debug_assert_eq!(self.left, 0);
        self.bytes
    }

    /// Skips the list and returns the bytes after it.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(in crate::scan) fn pass(mut self, most_bits: u8) -> Result<&'a [u8], String> {
        self.left = self.left.saturating_sub(1);
        while self.left > 0 {
            zigzag(&mut self.bytes).ok_or(UNREADABLE)?;
            let widths = self.bytes.split_off(..self.miniblocks).ok_or(UNREADABLE)?;
            for width in widths {
                if self.left == 0 {
                    break;
                }
                if *width > most_bits {
                    return Err(UNREADABLE.to_owned());
                }
                let bytes = u64::from(*width) * u64::from(self.values_per_miniblock) / 8;
                self.bytes.split_off(..bytes as usize).ok_or(UNREADABLE)?;
                self.left = self.left.saturating_sub(self.values_per_miniblock);
            }
        }
        Ok(self.bytes)
    }
}

const UNREADABLE: &str = "has a list of numbers that cannot be read";

#[cfg(test)]
mod tests {
    use super::*;

    fn values(bytes: &[u8], count: u32) -> Result<(Vec<i32>, usize), String> {
        let mut all = Vec::new();
        let mut deltas = DeltaDecoder::new(bytes, count)?;
        while let Some(value) = deltas.next()? {
            all.push(value);
        }
        let left = deltas.rest();
        assert_eq!(DeltaDecoder::new(bytes, count)?.pass(32)?, left);
        Ok((all, left.len()))
    }

    #[test]
    fn a_list_is_read_to_its_end_and_no_further() {
        // Blocks of 128 in 4 miniblocks; 200 values from 7 on, each one more: widths of 0 and no
        // bytes.
        let list = [&[0x80, 1, 4, 0xc8, 1, 14][..], &[2, 0, 0, 0, 0].repeat(2)].concat();
        let (all, left) = values(&[&list[..], &[9; 3]].concat(), 200).unwrap();
        assert_eq!((all, left), ((7..207).collect(), 3));
        assert!(values(&list, 199).unwrap_err().contains("claims 200 numbers for its 199 values"));
        for cut in 0..list.len() {
            assert!(values(&list[..cut], 200).is_err(), "{cut}");
        }
        // Three values with differences of 3, 1 in two bits above a min_delta of -1.
        let three =
            [&[0x80, 1, 4, 3, 0][..], &[1, 2, 0xff, 0xff, 0xff], &[0b1000 | 0b0100], &[0; 7]];
        assert_eq!(values(&three.concat(), 3), Ok((vec![0, -1, 1], 0)));
        assert_eq!(values(&[0x80, 1, 4, 1, 10], 1), Ok((vec![5], 0)));
        assert_eq!(values(&[0x80, 1, 4, 0, 0], 0), Ok((vec![], 0)));
    }

    #[test]
    fn what_no_block_can_be_is_an_error() {
        for head in [
            &[0, 4, 2, 0][..],
            &[0x80, 1, 0, 2, 0],
            &[0x80, 1, 3, 2, 0],
            &[0x81, 1, 4, 2, 0],
            &[0x80, 1, 8, 2, 0],
            &[0x80, 0x80, 0x80, 0x80, 8, 4, 2, 0],
            &[0x80, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 0],
        ] {
            assert!(values(&[head, &[0; 64]].concat(), 2).is_err(), "{head:?}");
        }
        // A miniblock with 33 bits a value.
        assert!(values(&[&[0x80, 1, 4, 2, 0, 0, 33, 0, 0, 0][..], &[0; 200]].concat(), 2).is_err());
    }
}
