//! Streams whose entries are rolled up and collected, and whose objects are compacted and collected.

use assay_oracle::report::Verdict;
use serde_json::{Value, json};

use crate::forge::{Forge, ROOT, framed, object, row, sha, wanted, words};

const STREAM: &str = "07070707070707070707070707070707";

fn prefixed(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_be_bytes(), bytes].concat()
}

/// Three entries of which two are rolled up, and the two objects of table `a` in them compacted into one. Nothing is
/// collected yet.
pub struct Aged {
    pub forge: Forge,
    pub entries: Vec<String>,
    pub originals: Vec<String>,
    inventory: Value,
    record: Value,
}

impl Aged {
    pub fn new() -> Self {
        let forge = Forge::three();
        let entries: Vec<String> = (0..2).map(|nth| forge.key("entries", nth)).collect();
        let body = |key: &String| -> Value {
            let bytes = &forge.objects[key];
            let at = bytes.iter().position(|byte| *byte == b'\n').expect("a header");
            serde_json::from_slice(&bytes[at + 1..]).expect("a body")
        };
        let bodies: Vec<Value> = entries.iter().map(body).collect();
        let mut chain =
            hex::decode(sha([prefixed(b"dfs3/chain/v1"), prefixed(&[7; 16])].concat())).expect("hex");
        let mut kept = Vec::new();
        let mut inputs = Vec::new();
        for (seq, (key, body)) in (1_u64..).zip(entries.iter().zip(&bodies)) {
            let hash = sha(&forge.objects[key]);
            let link = [
                &prefixed(b"dfs3/chain/v1")[..],
                &chain,
                &seq.to_be_bytes(),
                &hex::decode(&hash).expect("hex"),
            ];
            chain = hex::decode(sha(link.concat())).expect("hex");
            let objects: Vec<Value> = body["objects"]
                .as_array()
                .expect("objects")
                .iter()
                .map(|of| {
                    json!({"key": of["key"], "sha256": of["sha256"], "size": of["size"], "rows": of["rows"],
                    "table": format!("public.{}", of["table"].as_str().expect("a table"))})
                })
                .collect();
            kept.push(json!({"seq": seq.to_string(), "epoch": "1", "entry_key": key, "entry_sha256": hash,
                "digest": body["position"]["digest"], "objects": objects}));
            let of = &body["objects"]
                .as_array()
                .expect("objects")
                .iter()
                .find(|of| of["table"] == "a")
                .expect("a");
            inputs.push(
                json!({"seq": seq.to_string(), "key": of["key"], "sha256": of["sha256"], "size": of["size"],
                "rows": of["rows"], "row_seq_digest": of["row_seq_digest"]}),
            );
        }
        let rows: Vec<Value> = (2..=5).map(row).collect();
        let (output, bytes) = object(&bodies[0]["position"], "a", &rows);
        let key = format!("{ROOT}public.a/compacted/{}.jsonl", sha(&bytes));
        let inventory = json!({"stream_id": STREAM, "from_seq": "1", "to_seq": "2", "end_chain": hex::encode(&chain), "entries": kept});
        let originals = inputs.iter().map(|of| of["key"].as_str().expect("a key").to_owned()).collect();
        let record = json!({"stream_id": STREAM, "ordinal": "1", "epoch": "1", "table": "public.a", "seq_from": "1",
            "seq_to": "2", "inputs": inputs,
            "outputs": [{"key": key, "sha256": sha(&bytes), "size": output["size"], "rows": "4",
                "row_seq_digest": output["row_seq_digest"]}],
            "equivalence": {"method": "row-seq-v1", "inputs_digest": output["row_seq_digest"],
                "outputs_digest": output["row_seq_digest"], "rows_in": "4", "rows_out": "4", "equal": true},
            "prev": null, "tool_version": "1", "created_at_ms": "0"});
        let mut aged = Self { forge, entries, originals, inventory, record };
        aged.forge.objects.insert(key, bytes);
        aged
    }

