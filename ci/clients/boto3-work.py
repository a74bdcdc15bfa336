"""What the boto3 script runs: prints each step's name before it starts, and `finished` at the end."""

import concurrent.futures
import http.client
import io
import os
import sys
import urllib.parse

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = os.environ["ASSAY_ENDPOINT"]
BUCKET = sys.argv[1]


def client(secret=os.environ["ASSAY_SECRET_KEY"], signature_version=None):
    return boto3.client(
        "s3",
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id=os.environ["ASSAY_ACCESS_KEY"],
        aws_secret_access_key=secret,
        config=Config(signature_version=signature_version, retries={"total_max_attempts": 1}, max_pool_connections=32),
    )


def step(name):
    print(name, flush=True)


def equal(got, expected):
    if got != expected:
        raise AssertionError(f"expected {expected!r}, got {got!r}")


def fetch(method, url, body=None):
    """Without the headers that urllib adds of its own: Version 2 signs Content-Type."""
    target = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(target.netloc)
    connection.request(method, f"{target.path}?{target.query}", body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def refused(status, code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        equal((error.response["ResponseMetadata"]["HTTPStatusCode"], error.response["Error"]["Code"]), (status, code))
        return error.response["Error"]
    raise AssertionError(f"expected {status} {code}, but the call succeeded")


s3 = client()

step("create_bucket, head_bucket, list_buckets")
s3.create_bucket(Bucket=BUCKET)
s3.head_bucket(Bucket=BUCKET)
assert BUCKET in [b["Name"] for b in s3.list_buckets()["Buckets"]]

step("put_object and get_object with default checksums and metadata")
body = b"hello \x00 \xff world" * 100
put = s3.put_object(
    Bucket=BUCKET, Key="a/ü +&?#%.txt", Body=body, ContentType="text/plain", Metadata={"colour": "blue"},
    CacheControl="max-age=60",
)
assert put.get("ChecksumCRC32") or put.get("ChecksumCRC64NVME"), put
got = s3.get_object(Bucket=BUCKET, Key="a/ü +&?#%.txt", ChecksumMode="ENABLED")
equal(got["Body"].read(), body)
equal((got["ContentType"], got["Metadata"], got["CacheControl"]), ("text/plain", {"colour": "blue"}, "max-age=60"))
equal(got["ETag"], put["ETag"])

step("every checksum algorithm that the SDK computes")
for algorithm in ["CRC32", "SHA1", "SHA256"]:
    answer = s3.put_object(Bucket=BUCKET, Key="sum", Body=body, ChecksumAlgorithm=algorithm)
    head = s3.head_object(Bucket=BUCKET, Key="sum", ChecksumMode="ENABLED")
    equal(head["Checksum" + algorithm], answer["Checksum" + algorithm])
    equal(head["ChecksumType"], "FULL_OBJECT")
refused(400, "BadDigest", s3.put_object, Bucket=BUCKET, Key="sum", Body=body, ChecksumSHA256="A" * 43 + "=")

step("an empty body, a range, a range beyond the end")
s3.put_object(Bucket=BUCKET, Key="empty", Body=b"")
equal(s3.get_object(Bucket=BUCKET, Key="empty")["Body"].read(), b"")
part = s3.get_object(Bucket=BUCKET, Key="sum", Range="bytes=3-9")
equal((part["Body"].read(), part["ContentRange"]), (body[3:10], f"bytes 3-9/{len(body)}"))
refused(416, "InvalidRange", s3.get_object, Bucket=BUCKET, Key="sum", Range=f"bytes={len(body)}-")

step("upload_fileobj of 20 MB in 5 MB parts, download_fileobj")
large = os.urandom(20 * 1000 * 1000)
transfer = TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20, max_concurrency=4)
s3.upload_fileobj(io.BytesIO(large), BUCKET, "large", Config=transfer)
head = s3.head_object(Bucket=BUCKET, Key="large")
assert head["ETag"].endswith('-4"'), head["ETag"]
down = io.BytesIO()
s3.download_fileobj(BUCKET, "large", down, Config=transfer)
assert down.getvalue() == large, "the downloaded object differs"
attributes = s3.get_object_attributes(
    Bucket=BUCKET, Key="large", ObjectAttributes=["ETag", "ObjectSize", "ObjectParts", "Checksum", "StorageClass"]
)
equal((attributes["ObjectSize"], attributes["ObjectParts"]["TotalPartsCount"]), (len(large), 4))

step("multipart by hand: list_parts, list_multipart_uploads, upload_part_copy, abort, complete with a condition")
upload = s3.create_multipart_upload(Bucket=BUCKET, Key="by-hand")["UploadId"]
one = s3.upload_part(Bucket=BUCKET, Key="by-hand", UploadId=upload, PartNumber=1, Body=large[: 5 << 20])
two = s3.upload_part_copy(
    Bucket=BUCKET, Key="by-hand", UploadId=upload, PartNumber=2, CopySource={"Bucket": BUCKET, "Key": "large"},
    CopySourceRange="bytes=0-99",
)
equal([u["UploadId"] for u in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])], [upload])
listed = s3.list_parts(Bucket=BUCKET, Key="by-hand", UploadId=upload)["Parts"]
equal([(p["PartNumber"], p["Size"]) for p in listed], [(1, 5 << 20), (2, 100)])
parts = {"Parts": [{"PartNumber": p["PartNumber"], "ETag": p["ETag"]} for p in listed]}
s3.complete_multipart_upload(Bucket=BUCKET, Key="by-hand", UploadId=upload, MultipartUpload=parts, IfNoneMatch="*")
equal(s3.get_object(Bucket=BUCKET, Key="by-hand")["Body"].read(), large[: 5 << 20] + large[:100])
upload = s3.create_multipart_upload(Bucket=BUCKET, Key="by-hand")["UploadId"]
s3.abort_multipart_upload(Bucket=BUCKET, Key="by-hand", UploadId=upload)
refused(404, "NoSuchUpload", s3.list_parts, Bucket=BUCKET, Key="by-hand", UploadId=upload)

