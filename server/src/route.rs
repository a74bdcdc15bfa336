//! From method, host, path and query to a typed operation: pure.

use http::request::Parts;
use percent_encoding::percent_decode_str;

use crate::error::{Code, S3Error};
use crate::names::{BucketName, Key};

macro_rules! operations {
    ($($name:ident)+) => {
        /// An operation of the S3 API Reference.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) enum Operation {
            $($name,)+
            /// One that S3 has and this server does not, by name.
            Unsupported(&'static str),
        }

        impl Operation {
            /// The name in the S3 API Reference.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Unsupported(name) => name,
                }
            }
        }
    };
}

operations! {
    AbortMultipartUpload
    CompleteMultipartUpload
    CopyObject
    CreateBucket
    CreateMultipartUpload
    DeleteBucket
    DeleteBucketLifecycle
    DeleteBucketTagging
    DeleteObject
    DeleteObjectTagging
    DeleteObjects
    GetBucketLifecycleConfiguration
    GetBucketLocation
    GetBucketTagging
    GetBucketVersioning
    GetObject
    GetObjectAttributes
    GetObjectTagging
    HeadBucket
    HeadObject
    ListBuckets
    ListMultipartUploads
    ListObjectVersions
    ListObjects
    ListObjectsV2
    ListParts
    PutBucketLifecycleConfiguration
    PutBucketTagging
    PutBucketVersioning
    PutObject
    PutObjectTagging
    UploadPart
    UploadPartCopy
}

impl Operation {
    /// Whether its requests carry no signature in header or query: a browser signs the form of an upload
    /// inside the form, and asks before a request across origins without signing at all.
    pub(crate) fn comes_unsigned(self) -> bool {
        matches!(self, Self::Unsupported("PostObject" | "CORSPreflight"))
    }

    /// Whether it is about uploads that are open.
    pub(crate) fn is_about_uploads(self) -> bool {
        matches!(
            self,
            Self::AbortMultipartUpload
                | Self::CompleteMultipartUpload
                | Self::CreateMultipartUpload
                | Self::ListMultipartUploads
                | Self::ListParts
                | Self::UploadPart
                | Self::UploadPartCopy
        )
    }
}

/// What a request is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Service,
    Bucket(BucketName),
    Object(BucketName, Key),
}

/// The query, decoded, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let decode =
            |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
        let pairs = query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(k, v)| (decode(k), decode(v)))
                .collect(),
        )
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Takes the first pair of a name out.
    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(key, _)| key == name)?;
        Some(self.0.remove(at).1)
    }

    /// The first pair.
    pub(crate) fn first(&self) -> Option<(&str, &str)> {
        self.0.first().map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

/// A request's path, taken apart before anything is checked, so that control paths and error documents
/// can name it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// The bucket that the host names.
    pub(crate) host_bucket: Option<String>,
    pub(crate) bucket: Option<String>,
    /// Decoded once; empty where there is none.
    pub(crate) key: String,
}

impl Address {
    /// # Errors
    /// `InvalidURI` where the path is not percent-encoded UTF-8.
    pub(crate) fn parse(head: &Parts, domains: &[String]) -> Result<Self, S3Error> {
        let host = head.headers.get(http::header::HOST).and_then(|h| h.to_str().ok());
        let host =
            host.or_else(|| head.uri.authority().map(http::uri::Authority::as_str)).unwrap_or_default();
        let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
        let name = name.map_or(host, |(name, _)| name).to_ascii_lowercase();
        // The longest domain that fits: `s3.eu-west-1.test` before `test`.
        let host_bucket = if domains.contains(&name) {
            None
        } else {
            let fits =
                domains.iter().filter_map(|domain| name.strip_suffix(domain.as_str())?.strip_suffix('.'));
            fits.min_by_key(|bucket| bucket.len()).map(str::to_owned)
        };
        let path = head.uri.path().strip_prefix('/').unwrap_or_default();
        let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
            Ok(text) => Ok(text.into_owned()),
            Err(_) => Err(S3Error::new(Code::InvalidURI).extra("URI", text)),
        };
        if let Some(bucket) = &host_bucket {
            return Ok(Self { bucket: Some(bucket.clone()), key: decode(path)?, host_bucket });
        }
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let bucket = decode(bucket)?;
        Ok(Self { host_bucket, bucket: (!bucket.is_empty()).then_some(bucket), key: decode(key)? })
    }
}

