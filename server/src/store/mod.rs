//! What the server stores, and where.

pub mod disk;
pub mod index;
pub mod memory;
