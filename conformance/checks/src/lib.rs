//! The checks that certify an S3 provider, and the client they use.
//!
//! A [`Check`] is one value: what it proves, what a failure costs, where the right answer is from, and the
//! function that asks. [`all`] lists them. They know no server: expectations stand in the checks themselves,
//! taken from AWS's documentation, RFC 9110 and dated recordings, so that a server and its examiner cannot
//! share a mistake.

mod check;
mod checks;
mod client;
mod date;
mod exchange;
mod pace;
mod payload;
mod race;
mod sign;
mod together;
mod traffic;
mod trial;
pub mod xml;

pub use check::{Check, Class, Condition, Done, Doubt, Failure, Need, Run, Severity, Stop};
pub use checks::all;
pub use client::{Addressing, Answer, Call, Client, Clock, Connection, Endpoint, Lost, Settings, Signed};
pub use exchange::{EXCERPT_BYTES, Excerpt, Exchange, Reply};
pub use payload::{Holder, Payload};
pub use sign::Credentials;
pub use traffic::{RequestClass, Traffic, Volume};
pub use trial::{Race, Trial};
