//! Everything stored as one file: written from an image, read into any store, memory to disk and back.
//!
//! The file is a line that names the format, then frames of one tag byte each; numbers are big-endian:
//!
//! | tag | content |
//! | --- | --- |
//! | `S` | u64: the last sequence number |
//! | `B` | u64 id, u64 size, the bytes of a body |
//! | `R` | u32 length of the key, u32 length of the value, a row of the index that is no body |
//! | `E` | SHA-256 of everything before it; the end |
//!
//! Bodies come before the rows that name them. Rows are those of `rows.rs`, each record with its own format number;
//! the ids of bodies mean something within the file only. Nothing is changed before the whole file was read and
//! its checksum found right.

use std::collections::HashMap;
use std::io;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::blob::Draft;
use super::buckets::version_record;
use super::index::{IndexError, RowsMut};
use super::model::Part;
use super::objects::encode_version;
use super::{Image, Segment, Store, StoreError, number, rows};
use crate::service::RequestBody;
use crate::stream::Reader;

/// The first line. Another format gets another number, and this server refuses it.
const FORMAT: &[u8] = b"assay state, format 1\n";

/// Length of the longest first line that is looked at.
const MAX_LINE_BYTES: usize = 64;

/// Longest key of a row: a bucket's name and an object's key with each byte escaped, and numbers.
const MAX_ROW_KEY_BYTES: u32 = 4 * 1024;

/// Longest value of a row: an object of 10,000 parts with their checksums takes about 2 MiB.
const MAX_ROW_BYTES: u32 = 16 * 1024 * 1024;

/// Why a file is not loaded. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error(
        "not a file of this server: it begins with {0:?}; expected one that /_assay/state or --save wrote"
    )]
    Foreign(String),
    #[error("the file is damaged: {0}; save it anew")]
    Damaged(String),
    #[error("cannot read the file: {0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<IndexError> for LoadError {
    fn from(error: IndexError) -> Self {
        Self::Store(error.into())
    }
}

/// Where a file comes from.
pub(crate) enum Source<'a> {
    File(Reader),
    Body(&'a mut RequestBody),
}

impl Source<'_> {
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        match self {
            Self::File(reader) => reader.next().await,
            Self::Body(body) => loop {
                match body.frame().await {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(io::Error::other(error)),
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            return Ok(Some(data));
                        }
                    }
                }
            },
        }
    }
}

/// Writes pieces and their checksum.
struct Output<'a> {
    pieces: &'a mpsc::Sender<io::Result<Bytes>>,
    hash: Sha256,
}

impl Output<'_> {
    /// Nothing where nobody reads any more.
    async fn put(&mut self, bytes: Bytes) -> Option<()> {
        self.hash.update(&bytes);
        self.pieces.send(Ok(bytes)).await.ok()
    }
}

impl Store {
    /// Sends an image of this store as a file, piece by piece; an error in reading is the last piece.
    pub(crate) async fn save(&self, image: &Image, pieces: &mpsc::Sender<io::Result<Bytes>>) {
        let mut out = Output { pieces, hash: Sha256::new() };
        if let Err(error) = self.write(image, &mut out).await {
            // Whoever would be told is gone, or is told.
            let _ = pieces.send(Err(error)).await;
        }
    }

    async fn write(&self, image: &Image, out: &mut Output<'_>) -> io::Result<()> {
        let gone = || io::Error::from(io::ErrorKind::BrokenPipe);
        out.put(Bytes::from_static(FORMAT)).await.ok_or_else(gone)?;
        let mut rest = &image.rows[..];
        while let Some((key, _)) = rest.first() {
            let Some(id) = rows::blob_of(key) else {
                rest = &rest[1..];
                continue;
            };
            let count = rest.iter().take_while(|(key, _)| rows::blob_of(key) == Some(id)).count();
            let (pieces, later) = rest.split_at(count);
            rest = later;
            let segments =
                pieces.iter().map(|(_, piece)| self.segment(id, piece)).collect::<io::Result<Vec<_>>>()?;
            let mut head = BytesMut::with_capacity(17);
            head.put_u8(b'B');
            head.put_u64(id);
            head.put_u64(segments.iter().map(Segment::length).sum());
            out.put(head.freeze()).await.ok_or_else(gone)?;
            let mut reader = Reader::new((segments, None));
            while let Some(piece) = reader.next().await? {
                out.put(piece).await.ok_or_else(gone)?;
            }
        }
        for (key, value) in &image.rows {
            let mut frame = BytesMut::with_capacity(9 + key.len() + value.len());
            match key[..] {
                [b'C', ..] | [b'G'] => continue,
                [b'S'] => {
                    frame.put_u8(b'S');
                    frame.put_u64(number(Some(value.clone())));
                }
                _ => {
                    frame.put_u8(b'R');
                    // A key has up to 4 KiB and a value up to 16 MiB.
                    frame.put_u32(key.len() as u32);
                    frame.put_u32(value.len() as u32);
                    frame.put_slice(key);
                    frame.put_slice(value);
                }
            }
            out.put(frame.freeze()).await.ok_or_else(gone)?;
        }
        let sum = out.hash.clone().finalize();
        out.put(Bytes::from([&b"E"[..], &sum].concat())).await.ok_or_else(gone)
    }

