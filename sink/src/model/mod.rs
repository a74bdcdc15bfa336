//! Nouns of the protocol, without I/O.

pub mod chain;
pub mod checkpoint;
pub mod compaction;
pub mod entry;
pub mod frame;
pub mod head;
pub mod ids;
pub mod json;
pub mod key;
pub mod mark;
pub mod position;
pub mod rollup;
pub mod stage;
pub mod view;

#[cfg(test)]
mod tests;
