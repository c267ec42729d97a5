//! Security boundary: [`Header`], the claims of a page, parsed once. The parquet crate never gets
//! the bytes of a header, so it cannot interpret them differently.

use parquet::basic::Encoding;

use super::parquet_thrift::{self, data_page, data_page_v2, dictionary_page, page};
use super::thrift::{Event, Name, Thrift};

/// The most bytes that one page may unpack to.
pub(in crate::scan) const MAX_PAGE_BYTES: u64 = 1 << 30;

/// A page's header. All its numbers are claims of the file; none is negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scan) struct Header {
    pub(in crate::scan) uncompressed: u32,
    pub(in crate::scan) compressed: u32,
    pub(in crate::scan) crc: Option<u32>,
    pub(in crate::scan) page: PageKind,
}

/// The kind of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scan) enum PageKind {
    Index,
    Dictionary { values: u32, encoding: Encoding },
    Data { values: u32, encoding: Encoding, levels: Levels },
}

/// The place of a data page's levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scan) enum Levels {
    /// Compressed together with the values, in an encoding of their own: data page version 1.
    Packed { encoding: Encoding },
    /// Before the values and never compressed: data page version 2.
    InFront(LevelsInFront),
}

/// What the header of a data page of version 2 says of its levels: their bytes, and what they mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scan) struct LevelsInFront {
    pub(in crate::scan) repetition: u32,
    pub(in crate::scan) definition: u32,
    pub(in crate::scan) nulls: u32,
    pub(in crate::scan) rows: u32,
    /// Whether the values are compressed.
    pub(in crate::scan) is_compressed: bool,
}

impl Header {
    /// Parses the header at the start of `bytes`. Returns it with its length.
    ///
    /// # Errors
    /// What is wrong with it, as text.
    pub(in crate::scan) fn read(bytes: &[u8]) -> Result<(Header, usize), String> {
        let (claims, length) = Claims::read(bytes).ok_or(UNREADABLE)?;
        let page_kind = claims.page_kind()?;
        let Claims { page, .. } = claims;
        let uncompressed = count("bytes when it is unpacked", page[page::UNCOMPRESSED_PAGE_SIZE])?;
        if u64::from(uncompressed) > MAX_PAGE_BYTES {
            return Err(format!(
                "claims to unpack to {uncompressed} bytes, and at most {MAX_PAGE_BYTES} are allowed"
            ));
        }
        let compressed = count("bytes", page[page::COMPRESSED_PAGE_SIZE])?;
        let crc = page[page::CRC].map(|crc| crc as i32 as u32);
        Ok((Header { uncompressed, compressed, crc, page: page_kind }, length))
    }
}

const UNREADABLE: &str = "has a header that cannot be read";

/// The numbers of a header, by their fields.
#[derive(Default)]
struct Claims {
    page: [Option<i64>; 5],
    /// The structure in it that says more, and that one's numbers.
    of: Option<Name>,
    inner: [Option<i64>; 8],
}

impl Claims {
    /// Returns them with the length of the header.
    fn read(bytes: &[u8]) -> Option<(Claims, usize)> {
        let mut thrift = Thrift { bytes, at: 0 };
        let mut claims = Claims::default();
        thrift.read(&parquet_thrift::PAGE, &mut |event| {
            match event {
                Event::Number(Name::Page, field, number) => {
                    *claims.page.get_mut(usize::try_from(field).ok()?)? = Some(number);
                }
                // A second struct is refused. The reader has refused repeated fields.
                Event::Begin(name @ (Name::DataPage | Name::DictionaryPage | Name::DataPageV2)) => {
                    claims.of.replace(name).is_none().then_some(())?;
                }
                Event::Number(
                    Name::DataPage | Name::DictionaryPage | Name::DataPageV2,
                    field,
                    number,
                ) => *claims.inner.get_mut(usize::try_from(field).ok()?)? = Some(number),
                _ => {}
            }
            Some(())
        })?;
        Some((claims, thrift.at))
    }

