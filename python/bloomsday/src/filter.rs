//! [`Filter`]: a blob, opened by its path or URL and checked, for lookups.

use std::ffi::OsStr;
use std::fmt::{self, Display};
use std::path::PathBuf;

use bloomsday_common::blob::{Header, OpenedBlob, Summary};
use bloomsday_common::digest::Digest;
use bloomsday_common::filter;
use bloomsday_common::key::BlobKey;
use bloomsday_common::redact::redact_urls;
use bloomsday_common::store::{open_file, open_url};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use tokio::runtime::Builder;

use crate::errors::{self, ErrorClass};
use crate::ids::{self, Lookup};
use crate::wait::{DetachedRuntime, wait};

/// An immutable set of IDs, read from a blob. Every byte is checked before the first answer.
///
/// >>> seen = Filter.open("rt/blobs/2026-11-19-9c41….bloom")
/// >>> "0f8fad5b-d9cb-469f-a165-70867728950e" in seen
/// True
/// >>> seen.contains_batch(["id-1", "id-2"])
/// [True, False]
#[pyclass(frozen, module = "bloomsday")]
#[derive(Debug)]
pub(crate) struct Filter {
    source: Source,
    key: BlobKey,
    header: Header,
    /// Boxed: it begins on a cache line, and Python aligns its objects to 16 bytes only.
    filter: Box<filter::Filter>,
}

/// Where a blob is.
#[derive(Debug)]
enum Source {
    File(PathBuf),
    Url(String),
}

impl Source {
    /// Opens and checks the blob, which must be that of `digest`.
    fn open(&self, py: Python<'_>, digest: Option<Digest>) -> PyResult<OpenedBlob> {
        let check = |key: &BlobKey| match digest.filter(|digest| *digest != key.digest) {
            None => Ok(()),
            Some(digest) => {
                let why =
                    format!("{self} is another blob than {digest}: its digest is {}", key.digest);
                Err(errors::new(py, ErrorClass::UnsoundBlob, &why))
            }
        };
        match self {
            Source::File(path) => {
                let opened = py.detach(|| open_file(path));
                let opened = opened.map_err(|error| errors::of_file(py, &error, path))?;
                check(&opened.key)?;
                Ok(opened)
            }
            Source::Url(url) => {
                let key = BlobKey::of_url(url).map_err(|error| errors::of_common(py, &error))?.1;
                check(&key)?;
                let runtime =
                    DetachedRuntime::from(Builder::new_current_thread().enable_all().build()?);
                let opened = wait(py, &runtime, || open_url(url))?;
                opened.map_err(|error| errors::of_common(py, &error))
            }
        }
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => path.display().fmt(f),
            Source::Url(url) => redact_urls(url).fmt(f),
        }
    }
}

const _: () = assert!(align_of::<Filter>() <= 16, "Python does not align its objects to more");

impl Filter {
    /// What the blob says about itself, and its bits.
    pub(crate) fn parts(&self) -> (&Header, &filter::Filter) {
        (&self.header, &self.filter)
    }

    /// The name of its file or its URL, for messages.
    pub(crate) fn name(&self) -> String {
        self.source.to_string()
    }
}

impl Lookup for Filter {
    #[inline]
    fn one(&self, id: &[u8]) -> bool {
        self.filter.contains(id)
    }

    fn many(&self, ids: &[&[u8]], answers: &mut [bool]) {
        self.filter.contains_batch(ids, answers);
    }
}

#[pymethods]
impl Filter {
    /// Opens a blob file, or a blob in a store: `STORE/FILTER/blobs/NAME`, such as
    /// `s3://ads/prod/rt/blobs/2026-11-19-9c41….bloom`. With `digest` (64 hex digits), it must be
    /// that blob.
    #[classmethod]
    #[pyo3(signature = (path_or_url, digest=None))]
    fn open(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        path_or_url: PathBuf,
        digest: Option<String>,
    ) -> PyResult<Filter> {
        let source = match path_or_url.to_str() {
            Some(url) if url.contains("://") => Source::Url(url.to_owned()),
            _ => Source::File(std::path::absolute(&path_or_url).unwrap_or(path_or_url)),
        };
        let digest = digest.map(|text| text.parse::<Digest>());
        let digest = digest.transpose().map_err(|why| errors::new(py, ErrorClass::Usage, why))?;
        let OpenedBlob { key, header, filter } = source.open(py, digest)?;
        Ok(Filter { source, key, header, filter: Box::new(filter) })
    }

    #[inline]
    fn __contains__(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        ids::contains(self, id)
    }

    /// Looks up many IDs. The answers have the kind of `ids`: a numpy array for numpy and pandas, a
    /// column of pyarrow or polars for theirs, `Answers` for other Arrow, else a list.
    fn contains_batch<'py>(&self, ids: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        ids::contains_batch(self, ids)
    }

    /// What the blob says about itself.
    #[getter]
    fn header<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let Filter { key, header, filter, .. } = self;
        let summary = Summary::of(key, header, filter);
        let date = py.import("datetime")?.getattr("date")?;
        let fields = PyDict::new(py);
        fields.set_item("filter", summary.filter.as_str())?;
        fields.set_item("day", date.call_method1("fromisoformat", (summary.day.to_string(),))?)?;
        fields.set_item("digest", summary.digest.to_string())?;
        fields.set_item("layout", summary.layout)?;
        fields.set_item("id", summary.id)?;
        fields.set_item("ids", summary.ids)?;
        fields.set_item("ids_estimated", summary.ids_estimated)?;
        fields.set_item("bytes", summary.bytes)?;
        fields.set_item("bits", summary.bits)?;
        fields.set_item("probes", summary.probes)?;
        fields.set_item("fpp_target", summary.fpp_target)?;
        fields.set_item("fpp_measured", summary.fpp_measured)?;
        fields.set_item("fill", summary.fill)?;
        fields.set_item("format", summary.format)?;
        py.import("bloomsday._header")?.getattr("Header")?.call((), Some(&fields))
    }

    /// The file that it was read from; `None` if it was a URL.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        match &self.source {
            Source::File(path) => Some(path.clone()),
            Source::Url(_) => None,
        }
    }

    /// By path or URL, and digest: a filter is too large to copy, and its blob says what is in it.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let open = slf.get_type().getattr("open")?;
        let source = match &slf.get().source {
            Source::File(path) => path.as_os_str(),
            Source::Url(url) => OsStr::new(url),
        };
        let digest = slf.get().key.digest.to_string();
        Ok((open, (source, digest).into_pyobject(slf.py())?))
    }

    /// It does not change, so that a copy is the same.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(&self) -> String {
        let Filter { header, key, .. } = self;
        let (name, day, ids, digest) = (&header.filter, header.day, header.ids, key.digest.short());
        format!("<bloomsday.Filter {name} of {day}, {ids} IDs, digest {digest}…>")
    }
}
