//! Segments of live filters in a [`Store`]: written once, listed by day, read whole; and the heads
//! of their logs.

use bytes::Bytes;
use futures::StreamExt;
use object_store::{GetOptions, ObjectStoreExt};

use super::local::check_folder_exists;
use super::{Store, records};
use crate::day::Day;
use crate::error::Error;
use crate::key::{self, FilterName, SegmentKey};
use crate::live::head::Head;
use crate::pointer::MAX_RECORD_BYTES;

/// The longest segment that is read: twice what is written.
pub const MAX_SEGMENT_BYTES: u64 = 16 << 20;
/// The most logs of a filter whose heads are read.
pub const MAX_HEADS: usize = 1000;
/// How often the write of a segment is tried at once.
const WRITE_TRIES: u32 = 3;

/// What is at a segment's key after a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutSegment {
    /// The segment that was to be written.
    Written,
    /// Something else, which was there before and stays.
    Other(Bytes),
}

/// What a read of a head found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadNow {
    /// It is still the same.
    Same,
    /// There is none.
    Absent,
    /// This one, with its tag in the store.
    Found(Head, Option<String>),
    /// What is there is no head, for this reason.
    Unreadable(String),
}

impl Store {
    /// Writes a segment unless something is at its key.
    ///
    /// Cost: one write; after an error one read, because the write may have succeeded all the same.
    ///
    /// # Errors
    /// The store's, after a few tries; [`Error::NoStore`] for a local store whose folder is not
    /// there now.
    pub async fn put_segment(&self, key: &SegmentKey, bytes: Bytes) -> Result<PutSegment, Error> {
        let text = key.to_string();
        check_folder_exists(self.folder.as_deref()).await?;
        let mut last = None;
        for _ in 0..WRITE_TRIES {
            match self.objects.create(&text, bytes.clone()).await {
                Ok(()) => return Ok(PutSegment::Written),
                Err(error @ (Error::ReadOnly { .. } | Error::Forbidden { .. })) => {
                    return Err(error);
                }
                Err(error) => last = Some(error),
            }
            match self.segment(key).await {
                Ok(there) if there == bytes => return Ok(PutSegment::Written),
                Ok(there) => return Ok(PutSegment::Other(there)),
                Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Err(last.expect("at least one try was made"))
    }

    /// The bytes of a segment, as they are: nothing is checked.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::TooManyBytes`] past [`MAX_SEGMENT_BYTES`]; the store's.
    pub async fn segment(&self, key: &SegmentKey) -> Result<Bytes, Error> {
        let text = key.to_string();
        let failed = |e| self.objects.error("read", &text, e);
        let got = self.objects.backend().get(&self.objects.path(&text)).await.map_err(failed)?;
        let bytes = got.meta.size;
        if bytes > MAX_SEGMENT_BYTES {
            return Err(Error::TooManyBytes { key: text, bytes, limit: MAX_SEGMENT_BYTES });
        }
        got.bytes().await.map_err(|e| self.objects.error("read", &text, e))
    }

    /// The segments of a day with their sizes, in the order of their keys.
    ///
    /// # Errors
    /// The store's.
    pub async fn segments(
        &self,
        filter: &FilterName,
        day: Day,
    ) -> Result<Vec<(SegmentKey, u64)>, Error> {
        let listed = self.objects.list(&key::segments(filter, day)).await?;
        let keys = listed.into_iter().filter_map(|object| {
            Some((SegmentKey::from_name(filter, day, &object.name)?, object.bytes))
        });
        let mut keys: Vec<_> = keys.collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// The segments of one log and day with their sizes, in the order in which they were written;
    /// with `after` only those after that one.
    ///
    /// Cost: of a store that lists in order, what is after that one in the listing; else the whole
    /// day.
    ///
    /// # Errors
    /// The store's.
    pub async fn segments_of(
        &self,
        filter: &FilterName,
        day: Day,
        node: u64,
        after: Option<&SegmentKey>,
    ) -> Result<Vec<(SegmentKey, u64)>, Error> {
        let folder = key::segments(filter, day);
        let first = SegmentKey { filter: filter.clone(), day, node, epoch: 0, first_seq: 0 };
        let after = after.filter(|after| after.day == day).unwrap_or(&first);
        let path = self.objects.listed(&folder)?;
        let from = self.objects.path(&after.to_string());
        let mut listed = self.objects.backend().list_with_offset(Some(&path), &from);
        let mut keys = Vec::new();
        while let Some(object) = listed.next().await {
            let object = match object.map_err(|e| self.objects.error("list", &folder, e)) {
                Err(Error::NotFound { .. }) => break,
                other => other?,
            };
            let name = object.location.filename().unwrap_or_default();
            let Some(key) = SegmentKey::from_name(filter, day, name) else { continue };
            if key.node == node {
                keys.push((key, object.size));
            } else if key.node > node && self.folder.is_none() && !self.is_hdfs() {
                // Only listings of local folders and of HDFS are in no order.
                break;
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }

    /// The days that have segments, oldest first; of a store that keeps empty folders, such as
    /// HDFS, also those whose segments were deleted.
    ///
    /// # Errors
    /// The store's.
    pub async fn segment_days(&self, filter: &FilterName) -> Result<Vec<Day>, Error> {
        let names = self.objects.folders_in(&key::live(filter)).await?;
        let mut days: Vec<Day> = names.iter().filter_map(|name| name.parse().ok()).collect();
        days.sort_unstable();
        Ok(days)
    }

    /// Writes the head of a log, over the one before.
    ///
    /// # Errors
    /// The store's; [`Error::NoStore`] for a local store whose folder is not there now.
    pub async fn put_head(&self, filter: &FilterName, node: u64, head: &Head) -> Result<(), Error> {
        check_folder_exists(self.folder.as_deref()).await?;
        self.objects.put(&key::head(filter, node), head.to_bytes().into()).await
    }

    /// The head of a log, if it has one.
    ///
    /// # Errors
    /// The store's. A head that cannot be read counts as absent: what it says can be found out
    /// again.
    pub async fn head_of(&self, filter: &FilterName, node: u64) -> Result<Option<Head>, Error> {
        let key = key::head(filter, node);
        Ok(records::read(&*self.record_store, &key, Head::parse).await?.state.found().cloned())
    }

    /// The head of a log, unless it is still the one that had the tag `known`.
    ///
    /// Cost: one request; a head that is the same is not transferred.
    ///
    /// # Errors
    /// The store's.
    pub async fn head_now(
        &self,
        filter: &FilterName,
        node: u64,
        known: Option<&str>,
    ) -> Result<HeadNow, Error> {
        let key = key::head(filter, node);
        let options =
            GetOptions { if_none_match: known.map(str::to_owned), ..GetOptions::default() };
        let got = self.objects.backend().get_opts(&self.objects.path(&key), options).await;
        let got = match got {
            Err(object_store::Error::NotModified { .. }) => return Ok(HeadNow::Same),
            got => got.map_err(|e| self.objects.error("read", &key, e)),
        };
        let got = match got {
            Err(Error::NotFound { .. }) => return Ok(HeadNow::Absent),
            got => got?,
        };
        let (bytes, limit) = (got.meta.size, MAX_RECORD_BYTES);
        if bytes > limit {
            return Err(Error::TooManyBytes { key, bytes, limit });
        }
        let tag = got.meta.e_tag.clone();
        if tag.is_some() && tag.as_deref() == known {
            // A store without conditional reads.
            return Ok(HeadNow::Same);
        }
        let bytes = got.bytes().await.map_err(|e| self.objects.error("read", &key, e))?;
        Ok(match Head::parse(&bytes) {
            Ok(head) => HeadNow::Found(head, tag),
            Err(why) => HeadNow::Unreadable(format!("{key} cannot be read: {why}")),
        })
    }

    /// The numbers of the logs whose heads were written on the day `since` or later, or of all: the
    /// [`MAX_HEADS`] that were written last. A server that runs writes its head every few seconds.
    ///
    /// Cost: a listing.
    ///
    /// # Errors
    /// The store's.
    pub async fn head_nodes(
        &self,
        filter: &FilterName,
        since: Option<Day>,
    ) -> Result<Vec<u64>, Error> {
        let mut heads = self.objects.list(&key::heads(filter)).await?;
        heads.retain(|head| {
            head.name.len() == 16 && since.is_none_or(|since| Day::of(head.uploaded) >= since)
        });
        heads
            .sort_unstable_by(|a, b| b.uploaded.cmp(&a.uploaded).then_with(|| a.name.cmp(&b.name)));
        let names = heads.iter().take(MAX_HEADS).map(|head| &head.name);
        Ok(names.filter_map(|name| u64::from_str_radix(name, 16).ok()).collect())
    }

    /// The heads of a filter's logs, by node: the [`MAX_HEADS`] that were written last.
    ///
    /// Cost: a listing, and a read for each, one after the other.
    ///
    /// # Errors
    /// The store's.
    pub async fn heads(&self, filter: &FilterName) -> Result<Vec<(u64, Head)>, Error> {
        let mut heads = Vec::new();
        for node in self.head_nodes(filter, None).await? {
            heads.extend(self.head_of(filter, node).await?.map(|head| (node, head)));
        }
        Ok(heads)
    }
}
