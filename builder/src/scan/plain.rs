//! PLAIN pages of byte arrays → their values: a length, then as many bytes, and so on.
//!
//! That is how nearly all IDs are written: no dictionary helps where each row has another. Made into an
//! array first they take a fifth longer.

use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::serialized_reader::SerializedPageReader;

use super::levels;
use super::pages::Pages;

/// The last pages of a piece, all of them PLAIN.
pub(super) struct PlainPages {
    reader: SerializedPageReader<Bytes>,
    max_level: i16,
    text: bool,
    number: usize,
}

impl PlainPages {
    /// Reads no page yet. `text` is what must be UTF-8.
    ///
    /// # Errors
    /// Why the pages cannot be read, as text.
    pub(super) fn new(
        chunk: &Bytes,
        column: &ColumnChunkMetaData,
        pages: &Pages,
        text: bool,
    ) -> Result<PlainPages, String> {
        let rows = pages.values - pages.rows_before_plain;
        let rows = usize::try_from(rows).map_err(|_| format!("they claim {rows} rows"))?;
        let alone = column
            .clone()
            .into_builder()
            .set_dictionary_page_offset(None)
            .set_data_page_offset(pages.plain_from as i64)
            .set_total_compressed_size((chunk.len() - pages.plain_from) as i64);
        let chunk = Arc::new(chunk.clone());
        let reader =
            alone.build().and_then(|alone| SerializedPageReader::new(chunk, &alone, rows, None));
        Ok(PlainPages {
            reader: reader.map_err(|e| e.to_string())?,
            max_level: column.column_descr().max_def_level(),
            text,
            number: 0,
        })
    }

    /// Calls `take` with each value of the next page. Gives how many rows the page has, or `None` after the
    /// last.
    ///
    /// Cost: unpacking it; its values are not copied.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(super) fn next(&mut self, take: impl FnMut(&[u8])) -> Result<Option<u64>, String> {
        let Some(page) = self.reader.get_next_page().map_err(|e| e.to_string())? else {
            return Ok(None);
        };
        self.number += 1;
        let read = each_value(&page, self.max_level, self.text, take);
        read.map_err(|why| format!("plain page {} {why}", self.number))?;
        Ok(Some(u64::from(page.num_values())))
    }
}

fn each_value(
    page: &Page,
    max_level: i16,
    text: bool,
    mut take: impl FnMut(&[u8]),
) -> Result<(), &'static str> {
    if page.encoding() != Encoding::PLAIN {
        return Err("is not what its header says");
    }
    let rows = page.num_values();
    let (levels, mut values) = levels::split(page, max_level).ok_or("ends in its levels")?;
    let present = match max_level {
        0 => rows,
        _ => levels::count_present(levels, max_level, rows).ok_or("has levels that cannot be")?,
    };
    if let Page::DataPageV2 { num_nulls, .. } = page
        && present > rows.saturating_sub(*num_nulls)
    {
        return Err("has more values than it says");
    }
    // At once for nearly all pages: short lengths are ASCII, too.
    let checked = !text || values.is_ascii();
    for _ in 0..present {
        let (length, rest) = values.split_first_chunk().ok_or("ends before its last value")?;
        let length = u32::from_le_bytes(*length) as usize;
        let (value, rest) = rest.split_at_checked(length).ok_or("ends within a value")?;
        if !checked && std::str::from_utf8(value).is_err() {
            return Err("has text that is not UTF-8");
        }
        take(value);
        values = rest;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Values = Result<Vec<Vec<u8>>, &'static str>;

    fn page(buf: Vec<u8>, rows: u32, encoding: Encoding) -> Page {
        Page::DataPage {
            buf: buf.into(),
            num_values: rows,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        }
    }

    fn values_of(page: &Page, max_level: i16) -> Values {
        let mut values = Vec::new();
        each_value(page, max_level, true, |value| values.push(value.to_vec())).map(|()| values)
    }

    fn values(buf: Vec<u8>, rows: u32, max_level: i16) -> Values {
        values_of(&page(buf, rows, Encoding::PLAIN), max_level)
    }

    #[test]
    fn a_page_cut_anywhere_is_an_error() {
        // Two levels of one, one of zero; then two values.
        let levels = [4, 0, 0, 0, 2 << 1, 1, 1 << 1, 0];
        let page = [&levels[..], &[2, 0, 0, 0], b"ab", &[1, 0, 0, 0], b"c"].concat();
        let whole = vec![b"ab".to_vec(), b"c".to_vec()];
        assert_eq!(values(page.clone(), 3, 1), Ok(whole.clone()));
        for cut in 0..page.len() {
            assert!(values(page[..cut].to_vec(), 3, 1).is_err(), "{cut}");
        }
        assert_eq!(values(page[8..].to_vec(), 2, 0), Ok(whole));
        assert_eq!(values(page, 4, 1), Err("has levels that cannot be"));
    }

    #[test]
    fn a_page_that_is_not_what_its_header_says_is_an_error() {
        let value = [&[1, 0, 0, 0], &b"a"[..]].concat();
        let other = page(value.clone(), 1, Encoding::DELTA_LENGTH_BYTE_ARRAY);
        assert_eq!(values_of(&other, 0), Err("is not what its header says"));
        // One row of two has a value.
        let nulls = |num_nulls| Page::DataPageV2 {
            buf: [&[1 << 1, 1, 1 << 1, 0], &value[..]].concat().into(),
            num_values: 2,
            encoding: Encoding::PLAIN,
            num_nulls,
            num_rows: 2,
            def_levels_byte_len: 4,
            rep_levels_byte_len: 0,
            is_compressed: false,
            statistics: None,
        };
        assert_eq!(values_of(&nulls(1), 1), Ok(vec![b"a".to_vec()]));
        assert_eq!(values_of(&nulls(2), 1), Err("has more values than it says"));
        assert_eq!(values_of(&nulls(u32::MAX), 1), Err("has more values than it says"));
    }

    proptest! {
        #[test]
        fn no_bytes_are_more_than_an_error(
            buf in proptest::collection::vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..80),
            rows in prop_oneof![0..40_u32, Just(u32::MAX)],
            max_level in 0..4_i16,
        ) {
            if let Ok(values) = values(buf.clone(), rows, max_level) {
                let bytes: usize = values.iter().map(|value| value.len() + 4).sum();
                prop_assert!(bytes <= buf.len() && values.len() <= rows as usize);
            }
        }
    }
}