    fn page_kind(&self) -> Result<PageKind, String> {
        let inner = &self.inner;
        let level_bytes = |field: usize| count("bytes of levels", inner[field]);
        Ok(match (self.page[page::TYPE], self.of) {
            (Some(0), Some(Name::DataPage)) => PageKind::Data {
                values: count("values", inner[data_page::NUM_VALUES])?,
                encoding: encoding(inner[data_page::ENCODING])?,
                levels: Levels::Packed {
                    encoding: encoding(inner[data_page::DEFINITION_LEVEL_ENCODING])?,
                },
            },
            (Some(1), None) => PageKind::Index,
            (Some(2), Some(Name::DictionaryPage)) => PageKind::Dictionary {
                values: count("values", inner[dictionary_page::NUM_VALUES])?,
                encoding: encoding(inner[dictionary_page::ENCODING])?,
            },
            (Some(3), Some(Name::DataPageV2)) => PageKind::Data {
                values: count("values", inner[data_page_v2::NUM_VALUES])?,
                encoding: encoding(inner[data_page_v2::ENCODING])?,
                levels: Levels::InFront(LevelsInFront {
                    nulls: count("nulls", inner[data_page_v2::NUM_NULLS])?,
                    rows: count("rows", inner[data_page_v2::NUM_ROWS])?,
                    definition: level_bytes(data_page_v2::DEFINITION_LEVELS_BYTE_LENGTH)?,
                    repetition: level_bytes(data_page_v2::REPETITION_LEVELS_BYTE_LENGTH)?,
                    // Old writers do not have this field.
                    is_compressed: inner[data_page_v2::IS_COMPRESSED] != Some(0),
                }),
            },
            _ => return Err(UNREADABLE.to_owned()),
        })
    }
}

/// A number of `what`, which is not negative.
fn count(what: &str, number: Option<i64>) -> Result<u32, String> {
    let number = number.ok_or(UNREADABLE)?;
    u32::try_from(number).map_err(|_| format!("claims {number} {what}"))
}

/// An encoding by its number in the format.
fn encoding(number: Option<i64>) -> Result<Encoding, String> {
    let known = number.and_then(known_encoding);
    known.ok_or_else(|| format!("has the encoding {}, unknown here", number.unwrap_or(-1)))
}

fn known_encoding(number: i64) -> Option<Encoding> {
    Some(match number {
        0 => Encoding::PLAIN,
        2 => Encoding::PLAIN_DICTIONARY,
        3 => Encoding::RLE,
        #[expect(deprecated, reason = "old files still name it where there are no levels")]
        4 => Encoding::BIT_PACKED,
        5 => Encoding::DELTA_BINARY_PACKED,
        6 => Encoding::DELTA_LENGTH_BYTE_ARRAY,
        7 => Encoding::DELTA_BYTE_ARRAY,
        8 => Encoding::RLE_DICTIONARY,
        9 => Encoding::BYTE_STREAM_SPLIT,
        _ => return None,
    })
}

#[cfg(test)]
pub(in crate::scan) mod tests {
    use super::*;

    /// A v1 data page header of 4 values with an encoding, and its levels' encodings.
    pub(in crate::scan) fn header(uncompressed: u8, compressed: u8, encoding: u8) -> Vec<u8> {
        let outer = [0x15, 0, 0x15, uncompressed, 0x15, compressed, 0x2c];
        let inner = [0x15, 8, 0x15, encoding * 2, 0x15, 6, 0x15, 6, 0];
        [&outer[..], &inner, &[0]].concat()
    }

