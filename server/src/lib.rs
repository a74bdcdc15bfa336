//! An embeddable, local-first S3 server that answers as AWS does.