/// The operation, whatever its names are like: [`route`] refuses what S3 would, and an upstream may think otherwise.
pub(crate) fn operation(head: &Parts, address: &Address, query: &Query) -> Operation {
    let method = head.method.as_str();
    let found = match (&address.bucket, address.key.is_empty()) {
        (None, _) => matches!(method, "GET" | "HEAD").then_some(Operation::ListBuckets),
        (Some(_), true) => bucket_operation(method, query),
        (Some(_), false) => object_operation(method, query, head.headers.contains_key("x-amz-copy-source")),
    };
    found.unwrap_or(U("UnknownOperation"))
}

/// The operation and what it is about.
///
/// # Errors
/// `MethodNotAllowed`, `InvalidBucketName`, `KeyTooLongError`, and `InvalidURI` for a key whose `..`
/// segments climb out of the bucket.
pub(crate) fn route(head: &Parts, address: Address, query: &Query) -> Result<(Operation, Target), S3Error> {
    let method = head.method.as_str();
    let Some(bucket) = address.bucket else {
        return match method {
            "GET" | "HEAD" => Ok((Operation::ListBuckets, Target::Service)),
            _ => Err(not_allowed(method, "SERVICE")),
        };
    };
    if address.key.is_empty() {
        let operation = bucket_operation(method, query).ok_or_else(|| not_allowed(method, "BUCKET"))?;
        return Ok((operation, Target::Bucket(BucketName::new(&bucket)?)));
    }
    let copy = head.headers.contains_key("x-amz-copy-source");
    let operation = object_operation(method, query, copy).ok_or_else(|| not_allowed(method, "OBJECT"))?;
    let (bucket, key) = (BucketName::new(&bucket)?, Key::new(address.key)?);
    if key.climbs_out() {
        // AWS answers this one without a document.
        return Err(S3Error { bare: true, ..S3Error::new(Code::InvalidURI) });
    }
    Ok((operation, Target::Object(bucket, key)))
}

fn not_allowed(method: &str, resource: &str) -> S3Error {
    S3Error::new(Code::MethodNotAllowed).extra("Method", method).extra("ResourceType", resource)
}

use Operation::Unsupported as U;

