//! A small bucket as a sink leaves it, made by an encoder of the tests' own; every part of it can be spoiled.

use std::collections::BTreeMap;

use assay_oracle::bucket::{Access, Bucket};
use assay_oracle::durable::{Subject, judge};
use assay_oracle::expected::Expected;
use assay_oracle::report::Report;
use assay_server::Server;
use aws_sdk_s3::primitives::ByteStream;
use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub const ROOT: &str = "cdc/orders/";
const STREAM: [u8; 16] = [7; 16];
const SCOPE: &str = "7301234567890123456/1";

pub fn sha(bytes: impl AsRef<[u8]>) -> String {
    hex::encode(Sha256::digest(bytes))
}

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_be_bytes(), bytes].concat()
}

fn number(text: &Value) -> u64 {
    text.as_str().and_then(|text| text.parse().ok()).expect("a decimal string")
}

/// The frame of a manifest object.
pub fn framed(kind: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    format!("DFS3 {kind} 1.0 {} {}\n{body}", body.len(), sha(&body)).into_bytes()
}

/// A position with its digest, from the bytes that are hashed.
pub fn position(kind: &str, tag: u8, scope: &str, text: &str, canonical: &[u8], sub: u64) -> Value {
    let lineage = [prefixed(b"shop"), prefixed(scope.as_bytes()), 1_u64.to_be_bytes().to_vec()].concat();
    let preimage = [
        prefixed(b"dfs3/wm2/v1"),
        vec![tag],
        prefixed(&lineage),
        prefixed(canonical),
        sub.to_be_bytes().to_vec(),
    ]
    .concat();
    json!({
        "type": kind, "lineage": {"source_id": "shop", "scope": scope, "generation": "1"}, "text": text,
        "canonical_b64": base64::engine::general_purpose::STANDARD.encode(canonical),
        "sub": sub.to_string(), "digest": sha(preimage),
    })
}

pub fn lsn(value: u64) -> Value {
    let text = format!("{:X}/{:X}", value >> 32, value & 0xFFFF_FFFF);
    position("pg-lsn", 3, SCOPE, &text, &value.to_be_bytes(), 0)
}

/// The record of one object and its bytes, rows of one table.
pub fn object(position: &Value, table: &str, rows: &[Value]) -> (Value, Vec<u8>) {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    let bytes = lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect();
    object_of(position, table, &lines, bytes, "jsonl")
}

/// The same of any format, whose name is the key's ending.
pub fn object_of(
    position: &Value,
    table: &str,
    lines: &[String],
    bytes: Vec<u8>,
    format: &str,
) -> (Value, Vec<u8>) {
    let digest = position["digest"].as_str().expect("a digest");
    let sequence = [
        prefixed(b"dfs3/rows/v1"),
        lines.iter().flat_map(|line| prefixed(line.as_bytes())).collect(),
        (lines.len() as u64).to_be_bytes().to_vec(),
    ]
    .concat();
    let record = json!({
        "namespace": "public", "table": table, "layout": "wm2",
        "key": format!("{ROOT}public.{table}/wm2-{digest}/{}.{format}", sha(&bytes)),
        "sha256": sha(&bytes), "size": bytes.len().to_string(), "rows": lines.len().to_string(),
        "format": format, "compression": "none", "schema_fingerprint": sha("schema"),
        "row_seq_digest": sha(sequence), "etag": null,
    });
    (record, bytes)
}

pub fn row(id: u64) -> Value {
    json!({"op": "c", "after": {"id": id}})
}

/// What is expected of [`row`].
pub fn wanted(table: &str, id: u64) -> String {
    let line = json!({"namespace": "public", "table": table, "row": {"/op": "c", "/after": {"id": id}}});
    format!("{line}\n")
}

/// Everything in the bucket, until it is stored.
#[derive(Clone)]
pub struct Forge {
    pub objects: BTreeMap<String, Vec<u8>>,
    pub head: Value,
    chain: Vec<u8>,
}

impl Forge {
    pub fn new() -> Self {
        let chain = Sha256::digest([prefixed(b"dfs3/chain/v1"), prefixed(&STREAM)].concat()).to_vec();
        let head = json!({
            "stream_id": hex::encode(STREAM), "pipeline": "orders", "prefix": "cdc",
            "min_reader": 0, "min_writer": 0, "rev": "1", "epoch": "1",
            "owner": {"writer_id": "00", "instance": "a", "acquired_rev": "1", "acquired_at_ms": "0"},
            "write": {"nonce": format!("{:032x}", 1), "intent": "init", "attempt_at_ms": "0"},
            "recent": [], "seq": "0", "chain": hex::encode(&chain), "last_entry": null, "watermark": null,
            "entry_floor": "1", "rollup": null, "prev_rollup": null, "compaction": null, "lease": null,
        });
        Self { objects: BTreeMap::new(), head, chain }
    }

    /// Three entries over two tables: what most tests spoil.
    pub fn three() -> Self {
        Self::grown(3)
    }

    /// So many entries over two tables.
    pub fn grown(entries: u64) -> Self {
        let mut forge = Self::new();
        for seq in 1..=entries {
            let position = lsn(seq * 0x100);
            let tables = vec![
                object(&position, "a", &[row(seq * 2), row(seq * 2 + 1)]),
                object(&position, "b", &[row(seq)]),
            ];
            forge.commit(position, tables, |_| {});
        }
        forge
    }

