//! The checks that certify an S3 provider, and the client they use.
//!
//! A [`Check`] is one value: what it proves, what a failure costs, where the right answer is from, and the
//! function that asks. [`all`] lists them. They know no server: expectations stand in the checks themselves,
//! taken from AWS's documentation, RFC 9110 and dated recordings, so that a server and its examiner cannot
//! share a mistake.

mod call;
mod check;
mod checks;
mod chunked;
mod client;
mod date;
mod digest;
mod endpoint;
mod exchange;
mod expect;
mod history;
mod pace;
mod payload;
mod race;
mod sign;
mod together;
mod traffic;
mod trial;
mod upload;
pub mod xml;

pub use call::Call;
pub use check::{Check, Class, Condition, Done, Doubt, Failure, Need, Run, Severity, Stop};
pub use checks::all;
pub use chunked::{Chunked, Spoil};
pub use client::{Answer, Client, Clock, Connection, Lost, Settings, Signed};
pub use endpoint::{Addressing, Endpoint};
pub use exchange::{EXCERPT_BYTES, Excerpt, Exchange, Reply};
pub use payload::{Holder, Payload};
pub use sign::{Credentials, Form, Signing};
pub use traffic::{RequestClass, Traffic, Volume};
pub use trial::{Race, Surroundings, Trial};