    const V2: [u8; 25] = [
        0x15, 6, 0x15, 20, 0x15, 10, 0x5c, 0x15, 8, 0x15, 2, 0x15, 8, 0x15, 0, 0x15, 4, 0x15, 0,
        0x12, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn headers_of_each_kind_are_read() {
        let data = PageKind::Data {
            values: 4,
            encoding: Encoding::DELTA_BYTE_ARRAY,
            levels: Levels::Packed { encoding: Encoding::RLE },
        };
        let read = Header { uncompressed: 10, compressed: 5, crc: None, page: data };
        assert_eq!(Header::read(&header(20, 10, 7)), Ok((read, 17)));
        let (read, length) = Header::read(&V2).unwrap();
        let levels = Levels::InFront(LevelsInFront {
            repetition: 0,
            definition: 2,
            nulls: 1,
            rows: 4,
            is_compressed: false,
        });
        assert_eq!(length, 22);
        assert_eq!(read.page, PageKind::Data { values: 4, encoding: Encoding::PLAIN, levels });
        let dictionary = [0x15, 4, 0x15, 20, 0x15, 10, 0x4c, 0x15, 8, 0x15, 4, 0x11, 0, 0];
        let (read, _) = Header::read(&dictionary).unwrap();
        assert_eq!(
            read.page,
            PageKind::Dictionary { values: 4, encoding: Encoding::PLAIN_DICTIONARY }
        );
        let index = [0x15, 2, 0x15, 6, 0x15, 6, 0x15, 1, 0x2c, 0, 0];
        let (read, _) = Header::read(&index).unwrap();
        assert_eq!((read.page, read.crc), (PageKind::Index, Some(u32::MAX)));
    }

    #[test]
    fn numbers_of_statistics_are_none_of_the_page() {
        // Field 9 of its statistics, how many NaNs there are: 3.
        let sound = header(20, 10, 0);
        let with_statistics = [&sound[..15], &[0x1c, 0x96, 6, 0], &sound[15..]].concat();
        let (read, length) = Header::read(&with_statistics).unwrap();
        assert_eq!((read, length), (Header::read(&sound).unwrap().0, sound.len() + 4));
    }

    #[test]
    fn what_is_no_header_is_an_error_and_never_more() {
        let full = header(20, 10, 0);
        for cut in 0..full.len() {
            assert!(Header::read(&full[..cut]).is_err(), "{cut}");
        }
        for wrong in
            [vec![0xff; 64], vec![0x1c; 64], vec![0x19, 0xf1, 0xff, 0xff, 0xff, 0xff, 0x0f]]
        {
            assert!(Header::read(&wrong).is_err(), "{wrong:x?}");
        }
    }

    #[test]
    fn a_header_that_two_readers_could_read_otherwise_is_none() {
        let sound = header(20, 10, 0);
        let with = |at: usize, bytes: &[u8]| {
            let mut forged = sound.clone();
            forged.splice(at..at + 1, bytes.iter().copied());
            forged
        };
        let behind = |field: &[u8]| [&sound[..16], field, &[0]].concat();
        let v2 = &V2[7..21];
        for (forged, why) in [
            (with(7, &[0x16]), "its count as an i64"),
            (with(1, &[4]), "a data page's struct in a dictionary page"),
            (with(1, &[8]), "no kind of page"),
            (with(3, &[0x80, 0x80, 0x80, 0x80, 0x20]), "a size beyond 32 bits"),
            (behind(&[[0x3c].as_slice(), v2, &[0]].concat()), "a second struct"),
            (behind(&[0x2c, 0x15, 8, 0x15, 0, 0]), "a struct of another kind"),
            (behind(&[0x05, 4, 40]), "its size again"),
            (sound[..6].iter().chain(&[0]).copied().collect(), "no struct"),
        ] {
            let error = Header::read(&forged).expect_err(why);
            assert!(error.contains("header that cannot be read"), "{why}: {error}");
        }
        for (forged, why) in [
            (with(8, &[7]), "claims -4 values"),
            (with(10, &[40]), "encoding 20"),
            (with(3, &[19]), "claims -10 bytes when"),
            (with(3, &[0x80, 0x80, 0x80, 0x80, 0x09]), "at most 1073741824 are allowed"),
        ] {
            let error = Header::read(&forged).expect_err(why);
            assert!(error.contains(why), "{why}: {error}");
        }
    }
}
