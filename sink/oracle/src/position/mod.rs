//! Source positions: canonical bytes from their text, digests, and order.

mod gtid;

use std::cmp::Ordering;

use serde::Deserialize;

use crate::json::{self, Decimal, Sha, length_prefixed, sha256};
pub use gtid::GtidSet;

/// Where a position comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Lineage {
    /// The source's configured identity.
    pub source_id: String,
    /// Empty for GTID sets; server uuid, system identifier and timeline, or snapshot run for the others.
    pub scope: String,
    /// Raised by the operator whenever positions may be visited again.
    pub generation: Decimal,
}

/// A point in a source's history, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// Transactions, as MySQL names them.
    Gtid(GtidSet),
    /// File and offset of one server's binary log.
    Binlog {
        /// The file's name.
        file: String,
        /// The offset in it.
        offset: u64,
    },
    /// A log sequence number of PostgreSQL.
    Lsn(u64),
    /// How far an initial copy came.
    Snapshot {
        /// Whether it is done.
        done: bool,
        /// The table's namespace.
        namespace: String,
        /// The table.
        table: String,
        /// The chunk of the table.
        chunk: u64,
        /// The row in the chunk.
        offset: u64,
        /// The reader's cursor.
        cursor: Vec<u8>,
    },
}

#[derive(Deserialize)]
struct SnapshotText {
    phase: String,
    namespace: String,
    table: String,
    chunk: NumberText,
    offset: NumberText,
    cursor: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberText {
    Number(u64),
    Text(Decimal),
}

impl NumberText {
    const fn value(&self) -> u64 {
        match self {
            Self::Number(value) | Self::Text(Decimal(value)) => *value,
        }
    }
}

impl Point {
    /// Reads a position from its text; `kind` is the name that entries use.
    ///
    /// # Errors
    /// An unknown kind, or why the text is no position of it.
    pub fn parse(kind: &str, text: &str) -> Result<Self, String> {
        match kind {
            "mysql-gtid" => Ok(Self::Gtid(GtidSet::parse(text)?)),
            "mysql-binlog" => {
                let (file, offset) = text.rsplit_once(':').ok_or(format!("{text:?} is no FILE:POS"))?;
                let offset = json::decimal(offset).ok_or(format!("{offset:?} is no offset"))?;
                Ok(Self::Binlog { file: file.to_owned(), offset })
            }
            "pg-lsn" => {
                let half = |half: &str| {
                    let digits = !half.is_empty() && half.bytes().all(|b| b.is_ascii_hexdigit());
                    u64::from_str_radix(half, 16)
                        .ok()
                        .filter(|value| digits && *value <= u64::from(u32::MAX))
                        .ok_or(format!("{text:?} is no LSN"))
                };
                let (high, low) = text.split_once('/').ok_or(format!("{text:?} is no LSN"))?;
                Ok(Self::Lsn(half(high)? << 32 | half(low)?))
            }
            "snapshot" => {
                let text: SnapshotText = json::record(text.as_bytes())?;
                let done = match text.phase.as_str() {
                    "running" => false,
                    "done" => true,
                    other => return Err(format!("{other:?} is no phase: running or done")),
                };
                Ok(Self::Snapshot {
                    done,
                    namespace: text.namespace,
                    table: text.table,
                    chunk: text.chunk.value(),
                    offset: text.offset.value(),
                    cursor: text.cursor.into_bytes(),
                })
            }
            other => Err(format!("{other:?} is no type of position")),
        }
    }

    const fn tag(&self) -> u8 {
        match self {
            Self::Gtid(_) => 1,
            Self::Binlog { .. } => 2,
            Self::Lsn(_) => 3,
            Self::Snapshot { .. } => 4,
        }
    }

    /// The position's bytes, as they are hashed.
    #[must_use]
    pub fn canonical(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Gtid(set) => set.encode(&mut out),
            Self::Binlog { file, offset } => {
                length_prefixed(&mut out, file.as_bytes());
                out.extend(offset.to_be_bytes());
            }
            Self::Lsn(lsn) => out.extend(lsn.to_be_bytes()),
            Self::Snapshot { done, namespace, table, chunk, offset, cursor } => {
                out.push(u8::from(*done));
                length_prefixed(&mut out, namespace.as_bytes());
                length_prefixed(&mut out, table.as_bytes());
                out.extend(chunk.to_be_bytes());
                out.extend(offset.to_be_bytes());
                length_prefixed(&mut out, cursor);
            }
        }
        out
    }

