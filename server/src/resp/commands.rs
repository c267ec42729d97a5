//! What each command does, by family.
//!
//! | module | commands |
//! |---|---|
//! | `bloom`, `cuckoo`, `set` | BF.*, CF.*, those of Redis's sets |
//! | `window` | BLOOM.* |
//! | `near` | SIM.* |
//! | `keys`, `glob` | names, and their patterns |
//! | `connection`, `client` | the connection, and what is known of it |
//! | `info` | what the server says of itself |
//! | `items` | what the families share |

mod bloom;
mod client;
mod connection;
mod cuckoo;
pub(super) mod glob;
mod info;
mod items;
mod keys;
mod near;
mod set;
mod window;

use super::command::Command;

/// All families.
pub(super) const TABLES: [&[Command]; 9] = [
    bloom::COMMANDS,
    cuckoo::COMMANDS,
    set::COMMANDS,
    window::COMMANDS,
    near::COMMANDS,
    keys::COMMANDS,
    connection::COMMANDS,
    client::COMMANDS,
    info::COMMANDS,
];
