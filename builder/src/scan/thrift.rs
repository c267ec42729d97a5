//! Thrift's compact protocol, as far as it takes to look before the parquet crate does. Never deeper
//! than a limit, never past the end.

/// A reader of Thrift's compact protocol. `None` is a value that cannot be one, or the end.
pub(super) struct Thrift<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl Thrift<'_> {
    pub(super) const I32: u8 = 5;
    pub(super) const STRUCT: u8 = 12;
    /// Structs within structs; Parquet's own page headers have three.
    pub(super) const DEPTH: u8 = 16;

    /// Structs in one list: a byte of a file is enough for one, and memory for all is taken at once.
    const MAX_STRUCTS: u64 = 1 << 20;

    /// Calls `field` with the number and type of each field of a struct, to read or skip it.
    pub(super) fn fields(
        &mut self,
        field: &mut dyn FnMut(&mut Self, i64, u8) -> Option<()>,
    ) -> Option<()> {
        let mut number = 0_i64;
        loop {
            let byte = self.byte()?;
            if byte == 0 {
                return Some(());
            }
            number = match byte >> 4 {
                0 => self.zigzag()?,
                step => number.checked_add(i64::from(step))?,
            };
            field(self, number, byte & 15)?;
        }
    }

    pub(super) fn skip(&mut self, kind: u8, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // A bool is in its field's type.
            1 | 2 => Some(()),
            3 => self.byte().map(|_| ()),
            4..=6 => self.varint().map(|_| ()),
            7 => self.forward(8),
            8 => {
                let length = self.varint()?;
                self.forward(length)
            }
            9 | 10 => {
                let byte = self.byte()?;
                let size = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
                if byte & 15 == Thrift::STRUCT && size > Thrift::MAX_STRUCTS {
                    return None;
                }
                (0..size).try_for_each(|_| self.skip_element(byte & 15, depth))
            }
            11 => {
                let size = self.varint()?;
                let kinds = if size == 0 { 0 } else { self.byte()? };
                (0..size).try_for_each(|_| {
                    self.skip_element(kinds >> 4, depth)?;
                    self.skip_element(kinds & 15, depth)
                })
            }
            Thrift::STRUCT => self.fields(&mut |thrift, _, kind| thrift.skip(kind, depth)),
            _ => None,
        }
    }

    /// In a list each bool takes a byte, so every element takes one, and a long list ends soon.
    fn skip_element(&mut self, kind: u8, depth: u8) -> Option<()> {
        if matches!(kind, 1 | 2) { self.forward(1) } else { self.skip(kind, depth) }
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    pub(super) fn forward(&mut self, by: u64) -> Option<()> {
        let to = self.at.checked_add(usize::try_from(by).ok()?)?;
        (to <= self.bytes.len()).then(|| self.at = to)
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn zigzag(&mut self) -> Option<i64> {
        self.varint().map(|value| (value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

/// The groups within groups of a schema. Real ones have ten; each takes stack of the parquet crate.
const MAX_NESTING: usize = 100;

/// Walks a whole footer, so that the parquet crate builds no tree that its stack cannot hold and no list
/// that is not there: it would not fail, but end the process.
///
/// Cost: one pass over the footer's bytes.
///
/// # Errors
/// What is wrong with it, as text.
pub(super) fn check_footer(bytes: &[u8]) -> Result<(), String> {
    const SCHEMA: i64 = 2;
    const LIST: u8 = 9;
    /// Of lists and structs in one another; a statistic of a column has ten.
    const DEPTH: u8 = 32;
    let mut deepest = 0;
    let mut thrift = Thrift { bytes, at: 0 };
    let walked = thrift.fields(&mut |thrift, field, kind| match (field, kind) {
        (SCHEMA, LIST) => {
            deepest = deepest.max(nesting(thrift, DEPTH)?);
            Some(())
        }
        _ => thrift.skip(kind, DEPTH),
    });
    walked.ok_or("its footer cannot be read")?;
    if deepest > MAX_NESTING {
        return Err(format!("its schema nests {deepest} deep, and at most {MAX_NESTING} is read"));
    }
    Ok(())
}

/// Reads the list of a schema's elements; how deep they nest, or [`MAX_NESTING`] and one.
fn nesting(thrift: &mut Thrift<'_>, depth: u8) -> Option<usize> {
    const CHILDREN: i64 = 5;
    let byte = thrift.byte()?;
    let size = if byte >> 4 == 15 { thrift.varint()? } else { u64::from(byte >> 4) };
    if byte & 15 != Thrift::STRUCT || size > Thrift::MAX_STRUCTS {
        return None;
    }
    // How many children each open group still lacks.
    let (mut open, mut deepest) = (Vec::new(), 0);
    for _ in 0..size {
        let mut children = 0;
        thrift.fields(&mut |thrift, field, kind| {
            match (field, kind) {
                (CHILDREN, Thrift::I32) => children = thrift.zigzag()?,
                _ => thrift.skip(kind, depth)?,
            }
            Some(())
        })?;
        while open.pop_if(|left| *left == 0).is_some() {}
        if let Some(left) = open.last_mut() {
            *left -= 1;
        }
        if children > 0 {
            open.push(children);
        }
        deepest = deepest.max(open.len().min(MAX_NESTING + 1));
    }
    Some(deepest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer with nothing but a schema: each element with so many children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x29, 0xfc];
        let mut n = children.len();
        while n > 127 {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
        for n in children {
            bytes.extend_from_slice(&[0x55, n * 2, 0]);
        }
        bytes.push(0);
        bytes
    }

    #[test]
    fn schemas_nest_as_deep_as_anybody_writes_and_no_deeper() {
        let chain = |n: usize| footer(&[vec![1; n], vec![0]].concat());
        assert_eq!(check_footer(&chain(MAX_NESTING)), Ok(()));
        for too_deep in [MAX_NESTING + 1, 100_000, 1_000_000] {
            assert!(check_footer(&chain(too_deep)).unwrap_err().contains("deep"));
        }
        // Wide is not deep: sixty groups of one field each, beside one another.
        let wide = [vec![60], [1, 0].repeat(60)].concat();
        assert_eq!(check_footer(&footer(&wide)), Ok(()));
        // More elements than anybody has, and a list that says so without having them.
        assert!(check_footer(&chain(2_000_000)).is_err());
        assert!(check_footer(&[0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]).is_err());
    }
}