/// Subresources of a bucket: the query's name and the operations of GET, PUT, POST and DELETE.
#[rustfmt::skip] // one row, one line
const BUCKET: &[(&str, [Option<Operation>; 4])] = &[
    ("abac", [Some(U("GetBucketAbac")), Some(U("PutBucketAbac")), None, None]),
    ("accelerate", [Some(U("GetBucketAccelerateConfiguration")), Some(U("PutBucketAccelerateConfiguration")), None, None]),
    ("acl", [Some(U("GetBucketAcl")), Some(U("PutBucketAcl")), None, None]),
    ("analytics", [Some(U("GetBucketAnalyticsConfiguration")), Some(U("PutBucketAnalyticsConfiguration")), None, Some(U("DeleteBucketAnalyticsConfiguration"))]),
    ("cors", [Some(U("GetBucketCors")), Some(U("PutBucketCors")), None, Some(U("DeleteBucketCors"))]),
    ("delete", [None, None, Some(Operation::DeleteObjects), None]),
    ("encryption", [Some(U("GetBucketEncryption")), Some(U("PutBucketEncryption")), None, Some(U("DeleteBucketEncryption"))]),
    ("intelligent-tiering", [Some(U("GetBucketIntelligentTieringConfiguration")), Some(U("PutBucketIntelligentTieringConfiguration")), None, Some(U("DeleteBucketIntelligentTieringConfiguration"))]),
    ("inventory", [Some(U("GetBucketInventoryConfiguration")), Some(U("PutBucketInventoryConfiguration")), None, Some(U("DeleteBucketInventoryConfiguration"))]),
    ("lifecycle", [Some(Operation::GetBucketLifecycleConfiguration), Some(Operation::PutBucketLifecycleConfiguration), None, Some(Operation::DeleteBucketLifecycle)]),
    ("location", [Some(Operation::GetBucketLocation), None, None, None]),
    ("logging", [Some(U("GetBucketLogging")), Some(U("PutBucketLogging")), None, None]),
    ("metadataConfiguration", [Some(U("GetBucketMetadataConfiguration")), None, Some(U("CreateBucketMetadataConfiguration")), Some(U("DeleteBucketMetadataConfiguration"))]),
    ("metadataInventoryTable", [None, Some(U("UpdateBucketMetadataInventoryTableConfiguration")), None, None]),
    ("metadataJournalTable", [None, Some(U("UpdateBucketMetadataJournalTableConfiguration")), None, None]),
    ("metadataTable", [Some(U("GetBucketMetadataTableConfiguration")), None, Some(U("CreateBucketMetadataTableConfiguration")), Some(U("DeleteBucketMetadataTableConfiguration"))]),
    ("metrics", [Some(U("GetBucketMetricsConfiguration")), Some(U("PutBucketMetricsConfiguration")), None, Some(U("DeleteBucketMetricsConfiguration"))]),
    ("notification", [Some(U("GetBucketNotificationConfiguration")), Some(U("PutBucketNotificationConfiguration")), None, None]),
    ("object-lock", [Some(U("GetObjectLockConfiguration")), Some(U("PutObjectLockConfiguration")), None, None]),
    ("ownershipControls", [Some(U("GetBucketOwnershipControls")), Some(U("PutBucketOwnershipControls")), None, Some(U("DeleteBucketOwnershipControls"))]),
    ("policy", [Some(U("GetBucketPolicy")), Some(U("PutBucketPolicy")), None, Some(U("DeleteBucketPolicy"))]),
    ("policyStatus", [Some(U("GetBucketPolicyStatus")), None, None, None]),
    ("publicAccessBlock", [Some(U("GetPublicAccessBlock")), Some(U("PutPublicAccessBlock")), None, Some(U("DeletePublicAccessBlock"))]),
    ("replication", [Some(U("GetBucketReplication")), Some(U("PutBucketReplication")), None, Some(U("DeleteBucketReplication"))]),
    ("requestPayment", [Some(U("GetBucketRequestPayment")), Some(U("PutBucketRequestPayment")), None, None]),
    ("session", [Some(U("CreateSession")), None, None, None]),
    ("tagging", [Some(Operation::GetBucketTagging), Some(Operation::PutBucketTagging), None, Some(Operation::DeleteBucketTagging)]),
    ("uploads", [Some(Operation::ListMultipartUploads), None, None, None]),
    ("versioning", [Some(Operation::GetBucketVersioning), Some(Operation::PutBucketVersioning), None, None]),
    ("versions", [Some(Operation::ListObjectVersions), None, None, None]),
    ("website", [Some(U("GetBucketWebsite")), Some(U("PutBucketWebsite")), None, Some(U("DeleteBucketWebsite"))]),
];

/// Subresources of an object, in the same form.
#[rustfmt::skip] // one row, one line
const OBJECT: &[(&str, [Option<Operation>; 4])] = &[
    ("acl", [Some(U("GetObjectAcl")), Some(U("PutObjectAcl")), None, None]),
    ("attributes", [Some(Operation::GetObjectAttributes), None, None, None]),
    ("encryption", [None, Some(U("UpdateObjectEncryption")), None, None]),
    ("legal-hold", [Some(U("GetObjectLegalHold")), Some(U("PutObjectLegalHold")), None, None]),
    ("renameObject", [None, Some(U("RenameObject")), None, None]),
    ("restore", [None, None, Some(U("RestoreObject")), None]),
    ("retention", [Some(U("GetObjectRetention")), Some(U("PutObjectRetention")), None, None]),
    ("select", [None, None, Some(U("SelectObjectContent")), None]),
    ("tagging", [Some(Operation::GetObjectTagging), Some(Operation::PutObjectTagging), None, Some(Operation::DeleteObjectTagging)]),
    ("torrent", [Some(U("GetObjectTorrent")), None, None, None]),
    ("uploadId", [Some(Operation::ListParts), Some(Operation::UploadPart), Some(Operation::CompleteMultipartUpload), Some(Operation::AbortMultipartUpload)]),
    ("uploads", [None, None, Some(Operation::CreateMultipartUpload), None]),
];

fn subresource(
    table: &[(&str, [Option<Operation>; 4])],
    method: &str,
    query: &Query,
) -> Option<Option<Operation>> {
    let column = ["GET", "PUT", "POST", "DELETE"].iter().position(|m| *m == method)?;
    table.iter().find(|(name, _)| query.has(name)).map(|(_, operations)| operations[column])
}