    /// A row of a body: its bytes, or the file that it stands for.
    fn segment(&self, id: u64, piece: &Bytes) -> io::Result<Segment> {
        match self.blobs.path(id) {
            Some(path) if piece.is_empty() => {
                let length = std::fs::metadata(&path)?.len();
                Ok(Segment::File { path, offset: 0, length })
            }
            _ => Ok(Segment::Bytes(piece.clone())),
        }
    }

    /// Makes the state what a file says.
    ///
    /// # Errors
    /// [`LoadError`]; nothing has changed then.
    pub(crate) async fn load(&self, source: Source<'_>) -> Result<(), LoadError> {
        let mut input = Input { source, piece: Bytes::new(), hash: Sha256::new(), read: 0 };
        let line = input.line().await?;
        if line[..] != *FORMAT {
            return Err(LoadError::Foreign(String::from_utf8_lossy(&line).trim_end().to_owned()));
        }
        let (mut bodies, mut new, mut last) = (HashMap::new(), Vec::new(), 0);
        loop {
            let sum = input.hash.clone().finalize();
            match input.number(1).await? as u8 {
                b'S' => last = input.number(8).await?,
                b'B' => {
                    let (id, size) = (input.number(8).await?, input.number(8).await?);
                    bodies.insert(id, self.take_body(&mut input, size).await?);
                }
                b'R' => {
                    let (key, value) = (input.number(4).await? as u32, input.number(4).await? as u32);
                    if key > MAX_ROW_KEY_BYTES || value > MAX_ROW_BYTES {
                        return Err(input.damaged("a row is too long"));
                    }
                    let (key, value) = (input.take(key as usize).await?, input.take(value as usize).await?);
                    if !matches!(key.first(), Some(b'B' | b'O' | b'V' | b'N' | b'U' | b'P' | b'D' | b'T')) {
                        return Err(input.damaged("a row is of no known kind"));
                    }
                    new.push((key, value));
                }
                b'E' if input.take(sum.len()).await?[..] == sum[..] => break,
                b'E' => return Err(input.damaged("its checksum is another")),
                _ => return Err(input.damaged("a frame is of no known kind")),
            }
        }
        if input.more().await? {
            return Err(input.damaged("there is more after its end"));
        }
        self.replace(bodies, new, last).await
    }

    async fn take_body(&self, input: &mut Input<'_>, size: u64) -> Result<Draft, LoadError> {
        let mut writer = self.writer(size);
        let mut left = size;
        while left > 0 {
            let piece = input.some(left).await?;
            left -= piece.len() as u64;
            writer.write(&piece).await.map_err(StoreError::from)?;
        }
        Ok(writer.finish().await.map_err(StoreError::from)?)
    }

    /// Replaces all rows in one job.
    async fn replace(
        &self,
        mut bodies: HashMap<u64, Draft>,
        new: Vec<(Bytes, Bytes)>,
        last: u64,
    ) -> Result<(), LoadError> {
        let mut records = Vec::new();
        for (row, value) in new {
            records.push(Record::read(row, &value, self, &mut bodies).await?);
        }
        let gone = self
            .index
            .apply(move |rows| {
                let gone = super::clear(rows)?;
                let used = number(rows.get(rows::SEQUENCE)?).max(last);
                rows.put(rows::SEQUENCE, Bytes::copy_from_slice(&used.to_be_bytes()))?;
                for record in records {
                    record.put(rows)?;
                }
                Ok(gone)
            })
            .await?;
        self.release(&gone);
        self.look_again();
        Ok(())
    }
}

