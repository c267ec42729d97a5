//! Security boundary: definition levels, which say for each row whether it has a value.

use super::varint::varint32;

/// How many of `rows` rows have a value, from levels in the run-length encoding. `None` if the
/// levels are for fewer or more rows, or invalid.
///
/// Cost: a few operations per run, or a popcount for single bits; more in nested structs, whose
/// levels have several bits.
pub(in crate::scan) fn count_present(mut levels: &[u8], max_level: i16, rows: u32) -> Option<u32> {
    let (bits, max_level) = (bits_of(max_level), max_level as u32);
    let (mut left, mut present) = (rows, 0);
    while left > 0 {
        let header = varint32(&mut levels)?;
        let (packed, n) = (header & 1 == 1, header >> 1);
        // The decoder takes it for the end.
        if header == 0 {
            return None;
        }
        if packed {
            // Groups of eight levels without gaps. Some writers omit the bytes after the last row.
            let bytes = groups(&mut levels, n, bits, left)?;
            let n = left.min(n.saturating_mul(8));
            let level = |at: u32| {
                let bit = |i: u32| {
                    let at = u64::from(at) * u64::from(bits) + u64::from(i);
                    u32::from(bytes[(at / 8) as usize] >> (at % 8) & 1) << i
                };
                (0..bits).map(bit).sum::<u32>()
            };
            present += match bits {
                0 => n,
                1 => ones(bytes, n),
                _ => {
                    let mut full = 0;
                    for level in (0..n).map(level) {
                        if level > max_level {
                            return None;
                        }
                        full += u32::from(level == max_level);
                    }
                    full
                }
            };
            left -= n;
        } else {
            let bytes = levels.split_off(..bits.div_ceil(8) as usize)?;
            let level = bytes.iter().rev().fold(0, |level, byte| level << 8 | u32::from(*byte));
            if level > max_level {
                return None;
            }
            present += if level == max_level { n.min(left) } else { 0 };
            left = left.checked_sub(n)?;
        }
    }
    levels.is_empty().then_some(present)
}

/// The bytes of a run of `n` groups of eight numbers, of which `left` are used. Writers pad the
/// last group, and DuckDB the last 32 groups.
pub(in crate::scan) fn groups<'a>(
    from: &mut &'a [u8],
    n: u32,
    bits: u32,
    left: u32,
) -> Option<&'a [u8]> {
    if n > left.div_ceil(256) * 32 {
        return None;
    }
    let wanted = u64::from(left.min(n.saturating_mul(8))) * u64::from(bits);
    let claimed = u64::from(n) * u64::from(bits);
    let there = claimed.min(from.len() as u64);
    if there * 8 < wanted {
        return None;
    }
    from.split_off(..there as usize)
}

/// The number of set bits among the first `n`.
fn ones(bytes: &[u8], n: u32) -> u32 {
    let (whole, rest) = bytes.split_at(n as usize / 8);
    let last = rest.first().map_or(0, |byte| byte & ((1 << (n % 8)) - 1));
    whole.iter().map(|byte| byte.count_ones()).sum::<u32>() + last.count_ones()
}

pub(in crate::scan) fn bits_of(max_level: i16) -> u32 {
    i16::BITS - max_level.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_groups_are_counted_as_far_as_there_are_rows() {
        // Five of level 1, three of level 0; then eight levels, a bit each, of which rows are left
        // for six.
        let levels = [5 << 1, 1, 3 << 1, 0, 1 << 1 | 1, 0b1110_0101];
        assert_eq!(count_present(&levels, 1, 14), Some(5 + 3));
        assert_eq!(count_present(&levels, 1, 16), Some(5 + 5));
        assert_eq!(count_present(&levels, 1, 17), None, "there are no more");
        assert_eq!(count_present(&levels, 1, 8), None, "there are more");
        assert_eq!(count_present(&levels, 1, 4), None, "a run is longer than the page");
        assert_eq!(count_present(&levels[..5], 1, 14), None, "cut within a group");
        assert_eq!(count_present(&[], 1, 0), Some(0));
        assert_eq!(count_present(&[0], 1, 0), None, "a byte for nobody");
        assert_eq!(count_present(&[5 << 1, 2], 1, 5), None, "there is no level 2");
        assert_eq!(count_present(&[0, 5 << 1, 1], 1, 5), None, "0 is the end");
        assert_eq!(count_present(&[1, 5 << 1, 1], 1, 5), Some(5), "no group of eight");
    }

    #[test]
    fn groups_of_single_bits_end_with_the_rows() {
        let levels = [3 << 1 | 1, 0xff, 0b0101_0101, 0xff];
        let present = |rows| count_present(&levels, 1, rows);
        let expected = [1, 7, 8, 9, 9, 12, 13, 20].map(Some);
        assert_eq!([1, 7, 8, 9, 10, 16, 17, 24].map(present), expected);
        assert_eq!([0, 25].map(present), [None; 2], "a group without a row, or a row without one");
        let levels = [&[33 << 1 | 1][..], &[0xff; 33]].concat();
        assert_eq!(count_present(&levels, 1, 264), Some(264));
        assert_eq!(count_present(&levels, 1, 257), Some(257));
        assert_eq!(count_present(&levels, 1, 256), None, "more groups than anybody fills up");
    }

    #[test]
    fn levels_of_nested_structs_take_more_bits_and_only_the_highest_has_a_value() {
        // Two bits a level: 3, 2, 3, 0, 1, 3, 3, 2.
        let levels = [1 << 1 | 1, 0b0011_1011, 0b1011_1101];
        assert_eq!(count_present(&levels, 3, 8), Some(4));
        assert_eq!(count_present(&levels, 2, 8), None, "there is no level 3");
        // Cut behind the last row: 2, 2, 2 and nothing of the other five.
        assert_eq!(count_present(&[1 << 1 | 1, 0b0010_1010], 2, 3), Some(3));
        assert_eq!(count_present(&[1 << 1 | 1, 0b0010_1010], 2, 5), None);
        // A run of 300 of them: nine bits of level are two bytes.
        let long = [0xd8, 0x04, 0x2c, 0x01];
        assert_eq!(count_present(&long, 300, 300), Some(300));
        assert_eq!(count_present(&long, 301, 300), Some(0));
    }

    #[test]
    fn levels_of_a_column_without_any_take_no_bits() {
        assert_eq!(count_present(&[20 << 1], 0, 20), Some(20));
        assert_eq!(count_present(&[3 << 1 | 1], 0, 20), Some(20));
        assert_eq!(count_present(&[20 << 1], 0, 19), None);
    }

    #[test]
    fn no_bytes_are_more_than_an_answer() {
        for first in 0..=255_u8 {
            for second in 0..=255 {
                for max_level in [0, 1, 2, 7, i16::MAX] {
                    let levels = [first, second, 0xff, 0xff, 0xff, 0xff];
                    let present = count_present(&levels, max_level, 1_000_000);
                    assert!(present.is_none_or(|n| n <= 1_000_000));
                }
            }
        }
    }
}
