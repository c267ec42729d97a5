//! [`Filter`]: a blob file, opened and checked, for lookups.

use std::path::PathBuf;

use bloomsday_common::blob::{Header, Summary};
use bloomsday_common::digest::Digest;
use bloomsday_common::filter;
use bloomsday_common::key::BlobKey;
use bloomsday_common::store::open_file;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::errors;
use crate::ids::{self, Lookup};

/// An immutable set of IDs, read from a blob file. Every byte is checked before the first answer.
#[pyclass(frozen, module = "bloomsday")]
#[derive(Debug)]
pub(crate) struct Filter {
    path: PathBuf,
    key: BlobKey,
    header: Header,
    /// Boxed: it begins on a cache line, and Python aligns its objects to 16 bytes only.
    filter: Box<filter::Filter>,
}

const _: () = assert!(align_of::<Filter>() <= 16, "Python does not align its objects to more");

impl Filter {
    /// What the blob says about itself, and its bits.
    pub(crate) fn parts(&self) -> (&Header, &filter::Filter) {
        (&self.header, &self.filter)
    }

    /// The name of its file, for messages.
    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
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
    /// Opens a blob file.
    #[classmethod]
    #[pyo3(signature = (path, digest=None))]
    fn open(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        digest: Option<String>,
    ) -> PyResult<Filter> {
        let path = std::path::absolute(&path).unwrap_or(path);
        let digest = digest.map(|text| text.parse::<Digest>());
        let digest = digest.transpose().map_err(|why| errors::raise(py, "UsageError", why))?;
        let opened = py.detach(|| open_file(&path, digest));
        let (key, header, filter) = opened.map_err(|error| errors::of_file(py, &error, &path))?;
        Ok(Filter { path, key, header, filter: Box::new(filter) })
    }

    #[inline]
    fn __contains__(&self, id: &Bound<'_, PyAny>) -> PyResult<bool> {
        ids::contains(self, id)
    }

    /// Looks up many IDs.
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

    /// The file that it was read from.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// By path and digest: a filter is too large to copy, and its file says what is in it.
    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
    ) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyTuple>)> {
        let open = slf.get_type().getattr("open")?;
        let path = slf.get().path.as_os_str().into_pyobject(slf.py())?;
        let digest = slf.get().key.digest.to_string();
        Ok((open, (path, digest).into_pyobject(slf.py())?))
    }

    fn __repr__(&self) -> String {
        let Filter { header, key, .. } = self;
        let (name, day, ids, digest) = (&header.filter, header.day, header.ids, key.digest.short());
        format!("<bloomsday.Filter {name} of {day}, {ids} IDs, digest {digest}…>")
    }
}
