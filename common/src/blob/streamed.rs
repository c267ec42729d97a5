//! A blob that no process has in memory as a whole: where its bytes lie, the chaining values of its
//! subtrees, and its digest from these. [`encode`](super::encode) gives the same bytes.

use super::{Header, Origin, check_all_but_bits, check_ones, encode_header};
use crate::day::Day;
use crate::digest::{ChainingValue, Digest, DigestTree};
use crate::error::Error;
use crate::filter::{self, Layout, Shape};
use crate::id_form::IdForm;
use crate::key::{BlobKey, FilterName};

/// The digest of a blob is a tree, computed from the chaining values of subtrees of this many
/// bytes; the last may have fewer.
pub const SUBTREE_BYTES: usize = DigestTree::SUBTREE_BYTES;

/// The sizes of a blob: its header, its body and its digest follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobSizes {
    /// With the padding up to the body.
    pub header_bytes: u64,
    /// Those of the filter's bits.
    pub body_bytes: u64,
}

impl BlobSizes {
    /// Those of a blob of this filter and shape, whatever its other numbers are.
    ///
    /// ```
    /// use bloomsday_common::blob::BlobSizes;
    /// use bloomsday_common::filter::{Layout, Shape};
    ///
    /// let shape = Shape::for_ids(Layout::Blocked, 1_000, 0.03)?;
    /// let sizes = BlobSizes::of(&"rt".parse()?, "2026-11-19".parse()?, shape);
    /// assert_eq!((sizes.header_bytes, sizes.body_bytes), (4096, shape.body_bytes()));
    /// assert_eq!(sizes.subtrees(), 1);
    /// # Ok::<(), bloomsday_common::error::Error>(())
    /// ```
    pub fn of(filter: &FilterName, day: Day, shape: Shape) -> BlobSizes {
        let (filter, origin, fpp_target) = (filter.clone(), Origin::Built, 0.0);
        let (ids, fpp_hits, fpp_lookups, ones) = (0, 0, 0, 0);
        let id_form = IdForm::Bytes;
        let header = Header {
            filter,
            day,
            shape,
            id_form,
            origin,
            ids,
            fpp_target,
            fpp_hits,
            fpp_lookups,
            ones,
        };
        BlobSizes {
            header_bytes: encode_header(&header).len() as u64,
            body_bytes: shape.body_bytes(),
        }
    }

    /// How many bytes the digest covers: all but the last 32.
    pub fn content(&self) -> u64 {
        self.header_bytes + self.body_bytes
    }

    /// How many subtrees the digest has.
    pub fn subtrees(&self) -> u64 {
        self.content().div_ceil(SUBTREE_BYTES as u64)
    }
}

/// The chaining value of the subtree that begins at `offset`, a multiple of [`SUBTREE_BYTES`], in
/// the digest of `content` bytes in total.
///
/// Cost: one pass of BLAKE3.
pub fn subtree_chaining_value(content: u64, offset: u64, subtree: &[u8]) -> ChainingValue {
    let place = |n| usize::try_from(n).expect("a blob has fewer bytes than there are addresses");
    DigestTree::chaining_value(place(content), place(offset), subtree)
}

/// A blob whose body is somewhere else: its key, and the bytes around the body.
#[derive(Clone, Debug)]
pub struct StreamedBlob {
    key: BlobKey,
    header: Vec<u8>,
    body: u64,
}

/// Computes the digest of a blob from the chaining values of its subtrees, and with it its key.
///
/// `first` is the beginning of the body, which is in the first subtree, with the header: its
/// chaining value is computed here, and `values[0]` means nothing.
///
/// # Panics
/// When there is not one chaining value for each subtree, or `first` does not fill the first one.
pub fn seal(header: &Header, first: &[u8], values: &[ChainingValue]) -> StreamedBlob {
    let sizes = BlobSizes::of(&header.filter, header.day, header.shape);
    let header_bytes = encode_header(header);
    let first_subtree = [&header_bytes, first].concat();
    let content = usize::try_from(sizes.content()).expect("the header has been sized already");
    assert_eq!(first_subtree.len(), content.min(SUBTREE_BYTES), "the first subtree");
    assert_eq!(values.len() as u64, sizes.subtrees(), "a value for each subtree");
    let mut tree = DigestTree::new(content);
    for (i, value) in values.iter().enumerate() {
        tree.set(i * SUBTREE_BYTES, *value);
    }
    tree.set(0, DigestTree::chaining_value(content, 0, &first_subtree));
    let key = BlobKey { filter: header.filter.clone(), day: header.day, digest: tree.finish() };
    StreamedBlob { key, header: header_bytes, body: sizes.body_bytes }
}

