//! The `source` of an event: its table, its transaction's place, and whose history that is in.

use serde::Deserialize;

use super::super::{At, Change, Line, Mark, What};
use super::Scalar;
use crate::config::Source;
use crate::model::position::{BinlogPoint, Lineage, Lsn, PositionType};

#[derive(Deserialize)]
pub(super) struct SourceBlock<'a> {
    #[serde(borrow)]
    r#type: Option<Scalar<'a>>,
    #[serde(borrow)]
    position: Option<Scalar<'a>>,
    #[serde(borrow)]
    lineage: Option<LineageBlock<'a>>,
    #[serde(borrow)]
    namespace: Option<Scalar<'a>>,
    #[serde(borrow)]
    table: Option<Scalar<'a>>,
    #[serde(borrow)]
    index: Option<Scalar<'a>>,
    #[serde(borrow)]
    pub(super) ts_ms: Option<Scalar<'a>>,
    // From here on as Debezium and DeltaForge name them.
    #[serde(borrow)]
    pub(super) connector: Option<Scalar<'a>>,
    #[serde(borrow)]
    name: Option<Scalar<'a>>,
    #[serde(borrow)]
    db: Option<Scalar<'a>>,
    #[serde(borrow)]
    schema: Option<Scalar<'a>>,
    #[serde(borrow)]
    snapshot: Option<Scalar<'a>>,
    #[serde(borrow)]
    gtid: Option<Scalar<'a>>,
    #[serde(borrow)]
    file: Option<Scalar<'a>>,
    #[serde(borrow)]
    pos: Option<Scalar<'a>>,
    #[serde(borrow)]
    sequence: Option<Scalar<'a>>,
    #[serde(borrow)]
    tx_final_lsn: Option<Scalar<'a>>,
    #[serde(borrow)]
    change_ordinal: Option<Scalar<'a>>,
    #[serde(borrow, rename = "txId")]
    tx_id: Option<Scalar<'a>>,
}

/// An event out of the log, and what stands beside its source.
pub(super) struct Streamed {
    pub(super) change: Box<Change>,
    /// What its transaction is called.
    pub(super) unit: Option<String>,
    /// Its place in it.
    pub(super) order: Option<u64>,
    /// Whether it ends with it.
    pub(super) last: bool,
}

impl Streamed {
    fn at(self, mark: Mark) -> Line {
        let unit = self.unit.unwrap_or_else(|| mark.at.text());
        let Self { change, order, last, .. } = self;
        Line::Change { change, unit, mark: Some(mark), committed: None, order, last }
    }
}

#[derive(Deserialize)]
struct LineageBlock<'a> {
    #[serde(borrow)]
    source_id: Option<Scalar<'a>>,
    #[serde(borrow)]
    scope: Option<Scalar<'a>>,
    #[serde(borrow)]
    generation: Option<Scalar<'a>>,
}