    /// The watermark digest of this point in `lineage`, `sub` events into the next transaction.
    #[must_use]
    pub fn digest(&self, lineage: &Lineage, sub: u64) -> Sha {
        let mut origin = Vec::new();
        length_prefixed(&mut origin, lineage.source_id.as_bytes());
        length_prefixed(&mut origin, lineage.scope.as_bytes());
        origin.extend(lineage.generation.0.to_be_bytes());
        let mut preimage = Vec::new();
        length_prefixed(&mut preimage, b"dfs3/wm2/v1");
        preimage.push(self.tag());
        length_prefixed(&mut preimage, &origin);
        length_prefixed(&mut preimage, &self.canonical());
        preimage.extend(sub.to_be_bytes());
        sha256(&preimage)
    }

    /// How `next` stands to this one: after it, at it, before it, or nobody can say.
    #[must_use]
    pub fn order(&self, next: &Self) -> Option<Ordering> {
        match (self, next) {
            (Self::Gtid(here), Self::Gtid(there)) => there.order(here),
            (Self::Binlog { file: here, offset: from }, Self::Binlog { file: there, offset: to }) => {
                let (here, there) = (numbered(here)?, numbered(there)?);
                (here.0 == there.0).then(|| (there.1, to).cmp(&(here.1, from)))
            }
            (Self::Lsn(here), Self::Lsn(there)) => Some(there.cmp(here)),
            (
                Self::Snapshot { done: was, namespace: n1, table: t1, chunk: c1, offset: o1, .. },
                Self::Snapshot { done: is, namespace: n2, table: t2, chunk: c2, offset: o2, .. },
            ) => Some(match is.cmp(was) {
                Ordering::Equal if (n1, t1) == (n2, t2) => (c2, o2).cmp(&(c1, o1)),
                // Tables follow one another in an order that only the source knows.
                Ordering::Equal => Ordering::Greater,
                other => other,
            }),
            _ => None,
        }
    }
}