impl StreamedBlob {
    /// The blob's key.
    pub fn key(&self) -> &BlobKey {
        &self.key
    }

    /// The bytes before the body.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The bytes after the body.
    pub fn trailer(&self) -> &[u8] {
        self.key.digest.as_bytes()
    }

    /// The number of all its bytes.
    pub fn len(&self) -> u64 {
        self.header.len() as u64 + self.body + Digest::BYTES as u64
    }

    /// Always `false`: a blob has a header.
    pub fn is_empty(&self) -> bool {
        false
    }
}

/// What was computed from the bytes of a blob while they passed, without keeping them.
pub(crate) struct Passed<'a> {
    /// Its first bytes, with all of its header.
    pub(crate) first: &'a [u8],
    /// Its last bytes.
    pub(crate) last: &'a [u8],
    pub(crate) len: u64,
    pub(crate) digest: Digest,
    /// How many bits are set in all bytes.
    pub(crate) ones: u64,
}

/// Checks a `blocked` blob as [`open`](super::open) does, except for the kernel of this machine.
///
/// # Errors
/// As [`open`](super::open).
pub(crate) fn check(passed: &Passed<'_>, key: &BlobKey) -> Result<Header, Error> {
    let Passed { first, last, len, digest, ones } = *passed;
    let (header, body) = check_all_but_bits(first, len, last, digest, key)?;
    if header.shape.layout() != Layout::Blocked {
        let why = format!("it is of the layout {}", header.shape.layout());
        return Err(Error::Malformed { key: key.to_string(), why });
    }
    let trailer = last.last_chunk::<{ Digest::BYTES }>().expect("its digest is checked");
    let around = [first.get(..body.start).unwrap_or_default(), trailer];
    let ones = ones.saturating_sub(around.into_iter().map(filter::count_ones).sum());
    check_ones(&header, ones, key)?;
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::encode;
    use crate::filter::FilterMut;
    use crate::hash::{IdHash, Xxh3};

    #[test]
    fn a_blob_in_parts_has_the_key_and_the_bytes_of_a_blob_in_one_piece() {
        // One subtree, and several with a short last one.
        for n in [10u64, 2_000_000, 5_000_000] {
            let shape = Shape::for_ids(Layout::Blocked, n, 0.03).unwrap();
            let mut filter = FilterMut::new(shape).unwrap();
            (0..1000).for_each(|i: u64| filter.insert(Xxh3::of(&i.to_le_bytes())));
            let filter = filter.freeze();
            let header = Header {
                filter: "rt".parse().unwrap(),
                day: "2026-11-19".parse().unwrap(),
                shape,
                id_form: IdForm::Bytes,
                origin: Origin::Built,
                ids: n,
                fpp_target: 0.03,
                fpp_hits: 1,
                fpp_lookups: 2,
                ones: filter.count_ones(),
            };
            let whole = encode(&header, &filter);
            let bytes = whole.parts().concat();
            let sizes = BlobSizes::of(&header.filter, header.day, shape);
            let content = &bytes[..sizes.content() as usize];
            let values: Vec<_> = content
                .chunks(SUBTREE_BYTES)
                .enumerate()
                .map(|(i, subtree)| {
                    subtree_chaining_value(sizes.content(), (i * SUBTREE_BYTES) as u64, subtree)
                })
                .collect();
            let first = &content[sizes.header_bytes as usize..content.len().min(SUBTREE_BYTES)];
            let streamed = seal(&header, first, &values);
            assert_eq!(streamed.key(), whole.key());
            assert_eq!(streamed.len(), whole.len());
            let again = [streamed.header(), filter.body(), streamed.trailer()].concat();
            assert!(again == bytes);
        }
    }
}
