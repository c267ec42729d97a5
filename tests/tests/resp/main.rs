//! Redis's protocol: commands, wording, who may connect, real clients, near duplicates.

mod access;
mod clients;
mod commands;
mod full_disk;
mod kill;
mod near;
mod wording;
