//! [`TestBlob`]: blobs made of counted IDs, without Parquet, for tests of what comes after a build.

use std::ops::Range;

use bloomsday_common::blob::{self, EncodedBlob, Header, Origin};
use bloomsday_common::day::Day;
use bloomsday_common::filter::{Filter, FilterMut, Layout, Shape};
use bloomsday_common::hash::{IdHash, Murmur3, Spark, Xxh3};
use bloomsday_common::memory::Buffer;
use bloomsday_common::pointer::Pointer;
use bloomsday_common::store::Store;

/// The `n`th ID: its eight bytes.
#[inline]
pub fn id(n: u64) -> [u8; 8] {
    n.to_le_bytes()
}

/// A filter with the header of its blob.
pub struct TestBlob {
    /// The blob's header.
    pub header: Header,
    /// The filter.
    pub filter: Filter,
}

impl TestBlob {
    /// The filter `rt` of a day, with these IDs and an fpp of 0.03.
    pub fn of(day: Day, layout: Layout, ids: Range<u64>) -> TestBlob {
        let shape = Shape::for_ids(layout, ids.end - ids.start, 0.03).expect("a shape");
        TestBlob::shaped(day, shape, ids)
    }

    /// The filter `rt` of a day, with these IDs, in a shape that may be too small or too large.
    pub fn shaped(day: Day, shape: Shape, ids: Range<u64>) -> TestBlob {
        let n_ids = ids.end - ids.start;
        let mut filter = FilterMut::new(shape).expect("memory");
        for n in ids {
            match shape.layout() {
                Layout::Blocked => filter.insert(Xxh3::of(&id(n))),
                Layout::Guava => filter.insert(Murmur3::of(&id(n))),
                Layout::Spark1 => filter.insert(Spark::<1>::of(&id(n))),
                Layout::Spark2 => filter.insert(Spark::<2>::of(&id(n))),
            }
        }
        let filter = filter.freeze();
        let header = Header {
            filter: "rt".parse().expect("a name"),
            day,
            shape,
            id_form: Default::default(),
            origin: Origin::Built,
            ids: n_ids,
            fpp_target: 0.03,
            fpp_hits: 3,
            fpp_lookups: 100,
            ones: filter.count_ones(),
        };
        TestBlob { header, filter }
    }

    /// As it is published.
    pub fn encoded(&self) -> EncodedBlob<'_> {
        blob::encode(&self.header, &self.filter)
    }

    /// The blob's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        self.encoded().parts().concat()
    }

    /// Uploads the blob, and makes its day's pointer name it.
    pub async fn publish(&self, store: &Store) {
        store.put_blob(&self.encoded(), &|_| {}).await.expect("the blob is uploaded");
        self.point(store, self.header.day).await;
    }

    /// Makes the pointer of `day` name the blob.
    pub async fn point(&self, store: &Store, day: Day) {
        let filter = &self.header.filter;
        let read = store.pointer(filter, day).await.expect("the pointer is read");
        let encoded = self.encoded();
        let pointer = Pointer { bytes: Some(encoded.len()), ..Pointer::to(encoded.key().clone()) };
        store
            .put_pointer(filter, day, &pointer, &read.version)
            .await
            .expect("the pointer is written");
    }
}

/// The bytes in a buffer, as after a fetch.
pub fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::zeroed(bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    buffer
}
