//! What the server stores, and where.

pub mod index;
pub mod memory;
