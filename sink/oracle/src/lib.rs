//! Judges what a sink left in a bucket, by the protocol's text and with no code of the sink.
//!
//! Everything here is written a second time on purpose: if sink and judge shared a decoder, one mistake would
//! pass on both sides. [`durable`] judges a settled `durable_v2` pipeline as a whole: HEAD, the chain of
//! entries, every digest, every object, every row, and with a list of expected row versions that each is there
//! exactly once and in order.
//!
//! | module | what it decodes |
//! | --- | --- |
//! | [`json`] | JSON without duplicate keys, numbers as decimal strings, digests as hexadecimal digits |
//! | [`exact`] | JSON values of rows, numbers as they are written |
//! | [`frame`] | header line, version, length and checksum of every manifest object |
//! | [`manifest`] | HEAD and entries, and the hash chain over them |
//! | [`lifetime`] | rollups, inventories and compaction records, and the live objects that follow from them |
//! | [`position`] | source positions: canonical bytes, digests, order |
//! | [`events`] | the events of a campaign |
//! | [`visible`] | what a consumer of a campaign's bucket sees |
//! | [`history`] | every change of a pipeline's keys in its order, and whether a delete took what HEAD reached |
//! | [`reach`] | what HEAD of a running pipeline reaches |
//! | [`names`] | object keys |
//! | [`rows`] | rows of data objects |
//! | [`expected`] | what the source says it wrote |
//! | [`bucket`] | reading a bucket, and nothing but reading |
//! | [`report`] | findings, statistics, verdict |

pub mod bucket;
mod columns;
pub mod durable;
pub mod events;
pub mod exact;
pub mod expected;
pub mod frame;
pub mod history;
pub mod json;
pub mod lifetime;
pub mod manifest;
pub mod names;
pub mod position;
pub mod reach;
pub mod report;
pub mod rows;
pub mod visible;
