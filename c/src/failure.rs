//! Return codes, the code and the message of a thread's last error, and [`guarded`]: no panic goes
//! on into C.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use bloomsday_common::error::{Error, Kind};

/// Done.
pub const BLOOMSDAY_OK: c_int = 0;
/// Failed, and no other code fits.
pub const BLOOMSDAY_FAILED: c_int = 1;
/// An argument or a setting is not valid.
pub const BLOOMSDAY_USAGE: c_int = 2;
/// There is no such file, store or filter.
pub const BLOOMSDAY_NOT_FOUND: c_int = 4;
/// The file is damaged, is not a blob, or is of a newer version.
pub const BLOOMSDAY_CORRUPT: c_int = 7;
/// A bug of the library. The objects of the call must not be used any more.
pub const BLOOMSDAY_BUG: c_int = 70;
/// The same call may succeed later.
pub const BLOOMSDAY_TRY_AGAIN: c_int = 75;

thread_local! {
    static LAST: RefCell<(c_int, Option<CString>)> = const { RefCell::new((BLOOMSDAY_OK, None)) };
}

/// Why a call did not do what it is for.
#[derive(Debug)]
pub(crate) struct Failure {
    code: c_int,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: c_int, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure::new(BLOOMSDAY_USAGE, message)
    }

    pub(crate) fn of_kind(kind: Kind, message: String) -> Failure {
        let code = match kind {
            Kind::Usage => BLOOMSDAY_USAGE,
            Kind::NotFound => BLOOMSDAY_NOT_FOUND,
            Kind::Corrupt => BLOOMSDAY_CORRUPT,
            Kind::Transient => BLOOMSDAY_TRY_AGAIN,
            Kind::Superseded | Kind::Failed => BLOOMSDAY_FAILED,
        };
        Failure::new(code, message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::of_kind(error.kind(), error.to_string())
    }
}

/// Runs a call. Its failure becomes the thread's last error and a code.
pub(crate) fn guarded(call: impl FnOnce() -> Result<(), Failure>) -> c_int {
    match guarded_value(call) {
        Ok(()) => BLOOMSDAY_OK,
        Err(code) => code,
    }
}

/// The same for a call that returns something.
pub(crate) fn guarded_value<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, c_int> {
    let bug = |_| Failure::new(BLOOMSDAY_BUG, "a bug in libbloomsday: it panicked");
    let done = catch_unwind(AssertUnwindSafe(call)).map_err(bug).flatten();
    done.map_err(|failure| {
        // A zero would end the text too early.
        let text = CString::new(failure.message.replace('\0', "\\0")).ok();
        // While a thread ends, its last error may be gone already.
        let _ = LAST.try_with(|last| *last.borrow_mut() = (failure.code, text));
        failure.code
    })
}

/// Why the last call of this thread that failed did so: a sentence in UTF-8, with a remedy where
/// there is one. NULL when none failed. It stays until another call of this thread fails; do not
/// free it.
#[unsafe(no_mangle)]
pub extern "C" fn bloomsday_last_error() -> *const c_char {
    let text = LAST.try_with(|last| last.borrow().1.as_ref().map(|text| text.as_ptr()));
    text.ok().flatten().unwrap_or(ptr::null())
}

/// The code of the last call of this thread that failed: for a function that returned NULL or -1.
/// BLOOMSDAY_OK when none failed. It stays until another call of this thread fails, so ask only
/// after an error.
#[unsafe(no_mangle)]
pub extern "C" fn bloomsday_last_code() -> c_int {
    LAST.try_with(|last| last.borrow().0).unwrap_or(BLOOMSDAY_OK)
}

/// The version of the library, such as "0.1.0". Do not free it.
#[unsafe(no_mangle)]
pub extern "C" fn bloomsday_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