    /// Publishes rollup and record.
    pub fn published(mut self) -> Self {
        let put = |forge: &mut Forge, key: String, bytes: Vec<u8>| {
            forge.objects.insert(key.clone(), bytes);
            key
        };
        let bytes = framed("inventory", &self.inventory);
        let (hash, size) = (sha(&bytes), bytes.len().to_string());
        let key =
            put(&mut self.forge, format!("{ROOT}_manifest/inventory/{:020}-{:020}-{hash}.inv", 1, 2), bytes);
        let chain = &self.inventory["end_chain"];
        let rollup = json!({"stream_id": STREAM, "gen": "1", "epoch": "1", "start_seq": "1", "end_seq": "2",
            "end_chain": chain, "prev": null, "compactions": null,
            "inventories": [{"from": "1", "to": "2", "key": key, "sha256": hash, "size": size}]});
        let bytes = framed("rollup", &rollup);
        let hash = sha(&bytes);
        let key =
            put(&mut self.forge, format!("{ROOT}_manifest/rollups/{:010}-{:020}-{hash}.rollup", 1, 2), bytes);
        self.forge.head["rollup"] = json!({"gen": "1", "key": key, "sha256": hash, "end_seq": "2"});
        let bytes = framed("compaction", &self.record);
        let hash = sha(&bytes);
        let key = put(&mut self.forge, format!("{ROOT}_manifest/compactions/{:020}-{hash}.comp", 1), bytes);
        self.forge.head["compaction"] =
            json!({"count": "1", "last": {"ordinal": "1", "key": key, "sha256": hash}});
        self
    }

    /// Removes what is not needed any more.
    fn collected(mut self) -> Self {
        self.forge.head["entry_floor"] = json!("3");
        for key in self.entries.iter().chain(&self.originals) {
            self.forge.objects.remove(key);
        }
        self
    }
}

pub fn everything() -> String {
    let a: String = (2..=7).map(|id| wanted("a", id)).collect();
    a + &(1..=3).map(|id| wanted("b", id)).collect::<String>()
}

#[tokio::test]
async fn rows_outlive_their_entries_and_originals() {
    for collected in [false, true] {
        let aged = Aged::new().published();
        let aged = if collected { aged.collected() } else { aged };
        let report = aged.forge.stored().await.judged(Some(&everything())).await;
        assert_eq!(report.verdict(), Verdict::Clean, "{}", report.text());
        let s = &report.statistics;
        let (gone, left) = if collected { (2, 0) } else { (0, 2) };
        assert_eq!(
            (s.entries_gone, s.collectable, s.compacted, s.objects),
            (gone, left, 1, 5),
            "{}",
            report.text()
        );
        assert_eq!(s.kept_for_ever.values().sum::<u64>(), 3);
        assert_eq!((s.rows["public.a"], s.orphans), (6, 0));
    }
}

#[tokio::test]
async fn what_is_collected_without_leave_is_found() {
    let mut early = Aged::new().published().collected();
    early.forge.head["entry_floor"] = json!("2");
    assert_eq!(words(&early.forge.judged().await), "missing:1");
    let mut without = Aged::new().published().collected();
    without.forge.head["compaction"] = json!(null);
    assert_eq!(words(&without.forge.judged().await), "missing:2");
    let mut without = Aged::new().published().collected();
    without.forge.head["rollup"] = json!(null);
    assert!(words(&without.forge.judged().await).contains("missing:"));
}

#[tokio::test]
async fn rollups_and_records_that_do_not_hold_are_found() {
    let mut other = Aged::new();
    other.inventory["entries"][1]["entry_sha256"] = json!(sha("other"));
    assert!(words(&other.published().forge.judged().await).contains("chain:"));
    let mut fewer = Aged::new();
    fewer.record["outputs"][0]["rows"] = json!("3");
    assert!(words(&fewer.published().forge.judged().await).contains("chain:1"));
    let mut unequal = Aged::new();
    unequal.record["equivalence"]["equal"] = json!(false);
    assert_eq!(words(&unequal.published().collected().forge.judged().await), "missing:2");
    let mut gone = Aged::new().published();
    let key = gone.forge.key("/inventory/", 0);
    gone.forge.objects.remove(&key);
    assert!(words(&gone.forge.judged().await).contains("missing:1"));
}
