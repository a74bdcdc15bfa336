//! Certifies S3 vendors.
