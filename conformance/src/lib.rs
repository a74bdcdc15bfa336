//! Certifies S3 providers: runs the checks of [`assay_checks`] against the embedded server or any endpoint and
//! says, with evidence, which conditions the provider enforces, refuses, ignores or races.
//!
//! The way of a run: [`target`] reads the provider from the environment, [`selection`] picks checks,
//! [`runner`] runs them and emits events, [`sink`] runs the durable sink itself, [`report`] turns their entries into a verdict, [`render`] shows it,
//! and [`sweep`] leaves the bucket as it was found. [`matrix`] puts several reports side by side, [`baseline`] lets
//! through what was known, and [`emulation`] says how the embedded server can fail the same.

pub mod baseline;
pub mod buckets;
pub mod cost;
pub mod embedded;
pub mod emulation;
pub mod matrix;
pub mod render;
pub mod report;
pub mod runner;
pub mod selection;
pub mod sink;
pub mod sweep;
pub mod target;
