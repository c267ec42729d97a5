//! A value of Arrow → the bytes of its ID.

use std::ops::AddAssign;

use arrow_array::ArrayAccessor;
use bloomsday_common::hash::is_valid_len;

use super::kind::ValueKind;

/// The counts of some rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowCounts {
    /// All of the rows.
    pub rows: u64,
    /// Rows without an ID, because it or a struct around it is null.
    pub nulls: u64,
    /// Rows whose ID is empty or too long; no filter contains such an ID.
    pub invalid: u64,
}

impl AddAssign for RowCounts {
    fn add_assign(&mut self, more: RowCounts) {
        self.rows += more.rows;
        self.nulls += more.nulls;
        self.invalid += more.invalid;
    }
}

/// Passes on valid IDs and counts valid and invalid ones.
pub(crate) struct IdValidator<'a, F> {
    take: &'a mut F,
    taken: u64,
    invalid: u64,
}

impl<F: FnMut(&[u8])> IdValidator<'_, F> {
    pub(crate) fn new(take: &mut F) -> IdValidator<'_, F> {
        IdValidator { take, taken: 0, invalid: 0 }
    }

    /// The counts of `rows` rows.
    pub(crate) fn counts(&self, rows: u64) -> RowCounts {
        let IdValidator { taken, invalid, .. } = *self;
        RowCounts { rows, nulls: rows - taken - invalid, invalid }
    }

    #[inline(always)]
    pub(crate) fn pass(&mut self, id: &[u8]) {
        if is_valid_len(id) {
            self.taken += 1;
            (self.take)(id);
        } else {
            self.invalid += 1;
        }
    }
}

#[inline(always)]
pub(super) fn each<A: ArrayAccessor>(
    array: A,
    rows: impl Iterator<Item = usize>,
    pass: impl FnMut(A::Item),
) {
    rows.map(|row| array.value(row)).for_each(pass);
}

#[inline(always)]
pub(super) fn try_each<A: ArrayAccessor>(
    array: A,
    mut rows: impl Iterator<Item = usize>,
    mut pass: impl FnMut(A::Item) -> Result<(), String>,
) -> Result<(), String> {
    rows.try_for_each(|row| pass(array.value(row)))
}

/// Passes on a number that is stored in 32 or 64 bits. The arguments are its signed and unsigned
/// value.
#[inline(always)]
pub(super) fn number<F: FnMut(&[u8])>(
    signed: i64,
    unsigned: u64,
    kind: ValueKind,
    validator: &mut IdValidator<'_, F>,
) -> Result<(), String> {
    let (is_negative, size, fits) = match kind {
        ValueKind::Integer { bits, is_signed: false } => {
            (false, unsigned, bits == 64 || unsigned >> bits == 0)
        }
        ValueKind::Integer { bits, .. } => {
            // All bits beyond its own repeat its sign.
            let beyond = signed >> (bits - 1);
            (signed < 0, signed.unsigned_abs(), beyond == 0 || beyond == -1)
        }
        ValueKind::Decimal { digits } => {
            let size = signed.unsigned_abs();
            let fits = 10_u64.checked_pow(digits).is_none_or(|limit| size < limit);
            (signed < 0, size, fits)
        }
        _ => unreachable!("Column::find lets no other kind be a number"),
    };
    if !fits {
        return Err(format!("it has the number {signed}, which its type {kind} does not have"));
    }
    decimal(is_negative, size, |text| validator.pass(text));
    Ok(())
}

/// Passes on a whole number in big-endian two's complement.
pub(super) fn unscaled<F: FnMut(&[u8])>(
    bytes: &[u8],
    digits: u32,
    validator: &mut IdValidator<'_, F>,
) -> Result<(), String> {
    let beyond =
        || format!("it has a number that its type {} does not have", ValueKind::Decimal { digits });
    let is_negative = bytes.first().ok_or_else(beyond)? & 0x80 != 0;
    let sign = if is_negative { 0xff } else { 0 };
    // Bytes in front of the last sixteen can only repeat the sign.
    let (front, back) = bytes.split_at(bytes.len().saturating_sub(16));
    let mut all = [sign; 16];
    all[16 - back.len()..].copy_from_slice(back);
    let value = i128::from_be_bytes(all);
    let limit = 10_u128.checked_pow(digits).ok_or_else(beyond)?;
    let is_all = front.iter().all(|byte| *byte == sign) && (value < 0) == is_negative;
    if !is_all || value.unsigned_abs() >= limit {
        return Err(beyond());
    }
    match u64::try_from(value.unsigned_abs()) {
        Ok(size) => decimal(is_negative, size, |text| validator.pass(text)),
        Err(_) => validator.pass(value.to_string().as_bytes()),
    }
    Ok(())
}

/// Passes on a number as decimal ASCII: a sign, and at most the 20 digits of the greatest u64.
#[inline]
pub(super) fn decimal(negative: bool, mut size: u64, pass: impl FnOnce(&[u8])) {
    let mut text = [0_u8; 21];
    let mut at = text.len();
    loop {
        at -= 1;
        text[at] = b'0' + (size % 10) as u8;
        size /= 10;
        if size == 0 {
            break;
        }
    }
    if negative {
        at -= 1;
        text[at] = b'-';
    }
    pass(&text[at..]);
}

/// Writes 16 bytes as `a0a1a2a3-a4a5-46a7-88a9-000000000000`.
#[inline]
pub(super) fn uuid_text(bytes: &[u8]) -> [u8; 36] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (i, byte) in bytes.iter().enumerate() {
        at += usize::from(matches!(i, 4 | 6 | 8 | 10));
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    text
}
