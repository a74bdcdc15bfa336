//! Shows reports and lists of checks.

pub mod json;
pub mod markdown;
pub mod text;
