//! Staged commits: whatever stops a job and whenever, each record becomes visible once, and none before its
//! checkpoint counts.

mod answers;
mod bent;
mod crashes;
mod ingress;
#[cfg(feature = "mutants")]
mod mutants;
mod page;
mod prune;
mod world;
