//! [`Loader`]: fetches a blob from the cache or the store, in full or by a delta (`by_delta`), and
//! checks it, within limits and a deadline.

mod by_delta;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bloomsday_common::blob::{self, RawBlob};
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::error::{Error, Kind};
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::{BlobKey, FilterName};
use bloomsday_common::memory::Buffer;
use bloomsday_common::protocol::Followed;
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::Store;
use futures::FutureExt;
use tokio::time::Instant;

pub(crate) use self::by_delta::Deltas;
use self::by_delta::LocalBlob;
use crate::backoff::Backoff;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::generation::{Generation, Via};
use crate::memory_check::MemoryCheck;

/// The most attempts of one load after transient errors.
const MAX_ATTEMPTS: u32 = 4;
/// The pause before the first retry, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The longest time for a look at an object.
const MAX_LOOK: Duration = Duration::from_secs(10);

/// Why a blob was not loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// There is no such blob in the store.
    Missing(String),
    /// The next poll may succeed.
    Transient(String),
    /// The bytes are wrong: the blob is not fetched again until it or its record changes.
    Permanent {
        why: String,
        /// Which upload it was, if the store said so.
        upload: Option<String>,
    },
}

impl LoadError {
    fn permanent(why: String) -> LoadError {
        LoadError::Permanent { why, upload: None }
    }
}

/// Loads blobs, for all filters.
pub(crate) struct Loader {
    pub(crate) store: Store,
    pub(crate) cache: Option<Cache>,
    pub(crate) deadline: Duration,
    pub(crate) max_blob_bytes: u64,
    pub(crate) clock: Clock,
    pub(crate) memory_check: MemoryCheck,
    pub(crate) remedy_words: fn(&Remedy) -> String,
    /// What is hashed of the IDs that are looked up, by filter.
    pub(crate) id_forms: BTreeMap<FilterName, IdForm>,
}

/// The error of one attempt.
enum AttemptError {
    /// The store did not return the blob.
    Fetch(Error),
    /// It returned bytes that are not the blob.
    Open(Error),
    /// There is not enough memory.
    Memory(String),
}

/// What follows a failed attempt.
#[derive(Debug)]
enum AfterAttempt {
    /// Another attempt at once, past caches on the way.
    TryPastCaches,
    /// Another attempt after a pause.
    TryLater,
    /// The load has failed, with this error.
    Fail(fn(String) -> LoadError),
}

/// What follows an attempt with this error. `past_caches` says whether it went past caches.
fn after_attempt(error: &AttemptError, attempts_left: u32, past_caches: bool) -> AfterAttempt {
    let (error, has_arrived) = match error {
        AttemptError::Memory(_) => return AfterAttempt::Fail(LoadError::Transient),
        AttemptError::Open(error) => (error, true),
        AttemptError::Fetch(error) => (error, false),
    };
    // Bytes can change on their way, and a relay may keep such bytes. A blob that arrives damaged
    // twice is damaged.
    if error.may_be_of_a_cache() && !past_caches && attempts_left > 0 {
        return AfterAttempt::TryPastCaches;
    }
    if has_arrived {
        return AfterAttempt::Fail(LoadError::permanent);
    }
    // The store reports one size and sent another: the body was cut, and the blob may be sound.
    let is_cut = matches!(error, Error::Length { .. });
    match error.kind() {
        kind if (kind == Kind::Transient || is_cut) && attempts_left > 0 => AfterAttempt::TryLater,
        _ if is_cut => AfterAttempt::Fail(LoadError::Transient),
        Kind::NotFound => AfterAttempt::Fail(|why| {
            LoadError::Missing(format!("{why}: rebuild that day or repoint"))
        }),
        Kind::Corrupt | Kind::Usage => AfterAttempt::Fail(LoadError::permanent),
        _ => AfterAttempt::Fail(LoadError::Transient),
    }
}

