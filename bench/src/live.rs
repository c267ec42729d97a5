//! Live filters.
//!
//! | module | contents |
//! |---|---|
//! | `speed` | adds over Redis's protocol, next to Redis and to a server that looks nothing up |
//! | `layer` | lookups in a day's filter, with and without 20 million live IDs over it |
//! | `table` | growth to 20 million entries, restarts, many clients, false positives |
//! | `peers` | what crawlers and click streams do with Redis today, done by both |
//! | `near` | near duplicates of texts among 50 million |
//! | `wire`, `echo` | servers and clients of these races |

mod echo;
pub(crate) mod layer;
pub(crate) mod near;
pub(crate) mod peers;
pub(crate) mod speed;
pub(crate) mod table;
mod wire;
