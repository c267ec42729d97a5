//! [`Job`]: what to build, and [`Progress`]: how far the build is.

use std::path::PathBuf;

use bloomsday_common::day::Day;
use bloomsday_common::filter::Layout;
use bloomsday_common::id_form::IdForm;
use bloomsday_common::key::FilterName;
use bloomsday_common::protocol::Retention;
use bloomsday_common::remedy::Remedy;
use jiff::Timestamp;

use crate::budget::default_memory;
use crate::gates::Gates;
use crate::scan;
use crate::source::Window;

/// The most threads of a build: each has buffers of its own.
pub const MAX_THREADS: usize = 1024;

/// One build: its input, the filter's size, and the limits that apply.
///
/// ```
/// use bloomsday_builder::Job;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let inputs = vec!["s3://ads/ids/dt={day}/*.parquet".into()];
/// let job = Job {
///     fpp: 0.01,
///     by: "nightly@batch-1".into(),
///     ..Job::new("retargeting".parse()?, "2026-11-19".parse()?, inputs, "user_id".into())
/// };
/// job.window.check(&job.inputs)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    /// The filter to build.
    pub filter: FilterName,
    /// The day that the filter is for.
    pub day: Day,
    /// Files, folders or globs, as paths or URLs. The builder replaces `{day}` in them.
    pub inputs: Vec<String>,
    /// How many days of input the filter covers.
    pub window: Window,
    /// The column with the IDs. A value in nested structs has a dotted name: `user.device.id`.
    pub column: String,
    /// What is hashed of the IDs. Servers must look them up in the same way: the blob's header says
    /// it.
    pub id_form: IdForm,
    /// The false-positive probability that determines the filter's size.
    pub fpp: f64,
    /// How the filter arranges its bits.
    pub layout: Layout,
    /// The memory budget of the build, in bytes. Hashes that do not fit go to a temporary file in
    /// `spill_folder`. The filter and the copy that is read back must fit in memory.
    pub memory: u64,
    /// The folder for the temporary file.
    pub spill_folder: PathBuf,
    /// The number of threads that decode, deduplicate and fill: 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// Who runs the build. The history and the pointer record it.
    pub by: String,
    /// The limits for the day's numbers.
    pub gates: Gates,
    /// The reason to publish a day that fails a gate. With `None` such a day is refused.
    pub accept_change: Option<String>,
    /// How long the store keeps blobs. A blob that prune may soon delete is uploaded again.
    pub retention: Retention,
    /// Which deltas are made.
    pub deltas: Deltas,
    /// How the report and the history say what to do about a refusal: `Remedy::to_string`, or the
    /// words of a program with commands of its own.
    pub remedy_words: fn(&Remedy) -> String,
    /// Build and check the filter, but write nothing to the store.
    pub dry_run: bool,
    /// When a schedule wanted the build: an equal end in the history from before is another run's.
    pub due: Option<Timestamp>,
}

impl Job {
    /// A build with the usual settings: one day of input, an fpp of 3 %, the default gates, no
    /// deltas, all cores, three quarters of the memory that is left now, and the system's folder
    /// for what is spilled. The history names `bloomsday-builder`.
    pub fn new(filter: FilterName, day: Day, inputs: Vec<String>, column: String) -> Job {
        Job {
            filter,
            day,
            inputs,
            window: Window::default(),
            column,
            id_form: IdForm::default(),
            fpp: 0.03,
            layout: Layout::Blocked,
            memory: default_memory(),
            spill_folder: std::env::temp_dir(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            by: env!("CARGO_PKG_NAME").to_owned(),
            gates: Gates::default(),
            accept_change: None,
            retention: Retention::default(),
            deltas: Deltas::default(),
            remedy_words: Remedy::to_string,
            dry_run: false,
            due: None,
        }
    }
}

/// The most earlier days from whose blobs a build makes deltas. The day's own blob before comes on
/// top.
pub const MAX_DELTA_DAYS: u32 = 14;

/// Which deltas a build makes.
///
/// ```
/// use bloomsday_builder::{Deltas, ShapeChoice};
///
/// assert_eq!(Deltas::default(), Deltas::of(0));
/// assert_eq!(Deltas::of(3), Deltas { bases: 3, shape: ShapeChoice::Carried });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deltas {
    /// From the blobs of this many earlier days, at most [`MAX_DELTA_DAYS`]; if not 0, also from
    /// the day's own blob before.
    pub bases: u32,
    /// The shape of the filter. There is no delta between two shapes.
    pub shape: ShapeChoice,
}

impl Deltas {
    /// For the blobs of `bases` earlier days. With any, the shape of the blob before is carried.
    pub fn of(bases: u32) -> Deltas {
        let shape = if bases == 0 { ShapeChoice::Exact } else { ShapeChoice::Carried };
        Deltas { bases, shape }
    }
}

/// Which shape a build gives the filter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShapeChoice {
    /// The smallest that meets the target.
    #[default]
    Exact,
    /// That of the blob before while it fits, else a new one with headroom for the next days.
    Carried,
    /// A new one with headroom, although that of the blob before may fit.
    Fresh,
}

/// The step that a build has reached.
#[derive(Clone, Copy, Debug)]
pub enum Progress {
    /// The build reads the input.
    Scan(scan::ScanProgress),
    /// The build removes duplicates and counts the IDs.
    Count,
    /// The build sets the filter's bits.
    Fill,
    /// The build uploads the blob: bytes sent so far, and bytes in total.
    Upload(u64, u64),
    /// The build looks up every ID in the bytes that it read back.
    Verify,
}
