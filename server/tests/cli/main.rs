//! The binary as people and scripts meet it: its lines, its exit codes, its memory, and its death.

#[path = "../client/mod.rs"]
mod client;

mod env;
mod exit;
mod kill;
mod log;
mod memory;
mod process;
mod upstream;
