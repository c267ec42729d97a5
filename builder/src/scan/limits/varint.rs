//! Security boundary: numbers of variable length, seven bits a byte, the lowest first.

/// A number of at most 32 bits.
pub(in crate::scan) fn varint32(bytes: &mut &[u8]) -> Option<u32> {
    varint(bytes, u32::BITS).map(|number| number as u32)
}

/// A number of at most 64 bits.
pub(in crate::scan) fn varint64(bytes: &mut &[u8]) -> Option<u64> {
    varint(bytes, u64::BITS)
}

/// A signed number of 64 bits: its sign is the lowest bit.
pub(in crate::scan) fn zigzag(bytes: &mut &[u8]) -> Option<i64> {
    varint64(bytes).map(|number| (number >> 1) as i64 ^ -((number & 1) as i64))
}

/// Takes a number of at most `bits` bits from the front. `None` if it has more or does not end.
fn varint(bytes: &mut &[u8], bits: u32) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..bits).step_by(7) {
        let byte = *bytes.split_off_first()?;
        // The last byte has only the bits that are left, and no other byte after it.
        if bits - shift < 7 && byte >> (bits - shift) != 0 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_numbers_are_read_and_no_larger_ones() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0x0f, 7];
        assert_eq!((varint32(&mut bytes), bytes), (Some(u32::MAX), &[7][..]));
        assert_eq!(varint32(&mut &[0xff, 0xff, 0xff, 0xff, 0x1f][..]), None);
        assert_eq!(varint32(&mut &[0x80, 0x80, 0x80, 0x80, 0x80, 0][..]), None, "six bytes");
        let mut most = [0xff; 10];
        most[9] = 1;
        assert_eq!(varint64(&mut &most[..]), Some(u64::MAX));
        most[9] = 2;
        assert_eq!(varint64(&mut &most[..]), None);
    }

    #[test]
    fn a_number_that_does_not_end_is_refused() {
        assert_eq!(varint64(&mut &[][..]), None);
        assert_eq!(varint64(&mut &[0x80][..]), None);
        assert_eq!(varint32(&mut &[0xff; 3][..]), None);
    }

    #[test]
    fn the_lowest_bit_is_the_sign() {
        let read = |byte: u8| zigzag(&mut &[byte][..]);
        assert_eq!([read(0), read(1), read(2), read(3)], [Some(0), Some(-1), Some(1), Some(-2)]);
    }
}
