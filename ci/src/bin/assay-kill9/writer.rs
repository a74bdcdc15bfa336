//! One writer: seeded writes and deletes on keys of its own until the server is gone.

use crate::model::{Content, Model};
use assay_checks::{Answer, Call, Client, Lost};
use http::{Method, StatusCode};

/// Keys of each writer: few enough that most writes replace an object.
const KEYS: u32 = 24;
/// The least that S3 takes as a part that is not the last.
const PART: usize = 5 << 20;

/// An upload that is open; its Complete has not been sent.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Whose upload it is.
    pub key: String,
    /// As the server named it.
    pub id: String,
    /// What the parts come to, one after the other.
    pub whole: Content,
    /// The ETag of each acknowledged part, from the first on.
    pub etags: Vec<String>,
}

impl Upload {
    /// The body of Complete.
    fn list(&self) -> String {
        let part =
            |(number, etag)| format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
        let parts: String = (1..).zip(&self.etags).map(part).collect::<String>();
        format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
    }

    /// The length of each part.
    pub fn lengths(&self) -> Vec<usize> {
        (0..self.whole.length).step_by(PART).map(|at| PART.min(self.whole.length - at)).collect()
    }
}

/// A writer's memory outlives the server's processes.
pub struct Writer {
    /// Prefix of its keys.
    pub name: String,
    /// What its keys must hold.
    pub model: Model,
    /// The upload in which the last kill met it, if any.
    pub upload: Option<Upload>,
    /// Requests that the server answered with success.
    pub acknowledged: u64,
    random: fastrand::Rng,
}

/// Why a writer stopped.
#[derive(Debug)]
pub enum End {
    /// The server is gone, as it should be.
    Gone,
    /// The server answered what it must not.
    Wrong(String),
}

impl From<Lost> for End {
    fn from(_: Lost) -> End {
        End::Gone
    }
}

impl Writer {
    /// A writer whose choices follow from the seed.
    pub fn new(number: u64, seed: u64) -> Writer {
        Writer {
            name: format!("writer-{number}"),
            model: Model::default(),
            upload: None,
            acknowledged: 0,
            random: fastrand::Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        }
    }

    /// Works until the server is gone; `Err` says what the server answered wrongly.
    pub async fn work(&mut self, client: &Client) -> Result<(), String> {
        loop {
            match self.step(client).await {
                Ok(()) => {}
                Err(End::Gone) => return Ok(()),
                Err(End::Wrong(why)) => return Err(why),
            }
        }
    }

    async fn step(&mut self, client: &Client) -> Result<(), End> {
        let key = format!("{}/{:02}", self.name, self.random.u32(..KEYS));
        match self.random.u32(..100) {
            0..60 => self.put(client, &key, 0..8192, false).await,
            60..70 => self.put(client, &key, 65_536..2 << 20, false).await,
            70..82 => self.put(client, &key, 0..8192, true).await,
            82..94 => self.delete(client, &key).await,
            _ => self.multipart(client, &key).await,
        }
    }

    fn content(&mut self, length: std::ops::Range<usize>) -> Content {
        Content { seed: self.random.u64(..), length: self.random.usize(length) }
    }

    fn expect(&mut self, answer: &Answer, status: StatusCode) -> Result<(), End> {
        if answer.status != status || (status != StatusCode::NO_CONTENT && !answer.succeeded()) {
            let body = String::from_utf8_lossy(&answer.body);
            return Err(End::Wrong(format!("{}, expected {status}: {body}", answer.exchange.line())));
        }
        self.acknowledged += 1;
        Ok(())
    }

    /// PutObject; conditional on the ETag that the key has now, or on there being none.
    async fn put(
        &mut self,
        client: &Client,
        key: &str,
        length: std::ops::Range<usize>,
        conditional: bool,
    ) -> Result<(), End> {
        let content = self.content(length);
        let mut call = Call::put(key, content.bytes());
        if conditional {
            call = match self.model.of(key).acknowledged {
                None => call.if_none_match("*"),
                Some(_) => {
                    let head = client.send(Call::head(key)).await?;
                    self.expect(&head, StatusCode::OK)?;
                    call.if_match(head.etag())
                }
            };
        }
        self.model.sends(key, Some(content));
        let answer = client.send(call).await?;
        self.expect(&answer, StatusCode::OK)?;
        self.model.acknowledged(key);
        Ok(())
    }

    async fn delete(&mut self, client: &Client, key: &str) -> Result<(), End> {
        self.model.sends(key, None);
        let answer = client.send(Call::delete(key)).await?;
        self.expect(&answer, StatusCode::NO_CONTENT)?;
        self.model.acknowledged(key);
        Ok(())
    }

    /// A multipart upload of one or two parts, completed.
    async fn multipart(&mut self, client: &Client, key: &str) -> Result<(), End> {
        let created = client.send(Call::new(Method::POST, Some(key)).query("uploads", "")).await?;
        self.expect(&created, StatusCode::OK)?;
        let id = created.element("UploadId").ok_or_else(|| End::Wrong("no UploadId".to_owned()))?;
        let whole =
            if self.random.bool() { self.content(PART..PART + 2000) } else { self.content(1..200_000) };
        self.upload = Some(Upload { key: key.to_owned(), id, whole, etags: Vec::new() });
        self.finish_upload(client).await
    }

    /// Sends the parts that the open upload still lacks, and completes it.
    pub async fn finish_upload(&mut self, client: &Client) -> Result<(), End> {
        let Some(upload) = self.upload.clone() else { return Ok(()) };
        let bytes = upload.whole.bytes();
        for (index, part) in bytes.chunks(PART).enumerate().skip(upload.etags.len()) {
            let call = Call::put(&upload.key, bytes.slice_ref(part));
            let call = call.query("partNumber", &(index + 1).to_string()).query("uploadId", &upload.id);
            let answer = client.send(call).await?;
            self.expect(&answer, StatusCode::OK)?;
            if let Some(upload) = &mut self.upload {
                upload.etags.push(answer.etag().to_owned());
            }
        }
        let Some(upload) = self.upload.take() else { return Ok(()) };
        self.model.sends(&upload.key, Some(upload.whole));
        let call =
            Call::new(Method::POST, Some(&upload.key)).query("uploadId", &upload.id).body(upload.list());
        let answer = client.send(call).await?;
        self.expect(&answer, StatusCode::OK)?;
        self.model.acknowledged(&upload.key);
        Ok(())
    }
}