fn bucket_operation(method: &str, query: &Query) -> Option<Operation> {
    if let Some(operation) = subresource(BUCKET, method, query) {
        return operation;
    }
    Some(match method {
        "GET" if query.get("list-type") == Some("2") => Operation::ListObjectsV2,
        "GET" => Operation::ListObjects,
        "HEAD" => Operation::HeadBucket,
        "PUT" => Operation::CreateBucket,
        "DELETE" => Operation::DeleteBucket,
        "POST" => U("PostObject"),
        "OPTIONS" => U("CORSPreflight"),
        _ => return None,
    })
}

fn object_operation(method: &str, query: &Query, copy: bool) -> Option<Operation> {
    match subresource(OBJECT, method, query) {
        Some(Some(Operation::UploadPart)) if copy => return Some(Operation::UploadPartCopy),
        Some(operation) => return operation,
        None => {}
    }
    Some(match method {
        "GET" => Operation::GetObject,
        "HEAD" => Operation::HeadObject,
        "PUT" if copy => Operation::CopyObject,
        "PUT" => Operation::PutObject,
        "DELETE" => Operation::DeleteObject,
        "OPTIONS" => U("CORSPreflight"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routed(method: &str, uri: &str, host: &str, copy: bool) -> Result<(Operation, Target), S3Error> {
        let mut request = http::Request::builder().method(method).uri(uri).header("host", host);
        if copy {
            request = request.header("x-amz-copy-source", "a/b");
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let domains = ["s3.test".to_owned(), "s3.eu-west-1.test".to_owned(), "test".to_owned()];
        route(&head, Address::parse(&head, &domains)?, &Query::parse(head.uri.query()))
    }

    fn object(bucket: &str, key: &str) -> Target {
        Target::Object(BucketName::new(bucket).unwrap(), Key::new(key.into()).unwrap())
    }

    #[test]
    fn by_method_path_query_and_host() {
        let bucket = |name| Target::Bucket(BucketName::new(name).unwrap());
        for (method, uri, host, operation, target) in [
            ("GET", "/", "127.0.0.1:9000", Operation::ListBuckets, Target::Service),
            ("GET", "/abc?list-type=2", "localhost", Operation::ListObjectsV2, bucket("abc")),
            ("GET", "/abc/", "localhost", Operation::ListObjects, bucket("abc")),
            ("PUT", "/abc?acl", "localhost", U("PutBucketAcl"), bucket("abc")),
            ("PUT", "/abc//x%2Fy+%25", "localhost", Operation::PutObject, object("abc", "/x/y+%")),
            ("GET", "/", "abc.s3.test:80", Operation::ListObjects, bucket("abc")),
            ("PUT", "/a/b", "a.b.s3.eu-west-1.test", Operation::PutObject, object("a.b", "a/b")),
            ("GET", "/abc/k", "s3.test", Operation::GetObject, object("abc", "k")),
            ("POST", "/abc/k?uploads", "h", Operation::CreateMultipartUpload, object("abc", "k")),
            ("POST", "/abc", "h", U("PostObject"), bucket("abc")),
            ("OPTIONS", "/abc/k", "h", U("CORSPreflight"), object("abc", "k")),
            ("DELETE", "/abc/k?uploadId=1", "h", Operation::AbortMultipartUpload, object("abc", "k")),
        ] {
            assert_eq!(routed(method, uri, host, false), Ok((operation, target)), "{method} {host} {uri}");
        }
        let copy = |uri| routed("PUT", uri, "h", true).unwrap().0;
        assert_eq!(copy("/abc/k"), Operation::CopyObject);
        assert_eq!(copy("/abc/k?partNumber=1&uploadId=x"), Operation::UploadPartCopy);
    }

    #[test]
    fn what_cannot_be_routed_says_why() {
        for (method, uri, code) in [
            ("POST", "/", Code::MethodNotAllowed),
            ("PATCH", "/abc/k", Code::MethodNotAllowed),
            ("POST", "/abc/k?acl", Code::MethodNotAllowed),
            ("GET", "/A_b/k", Code::InvalidBucketName),
            ("PUT", "/abc/..%2Fx", Code::InvalidURI),
            ("PUT", "/abc/%FF", Code::InvalidURI),
        ] {
            assert_eq!(routed(method, uri, "h", false).unwrap_err().code, code, "{method} {uri}");
        }
        let long = format!("/abc/{}", "a".repeat(1025));
        assert_eq!(routed("PUT", &long, "h", false).unwrap_err().code, Code::KeyTooLongError);
    }
}
