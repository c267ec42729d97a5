//! What several servers share: the logs of live IDs in the store, and which server decides what is
//! new.
//!
//! | module | contents |
//! |---|---|
//! | `role` | what a process does with the live IDs of a filter |
//! | `lease` | which server decides what is new: the lease in the store |
//! | `access` | whether this process may change a set, and why not |
//! | `ship`, `ship_status` | the log of a set → segments in the store |
//! | `follow`, `stored_logs` | the segments of other servers in the store → a set, and once more after a rollback |
//! | `segment_fetch` | fetches the segments of other servers |
//! | `sharing` | the thread that follows and keeps leases |
//! | `store_call`, `failure` | a call of the store that may take only so long, and whether its error is to be logged |
//! | `task_context` | what the tasks of one shared set work with |
//! | `task_thread` | a thread with tasks that go on for as long as a process runs |

pub(super) mod access;
mod failure;
pub(super) mod follow;
pub(super) mod lease;
pub(super) mod role;
mod segment_fetch;
pub(super) mod sharing;
pub(super) mod ship;
pub(super) mod ship_status;
pub(super) mod store_call;
pub(super) mod stored_logs;
pub(super) mod task_context;
mod task_thread;