/// A log file's name and the number behind its last dot.
fn numbered(file: &str) -> Option<(&str, u64)> {
    let (name, number) = file.rsplit_once('.')?;
    Some((name, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
    const B: &str = "896e7882-18fe-11ef-ab88-22222d34d411";

    fn digest(kind: &str, source_id: &str, scope: &str, generation: u64, text: &str, sub: u64) -> String {
        let lineage = Lineage {
            source_id: source_id.to_owned(),
            scope: scope.to_owned(),
            generation: Decimal(generation),
        };
        Point::parse(kind, text).unwrap().digest(&lineage, sub).to_string()
    }

    #[test]
    fn the_vectors_of_the_protocol_hold() {
        let gtid = |text: &str| digest("mysql-gtid", "shop", "", 1, text, 0);
        let v1 = "77174c0bf132f481e90ddc65ec4da8de2c1f0be7c043b962ba99f9576b6c8c73";
        let v2 = "f6f7384cf963fe0a125269dbb1bd29a89b0a2efc0a341f114f093258a9e9c246";
        let bare = A.replace('-', "");
        for text in [
            format!("{A}:1-5"),
            format!("{}:1-5", A.to_uppercase()),
            format!("{A}:1-3,{A}:4-5"),
            format!(" {A}:4-5:1-4 \n"),
            format!("{bare}:1:2:3:4:5"),
        ] {
            assert_eq!(gtid(&text), v1, "{text}");
        }
        for text in [
            format!("{A}:1-3:5-7,{B}:1-4:aaaa:1:abc:1-3"),
            format!("{B}:abc:1-3:aaaa:1,{B}:1-4,{A}:5-7:1-3"),
            format!("{A}:1-2:3:5:6-7,{}:AAAA:1,{B}:1-4:ABC:2-3:1", B.to_uppercase()),
        ] {
            assert_eq!(gtid(&text), v2, "{text}");
        }
        assert_eq!(gtid(""), "6addf2927c76a21c03ee48cfddce112437476d55fbe74a0fb4b017eab389f590");
        assert_eq!(
            digest("mysql-binlog", "shop", A, 1, "mysql-bin.000042:1337", 0),
            "01b8a02282fe26e59c061c5a3939012036e7d3c15888ec9324f446df9c531c63"
        );
        for text in ["16/B374D848", "16/b374d848", "00000016/B374D848"] {
            assert_eq!(
                digest("pg-lsn", "shop", "7301234567890123456/1", 1, text, 0),
                "0b5559fbe28b31c9c66fb4decf1766762130eede7ba1cef6cf69c277575d50bb"
            );
        }
        assert_eq!(
            digest("pg-lsn", "shop", "7301234567890123456/2", 1, "16/B374D848", 0),
            "b8fe0e9d17c545bacbe36592f2ee0c06568ba2789419b5e369828ac6c670c96d"
        );
        let snapshot = r#"{"phase":"running","namespace":"public","table":"orders","chunk":"17","offset":0,"cursor":"{\"id\":4250}"}"#;
        assert_eq!(
            digest("snapshot", "shop", "run-01HZX5", 1, snapshot, 0),
            "2c8e610ffe692712bd30354f3f4d5cd841be40799c39802eaaa37cde5593fd71"
        );
        let one = format!("{A}:1-5");
        for (source_id, scope, generation, text, sub, wanted) in [
            (
                "shop",
                "",
                1,
                one.as_str(),
                3,
                "2e4e210ebca575766dc765618f60235d696d2da63b018a416d65076f0b947f36",
            ),
            ("shop", "", 2, &one, 0, "66e0cd4e1abfee7086de15a353283ae5ec91f278566f5c1b0ce05a857c93d19b"),
            ("sho", "p", 1, &one, 0, "b18e1c2fb0b3975bd5baa6051257ca0635cbf3280a3d79bc17e339fc88037187"),
            (
                "shop",
                "",
                1,
                &format!("{A}:1-4:6"),
                0,
                "889aba6bb3436e1420dbaa2cf290a7d3d33511322da1574bcd176fc030862209",
            ),
            (
                "shop",
                "",
                1,
                &format!("{A}:x:1-5"),
                0,
                "140df1a17abb2cf8d1b2c061cb3b8829877c8944210632c1632a002815c9a425",
            ),
        ] {
            assert_eq!(digest("mysql-gtid", source_id, scope, generation, text, sub), wanted);
        }
    }

    #[test]
    fn texts_that_are_no_positions_are_refused() {
        for (kind, text) in [
            ("mysql-binlog", "mysql-bin.000042"),
            ("mysql-binlog", "mysql-bin.000042:-1"),
            ("pg-lsn", "16"),
            ("pg-lsn", "100000000/0"),
            ("pg-lsn", "/0"),
            ("pg-lsn", "+1/0"),
            (
                "snapshot",
                r#"{"phase":"paused","namespace":"p","table":"t","chunk":1,"offset":0,"cursor":""}"#,
            ),
            ("snapshot", "{}"),
            ("kafka", "0"),
        ] {
            assert!(Point::parse(kind, text).is_err(), "{kind} {text}");
        }
    }

    #[test]
    fn positions_are_ordered_within_their_kind() {
        let order = |kind: &str, here: &str, there: &str| {
            Point::parse(kind, here).unwrap().order(&Point::parse(kind, there).unwrap())
        };
        use Ordering::{Equal, Greater, Less};
        assert_eq!(order("pg-lsn", "0/FF", "1/0"), Some(Greater));
        assert_eq!(order("pg-lsn", "1/0", "0/FF"), Some(Less));
        assert_eq!(order("mysql-binlog", "b.999999:9", "b.1000000:4"), Some(Greater));
        assert_eq!(order("mysql-binlog", "b.000001:9", "c.000002:4"), None);
        assert_eq!(order("mysql-gtid", &format!("{A}:1-5"), &format!("{A}:1-6")), Some(Greater));
        assert_eq!(order("mysql-gtid", &format!("{A}:1-5"), &format!("{A}:1-2:3-5")), Some(Equal));
        assert_eq!(order("mysql-gtid", &format!("{A}:1-5"), &format!("{A}:1-4:6")), None);
        let at = |phase: &str, table: &str, chunk: u64| {
            format!(
                r#"{{"phase":"{phase}","namespace":"p","table":"{table}","chunk":{chunk},"offset":0,"cursor":""}}"#
            )
        };
        assert_eq!(order("snapshot", &at("running", "t", 1), &at("running", "t", 2)), Some(Greater));
        assert_eq!(order("snapshot", &at("running", "t", 2), &at("running", "a", 0)), Some(Greater));
        assert_eq!(order("snapshot", &at("done", "t", 1), &at("running", "t", 2)), Some(Less));
    }
}
