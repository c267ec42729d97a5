//! [`Coordinator`]: the steps of a build that one process does, while others gather, count and
//! fill: the shape, the header, the digest, the upload, the gates and the pointer. It never has the
//! whole filter.

use std::collections::BTreeSet;

use bloomsday_common::blob::{Header, Origin, StreamedBlob, seal};
use bloomsday_common::crash_point::crash_point;
use bloomsday_common::digest::{ChainingValue, Digest};
use bloomsday_common::error::{Error as StoreError, Kind};
use bloomsday_common::filter::{BlockRange, Layout, OnesHistogram, Shape};
use bloomsday_common::hash::Xxh3;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::protocol;
use bloomsday_common::store::{Store, Upload};
use jiff::Timestamp;

use super::MAX_PACKAGE_HASHES;
use super::assemble::{Assembler, Misplaced, Part};
use super::count::Counted;
use super::earlier::{self, EARLIER_SAMPLE};
use super::fill::{FillPlan, Filled, absent_in};
use super::gather::check_column;
use super::ranges::Ranges;
use super::totals::RangeTotals;
use crate::build_state::{self, BuildState};
use crate::earlier_day::Comparison;
use crate::error::Error;
use crate::job::Job;
use crate::publish::{MAX_UPLOADS, Uploaded, try_to_read};
use crate::quality;
use crate::report::Report;
use crate::source::{Input, reads_live_ids};
use crate::timer::Timer;
use crate::verify::ABSENT_LOOKUPS;

/// A build of one day whose ranges other processes gather, count and fill.
///
/// The steps are, in this order: [`begin`](Coordinator::begin), [`counted`](Coordinator::counted)
/// for each range, [`shape`](Coordinator::shape), [`compare`](Coordinator::compare),
/// [`filled`](Coordinator::filled) and [`piece`](Coordinator::piece) for each range in order,
/// [`seal`](Coordinator::seal), an [`upload`](Coordinator::upload) as long as it
/// [`is_uploaded`](Coordinator::is_uploaded) is `false`, [`finish`](Coordinator::finish).
#[derive(Debug)]
pub struct Coordinator {
    job: Job,
    store: Store,
    state: BuildState,
    ranges: Ranges,
    timer: Timer,
    totals: RangeTotals,
    compared: Comparison,
    filling: Option<Filling>,
    sealed: Option<(Header, StreamedBlob)>,
    uploads: u32,
}

/// What is known of the filter while its pieces come.
#[derive(Debug)]
struct Filling {
    plan: FillPlan,
    assembler: Assembler,
    shared: EdgeBlocks,
    values: Vec<ChainingValue>,
    /// The bytes of the first part that are behind the header.
    first: Vec<u8>,
}

/// The blocks that two ranges may have in common, which only this process sees complete.
#[derive(Debug)]
struct EdgeBlocks {
    plan: FillPlan,
    edges: BTreeSet<u64>,
    blocks: OnesHistogram,
    hits: u64,
}

impl Coordinator {
    /// Begins a build: checks the job, and reads the pointer that the build may move.
    ///
    /// # Errors
    /// [`Error::NotInParts`] for a job with another layout than `blocked`, with deltas, of URLs, or
    /// whose input has hashes in place of IDs; the store's.
    pub async fn begin(job: Job, store: Store) -> Result<Coordinator, Error> {
        check_possible(&job)?;
        let state = build_state::begin(&job, &store).await?;
        let ranges = Ranges::new(1);
        Ok(Coordinator {
            job,
            store,
            state,
            ranges,
            timer: Timer::start(),
            totals: RangeTotals::default(),
            compared: Comparison::default(),
            filling: None,
            sealed: None,
            uploads: 0,
        })
    }

    /// How many rows the newest recorded build of this day or of an earlier one read, whether it
    /// was published or not. For the number of ranges.
    ///
    /// # Errors
    /// The store's.
    pub async fn expected_rows(&self) -> Result<Option<u64>, Error> {
        let history = self.store.pointer_history(&self.job.filter).await?;
        let mut builds =
            history.iter().filter(|event| event.day.is_some_and(|day| day <= self.job.day));
        Ok(builds.find_map(|event| event.rows.filter(|rows| *rows > 0)))
    }

    /// Sets the ranges of this build.
    pub fn set_ranges(&mut self, ranges: Ranges) {
        self.ranges = ranges;
    }

    /// Adds the numbers of the files that are read.
    pub fn read_from(&mut self, input: &Input) {
        self.state.report.read_from(input);
    }

