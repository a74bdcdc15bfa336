//! Verbs of the protocol, done: gather, plan, apply, and what an answer of the store means.

pub mod acquire;
pub mod actors;
pub mod compact;
pub mod create;
pub mod gc;
pub mod in_flight;
pub mod lease;
pub mod listing;
pub mod originals;
pub mod orphans;
mod parallel;
pub mod patience;
pub mod publish;
pub mod read;
pub mod rebuild;
pub mod recover;
pub mod rollup;
pub mod stage;
pub mod start;
pub mod swap;
