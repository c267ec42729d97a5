//! Security boundary: reads Thrift's compact protocol in exactly one way. A field has the type of
//! its structure's table, or the structure is refused. The nesting is limited, and no read passes
//! the end.
//!
//! Other readers differ in how they treat a field of another type, or a repeated field. Forged
//! files exploit such differences, so everything ambiguous is refused.

use super::varint::{varint64, zigzag};

/// The type of a field.
#[derive(Clone, Copy)]
pub(in crate::scan) enum FieldType {
    Bool,
    Byte,
    I16,
    I32,
    I64,
    Binary,
    Struct(&'static Struct),
    List(&'static Struct),
    /// A list of numbers.
    Numbers(u8),
    /// A list of byte strings.
    Strings,
    /// A struct whose content is not used.
    Opaque,
}

/// The table of a structure: its known fields, sorted by number.
pub(in crate::scan) struct Struct {
    /// Identifies the structure in events.
    pub(in crate::scan) name: Name,
    pub(in crate::scan) fields: &'static [Field],
    /// A union has exactly one field.
    pub(in crate::scan) is_union: bool,
}

/// A field: its number, whether it is required, and its type.
pub(in crate::scan) type Field = (i16, bool, FieldType);

/// The structures whose values are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scan) enum Name {
    File,
    SchemaElement,
    RowGroup,
    ColumnChunk,
    ColumnMetaData,
    Page,
    DataPage,
    DictionaryPage,
    DataPageV2,
    Other,
}

/// What the reader reports.
pub(in crate::scan) enum Event {
    /// A struct begins.
    Begin(Name),
    /// A number or a bool.
    Number(Name, i16, i64),
    /// The end of any other field: its length in bytes, and its start.
    Bytes(Name, i16, usize, usize),
    /// A struct has ended.
    End(Name),
}

pub(in crate::scan) const I32: u8 = 5;
pub(in crate::scan) const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// The deepest nesting of unknown structs.
const MAX_DEPTH: u8 = 16;

/// The most structs in one list: a forged file needs only one byte for each.
const MAX_STRUCTS: u64 = 1 << 20;

/// A reader. Its methods return `None` at the end, or if the bytes are invalid or ambiguous.
pub(in crate::scan) struct Thrift<'a> {
    pub(in crate::scan) bytes: &'a [u8],
    pub(in crate::scan) at: usize,
}

