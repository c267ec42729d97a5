//! The live layer over Redis's protocol, RESP2 and RESP3: any Redis client adds IDs and looks them
//! up, without modules.
//!
//! It turns requests into changes and lookups of [`Live`](crate::live::Live) sets, and knows
//! nothing of tables or logs.
//!
//! | module | contents |
//! |---|---|
//! | `listen` | connections: reading, writing, limits, a graceful stop |
//! | `request` | bytes to requests |
//! | `session` | the state of one connection; runs requests in order |
//! | `hot` | many adds or lookups of one filter at once |
//! | `commands` | the table of commands, and what each does |
//! | `reply` | values to bytes |

mod commands;
mod hot;
mod listen;
mod reply;
mod request;
mod session;

pub use self::listen::{Resp, RespConfig, serve};