step("conditional put: create, swap, the answers to the losers")
first = s3.put_object(Bucket=BUCKET, Key="c", Body=b"1", IfNoneMatch="*")["ETag"]
equal(refused(412, "PreconditionFailed", s3.put_object, Bucket=BUCKET, Key="c", Body=b"2", IfNoneMatch="*")["Condition"],
      "If-None-Match")
second = s3.put_object(Bucket=BUCKET, Key="c", Body=b"2", IfMatch=first)["ETag"]
refused(412, "PreconditionFailed", s3.put_object, Bucket=BUCKET, Key="c", Body=b"3", IfMatch=first)
refused(404, "NoSuchKey", s3.put_object, Bucket=BUCKET, Key="absent", Body=b"3", IfMatch=first)
refused(501, "NotImplemented", s3.put_object, Bucket=BUCKET, Key="c", Body=b"3", IfMatch="*")
equal(s3.get_object(Bucket=BUCKET, Key="c")["Body"].read(), b"2")

step("conditional put: 16 threads x 20 rounds, one winner each")
with concurrent.futures.ThreadPoolExecutor(16) as pool:
    for attempt in range(20):

        def create(writer, key=f"race/{attempt}"):
            try:
                s3.put_object(Bucket=BUCKET, Key=key, Body=f"writer {writer}".encode(), IfNoneMatch="*")
                return writer
            except ClientError as error:
                assert error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict"), error
                return None

        winners = [w for w in pool.map(create, range(16)) if w is not None]
        equal(len(winners), 1)
        equal(s3.get_object(Bucket=BUCKET, Key=f"race/{attempt}")["Body"].read(), f"writer {winners[0]}".encode())

step("conditional delete")
refused(412, "PreconditionFailed", s3.delete_object, Bucket=BUCKET, Key="c", IfMatch=first)
s3.delete_object(Bucket=BUCKET, Key="c", IfMatch=second)
refused(404, "NoSuchKey", s3.delete_object, Bucket=BUCKET, Key="c", IfMatch=second)

step("conditional get: 304 and 412")
etag = s3.put_object(Bucket=BUCKET, Key="g", Body=b"g")["ETag"]
refused(304, "304", s3.get_object, Bucket=BUCKET, Key="g", IfNoneMatch=etag)
refused(412, "PreconditionFailed", s3.get_object, Bucket=BUCKET, Key="g", IfMatch='"0"')

for signature in ["s3", "s3v4"]:  # the SDK's default for a presigned URL is still Version 2
    step(f"presigned PUT and GET with signature version {signature}, and a presigned GET that was altered")
    signing = client(signature_version=signature)
    url = signing.generate_presigned_url("put_object", Params={"Bucket": BUCKET, "Key": "p q"}, ExpiresIn=60)
    equal(fetch("PUT", url, signature.encode()), (200, b""))
    url = signing.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": "p q"}, ExpiresIn=60)
    equal(fetch("GET", url), (200, signature.encode()))
    equal(fetch("GET", url.replace("p%20q", "g"))[0], 403)

step("copy_object, with replaced metadata and with a condition on the source")
s3.copy_object(Bucket=BUCKET, Key="copied", CopySource={"Bucket": BUCKET, "Key": "a/ü +&?#%.txt"})
equal(s3.head_object(Bucket=BUCKET, Key="copied")["Metadata"], {"colour": "blue"})
s3.copy_object(
    Bucket=BUCKET, Key="copied", CopySource={"Bucket": BUCKET, "Key": "a/ü +&?#%.txt"},
    MetadataDirective="REPLACE", Metadata={"colour": "red"},
)
equal(s3.head_object(Bucket=BUCKET, Key="copied")["Metadata"], {"colour": "red"})
refused(412, "PreconditionFailed", s3.copy_object, Bucket=BUCKET, Key="copied",
        CopySource={"Bucket": BUCKET, "Key": "g"}, CopySourceIfMatch='"0"')

