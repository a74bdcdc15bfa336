// What the js-sdk script runs, with the SDK's default settings (checksums included).
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { Readable } from "node:stream";
import {
  CopyObjectCommand, CreateBucketCommand, DeleteBucketCommand, DeleteObjectsCommand, GetObjectCommand,
  HeadObjectCommand, ListObjectsV2Command, PutObjectCommand, S3Client, paginateListObjectsV2,
} from "@aws-sdk/client-s3";
import { Upload } from "@aws-sdk/lib-storage";
import { getSignedUrl } from "@aws-sdk/s3-request-presigner";

const Bucket = process.argv[2];
const s3 = new S3Client({
  endpoint: process.env.ASSAY_ENDPOINT,
  region: "us-east-1",
  forcePathStyle: true,
  maxAttempts: 1,
  credentials: { accessKeyId: process.env.ASSAY_ACCESS_KEY, secretAccessKey: process.env.ASSAY_SECRET_KEY },
});
const step = (name) => console.log(name);
const bytes = async (Key) => Buffer.from(await (await s3.send(new GetObjectCommand({ Bucket, Key }))).Body.transformToByteArray());
const refused = async (status, name, command) => {
  const error = await s3.send(command).then(() => assert.fail(`expected ${status} ${name}, but it succeeded`), (e) => e);
  assert.deepEqual([error.$metadata?.httpStatusCode, error.name], [status, name], error.stack);
};

step("CreateBucket, PutObject, GetObject, HeadObject");
await s3.send(new CreateBucketCommand({ Bucket }));
const put = await s3.send(new PutObjectCommand({ Bucket, Key: "a b/ü+&.txt", Body: "hello", Metadata: { colour: "blue" } }));
assert.ok(put.ChecksumCRC32, "the default checksum comes back");
assert.equal((await bytes("a b/ü+&.txt")).toString(), "hello");
const head = await s3.send(new HeadObjectCommand({ Bucket, Key: "a b/ü+&.txt" }));
assert.deepEqual([head.Metadata.colour, head.ContentLength, head.ETag], ["blue", 5, put.ETag]);

step("lib-storage multipart of 20 MB from a stream");
const large = randomBytes(20_000_000);
const chunks = function* () { for (let at = 0; at < large.length; at += 65_536) yield large.subarray(at, at + 65_536); };
await new Upload({ client: s3, params: { Bucket, Key: "large", Body: Readable.from(chunks()) }, partSize: 5 << 20, queueSize: 4 }).done();
assert.ok((await bytes("large")).equals(large), "the multipart object differs");
const range = await s3.send(new GetObjectCommand({ Bucket, Key: "large", Range: "bytes=19999990-" }));
assert.ok(Buffer.from(await range.Body.transformToByteArray()).equals(large.subarray(-10)));

step("conditional create and swap");
const first = await s3.send(new PutObjectCommand({ Bucket, Key: "c", Body: "1", IfNoneMatch: "*" }));
await refused(412, "PreconditionFailed", new PutObjectCommand({ Bucket, Key: "c", Body: "2", IfNoneMatch: "*" }));
await s3.send(new PutObjectCommand({ Bucket, Key: "c", Body: "2", IfMatch: first.ETag }));
await refused(412, "PreconditionFailed", new PutObjectCommand({ Bucket, Key: "c", Body: "3", IfMatch: first.ETag }));
await refused(404, "NoSuchKey", new PutObjectCommand({ Bucket, Key: "absent", Body: "3", IfMatch: first.ETag }));

step("16 racers x 20 rounds, one winner each");
for (let round = 0; round < 20; round++) {
  const Key = `race/${round}`;
  const writers = Array.from({ length: 16 }, (_, w) =>
    s3.send(new PutObjectCommand({ Bucket, Key, Body: `writer ${w}`, IfNoneMatch: "*" })).then(() => w, (e) => {
      assert.ok(["PreconditionFailed", "ConditionalRequestConflict"].includes(e.name), e.stack);
      return null;
    }));
  const winners = (await Promise.all(writers)).filter((w) => w !== null);
  assert.equal(winners.length, 1, `round ${round}: winners ${winners}`);
  assert.equal((await bytes(Key)).toString(), `writer ${winners[0]}`);
}

step("CopyObject, presigned GET, errors with their names");
await s3.send(new CopyObjectCommand({ Bucket, Key: "copied", CopySource: `${Bucket}/${encodeURIComponent("a b/ü+&.txt")}` }));
assert.equal((await bytes("copied")).toString(), "hello");
const url = await getSignedUrl(s3, new GetObjectCommand({ Bucket, Key: "copied" }), { expiresIn: 60 });
assert.equal(await (await fetch(url)).text(), "hello");
assert.equal((await fetch(url.replace("copied", "c"))).status, 403);
await refused(404, "NoSuchKey", new GetObjectCommand({ Bucket, Key: "absent" }));
await refused(404, "NoSuchBucket", new ListObjectsV2Command({ Bucket: `${Bucket}-absent` }));

step("paging, DeleteObjects, DeleteBucket");
const keys = [];
for await (const page of paginateListObjectsV2({ client: s3, pageSize: 7 }, { Bucket })) keys.push(...page.Contents.map((c) => c.Key));
assert.equal(keys.length, 24);
assert.deepEqual(keys, [...keys].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))));
const deleted = await s3.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects: keys.map((Key) => ({ Key })) } }));
assert.equal(deleted.Deleted.length, keys.length);
await s3.send(new DeleteBucketCommand({ Bucket }));
