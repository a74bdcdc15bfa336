//! The checks that certify an S3 vendor.
