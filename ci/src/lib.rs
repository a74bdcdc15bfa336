//! What the repository asks of itself: its rules as pure functions over the text of its files, and what its
//! bench and its campaigns share.
//!
//! Each rule takes what it judges as an argument and returns its findings, one line each, empty when the
//! rule holds. `tests/house_rules.rs` applies every rule to this repository, and to small bad inputs.

pub mod clock;
pub mod imports;
pub mod manifest;
pub mod process;
pub mod readme;
pub mod source;