    /// Adds the numbers of a range that was counted.
    ///
    /// # Errors
    /// As [`RangeTotals::add_counted`].
    pub fn counted(&mut self, range: u32, counted: &Counted) -> Result<(), Error> {
        self.totals.add_counted(range, counted)
    }

    /// Chooses the shape, once all ranges are counted. `None` if there is no ID: then
    /// [`finish`](Coordinator::finish) is the next step.
    ///
    /// # Errors
    /// [`Error::Changed`]: hashes were lost or changed. No shape meets the target.
    pub fn shape(&mut self) -> Result<Option<FillPlan>, Error> {
        let counted = *self.totals.counted()?;
        let report = &mut self.state.report;
        (report.rows, report.nulls) = (counted.gathered.rows, counted.gathered.nulls);
        (report.invalid, report.ids) = (counted.gathered.invalid, counted.ids);
        report.seconds.scan = self.timer.lap();
        if counted.ids == 0 {
            return Ok(None);
        }
        let shape = Shape::for_ids(self.job.layout, counted.ids, self.job.fpp)?;
        report.bits_per_id = shape.bits() as f64 / counted.ids as f64;
        let plan = FillPlan::new(&self.job.filter, self.job.day, shape, self.ranges);
        self.filling = Some(Filling::new(plan));
        Ok(Some(plan))
    }

    /// The hashes that [`compare`](Coordinator::compare) needs: those of the ranges up to this one,
    /// of each so many packages.
    pub fn sample(&self) -> (u32, u64) {
        let mut ids = 0;
        for (range, more) in self.totals.ids_of_each() {
            ids += more;
            if ids >= EARLIER_SAMPLE {
                // A first range of more than enough is not read to its end.
                let packages = EARLIER_SAMPLE / MAX_PACKAGE_HASHES as u64;
                return (range, if ids == more { packages } else { u64::MAX });
            }
        }
        (self.ranges.count() - 1, u64::MAX)
    }

    /// Looks up the day's lowest hashes in the newest earlier filter, for the gate `overlap`.
    ///
    /// # Errors
    /// The store's, when it fails so that no earlier filter can be read.
    pub async fn compare(&mut self, hashes: &[Xxh3]) -> Result<(), Error> {
        self.compared = earlier::compare(&self.job, &self.store, hashes).await?;
        Ok(())
    }

    /// Adds the numbers of a range that was filled.
    ///
    /// # Errors
    /// As [`RangeTotals::add_filled`].
    pub fn filled(&mut self, range: u32, filled: &Filled) -> Result<(), Error> {
        self.totals.add_filled(range, filled)
    }

    /// Adds a piece of the blob; pieces come in order. A part with a chaining `value` needs no
    /// bytes.
    ///
    /// # Errors
    /// [`Error::Changed`]: it is not of this blob, or not in order.
    ///
    /// # Panics
    /// Before there is a shape.
    pub fn piece(
        &mut self,
        part: u64,
        offset: u64,
        value: Option<ChainingValue>,
        bytes: &[u8],
    ) -> Result<(), Error> {
        let filling = self.filling.as_mut().expect("the shape comes before the pieces");
        filling.piece(part, offset, value, bytes).map_err(misplaced)
    }

    /// Computes header, digest and key from the pieces, and checks the filter's quality.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Lost`]: a range is missing, or lacks an ID. [`Error::Unsound`]:
    /// the filter's rate or bits are not what its IDs explain.
    ///
    /// # Panics
    /// Before there is a shape.
    pub fn seal(&mut self) -> Result<FillPlan, Error> {
        let filled = self.totals.filled()?;
        let (hits, sampled) = (filled.hits, filled.sampled);
        let filling = self.filling.take().expect("the shape comes before the seal");
        let (plan, first, values, shared) = filling.finish();
        let mut blocks = self.totals.blocks().clone();
        blocks.merge(&shared.blocks);
        // Ranges without an ID have no pieces.
        blocks.add_empty(plan.shape.units().saturating_sub(blocks.blocks()));
        let header = Header {
            id_form: IdForm::Bytes,
            filter: self.job.filter.clone(),
            day: self.job.day,
            shape: plan.shape,
            origin: Origin::Built,
            ids: self.state.report.ids,
            fpp_target: self.job.fpp,
            fpp_hits: hits + shared.hits,
            fpp_lookups: ABSENT_LOOKUPS,
            ones: blocks.ones(),
        };
        let of_bits = || blocks.fpp(plan.shape.probes());
        if let Some(warning) = quality::check_quality_with(&header, &of_bits)? {
            self.state.report.warn(warning);
        }
        let blob = seal(&header, &first, &values);
        let report = &mut self.state.report;
        report.fpp_measured = header.fpp_measured();
        report.sampled_ids = sampled;
        (report.blob, report.digest) = (Some(blob.key().clone()), Some(blob.key().digest));
        report.bytes = blob.len();
        self.state.event.blob.clone_from(&report.blob);
        report.seconds.fill = self.timer.lap();
        self.sealed = Some((header, blob));
        Ok(plan)
    }

