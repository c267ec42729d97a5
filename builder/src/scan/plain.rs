//! PLAIN pages of byte arrays → their values. Each value is a length and as many bytes.
//!
//! Nearly all IDs are written so, since a dictionary does not help if each row has another ID. To
//! read the values without an Arrow array is faster.
//!
//! Target: a filled filter in at most 1.9 × decompression (decision 20).

use bytes::Bytes;
use parquet::basic::Encoding;

use super::limits::page_source::{ColumnFormat, PageSource};

/// The PLAIN pages at the end of a piece.
pub(super) struct PlainPages {
    source: PageSource,
    text: bool,
    number: usize,
}

impl PlainPages {
    /// Reads no page yet. With `text`, the values must be UTF-8.
    ///
    /// # Errors
    /// Why the pages cannot be read, as text.
    pub(super) fn new(
        pages: Bytes,
        format: ColumnFormat,
        text: bool,
    ) -> Result<PlainPages, String> {
        Ok(PlainPages { source: PageSource::new(pages, format)?, text, number: 0 })
    }

    /// Calls `take` with each value of the next page. Returns the number of its rows, or `None`
    /// after the last page.
    ///
    /// Cost: the decompression; values are not copied.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(super) fn next(&mut self, take: impl FnMut(&[u8])) -> Result<Option<u64>, String> {
        let Some(page) = self.source.next_data()? else { return Ok(None) };
        self.number += 1;
        let read = match page.encoding {
            Encoding::PLAIN => {
                each_value(&page.page.buffer()[page.values_at..], page.present, self.text, take)
            }
            _ => Err("is not what its header says"),
        };
        read.map_err(|why| format!("plain page {} {why}", self.number))?;
        Ok(Some(u64::from(page.rows)))
    }
}

fn each_value(
    mut values: &[u8],
    present: u32,
    text: bool,
    mut take: impl FnMut(&[u8]),
) -> Result<(), &'static str> {
    // One check is enough for nearly all pages: the bytes of short lengths are ASCII, too.
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
    if values.is_empty() { Ok(()) } else { Err("has bytes behind its last value") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Values = Result<Vec<Vec<u8>>, &'static str>;

    fn values(bytes: &[u8], present: u32) -> Values {
        let mut values = Vec::new();
        each_value(bytes, present, true, |value| values.push(value.to_vec())).map(|()| values)
    }

    #[test]
    fn a_page_cut_anywhere_is_an_error() {
        let page = [&[2, 0, 0, 0][..], b"ab", &[1, 0, 0, 0], b"c"].concat();
        assert_eq!(values(&page, 2), Ok(vec![b"ab".to_vec(), b"c".to_vec()]));
        for cut in 0..page.len() {
            assert!(values(&page[..cut], 2).is_err(), "{cut}");
        }
        assert_eq!(values(&page, 3), Err("ends before its last value"));
        assert_eq!(values(&page, 1), Err("has bytes behind its last value"));
    }

    proptest! {
        #[test]
        fn no_bytes_are_more_than_an_error(
            buf in proptest::collection::vec(prop_oneof![3 => 0..4_u8, 1 => any::<u8>()], 0..80),
            present in prop_oneof![0..40_u32, Just(u32::MAX)],
        ) {
            if let Ok(values) = values(&buf, present) {
                let bytes: usize = values.iter().map(|value| value.len() + 4).sum();
                prop_assert!(bytes == buf.len() && values.len() == present as usize);
            }
        }
    }
}