/// A row whose bodies have got their places in this store.
struct Record {
    row: Bytes,
    value: Value,
}

enum Value {
    Plain(Bytes),
    Version(Box<super::model::Version>, Vec<(Part, Draft)>),
    Part(Box<(Part, Draft)>),
}

impl Record {
    async fn read(
        row: Bytes,
        value: &Bytes,
        store: &Store,
        bodies: &mut HashMap<u64, Draft>,
    ) -> Result<Self, LoadError> {
        let value = match row.first() {
            Some(b'O' | b'V') => {
                let (version, parts) = version_record(&row, value).map_err(unreadable)?;
                let mut with_bodies = Vec::with_capacity(parts.len());
                for part in parts {
                    let body = body_of(&part, store, bodies).await?;
                    with_bodies.push((part, body));
                }
                Value::Version(Box::new(version), with_bodies)
            }
            Some(b'P') => {
                let part: Part = rows::decode(&row, value).map_err(unreadable)?.0;
                let body = body_of(&part, store, bodies).await?;
                Value::Part(Box::new((part, body)))
            }
            _ => Value::Plain(value.clone()),
        };
        Ok(Self { row, value })
    }

    fn put(self, rows: &mut dyn RowsMut) -> Result<(), IndexError> {
        let value = match self.value {
            Value::Plain(value) => value,
            Value::Part(part) => rows::encode(&placed(rows, *part)?)?,
            Value::Version(version, parts) => {
                let parts =
                    parts.into_iter().map(|part| placed(rows, part)).collect::<Result<Vec<_>, _>>()?;
                encode_version(&version, &parts)?
            }
        };
        rows.put(&self.row, value)
    }
}

/// The part with its body stored here.
fn placed(rows: &mut dyn RowsMut, (part, body): (Part, Draft)) -> Result<Part, IndexError> {
    Ok(Part { blob: super::keep(rows, body)?, ..part })
}

fn unreadable(error: IndexError) -> LoadError {
    LoadError::Damaged(error.to_string())
}

/// The body of a part; an empty one is in no file.
async fn body_of(part: &Part, store: &Store, bodies: &mut HashMap<u64, Draft>) -> Result<Draft, LoadError> {
    match bodies.remove(&part.blob.id) {
        Some(body) => Ok(body),
        None if part.size == 0 => Ok(store.writer(0).finish().await.map_err(StoreError::from)?),
        None => Err(LoadError::Damaged(format!("body {} is missing", part.blob.id))),
    }
}

/// Reads pieces and their checksum.
struct Input<'a> {
    source: Source<'a>,
    piece: Bytes,
    hash: Sha256,
    read: u64,
}

impl Input<'_> {
    fn damaged(&self, what: &str) -> LoadError {
        LoadError::Damaged(format!("{what}, at byte {}", self.read))
    }

    /// Whether there is anything more.
    async fn more(&mut self) -> Result<bool, LoadError> {
        while self.piece.is_empty() {
            match self.source.next().await? {
                Some(piece) => self.piece = piece,
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Between 1 and `most` bytes.
    async fn some(&mut self, most: u64) -> Result<Bytes, LoadError> {
        if !self.more().await? {
            return Err(self.damaged("it ends too early"));
        }
        let length = usize::try_from(most).unwrap_or(usize::MAX).min(self.piece.len());
        let bytes = self.piece.split_to(length);
        self.read += bytes.len() as u64;
        self.hash.update(&bytes);
        Ok(bytes)
    }

    /// Exactly `length` bytes.
    async fn take(&mut self, length: usize) -> Result<Bytes, LoadError> {
        let mut bytes = BytesMut::new();
        while bytes.len() < length {
            bytes.extend_from_slice(&self.some((length - bytes.len()) as u64).await?);
        }
        Ok(bytes.freeze())
    }

    async fn number(&mut self, length: usize) -> Result<u64, LoadError> {
        Ok(self.take(length).await?.get_uint(length))
    }

    /// The first line, or as much of it as the format's could have.
    async fn line(&mut self) -> Result<Bytes, LoadError> {
        let mut line = BytesMut::new();
        while line.len() < MAX_LINE_BYTES && line.last() != Some(&b'\n') && self.more().await? {
            line.extend_from_slice(&self.some(1).await?);
        }
        Ok(line.freeze())
    }
}
