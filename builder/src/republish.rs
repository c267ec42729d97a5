//! [`republish()`]: a blob that was built before, in a file, → a published blob of its day. Its IDs
//! are unknown; the checks of [`blob::open`](bloomsday_common::blob::open) are all there is.

use bloomsday_common::blob::{self, Header};
use bloomsday_common::filter::Filter;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use bloomsday_common::protocol::Retention;
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::Store;
use jiff::Timestamp;

use crate::build_state::{BuildState, advance_or_preview, check_not_future, finish};
use crate::error::Error;
use crate::publish::{self, PointerSnapshot, Uploaded};
use crate::report::Report;
use crate::timer::Timer;

/// What to publish.
///
/// ```no_run
/// use bloomsday_builder::{Republish, republish};
/// use bloomsday_common::blob::{self, RawBlob};
/// use bloomsday_common::memory::Buffer;
/// use bloomsday_common::protocol::Retention;
/// use bloomsday_common::remedy::Remedy;
/// use bloomsday_common::store::Store;
///
/// # async fn run(file: Buffer) -> Result<(), Box<dyn std::error::Error>> {
/// // `file` is a blob: for example one that `bloomsday follow` keeps.
/// let key = blob::key_of(&file, "rt.bloom")?;
/// let (header, filter) = blob::open(RawBlob::of(file), &key)?;
/// let job = Republish {
///     header: &header,
///     filter: &filter,
///     name: "rt.bloom".into(),
///     by: "ops@batch-1".into(),
///     retention: Retention::DEFAULT,
///     remedy_words: Remedy::to_string,
///     dry_run: false,
/// };
/// let report = republish(&job, &Store::open("s3://ads-filters/prod")?).await?;
/// println!("{:?}", report.outcome);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Republish<'a> {
    /// What the blob says about itself: the filter and the day that it is published for.
    pub header: &'a Header,
    /// Its bits.
    pub filter: &'a Filter,
    /// The name of the file in the history.
    pub name: String,
    /// Who publishes. The history and the pointer record it.
    pub by: String,
    /// How long the store keeps blobs. A blob that prune may soon delete is uploaded again.
    pub retention: Retention,
    /// How the report and the history say what to do about a refusal: `Remedy::to_string`, or the
    /// words of a program with commands of its own.
    pub remedy_words: fn(&Remedy) -> String,
    /// Check everything, but write nothing to the store.
    pub dry_run: bool,
}

/// Publishes an opened blob as the filter of its day, with the same steps as a build: upload, read
/// back, record, point. The gates of a build do not apply.
///
/// # Errors
/// [`Error::FutureDay`], or the store fails.
pub async fn republish(job: &Republish<'_>, store: &Store) -> Result<Report, Error> {
    let total = Timer::start();
    check_not_future(job.header.day, Timestamp::now())?;
    let start = PointerSnapshot::take(store, &job.header.filter, job.header.day).await?;
    publish_whole(job, "published", None, total, start, store).await
}

/// Publishes a filter made from a file. `made` is the verb for the history ("imported"); `total`
/// and `start` are the time and the pointer at the beginning.
pub(crate) async fn publish_whole(
    job: &Republish<'_>,
    made: &str,
    warning: Option<String>,
    total: Timer,
    start: PointerSnapshot,
    store: &Store,
) -> Result<Report, Error> {
    let now = Timestamp::now();
    let Republish { header, filter, retention, .. } = *job;
    let encoded = blob::encode(header, filter);
    let mut report = Report {
        blob: Some(encoded.key().clone()),
        digest: Some(encoded.key().digest),
        ids: header.ids,
        bytes: encoded.len(),
        bits_per_id: header.shape.bits() as f64 / header.ids.max(1) as f64,
        fpp_measured: header.fpp_measured(),
        ..Report::empty(&header.filter, header.day, header.shape.layout(), header.fpp_target)
    };
    report.dry_run = job.dry_run;
    warning.into_iter().for_each(|warning| report.warn(warning));
    let event = HistoryEvent {
        day: Some(header.day),
        blob: report.blob.clone(),
        reason: Some(format!("{made} from {}", job.name)),
        ..HistoryEvent::new(EventKind::Build, Outcome::Pending, now, &job.by)
    };
    if !job.dry_run {
        publish::upload(store, &encoded, &|_| {}).await?;
    }
    let mut state = BuildState { start, event, due: None, report, total };
    let plan = publish::plan(store, &state.start, encoded.key(), retention).await?;
    let blob = Uploaded::InMemory(&encoded);
    advance_or_preview(store, &mut state, plan, header, blob, retention).await?;
    finish(store, state, job.remedy_words).await
}
