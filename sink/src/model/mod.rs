//! Nouns, without I/O.

pub mod key;
