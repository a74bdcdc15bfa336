//! The repository's own rules, as pure functions over the text of its files.
//!
//! Each rule takes what it judges as an argument and returns its findings, one line each, empty when the
//! rule holds. `tests/house_rules.rs` applies every rule to this repository, and to small bad inputs.

pub mod imports;
pub mod manifest;
pub mod readme;
pub mod source;
