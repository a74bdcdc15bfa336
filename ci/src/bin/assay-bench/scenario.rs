//! What is sent: the shots of each scenario, signed beforehand.

use crate::load::{self, Measure, Shot};
use assay_checks::{Call, Client};
use assay_ci::clock;
use assay_ci::process::{answers, make_bucket};
use bytes::Bytes;
use http::Method;
use std::io;
use std::time::Duration;

/// Size of every object in the throughput figures.
const OBJECT_BYTES: usize = 4096;
/// Size of the objects that fill a server for its memory figure.
const FILL_BYTES: usize = 1024;
/// Keys that GET reads in turn.
const READ_KEYS: usize = 1000;
/// Connections that fill and prepare.
const FILL_CONNECTIONS: usize = 16;
/// Shots signed at a time while filling, so that the bench itself stays small.
const FILL_BATCH: usize = 10_000;

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// PUT of 4 KiB to a new key each time.
    Put,
    /// GET of 4 KiB.
    Get,
    /// PUT of 4 KiB with `If-Match` of the current ETag, on a key of the connection's own.
    Swap,
}

/// One run of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// What is sent.
    pub scenario: Scenario,
    /// On how many connections at once.
    pub connections: usize,
    /// How many requests over all of them.
    pub requests: usize,
    /// Number of the run; new keys carry it.
    pub run: u32,
}

impl Load {
    /// The figure's name.
    pub fn title(&self) -> String {
        let what = match self.scenario {
            Scenario::Put => "PUT 4 KiB",
            Scenario::Get => "GET 4 KiB",
            Scenario::Swap => "PUT 4 KiB If-Match",
        };
        format!("{what}, {} conn", self.connections)
    }

    /// Signs and sends it.
    ///
    /// # Errors
    /// A connection broke, or an answer was not 2xx.
    pub async fn run(&self, client: &Client, authority: &str) -> io::Result<Measure> {
        let mut shots = Vec::new();
        for connection in 0..self.connections {
            shots.push(self.shots(client, connection).await?);
        }
        load::run(authority, shots).await
    }

    async fn shots(&self, client: &Client, connection: usize) -> io::Result<Vec<Shot>> {
        let each = self.requests / self.connections;
        let body = body(OBJECT_BYTES, 0);
        Ok(match self.scenario {
            Scenario::Put => (0..each)
                .map(|shot| {
                    let key = format!("put/{}/{}/{connection}/{shot}", self.connections, self.run);
                    Shot::new(client, Call::new(Method::PUT, Some(&key)), &body)
                })
                .collect(),
            Scenario::Get => (0..each)
                .map(|shot| {
                    let key = read_key((shot * self.connections + connection) % READ_KEYS);
                    Shot::new(client, Call::get(&key), &Bytes::new())
                })
                .collect(),
            Scenario::Swap => self.swaps(client, connection, each).await?,
        })
    }

    /// Two bodies in turn, each with the other's ETag as its condition: every swap is right, and signed before.
    async fn swaps(&self, client: &Client, connection: usize, each: usize) -> io::Result<Vec<Shot>> {
        let key = format!("swap/{connection}");
        let bodies = [body(OBJECT_BYTES, 0), body(OBJECT_BYTES, 1)];
        let mut etags = Vec::new();
        for body in &bodies {
            let put = client.send(Call::put(&key, body.clone())).await.map_err(io::Error::other)?;
            etags.push(put.etag().to_owned());
        }
        let [first, second] = [0, 1].map(|turn: usize| {
            let call = Call::new(Method::PUT, Some(&key)).if_match(&etags[1 - turn]);
            Shot::new(client, call, &bodies[turn])
        });
        Ok([first, second].into_iter().cycle().take(each).collect())
    }
}

/// Makes the bucket and the objects that GET reads.
///
/// # Errors
/// A connection broke, or an answer was not 2xx.
pub async fn prepare(client: &Client, authority: &str) -> io::Result<()> {
    make_bucket(client).await.map_err(io::Error::other)?;
    let body = body(OBJECT_BYTES, 0);
    let keys: Vec<String> = (0..READ_KEYS).map(read_key).collect();
    store(client, authority, &keys, &body).await
}

/// Makes the bucket and stores `objects` small objects.
///
/// # Errors
/// A connection broke, or an answer was not 2xx.
pub async fn fill(client: &Client, authority: &str, objects: usize) -> io::Result<()> {
    make_bucket(client).await.map_err(io::Error::other)?;
    let body = body(FILL_BYTES, 0);
    let keys: Vec<String> =
        (0..objects).map(|object| format!("fill/{:03}/{object:07}", object % 100)).collect();
    for batch in keys.chunks(FILL_BATCH) {
        store(client, authority, batch, &body).await?;
    }
    Ok(())
}

async fn store(client: &Client, authority: &str, keys: &[String], body: &Bytes) -> io::Result<()> {
    let shots = keys.chunks(keys.len().div_ceil(FILL_CONNECTIONS)).map(|keys| {
        keys.iter().map(|key| Shot::new(client, Call::new(Method::PUT, Some(key)), body)).collect()
    });
    load::run(authority, shots.collect()).await.map(|_| ())
}

fn read_key(number: usize) -> String {
    format!("get/{number:04}")
}

/// Bytes that do not compress to nothing; `variant` makes another body of the same length.
fn body(length: usize, variant: u64) -> Bytes {
    let mut random = fastrand::Rng::with_seed(variant);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

/// Starts the embedded server in this process and asks it once; returns how long that took.
///
/// # Errors
/// The server does not start or does not answer.
pub async fn start_in_process() -> Result<Duration, String> {
    let began = clock::now();
    let server = assay_server::Server::builder().start().await.map_err(|why| why.to_string())?;
    if !answers(&server.address().to_string()).await {
        return Err("the embedded server does not answer".to_owned());
    }
    let elapsed = began.elapsed();
    server.stop().await;
    Ok(elapsed)
}
