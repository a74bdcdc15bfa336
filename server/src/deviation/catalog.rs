//! Every deviation: its name, its value, what it means and who is known for it.

use super::value::{Limit, Moment, Value, Window};
use crate::error::Code;

/// What is known of one deviation.
pub struct Described {
    /// What kind of difference it is.
    pub area: &'static str,
    /// Its stable name.
    pub name: &'static str,
    /// What its value is, where it takes one.
    pub value: Option<&'static str>,
    /// The vendor that has it, with source and date.
    pub known: &'static str,
    about: &'static str,
    make: fn(Option<&str>) -> Result<Deviation, String>,
}

impl Described {
    /// What it means.
    pub fn about(&self) -> &'static str {
        self.about.trim()
    }

    /// The deviation with this value, or with its default.
    pub(super) fn make(&self, value: Option<&str>) -> Result<Deviation, String> {
        (self.make)(value)
    }
}

macro_rules! deviations {
    ($($area:literal { $(
        $(#[doc = $about:literal])+
        $variant:ident $(($value:ty = $default:expr, $meaning:literal))? $name:literal $known:literal
    )+ })+) => {
        /// One lasting difference from AWS.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Deviation {
            $($($(#[doc = $about])+ $variant $(($value))?,)+)+
        }

        impl Deviation {
            /// The stable name.
            pub fn name(&self) -> &'static str {
                match self {
                    $($(Self::$variant { .. } => $name,)+)+
                }
            }

            /// The value as text, where it has one.
            pub(super) fn value(&self) -> Option<String> {
                match self {
                    $($(deviations!(@pattern $variant value $(($value))?) => deviations!(@show value $(($value))?),)+)+
                }
            }

            /// All of them, by kind.
            pub fn catalog() -> &'static [Described] {
                &[$($(Described {
                    area: $area,
                    name: $name,
                    value: deviations!(@meaning $($meaning)?),
                    known: $known,
                    about: concat!($($about),+),
                    make: |text| deviations!(@make text $name $variant $(($value = $default))?),
                },)+)+]
            }
        }
    };
    (@pattern $variant:ident $bound:ident) => { Self::$variant };
    (@pattern $variant:ident $bound:ident ($value:ty)) => { Self::$variant($bound) };
    (@show $bound:ident) => { None };
    (@show $bound:ident ($value:ty)) => { Some(Value::show($bound)) };
    (@meaning) => { None };
    (@meaning $meaning:literal) => { Some($meaning) };
    (@make $text:ident $name:literal $variant:ident) => {
        match $text {
            None => Ok(Deviation::$variant),
            Some(value) => Err(format!("{} takes no value; leave \"={value}\" out", $name)),
        }
    };
    (@make $text:ident $name:literal $variant:ident ($value:ty = $default:expr)) => {
        Ok(Deviation::$variant($text.map_or(Ok($default), <$value as Value>::read)?))
    };
}

/// A window in which even sequential-looking clients on loopback overlap.
const WINDOW: Window = Window { us: 20_000, at: Moment::Head };

deviations! {
    "conditions ignored" {
        /// A PUT with If-None-Match is done whatever is there.
        IgnoreIfNoneMatchPut "ignore-if-none-match-put"
        "GCS XML interop (vendor page on preconditions, 2026); Garage (source, 2025-06); rclone serve 1.75.2 (measured, 2026-11)"
        /// A PUT with If-Match is done whatever is there.
        IgnoreIfMatchPut "ignore-if-match-put"
        "GCS XML interop (vendor page on preconditions, 2026); Garage (source, 2025-06); rclone serve 1.75.2 (measured, 2026-11)"
        /// A CopyObject does not look at If-None-Match.
        IgnoreIfNoneMatchCopy "ignore-if-none-match-copy"
        "moto 5.2.5, MiniStack 1.5.33, s3s-fs 0.14.1 (measured, 2026-11); MinIO (source, 2026-02)"
        /// A CopyObject does not look at If-Match.
        IgnoreIfMatchCopy "ignore-if-match-copy"
        "MinIO (source, 2026-02)"
        /// A CompleteMultipartUpload does not look at If-None-Match.
        IgnoreIfNoneMatchComplete "ignore-if-none-match-complete"
        "MiniStack until 2026-08 (issue 1435); rclone serve 1.75.2 (measured, 2026-11)"
        /// A CompleteMultipartUpload does not look at If-Match.
        IgnoreIfMatchComplete "ignore-if-match-complete"
        "Garage (source, 2025-06); s3s-fs of 2025-10 (source)"
        /// A DeleteObject does not look at If-Match.
        IgnoreIfMatchDelete "ignore-if-match-delete"
        "MinIO (source, 2026-02); s3s-fs 0.14.1 and rclone serve 1.75.2 (measured, 2026-11)"
        /// DeleteObjects does not look at the ETag of an object in its list.
        IgnoreEtagDeleteObjects "ignore-etag-delete-objects"
        "none by name; made for the suite"
        /// A DeleteObject does not look at x-amz-if-match-size.
        IgnoreIfMatchSize "ignore-if-match-size"
        "none by name; made for the suite"
        /// A DeleteObject does not look at x-amz-if-match-last-modified-time.
        IgnoreIfMatchLastModified "ignore-if-match-last-modified"
        "none by name; made for the suite"
        /// A copy does not look at the conditions on its source.
        IgnoreCopySourceConditions "ignore-copy-source-conditions"
        "Ceph RGW, in part (tracker 40808)"
        /// GET and HEAD do not look at conditions.
        IgnoreReadConditions "ignore-read-conditions"
        "none by name; made for the suite"
        /// GET and HEAD do not look at Range.
        IgnoreRange "ignore-range"
        "none by name; made for the suite"
        /// Stands for all that ignore If-None-Match on a write.
        IgnoreIfNoneMatch "ignore-if-none-match"
        "GCS XML interop, Garage, rclone serve: see their profiles"
        /// Stands for all that ignore If-Match on a write or delete.
        IgnoreIfMatch "ignore-if-match"
        "GCS XML interop, Garage, rclone serve: see their profiles"
        /// Stands for all that ignore a condition on a write or delete.
        IgnoreWriteConditions "ignore-write-conditions"
        "GCS XML interop, Garage, rclone serve: see their profiles"
        /// The condition of a write or delete counts for nothing where the key has an object.
        IgnoreConditionsExisting "ignore-conditions-existing"
        "none by name; made for the suite"
        /// The condition of a write or delete counts for nothing where the key has no object.
        IgnoreConditionsAbsent "ignore-conditions-absent"
        "none by name; made for the suite"
        /// A PUT whose body has more than so many bytes is done whatever its condition.
        IgnoreConditionsLarge(u64 = 512 * 1024, "bytes") "ignore-conditions-large"
        "none by name; made for the suite"
        /// The first requests of each connection are done whatever their condition.
        IgnoreConditionsFirstOnConnection(u64 = 10, "requests") "ignore-conditions-first-on-connection"
        "none by name; made for the suite"
        /// After so many writes and deletes since the start each further one is done whatever its condition.
        IgnoreConditionsAfter(u64 = 400, "writes") "ignore-conditions-after"
        "none by name; MinIO's drives without a read quorum act so (issue 21603, 2025)"
        /// A PUT of the bytes that are there is done whatever its condition.
        IgnoreConditionsSameBytes "ignore-conditions-same-bytes"
        "none by name; made for the suite"
    }
    "conditions refused" {
        /// A PUT with If-None-Match is refused with 501 NotImplemented.
        RefuseIfNoneMatchPut "refuse-if-none-match-put"
        "Backblaze B2 (measured by obsidian-s3-sync 78, 2026); Alibaba OSS (walgit 67, 2026-09)"
        /// A PUT with If-Match is refused with 501 NotImplemented.
        RefuseIfMatchPut "refuse-if-match-put"
        "Backblaze B2 (measured by obsidian-s3-sync 78, 2026); Alibaba OSS (walgit 67, 2026-09)"
        /// A CopyObject with a condition on its destination is refused with 501 NotImplemented.
        RefuseConditionalCopy "refuse-conditional-copy"
        "none by name; made for the suite"
        /// A CompleteMultipartUpload with a condition is refused with 501 NotImplemented.
        RefuseConditionalComplete "refuse-conditional-complete"
        "none by name; made for the suite"
        /// A DeleteObject with a condition is refused with 501 NotImplemented.
        RefuseConditionalDelete "refuse-conditional-delete"
        "LocalStack 4.14 (measured, 2026-11; its issue 13894)"
        /// Stands for all that refuse a conditional write or delete.
        RefuseConditionalWrites "refuse-conditional-writes"
        "Backblaze B2, Alibaba OSS: see their profiles"
        /// If-None-Match with an ETag on a write is refused with this code in place of 501 NotImplemented.
        RefuseIfNoneMatchEtag(Code = Code::InvalidRequest, "code") "refuse-if-none-match-etag"
        "CoreWeave (release note, 2026)"
        /// A GET or HEAD whose date cannot be read is refused with 400.
        RefuseBadDates "refuse-bad-dates"
        "none by name; made for the suite"
    }
    "conditions understood otherwise" {
        /// If-Match with a quoted ETag never holds for a write or delete; without quotes it is compared.
        OnlyUnquotedEtagsMatch "only-unquoted-etags-match"
        "DigitalOcean Spaces (celld 137, 2026-08; another report disagrees)"
        /// An ETag in a condition is compared only with its quotes.
        OnlyQuotedEtagsMatch "only-quoted-etags-match"
        "none by name; made for the suite"
        /// If-Match on a write or delete compares so many characters of an ETag and no further ones.
        CompareEtagPrefix(u64 = 8, "characters") "compare-etag-prefix"
        "none by name; made for the suite"
        /// A list of ETags in a condition names none of them.
        NoEtagLists "no-etag-lists"
        "MinIO (issue 21727, 2025)"
        /// A weak ETag in If-None-Match names nothing.
        StrongComparisonOnly "strong-comparison-only"
        "none by name; made for the suite"
        /// If-Match: * on a delete names an object whose ETag is a star.
        StarComparedLiterallyDelete "star-compared-literally-delete"
        "versitygw (source, 2026-08)"
        /// If-Match: * on a write names an object whose ETag is a star, and is not refused.
        StarComparedLiterallyPut "star-compared-literally-put"
        "versitygw (source, 2026-08); moto 5.2.5 (measured, 2026-11)"
        /// If-None-Match with an ETag on a write is evaluated as RFC 9110 has it, and not refused.
        EvaluateIfNoneMatchEtag "evaluate-if-none-match-etag"
        "R2 (vendor page, 2026); MinIO, RustFS, Ceph RGW (source, 2026); SeaweedFS 4.48 (measured, 2026-11)"
        /// If-Match: * on a write means any object, and is not refused.
        EvaluateIfMatchStar "evaluate-if-match-star"
        "R2 (vendor page, 2026); MiniStack 1.5.33, SeaweedFS 4.48, s3s-fs 0.14.1 (measured, 2026-11)"
        /// If-Match and If-None-Match together on a write are both evaluated, and not refused.
        EvaluateBothConditions "evaluate-both-conditions"
        "MinIO (source, 2026-02); moto 5.2.5, MiniStack 1.5.33, SeaweedFS 4.48, s3s-fs 0.14.1 (measured, 2026-11)"
        /// GET and HEAD look at If-None-Match before If-Match.
        ReverseReadConditions "reverse-read-conditions"
        "MinIO, RustFS for HEAD (source, 2026)"
        /// GET and HEAD with a Range do not look at If-Match.
        RangesBeforeConditions "ranges-before-conditions"
        "none by name; made for the suite"
        /// The dates in the conditions of a read count beside its ETags, and not only without them.
        DatesBesideEtags "dates-beside-etags"
        "none by name; made for the suite"
        /// If-Modified-Since in the future counts, and is not taken for no condition.
        HonourFutureDates "honour-future-dates"
        "none by name; made for the suite"
        /// A read of an absent key with If-Match is 412 and not 404.
        ConditionsBeforeExistence "conditions-before-existence"
        "none by name; made for the suite"
        /// A Complete with If-None-Match: * succeeds only if the key has an object.
        InvertIfNoneMatchComplete "invert-if-none-match-complete"
        "none by name; made for the suite"
    }
    "what counts as there" {
        /// If-Match on an absent key creates it.
        IfMatchAbsentCreates "if-match-absent-creates"
        "MinIO before 2025-09 (issue 21526)"
        /// If-Match on an absent key is 412 and not 404.
        IfMatchAbsent412 "if-match-absent-412"
        "Selectel (vendor page); Apache Ozone (HDDS-13919); SeaweedFS 4.48, s3s-fs 0.14.1 (measured, 2026-11)"
        /// A delete with If-Match of an absent key is 204 and not 404.
        DeleteAbsentIfMatch204 "delete-absent-if-match-204"
        "Ceph RGW (s3-tests, 2025); s3proxy (source, 2026-08)"
        /// A delete without a condition of an absent key is 404 and not 204.
        DeleteAbsent404 "delete-absent-404"
        "none by name; made for the suite"
        /// A key that was deleted still counts as present for a create (buckets without versioning).
        DeletedCountsAsPresent "deleted-counts-as-present"
        "none by name; made for the suite"
        /// An object of no bytes counts as absent.
        EmptyCountsAsAbsent "empty-counts-as-absent"
        "none by name; made for the suite"
        /// An object made by a multipart upload counts as absent.
        MultipartCountsAsAbsent "multipart-counts-as-absent"
        "moto until 2025-08 (issue 9209)"
        /// A key with an upload in progress counts as present.
        OpenUploadCountsAsPresent "open-upload-counts-as-present"
        "none by name; made for the suite"
    }
    "races" {
        /// A PUT with If-None-Match is right alone; under concurrency several win.
        RaceCreatePut(Window = WINDOW, "ms[:head|:body]") "race-create-put"
        "SeaweedFS up to 4.16 (issue 8800); floci until 2026-06 (issue 1328); s3s-fs 0.14.1 (measured, 2026-11)"
        /// A PUT with If-Match is right alone; under concurrency several win.
        RaceSwapPut(Window = WINDOW, "ms[:head|:body]") "race-swap-put"
        "s3s-fs 0.14.1 (measured, 2026-11: 39 of 40 rounds)"
        /// A conditional CompleteMultipartUpload is right alone; under concurrency several win.
        RaceComplete(Window = WINDOW, "ms[:head|:body]") "race-complete"
        "none by name; made for the suite"
        /// A conditional CopyObject is right alone; under concurrency several win.
        RaceCopy(Window = WINDOW, "ms[:head|:body]") "race-copy"
        "none by name; made for the suite"
        /// A conditional DeleteObject is right alone; under concurrency it deletes what it did not look at.
        RaceDelete(Window = WINDOW, "ms[:head|:body]") "race-delete"
        "none by name; made for the suite"
        /// Stands for all races.
        RaceConditions(Window = WINDOW, "ms[:head|:body]") "race-conditions"
        "moto 5.2.5 (no lock; rare, measured 2026-11)"
        /// Whoever loses to a write that came after its own request began gets 409 and not 412.
        Loser409 "loser-409"
        "CoreWeave (release note, 2026)"
        /// A Complete whose key was written or deleted since the upload began is decided by the key alone.
        NoConflictOnComplete "no-conflict-on-complete"
        "MinIO (source, 2026-02); versitygw (source, 2026-08); OVHcloud (announcement, 2026-06)"
    }
    "effect and answer" {
        /// A conditional write that is refused is done all the same.
        RefusedButApplied "refused-but-applied"
        "none by name; made for the suite"
        /// A conditional write or delete is answered as done and changes nothing.
        AcceptedButNotApplied "accepted-but-not-applied"
        "none by name; made for the suite"
        /// A PUT without a condition over an object is answered 200 and changes nothing.
        OverwriteNotApplied "overwrite-not-applied"
        "none by name; made for the suite"
        /// A Complete whose condition fails ends its upload.
        RefusedCompleteEndsUpload "refused-complete-ends-upload"
        "none by name; made for the suite"
        /// The same Complete again is 404 NoSuchUpload, and not the first answer again.
        RepeatedCompleteNoSuchUpload "repeated-complete-no-such-upload"
        "Adobe S3Mock before 4.8.0 (issue 2586)"
        /// A PUT whose condition fails is 304 and not 412.
        FailedWrite304 "failed-write-304"
        "MinIO before 2024 (issue 19442)"
        /// A copy whose source fails If-None-Match is 304 and not 412.
        CopySource304 "copy-source-304"
        "none by name; made for the suite"
        /// An error document does not name the condition that failed.
        OmitConditionElement "omit-condition-element"
        "none by name; made for the suite"
        /// The error document of a read does not name the key.
        OmitKeyElement "omit-key-element"
        "none by name; made for the suite"
        /// A 304 has no ETag.
        NotModifiedWithoutEtag "304-without-etag"
        "moto (issue 8534)"
        /// A 304 has a checksum of a body that it does not have.
        NotModifiedWithChecksum "304-with-checksum"
        "none by name; made for the suite"
        /// No answer shows a checksum.
        OmitChecksums "omit-checksums"
        "Hetzner, of SHA-256 on HEAD (videorc 369, 2026-09); rclone serve 1.75.2 (2026-11)"
        /// User metadata is not kept.
        DropMetadata "drop-metadata"
        "none by name; made for the suite"
    }
    "ETags" {
        /// ETags are shown without quotes.
        UnquotedEtags "unquoted-etags"
        "s3rver (pull request 14)"
        /// ETags are shown as weak ones.
        WeakEtags "weak-etags"
        "none by name; compressing proxies do it"
        /// The ETag of one object is another one in each answer.
        ChangingEtags "changing-etags"
        "none by name; made for the suite"
        /// Objects have only the first characters of their ETag.
        TruncatedEtags(u64 = 8, "characters") "truncated-etags"
        "none by name; made for the suite"
        /// All objects have one and the same ETag.
        ConstantEtags "constant-etags"
        "none by name; made for the suite"
        /// The ETag of a multipart object does not end in a hyphen and the number of parts.
        MultipartEtagPlain "multipart-etag-plain"
        "none by name; made for the suite"
    }
    "keys" {
        /// A new key may have only so many bytes.
        KeyLimit(Limit = Limit { bytes: 255, code: Code::KeyTooLongError }, "bytes[:code]") "key-limit"
        "none below 1024 bytes by name; stores over a file system with one file name a key"
        /// Each part of a new key between slashes may have only so many bytes.
        SegmentLimit(Limit = Limit { bytes: 255, code: Code::KeyTooLongError }, "bytes[:code]") "segment-limit"
        "MinIO (XMinioInvalidObjectName; source, 2026-02); RustFS (InvalidArgument, before InternalError; PR 7314); versitygw (KeyTooLongError; source, 2026-08); SeaweedFS 4.48 (400), s3s-fs 0.14.1 (500; measured, 2026-11)"
        /// A new key with an empty, "." or ".." part between slashes is refused.
        RefuseOddSegments(Code = Code::XMinioInvalidObjectName, "code") "refuse-odd-segments"
        "MinIO (source, 2026-02); RustFS (source, 2026-08)"
        /// Keys that differ only in case are one.
        FoldKeyCase "fold-key-case"
        "stores over a file system that folds case"
        /// Several slashes in a row in a key are one.
        CollapseSlashes "collapse-slashes"
        "stores over a file system"
        /// "." and ".." parts of a key are resolved as in a path.
        ResolveDotSegments "resolve-dot-segments"
        "stores over a file system; proxies that normalise paths"
        /// A key is percent-decoded once more than it was encoded.
        DecodeKeysTwice "decode-keys-twice"
        "none by name; made for the suite"
    }
    "lists and reads" {
        /// Lists are in the order of UTF-16 units and not of UTF-8 bytes.
        ListOrderUtf16 "list-order-utf16"
        "none by name; servers that sort strings as Java and JavaScript do"
        /// For so many milliseconds after each write lists show the state from before it.
        ListLag(u64 = 1000, "ms") "list-lag"
        "R2, disputed (baerly-storage spec against the vendor's page, 2026)"
        /// A list leaves out the object on its page that was written last.
        ListOmitsNewest "list-omits-newest"
        "none by name; made for the suite"
        /// For so many milliseconds after each write GET and HEAD show the state from before it.
        StaleReads(u64 = 1000, "ms") "stale-reads"
        "none by name; caches between client and store"
    }
}
