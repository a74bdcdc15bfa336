//! Crash-durable S3 sink for change streams.
//!
//! [`model`] holds the nouns of the protocol without I/O, [`store`] the door to the bucket, [`mod@env`] what a
//! sink runs in; [`metrics`] is what it counts, [`endpoint`] where that is read. [`plan`] thinks the verbs of the
//! protocol, [`run`] does them, [`mod@sink`] is the handle that they serve; [`rolling`] is the mode without the
//! protocol, and [`stage`] the sink for engines with checkpoints of their own. In front of it stand a pipeline's
//! [`config`], its [`events`], and how they become batches ([`batch`]) and objects ([`mod@format`]).

pub mod batch;
pub mod config;
pub mod endpoint;
pub mod env;
pub mod error;
pub mod events;
pub mod format;
pub mod local;
pub mod matrix;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod point;
pub mod probe;
pub mod rolling;
pub mod run;
#[cfg(test)]
mod s3_server_it;
pub mod sink;
pub mod stage;
pub mod stop;
pub mod store;
