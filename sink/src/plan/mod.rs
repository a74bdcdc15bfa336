//! Verbs of the protocol, thought and not done: what was seen goes in, what to write comes out.

pub mod accept;
pub mod change;
pub mod clocks;
pub mod commit;
pub mod compact;
pub mod fold;
pub mod gc;
pub mod originals;
pub mod orphans;
pub mod ownership;
pub mod reconcile;
pub mod rollup;
#[cfg(test)]
mod samples;
pub mod stage;
