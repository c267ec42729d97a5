//! Lookups: in a blob file, or in a filter of a server.

use std::ffi::{c_char, c_int};
use std::path::Path;

use bloomsday_common::blob::{OpenedBlob, Summary};
use bloomsday_common::store::open_file;
use bloomsday_server::FilterHandle;

use crate::failure::{Failure, guarded, guarded_value};
use crate::pointers::{give, object, slice, take, text, text_for_c, write_all};

/// How many IDs of a batch are looked up at once.
const CHUNK: usize = 1_024;

/// A set of IDs to look up: a blob file that was opened, or a filter of a server. Any number of
/// threads may use it at the same time.
#[derive(Debug)]
pub struct BloomsdayFilter(Source);

#[derive(Debug)]
enum Source {
    File(Box<OpenedBlob>),
    Served(FilterHandle),
}

impl BloomsdayFilter {
    pub(crate) fn served(handle: FilterHandle) -> BloomsdayFilter {
        BloomsdayFilter(Source::Served(handle))
    }

    fn contains(&self, id: &[u8]) -> bool {
        match &self.0 {
            Source::File(opened) => opened.filter.contains(id),
            Source::Served(handle) => handle.contains(id),
        }
    }

    fn contains_batch(&self, ids: &[&[u8]], answers: &mut [bool]) {
        match &self.0 {
            Source::File(opened) => drop(opened.filter.contains_batch(ids, answers)),
            Source::Served(handle) => handle.contains_batch(ids, answers),
        }
    }
}

/// Opens a blob file: every byte is read and checked. `*filter` is the filter, to be closed by
/// `bloomsday_close`, or NULL after an error.
///
/// # Safety
/// `path` is text that ends with a zero, and `filter` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_open(
    path: *const c_char,
    filter: *mut *mut BloomsdayFilter,
) -> c_int {
    guarded(|| {
        // SAFETY: `text` needs a text with an end, and `give` a place that can be written to, or
        // NULL: both are demanded above.
        unsafe {
            give("filter", filter, || {
                let path = text("path", path)?;
                let opened = open_file(Path::new(path))?;
                Ok(BloomsdayFilter(Source::File(Box::new(opened))))
            })
        }
    })
}

/// Whether an ID may be in the set: 1, or 0 if it is certainly not. An ID has 1 to 1,024 bytes; any
/// other length is 0. -1 when an argument is not valid, such as NULL; `bloomsday_last_error` says
/// which.
///
/// C takes -1 for true: write `if (bloomsday_contains(filter, id, bytes) == 1)`.
///
/// # Safety
/// `filter` is open, and `id` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_contains(
    filter: *const BloomsdayFilter,
    id: *const u8,
    bytes: usize,
) -> c_int {
    let answer = guarded_value(|| {
        // SAFETY: `object` needs a filter that was opened and not closed, `slice` as many bytes as
        // it is told, or NULL: both are demanded above.
        let (filter, id) = unsafe { (object("filter", filter)?, slice("id", id, bytes)?) };
        Ok(filter.contains(id))
    });
    answer.map_or(-1, c_int::from)
}

/// Looks up `n` IDs: `answers[i]` is 1 or 0 for the bytes from `offsets[i]` to `offsets[i + 1]`, as
/// `bloomsday_contains` has it. There are `n + 1` offsets, as in an Arrow column of strings. This
/// is several times as fast as one at a time.
///
/// After an error the answers mean nothing.
///
/// # Safety
/// `filter` is open, `bytes` has `n_bytes` bytes, `offsets` has `n + 1` elements, `answers` has
/// room for `n`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_contains_batch(
    filter: *const BloomsdayFilter,
    bytes: *const u8,
    n_bytes: usize,
    offsets: *const i32,
    n: usize,
    answers: *mut u8,
) -> c_int {
    // SAFETY: `batch` demands what this function demands, and gets its arguments as they came.
    guarded(|| unsafe { batch(filter, (bytes, n_bytes), offsets, n, answers) })
}

