//! Security boundary: [`PageSource`], a piece of a column chunk → its pages, unpacked and checked.
//!
//! The parquet crate gets all pages from here: no header, no compressed byte, and no page whose
//! levels, counts and bytes contradict each other.

use std::sync::Arc;

use bytes::Bytes;
use parquet::arrow::arrow_reader::RowGroups;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageIterator, PageMetadata, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};

use super::decompress::Codec;
use super::levels;
use super::page_header::{Header, Levels, LevelsInFront, PageKind};
use super::values::Values;

/// What the checks need to know of a column.
#[derive(Clone, Copy, Debug)]
pub(in crate::scan) struct ColumnFormat {
    pub(in crate::scan) codec: Compression,
    /// The definition level of a row with a value; 0 if each row has one, and then there are no
    /// levels.
    pub(in crate::scan) max_level: i16,
    pub(in crate::scan) values: Values,
}

/// A data page.
pub(in crate::scan) struct DataPage {
    pub(in crate::scan) page: Page,
    pub(in crate::scan) encoding: Encoding,
    pub(in crate::scan) rows: u32,
    /// The number of rows with a value.
    pub(in crate::scan) present: u32,
    /// The start of the values.
    pub(in crate::scan) values_at: usize,
}

/// Returns the pages of a piece, one after the other.
pub(in crate::scan) struct PageSource {
    bytes: Bytes,
    at: usize,
    format: ColumnFormat,
    codec: Codec,
    /// The number of values of the dictionary, after its page.
    dictionary: Option<u32>,
    data_seen: bool,
    number: u64,
    /// A page that was peeked at.
    next: Option<Page>,
}

impl PageSource {
    /// Reads no page yet.
    ///
    /// # Errors
    /// The codec is not supported, as text.
    pub(in crate::scan) fn new(bytes: Bytes, format: ColumnFormat) -> Result<PageSource, String> {
        Ok(PageSource {
            bytes,
            at: 0,
            format,
            codec: Codec::new(format.codec)?,
            dictionary: None,
            data_seen: false,
            number: 0,
            next: None,
        })
    }

