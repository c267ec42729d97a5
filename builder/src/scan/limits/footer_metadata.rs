//! Security boundary: [`Footer`], a file's metadata, parsed once.
//!
//! The parquet crate gets the list of schema elements only, because it knows how types become
//! columns. The row groups are read here, for one column, so the other columns take no memory.

use std::ops::Range;

use super::parquet_thrift::{
    self, column_chunk, column_meta_data, file, row_group, schema_element,
};
use super::thrift::{Event, Name, Thrift};

/// The deepest nesting of a schema. Real ones have about ten; each level takes stack in the parquet
/// crate.
const MAX_NESTING: usize = 100;

/// The memory of a parsed schema element, without its name.
const BYTES_PER_ELEMENT: u64 = 1 << 10;

/// The memory of each part of a leaf's path, without its name.
const BYTES_PER_PATH_PART: u64 = 48;

/// A footer that was checked from its start to its end.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::scan) struct Footer<'a> {
    bytes: &'a [u8],
    /// The range of the list of schema elements.
    schema: Range<usize>,
    /// The number of rows that the file claims.
    pub(in crate::scan) rows: i64,
    /// The number of row groups.
    pub(in crate::scan) groups: usize,
    /// The most memory that the parsed schema takes.
    pub(in crate::scan) schema_bytes: u64,
}

/// What a row group says of one column. All numbers are claims of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::scan) struct ColumnClaims {
    pub(in crate::scan) rows: i64,
    pub(in crate::scan) columns: usize,
    /// The physical type and the codec, by their numbers.
    pub(in crate::scan) physical: i64,
    pub(in crate::scan) codec: i64,
    pub(in crate::scan) compressed: i64,
    pub(in crate::scan) data_at: i64,
    pub(in crate::scan) dictionary_at: Option<i64>,
    pub(in crate::scan) is_elsewhere: bool,
    pub(in crate::scan) is_encrypted: bool,
    pub(in crate::scan) has_metadata: bool,
}

impl Footer<'_> {
    /// Checks a footer.
    ///
    /// Cost: one pass over its bytes; no memory.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(in crate::scan) fn read(bytes: &[u8]) -> Result<Footer<'_>, String> {
        let mut footer = Footer { bytes, schema: 0..0, rows: 0, groups: 0, schema_bytes: 0 };
        let mut nesting = Nesting::default();
        let mut element = (0, 0);
        let read = Thrift { bytes, at: 0 }.read(&parquet_thrift::FILE, &mut |event| {
            match event {
                Event::Begin(Name::SchemaElement) => element = (0, 0),
                Event::Number(Name::SchemaElement, schema_element::NUM_CHILDREN, children) => {
                    element.0 = children;
                }
                Event::Bytes(Name::SchemaElement, schema_element::NAME, bytes, _) => {
                    element.1 = bytes as u64;
                }
                Event::End(Name::SchemaElement) => nesting.add(element.0, element.1)?,
                Event::Number(Name::File, file::NUM_ROWS, rows) => footer.rows = rows,
                Event::Bytes(Name::File, file::SCHEMA, bytes, at) => footer.schema = at..at + bytes,
                Event::Begin(Name::RowGroup) => footer.groups += 1,
                _ => {}
            }
            Some(())
        });
        read.ok_or("its footer cannot be read")?;
        if nesting.deepest > MAX_NESTING {
            let deepest = nesting.deepest;
            return Err(format!(
                "its schema nests {deepest} deep, and at most {MAX_NESTING} is read"
            ));
        }
        if nesting.open.iter().any(|group| group.0 > 0) || nesting.is_beyond {
            return Err("its schema has more or fewer elements than its groups say".to_owned());
        }
        footer.schema_bytes = nesting.bytes;
        Ok(footer)
    }

    /// Returns a footer with this schema only.
    pub(in crate::scan) fn schema_alone(&self) -> Vec<u8> {
        // Version 1 in field 1; the list in field 2; no rows in field 3; no row groups in field 4.
        let schema = &self.bytes[self.schema.clone()];
        [&[0x15, 2, 0x19][..], schema, &[0x16, 0, 0x19, 0x0c, 0]].concat()
    }

    /// Calls `take` for each row group with the metadata of its leaf column number `leaf`.
    ///
    /// Cost: one pass over the footer's bytes.
    pub(in crate::scan) fn for_each_group<E>(
        &self,
        leaf: usize,
        mut take: impl FnMut(ColumnClaims) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut group = ColumnClaims::default();
        let mut failed = None;
        let _ = Thrift { bytes: self.bytes, at: 0 }.read(&parquet_thrift::FILE, &mut |event| {
            let is_it = group.columns == leaf + 1;
            match event {
                Event::Begin(Name::RowGroup) => group = ColumnClaims::default(),
                Event::Begin(Name::ColumnChunk) => group.columns += 1,
                Event::Number(Name::RowGroup, row_group::NUM_ROWS, rows) => group.rows = rows,
                Event::Begin(Name::ColumnMetaData) if is_it => group.has_metadata = true,
                Event::Bytes(Name::ColumnChunk, column_chunk::FILE_PATH, ..) if is_it => {
                    group.is_elsewhere = true;
                }
                Event::Bytes(
                    Name::ColumnChunk,
                    column_chunk::CRYPTO_METADATA | column_chunk::ENCRYPTED_COLUMN_METADATA,
                    ..,
                ) if is_it => group.is_encrypted = true,
                Event::Number(Name::ColumnMetaData, field, number) if is_it => match field {
                    column_meta_data::TYPE => group.physical = number,
                    column_meta_data::CODEC => group.codec = number,
                    column_meta_data::TOTAL_COMPRESSED_SIZE => group.compressed = number,
                    column_meta_data::DATA_PAGE_OFFSET => group.data_at = number,
                    column_meta_data::DICTIONARY_PAGE_OFFSET => {
                        group.dictionary_at = Some(number);
                    }
                    _ => {}
                },
                Event::End(Name::RowGroup) => {
                    if let Err(error) = take(std::mem::take(&mut group)) {
                        failed = Some(error);
                        return None;
                    }
                }
                _ => {}
            }
            Some(())
        });
        failed.map_or(Ok(()), Err)
    }
}