    fn sealed(&self) -> &(Header, StreamedBlob) {
        self.sealed.as_ref().expect("the blob is sealed before")
    }

    /// Whether the store has the blob. All of it is read: its digest must be that of the bytes in
    /// which all IDs were looked up. `false` if there is none, or one that is damaged or so old
    /// that prune may delete it: it is then uploaded again, a limited number of times. A dry run
    /// needs none.
    ///
    /// # Errors
    /// The store's. What was uploaded reads back damaged, for the last time.
    ///
    /// # Panics
    /// Before the blob is sealed.
    pub async fn is_uploaded(&mut self) -> Result<bool, Error> {
        if self.job.dry_run {
            return Ok(true);
        }
        self.state.report.seconds.publish += self.timer.lap();
        let checked = try_to_read(async || self.check().await).await;
        self.state.report.seconds.verify += self.timer.lap();
        match checked {
            Err(error) if error.kind() == Kind::NotFound && self.uploads == 0 => Ok(false),
            Err(error) if error.kind() == Kind::Corrupt && self.uploads < MAX_UPLOADS => {
                tracing::warn!("{error}; uploading it again");
                Ok(false)
            }
            other => Ok(other?),
        }
    }

    async fn check(&self) -> Result<bool, StoreError> {
        let key = self.sealed().1.key();
        let at = self.store.blob_info(key).await?.uploaded;
        if self.uploads == 0 && protocol::is_near_deletion(at, Timestamp::now(), self.job.retention)
        {
            return Ok(false);
        }
        self.store.check_blob(key).await?;
        crash_point("read-back");
        Ok(true)
    }

    /// Begins to upload the blob.
    ///
    /// # Errors
    /// The store's.
    ///
    /// # Panics
    /// Before the blob is sealed.
    pub async fn upload(&mut self, plan: FillPlan) -> Result<Uploading, Error> {
        self.uploads += 1;
        let (_, blob) = self.sealed();
        let mut upload = self.store.begin_blob(blob).await?;
        if let Err(error) = upload.write(blob.header(), &|_| {}).await {
            upload.abort().await;
            return Err(error.into());
        }
        Ok(Uploading { upload, assembler: Assembler::new(plan), trailer: blob.trailer().to_vec() })
    }

    /// Evaluates the gates, moves the pointer if they and the protocol permit it, and records the
    /// build.
    ///
    /// # Errors
    /// The store's. The pointer is then unchanged.
    pub async fn finish(self) -> Result<Report, Error> {
        let Coordinator { job, store, state, compared, sealed, .. } = self;
        match sealed {
            None => build_state::refuse_empty(&job, &store, state).await,
            Some((header, blob)) => {
                let uploaded = Uploaded::Streamed(&blob);
                build_state::conclude(&job, &store, state, &header, uploaded, compared).await
            }
        }
    }
}

