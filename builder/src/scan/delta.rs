//! The lists of lengths that pages in a delta encoding of byte arrays begin with, bounded before the
//! parquet crate takes memory for them: a few bytes can claim billions, which would end the process.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::PageReader;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::levels;
use super::thrift::Thrift;

/// The most values of one such page: writers leave off at some ten thousand.
const MAX_VALUES: u64 = 1 << 24;

/// Checks every page of a piece that has such lists.
///
/// Cost: the piece is unpacked once more. Few writers use these encodings.
///
/// # Errors
/// What is wrong with which page, as text.
pub(super) fn check(chunk: &Bytes, column: &ColumnChunkMetaData, rows: u64) -> Result<(), String> {
    let max_level = column.column_descr().max_def_level();
    let rows = usize::try_from(rows).map_err(|_| format!("it claims {rows} rows"))?;
    let reader = SerializedPageReader::new(Arc::new(chunk.clone()), column, rows, None);
    let mut reader = reader.map_err(|e| e.to_string())?;
    let mut number = 0_u64;
    while let Some(page) = reader.get_next_page().map_err(|e| e.to_string())? {
        let lists = match page.encoding() {
            Encoding::DELTA_LENGTH_BYTE_ARRAY => 1,
            Encoding::DELTA_BYTE_ARRAY => 2,
            _ => 0,
        };
        if lists > 0 && page.page_type() != parquet::basic::PageType::DICTIONARY_PAGE {
            let values = u64::from(page.num_values());
            let (_, body) = levels::split(&page, max_level)
                .ok_or_else(|| format!("page {number} ends in its levels"))?;
            check_lists(body, lists, values).map_err(|why| format!("page {number} {why}"))?;
        }
        number += 1;
    }
    Ok(())
}

/// Checks the counts of `lists` lists, one behind the other, against the values of their page.
fn check_lists(body: &[u8], lists: u32, values: u64) -> Result<(), String> {
    let mut thrift = Thrift { bytes: body, at: 0 };
    // A page of nulls alone may leave its values out altogether.
    for _ in 0..if body.is_empty() { 0 } else { lists } {
        let claims = pass_list(&mut thrift, values.min(MAX_VALUES));
        let claims = claims.ok_or("has a list of lengths that cannot be read")?;
        if claims > values.min(MAX_VALUES) {
            return Err(format!("claims {claims} lengths for its {values} values"));
        }
    }
    Ok(())
}

/// Passes over one list in DELTA_BINARY_PACKED; how many it claims to have, at once if that is too many.
///
/// The numbers are unsigned LEB128, as Thrift's are. Where the list ends is what the parquet crate
/// thinks: mini blocks behind the last value have no bytes.
fn pass_list(thrift: &mut Thrift<'_>, most: u64) -> Option<u64> {
    let (block, parts, claims) = (thrift.varint()?, thrift.varint()?, thrift.varint()?);
    thrift.varint()?;
    if claims > most {
        return Some(claims);
    }
    if block == 0 || parts == 0 || !block.is_multiple_of(128) || !block.is_multiple_of(parts) {
        return None;
    }
    let in_part = block / parts;
    let mut left = claims.saturating_sub(1);
    while left > 0 {
        thrift.varint()?;
        let mut bytes = 0_u64;
        for _ in 0..parts {
            let width = thrift.byte()?;
            if left > 0 {
                bytes = bytes.checked_add(u64::from(width).checked_mul(in_part)? / 8)?;
            }
            left = left.saturating_sub(in_part);
        }
        thrift.forward(bytes)?;
    }
    Some(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_believed_only_as_far_as_its_page_has_values() {
        // Blocks of 128 in 4 parts; 200 values from 7 on, each one more: widths of 0 and no bytes.
        let list = |values: &[u8]| [&[0x80, 1, 4][..], values, &[14], &[2, 0, 0, 0, 0]].concat();
        let two = [list(&[0xc8, 1]), vec![2, 0, 0, 0, 0]].concat();
        assert_eq!(check_lists(&two, 1, 200), Ok(()));
        assert_eq!(check_lists(&[two.clone(), two.clone()].concat(), 2, 200), Ok(()));
        assert!(check_lists(&two, 1, 199).unwrap_err().contains("claims 200 lengths for its 199"));
        let huge = list(&[0xff, 0xff, 0xff, 0xff, 0x7f]);
        assert!(check_lists(&huge, 1, u64::MAX).unwrap_err().contains("claims 34359738367"));
        let behind = [two, huge].concat();
        assert!(check_lists(&behind, 2, 200).unwrap_err().contains("claims 34359738367"));
        for cut in 1..14 {
            assert!(check_lists(&behind[..cut], 1, 200).is_err(), "{cut}");
        }
    }
}