    /// Commits one entry; `spoil` may change its body before it is hashed and linked.
    pub fn commit(
        &mut self,
        position: Value,
        objects: Vec<(Value, Vec<u8>)>,
        spoil: impl FnOnce(&mut Value),
    ) {
        let (mut records, bytes): (Vec<Value>, Vec<Vec<u8>>) = objects.into_iter().unzip();
        for (record, bytes) in records.iter().zip(bytes) {
            self.objects.insert(record["key"].as_str().expect("a key").to_owned(), bytes);
        }
        records.sort_by_key(|record| record["key"].as_str().map(str::to_owned));
        let batch: Vec<u8> = records
            .iter()
            .flat_map(|record| {
                let sha256 = hex::decode(record["sha256"].as_str().expect("a hash")).expect("hexadecimal");
                [prefixed(record["key"].as_str().expect("a key").as_bytes()), prefixed(&sha256)].concat()
            })
            .collect();
        let seq = number(&self.head["seq"]) + 1;
        let mut prev = self.head["last_entry"].clone();
        if let Some(prev) = prev.as_object_mut() {
            prev.remove("size");
        }
        let mut body = json!({
            "stream_id": hex::encode(STREAM), "seq": seq.to_string(), "epoch": self.head["epoch"],
            "writer_id": "00", "nonce": format!("{seq:032x}"), "prev": prev, "kind": "batch",
            "position": position, "prev_digest": self.head["watermark"]["digest"], "objects": records,
            "batch": {"events": "1", "min_ts_ms": null, "max_ts_ms": null, "batch_digest": sha(batch)},
            "created_at_ms": "0",
        });
        spoil(&mut body);
        let bytes = framed("entry", &body);
        let (seq, epoch) = (number(&body["seq"]), number(&body["epoch"]));
        let key = format!("{ROOT}_manifest/entries/{seq:020}-{epoch:010}-{}.entry", sha(&bytes));
        self.chain = Sha256::digest(
            [
                prefixed(b"dfs3/chain/v1"),
                self.chain.clone(),
                seq.to_be_bytes().to_vec(),
                Sha256::digest(&bytes).to_vec(),
            ]
            .concat(),
        )
        .to_vec();
        let rev = number(&self.head["rev"]);
        let write = json!({"rev": rev.to_string(), "nonce": self.head["write"]["nonce"], "epoch": self.head["epoch"]});
        if let Some(recent) = self.head["recent"].as_array_mut() {
            recent.push(write);
        }
        self.head["rev"] = json!((rev + 1).to_string());
        self.head["write"]["nonce"] = json!(format!("{:032x}", rev + 1));
        self.head["seq"] = json!(seq.to_string());
        self.head["chain"] = json!(hex::encode(&self.chain));
        self.head["last_entry"] = json!({"seq": seq.to_string(), "key": key, "sha256": sha(&bytes), "size": bytes.len().to_string()});
        let position = &body["position"];
        self.head["watermark"] =
            json!({"type": position["type"], "digest": position["digest"], "lineage_digest": sha("lineage")});
        self.objects.insert(key, bytes);
    }

    /// The key of the nth object whose key has this in it.
    pub fn key(&self, part: &str, nth: usize) -> String {
        self.objects.keys().filter(|key| key.contains(part)).nth(nth).expect("such a key").clone()
    }

    /// Stores HEAD and everything else on a server of its own.
    pub async fn stored(mut self) -> Stored {
        self.objects.entry(format!("{ROOT}_manifest/HEAD")).or_insert_with(|| framed("head", &self.head));
        let server = Server::builder().bucket("lake").start().await.expect("a server on loopback");
        let stored = Stored { server };
        for (key, bytes) in self.objects {
            stored.put(&key, bytes).await;
        }
        stored
    }

    pub async fn judged(self) -> Report {
        self.stored().await.judged(None).await
    }

    /// The kinds of findings, and what could not be judged.
    pub async fn found(self) -> String {
        words(&self.judged().await)
    }
}

pub fn words(report: &Report) -> String {
    let kinds = report.counts.iter().map(|(kind, count)| format!("{}:{count}", kind.name()));
    kinds.chain(report.inconclusive.iter().map(|why| format!("({why})"))).collect::<Vec<_>>().join(" ")
}

/// A bucket on a server.
pub struct Stored {
    pub server: Server,
}

impl Stored {
    pub fn client(&self) -> aws_sdk_s3::Client {
        let config = aws_sdk_s3::Config::builder()
            .behavior_version_latest()
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(self.server.endpoint())
            .force_path_style(true)
            .region(aws_sdk_s3::config::Region::new(self.server.region().to_owned()))
            .credentials_provider(aws_sdk_s3::config::Credentials::new(
                self.server.access_key(),
                self.server.secret_key(),
                None,
                None,
                "test",
            ));
        aws_sdk_s3::Client::from_conf(config.build())
    }

    pub async fn put(&self, key: &str, bytes: Vec<u8>) {
        let request = self.client().put_object().bucket("lake").key(key).body(ByteStream::from(bytes));
        request.send().await.expect("the object is stored");
    }

    pub fn bucket(&self) -> Bucket {
        Bucket::new(&Access {
            endpoint: Some(self.server.endpoint().to_owned()),
            region: self.server.region().to_owned(),
            bucket: "lake".to_owned(),
            path_style: true,
            access_key: self.server.access_key().to_owned(),
            secret_key: self.server.secret_key().to_owned(),
            session_token: None,
        })
    }

    pub async fn judged(&self, expected: Option<&str>) -> Report {
        let subject = Subject { prefix: "cdc".to_owned(), pipeline: "orders".to_owned() };
        let expected = expected.map(|list| Expected::read(list.as_bytes()).expect("a list"));
        judge(&self.bucket(), &subject, expected).await.expect("a report")
    }
}
