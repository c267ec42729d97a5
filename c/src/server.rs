//! A server: the library with its poller, which follows the pointers of a store.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};

use bloomsday_server::error::Error;
use bloomsday_server::{Bloomsday, start, start_unloaded};
use tokio::runtime::{Builder, Runtime};

use crate::config::Start;
use crate::failure::{BLOOMSDAY_FAILED, BLOOMSDAY_TRY_AGAIN, Failure, guarded, guarded_value};
use crate::filter::BloomsdayFilter;
use crate::pointers::{give, object, take, text, text_for_c};

/// Filters of a store, kept up to date by threads of the library. Any number of threads may use it
/// at the same time.
///
/// After a `fork` the child may look up in filters that it has, and nothing else: the threads are
/// in the parent.
#[derive(Debug)]
pub struct BloomsdayServer {
    bloomsday: Bloomsday,
    /// `None` when it ends.
    runtime: Option<Runtime>,
}

impl Drop for BloomsdayServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A load under way may take minutes.
            runtime.shutdown_background();
        }
    }
}

fn failure(error: Error) -> Failure {
    match error {
        Error::NotReady { .. } | Error::Busy => {
            Failure::new(BLOOMSDAY_TRY_AGAIN, error.to_string())
        }
        Error::Stopped | Error::System { .. } => Failure::new(BLOOMSDAY_FAILED, error.to_string()),
        _ => Failure::of_kind(error.kind(), error.to_string()),
    }
}

/// Starts a server, and waits until every filter is loaded. `config` is a JSON object:
///
/// {"store": "s3://ads-filters/prod", "filters": ["rt"], "cache_dir": "/var/cache/bidder"}
///
/// `*server` is the server, to be ended by `bloomsday_stop`, or NULL after an error.
///
/// # Safety
/// `config` is text that ends with a zero, and `server` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_start(
    config: *const c_char,
    server: *mut *mut BloomsdayServer,
) -> c_int {
    guarded(|| {
        // SAFETY: `text` needs a text with an end, and `give` a place that can be written to, or
        // NULL: both are demanded above.
        unsafe {
            give("server", server, || {
                let Start { config, wait } = Start::parse(text("config", config)?)?;
                let runtime = Builder::new_multi_thread()
                    .worker_threads(1)
                    .thread_name("bloomsday-c")
                    .enable_all()
                    .build()
                    .map_err(|error| {
                        Failure::new(BLOOMSDAY_FAILED, format!("cannot start threads: {error}"))
                    })?;
                let bloomsday =
                    if wait { runtime.block_on(start(config)) } else { start_unloaded(config) };
                match bloomsday {
                    Ok(bloomsday) => Ok(BloomsdayServer { bloomsday, runtime: Some(runtime) }),
                    Err(error) => {
                        runtime.shutdown_background();
                        Err(failure(error))
                    }
                }
            })
        }
    })
}

/// A filter of a server, to be closed by `bloomsday_close`. Its lookups wait for no load and no
/// swap, and go on after the server was stopped. `*filter` is NULL after an error.
///
/// # Safety
/// `server` is started, `name` is text that ends with a zero, and `filter` can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_filter(
    server: *const BloomsdayServer,
    name: *const c_char,
    filter: *mut *mut BloomsdayFilter,
) -> c_int {
    guarded(|| {
        // SAFETY: `object` needs a server that was started and not stopped, `text` a text with an
        // end, and `give` a place that can be written to; or NULL each. All three are demanded
        // above.
        unsafe {
            give("filter", filter, || {
                let server = object("server", server)?;
                let handle = server.bloomsday.filter(text("name", name)?).map_err(failure)?;
                Ok(BloomsdayFilter::served(handle))
            })
        }
    })
}

/// Polls the store now, for one filter, or for all if `filter` is NULL; with `force` other than 0
/// past the guard. What each did is returned as a JSON list, to be freed by `bloomsday_free`:
/// `outcome` is "swapped", "unchanged", "held" or "failed". NULL after an error, of which
/// `bloomsday_last_code` has the code.
///
/// # Safety
/// `server` is started, and `filter` is NULL or text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_reload(
    server: *const BloomsdayServer,
    filter: *const c_char,
    force: c_int,
) -> *mut c_char {
    let reloaded = guarded_value(|| {
        // SAFETY: `object` needs a server that was started and not stopped, or NULL: it is demanded
        // above.
        let server = unsafe { object("server", server)? };
        let name = if filter.is_null() {
            None
        } else {
            // SAFETY: it is not NULL, so it is a text with an end, by what is demanded above.
            Some(unsafe { text("filter", filter)? })
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|error| {
            Failure::new(BLOOMSDAY_FAILED, format!("cannot wait for the reload: {error}"))
        })?;
        let reloaded = runtime.block_on(async {
            match (name, force) {
                (Some(name), 0) => server.bloomsday.reload_filter(name).await,
                (None, 0) => server.bloomsday.reload().await,
                (name, _) => server.bloomsday.force_reload(name).await,
            }
        });
        let reloaded = reloaded.map_err(failure)?;
        text_for_c(serde_json::to_string(&reloaded).expect("what a reload did has JSON"))
    });
    reloaded.unwrap_or(std::ptr::null_mut())
}

/// The status of every filter, as a JSON object by name, to be freed by `bloomsday_free`. NULL
/// after an error, of which `bloomsday_last_code` has the code.
///
/// # Safety
/// `server` is started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_status(server: *const BloomsdayServer) -> *mut c_char {
    let status = guarded_value(|| {
        // SAFETY: `object` needs a server that was started and not stopped, or NULL: it is demanded
        // above.
        let filters = unsafe { object("server", server)? }.bloomsday.status();
        let by_name: BTreeMap<_, _> =
            filters.iter().map(|status| (status.filter.as_str(), status)).collect();
        text_for_c(serde_json::to_string(&by_name).expect("a status has JSON"))
    });
    status.unwrap_or(std::ptr::null_mut())
}

/// Ends a server's threads. NULL is nothing. Filters of it go on answering from what they have.
///
/// # Safety
/// No other thread uses the server, and nobody uses it afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bloomsday_stop(server: *mut BloomsdayServer) {
    let _ = guarded(|| {
        // SAFETY: every server that C has was made by `give`. The caller promises that nobody uses
        // it now or later, so this is the first `take` of it.
        unsafe { take(server) };
        Ok(())
    });
}
