//! A blob → a checked generation: from the cache or the store, within limits and a deadline.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bloomsday_common::blob::{self, RawBlob};
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::error::{Error, Kind};
use bloomsday_common::memory::Buffer;
use bloomsday_common::protocol::Followed;
use bloomsday_common::store::Store;
use futures::FutureExt;

use crate::cache::Cache;
use crate::clock::Clock;
use crate::handle::Generation;
use crate::room::Room;

/// How often a transient failure is tried again within one load, with doubling pauses between.
const TRIES: u32 = 4;
/// The pause before the first retry.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Memory that a filter no longer needs: to touch new memory costs as much as the rest of a load.
pub(crate) type Spare = Option<Buffer>;

/// Why a blob was not loaded.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It may work at the next look.
    Passing(String),
    /// The bytes are wrong: not to be fetched again until something changes.
    Poison(String),
}

/// Where blobs come from.
pub(crate) struct Loader {
    pub(crate) store: Store,
    pub(crate) cache: Option<Cache>,
    pub(crate) deadline: Duration,
    pub(crate) max_blob_bytes: u64,
    pub(crate) clock: Clock,
    pub(crate) room: Room,
}

/// How one try to load ended.
enum Trouble {
    /// The store did not give the blob.
    Fetch(Error),
    /// It gave bytes that are not the blob.
    Open(Error),
    NoRoom(String),
}

impl Loader {
    /// Loads and checks a blob, into memory that an older filter has left if there is some. A panic on
    /// the way counts as poison: the poller lives.
    pub(crate) async fn load(
        &self,
        followed: &Followed,
        spare: &mut Spare,
    ) -> Result<Generation, Failure> {
        let loading = AssertUnwindSafe(self.load_with_retries(followed, spare)).catch_unwind();
        match tokio::time::timeout(self.deadline, loading).await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(_)) => Err(Failure::Poison(format!("loading {} panicked", followed.blob))),
            Err(_) => {
                let (blob, seconds) = (&followed.blob, self.deadline.as_secs());
                Err(Failure::Passing(format!("{blob} did not arrive within {seconds} s")))
            }
        }
    }

    async fn load_with_retries(
        &self,
        followed: &Followed,
        spare: &mut Spare,
    ) -> Result<Generation, Failure> {
        if let Some(generation) = self.load_cached(followed, spare).await {
            return Ok(generation);
        }
        let mut pause = FIRST_PAUSE;
        let mut damaged_before = false;
        for tries_left in (0..TRIES).rev() {
            match self.load_once(followed, spare).await {
                Ok(generation) => return Ok(generation),
                Err(Trouble::NoRoom(why)) => return Err(Failure::Passing(why)),
                // Bytes can change on their way; what comes damaged twice is damaged.
                Err(Trouble::Open(Error::Digest { .. })) if !damaged_before && tries_left > 0 => {
                    damaged_before = true;
                    continue;
                }
                Err(Trouble::Open(error)) => return Err(Failure::Poison(error.to_string())),
                // The store knows a size and sent another: a body was cut, which says nothing of the
                // blob.
                Err(Trouble::Fetch(error)) => match (error.kind(), &error) {
                    (Kind::Transient, _) | (_, Error::Length { .. }) if tries_left > 0 => {}
                    (_, Error::Length { .. }) => return Err(Failure::Passing(error.to_string())),
                    (Kind::Corrupt | Kind::Usage, _) => {
                        return Err(Failure::Poison(error.to_string()));
                    }
                    _ => return Err(Failure::Passing(error.to_string())),
                },
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        unreachable!("the last try returns")
    }

    /// The cached copy, if there is one, it is sound, and there is room.
    pub(crate) async fn load_cached(
        &self,
        followed: &Followed,
        spare: &mut Spare,
    ) -> Option<Generation> {
        let cache = self.cache.as_ref()?;
        let copy = cache.copy(&followed.blob).await?;
        if copy.1 > self.max_blob_bytes {
            return None;
        }
        if let Err(why) = self.room_for(copy.1, spare) {
            tracing::warn!("the cached {} is not loaded: {why}", followed.blob);
            return None;
        }
        // A disk that hangs leaves the store time to answer.
        let fetched = cache.read(copy, spare.take(), self.deadline / 2).await?;
        match self.open(fetched, followed) {
            Ok(generation) => Some(generation),
            Err(error) => {
                tracing::warn!("the cached copy is dropped: {error}");
                cache.forget(&followed.blob).await;
                None
            }
        }
    }

    async fn load_once(
        &self,
        followed: &Followed,
        spare: &mut Spare,
    ) -> Result<Generation, Trouble> {
        let (bytes, _) = self.store.head_blob(&followed.blob).await.map_err(Trouble::Fetch)?;
        // What the store has counts: a hand that edits a pointer's blob may leave another's size in it. The
        // limit and the room bound what is asked for, and the digest says whether it is the blob.
        let limit = self.max_blob_bytes;
        if let Some(told) = followed.bytes.filter(|told| *told != bytes) {
            tracing::warn!(
                "the record that names {} says {told} bytes, and it has {bytes}",
                followed.blob
            );
        }
        if bytes <= limit {
            let no_room = |why| Trouble::NoRoom(format!("{} is not loaded: {why}", followed.blob));
            self.room_for(bytes, spare).map_err(no_room)?;
        }
        let fetching = self.store.fetch_into(&followed.blob, limit, spare.take());
        let fetched = fetching.await.map_err(Trouble::Fetch)?;
        self.open(fetched, followed).map_err(Trouble::Open)
    }

    /// Whether there is memory for a blob; spare memory that does not fit it only takes away room.
    fn room_for(&self, bytes: u64, spare: &mut Spare) -> Result<(), String> {
        *spare = spare.take().filter(|memory| memory.fits(bytes as usize));
        self.room.check(bytes, spare.is_some())
    }

    fn open(&self, fetched: RawBlob, followed: &Followed) -> Result<Generation, Error> {
        let bytes = fetched.memory.len() as u64;
        crash_point("fetched");
        let (header, filter) = blob::open(fetched, &followed.blob)?;
        crash_point("opened");
        let key = followed.blob.clone();
        let huge_bytes = filter.memory().huge_bytes();
        Ok(Generation { key, header, filter, bytes, huge_bytes, loaded_at: self.clock.now() })
    }
}
