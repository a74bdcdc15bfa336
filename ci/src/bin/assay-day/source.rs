//! What the source has: transactions that follow from a seed, and the rows that must be in the bucket for each.

use serde_json::{Value, json};

const TABLES: [&str; 3] = ["orders", "items", "payments"];

/// A source of so many transactions.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// What they follow from.
    pub seed: u64,
}

/// One transaction.
#[derive(Debug)]
pub struct Transaction {
    /// Its events, as lines for the sink.
    pub lines: String,
    /// Its rows, as lines for the oracle.
    pub expected: String,
}

impl Source {
    /// Transaction `n`, counted from 1: its place in the log.
    pub fn transaction(self, n: u64) -> Transaction {
        let mut random = fastrand::Rng::with_seed(self.seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut rows: Vec<(&str, Value)> = Vec::new();
        for table in TABLES {
            // One table is in each transaction, so that none is empty.
            if table != TABLES[0] && random.u8(..3) == 0 {
                continue;
            }
            for row in 0..random.u64(1..=4) {
                let note: String = (0..random.usize(10..120)).map(|_| random.alphanumeric()).collect();
                rows.push((table, json!({"id": 10 * n + row, "transaction": n, "note": note})));
            }
        }
        let last = rows.len() - 1;
        let (mut lines, mut expected) = (String::new(), String::new());
        for (index, (table, after)) in rows.into_iter().enumerate() {
            let source = json!({"namespace": "shop", "table": table, "position": format!("0/{n:X}")});
            let event = json!({"op": "c", "ts_ms": n, "before": null, "after": after, "tx_end": index == last, "source": source});
            lines.push_str(&format!("{event}\n"));
            let row = json!({"namespace": "shop", "table": table, "row": {"/op": "c", "/after": after}});
            expected.push_str(&format!("{row}\n"));
        }
        Transaction { lines, expected }
    }
}

/// Which transaction a position of the sink is behind.
pub fn number(position: &str) -> Option<u64> {
    u64::from_str_radix(position.strip_prefix("0/")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_follows_from_its_seed_and_number() {
        let source = Source { seed: 7 };
        let one = source.transaction(1);
        assert_eq!(one.lines, source.transaction(1).lines);
        assert_ne!(one.lines, source.transaction(2).lines);
        assert_ne!(one.lines, Source { seed: 8 }.transaction(1).lines);
        assert_eq!(one.lines.matches("\"tx_end\":true").count(), 1);
        assert_eq!(one.lines.lines().count(), one.expected.lines().count());
        assert_eq!(number("0/7D0"), Some(2000));
    }
}
