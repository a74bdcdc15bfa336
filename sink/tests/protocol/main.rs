//! Crashes at every step, answers that are lost, requests that arrive late, two owners, a damaged bucket:
//! whatever happens, a sink comes back to a stream that has every acknowledged batch, and each batch once, or it
//! says why it can't.

mod alarms;
mod answers;
mod calls;
mod compaction;
mod enumerate;
mod fold;
mod handle;
mod lifetime;
mod orphans;
mod owners;
mod random;
mod rebuild;
mod rollups;
mod starts;
mod stores;
mod world;