    /// The next data page with a row. The caller must check its values.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(in crate::scan) fn next_data(&mut self) -> Result<Option<DataPage>, String> {
        while let Some((header, body)) = self.next_body()? {
            let PageKind::Data { values, encoding, levels } = header.page else {
                return Err(self.named("is a dictionary page among data pages"));
            };
            let page = self.data_page(&header, values, encoding, levels, &body);
            let page = page.map_err(|why| self.named(why))?;
            if page.rows > 0 {
                return Ok(Some(page));
            }
            // Readers differ in how they treat a page without rows, so it is only checked.
            self.check_values(&page)?;
        }
        Ok(None)
    }

    /// Checks the values of a page.
    ///
    /// # Errors
    /// What is wrong with them, as text.
    fn check_values(&self, page: &DataPage) -> Result<(), String> {
        let body = &page.page.buffer()[page.values_at..];
        let values = &self.format.values;
        let checked = values.check(page.encoding, body, page.present, self.dictionary);
        checked.map_err(|why| self.named(why))
    }

    fn next_checked(&mut self) -> Result<Option<Page>, String> {
        while let Some((header, body)) = self.next_body()? {
            match header.page {
                PageKind::Data { values, encoding, levels } => {
                    let page = self.data_page(&header, values, encoding, levels, &body);
                    let page = page.map_err(|why| self.named(why))?;
                    self.check_values(&page)?;
                    if page.rows > 0 {
                        return Ok(Some(page.page));
                    }
                }
                PageKind::Dictionary { values, encoding } => {
                    let page = self.dictionary_page(&header, values, encoding, &body);
                    return page.map(Some).map_err(|why| self.named(why));
                }
                PageKind::Index => {}
            }
        }
        Ok(None)
    }

    /// The header and the compressed body of the next page that is not an index.
    fn next_body(&mut self) -> Result<Option<(Header, Bytes)>, String> {
        while self.at < self.bytes.len() {
            self.number += 1;
            let read = Header::read(&self.bytes[self.at..]);
            let (header, length) = read.map_err(|why| self.named(why))?;
            let begin = self.at + length;
            let left = self.bytes.len() - begin;
            if header.compressed as usize > left {
                let why = format!("claims {} bytes of the {left} that are left", header.compressed);
                return Err(self.named(why));
            }
            self.at = begin + header.compressed as usize;
            if header.page == PageKind::Index {
                continue;
            }
            let body = self.bytes.slice(begin..self.at);
            if header.crc.is_some_and(|crc| crc != crc32fast::hash(&body)) {
                return Err(self.named("does not have the checksum that its header claims"));
            }
            return Ok(Some((header, body)));
        }
        Ok(None)
    }

    fn named(&self, why: impl std::fmt::Display) -> String {
        // Tools for Parquet count pages from 0.
        format!("page {} {why}", self.number.saturating_sub(1))
    }

    fn dictionary_page(
        &mut self,
        header: &Header,
        values: u32,
        encoding: Encoding,
        body: &Bytes,
    ) -> Result<Page, String> {
        if self.dictionary.is_some() {
            return Err("is a second dictionary".to_owned());
        }
        if self.data_seen {
            return Err("is a dictionary page after a data page".to_owned());
        }
        let buf = self.unpack(header, &[], body, true)?;
        self.format.values.check_dictionary(encoding, &buf, values)?;
        self.dictionary = Some(values);
        Ok(Page::DictionaryPage { buf, num_values: values, encoding, is_sorted: false })
    }

    fn data_page(
        &mut self,
        header: &Header,
        values: u32,
        encoding: Encoding,
        levels: Levels,
        body: &Bytes,
    ) -> Result<DataPage, String> {
        self.data_seen = true;
        match levels {
            Levels::Packed { encoding: levels } => {
                self.data_page_v1(header, (values, encoding), levels, body)
            }
            Levels::InFront(levels) => self.data_page_v2(header, (values, encoding), levels, body),
        }
    }

    /// A page of version 1: its levels are packed with its values.
    fn data_page_v1(
        &mut self,
        header: &Header,
        (values, encoding): (u32, Encoding),
        levels: Encoding,
        body: &Bytes,
    ) -> Result<DataPage, String> {
        let buf = self.unpack(header, &[], body, true)?;
        let (present, values_at) = if self.format.max_level == 0 {
            (values, 0)
        } else if levels != Encoding::RLE {
            // Writers used two different bit orders, which cannot be distinguished.
            return Err(format!("has levels in the deprecated encoding {levels}"));
        } else {
            let (length, rest) = buf.split_first_chunk().ok_or("ends in its levels")?;
            let length = u32::from_le_bytes(*length) as usize;
            let levels = rest.get(..length).ok_or("ends in its levels")?;
            (self.count_present(levels, values)?, 4 + length)
        };
        let page = Page::DataPage {
            buf,
            num_values: values,
            encoding,
            def_level_encoding: Encoding::RLE,
            rep_level_encoding: Encoding::RLE,
            statistics: None,
        };
        Ok(DataPage { page, encoding, rows: values, present, values_at })
    }

    /// A page of version 2: its levels are in front of its values, and never compressed.
    fn data_page_v2(
        &mut self,
        header: &Header,
        (values, encoding): (u32, Encoding),
        levels: LevelsInFront,
        body: &Bytes,
    ) -> Result<DataPage, String> {
        let LevelsInFront { repetition, definition, nulls, rows, is_compressed } = levels;
        if rows != values {
            return Err(format!("claims {rows} rows of {values} values"));
        }
        let front = usize::try_from(repetition as u64 + definition as u64).ok();
        let front = front.and_then(|front| body.get(..front)).ok_or("ends in its levels")?;
        let (repeats, defines) = front.split_at(repetition as usize);
        // A column that is not repeated has no repetition levels, or levels of zero bits.
        if !repeats.is_empty() && levels::count_present(repeats, 0, values).is_none() {
            return Err("has repetition levels, and its column is not repeated".to_owned());
        }
        let present = match self.format.max_level {
            0 if defines.is_empty() => values,
            _ => self.count_present(defines, values)?,
        };
        if values.checked_sub(nulls) != Some(present) {
            return Err(format!(
                "claims {nulls} nulls among its {values} values, and its levels {}",
                values - present
            ));
        }
        let page = Page::DataPageV2 {
            buf: self.unpack(header, front, body, is_compressed)?,
            num_values: values,
            encoding,
            num_nulls: nulls,
            num_rows: rows,
            def_levels_byte_len: definition,
            rep_levels_byte_len: repetition,
            is_compressed,
            statistics: None,
        };
        Ok(DataPage { page, encoding, rows: values, present, values_at: front.len() })
    }

    /// How many of a page's values are there, by its definition levels.
    fn count_present(&self, levels: &[u8], values: u32) -> Result<u32, String> {
        levels::count_present(levels, self.format.max_level, values)
            .ok_or_else(|| "has levels that contradict its number of values".to_owned())
    }

    /// The bytes of a page: `front`, which is never compressed, and its unpacked body.
    fn unpack(
        &mut self,
        header: &Header,
        front: &[u8],
        body: &Bytes,
        is_compressed: bool,
    ) -> Result<Bytes, String> {
        let claimed = header.uncompressed as usize;
        if self.codec.is_none() || !is_compressed {
            return if body.len() == claimed {
                Ok(body.clone())
            } else {
                Err(format!("has {} bytes, and its header claims {claimed}", body.len()))
            };
        }
        let bytes = claimed.checked_sub(front.len());
        let bytes = bytes.ok_or("claims fewer uncompressed bytes than its levels take")?;
        self.codec.unpack(&body[front.len()..], front, bytes).map(Bytes::from)
    }
}

