//! An embeddable, local-first S3 server that answers as AWS does.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), assay_server::Error> {
//! let server = assay_server::Server::builder().bucket("data").start().await?;
//! println!("{} {} {}", server.endpoint(), server.access_key(), server.region());
//! server.stop().await;
//! # Ok(()) }
//! ```
//!
//! Every server is its own: two in one process share nothing. [`Builder`] says what can be set;
//! [`blocking`] is for tests without a runtime; [`Engine::call`] takes requests without a socket.

mod auth;
pub mod blocking;
mod body;
mod checksum;
mod control;
mod deviation;
mod error;
mod etag;
mod fault;
mod http;
mod instant;
mod journal;
mod lifecycle;
mod names;
mod op;
mod precondition;
mod range;
mod route;
mod server;
mod service;
mod state;
mod store;
mod stream;
mod tenant;
mod upstream;
mod xml;

pub use auth::AuthMode;
pub use deviation::{Described, Deviation, DeviationError, Limit, Moment, Profile, ProfileEntry, Window};
pub use fault::{Effect, FaultStatus, Loss, Outage, Rule, RuleError, Time, Wait};
pub use instant::Instant;
pub use journal::{Hit, Journal, Record, Unmet};
pub use server::{Builder, Engine, Error, FaultGuard, OutageGuard, Server, Snapshot, UnfiredFaults};
pub use store::disk::OpenError;
pub use stream::Body;
pub use upstream::{Addressing, Upstream};

/// The guides' Rust examples, run as tests of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../README.md")]
pub struct Guides;