impl SourceBlock<'_> {
    /// Namespace and table.
    pub(super) fn table(&self) -> Result<(String, String), What> {
        let namespace =
            [("source.namespace", &self.namespace), ("source.schema", &self.schema), ("source.db", &self.db)]
                .into_iter()
                .find_map(|(field, value)| value.as_ref().map(|value| value.text(field)));
        let why = "it names the table together with its database or schema";
        let namespace = namespace.ok_or(What::Missing { field: "source.namespace", why })??;
        let table = self.table.as_ref().ok_or(What::Missing { field: "source.table", why })?;
        Ok((namespace.to_owned(), table.text("source.table")?.to_owned()))
    }

    /// The event's place in its transaction, if its source counts them.
    pub(super) fn order(&self) -> Result<Option<u64>, What> {
        match (&self.index, &self.change_ordinal) {
            (Some(index), _) => index.number("source.index").map(Some),
            (None, Some(ordinal)) => ordinal.number("source.change_ordinal").map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The word that says which row of a snapshot it is, if it is one.
    pub(super) fn snapshot(&self) -> Result<Option<String>, What> {
        let field = "source.snapshot";
        match &self.snapshot {
            None | Some(Scalar::Flag(false)) => Ok(None),
            Some(Scalar::Flag(true)) => Ok(Some("true".to_owned())),
            Some(value) => match value.text(field)? {
                "false" => Ok(None),
                word @ ("true" | "first" | "first_in_data_collection" | "last_in_data_collection" | "last") => {
                    Ok(Some(word.to_owned()))
                }
                _ => Err(value.wrong(
                    field,
                    "true, first, first_in_data_collection, last_in_data_collection, last or false is wanted; \
                     rows of an incremental snapshot have no position of their own",
                )),
            },
        }
    }
}

/// Whose history positions are in: what is configured, and what events say where nothing is.
#[derive(Debug)]
pub(super) struct Lineages {
    id: Option<String>,
    position: Option<PositionType>,
    pg_scope: Option<String>,
    server_uuid: Option<String>,
    snapshot_id: Option<String>,
    generation: u64,
}

impl Lineages {
    pub(super) fn new(source: &Source) -> Self {
        Self {
            id: source.id.clone(),
            position: source.position,
            pg_scope: source.pg_scope.clone(),
            server_uuid: source.server_uuid.clone(),
            snapshot_id: source.snapshot_id.clone(),
            generation: source.generation,
        }
    }

    /// The place that an event of the own envelope names; nothing if it is none.
    pub(super) fn own(&self, source: &SourceBlock) -> Result<Option<Mark>, What> {
        let Some(position) = &source.position else { return Ok(None) };
        let kind = match (&source.r#type, self.position) {
            (Some(kind), _) => {
                let text = kind.text("source.type")?;
                text.parse().map_err(|error| What::Position { field: "source.type", error })?
            }
            (None, Some(kind)) => kind,
            (None, None) => {
                return Err(What::NotConfigured {
                    key: "source.position",
                    field: "source.type",
                    why: "it says what kind of position it is",
                });
            }
        };
        let text = match position {
            // A snapshot's progress may stand there as the object that it is.
            Scalar::Object(object) if kind == PositionType::Snapshot => {
                serde_json::to_string(object).map_err(|error| What::Json(error.to_string()))?
            }
            other => other.text("source.position")?.to_owned(),
        };
        let at = at(kind, &text).map_err(|error| What::Position { field: "source.position", error })?;
        Ok(Some(Mark { lineage: self.lineage(kind, source)?, at }))
    }

    pub(super) fn snapshot(&self, source: &SourceBlock) -> Result<Lineage, What> {
        self.lineage(PositionType::Snapshot, source)
    }

    /// An event of Debezium's or DeltaForge's out of the log.
    pub(super) fn streamed(&self, source: &SourceBlock, event: Streamed) -> Result<Line, What> {
        match source.connector.as_ref().map(|name| name.text("source.connector")).transpose()? {
            Some("postgresql" | "postgres") => self.postgres(source, event),
            Some("mysql" | "mariadb") => self.mysql(source, event),
            _ => Err(match &source.connector {
                Some(name) => name.wrong("source.connector", "postgresql, mysql or mariadb is wanted"),
                None => What::Missing { field: "source.connector", why: "it says whose event it is" },
            }),
        }
    }

    fn postgres(&self, source: &SourceBlock, event: Streamed) -> Result<Line, What> {
        let lineage = self.lineage(PositionType::PgLsn, source)?;
        let lsn = |field, text: &str| {
            let lsn = text.parse::<Lsn>().map_err(|error| What::Position { field, error })?;
            Ok::<_, What>(Mark { lineage: lineage.clone(), at: At::Lsn(lsn) })
        };
        if let Some(commit) = &source.tx_final_lsn {
            let mark = lsn("source.tx_final_lsn", commit.text("source.tx_final_lsn")?)?;
            return Ok(Streamed { unit: None, ..event }.at(mark));
        }
        // An event's own LSN is no place to go on from: transactions that overlap interleave. Debezium says
        // where the transaction before was committed.
        let why = "it says where the transaction before this one was committed";
        let field = "source.sequence";
        let sequence = source.sequence.as_ref().ok_or(What::Missing { field, why })?;
        let text = sequence.text(field)?;
        let pair: [Option<String>; 2] = serde_json::from_str(text)
            .map_err(|_| sequence.wrong(field, "a JSON list of two LSNs in decimal is wanted"))?;
        let committed = match &pair[0] {
            Some(number) => {
                let number = number
                    .parse()
                    .map_err(|_| sequence.wrong(field, "a JSON list of two LSNs in decimal is wanted"))?;
                Some(Box::new(Mark { lineage: lineage.clone(), at: At::Lsn(Lsn(number)) }))
            }
            None => None,
        };
        let Streamed { change, unit, order, last } = event;
        let unit = match (unit, &source.tx_id) {
            (_, Some(id)) => id.word("source.txId")?,
            // Debezium's id of a transaction is `txId:LSN`, and the LSN is the event's.
            (Some(id), None) => id.split(':').next().unwrap_or_default().to_owned(),
            (None, None) => {
                return Err(What::Missing { field: "source.txId", why: "it groups a transaction" });
            }
        };
        Ok(Line::Change { change, unit, mark: None, committed, order, last })
    }

    fn mysql(&self, source: &SourceBlock, event: Streamed) -> Result<Line, What> {
        if self.position != Some(PositionType::MysqlBinlog)
            && let Some(gtid) = &source.gtid
        {
            let field = "source.gtid";
            let at = at(PositionType::MysqlGtid, gtid.text(field)?)
                .map_err(|error| What::Position { field, error })?;
            let mark = Mark { lineage: self.lineage(PositionType::MysqlGtid, source)?, at };
            return Ok(Streamed { unit: None, ..event }.at(mark));
        }
        let why = "without a GTID, file and offset are the event's place";
        if self.position == Some(PositionType::MysqlGtid) {
            let why = "source.position is configured as mysql-gtid";
            return Err(What::Missing { field: "source.gtid", why });
        }
        let file = source.file.as_ref().ok_or(What::Missing { field: "source.file", why })?;
        let offset = source.pos.as_ref().ok_or(What::Missing { field: "source.pos", why })?;
        let point = BinlogPoint::new(file.text("source.file")?, offset.number("source.pos")?)
            .map_err(|error| What::Position { field: "source.file", error })?;
        let mark = Mark { lineage: self.lineage(PositionType::MysqlBinlog, source)?, at: At::Binlog(point) };
        Ok(event.at(mark))
    }

    /// The lineage of a position of this kind: what is configured, which events may repeat but not contradict.
    fn lineage(&self, kind: PositionType, source: &SourceBlock) -> Result<Lineage, What> {
        let said = source.lineage.as_ref();
        let (key, configured) = match kind {
            PositionType::MysqlGtid => ("source.position", Some(String::new())),
            PositionType::MysqlBinlog => ("source.server_uuid", self.server_uuid.clone()),
            PositionType::PgLsn => ("source.system_identifier", self.pg_scope.clone()),
            PositionType::Snapshot => ("source.snapshot_id", self.snapshot_id.clone()),
        };
        let field = "source.lineage.scope";
        let in_event =
            said.and_then(|said| said.scope.as_ref()).map(|scope| scope.text(field)).transpose()?;
        let why = "positions of this type repeat without it";
        let scope =
            agree(field, in_event, key, configured)?.ok_or(What::NotConfigured { key, field, why })?;
        kind.check_scope(&scope).map_err(|error| What::Position { field, error })?;
        let field = "source.lineage.source_id";
        // The logical name of Debezium's connector is a source's name where none is configured.
        let in_event = match (said.and_then(|said| said.source_id.as_ref()), &source.name, &self.id) {
            (Some(id), _, _) => Some(id.text(field)?),
            (None, Some(name), None) => Some(name.text("source.name")?),
            _ => None,
        };
        let why = "it tells sources apart";
        let id = agree(field, in_event, "source.id", self.id.clone())?;
        let id = id.ok_or(What::NotConfigured { key: "source.id", field, why })?;
        if let Some(generation) = said.and_then(|said| said.generation.as_ref()) {
            let field = "source.lineage.generation";
            let found = generation.number(field)?.to_string();
            agree(field, Some(&found), "source.generation", Some(self.generation.to_string()))?;
        }
        Lineage::new(id, scope, self.generation)
            .map_err(|error| What::Position { field: "source.lineage.source_id", error })
    }
}

fn agree(
    field: &'static str,
    found: Option<&str>,
    key: &'static str,
    configured: Option<String>,
) -> Result<Option<String>, What> {
    match (found, configured) {
        (Some(found), Some(configured)) if found != configured => {
            Err(What::OtherSource { field, found: found.to_owned(), key, configured })
        }
        (_, Some(configured)) => Ok(Some(configured)),
        (found, None) => Ok(found.map(str::to_owned)),
    }
}

fn at(kind: PositionType, text: &str) -> Result<At, crate::model::position::PositionError> {
    Ok(match kind {
        PositionType::MysqlGtid => At::Gtid(text.parse()?),
        PositionType::MysqlBinlog => At::Binlog(text.parse()?),
        PositionType::PgLsn => At::Lsn(text.parse()?),
        PositionType::Snapshot => At::Snapshot(text.parse()?),
    })
}
