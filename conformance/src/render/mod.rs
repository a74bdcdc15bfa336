//! Shows reports and lists of checks: pure, from a report to text.

pub mod badge;
pub mod curl;
pub mod html;
pub mod json;
pub mod junit;
pub mod markdown;
pub mod progress;
pub mod text;