impl Thrift<'_> {
    /// Reads a struct and calls `visit` for every known element in it.
    pub(in crate::scan) fn read<F: FnMut(Event) -> Option<()>>(
        &mut self,
        of: &'static Struct,
        visit: &mut F,
    ) -> Option<()> {
        visit(Event::Begin(of.name))?;
        let (mut number, mut found, mut count) = (0, 0_u64, 0_u32);
        while let Some((next, wire)) = self.field(number)? {
            number = next;
            count += 1;
            let Some(at) = of.fields.iter().position(|known| known.0 == number) else {
                self.skip(wire, MAX_DEPTH)?;
                continue;
            };
            if found & 1 << at != 0 {
                return None;
            }
            found |= 1 << at;
            self.value(of.name, number, of.fields[at].2, wire, visit)?;
        }
        let lacks = |(at, field): (usize, &Field)| field.1 && found & 1 << at == 0;
        if of.fields.iter().enumerate().any(lacks) || (of.is_union && count != 1) {
            return None;
        }
        visit(Event::End(of.name))
    }

    /// The number and type of the next field; `Some(None)` after the last.
    fn field(&mut self, before: i16) -> Option<Option<(i16, u8)>> {
        let byte = self.byte()?;
        if byte == 0 {
            return Some(None);
        }
        let number = match byte >> 4 {
            0 => i16::try_from(self.zigzag()?).ok()?,
            step => before.checked_add(i16::from(step))?,
        };
        Some(Some((number, byte & 15)))
    }

    fn value<F: FnMut(Event) -> Option<()>>(
        &mut self,
        name: Name,
        field: i16,
        kind: FieldType,
        wire: u8,
        visit: &mut F,
    ) -> Option<()> {
        let begin = self.at;
        let number = match (kind, wire) {
            (FieldType::Bool, 1) => 1,
            (FieldType::Bool, 2) => 0,
            (FieldType::Byte, 3) => i64::from(self.byte()? as i8),
            (FieldType::I16, 4) => i64::from(i16::try_from(self.zigzag()?).ok()?),
            (FieldType::I32, I32) => i64::from(i32::try_from(self.zigzag()?).ok()?),
            (FieldType::I64, I64) => self.zigzag()?,
            (FieldType::Binary, BINARY) | (FieldType::Opaque, STRUCT) => {
                self.skip(wire, MAX_DEPTH)?;
                return visit(Event::Bytes(name, field, self.at - begin, begin));
            }
            (FieldType::Struct(of), STRUCT) => return self.read(of, visit),
            (FieldType::List(of), LIST) => {
                for _ in 0..self.list(STRUCT)? {
                    self.read(of, visit)?;
                }
                return visit(Event::Bytes(name, field, self.at - begin, begin));
            }
            (FieldType::Numbers(of), LIST) => {
                for _ in 0..self.list(of)? {
                    let number = self.zigzag()?;
                    if of == I32 {
                        i32::try_from(number).ok()?;
                    }
                }
                return Some(());
            }
            (FieldType::Strings, LIST) => {
                return (0..self.list(BINARY)?).try_for_each(|_| self.skip(BINARY, MAX_DEPTH));
            }
            _ => return None,
        };
        visit(Event::Number(name, field, number))
    }

    /// The number of elements of a list, which must have this type.
    fn list(&mut self, of: u8) -> Option<u64> {
        let byte = self.byte()?;
        let size = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
        // Some writers write an empty list without a type.
        let is_right = byte & 15 == of || byte == 0;
        // Each element has at least one byte.
        let fits = size <= (self.bytes.len() - self.at) as u64;
        let fits = fits && (of != STRUCT || size <= MAX_STRUCTS);
        (is_right && fits).then_some(size)
    }

    fn skip(&mut self, wire: u8, depth: u8) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match wire {
            // The value of a bool is in its field's type.
            1 | 2 => Some(()),
            3 => self.byte().map(|_| ()),
            4..=6 => self.varint().map(|_| ()),
            7 => self.forward(8),
            BINARY => {
                let length = self.varint()?;
                self.forward(length)
            }
            LIST | 10 => {
                let byte = self.byte()?;
                let size = if byte >> 4 == 15 { self.varint()? } else { u64::from(byte >> 4) };
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
            STRUCT => {
                let mut number = 0;
                while let Some((next, wire)) = self.field(number)? {
                    number = next;
                    self.skip(wire, depth)?;
                }
                Some(())
            }
            13 => self.forward(16),
            _ => None,
        }
    }

    /// In a list a bool has a byte of its own. So each element has at least one byte, which bounds
    /// the loop.
    fn skip_element(&mut self, wire: u8, depth: u8) -> Option<()> {
        if matches!(wire, 1 | 2) { self.forward(1) } else { self.skip(wire, depth) }
    }

    pub(in crate::scan) fn byte(&mut self) -> Option<u8> {
        let byte = self.bytes.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    pub(in crate::scan) fn forward(&mut self, by: u64) -> Option<()> {
        let to = self.at.checked_add(usize::try_from(by).ok()?)?;
        (to <= self.bytes.len()).then(|| self.at = to)
    }

    pub(in crate::scan) fn varint(&mut self) -> Option<u64> {
        self.number(varint64)
    }

    pub(in crate::scan) fn zigzag(&mut self) -> Option<i64> {
        self.number(zigzag)
    }

    fn number<T>(&mut self, read: fn(&mut &[u8]) -> Option<T>) -> Option<T> {
        let mut rest = self.bytes.get(self.at..)?;
        let value = read(&mut rest)?;
        self.at = self.bytes.len() - rest.len();
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static INNER: Struct =
        Struct { name: Name::DataPage, is_union: false, fields: &[(1, true, FieldType::I32)] };
    static OUTER: Struct = Struct {
        name: Name::Page,
        is_union: false,
        fields: &[
            (1, true, FieldType::I32),
            (2, false, FieldType::I64),
            (3, false, FieldType::Struct(&INNER)),
            (4, false, FieldType::List(&INNER)),
            (5, false, FieldType::Bool),
            (6, false, FieldType::Binary),
            (7, false, FieldType::Numbers(I32)),
        ],
    };

    fn numbers(bytes: &[u8]) -> Option<Vec<i64>> {
        let mut all = Vec::new();
        let mut thrift = Thrift { bytes, at: 0 };
        let mut visit = |event| {
            if let Event::Number(_, _, number) = event {
                all.push(number);
            }
            Some(())
        };
        thrift.read(&OUTER, &mut visit)?;
        (thrift.at == bytes.len()).then_some(all)
    }

    #[test]
    fn a_struct_is_read_as_its_table_says() {
        assert_eq!(numbers(&[0x15, 6, 0]), Some(vec![3]));
        assert_eq!(numbers(&[0x15, 6, 0x16, 1, 0]), Some(vec![3, -1]));
        assert_eq!(numbers(&[0x15, 6, 0x2c, 0x15, 8, 0, 0x21, 0]), Some(vec![3, 4, 1]));
        assert_eq!(numbers(&[0x15, 6, 0x39, 0x2c, 0x15, 8, 0, 0x15, 2, 0, 0]), Some(vec![3, 4, 1]));
        assert_eq!(numbers(&[0x15, 6, 0x39, 0x00, 0]), Some(vec![3]), "an empty list of no type");
        assert_eq!(numbers(&[0x15, 6, 0x68, 2, 1, 2, 0]), None, "longer than its struct");
        assert_eq!(numbers(&[0x15, 6, 0x58, 2, 1, 2, 0]), Some(vec![3]));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_not_read() {
        for (bytes, why) in [
            (&[0x16, 6, 0][..], "an i64 where an i32 belongs"),
            (&[0x15, 6, 0x15, 2, 0], "an i32 where an i64 belongs"),
            (&[0x15, 6, 0x05, 2, 6, 0], "the same field again"),
            (&[0x15, 0x80, 0x80, 0x80, 0x80, 0x20, 0], "a number beyond an i32"),
            (&[0x15, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0], "66 bits"),
            (&[0x15, 6, 0x3a, 0x1c, 0x15, 8, 0, 0], "a set for a list"),
            (&[0x15, 6, 0x39, 0x15, 8, 0], "a list of numbers for one of structs"),
            (&[0x15, 6, 0x2c, 0, 0], "a struct without what it must have"),
            (&[0x15, 6, 0x2b, 0, 0], "a map for a struct"),
            (&[0x16, 6, 0], "nothing of what it must have"),
            (&[0], "nothing at all"),
            (&[0x15, 6, 0x10], "a field of no type"),
            (&[0x05, 0x82, 0x80, 0x08, 6, 0], "a field's number beyond 16 bits"),
            (&[0x15, 6, 0x69, 0xf5, 0xff, 0xff, 0xff, 0x7f, 0], "more elements than bytes"),
        ] {
            assert_eq!(numbers(bytes), None, "{why}");
        }
    }

    #[test]
    fn fields_of_every_type_that_nobody_knows_are_passed_over() {
        let kinds: [&[u8]; 10] = [
            &[0x11],
            &[0x12],
            &[0x13, 9],
            &[0x16, 0x81, 0x01],
            &[0x17, 1, 2, 3, 4, 5, 6, 7, 8],
            &[0x18, 3, b'a', b'b', b'c'],
            &[0x19, 0x21, 1, 2],
            &[0x1b, 2, 0x53, 2, 7, 4, 8],
            &[0x1c, 0x15, 2, 0],
            &[0x1d, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16],
        ];
        let mut bytes = vec![0x15, 6, 0x05, 0xc8, 0x01, 2];
        kinds.iter().for_each(|kind| bytes.extend_from_slice(kind));
        bytes.push(0);
        assert_eq!(numbers(&bytes), Some(vec![3]));
        for cut in 0..bytes.len() {
            assert_eq!(numbers(&bytes[..cut]), None, "{cut}");
        }
        let deep = [vec![0x15, 6, 0x7c], vec![0x1c; 64], vec![0; 64]].concat();
        assert_eq!(numbers(&deep), None, "deeper than anybody nests");
    }
}
