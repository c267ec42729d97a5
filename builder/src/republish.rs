//! [`republish()`]: a blob that was built before, in a file, → a published blob of its day. Its IDs
//! are unknown; the checks of [`blob::open`](bloomsday_common::blob::open) are all there is.

use std::time::Instant;

use bloomsday_common::blob::{self, Header};
use bloomsday_common::filter::Filter;
use bloomsday_common::pointer::{EventKind, HistoryEvent, Outcome};
use bloomsday_common::protocol::Retention;
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::Store;
use jiff::Timestamp;

use crate::build::{check_not_future, finish};
use crate::error::Error;
use crate::publish::{self, PointerSnapshot, Uploaded};
use crate::report::Report;

/// What to publish.
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
    let began = Instant::now();
    check_not_future(job.header.day, Timestamp::now())?;
    let start = PointerSnapshot::take(store, &job.header.filter, job.header.day).await?;
    publish_whole(job, "published", None, began, start, store).await
}

/// Publishes a whole filter. It was `made` ("imported") from the file that the history then names; that `began` when
/// the pointer was as in `start`.
pub(crate) async fn publish_whole(
    job: &Republish<'_>,
    made: &str,
    warning: Option<String>,
    began: Instant,
    start: PointerSnapshot,
    store: &Store,
) -> Result<Report, Error> {
    let now = Timestamp::now();
    let Republish { header, filter, .. } = *job;
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
    let mut event = HistoryEvent {
        day: Some(header.day),
        blob: report.blob.clone(),
        reason: Some(format!("{made} from {}", job.name)),
        ..HistoryEvent::new(EventKind::Build, Outcome::Pending, now, &job.by)
    };
    if !job.dry_run {
        publish::upload(store, &encoded, &|_| {}).await?;
    }
    event = report.to_event(event);
    let plan = publish::plan(store, &start, encoded.key(), job.retention).await?;
    let update = match job.dry_run {
        true => plan.preview(&start, encoded.key())?,
        false => {
            let retention = job.retention;
            let blob = Uploaded::InMemory(&encoded);
            publish::advance(store, &start, plan, header, blob, retention, &event).await?
        }
    };
    (report.outcome, report.reason, report.remedy) = (update.outcome, update.reason, update.remedy);
    event.previous = update.previous;
    finish(store, report, event, began, job.remedy_words).await
}
