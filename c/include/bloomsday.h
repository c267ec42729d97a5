#ifndef BLOOMSDAY_H
#define BLOOMSDAY_H

#include <stddef.h>
#include <stdint.h>

// Done.
#define BLOOMSDAY_OK 0

// Failed, and no other code fits.
#define BLOOMSDAY_FAILED 1

// An argument or a setting is not valid.
#define BLOOMSDAY_USAGE 2

// There is no such file, store or filter.
#define BLOOMSDAY_NOT_FOUND 4

// The file is damaged, is not a blob, or is of a newer version.
#define BLOOMSDAY_CORRUPT 7

// A bug of the library. The objects of the call must not be used any more.
#define BLOOMSDAY_BUG 70

// The same call may succeed later.
#define BLOOMSDAY_TRY_AGAIN 75

// A set of IDs to look up: a blob file that was opened, or a filter of a server. Any number of
// threads may use it at the same time.
typedef struct bloomsday_filter_t bloomsday_filter_t;

// Filters of a store, kept up to date by threads of the library. Any number of threads may use it
// at the same time.
//
// After a `fork` the child may look up in filters that it has, and nothing else: the threads are
// in the parent.
typedef struct bloomsday_server_t bloomsday_server_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Why the last call of this thread that failed did so: a sentence in UTF-8, with a remedy where
// there is one. NULL when none failed. It stays until another call of this thread fails; do not
// free it.
const char *bloomsday_last_error(void);

// The code of the last call of this thread that failed: for a function that returned NULL or -1.
// BLOOMSDAY_OK when none failed. It stays until another call of this thread fails, so ask only
// after an error.
int bloomsday_last_code(void);

// The version of the library, such as "0.1.0". Do not free it.
const char *bloomsday_version(void);

// Opens a blob file: every byte is read and checked. `*filter` is the filter, to be closed by
// `bloomsday_close`, or NULL after an error.
//
// The caller promises:
// `path` is text that ends with a zero, and `filter` can be written to.
int bloomsday_open(const char *path, bloomsday_filter_t **filter);

// Whether an ID may be in the set: 1, or 0 if it is certainly not. An ID has 1 to 1,024 bytes; any
// other length is 0. -1 when an argument is not valid, such as NULL; `bloomsday_last_error` says
// which.
//
// C takes -1 for true: write `if (bloomsday_contains(filter, id, bytes) == 1)`.
//
// The caller promises:
// `filter` is open, and `id` has `bytes` bytes.
int bloomsday_contains(const bloomsday_filter_t *filter, const uint8_t *id, size_t bytes);

// Looks up `n` IDs: `answers[i]` is 1 or 0 for the bytes from `offsets[i]` to `offsets[i + 1]`, as
// `bloomsday_contains` has it. There are `n + 1` offsets, as in an Arrow column of strings. This
// is several times as fast as one at a time.
//
// After an error the answers mean nothing.
//
// The caller promises:
// `filter` is open, `bytes` has `n_bytes` bytes, `offsets` has `n + 1` elements, `answers` has
// room for `n`.
int bloomsday_contains_batch(const bloomsday_filter_t *filter,
                             const uint8_t *bytes,
                             size_t n_bytes,
                             const int32_t *offsets,
                             size_t n,
                             uint8_t *answers);

// The same with offsets of 64 bits, as in an Arrow column of large strings.
//
// The caller promises:
// As for `bloomsday_contains_batch`.
int bloomsday_contains_batch64(const bloomsday_filter_t *filter,
                               const uint8_t *bytes,
                               size_t n_bytes,
                               const int64_t *offsets,
                               size_t n,
                               uint8_t *answers);

// What is known about a filter, as a JSON object: of a file its header, of a server's filter its
// status. To be freed by `bloomsday_free`; NULL after an error, of which `bloomsday_last_code` has
// the code.
//
// The caller promises:
// `filter` is open.
char *bloomsday_describe(const bloomsday_filter_t *filter);

// Closes a filter. NULL is nothing. A filter of a server is closed without ending the server.
//
// The caller promises:
// No other thread uses it, and nobody uses it afterwards.
void bloomsday_close(bloomsday_filter_t *filter);

// Starts a server, and waits until every filter is loaded. `config` is a JSON object:
//
// {"store": "s3://ads-filters/prod", "filters": ["rt"], "cache_dir": "/var/cache/bidder"}
//
// `*server` is the server, to be ended by `bloomsday_stop`, or NULL after an error.
//
// The caller promises:
// `config` is text that ends with a zero, and `server` can be written to.
int bloomsday_start(const char *config, bloomsday_server_t **server);

// A filter of a server, to be closed by `bloomsday_close`. Its lookups wait for no load and no
// swap, and go on after the server was stopped. `*filter` is NULL after an error.
//
// The caller promises:
// `server` is started, `name` is text that ends with a zero, and `filter` can be written to.
int bloomsday_filter(const bloomsday_server_t *server,
                     const char *name,
                     bloomsday_filter_t **filter);

// Polls the store now, for one filter, or for all if `filter` is NULL; with `force` other than 0
// past the guard. What each did is returned as a JSON list, to be freed by `bloomsday_free`:
// `outcome` is "swapped", "unchanged", "held" or "failed". NULL after an error, of which
// `bloomsday_last_code` has the code.
//
// The caller promises:
// `server` is started, and `filter` is NULL or text that ends with a zero.
char *bloomsday_reload(const bloomsday_server_t *server, const char *filter, int force);

// The status of every filter, as a JSON object by name, to be freed by `bloomsday_free`. NULL
// after an error, of which `bloomsday_last_code` has the code.
//
// The caller promises:
// `server` is started.
char *bloomsday_status(const bloomsday_server_t *server);

// Ends a server's threads. NULL is nothing. Filters of it go on answering from what they have.
//
// The caller promises:
// No other thread uses the server, and nobody uses it afterwards.
void bloomsday_stop(bloomsday_server_t *server);

// Frees a text that a function of this library returned. NULL is nothing.
//
// The caller promises:
// NULL, or a text that this library returned to be freed, once.
void bloomsday_free(char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BLOOMSDAY_H */