/// Computes the nesting and the memory of a schema from its list of elements.
#[derive(Default)]
struct Nesting {
    /// For each open group the number of missing children, and the length of its path.
    open: Vec<(i64, u64)>,
    deepest: usize,
    bytes: u64,
    elements: u64,
    is_beyond: bool,
}

impl Nesting {
    fn add(&mut self, children: i64, name: u64) -> Option<()> {
        // The schema is refused at the end.
        if self.deepest > MAX_NESTING {
            return Some(());
        }
        self.elements += 1;
        while self.open.pop_if(|group| group.0 == 0).is_some() {}
        match self.open.last_mut() {
            Some(group) => group.0 -= 1,
            None => self.is_beyond |= self.elements > 1,
        }
        let path = self.open.last().map_or(0, |group| group.1) + name;
        self.bytes += BYTES_PER_ELEMENT + 4 * name;
        match children {
            1.. => self.open.push((children, path)),
            0 => self.bytes += 2 * (path + BYTES_PER_PATH_PART * self.open.len() as u64),
            _ => return None,
        }
        self.deepest = self.deepest.max(self.open.len());
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A footer with a schema and no row group: each element with this many children.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0x15, 2, 0x19, 0xfc];
        let mut n = children.len();
        while n > 127 {
            bytes.push(n as u8 | 0x80);
            n >>= 7;
        }
        bytes.push(n as u8);
        for n in children {
            bytes.extend_from_slice(&[0x48, 1, b'a', 0x15, n * 2, 0]);
        }
        bytes.extend_from_slice(&[0x16, 0, 0x19, 0x0c, 0]);
        bytes
    }

    #[test]
    fn schemas_nest_as_deep_as_anybody_writes_and_no_deeper() {
        let chain = |n: usize| footer(&[vec![1; n], vec![0]].concat());
        assert_eq!(Footer::read(&chain(MAX_NESTING)).map(|footer| footer.groups), Ok(0));
        for too_deep in [MAX_NESTING + 1, 100_000, 1_000_000] {
            assert!(Footer::read(&chain(too_deep)).unwrap_err().contains("deep"));
        }
        // Wide is not deep: sixty groups of one field each, next to one another.
        let wide = [vec![60], [1, 0].repeat(60)].concat();
        assert!(Footer::read(&footer(&wide)).is_ok());
        // More elements than anybody has, and a list that says so without having them.
        assert!(Footer::read(&chain(2_000_000)).is_err());
        assert!(Footer::read(&[0x15, 2, 0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07]).is_err());
        for other in [&[2, 0][..], &[1, 0, 0], &[0, 0]] {
            assert!(
                Footer::read(&footer(other)).unwrap_err().contains("more or fewer"),
                "{other:?}"
            );
        }
    }

    #[test]
    fn a_schema_of_long_paths_is_known_to_be_large() {
        let deep = footer(&[vec![1; 90], vec![60], vec![0; 60]].concat());
        let wide = footer(&[vec![60], vec![0; 60]].concat());
        let bytes = |footer: &[u8]| Footer::read(footer).unwrap().schema_bytes;
        assert!(bytes(&deep) > 3 * bytes(&wide), "{} and {}", bytes(&deep), bytes(&wide));
    }
}
