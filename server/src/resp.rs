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
//! | `dispatch` | runs requests in order; transactions |
//! | `pipeline` | many adds or lookups of one filter at once |
//! | `commands`, `command` | what each command does; one entry of their table |
//! | `session` | the state of one connection |
//! | `shared` | what all connections share |
//! | `reply` | values to bytes |

mod command;
mod commands;
mod dispatch;
mod listen;
mod pipeline;
mod reply;
mod request;
mod session;
mod shared;

pub use self::listen::{Resp, RespConfig, serve};