/// The same with offsets of 64 bits, as in an Arrow column of large strings.
///
/// # Safety
/// As for `bloomsday_contains_batch`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_contains_batch64(
    filter: *const BloomsdayFilter,
    bytes: *const u8,
    n_bytes: usize,
    offsets: *const i64,
    n: usize,
    answers: *mut u8,
) -> c_int {
    // SAFETY: `batch` demands what this function demands, and gets its arguments as they came.
    guarded(|| unsafe { batch(filter, (bytes, n_bytes), offsets, n, answers) })
}

/// # Safety
/// As for `bloomsday_contains_batch`.
unsafe fn batch<O: Copy + TryInto<usize>>(
    filter: *const BloomsdayFilter,
    (bytes, n_bytes): (*const u8, usize),
    offsets: *const O,
    n: usize,
    answers: *mut u8,
) -> Result<(), Failure> {
    let n_offsets = n.checked_add(1).ok_or_else(|| Failure::usage("n is too large"))?;
    // SAFETY: `object` needs a filter that was opened and not closed, `slice` as many elements as
    // it is told, or NULL. The caller promises that for `n_bytes` bytes and `n + 1` offsets.
    let (filter, bytes, offsets) = unsafe {
        (
            object("filter", filter)?,
            slice("bytes", bytes, n_bytes)?,
            slice("offsets", offsets, n_offsets)?,
        )
    };
    let id = |i: usize| {
        let (start, end) = (offsets[i].try_into().ok()?, offsets[i + 1].try_into().ok()?);
        bytes.get(start..end)
    };
    let mut ids: [&[u8]; CHUNK] = [&[]; CHUNK];
    let (mut found, mut values) = ([false; CHUNK], [0_u8; CHUNK]);
    for start in (0..n).step_by(CHUNK) {
        let count = CHUNK.min(n - start);
        for (i, place) in (start..).zip(&mut ids[..count]) {
            *place = id(i).ok_or_else(|| {
                Failure::usage(format!(
                    "offsets {i} and {} are not in order and within the {n_bytes} bytes",
                    i + 1
                ))
            })?;
        }
        filter.contains_batch(&ids[..count], &mut found[..count]);
        values.iter_mut().zip(found).for_each(|(value, found)| *value = found.into());
        // SAFETY: the caller has room for `n` answers, and `start + count` is at most `n`. `values`
        // is on this function's stack, so that both do not overlap.
        unsafe { write_all("answers", answers, start, &values[..count])? };
    }
    Ok(())
}

/// What is known about a filter, as a JSON object: of a file its header, of a server's filter its
/// status. To be freed by `bloomsday_free`; NULL after an error, of which `bloomsday_last_code` has
/// the code.
///
/// # Safety
/// `filter` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_describe(filter: *const BloomsdayFilter) -> *mut c_char {
    let text = guarded_value(|| {
        // SAFETY: `object` needs a filter that was opened and not closed, or NULL: it is demanded
        // above.
        let filter = unsafe { object("filter", filter)? };
        text_for_c(match &filter.0 {
            Source::File(opened) => {
                let OpenedBlob { key, header, filter } = &**opened;
                let summary = Summary::of(key, header, filter);
                serde_json::to_string(&summary).expect("a summary has JSON")
            }
            Source::Served(handle) => {
                serde_json::to_string(&handle.status()).expect("a status has JSON")
            }
        })
    });
    text.unwrap_or(std::ptr::null_mut())
}

/// Closes a filter. NULL is nothing. A filter of a server is closed without ending the server.
///
/// # Safety
/// No other thread uses it, and nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_close(filter: *mut BloomsdayFilter) {
    let _ = guarded(|| {
        // SAFETY: every filter that C has was made by `give`. The caller promises that nobody uses
        // it now or later, so this is the first `take` of it.
        unsafe { take(filter) };
        Ok(())
    });
}
