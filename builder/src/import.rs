//! [`import()`]: another system's filter → a published blob. The IDs are unknown, so only the bits
//! are checked: their number, and the rate that is measured with IDs that no filter contains.

use bloomsday_common::blob::{self, Header, Origin};
use bloomsday_common::day::Day;
use bloomsday_common::filter::{Filter, Layout};
use bloomsday_common::hash::{Murmur3, Spark, Xxh3};
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use bloomsday_common::memory::Buffer;
use bloomsday_common::protocol::Retention;
use bloomsday_common::remedy::Remedy;
use bloomsday_common::store::Store;
use jiff::Timestamp;

use crate::build_state::check_not_future;
use crate::error::Error;
use crate::publish::PointerSnapshot;
use crate::report::Report;
use crate::republish::{Republish, publish_whole};
use crate::timer::Timer;
use crate::{quality, verify};

/// The highest false-positive probability of an imported filter. Above it most lookups are hits.
const MAX_FPP: f64 = 0.5;

/// Another system's file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignFormat {
    /// What Guava's `BloomFilter.writeTo` writes.
    Guava,
    /// What `org.apache.spark.util.sketch.BloomFilter.writeTo` writes, version 1 or 2.
    Spark,
}

impl ForeignFormat {
    fn system(self) -> &'static str {
        match self {
            ForeignFormat::Guava => "Guava",
            ForeignFormat::Spark => "Spark",
        }
    }
}

/// What to import.
#[derive(Debug)]
pub struct Import {
    /// The filter to publish.
    pub filter: FilterName,
    /// The day that the filter is for.
    pub day: Day,
    /// What the other system hashed of an ID. Nobody can find that out from the file.
    pub id_form: IdForm,
    /// The format of the file.
    pub format: ForeignFormat,
    /// The content of the file.
    pub file: Buffer,
    /// The name of the file in messages.
    pub name: String,
    /// Who imports. The history and the pointer record it.
    pub by: String,
    /// How long the store keeps blobs. A blob that prune may soon delete is uploaded again.
    pub retention: Retention,
    /// How the report and the history say what to do about a refusal: `Remedy::to_string`, or the
    /// words of a program with commands of its own.
    pub remedy_words: fn(&Remedy) -> String,
    /// Check the file, but write nothing to the store.
    pub dry_run: bool,
}

