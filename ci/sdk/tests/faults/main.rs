//! Faults as the AWS SDK for Rust and boto3 meet them, and the page that shows them.

mod cookbook;
mod effects;
mod page;
mod python;
