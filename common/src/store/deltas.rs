//! Deltas of a [`Store`]: uploaded, listed, and applied while they are fetched.

use std::io;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use jiff::Timestamp;

use super::Store;
use super::blobs::{MAX_CONCURRENT_TRANSFERS, TRANSFER_BYTES};
use super::fetch::{check_size, range_of};
use crate::blob::RawBlob;
use crate::delta::{Applier, Base};
use crate::digest::Digest;
use crate::error::Error;
use crate::key::{self, DeltaKey, FilterName};
use crate::memory::Buffer;

/// The bytes of an object, in order.
type Ranges = BoxStream<'static, Result<Bytes, Error>>;

/// From which blob to which a delta leads.
pub struct DeltaRequest<B> {
    /// The blob that is here.
    pub base: B,
    /// Its digest.
    pub from: Digest,
    /// The digest of the blob that is wanted.
    pub to: Digest,
}

impl<B> std::fmt::Debug for DeltaRequest<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeltaRequest({} to {})", self.from.short(), self.to.short())
    }
}

/// What a store says of a delta.
#[derive(Clone, Debug)]
pub struct DeltaInfo {
    /// Its key.
    pub key: DeltaKey,
    /// When it was uploaded, by the store's clock.
    pub uploaded: Timestamp,
    /// Its size.
    pub bytes: u64,
}

impl Store {
    /// Uploads a delta, over whatever is there.
    ///
    /// # Errors
    /// The store's.
    pub async fn put_delta(&self, delta: &DeltaKey, bytes: &[u8]) -> Result<(), Error> {
        self.put_parts(&delta.to_string(), &[bytes], &|_| {}).await
    }

    /// The deltas of a filter. Cost: a listing.
    ///
    /// # Errors
    /// The store's.
    pub async fn deltas(&self, filter: &FilterName) -> Result<Vec<DeltaInfo>, Error> {
        let objects = self.objects.list(&key::deltas(filter)).await?;
        let deltas = objects.iter().filter_map(|object| {
            let key = DeltaKey::from_name(filter, &object.name)?;
            Some(DeltaInfo { key, uploaded: object.uploaded, bytes: object.bytes })
        });
        let mut deltas: Vec<DeltaInfo> = deltas.collect();
        deltas.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(deltas)
    }

    /// All bytes of a delta, unchecked: at most `limit`.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::TooManyBytes`], or the store's.
    pub async fn read_delta(&self, delta: &DeltaKey, limit: u64) -> Result<Vec<u8>, Error> {
        let (size, mut arriving) = self.delta_ranges(delta, limit).await?;
        let mut bytes = Vec::with_capacity(size as usize);
        while let Some(range) = arriving.next().await {
            bytes.extend_from_slice(&range?);
        }
        Ok(bytes)
    }

    /// Begins to fetch a delta of at most `limit` bytes.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none, [`Error::TooManyBytes`] past `limit`, or the
    /// store's.
    pub async fn open_delta(&self, delta: &DeltaKey, limit: u64) -> Result<ArrivingDelta, Error> {
        let (bytes, ranges) = self.delta_ranges(delta, limit).await?;
        Ok(ArrivingDelta { key: delta.clone(), bytes, ranges })
    }

    /// The size of a delta, and its bytes in order.
    async fn delta_ranges(&self, delta: &DeltaKey, limit: u64) -> Result<(u64, Ranges), Error> {
        let key = delta.to_string();
        let path = self.readable_path(&key)?;
        let failed = |error| self.objects.error("read", &key, error);
        // The first range says how many there are: one request for most deltas of small filters.
        let options = range_of(0..TRANSFER_BYTES as u64, None);
        let first = self.objects.backend().get_opts(&path, options);
        let first = first.await.map_err(failed)?;
        let (size, tag) = (first.meta.size, first.meta.e_tag.clone());
        check_size(&key, size, limit)?;
        let first = first.bytes().await.map_err(failed)?;
        let rest = (TRANSFER_BYTES as u64..size).step_by(TRANSFER_BYTES);
        let objects = self.objects.clone();
        let rest = futures::stream::iter(rest).map(move |start| {
            let options = range_of(start..size.min(start + TRANSFER_BYTES as u64), tag.clone());
            let (objects, path, key) = (objects.clone(), path.clone(), key.clone());
            async move {
                let range = objects.backend().get_opts(&path, options).await;
                let bytes = match range {
                    Ok(range) => range.bytes().await,
                    Err(error) => Err(error),
                };
                bytes.map_err(|error| objects.error("read", &key, error))
            }
        });
        let rest = rest.buffered(MAX_CONCURRENT_TRANSFERS);
        Ok((size, futures::stream::iter([Ok(first)]).chain(rest).boxed()))
    }
}

/// A delta in the store, of which the first bytes have arrived.
pub struct ArrivingDelta {
    key: DeltaKey,
    bytes: u64,
    ranges: Ranges,
}

impl ArrivingDelta {
    /// Applies the delta while it arrives, on up to four threads. Returns the other blob, unchecked
    /// but for its digest, and how many bytes were fetched.
    ///
    /// `memory` returns the memory for the other blob. At most 48 MiB of the delta are in memory at
    /// once.
    ///
    /// # Errors
    /// [`Error::Delta`] for one that is damaged or of other blobs, or the store's.
    pub async fn apply<B: Base + 'static>(
        mut self,
        way: DeltaRequest<B>,
        memory: impl FnOnce(usize) -> io::Result<Buffer> + Send + 'static,
    ) -> Result<(RawBlob, u64), Error> {
        let wrong = |why| Error::Delta { key: self.key.to_string(), why };
        let DeltaRequest { base, from, to } = way;
        let begin = move || Applier::new(base, from, to, memory);
        let mut applier = on_a_thread(begin).await.map_err(wrong)?;
        while let Some(range) = self.ranges.next().await {
            let range = range?;
            let push = move || applier.push(&range).map(|()| applier);
            applier = on_a_thread(push).await.map_err(wrong)?;
        }
        let raw = on_a_thread(move || applier.finish()).await.map_err(wrong)?;
        Ok((raw, self.bytes))
    }
}

impl std::fmt::Debug for ArrivingDelta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ArrivingDelta({}, {} bytes)", self.key, self.bytes)
    }
}

/// Runs on a thread that may compute for long. A panic goes on here.
async fn on_a_thread<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(task).await.expect("applying a delta does not panic")
}