impl Loader {
    /// The text of an error, with its remedy in the program's words.
    pub(crate) fn describe(&self, error: &Error) -> String {
        let text = error.to_string();
        match error.remedy() {
            Some(remedy) => remedy.reword(&text, self.remedy_words),
            None => text,
        }
    }

    /// Loads and checks a blob, into the spare buffer if it fits: by its delta from the `current`
    /// filter or from the cached copy, if there is one, else in full. A panic counts as a permanent
    /// error: the poller goes on.
    pub(crate) async fn load(
        &self,
        followed: &Followed,
        current: Option<Arc<Generation>>,
        deltas: &mut Deltas,
        spare_buffer: &mut Option<Buffer>,
    ) -> Result<Generation, LoadError> {
        let loading = self.load_with_retries(followed, current, deltas, spare_buffer);
        let loading = AssertUnwindSafe(loading).catch_unwind();
        match tokio::time::timeout(self.deadline, loading).await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(_)) => Err(LoadError::Permanent {
                why: format!("loading {} panicked", followed.blob),
                upload: self.upload_of(&followed.blob).await,
            }),
            Err(_) => {
                let (blob, seconds) = (&followed.blob, self.deadline.as_secs());
                Err(LoadError::Transient(format!("{blob} did not arrive within {seconds} s")))
            }
        }
    }

    /// Which upload of a blob is in the store, if it says so soon.
    pub(crate) async fn upload_of(&self, blob: &BlobKey) -> Option<String> {
        let deadline = self.deadline.min(MAX_LOOK);
        tokio::time::timeout(deadline, self.store.upload_of(blob)).await.ok()?.ok()
    }

    async fn load_with_retries(
        &self,
        followed: &Followed,
        current: Option<Arc<Generation>>,
        deltas: &mut Deltas,
        spare_buffer: &mut Option<Buffer>,
    ) -> Result<Generation, LoadError> {
        let began = Instant::now();
        if let Some(generation) = self.load_cached(followed, spare_buffer).await {
            return Ok(generation);
        }
        // Half of what is left, so that a delta that hangs leaves time for the full blob.
        let deadline = self.deadline.saturating_sub(began.elapsed()) / 2;
        if let Some(generation) =
            self.load_by_delta(followed, current, deltas, deadline, spare_buffer).await
        {
            return Ok(generation);
        }
        let mut backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        let (mut past_caches, mut upload) = (false, None);
        for attempts_left in (0..MAX_ATTEMPTS).rev() {
            let error = match self.load_once(followed, spare_buffer, past_caches).await {
                Ok(generation) => return Ok(generation),
                Err(error) => error,
            };
            match after_attempt(&error, attempts_left, past_caches) {
                AfterAttempt::TryPastCaches => {
                    // Before the blob is fetched again: it may be mended while that goes on.
                    upload = self.upload_of(&followed.blob).await;
                    past_caches = true;
                }
                AfterAttempt::TryLater => tokio::time::sleep(backoff.after_failure()).await,
                AfterAttempt::Fail(as_error) => {
                    let mut failed = as_error(self.describe_attempt(error));
                    if let LoadError::Permanent { upload: of_blob, .. } = &mut failed {
                        *of_blob = match upload {
                            None => self.upload_of(&followed.blob).await,
                            known => known,
                        };
                    }
                    return Err(failed);
                }
            }
        }
        unreachable!("the last attempt returns")
    }

    fn describe_attempt(&self, error: AttemptError) -> String {
        match error {
            AttemptError::Fetch(error) | AttemptError::Open(error) => self.describe(&error),
            AttemptError::Memory(why) => why,
        }
    }

    /// The cached copy, if there is one, it is sound, and there is memory for it.
    pub(crate) async fn load_cached(
        &self,
        followed: &Followed,
        spare_buffer: &mut Option<Buffer>,
    ) -> Option<Generation> {
        let cache = self.cache.as_ref()?;
        let copy = cache.copy(&followed.blob).await?;
        if copy.1 > self.max_blob_bytes {
            return None;
        }
        if let Err(why) = self.ensure_memory(copy.1, spare_buffer) {
            tracing::warn!("the cached {} is not loaded: {why}", followed.blob);
            return None;
        }
        // Half the deadline, so that a disk that hangs leaves time for the store.
        let fetched = cache.read(copy, spare_buffer.take(), self.deadline / 2).await?;
        match self.open(fetched, followed, Via::Cache, 0) {
            Ok(generation) => Some(generation),
            // The copy is sound; the configuration may be wrong.
            Err(error @ Error::IdForm { .. }) => {
                tracing::warn!("the cached copy is not used: {error}");
                None
            }
            Err(error) => {
                let copy = cache.path_of(&followed.blob).unwrap_or_default();
                let copy = copy.display();
                tracing::warn!(
                    "the copy in the cache, {copy}, is dropped; the store may have it sound: {error}"
                );
                cache.forget(&followed.blob).await;
                None
            }
        }
    }

    /// The followed blob by its delta, if there is one and it can be used.
    async fn load_by_delta(
        &self,
        followed: &Followed,
        current: Option<Arc<Generation>>,
        deltas: &mut Deltas,
        deadline: Duration,
        spare_buffer: &mut Option<Buffer>,
    ) -> Option<Generation> {
        let have = LocalBlob::find(current, self.cache.as_ref(), &followed.blob).await?;
        let fit = |bytes| {
            if bytes > self.max_blob_bytes {
                return Err("it is larger than the limit".to_owned());
            }
            self.ensure_memory(bytes, spare_buffer)?;
            Ok(spare_buffer.take())
        };
        let (raw, bytes) =
            by_delta::load(&self.store, have, followed, deadline, deltas, fit).await?;
        match self.open(raw, followed, Via::Delta, bytes) {
            Ok(generation) => Some(generation),
            // Its digest is right, so the full blob has the same fault, and reports it.
            Err(error) => {
                tracing::warn!("{error}; the full blob is fetched");
                None
            }
        }
    }

    async fn load_once(
        &self,
        followed: &Followed,
        spare_buffer: &mut Option<Buffer>,
        past_caches: bool,
    ) -> Result<Generation, AttemptError> {
        let info = self.store.blob_info(&followed.blob).await.map_err(AttemptError::Fetch)?;
        let bytes = info.bytes;
        // The store's size decides: somebody who edits a pointer by hand may leave another blob's
        // size in it. The limits bound what is fetched, and the digest shows whether it is the
        // blob.
        let limit = self.max_blob_bytes;
        if let Some(recorded) = followed.bytes.filter(|recorded| *recorded != bytes) {
            tracing::warn!(
                "the record that names {} says {recorded} bytes, and it has {bytes}",
                followed.blob
            );
        }
        if bytes <= limit {
            let no_memory =
                |why| AttemptError::Memory(format!("{} is not loaded: {why}", followed.blob));
            self.ensure_memory(bytes, spare_buffer).map_err(no_memory)?;
        }
        let spare_buffer = spare_buffer.take();
        let fetched = if past_caches {
            self.store.fetch_uncached(&followed.blob, limit, spare_buffer).await
        } else {
            self.store.fetch_into(&followed.blob, limit, spare_buffer).await
        };
        let fetched = fetched.map_err(AttemptError::Fetch)?;
        self.open(fetched, followed, Via::Full, bytes).map_err(AttemptError::Open)
    }

    /// Checks that there is memory for a blob. A spare buffer that is too small is freed.
    fn ensure_memory(&self, bytes: u64, spare_buffer: &mut Option<Buffer>) -> Result<(), String> {
        *spare_buffer = spare_buffer.take().filter(|memory| memory.fits(bytes as usize));
        self.memory_check.ensure_fits(bytes, spare_buffer.is_some())
    }

    fn open(
        &self,
        fetched: RawBlob,
        followed: &Followed,
        via: Via,
        bytes_fetched: u64,
    ) -> Result<Generation, Error> {
        let bytes = fetched.memory.len() as u64;
        crash_point("fetched");
        let (header, filter) = blob::open(fetched, &followed.blob)?;
        crash_point("opened");
        let key = followed.blob.clone();
        let expected = self.id_forms.get(&key.filter).copied().unwrap_or_default();
        if header.id_form != expected {
            return Err(Error::IdForm { key: key.to_string(), expected, got: header.id_form });
        }
        let huge_bytes = filter.memory().huge_bytes();
        let loaded_at = self.clock.now();
        Ok(Generation { key, header, filter, bytes, huge_bytes, loaded_at, via, bytes_fetched })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::tests::with_id;
    use crate::simulation::flaky_store::FlakyStore;
    use bloomsday_common::protocol::FollowedBy;

    #[test]
    fn a_failed_attempt_is_repeated_only_where_that_can_help() {
        let key = || "rt/blobs/a.bloom".to_owned();
        let [expected, got] = [1, 2].map(|byte| bloomsday_common::digest::Digest::new([byte; 32]));
        let damaged = || AttemptError::Open(Error::Digest { key: key(), expected, got });
        let malformed = || AttemptError::Open(Error::Malformed { key: key(), why: "no".into() });
        let cut = || AttemptError::Fetch(Error::Length { key: key(), expected: 2, got: 1 });
        let missing = || AttemptError::Fetch(Error::NotFound { key: key(), store: "store".into() });
        let described = |error, attempts_left, past_caches| match after_attempt(
            &error,
            attempts_left,
            past_caches,
        ) {
            AfterAttempt::TryPastCaches => "past caches",
            AfterAttempt::TryLater => "later",
            AfterAttempt::Fail(as_error) => match as_error(String::new()) {
                LoadError::Permanent { .. } => "permanent",
                LoadError::Transient(_) => "transient",
                LoadError::Missing(_) => "missing",
            },
        };
        let transient =
            || AttemptError::Fetch(Error::Locked { lock: key(), holder: key(), seconds: 1 });
        assert_eq!(described(transient(), 1, true), "later");
        assert_eq!(described(transient(), 0, true), "transient");
        assert_eq!(described(damaged(), 3, false), "past caches");
        assert_eq!(described(damaged(), 3, true), "permanent", "it arrived damaged twice");
        assert_eq!(described(damaged(), 0, false), "permanent");
        assert_eq!(described(malformed(), 3, false), "permanent");
        assert_eq!(described(cut(), 1, false), "later");
        assert_eq!(described(cut(), 0, false), "transient");
        assert_eq!(described(missing(), 3, false), "missing");
        assert_eq!(described(AttemptError::Memory(key()), 3, false), "transient");
    }

    /// Most stores have no deltas: each load asks for one first.
    #[tokio::test]
    async fn a_load_that_finds_neither_a_delta_nor_the_blob_keeps_the_spare_memory() {
        let loader = Loader {
            store: Store::over(Arc::new(FlakyStore::new()), "empty"),
            cache: None,
            deadline: Duration::from_secs(60),
            max_blob_bytes: u64::MAX,
            clock: Clock::system(),
            memory_check: MemoryCheck::of(|| u64::MAX),
            remedy_words: Remedy::to_string,
            id_forms: BTreeMap::new(),
        };
        let (current, blob) = (with_id(b"current"), with_id(b"wanted").key.clone());
        let mut spare = Some(Buffer::zeroed(current.bytes as usize).unwrap());
        let by = FollowedBy::Pointer { day: blob.day };
        let followed = Followed { blob, bytes: None, by };
        let loaded =
            loader.load(&followed, Some(current), &mut Deltas::default(), &mut spare).await;
        let error = loaded.err();
        assert!(matches!(error, Some(LoadError::Missing(_))), "{error:?}");
        assert!(spare.is_some(), "the next load touches new memory");
    }
}
