//! Rules for the sources, deploy files, messages, secrets and the terminal.

mod architecture;
mod deploy;
mod first_day;
mod json_reference;
mod licences;
mod mistakes;
mod odd_places;
mod public_api;
mod secrets;
mod terminal;