step("object and bucket tagging")
s3.put_object(Bucket=BUCKET, Key="tagged", Body=b"", Tagging="a=1&b=%C3%BC")
equal(s3.get_object_tagging(Bucket=BUCKET, Key="tagged")["TagSet"],
      [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "ü"}])
s3.put_object_tagging(Bucket=BUCKET, Key="tagged", Tagging={"TagSet": [{"Key": "c", "Value": "3"}]})
equal(s3.get_object_tagging(Bucket=BUCKET, Key="tagged")["TagSet"], [{"Key": "c", "Value": "3"}])
s3.delete_object_tagging(Bucket=BUCKET, Key="tagged")
equal(s3.get_object_tagging(Bucket=BUCKET, Key="tagged")["TagSet"], [])
s3.put_bucket_tagging(Bucket=BUCKET, Tagging={"TagSet": [{"Key": "x", "Value": "y"}]})
equal(s3.get_bucket_tagging(Bucket=BUCKET)["TagSet"], [{"Key": "x", "Value": "y"}])
s3.delete_bucket_tagging(Bucket=BUCKET)
refused(404, "NoSuchTagSet", s3.get_bucket_tagging, Bucket=BUCKET)

step("paging: 25 keys in pages of 10, with prefix and delimiter")
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda i: s3.put_object(Bucket=BUCKET, Key=f"page/{i:03}/x", Body=b""), range(25)))
for operation in ["list_objects_v2", "list_objects"]:
    pages = list(s3.get_paginator(operation).paginate(Bucket=BUCKET, Prefix="page/", PaginationConfig={"PageSize": 10}))
    equal([len(p["Contents"]) for p in pages], [10, 10, 5])
    pages = list(s3.get_paginator(operation).paginate(
        Bucket=BUCKET, Prefix="page/", Delimiter="/", PaginationConfig={"PageSize": 10}))
    equal([c["Prefix"] for p in pages for c in p["CommonPrefixes"]], [f"page/{i:03}/" for i in range(25)])

step("versioning: versions, delete marker, an old version, suspended")
s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Enabled"})
equal(s3.get_bucket_versioning(Bucket=BUCKET)["Status"], "Enabled")
old = s3.put_object(Bucket=BUCKET, Key="v", Body=b"old")["VersionId"]
new = s3.put_object(Bucket=BUCKET, Key="v", Body=b"new")["VersionId"]
marker = s3.delete_object(Bucket=BUCKET, Key="v")
equal(marker["DeleteMarker"], True)
refused(404, "NoSuchKey", s3.get_object, Bucket=BUCKET, Key="v")
equal(s3.get_object(Bucket=BUCKET, Key="v", VersionId=old)["Body"].read(), b"old")
versions = s3.list_object_versions(Bucket=BUCKET, Prefix="v")
equal([v["VersionId"] for v in versions["Versions"]], [new, old])
equal([m["VersionId"] for m in versions["DeleteMarkers"]], [marker["VersionId"]])
s3.put_object(Bucket=BUCKET, Key="v", Body=b"over the marker", IfNoneMatch="*")
s3.delete_object(Bucket=BUCKET, Key="v", VersionId=old)
refused(404, "NoSuchVersion", s3.get_object, Bucket=BUCKET, Key="v", VersionId=old)
s3.put_bucket_versioning(Bucket=BUCKET, VersioningConfiguration={"Status": "Suspended"})
equal(s3.put_object(Bucket=BUCKET, Key="v", Body=b"null version").get("VersionId", "null"), "null")

step("a wrong secret key is refused")
refused(403, "SignatureDoesNotMatch", client(secret="not-the-secret").get_object, Bucket=BUCKET, Key="g")

step("delete_objects of every version, delete_bucket")
refused(409, "BucketNotEmpty", s3.delete_bucket, Bucket=BUCKET)
for page in s3.get_paginator("list_object_versions").paginate(Bucket=BUCKET):
    entries = page.get("Versions", []) + page.get("DeleteMarkers", [])
    answer = s3.delete_objects(
        Bucket=BUCKET, Delete={"Objects": [{"Key": e["Key"], "VersionId": e["VersionId"]} for e in entries]}
    )
    equal((len(answer["Deleted"]), answer.get("Errors", [])), (len(entries), []))
s3.delete_bucket(Bucket=BUCKET)
refused(404, "404", s3.head_bucket, Bucket=BUCKET)
step("finished")
