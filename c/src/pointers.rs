//! What C gives and gets. Every pointer that comes in is checked for NULL here, and becomes a
//! reference.

use std::ffi::{CStr, CString, c_char};
use std::ptr;

use crate::failure::Failure;

/// A text that C gives.
///
/// # Safety
/// NULL, or text that ends with a zero and does not change during the call.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::usage(format!("{name} is NULL")));
    }
    // SAFETY: it is not NULL. The caller promises a zero at its end, and bytes that nobody changes
    // while the result is used, which is during the call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::usage(format!("{name} has bytes that are no UTF-8")))
}

/// `n` elements that C gives. NULL is an empty slice if `n` is 0.
///
/// # Safety
/// NULL, or `n` elements that are initialized, aligned, and do not change during the call.
pub(crate) unsafe fn slice<'a, T>(
    name: &str,
    elements: *const T,
    n: usize,
) -> Result<&'a [T], Failure> {
    check::<T>(name, elements, n)?;
    if n == 0 {
        return Ok(&[]);
    }
    // SAFETY: `check` found that it is not NULL, is aligned, and that `n` elements are no more than
    // `isize::MAX` bytes. The caller promises that so many are there, initialized, and unchanged
    // during the call.
    Ok(unsafe { std::slice::from_raw_parts(elements, n) })
}

/// Writes `values` to where C wants them.
///
/// # Safety
/// `place` has room for as many, and no other thread uses it during the call.
pub(crate) unsafe fn write_all<T: Copy>(
    name: &str,
    place: *mut T,
    offset: usize,
    values: &[T],
) -> Result<(), Failure> {
    check::<T>(name, place, offset + values.len())?;
    if !values.is_empty() {
        // SAFETY: `check` found that it is not NULL and is aligned. The caller has room for
        // `offset` and all `values`, in memory that nobody else uses: so it is not that of
        // `values`, which this library has.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), place.add(offset), values.len()) };
    }
    Ok(())
}

fn check<T>(name: &str, place: *const T, n: usize) -> Result<(), Failure> {
    if n > 0 && place.is_null() {
        return Err(Failure::usage(format!("{name} is NULL")));
    }
    if !place.is_aligned() {
        return Err(Failure::usage(format!("{name} is not aligned to its type")));
    }
    match n.checked_mul(size_of::<T>()) {
        Some(bytes) if isize::try_from(bytes).is_ok() => Ok(()),
        _ => Err(Failure::usage(format!("{name} cannot have {n} elements"))),
    }
}

/// An object of this library that C gives back.
///
/// # Safety
/// NULL, or what [`give`] wrote and [`take`] did not take yet.
pub(crate) unsafe fn object<'a, T>(name: &str, object: *const T) -> Result<&'a T, Failure> {
    // SAFETY: NULL gives `None`. Anything else was made by `Box::into_raw` in `give`, so it is
    // aligned and initialized; it is alive, because nobody took it yet; and until then this library
    // makes only shared references.
    unsafe { object.as_ref() }.ok_or_else(|| Failure::usage(format!("{name} is NULL")))
}

/// Gives C an object: `make` is called when there is a place for it.
///
/// # Safety
/// `place` is NULL, or can be written to.
pub(crate) unsafe fn give<T>(
    name: &str,
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    check(name, place, 1)?;
    // SAFETY: `check` found that it is not NULL and is aligned; the caller promises that it can be
    // written to.
    unsafe { place.write(ptr::null_mut()) };
    let object = Box::into_raw(Box::new(make()?));
    // SAFETY: as for the write of NULL: it is the same place.
    unsafe { place.write(object) };
    Ok(())
}

/// Takes an object back and ends it. NULL is nothing.
///
/// # Safety
/// NULL, or what [`give`] wrote and nobody took yet; no other thread uses it.
pub(crate) unsafe fn take<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: it was made by `Box::into_raw` in `give` with this type. The caller promises that
        // nobody took it before and nobody uses it, so the box has one owner.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// Gives C a text, to be freed by `bloomsday_free`.
pub(crate) fn text_for_c(text: String) -> Result<*mut c_char, Failure> {
    let text = CString::new(text).map_err(|_| Failure::usage("a text has a zero in it"))?;
    Ok(text.into_raw())
}

/// Frees a text that a function of this library returned. NULL is nothing.
///
/// # Safety
/// NULL, or a text that this library returned to be freed, once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: it was made by `CString::into_raw` in `text_for_c`, and the caller gives it up.
        drop(unsafe { CString::from_raw(text) });
    }
}