/// Publishes another system's file as the filter of a day, with the same steps as a build.
///
/// ```
/// # use bloomsday_common::filter::{FilterMut, Layout, Shape};
/// # use bloomsday_common::hash::{IdHash, Murmur3};
/// use bloomsday_builder::{ForeignFormat, Import, import};
/// use bloomsday_common::memory::Buffer;
/// use bloomsday_common::protocol::Retention;
/// use bloomsday_common::remedy::Remedy;
/// use bloomsday_common::store::Store;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let shape = Shape::for_ids(Layout::Guava, 1_000, 0.01).expect("the shape is valid");
/// # let mut guava = FilterMut::new(shape)?;
/// # (0..1_000).for_each(|n| guava.insert(Murmur3::of(format!("u{n}").as_bytes())));
/// # let guava = guava.freeze();
/// # let written = guava.body();
/// // `written` is what Guava's `BloomFilter.writeTo` wrote.
/// let mut file = Buffer::zeroed(written.len())?;
/// file.copy_from_slice(written);
/// let job = Import {
///     filter: "rt".parse()?,
///     day: "2026-11-19".parse()?,
///     id_form: Default::default(),
///     format: ForeignFormat::Guava,
///     file,
///     name: "rt.guava".into(),
///     by: "ops@batch-1".into(),
///     retention: Retention::default(),
///     remedy_words: Remedy::to_string,
///     dry_run: false,
/// };
/// let folder = tempfile::tempdir()?;
/// let store = Store::open(folder.path().to_str().expect("it is UTF-8"))?;
/// let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// let report = runtime.block_on(import(job, &store))?;
/// assert!((950..1_050).contains(&report.ids)); // estimated from the bits
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::Foreign`]: the file is not one of that system's, or its filter is empty or too full. Or
/// the store fails.
pub async fn import(job: Import, store: &Store) -> Result<Report, Error> {
    let total = Timer::start();
    check_not_future(job.day, Timestamp::now())?;
    let start = PointerSnapshot::take(store, &job.filter, job.day).await?;
    let (file, system) = (job.name.clone(), job.format.system());
    let foreign = |why: String| Error::Foreign { system, file: file.clone(), why };
    let filter = match job.format {
        ForeignFormat::Guava => blob::import_guava(job.file),
        ForeignFormat::Spark => blob::import_spark(job.file),
    };
    let filter = filter.map_err(foreign)?;
    let header = describe(job.filter, job.day, job.id_form, &filter).map_err(foreign)?;
    let warning = quality::check_quality(&header, &filter)?;
    let blob = Republish {
        header: &header,
        filter: &filter,
        name: job.name,
        by: job.by,
        retention: job.retention,
        remedy_words: job.remedy_words,
        dry_run: job.dry_run,
    };
    publish_whole(&blob, "imported", warning, total, start, store).await
}

/// The header of a filter whose IDs are unknown: their number follows from the number of set bits.
fn describe(
    name: FilterName,
    day: Day,
    id_form: IdForm,
    filter: &Filter,
) -> Result<Header, String> {
    let shape = filter.shape();
    let ones = filter.count_ones();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let fill = ones as f64 / shape.bits() as f64;
    let rate = filter.fpp_of_bits();
    if ones == 0 {
        return Err("no bit is set: the filter is empty".into());
    }
    if rate <= 0.0 {
        let bits = shape.bits();
        return Err(format!(
            "{ones} of its {bits} bits are set, and a lookup tests {}: a rate of false positives so low is no \
             number that a blob can have; build the day from its IDs",
            shape.probes()
        ));
    }
    if rate > MAX_FPP {
        return Err(format!("{fill:.3} of its bits are set: most lookups would be hits"));
    }
    // Swamidass & Baldi 2007: n = −m/k · ln(1 − fill).
    let ids = -(shape.bits() as f64) / f64::from(shape.probes()) * (1.0 - fill).ln();
    Ok(Header {
        filter: name,
        day,
        shape,
        id_form,
        origin: Origin::Imported,
        ids: (ids.round() as u64).max(1),
        fpp_target: rate,
        fpp_hits: match shape.layout() {
            Layout::Blocked => verify::count_false_positives::<Xxh3>(filter, threads),
            Layout::Guava => verify::count_false_positives::<Murmur3>(filter, threads),
            Layout::Spark1 => verify::count_false_positives::<Spark<1>>(filter, threads),
            Layout::Spark2 => verify::count_false_positives::<Spark<2>>(filter, threads),
        },
        fpp_lookups: verify::ABSENT_LOOKUPS,
        ones,
    })
}

#[cfg(test)]
mod tests {
    use bloomsday_common::filter::{FilterMut, Shape};
    use bloomsday_common::hash::IdHash;

    use super::*;

    #[test]
    fn a_filter_whose_rate_is_too_low_for_a_number_is_refused() {
        let describe_with = |probes| {
            let mut filter =
                FilterMut::new(Shape::new(Layout::Guava, 1 << 14, probes).unwrap()).unwrap();
            filter.insert(Murmur3::of(b"the only ID"));
            describe(
                "rt".parse().unwrap(),
                "2026-11-19".parse().unwrap(),
                IdForm::Bytes,
                &filter.freeze(),
            )
        };
        assert!(describe_with(20).unwrap().fpp_target > 0.0);
        let refused = describe_with(100).unwrap_err();
        assert!(refused.contains("build the day from its IDs"), "{refused}");
    }
}