impl Iterator for PageSource {
    type Item = Result<Page, ParquetError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for PageSource {
    fn get_next_page(&mut self) -> Result<Option<Page>, ParquetError> {
        match self.next.take() {
            Some(page) => Ok(Some(page)),
            None => self.next_checked().map_err(ParquetError::General),
        }
    }

    fn peek_next_page(&mut self) -> Result<Option<PageMetadata>, ParquetError> {
        if self.next.is_none() {
            self.next = self.next_checked().map_err(ParquetError::General)?;
        }
        Ok(self.next.as_ref().map(|page| PageMetadata {
            num_rows: page.is_data_page().then(|| page.num_values() as usize),
            num_levels: page.is_data_page().then(|| page.num_values() as usize),
            is_dict: page.is_dictionary_page(),
        }))
    }

    fn skip_next_page(&mut self) -> Result<(), ParquetError> {
        self.get_next_page().map(|_| ())
    }
}

/// The pages of one piece as a file for the parquet crate.
pub(in crate::scan) struct OnePiece {
    pub(in crate::scan) bytes: Bytes,
    pub(in crate::scan) format: ColumnFormat,
    pub(in crate::scan) rows: usize,
    pub(in crate::scan) metadata: Arc<ParquetMetaData>,
}

impl RowGroups for OnePiece {
    fn num_rows(&self) -> usize {
        self.rows
    }

    fn column_chunks(&self, _: usize) -> Result<Box<dyn PageIterator>, ParquetError> {
        let source = PageSource::new(self.bytes.clone(), self.format);
        Ok(Box::new(Once(Some(source.map_err(ParquetError::General)?))))
    }

    fn row_groups(&self) -> Box<dyn Iterator<Item = &RowGroupMetaData> + '_> {
        Box::new(self.metadata.row_groups().iter())
    }

    fn metadata(&self) -> &ParquetMetaData {
        &self.metadata
    }
}

struct Once(Option<PageSource>);

impl Iterator for Once {
    type Item = Result<Box<dyn PageReader>, ParquetError>;
    fn next(&mut self) -> Option<Self::Item> {
        self.0.take().map(|source| Ok(Box::new(source) as Box<dyn PageReader>))
    }
}

impl PageIterator for Once {}