/// Refuses a job that cannot be built in parts.
///
/// # Errors
/// [`Error::NotInParts`].
fn check_possible(job: &Job) -> Result<(), Error> {
    check_column(&job.column)?;
    let why = if reads_live_ids(&job.inputs) {
        "live IDs are hashes already, and parts read IDs: build it on one machine".to_owned()
    } else if job.layout != Layout::Blocked {
        format!(
            "the probes of the layout `{}` span the filter, so that no part of it can be filled \
             alone: use the layout `blocked`, or build on one machine",
            job.layout
        )
    } else if job.id_form != IdForm::Bytes {
        "its IDs are URLs, and parts hash the bytes of an ID as they are: build on one machine"
            .to_owned()
    } else if job.deltas.bases > 0 {
        "it makes deltas, and parts make none: set `deltas` to 0, or build on one machine"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(Error::NotInParts { why })
}

impl Filling {
    fn new(plan: FillPlan) -> Filling {
        let ranges = 0..plan.ranges.count();
        let blocks = ranges.map(|range| plan.blocks(range));
        let edges = blocks.flat_map(|blocks| [blocks.start, blocks.end - 1]).collect();
        let (blocks, hits) = (OnesHistogram::new(), 0);
        let values = vec![[0; Digest::BYTES]; plan.blob_sizes.subtrees() as usize];
        let (assembler, shared) = (Assembler::new(plan), EdgeBlocks { plan, edges, blocks, hits });
        Filling { plan, assembler, shared, values, first: Vec::new() }
    }

    fn piece(
        &mut self,
        part: u64,
        offset: u64,
        value: Option<ChainingValue>,
        bytes: &[u8],
    ) -> Result<(), Misplaced> {
        let Filling { plan, assembler, shared, values, first } = self;
        let done = &mut |part: Part<'_>| complete(*plan, part, shared, values, first);
        let Some(value) = value else { return assembler.add(part, offset, bytes, done) };
        assembler.pass(part, done)?;
        self.values[part as usize] = value;
        Ok(())
    }

    fn finish(self) -> (FillPlan, Vec<u8>, Vec<ChainingValue>, EdgeBlocks) {
        let Filling { plan, assembler, mut shared, mut values, mut first } = self;
        assembler.finish(&mut |part| complete(plan, part, &mut shared, &mut values, &mut first));
        (plan, first, values, shared)
    }
}

/// A part that was put together here: its chaining value, and what its shared blocks add to the
/// filter's numbers.
fn complete(
    plan: FillPlan,
    part: Part<'_>,
    shared: &mut EdgeBlocks,
    values: &mut [ChainingValue],
    first: &mut Vec<u8>,
) {
    shared.add(part);
    match part.number {
        // Its value needs the header, which has numbers of the whole filter.
        0 => first.extend_from_slice(part.bytes),
        n => {
            let content = plan.blob_sizes.content();
            values[n as usize] =
                bloomsday_common::blob::subtree_chaining_value(content, part.offset, part.bytes);
        }
    }
}

impl EdgeBlocks {
    fn add(&mut self, part: Part<'_>) {
        let block = BlockRange::BLOCK_BYTES as u64;
        let body = part.offset - self.plan.blob_sizes.header_bytes;
        // The header is a multiple of a block, so a part has whole blocks.
        let (start, end) = (body / block, (body + part.bytes.len() as u64) / block);
        for edge in self.edges.range(start..end) {
            let at = ((edge - start) * block) as usize;
            let bytes = &part.bytes[at..at + block as usize];
            self.blocks.add(bytes);
            let bits = BlockRange::of_bytes(self.plan.shape, *edge, bytes);
            self.hits += bits.count(absent_in(self.plan.shape, *edge..edge + 1)) as u64;
        }
    }
}

/// An upload of the blob's pieces, in order.
#[derive(Debug)]
pub struct Uploading {
    upload: Upload,
    assembler: Assembler,
    trailer: Vec<u8>,
}

impl Uploading {
    /// Sends a piece; pieces come in order.
    ///
    /// # Errors
    /// [`Error::Changed`]: it is not of this blob, or not in order. The store's. Then nothing more
    /// can be sent: [`Uploading::abort`].
    pub async fn piece(&mut self, part: u64, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut done = Vec::new();
        let keep = &mut |part: Part<'_>| done.push(part.bytes.to_vec());
        self.assembler.add(part, offset, bytes, keep).map_err(misplaced)?;
        for part in done {
            self.upload.write(&part, &|_| {}).await?;
        }
        Ok(())
    }

    /// Sends what is left, and completes the blob.
    ///
    /// # Errors
    /// The store's.
    pub async fn finish(self) -> Result<(), Error> {
        let Uploading { mut upload, assembler, trailer } = self;
        let mut done = Vec::new();
        assembler.finish(&mut |part| done.push(part.bytes.to_vec()));
        done.push(trailer);
        for part in done {
            if let Err(error) = upload.write(&part, &|_| {}).await {
                upload.abort().await;
                return Err(error.into());
            }
        }
        upload.finish().await?;
        crash_point("uploaded");
        Ok(())
    }

    /// Gives up, and removes what was sent.
    pub async fn abort(self) {
        self.upload.abort().await;
    }
}

fn misplaced(Misplaced: Misplaced) -> Error {
    Error::Changed { written: "whose bits were set", read: "of the parts that arrived" }
}
