//! Nouns of the protocol, without I/O.

pub mod ids;
pub mod key;
pub mod position;
